//! Whole API objects (`resource.k8s.io/v1`), as far as the allocator reads them.

use std::collections::BTreeMap;

use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::known::{self, Shape};
use super::{
    Allocation, Claim, ClaimDevices, Class, DeviceSelector, Name, Node, Slice, Taint, TaintRule, or_default,
};

/// A ResourceSlice as the API server sends it.
pub type SliceObject = Object<Slice>;
/// A DeviceClass as the API server sends it.
pub type ClassObject = Object<Class>;
/// A ResourceClaim as the API server sends it.
pub type ClaimObject = Object<ClaimSpec, ClaimStatus>;
/// A Node as the API server sends it.
pub type NodeObject = Object<Ignored, NodeStatus>;
/// A DeviceTaintRule as the API server sends it.
pub type TaintRuleObject = Object<RuleSpec>;

/// An API object: `metadata`, `spec` and `status`, each of which may be missing or `null`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Object<Spec: Default, Status: Default = Ignored> {
    #[serde(deserialize_with = "or_default")]
    metadata: Metadata,
    #[serde(deserialize_with = "decided", bound = "Spec: Decided")]
    spec: Spec,
    #[serde(deserialize_with = "or_default", bound = "Status: Deserialize<'de>")]
    status: Status,
}

/// A `spec` that may have a field that this version does not know.
trait Decided: for<'de> Deserialize<'de> + Default {
    /// The fields that are known.
    const SHAPE: &'static Shape;

    /// It has another one; the text says where.
    fn undecided(&mut self, why: &Name);
}

fn decided<'de, D: Deserializer<'de>, Spec: Decided>(deserializer: D) -> Result<Spec, D::Error> {
    if matches!(Spec::SHAPE, Shape::Any) {
        return or_default(deserializer);
    }
    let Some(text) = Option::<Box<RawValue>>::deserialize(deserializer)? else { return Ok(Spec::default()) };
    let mut spec: Spec = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
    if let Some(path) = known::unknown(Spec::SHAPE, &mut serde_json::Deserializer::from_str(text.get())) {
        spec.undecided(&known::why(&format!("spec.{path}")));
    }
    Ok(spec)
}

impl Decided for Slice {
    const SHAPE: &'static Shape = &known::SLICE;

    fn undecided(&mut self, why: &Name) {
        for device in &mut self.devices {
            device.unreadable.get_or_insert_with(|| why.clone());
        }
        for set in &mut self.shared_counters {
            set.unreadable.get_or_insert_with(|| why.clone());
        }
    }
}

impl Decided for Class {
    const SHAPE: &'static Shape = &known::CLASS;

    fn undecided(&mut self, why: &Name) {
        self.unreadable = Some(why.clone());
    }
}

impl Decided for ClaimSpec {
    const SHAPE: &'static Shape = &known::CLAIM;

    fn undecided(&mut self, why: &Name) {
        self.devices.unreadable = Some(why.clone());
    }
}

impl Decided for RuleSpec {
    const SHAPE: &'static Shape = &known::TAINT_RULE;

    fn undecided(&mut self, _why: &Name) {
        // What selects the devices may be what is not known.
        self.device_selector.get_or_insert_default();
        self.taint = Taint::unreadable();
    }
}

impl Decided for Ignored {
    const SHAPE: &'static Shape = &Shape::Any;

    fn undecided(&mut self, _why: &Name) {}
}

/// `metadata`, as far as the allocator goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Metadata {
    #[serde(deserialize_with = "or_default")]
    name: Name,
    #[serde(deserialize_with = "or_default")]
    namespace: Name,
    #[serde(deserialize_with = "or_default")]
    uid: Name,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<Name, Name>,
}

/// `spec` of a ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimSpec {
    #[serde(deserialize_with = "or_default")]
    devices: ClaimDevices,
}

/// `status` of a ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimStatus {
    allocation: Option<Allocation>,
}

/// `status` of a Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "or_default")]
    declared_features: Vec<Name>,
}

/// `spec` of a DeviceTaintRule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleSpec {
    device_selector: Option<DeviceSelector>,
    #[serde(deserialize_with = "or_default")]
    taint: Taint,
}

/// `spec` or `status` of which nothing is read: it may be anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignored {}

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self {})
    }
}

impl<Spec: Default, Status: Default> Object<Spec, Status> {
    /// `metadata.namespace` and `metadata.name`.
    pub fn name(&self) -> (&Name, &Name) {
        (&self.metadata.namespace, &self.metadata.name)
    }

    /// `metadata.uid`; `NAMESPACE/NAME` for an object that was written by hand and has none.
    pub fn uid(&self) -> Name {
        let Metadata { namespace, name, uid, .. } = &self.metadata;
        if uid.is_empty() { format!("{namespace}/{name}").into() } else { uid.clone() }
    }
}

impl SliceObject {
    /// The slice.
    pub fn slice(&self) -> Slice {
        Slice { name: self.metadata.name.clone(), ..self.spec.clone() }
    }
}

impl ClassObject {
    /// The class.
    pub fn class(&self) -> Class {
        Class { name: self.metadata.name.clone(), ..self.spec.clone() }
    }
}

impl ClaimObject {
    /// The claim.
    pub fn claim(&self) -> Claim {
        Claim {
            uid: self.uid(),
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
            devices: self.spec.devices.clone(),
            allocation: self.status.allocation.clone(),
        }
    }
}

impl NodeObject {
    /// The node.
    pub fn node(&self) -> Node {
        Node {
            name: self.metadata.name.clone(),
            labels: self.metadata.labels.clone(),
            declared_features: self.status.declared_features.clone(),
        }
    }
}

impl TaintRuleObject {
    /// The rule.
    pub fn rule(&self) -> TaintRule {
        TaintRule {
            name: self.metadata.name.clone(),
            selector: self.spec.device_selector.clone(),
            taint: self.spec.taint.clone(),
        }
    }
}
