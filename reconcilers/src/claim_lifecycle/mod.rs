//! The life of ResourceClaims: creation from templates, names in status,
//! reservation for Pods that have a node, release, deallocation, finalizer,
//! deletion. What kube-controller-manager's resourceclaim-controller does, for
//! clusters where that is switched off.
//!
//! `state` (its `index` fed by watches) → keys → `snapshot` → `plan_claim`, `plan_consumer` → `claim_pass`,
//! `consumer_pass`, all of them pure; the controller kit carries a pass out.

pub mod claim_body;
pub mod claim_name;
pub mod claim_pass;
pub mod consumer_pass;
mod controller;
pub mod drain;
mod ended;
mod evidence;
mod facts;
mod index;
mod key;
mod metrics;
mod objectives;
pub mod plan_claim;
pub mod plan_consumer;
mod quota;
mod reclaim;
mod report;
pub mod rights;
mod second_writer;
mod settings;
pub mod snapshot;
mod state;
mod tally;
#[cfg(test)]
mod tests;

pub use claim_body::Birth;
pub use claim_name::{Generation, claim_name, is_ours};
pub use controller::{Options, spec};
pub use key::{Key, Subject};
pub use reclaim::Reclaim;
pub use settings::Settings;
pub use state::State;
