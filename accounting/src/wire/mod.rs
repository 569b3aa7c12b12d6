//! The shapes in which the API has said all this, generation by generation
//! (docs/accounting.md 1), and the way from and to the canonical model.

pub mod device;
pub mod pod_status;
