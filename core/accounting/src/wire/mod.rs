//! From objects of the API to what accounting reads of them, in every generation of the API (docs/accounting.md 1), and back.

mod claim;
pub mod device;
mod node;
mod pod;
pub mod pod_status;
mod slice;
