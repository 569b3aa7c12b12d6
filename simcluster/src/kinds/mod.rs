//! The kinds that are served, and what is particular about each.

mod built_in;
mod claims;
mod definitions;
pub(crate) mod namespaces;
mod pods;
mod profile;
pub(crate) mod resources;
pub(crate) mod shapes;
mod slices;
pub(crate) mod strategy;

pub(crate) use built_in::built_in;
pub use profile::Profile;
pub(crate) use strategy::is_built_in;

/// A resource of one group version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// `kind` of an object.
    pub kind: String,
    /// As paths spell it.
    pub plural: String,
    /// As people type it.
    pub singular: String,
    /// Abbreviations for people.
    pub short: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// `status` and others.
    pub subresources: Vec<String>,
    /// What can be done with it; everything if empty.
    pub verbs: Vec<String>,
}

/// What a write is about.
pub(crate) struct Occasion<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) profile: &'a Profile,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// RFC 3339.
    pub(crate) now: &'a str,
}

/// Verbs of an ordinary resource, as discovery lists them.
pub(crate) const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// What can be done with a subresource.
pub(crate) fn verbs_of(subresource: &str) -> &'static [&'static str] {
    match subresource {
        "binding" | "token" => &["create"],
        "finalize" => &["update"],
        _ => &["get", "patch", "update"],
    }
}

impl Resource {
    /// `plural.group`, or `plural` in the core group.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `apiVersion` of an object.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Where its objects are kept. Events are the same objects in two groups.
    pub(crate) fn stored_as(&self) -> String {
        if self.plural == "events" { "events.events.k8s.io".to_owned() } else { self.qualified() }
    }

    /// Whether writes and reads of `status` are apart.
    pub(crate) fn has_status(&self) -> bool {
        self.subresources.iter().any(|sub| sub == "status")
    }
}
