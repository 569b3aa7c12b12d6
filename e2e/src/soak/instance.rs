//! Dragoman in this process, on a clock that can be wound and with a way in that goes wrong.

use std::sync::Arc;

use dragoman_machinery::api::Limits;
use dragoman_machinery::connect::within;
use dragoman_machinery::controller::Embedded;
use dragoman_reconcilers::cluster::SharedCluster;
use dragoman_reconcilers::{claim_lifecycle, ledger, pod_status};
use dragoman_simcluster::FaultyDoor;
use prometheus_client::registry::Registry;

/// Keys in work at once.
const WORKERS: usize = 8;

/// Starts it, with the controllers of nodes or without.
pub(super) fn start(door: &FaultyDoor, accounts: bool) -> Embedded {
    let mut registry = Registry::default();
    let clients = within(door, Limits::default(), &mut registry);
    let mut table = vec![claim_lifecycle::spec(claim_lifecycle::Options::default())];
    if accounts {
        let cluster = SharedCluster::default();
        table.push(ledger::spec(ledger::Options::default(), SharedCluster::clone(&cluster), Arc::default()));
        table.push(pod_status::spec(cluster, Arc::default(), Arc::default()));
    }
    Embedded::start(&clients, &mut registry, WORKERS, &table)
}
