//! A cluster as decisions see it: which nodes take a Pod, what its devices cost there, and whether it fits.
//!
//! Controllers, the allocator and `kubectl dra` ask the same questions here, on their own objects: an index of a live
//! cluster, or a file.

mod account;
mod attribute;
mod found;
pub mod placement;
mod selector;

pub use account::{Account, account};
pub use attribute::Attributes;
pub use found::with_allocation;
pub use selector::footprint;
