//! The served kinds, and the particulars of each.

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
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The `kind` of an object.
    pub kind: String,
    /// The name in paths.
    pub plural: String,
    /// The singular name, for people.
    pub singular: String,
    /// Abbreviations for people.
    pub short: Vec<String>,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// The subresources, such as `status`.
    pub subresources: Vec<String>,
    /// The supported verbs. An empty list means all verbs.
    pub verbs: Vec<String>,
}

/// The context of a write.
pub(crate) struct Occasion<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) profile: &'a Profile,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The time of the write, in RFC 3339.
    pub(crate) now: &'a str,
}

/// The verbs of an ordinary resource, as discovery lists them.
pub(crate) const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Returns the verbs of a subresource.
pub(crate) fn verbs_of(subresource: &str) -> &'static [&'static str] {
    match subresource {
        "binding" | "token" => &["create"],
        "finalize" => &["update"],
        _ => &["get", "patch", "update"],
    }
}

impl Resource {
    /// Returns `plural.group`, or `plural` in the core group.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns the `apiVersion` of an object.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the storage name. Events of both groups are the same objects.
    pub(crate) fn stored_as(&self) -> String {
        if self.plural == "events" { "events.events.k8s.io".to_owned() } else { self.qualified() }
    }

    /// Whether the resource has a `status` subresource.
    pub(crate) fn has_status(&self) -> bool {
        self.subresources.iter().any(|sub| sub == "status")
    }
}
