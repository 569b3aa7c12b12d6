//! The input format of scenarios: the objects that the allocator reads, whole
//! (`resource.k8s.io/v1`), and the cluster made of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use crate::input::{
    Allocation, Claim, ClaimDevices, Class, Cluster, DeviceSelector, Node, Slice, Taint, TaintRule,
    or_default,
};
use crate::{Gates, PodClaims, Snapshot};

type Text = Arc<str>;

/// `metadata`, as far as the allocator goes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    #[serde(deserialize_with = "or_default")]
    name: Text,
    #[serde(deserialize_with = "or_default")]
    namespace: Text,
    #[serde(deserialize_with = "or_default")]
    uid: Text,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<Text, Text>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Object<Spec: Default, Status: Default = ()> {
    #[serde(deserialize_with = "or_default")]
    metadata: Metadata,
    #[serde(deserialize_with = "or_default", bound = "Spec: Deserialize<'de>")]
    spec: Spec,
    #[serde(deserialize_with = "or_default", bound = "Status: Deserialize<'de>")]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ClaimSpec {
    #[serde(deserialize_with = "or_default")]
    devices: ClaimDevices,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ClaimStatus {
    allocation: Option<Allocation>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeStatus {
    #[serde(deserialize_with = "or_default")]
    declared_features: Vec<Text>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuleSpec {
    device_selector: Option<DeviceSelector>,
    #[serde(deserialize_with = "or_default")]
    taint: Taint,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Ignored {}

/// Devices, who holds them, and who wants them: lists of API objects, so that any dump of a
/// cluster can become one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scenario {
    #[serde(deserialize_with = "or_default")]
    nodes: Vec<Object<Ignored, NodeStatus>>,
    #[serde(deserialize_with = "or_default")]
    resource_slices: Vec<Object<Slice>>,
    #[serde(deserialize_with = "or_default")]
    device_classes: Vec<Object<Class>>,
    #[serde(deserialize_with = "or_default")]
    resource_claims: Vec<Object<ClaimSpec, ClaimStatus>>,
    #[serde(deserialize_with = "or_default")]
    device_taint_rules: Vec<Object<RuleSpec>>,
    /// The claims to allocate together, as `namespace/name`.
    #[serde(deserialize_with = "or_default")]
    pub allocate: Vec<Text>,
    /// The nodes to try, in order.
    #[serde(deserialize_with = "or_default")]
    pub candidates: Vec<Text>,
    /// What is on; everything else is off. Without the field what Kubernetes has on.
    pub feature_gates: Option<BTreeMap<Text, bool>>,
}

/// A scenario that does not hold together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadScenario {
    /// A claim is to be allocated that is not there.
    #[error("allocate: there is no claim {0:?} in resourceClaims")]
    NoClaim(Text),
    /// A node is to be tried that is not there.
    #[error("candidates: there is no node {0:?} in nodes")]
    NoNode(Text),
    /// A gate that there is not.
    #[error("featureGates: there is no gate {0:?}")]
    NoGate(Text),
}

impl Scenario {
    /// The cluster.
    pub fn cluster(&self) -> Cluster {
        let node = |node: &Object<Ignored, NodeStatus>| Node {
            name: node.metadata.name.clone(),
            labels: node.metadata.labels.clone(),
            declared_features: node.status.declared_features.clone(),
        };
        let rule = |rule: &Object<RuleSpec>| TaintRule {
            name: rule.metadata.name.clone(),
            selector: rule.spec.device_selector.clone(),
            taint: rule.spec.taint.clone(),
        };
        let class = |class: &Object<Class>| Class { name: class.metadata.name.clone(), ..class.spec.clone() };
        let slice = |slice: &Object<Slice>| Slice { name: slice.metadata.name.clone(), ..slice.spec.clone() };
        Cluster {
            nodes: self.nodes.iter().map(node).collect(),
            slices: self.resource_slices.iter().map(slice).collect(),
            classes: self.device_classes.iter().map(class).collect(),
            claims: self.resource_claims.iter().map(Object::claim).collect(),
            taint_rules: self.device_taint_rules.iter().map(rule).collect(),
        }
    }

    /// The cluster, with what another has compiled already.
    ///
    /// # Errors
    /// It names what is not there.
    pub fn snapshot(&self, like: &Snapshot) -> Result<Snapshot, BadScenario> {
        let snapshot = like.emptied().with(self.cluster());
        let missing = self.candidates.iter().find(|name| snapshot.node(name).is_none());
        missing.map_or(Ok(snapshot), |name| Err(BadScenario::NoNode(name.clone())))
    }

    /// The claims to allocate.
    ///
    /// # Errors
    /// It names what is not there.
    pub fn claims(&self, snapshot: &Snapshot) -> Result<PodClaims, BadScenario> {
        let claims = self.allocate.iter().map(|name| {
            let claim = self.claim_named(name).ok_or_else(|| BadScenario::NoClaim(name.clone()))?;
            Ok(Arc::new(claim.claim()))
        });
        Ok(PodClaims::new(snapshot, claims.collect::<Result<_, _>>()?, self.gates()?))
    }

    /// The uids of the claims to allocate.
    pub fn wanted(&self) -> Vec<Text> {
        let claims = self.allocate.iter().filter_map(|name| self.claim_named(name));
        claims.map(|claim| claim.metadata.effective_uid().into()).collect()
    }

    fn claim_named(&self, name: &str) -> Option<&Object<ClaimSpec, ClaimStatus>> {
        let (namespace, name) = name.split_once('/')?;
        self.resource_claims
            .iter()
            .find(|claim| *claim.metadata.namespace == *namespace && *claim.metadata.name == *name)
    }

    /// What is on.
    ///
    /// # Errors
    /// It names a gate that there is not.
    pub fn gates(&self) -> Result<Gates, BadScenario> {
        let Some(given) = &self.feature_gates else { return Ok(Gates::default()) };
        let mut gates = Gates::NONE;
        for (name, on) in given {
            let mut known = gates.by_name().into_iter().filter(|(known, _)| *known == &**name);
            let (_, gate) = known.next().ok_or_else(|| BadScenario::NoGate(name.clone()))?;
            *gate = *on;
        }
        Ok(gates)
    }

    /// `namespace/name` of the claim with this uid.
    pub fn claim_name(&self, uid: &str) -> Option<String> {
        let mut claims = self.resource_claims.iter().map(|claim| &claim.metadata);
        let claim = claims.find(|claim| claim.effective_uid() == *uid)?;
        Some(format!("{}/{}", claim.namespace, claim.name))
    }
}

impl Metadata {
    /// Claims that somebody wrote by hand have none; their names are as good.
    fn effective_uid(&self) -> String {
        if self.uid.is_empty() { format!("{}/{}", self.namespace, self.name) } else { self.uid.to_string() }
    }
}

impl Object<ClaimSpec, ClaimStatus> {
    fn claim(&self) -> Claim {
        Claim {
            uid: self.metadata.effective_uid().into(),
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
            devices: self.spec.devices.clone(),
            allocation: self.status.allocation.clone(),
        }
    }
}
