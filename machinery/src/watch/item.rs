//! An object as the API sent it.

use dragoman_crds::wire::{Meta, Object};
use serde::Deserialize;

/// An object as the API sent it. An object that does not decode is present all the same, known by
/// its metadata alone.
#[derive(Debug, Clone)]
pub enum Item<T> {
    /// It decodes.
    Readable(T),
    /// It does not.
    Unreadable {
        /// Its metadata; always at least name and uid.
        meta: Box<Meta>,
        /// Why it does not decode.
        why: String,
    },
}

impl<T: Object> Item<T> {
    /// Its metadata.
    pub fn meta(&self) -> &Meta {
        match self {
            Self::Readable(object) => object.meta(),
            Self::Unreadable { meta, .. } => meta,
        }
    }

    /// The item, if it has a name to be remembered under.
    ///
    /// # Errors
    /// It has no name or no uid.
    pub(super) fn named(self) -> Result<Self, String> {
        let meta = self.meta();
        if meta.name.is_empty() || meta.uid.is_empty() {
            return Err("object without name or uid".to_owned());
        }
        Ok(self)
    }
}

/// The metadata of an object, whatever else there is.
#[derive(Deserialize)]
pub(super) struct MetaOnly {
    #[serde(default)]
    pub(super) metadata: Meta,
}

/// Decodes one object from its JSON.
///
/// # Errors
/// Only where not even the metadata is readable: such an object has no name to
/// be remembered under, so the whole list or watch has to be tried again.
pub fn decode_item<T: Object>(text: &[u8]) -> Result<Item<T>, String> {
    let item = match serde_json::from_slice::<T>(text) {
        Ok(object) => Item::Readable(object),
        Err(why) => {
            let MetaOnly { metadata } = serde_json::from_slice(text).map_err(|e| e.to_string())?;
            Item::Unreadable { meta: Box::new(metadata), why: why.to_string() }
        }
    };
    item.named()
}
