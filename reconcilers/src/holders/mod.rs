//! Holder Pods: what claims take and kube-scheduler does not see, a Pod of ours requests, so that kube-scheduler leaves
//! that room free (docs/protocol.md). A holder has a scheduling gate, so that it never runs, and it is nominated for its
//! node: kube-scheduler counts it there.
//!
//! A key is a node. `plan` compares what claims take with what the holders of the node hold; a holder is
//! raised before a Pod is released, and gives way to a smaller one a while after the end of another.

mod controller;
mod index;
mod plan;
mod rights;
mod room;
#[cfg(test)]
mod tests;

pub use controller::{NAME, spec};
pub use index::{COMPONENT, Holders, SCHEDULER, is_holder};
pub use rights::{OF_THE_SCHEDULER, RIGHTS};
