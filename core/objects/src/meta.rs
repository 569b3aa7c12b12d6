//! The part of `ObjectMeta` that controllers read.

use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Name, is_present, or_default, well_known};

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
    #[serde(deserialize_with = "well_known::texts")]
    pub finalizers: Vec<Name>,
    /// `metadata.labels`.
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<Name, Name>,
    /// The annotations that Dragoman reads; see [`Meta::annotation`].
    #[serde(deserialize_with = "or_default")]
    pub annotations: Annotations,
    /// The owner reference with `controller: true`; there is at most one.
    #[serde(rename = "ownerReferences", deserialize_with = "controller_of")]
    pub controller: Option<ControllerRef>,
}

impl Meta {
    /// The value of an annotation of `resource.kubernetes.io` or of a domain of ours; the others
    /// are not kept.
    pub fn annotation(&self, key: &str) -> Option<&Name> {
        self.annotations.kept.iter().find(|(known, _)| **known == *key).map(|(_, value)| value)
    }

    /// The annotations of `resource.kubernetes.io` and of domains of ours.
    pub fn annotations(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.annotations.kept.iter().map(|(key, value)| (key, value))
    }

    /// Whether the object has annotations, of whatever domain: a JSON patch adds an entry to a map that is there.
    pub fn has_annotations(&self) -> bool {
        self.annotations.any
    }
}

/// The annotations that Dragoman reads. The values of the others may be large, and their text is
/// skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations {
    kept: Vec<(Name, Name)>,
    /// Whether there are any, also of other domains.
    any: bool,
}

/// Whether an annotation of this key is kept.
fn is_kept(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain == "resource.kubernetes.io" || domain == "dragoman.dev" || domain.ends_with(".dragoman.dev")
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Kept;
        impl<'de> Visitor<'de> for Kept {
            type Value = Annotations;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of annotations")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
                let (mut kept, mut any) = (Vec::new(), false);
                while let Some(KeptKey(key)) = map.next_key()? {
                    any = true;
                    let Some(key) = key else {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    };
                    kept.extend(map.next_value::<Option<Name>>()?.map(|value| (key, value)));
                }
                Ok(Annotations { kept, any })
            }
        }
        deserializer.deserialize_map(Kept)
    }
}

/// The key of an annotation, if it is kept.
struct KeptKey(Option<Name>);

impl<'de> Deserialize<'de> for KeptKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Key;
        impl Visitor<'_> for Key {
            type Value = KeptKey;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the key of an annotation")
            }
            fn visit_str<E>(self, key: &str) -> Result<KeptKey, E> {
                Ok(KeptKey(is_kept(key).then(|| key.into())))
            }
        }
        deserializer.deserialize_str(Key)
    }
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

/// An entry of `status.conditions` of any object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// `type`.
    #[serde(deserialize_with = "or_default")]
    pub r#type: Name,
    /// `status`: `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "or_default")]
    pub status: Name,
    /// `reason`.
    #[serde(deserialize_with = "or_default")]
    pub reason: Name,
    /// `message`.
    #[serde(deserialize_with = "or_default")]
    pub message: Name,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_of_others_are_skipped() {
        let text = r#"{"labels": {"a": "b"}, "annotations": {"big": "x", "resource.kubernetes.io/pod-claim-name": "gpu",
            "kubectl.kubernetes.io/last-applied-configuration": {"not": "text"}, "gate.dragoman.dev/wants": "1",
            "dragoman.dev/none": null, "notdragoman.dev/x": "1"}}"#;
        let meta: Meta = serde_json::from_str(text).expect("metadata");
        assert_eq!(meta.annotation(annotation::POD_CLAIM_NAME).map(|name| &**name), Some("gpu"));
        assert_eq!(meta.annotation("gate.dragoman.dev/wants").map(|name| &**name), Some("1"));
        assert_eq!(meta.annotations().count(), 2);
        let any = |text: &str| serde_json::from_str::<Meta>(text).expect("metadata").has_annotations();
        assert!(any(r#"{"annotations": {"big": "x"}}"#) && any(text));
        assert!(!any(r#"{"annotations": {}}"#) && !any("{}"));
        assert_eq!(meta.labels.get("a").map(|value| &**value), Some("b"));
        assert_eq!(serde_json::from_str::<Meta>(r#"{"annotations": null}"#).expect("null"), Meta::default());
    }
}
