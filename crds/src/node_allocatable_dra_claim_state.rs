//! NodeAllocatableDRAClaimState: what Pods and claims take from one node. It is published for
//! people and for allocators, which read headroom from it.

use std::collections::BTreeMap;

use dragoman_accounting::claim::footprint::AccountingPolicy;
use dragoman_objects::{Meta, Object, Tolerated};
use dragoman_quantity::QuantityText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A NodeAllocatableDRAClaimState.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeAllocatableDRAClaimState {
    /// `metadata`.
    pub metadata: Meta,
    /// `status`; one that another version wrote need not decode.
    pub status: Tolerated<Option<NodeAllocatableDRAClaimStateStatus>>,
}

impl Object for NodeAllocatableDRAClaimState {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Amounts by resource.
pub type Amounts = BTreeMap<String, QuantityText>;

/// `status` of a NodeAllocatableDRAClaimState, which is cluster-scoped, called like
/// its Node and owned by it. There is no `spec`: all of it is observed.
///
/// An empty map is left out: where a server-side apply takes the last key out of a map, the API
/// server stores `null` in its place and refuses that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeAllocatableDRAClaimStateStatus {
    /// Rises with every change of the amounts below. Each rejection of an allocation
    /// names the revision at which the operator refused the node.
    #[schemars(range(min = 0))]
    pub revision: i64,
    /// `status.allocatable` of the Node, as far as it can be claimed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub allocatable: Amounts,
    /// Taken by the specs of Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub requested_by_pods: Amounts,
    /// Taken by claims.
    pub requested_by_claims: RequestedByClaims,
    /// Held by drivers for devices in use (KEP-6352).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub reserved: Amounts,
    /// Amounts that are left; a resource is absent where its amount is not known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub headroom: Amounts,
    /// The claims behind these amounts, sorted by namespace and name. Where a node has more than fit,
    /// those with the largest amounts; the sums above are always complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["namespace", "name"]
    ))]
    pub claims: Vec<PublishedClaim>,
    /// The claims that are not in the list, together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_claims: Option<OtherClaims>,
    /// `Overcommitted`; `Unaccounted`: facts that cannot be read or are missing; `Drifted`: the status
    /// of a Pod records other amounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]
    ))]
    pub conditions: Vec<Condition>,
}

/// Amounts that all claims on the node take together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestedByClaims {
    /// As devices that are node resources.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub mapping: Amounts,
    /// As the cost of using devices.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub overhead: Amounts,
}

/// Amounts of the claims that are not listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OtherClaims {
    /// Number of these claims.
    #[schemars(range(min = 1))]
    pub count: i64,
    /// The amounts, mapping and overhead together.
    #[schemars(extend("maxProperties" = 16))]
    pub amounts: Amounts,
}

/// Amounts that one claim takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublishedClaim {
    /// Namespace of the claim.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name of the claim.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Uid of the claim: a claim of the same name made later is another one.
    #[schemars(length(min = 1, max = 36))]
    pub uid: String,
    /// The amounts, mapping and overhead together.
    #[schemars(extend("maxProperties" = 16))]
    pub amounts: Amounts,
    /// Policy by which the amounts were added up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting_policy: Option<AccountingPolicy>,
    /// Names of Pods on the node that use the claim, at most the first 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub consumers: Vec<String>,
}

/// A condition as everywhere in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[schemars(length(min = 1, max = 316))]
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: ConditionStatus,
    /// One word.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// For people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// When `status` changed last, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Hash)]
#[schemars(inline)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The state of the condition is not known.
    Unknown,
}
