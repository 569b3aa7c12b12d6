//! ClaimGate: the service accounts that open and close a gate of claims (docs/protocol.md, section 5).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `spec` of a ClaimGate, which is cluster-scoped. Its name is that of the gate: the ClaimGate `quota` controls the
/// annotations `allocation-gates.dragoman.dev/quota` and `release-gates.dragoman.dev/quota` of ResourceClaims.
///
/// The admission policy `dragoman-gate-owners` reads it; no process of Dragoman does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimGateSpec {
    /// The service accounts that may add, change and remove the gate on claims in namespaces with the label
    /// `dragoman.dev/gating=enforced`. No other user may.
    #[schemars(length(max = 16))]
    pub owners: Vec<ServiceAccount>,
}

/// A ServiceAccount of any namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceAccount {
    /// Namespace of the service account.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name of the service account.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}
