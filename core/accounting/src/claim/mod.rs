//! Claims and their devices, as far as they take resources of their node.

pub mod allocation;
pub mod contribution;
pub mod footprint;
pub mod sharing;
