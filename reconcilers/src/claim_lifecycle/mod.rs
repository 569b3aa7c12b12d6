//! The life of ResourceClaims: creation from templates, names in status,
//! reservation for Pods that have a node, release, deallocation, finalizer,
//! deletion. What kube-controller-manager's resourceclaim-controller does, for
//! clusters where that is switched off.
//!
//! `feed` → `index` → keys → `snapshot` → `plan_claim`, `plan_holder` (pure) →
//! `apply_claim`, `apply_holder` (the only places that wait).

pub mod apply_claim;
pub mod apply_holder;
pub mod claim_body;
pub mod claim_name;
pub mod controller;
pub mod drain;
pub mod dump;
pub mod embedded;
pub mod ended;
pub mod evidence;
pub mod facts;
pub mod feed;
pub mod index;
pub mod key;
pub mod metrics;
pub mod plan_claim;
pub mod plan_holder;
pub mod quota;
pub mod rights;
pub mod second_writer;
pub mod snapshot;
pub mod tasks;
#[cfg(test)]
mod tests;
pub mod users;

pub use claim_name::{Generation, claim_name, is_ours};
pub use controller::{ClaimLifecycle, Ground, LEVEL, Options};
pub use embedded::Embedded;
pub use feed::{Claims, Feed, Pods, Templates};
pub use index::Index;
pub use key::{Key, Subject};
pub use metrics::LifecycleMetrics;
