//! The published ledger of every node: NodeAllocatableDRAClaimState.
//!
//! `cluster` (fed by watches) → keys of nodes → `content` (what the ledger says, in words) → `plan`,
//! all of them pure; the controller sends at most one write for a key. docs/ledger.md has the rules.

mod content;
mod controller;
mod devices;
mod metrics;
pub mod plan;
mod pod_devices;
pub mod rights;
mod settings;
#[cfg(test)]
mod tests;

pub use content::NodeReport;
pub use controller::{NAME, Options, spec};
pub use pod_devices::{AttributeLabel, attribute_labels};
pub use settings::Settings;
