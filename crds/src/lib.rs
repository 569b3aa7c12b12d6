//! API types of Dragoman.
//!
//! [`wire`] has small, tolerant structs for the Kubernetes kinds that controllers read. Each kind
//! of Dragoman has a module of its own, and [`crdgen`] generates their CustomResourceDefinitions.

pub mod claim_gate;
pub mod crdgen;
pub mod device_footprint;
pub mod driver_owner;
pub mod node_allocatable_dra_claim_state;
pub mod wire;
