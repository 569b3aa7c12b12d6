//! The patch formats.

mod apply;
mod fields;
mod json_patch;
mod lists;
mod merge;
mod strategic;

pub(crate) use apply::{Conflict, apply};
pub(crate) use fields::{Managed, Owners};
pub(crate) use json_patch::{Failed, json_patch};
pub(crate) use lists::{Lists, lists_of, lists_of_schema};
pub(crate) use merge::merge_patch;
pub(crate) use strategic::strategic_merge_patch;
