//! API types of Dragoman.
//!
//! [`wire`] holds small tolerant structs for the kinds of Kubernetes that some
//! controller reads. Kinds of our own have a file each beside it; [`crdgen`] makes
//! their definitions.

pub mod crdgen;
pub mod device_footprint;
pub mod node_allocatable_dra_claim_state;
pub mod quantity;
pub mod wire;
