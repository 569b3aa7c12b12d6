//! Dragoman on simcluster, for `demo` and `simulate`.

use dragoman_machinery::api::Limits;
use dragoman_machinery::connect::within;
use dragoman_machinery::controller::{ControllerSpec, Embedded};
use dragoman_reconcilers::{allocation, table};
use dragoman_simcluster::{ApiHandle, ApiServer, User};
use prometheus_client::registry::Registry;

/// The user that Dragoman is on simcluster.
pub(crate) const USER: &str = "system:serviceaccount:kube-system:dragoman";
/// The user that the reference allocator is there.
pub(crate) const ALLOCATOR: &str = "system:serviceaccount:kube-system:dragoman-allocator";
/// Keys in work at once.
const WORKERS: usize = 32;

/// Starts the operator, with the controllers that run by default.
pub(crate) fn dragoman(server: &ApiServer) -> Embedded {
    start(server, USER, &table::by_default(table::Options::default()))
}

/// Starts the operator with claim gates, and the reference allocator.
pub(crate) fn gated(server: &ApiServer) -> [Embedded; 2] {
    let options = allocation::Options::default();
    let gated = table::Options::with_allocator(&options.name);
    let operator = table::operator(gated);
    [start(server, USER, &operator), start(server, ALLOCATOR, &table::allocator(options))]
}

fn start(server: &ApiServer, name: &str, table: &[ControllerSpec]) -> Embedded {
    let user = User { name: name.to_owned(), groups: vec!["system:masters".to_owned()] };
    let handle = ApiHandle::new(server.clone(), user);
    let mut registry = Registry::default();
    let clients = within(&handle, Limits::default(), &mut registry);
    Embedded::start(&clients, &mut registry, WORKERS, table)
}
