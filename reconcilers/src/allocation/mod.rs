//! The reference allocator: devices and a node for the claims of gated Pods (docs/protocol.md).
//!
//! `index` has the cluster as the allocator library and the ledger read it. A Pod is decided on by
//! `decide`, on the candidates that `shapes` keeps: a Pod that is refused everywhere costs nothing until a
//! node changes. `look` says what is next for a Pod, `turns` searches, and `pass` carries out what was decided,
//! one guarded write after the other.

mod allowance;
mod aside;
mod contested;
mod controller;
mod decide;
mod devices;
mod gangs;
mod groups;
mod held;
mod in_flight;
mod index;
mod large;
mod look;
mod metrics;
mod objects;
mod owners;
mod pass;
mod pins;
mod pod_state;
mod rank;
mod reasons;
mod rights;
mod settings;
mod shapes;
mod sharers;
#[cfg(test)]
mod steady;
mod surroundings;
#[cfg(test)]
mod tests;
mod turns;
mod undecidable;
mod verdicts;
mod volumes;
mod writes;

pub use controller::{Options, spec};
pub use settings::{DeviceAlignment, DeviceChoice, NodeOrder, Settings};
