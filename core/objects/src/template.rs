//! `resource.k8s.io/v1` ResourceClaimTemplate.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Meta, or_default};

/// A ResourceClaimTemplate. The metadata and the spec of its claims are kept verbatim.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ResourceClaimTemplate {
    /// `metadata` of the template itself.
    pub metadata: Meta,
    /// `spec`.
    #[serde(deserialize_with = "or_default")]
    pub spec: TemplateSpec,
}

/// `spec` of a ResourceClaimTemplate.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TemplateSpec {
    /// `spec.metadata`: labels and annotations of the claims, as JSON.
    pub metadata: Option<Box<RawValue>>,
    /// `spec.spec`: the spec of the claims, as JSON.
    pub spec: Option<Box<RawValue>>,
}
