//! API types of Dragoman. Each kind has a module of its own, and [`crdgen`] generates the CustomResourceDefinitions.

pub mod claim_gate;
pub mod crdgen;
pub mod device_footprint;
pub mod driver_owner;
pub mod node_allocatable_dra_claim_state;
pub mod protocol;
