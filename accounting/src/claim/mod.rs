//! A claim, as far as its devices take something from their node.

pub mod allocation;
pub mod contribution;
pub mod footprint;
pub mod sharing;
