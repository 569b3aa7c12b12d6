//! Dragoman in this process, on a clock that can be wound and with a way in that goes wrong.

use dragoman_machinery::api::Limits;
use dragoman_machinery::connect::within;
use dragoman_machinery::controller::Embedded;
use dragoman_reconcilers::table;
use dragoman_simcluster::FaultInjector;
use prometheus_client::registry::Registry;

/// Keys in work at once.
const WORKERS: usize = 8;

/// Starts it, with the controllers of nodes or without.
pub(super) fn start(handle: &FaultInjector, accounts: bool) -> Embedded {
    let mut registry = Registry::default();
    let clients = within(handle, Limits::default(), &mut registry);
    let mut table = table::by_default(table::Options::default());
    if !accounts {
        table.retain(|spec| spec.name == "claim_lifecycle");
    }
    Embedded::start(&clients, &mut registry, WORKERS, &table)
}
