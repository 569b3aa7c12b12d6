//! The controllers of Dragoman, one folder each.
//!
//! Each has the same shape: an index fed by watches, pure plan functions from a snapshot to guarded
//! writes, and passes that the controller kit of `dragoman-machinery` carries out. A controller is a
//! row of a [`table`]: its `spec`.

pub mod allocation;
pub mod claim_lifecycle;
pub mod cluster;
pub mod gates;
mod give_back;
pub mod holders;
pub mod indexes;
pub mod ledger;
pub mod pod_status;
mod settings;
pub mod table;
