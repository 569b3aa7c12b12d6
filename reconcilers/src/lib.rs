//! The controllers of Dragoman, one folder each.
//!
//! Each has the same shape: an index fed by watches, pure plan functions from a
//! snapshot to guarded writes, and one place that executes them.

pub mod claim_lifecycle;
