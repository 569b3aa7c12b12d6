//! The input format of scenarios: the objects that the allocator reads, whole
//! (`resource.k8s.io/v1`), and the cluster made of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_objects::{
    Allocation, DeviceClass, DeviceTaintRule, Node, ResourceClaim, ResourceSlice, or_default,
};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::input::{Claim, Cluster};
use crate::{Gates, PodClaims, Snapshot};

type Text = Arc<str>;

/// Devices, who holds them, and who wants them: lists of API objects, so that any dump of a
/// cluster can become one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scenario {
    #[serde(deserialize_with = "or_default")]
    nodes: Vec<Node>,
    #[serde(deserialize_with = "or_default")]
    resource_slices: Vec<ResourceSlice>,
    #[serde(deserialize_with = "or_default")]
    device_classes: Vec<DeviceClass>,
    #[serde(deserialize_with = "readable")]
    resource_claims: Vec<Claim>,
    #[serde(deserialize_with = "or_default")]
    device_taint_rules: Vec<DeviceTaintRule>,
    /// The claims to allocate together, as `namespace/name`.
    #[serde(deserialize_with = "or_default")]
    pub allocate: Vec<Text>,
    /// The nodes to try, in order.
    #[serde(deserialize_with = "or_default")]
    pub candidates: Vec<Text>,
    /// The attribute that all devices of the claims have to share.
    pub aligned_by: Option<Text>,
    /// Features that are on; every other feature is off. Without the field, the features are on that
    /// Kubernetes has on.
    pub feature_gates: Option<BTreeMap<Text, bool>>,
}

/// Claims whose allocations decode: without one it is not known which devices are free.
fn readable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Claim>, D::Error> {
    let claims: Vec<ResourceClaim> = or_default(deserializer)?;
    let read = |claim: &ResourceClaim| {
        let name = || format!("{}/{}", claim.metadata.namespace, claim.metadata.name);
        Claim::of(claim).map_err(|why| D::Error::custom(format!("ResourceClaim {}: {why}", name())))
    };
    claims.iter().map(read).collect()
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
        Cluster {
            nodes: self.nodes.iter().map(Into::into).collect(),
            slices: self.resource_slices.iter().map(ResourceSlice::slice).collect(),
            classes: self.device_classes.iter().map(DeviceClass::class).collect(),
            claims: self.resource_claims.clone(),
            taint_rules: self.device_taint_rules.iter().map(DeviceTaintRule::rule).collect(),
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
            Ok(Arc::new(claim.clone()))
        });
        let claims = claims.collect::<Result<_, _>>()?;
        Ok(PodClaims::aligned(snapshot, claims, self.gates()?, self.aligned_by.clone()))
    }

    /// The uids of the claims to allocate.
    pub fn wanted(&self) -> Vec<Text> {
        let claims = self.allocate.iter().filter_map(|name| self.claim_named(name));
        claims.map(|claim| claim.uid.clone()).collect()
    }

    /// The first of the claims to allocate that has an allocation.
    pub fn allocated(&self) -> Option<(&Text, &Allocation)> {
        self.allocate.iter().find_map(|name| Some((name, self.claim_named(name)?.allocation.as_ref()?)))
    }

    fn claim_named(&self, name: &str) -> Option<&Claim> {
        let (namespace, name) = name.split_once('/')?;
        let is_named = |claim: &&Claim| *claim.namespace == *namespace && *claim.name == *name;
        self.resource_claims.iter().find(is_named)
    }

    /// Returns the features that are on.
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
        let claim = self.resource_claims.iter().find(|claim| *claim.uid == *uid)?;
        Some(format!("{}/{}", claim.namespace, claim.name))
    }
}
