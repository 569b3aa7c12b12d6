//! Exact amounts of node resources that Pods and claims take, in every wire shape.
//!
//! The crate has no I/O. [`amounts`] parses the text in an API object; text that does not parse
//! becomes an [`unaccounted`] entry and is never counted as zero. [`pod`] and [`claim`] compute the
//! requests of a Pod and the contribution of each claim. [`ledger`] charges both to a node and
//! answers what is left. [`cluster`] builds the ledgers of all nodes from listed objects. [`wire`]
//! converts objects of every generation of the API.

pub mod amounts;
pub mod claim;
pub mod cluster;
pub mod few;
pub mod ledger;
pub mod object;
pub mod per_resource;
pub mod pod;
pub mod resource;
pub mod unaccounted;
pub mod wire;

/// A uid, or a key that stands for one.
pub type Uid = dragoman_objects::Name;
