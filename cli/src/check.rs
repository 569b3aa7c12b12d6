//! Reads what says whether a cluster is ready for DRA and for Dragoman. Every request is a get or a list.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_report::facts::Facts;
use dragoman_report::readiness::{Leader, Seen};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client::{CLAIMS, CLASSES, Client, Lack, NODES, QUOTAS, Resource, SLICES, TAINT_RULES, encoded};

const LEASES: Resource = Resource::of("coordination.k8s.io", "v1", "Lease", "leases");
const NAMESPACES: Resource = Resource::of("", "v1", "Namespace", "namespaces");
/// The policies that Dragoman installs, and the bindings without which they do nothing.
const POLICIES: [(Resource, Resource); 2] = [
    (
        policy("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
        policy("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
    ),
    (
        policy("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        policy("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    ),
];
/// The group versions whose resources decide what a cluster is ready for.
const VERSIONS: [&str; 5] = [
    "resource.k8s.io/v1",
    "resource.k8s.io/v1beta2",
    "resource.k8s.io/v1beta1",
    "admissionregistration.k8s.io/v1",
    "dragoman.dev/v1alpha1",
];
/// The name under which the built-in controller writes.
const BUILT_IN: &str = "kube-controller-manager";
/// The Lease of our operator.
const OPERATOR: &str = "dragoman";
/// The annotation of a claim that was made from a template.
const OF_TEMPLATE: &str = "resource.kubernetes.io/pod-claim-name";

const fn policy(kind: &'static str, plural: &'static str) -> Resource {
    Resource::of("admissionregistration.k8s.io", "v1", kind, plural)
}

/// Metadata that the check reads, of any kind.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    namespace: String,
    name: String,
    creation_timestamp: Option<Timestamp>,
    annotations: BTreeMap<String, String>,
    managed_fields: Vec<ManagedFields>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ManagedFields {
    manager: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Meta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lease {
    metadata: Meta,
    spec: LeaseSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: Option<String>,
    renew_time: Option<Timestamp>,
}

impl Lease {
    /// `now`: the newest renewal of any Lease.
    fn leader(&self, now: Option<Timestamp>) -> Leader {
        let renewed = now.zip(self.spec.renew_time).map(|(now, at)| now.as_second() - at.as_second());
        Leader { holder: self.spec.holder_identity.clone().unwrap_or_default(), renewed }
    }
}

/// Reads the properties of a cluster.
pub(crate) async fn check(client: &Client, now: Timestamp) -> Seen {
    let mut seen = Seen { version: version(client).await, ..Seen::default() };
    let mut facts = Facts::default();
    for version in VERSIONS {
        match resources(client, version).await {
            Ok(names) => drop(seen.served.insert(version.to_owned(), names)),
            Err(why) => facts.lacks.push(why),
        }
    }
    seen.gates = client.document("/metrics").await.ok().map(|text| gates(&text));
    for resource in [SLICES, CLASSES, TAINT_RULES] {
        if is_served(&seen, resource) {
            client.list(&mut facts, resource, None, "").await;
        }
    }
    client.list(&mut facts, QUOTAS, None, "").await;
    if is_served(&seen, CLAIMS) {
        let made = built_in_made(client, &mut facts).await;
        seen.built_in_made = made.map(|(at, name)| (name, now.as_second() - at.as_second()));
    }
    seen.kubelets = kubelets(client, &mut facts).await;
    let leases: Option<Vec<Lease>> = read(client, &mut facts, LEASES, "").await;
    seen.reads_leases = leases.is_some();
    let leases = leases.unwrap_or_default();
    let now = leases.iter().filter_map(|lease| lease.spec.renew_time).max();
    let is_built_in =
        |lease: &&Lease| lease.metadata.name == BUILT_IN && lease.metadata.namespace == "kube-system";
    seen.controller_manager = leases.iter().find(is_built_in).map(|lease| lease.leader(now));
    let operators = leases.iter().filter(|lease| lease.metadata.name == OPERATOR);
    let operator = operators.max_by_key(|lease| lease.spec.renew_time);
    seen.operator = operator.map(|lease| (lease.metadata.namespace.clone(), lease.leader(now)));
    seen.policies = policies(client, &mut facts, &seen).await;
    let gated = format!("&labelSelector={}", encoded("dragoman.dev/gating in (enabled,enforced)"));
    let gated = read::<Object>(client, &mut facts, NAMESPACES, &gated).await;
    seen.gated = gated.map(|all| all.into_iter().map(|of| of.metadata.name).collect());
    seen.facts = facts;
    seen
}

async fn version(client: &Client) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        git_version: String,
    }
    let text = client.document("/version").await.ok()?;
    Some(serde_json::from_str::<Version>(&text).ok()?.git_version)
}

/// Whether a resource is served, as far as that could be asked.
fn is_served(seen: &Seen, resource: Resource) -> bool {
    seen.served.get(&resource.version_of_group()).is_some_and(|names| names.contains(resource.plural))
}

/// The resources of a group version; none where it is not served.
///
/// # Errors
/// The API server did not answer.
async fn resources(client: &Client, version: &str) -> Result<BTreeSet<String>, String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Named {
        name: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Resources {
        resources: Vec<Named>,
    }
    match client.document(&format!("/apis/{version}")).await {
        Ok(text) => {
            let read: Resources = serde_json::from_str(&text).map_err(|why| format!("{version}: {why}"))?;
            Ok(read.resources.into_iter().map(|of| of.name).collect())
        }
        Err(Lack::NotFound) => Ok(BTreeSet::new()),
        Err(Lack::Forbidden) => Err(format!("you may not ask which resources of {version} are served")),
        Err(Lack::Other(why)) => Err(why),
    }
}

/// The feature gates in metrics of a component.
fn gates(metrics: &str) -> BTreeMap<String, bool> {
    let of = |line: &str| {
        let rest = line.strip_prefix("kubernetes_feature_enabled{")?;
        let (labels, value) = rest.split_once('}')?;
        let name = labels.split(',').find_map(|label| label.strip_prefix("name=\"")?.strip_suffix('"'))?;
        Some((name.to_owned(), value.trim() == "1"))
    };
    metrics.lines().filter_map(of).collect()
}

/// All objects of a resource; `None` where they could not be read.
async fn read<T: for<'de> Deserialize<'de> + Default>(
    client: &Client,
    facts: &mut Facts,
    resource: Resource,
    selector: &str,
) -> Option<Vec<T>> {
    let mut all = Vec::new();
    let mut of_kind = Facts::default();
    let take =
        |_: &mut Facts, object: &RawValue| all.push(serde_json::from_str(object.get()).unwrap_or_default());
    client.each(&mut of_kind, resource, None, selector, take).await;
    let is_read = of_kind.partial().is_empty();
    facts.merge(of_kind);
    is_read.then_some(all)
}

/// The number of nodes by version of their kubelet.
async fn kubelets(client: &Client, facts: &mut Facts) -> Option<BTreeMap<String, usize>> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Node {
        status: Status,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Status {
        node_info: Info,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Info {
        kubelet_version: String,
    }
    let nodes: Vec<Node> = read(client, facts, NODES, "").await?;
    let mut versions = BTreeMap::new();
    for node in nodes {
        *versions.entry(node.status.node_info.kubelet_version).or_default() += 1;
    }
    Some(versions)
}

/// The newest claim that the built-in controller made from a template.
async fn built_in_made(client: &Client, facts: &mut Facts) -> Option<(Timestamp, String)> {
    let claims: Vec<Object> = read(client, facts, CLAIMS, "").await?;
    let made = claims.into_iter().filter(|claim| {
        let Meta { annotations, managed_fields, .. } = &claim.metadata;
        annotations.contains_key(OF_TEMPLATE) && managed_fields.iter().any(|of| of.manager == BUILT_IN)
    });
    let named = made.filter_map(|claim| {
        let Meta { namespace, name, creation_timestamp, .. } = claim.metadata;
        Some((creation_timestamp?, format!("{namespace}/{name}")))
    });
    named.max()
}

/// The names of policies that are installed with their binding.
async fn policies(client: &Client, facts: &mut Facts, seen: &Seen) -> Option<BTreeSet<String>> {
    let mut installed = BTreeSet::new();
    for (policies, bindings) in POLICIES {
        match seen.served.get(&policies.version_of_group()) {
            Some(names) if !names.contains(policies.plural) => continue,
            Some(_) => {}
            None => return None,
        }
        let policies: Vec<Object> = read(client, facts, policies, "").await?;
        let bindings: Vec<Object> = read(client, facts, bindings, "").await?;
        let bound: BTreeSet<String> = bindings.into_iter().map(|of| of.metadata.name).collect();
        installed.extend(policies.into_iter().map(|of| of.metadata.name).filter(|name| bound.contains(name)));
    }
    Some(installed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_from_metrics() {
        let metrics = "# TYPE kubernetes_feature_enabled gauge\n\
            kubernetes_feature_enabled{name=\"DRANodeAllocatableResources\",stage=\"ALPHA\"} 0\n\
            kubernetes_feature_enabled{name=\"DynamicResourceAllocation\",stage=\"\"} 1\n\
            kubernetes_feature_enabled{stage=\"BETA\",name=\"DRADeviceTaints\"} 1\nother{name=\"x\"} 1\n";
        let expected = [
            ("DRADeviceTaints", true),
            ("DRANodeAllocatableResources", false),
            ("DynamicResourceAllocation", true),
        ];
        assert_eq!(gates(metrics), expected.into_iter().map(|(name, on)| (name.to_owned(), on)).collect());
    }
}
