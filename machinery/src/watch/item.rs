//! An object as the API sent it.

use dragoman_objects::{Meta, Name, Object, Tolerated};
use serde::Deserialize;

/// An object as the API sent it. An object that does not decode is present all the same, known by
/// its metadata alone.
#[derive(Debug, Clone)]
pub enum Item<T> {
    /// The object decodes.
    Readable(T),
    /// The object does not decode.
    Unreadable {
        /// Metadata of the object; always at least name and uid.
        meta: Box<Meta>,
        /// Facts that are known of the object all the same.
        unread: Unread,
    },
}

/// Facts that are known of an object that does not decode, beside its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Why it does not decode.
    pub why: Name,
    /// `spec.nodeName`, where that is there and can be read, and the object has not ended (`status.phase`).
    pub node: Option<Name>,
}

impl<T: Object> Item<T> {
    /// Returns the metadata of the object.
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

/// The metadata of an object and the node that it names, whatever else there is.
#[derive(Deserialize)]
pub(super) struct Outline {
    #[serde(default)]
    metadata: Meta,
    #[serde(default)]
    spec: Tolerated<OutlineSpec>,
    #[serde(default)]
    status: Tolerated<OutlineStatus>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct OutlineSpec {
    node_name: Tolerated<Name>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OutlineStatus {
    phase: Tolerated<Name>,
}

impl Outline {
    /// The object, which does not decode as a whole.
    pub(super) fn item<T>(self, why: &serde_json::Error) -> Item<T> {
        let Self { metadata, spec, status } = self;
        let phase = match &status {
            Tolerated::Read(OutlineStatus { phase: Tolerated::Read(phase) }) => &**phase,
            _ => "",
        };
        let has_ended = matches!(phase, "Succeeded" | "Failed");
        let node = match spec {
            Tolerated::Read(OutlineSpec { node_name: Tolerated::Read(node) }) => Some(node),
            _ => None,
        };
        let node = node.filter(|node| !node.is_empty() && !has_ended);
        Item::Unreadable { meta: Box::new(metadata), unread: Unread { why: why.to_string().into(), node } }
    }
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
            let outline: Outline = serde_json::from_slice(text).map_err(|e| e.to_string())?;
            outline.item(&why)
        }
    };
    item.named()
}
