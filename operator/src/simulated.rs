//! Dragoman on simcluster, for `demo` and `simulate`.

use dragoman_machinery::api::Limits;
use dragoman_machinery::connect::within;
use dragoman_machinery::controller::Embedded;
use dragoman_simcluster::{ApiServer, Door, User};
use prometheus_client::registry::Registry;

use crate::controllers;

/// The user that Dragoman is on simcluster.
pub(crate) const USER: &str = "system:serviceaccount:kube-system:dragoman";
/// Keys in work at once.
const WORKERS: usize = 32;

/// Starts it.
pub(crate) fn dragoman(server: &ApiServer) -> Embedded {
    let user = User { name: USER.to_owned(), groups: vec!["system:masters".to_owned()] };
    let door = Door::new(server.clone(), user);
    let mut registry = Registry::default();
    let clients = within(&door, Limits::default(), &mut registry);
    Embedded::start(&clients, &mut registry, WORKERS, &controllers::by_default())
}
