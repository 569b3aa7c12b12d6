//! From the index to plain data: what plans are made on.

mod claim;
mod consumer;

pub use claim::{ClaimSnapshot, ReadAt};
pub use consumer::{
    ConsumerKind, ConsumerSnapshot, EntrySnapshot, GroupSnapshot, NamedClaim, OwnedClaim, TemplateState,
};
