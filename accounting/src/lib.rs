//! What Pods and claims take from a node: pure, exact, in every wire shape.
//!
//! The way of a number: text in an API object → [`amounts`] (what does not parse becomes
//! an [`unaccounted`] entry, never nothing) → what a [`pod`] asks for and what each
//! [`claim`] brings along → what is charged to the [`ledger`] of its node, and what is
//! left. [`wire`] holds the shapes in which Kubernetes has said it over the years.

pub mod amounts;
pub mod claim;
pub mod cluster;
pub mod ledger;
pub mod object;
pub mod per_resource;
pub mod pod;
pub mod resource;
pub mod unaccounted;
pub mod wire;

/// Any uid, or what stands for one.
pub type Uid = std::sync::Arc<str>;
