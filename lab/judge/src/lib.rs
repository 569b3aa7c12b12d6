//! Judges the runs of the instruments. Everything here is a function over plain data: the scenarios and soaks
//! of `e2e` record what happens, and read the commands of pages and the shipped alert rules.
//!
//! [`promises`] are those of the gate protocol, judged step by step; [`record`] replays a recorded control plane against
//! them, and [`report`] counts what it has shown.

pub mod documented;
mod holding;
pub mod pages;
pub mod promises;
pub mod record;
pub mod report;
pub mod rules;
mod told;
mod waiting;
