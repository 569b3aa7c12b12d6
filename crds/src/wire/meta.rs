//! The part of `ObjectMeta` that controllers read.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::{is_present, or_default};

/// Any name, namespace or uid: immutable and as small as its text.
pub type Name = Box<str>;

/// Annotation keys of Kubernetes that record the purpose of a claim.
pub mod annotation {
    /// On a generated claim: the entry of `spec.resourceClaims` it was made for.
    pub const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
    /// On a claim that kube-scheduler made for extended resources (KEP-5004): `"true"`.
    pub const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";
}

/// An API object with metadata.
pub trait Object: DeserializeOwned {
    /// Returns the `metadata`.
    fn meta(&self) -> &Meta;
}

/// `metadata` of any object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// `metadata.name`.
    #[serde(deserialize_with = "or_default")]
    pub name: Name,
    /// `metadata.namespace`; empty for cluster-scoped kinds.
    #[serde(deserialize_with = "or_default")]
    pub namespace: Name,
    /// `metadata.uid`.
    #[serde(deserialize_with = "or_default")]
    pub uid: Name,
    /// `metadata.resourceVersion`.
    #[serde(deserialize_with = "or_default")]
    pub resource_version: Name,
    /// `metadata.creationTimestamp`, RFC 3339.
    pub creation_timestamp: Option<Name>,
    /// Whether `metadata.deletionTimestamp` is set.
    #[serde(rename = "deletionTimestamp", deserialize_with = "is_present")]
    pub deleting: bool,
    /// `metadata.finalizers`, in order.
    #[serde(deserialize_with = "or_default")]
    pub finalizers: Vec<Name>,
    /// The annotations of [`annotation`].
    #[serde(deserialize_with = "or_default")]
    pub annotations: Annotations,
    /// The owner reference with `controller: true`; there is at most one.
    #[serde(rename = "ownerReferences", deserialize_with = "controller_of")]
    pub controller: Option<ControllerRef>,
}

/// The annotations that Dragoman reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Annotations {
    /// [`annotation::POD_CLAIM_NAME`].
    #[serde(rename = "resource.kubernetes.io/pod-claim-name")]
    pub pod_claim_name: Option<Name>,
    /// [`annotation::EXTENDED_RESOURCE_CLAIM`].
    #[serde(rename = "resource.kubernetes.io/extended-resource-claim")]
    pub extended_resource_claim: Option<Name>,
}

/// An owner reference with `controller: true`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControllerRef {
    /// `apiVersion`, for example `v1` or `scheduling.k8s.io/v1alpha2`.
    pub api_version: Name,
    /// `kind`.
    pub kind: Name,
    /// `name`.
    pub name: Name,
    /// `uid`.
    pub uid: Name,
}

impl ControllerRef {
    /// The API group of the owner; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

fn controller_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ControllerRef>, D::Error> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct OwnerReference {
        #[serde(deserialize_with = "or_default")]
        api_version: Name,
        #[serde(deserialize_with = "or_default")]
        kind: Name,
        #[serde(deserialize_with = "or_default")]
        name: Name,
        #[serde(deserialize_with = "or_default")]
        uid: Name,
        #[serde(deserialize_with = "or_default")]
        controller: bool,
    }
    let owners = Option::<Vec<OwnerReference>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(owners.into_iter().find(|o| o.controller).map(|o| ControllerRef {
        api_version: o.api_version,
        kind: o.kind,
        name: o.name,
        uid: o.uid,
    }))
}
