//! Holder Pods: where the API server drops what claims take from the status of Pods, one small Pod of ours
//! per node requests it instead, so that kube-scheduler leaves that room free (docs/protocol.md).
//!
//! A key is a node. `plan` compares what claims take with what the holder of the node carries; a holder is
//! raised before a Pod is released, and lowered a while after the end of another.

mod controller;
mod index;
mod plan;
mod rights;
mod shared;
#[cfg(test)]
mod tests;

pub use controller::{IMAGE, Options, spec};
pub use index::{COMPONENT, is_holder};
pub use rights::RIGHTS;
pub use shared::SharedHolders;
