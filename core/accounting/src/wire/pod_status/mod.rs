//! The records about claims in Pod status: the draft of KEP-5517, Kubernetes 1.36 (one total for
//! each resource), 1.37 (mapping and overhead) and 1.38 (another list, with a source).

mod print;
mod read;

pub use print::{Loss, to_1_36, to_1_37, to_1_38, to_draft};
pub use read::{Conflict, Reading, Recorded, read};
