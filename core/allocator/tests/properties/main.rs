//! Properties of the allocator on small random clusters: its answer is that of trying everything in order,
//! and is the same however the question is put. The clusters are those of the comparison with Kubernetes.
//!
//! The seed is fixed, so that a run can be repeated. `PROPTEST_RNG_SEED` and `PROPTEST_CASES` choose others.
//! A failure prints the smallest scenario that still fails, in the format of `dragoman allocate -f`;
//! `SCENARIO=scenario.json cargo test -p dragoman-allocator --test properties NAME` plays it again.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]

mod answer;
mod brute_force;
mod crowded;
mod drawn;
mod explanations;
mod history;
mod other_ways;
mod rules;
#[path = "../scenarios/mod.rs"]
mod scenarios;
