//! What Pods and claims take from a node: pure, exact, in every wire shape.
//!
//! The way of a number: text in an API object → [`amounts`] (what does not parse becomes
//! an [`unaccounted`] entry, never nothing) → what a Pod's spec asks for ([`requests`])
//! and what its claims bring along ([`contribution`]) → what fits.

pub mod allocation;
pub mod amounts;
pub mod contribution;
pub mod footprint;
pub mod ledger;
pub mod pod;
pub mod requests;
pub mod resource;
pub mod unaccounted;
pub mod wire;
