//! Answers from objects as `kubectl get` prints them: what Pods and claims take from their nodes, which `dragoman account`
//! and `kubectl dra ledger` say, and why a Pod waits, which `kubectl dra explain` says.

pub mod availability;
mod cluster;
mod cost;
mod devices;
pub mod explain;
mod extended;
pub mod facts;
mod html;
pub mod lists;
pub mod manifests;
mod objects;
mod printable;
mod quota;
pub mod readiness;
mod report;
mod schema;
pub mod supply;
mod table;
mod volumes;
pub mod why;

pub use self::extended::claim_for as claim_for_extended_resources;
pub use self::html::html;
pub use self::objects::{Keep, Objects};
pub use self::printable::printable;
pub use self::report::{Filter, Report};
pub use self::schema::schema;
pub use self::table::{columns, render};

#[cfg(test)]
mod tests;
