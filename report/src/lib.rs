//! Answers from objects as `kubectl get` prints them: what Pods and claims take from their nodes, which `dragoman account`
//! and `kubectl dra ledger` say, and why a Pod waits, which `kubectl dra explain` says.

pub mod availability;
mod cluster;
mod devices;
pub mod explain;
pub mod facts;
pub mod manifests;
mod objects;
mod printable;
mod report;
pub mod supply;
mod table;

pub use self::objects::{Keep, Objects};
pub use self::printable::printable;
pub use self::report::{Filter, Report};
pub use self::table::{columns, render};

#[cfg(test)]
mod tests;
