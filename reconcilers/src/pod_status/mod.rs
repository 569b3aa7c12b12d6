//! Amounts that claims take, in the status of Pods: the entries of KEP-5517 for Pods whose scheduler knows
//! nothing of them. A kube-scheduler that counts node-allocatable claims reads the entries.
//!
//! `index` (fed by the watch of Pods) and the ledger of [`crate::cluster`] → `plan`, all of them pure;
//! `pass` carries the plan out. docs/ledger.md 8 has the rules.

mod controller;
mod index;
mod inquiry;
mod pass;
pub mod plan;
mod publisher;
pub mod rights;
mod shape;
#[cfg(test)]
mod tests;

pub use controller::spec;
pub use index::PodStatuses;
pub(crate) use inquiry::Inquiry;
pub use publisher::Publisher;
pub(crate) use shape::{DROPPED, Publication, parted, uncounted, write};
