//! Dragoman in this process, on a clock that can be wound and with a way in that goes wrong.

use dragoman_machinery::api::Limits;
use dragoman_machinery::connect::within;
use dragoman_machinery::controller::Embedded;
use dragoman_reconcilers::claim_lifecycle;
use dragoman_simcluster::FaultyDoor;
use prometheus_client::registry::Registry;

/// Keys in work at once.
const WORKERS: usize = 8;

/// Starts it.
pub(super) fn start(door: &FaultyDoor) -> Embedded {
    let mut registry = Registry::default();
    let clients = within(door, Limits::default(), &mut registry);
    let table = [claim_lifecycle::spec(claim_lifecycle::Options::default())];
    Embedded::start(&clients, &mut registry, WORKERS, &table)
}
