//! Objects as `kubectl get` prints them, and what Pods and claims take from their nodes: what `dragoman account` and
//! `kubectl dra ledger` say.

mod cluster;
mod devices;
pub mod manifests;
mod objects;
mod report;
mod table;

pub use self::objects::{Keep, Objects};
pub use self::report::{Filter, Report};
pub use self::table::{columns, render};

#[cfg(test)]
mod tests;
