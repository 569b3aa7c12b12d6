//! API types of Dragoman.
//!
//! [`wire`] holds small tolerant structs for the kinds of Kubernetes that some
//! controller reads. Kinds of our own get a file each beside it.

pub mod wire;
