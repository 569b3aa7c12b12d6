//! Reads the objects that each question needs from the API server. No more is read: a user with few rights
//! gets answers, and a small question does not list a large cluster.

use std::collections::BTreeSet;

use dragoman_objects::{ConsumerReference, DeviceResult, Name, Pod, ResourceClaim, Slice, Tolerated};
use dragoman_report::manifests::Found;
use dragoman_report::{Objects, claim_for_extended_resources};

use crate::client::{
    CLAIMS, CLASSES, Client, EVENTS, FOOTPRINTS, NODES, PODS, QUOTAS, Resource, SLICES, TAINT_RULES,
    TEMPLATES, encoded,
};
use dragoman_report::explain;
use dragoman_report::facts::Facts;
use serde_json::value::RawValue;

/// Reads what explains a Pod.
///
/// # Errors
/// The Pod itself cannot be read.
pub(crate) async fn pod(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Facts> {
    let mut facts = Facts::with_costs();
    client.get(&mut facts, PODS, Some(namespace), name).await?;
    let Some(pod) = facts.pods.get(&(namespace.to_owned(), name.to_owned())).cloned() else {
        return Ok(facts);
    };
    let mut is_unpublished = false;
    for entry in &pod.spec.resource_claims {
        let published = pod.status.resource_claim_statuses.iter().find(|status| status.name == entry.name);
        let claim = published.and_then(|status| status.resource_claim_name.as_deref());
        match (entry.resource_claim_name.as_deref().or(claim), entry.resource_claim_template_name.as_deref())
        {
            (Some(claim), _) => one(client, &mut facts, CLAIMS, namespace, claim).await,
            (None, Some(template)) if published.is_none() => {
                is_unpublished = true;
                one(client, &mut facts, TEMPLATES, namespace, template).await;
            }
            _ => {}
        }
    }
    if let Some(extended) = &pod.status.extended_resource_claim_status {
        one(client, &mut facts, CLAIMS, namespace, &extended.resource_claim_name).await;
    }
    if is_unpublished {
        client.list(&mut facts, QUOTAS, Some(namespace), "").await;
    }
    if !pod.spec.node_name.is_empty() {
        one_of_cluster(client, &mut facts, NODES, &pod.spec.node_name).await;
    }
    if pod.status.phase.as_ref() != "Running" {
        events_of(client, &mut facts, "Pod", namespace, name).await;
    }
    let is_open = facts.claims.values().any(|claim| claim.status.allocation.is_none());
    if is_open || is_for_a_class(client, &mut facts, &pod).await {
        supply(client, &mut facts).await;
    } else if !facts.claims.is_empty() {
        for resource in [SLICES, TAINT_RULES] {
            client.list(&mut facts, resource, None, "").await;
        }
        let claims: Vec<_> = facts.claims.values().cloned().collect();
        for claim in &claims {
            node_of(client, &mut facts, claim).await;
        }
    }
    if !facts.claims.is_empty() {
        footprints(client, &mut facts).await;
    }
    Ok(facts)
}

/// Reads the DeviceFootprints. A cluster without Dragoman has none, and forbids them to users who may not list every kind: an answer
/// can do without.
async fn footprints(client: &Client, facts: &mut Facts) {
    let mut read = Facts::default();
    client.list(&mut read, FOOTPRINTS, None, "").await;
    if read.forbidden.is_empty() {
        facts.merge(read);
    } else {
        facts.forgo_footprints();
    }
}

/// Reads whether the node is there on which the devices of a claim are.
async fn node_of(client: &Client, facts: &mut Facts, claim: &ResourceClaim) {
    let node = claim.allocation().and_then(|of| of.node_selector.as_ref()?.node());
    if let Some(node) = node.filter(|node| !facts.nodes.contains_key(&***node)) {
        one_of_cluster(client, facts, NODES, node).await;
    }
}

/// Whether a class stands behind extended resources of a Pod for which no claim has been made yet.
async fn is_for_a_class(client: &Client, facts: &mut Facts, pod: &Pod) -> bool {
    let resources = || pod.spec.containers.iter().chain(&pod.spec.init_containers).map(|of| &of.resources);
    let has_any =
        resources().any(|of| of.requests.keys().chain(of.limits.keys()).any(|name| name.contains('/')));
    let is_open = pod.spec.node_name.is_empty() && pod.status.extended_resource_claim_status.is_none();
    if !has_any || !is_open {
        return false;
    }
    let mut read = Facts::default();
    client.list(&mut read, CLASSES, None, "").await;
    let classes = std::mem::take(&mut read.cluster.classes);
    facts.merge(read);
    claim_for_extended_resources(pod, &classes, |_| false).is_some()
}

/// Reads what explains a claim.
///
/// # Errors
/// The claim itself cannot be read.
pub(crate) async fn claim(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Facts> {
    let mut facts = Facts::default();
    client.get(&mut facts, CLAIMS, Some(namespace), name).await?;
    let claim = facts.claims.values().next().cloned();
    if let Some(claim) = &claim {
        consumers_of(client, &mut facts, claim).await;
    }
    match claim {
        Some(claim) if matches!(claim.status.allocation, Some(Tolerated::Read(_))) => {
            for resource in [SLICES, TAINT_RULES] {
                client.list(&mut facts, resource, None, "").await;
            }
            node_of(client, &mut facts, &claim).await;
        }
        Some(_) => supply(client, &mut facts).await,
        None => {}
    }
    Ok(facts)
}

/// Consumers that are read one by one; for more of them the list is cheaper.
const FEW: usize = 8;

/// Reads whether the consumers of a claim are there.
async fn consumers_of(client: &Client, facts: &mut Facts, claim: &ResourceClaim) {
    let (namespace, pods) = (&claim.metadata.namespace, &claim.status.reserved_for);
    // A PodGroup holds the claim whatever became of Pods.
    if claim.status.allocation.is_none() || !pods.iter().all(ConsumerReference::is_pod) {
        return;
    }
    facts.looked_up.insert((namespace.to_string(), claim.metadata.name.to_string()));
    if pods.len() > FEW {
        return client.each(facts, PODS, Some(namespace), "", Facts::take_presence).await;
    }
    for pod in pods {
        one(client, facts, PODS, namespace, &pod.name).await;
    }
}

/// Reads what explains a template.
///
/// # Errors
/// The template itself cannot be read.
pub(crate) async fn template(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Facts> {
    let mut facts = Facts::default();
    client.get(&mut facts, TEMPLATES, Some(namespace), name).await?;
    client.list(&mut facts, PODS, Some(namespace), "").await;
    client.list(&mut facts, CLASSES, None, "").await;
    Ok(facts)
}

/// Reads what is taken from nodes: everything that costs one something, and for Pods that wait what an allocator looks at.
pub(crate) async fn ledger(client: &Client, objects: &mut Objects, has_waiting: bool) -> Facts {
    let mut facts = Facts::default();
    let always = [NODES, PODS, CLAIMS, SLICES, FOOTPRINTS];
    let for_waiting = [CLASSES, TAINT_RULES];
    for resource in always.into_iter().chain(for_waiting.into_iter().filter(|_| has_waiting)) {
        let take = |facts: &mut Facts, object: &RawValue| {
            if let Err(why) = objects.take(Found::item(resource.kind, object.get())) {
                facts.lacks.push(format!("{why:#}"));
            }
        };
        client.each(&mut facts, resource, None, "", take).await;
    }
    facts
}

/// Reads all claims and slices, and the rules that taint devices.
pub(crate) async fn devices(client: &Client) -> Facts {
    let mut facts = claims(client, None).await;
    client.list(&mut facts, SLICES, None, "").await;
    client.list(&mut facts, TAINT_RULES, None, "").await;
    facts
}

/// Reads a node, all slices, and the claims that hold devices of the node.
pub(crate) async fn node(client: &Client, node: &str) -> Facts {
    let mut facts = Facts::default();
    one_of_cluster(client, &mut facts, NODES, node).await;
    client.list(&mut facts, SLICES, None, "").await;
    client.list(&mut facts, TAINT_RULES, None, "").await;
    // Devices of other nodes may draw on the same counters.
    let here = explain::node::here(&facts, node);
    let here: BTreeSet<_> = here.into_iter().map(|(d, p, _)| (Name::from(d), Name::from(p))).collect();
    let is_here = |of: &DeviceResult| here.contains(&(of.driver.clone(), of.pool.clone()));
    client.each(&mut facts, CLAIMS, None, "", |facts, claim| facts.take_if_held(claim, is_here)).await;
    facts
}

/// Reads all slices, the rules that taint devices, and the claims that hold a device of this name, or one of its pool: it may draw on
/// the same counters.
pub(crate) async fn device(client: &Client, wanted: &str) -> Facts {
    let mut facts = Facts::default();
    client.list(&mut facts, SLICES, None, "").await;
    let is_there = |slice: &&Slice| {
        let mut devices = slice.devices.iter();
        devices.any(|device| explain::device::is_meant(wanted, &slice.driver, &slice.pool.name, &device.name))
    };
    let slices = facts.cluster.slices.iter().filter(is_there);
    let pools: BTreeSet<(String, String)> =
        slices.map(|slice| (slice.driver.to_string(), slice.pool.name.to_string())).collect();
    let is_meant = |of: &DeviceResult| {
        explain::device::is_meant(wanted, &of.driver, &of.pool, &of.device)
            || pools.contains(&(of.driver.to_string(), of.pool.to_string()))
    };
    client.each(&mut facts, CLAIMS, None, "", |facts, claim| facts.take_if_held(claim, is_meant)).await;
    client.list(&mut facts, TAINT_RULES, None, "").await;
    // Claims of other devices of the pool are not shown.
    let is_asked = |of: &&DeviceResult| explain::device::is_meant(wanted, &of.driver, &of.pool, &of.device);
    let has_it = |claim: &&ResourceClaim| {
        claim.allocation().is_some_and(|of| of.devices.results.iter().any(|of| is_asked(&of)))
    };
    let holders: Vec<ResourceClaim> = facts.claims.values().filter(has_it).cloned().collect();
    for claim in holders.iter().take(FEW) {
        consumers_of(client, &mut facts, claim).await;
    }
    facts
}

/// Reads claims, of one namespace or of all.
pub(crate) async fn claims(client: &Client, namespace: Option<&str>) -> Facts {
    let mut facts = Facts::default();
    client.each(&mut facts, CLAIMS, namespace, "", Facts::take_listed).await;
    facts
}

/// Reads claims and classes.
pub(crate) async fn classes(client: &Client) -> Facts {
    let mut facts = claims(client, None).await;
    client.list(&mut facts, CLASSES, None, "").await;
    facts
}

/// Reads claims and Pods, of one namespace or of all.
pub(crate) async fn consumers(client: &Client, namespace: Option<&str>) -> Facts {
    let mut facts = claims(client, namespace).await;
    client.each(&mut facts, PODS, namespace, "", Facts::take_presence).await;
    facts.has_all_pods = true;
    facts
}

/// Reads the Pods that do not run yet, of one namespace or of all.
pub(crate) async fn waiting(client: &Client, namespace: Option<&str>) -> Facts {
    let mut facts = Facts::default();
    pending(client, &mut facts, namespace).await;
    facts
}

async fn pending(client: &Client, facts: &mut Facts, namespace: Option<&str>) {
    client.list(facts, PODS, namespace, "&fieldSelector=status.phase%3DPending").await;
}

/// Reads what explains the Pods that do not run yet, of one namespace or of all.
pub(crate) async fn why(client: &Client, namespace: Option<&str>) -> Facts {
    let mut facts = Facts::with_costs();
    pending(client, &mut facts, namespace).await;
    for resource in [CLAIMS, TEMPLATES, QUOTAS] {
        client.list(&mut facts, resource, namespace, "").await;
    }
    warnings(client, &mut facts, namespace).await;
    supply(client, &mut facts).await;
    footprints(client, &mut facts).await;
    facts
}

/// Reads what a page about the cluster shows: the devices of all nodes, and the Pods and claims of one namespace or of all.
pub(crate) async fn report(client: &Client, namespace: Option<&str>) -> Facts {
    let mut facts = Facts::with_costs();
    pending(client, &mut facts, namespace).await;
    for resource in [TEMPLATES, QUOTAS] {
        client.list(&mut facts, resource, namespace, "").await;
    }
    warnings(client, &mut facts, namespace).await;
    for resource in [CLAIMS, SLICES, CLASSES, TAINT_RULES, NODES] {
        client.list(&mut facts, resource, None, "").await;
    }
    footprints(client, &mut facts).await;
    if facts.lacks("resourceclaims") && namespace.is_some() {
        client.list(&mut facts, CLAIMS, namespace, "").await;
    }
    facts
}

/// Reads the warnings about Pods.
async fn warnings(client: &Client, facts: &mut Facts, namespace: Option<&str>) {
    let selector = encoded("type=Warning,involvedObject.kind=Pod");
    client.list(facts, EVENTS, namespace, &format!("&fieldSelector={selector}")).await;
}

/// Reads what a drain of a node would end.
pub(crate) async fn drain(client: &Client, node: &str) -> Facts {
    let mut facts = Facts::default();
    one_of_cluster(client, &mut facts, NODES, node).await;
    client.list(&mut facts, PODS, None, &format!("&fieldSelector=spec.nodeName%3D{}", encoded(node))).await;
    let group = |pod: &Pod| pod.spec.scheduling_group.pod_group_name.clone();
    let pods: Vec<_> = facts.pods.values().map(|pod| (pod.metadata.uid.clone(), group(pod))).collect();
    // Wherever their devices are: those of several nodes go with the Pods as well.
    let is_theirs =
        |of: &ConsumerReference| pods.iter().any(|(uid, group)| of.stands_for(uid, group.as_deref()));
    client.each(&mut facts, CLAIMS, None, "", |facts, claim| facts.take_if_reserved(claim, is_theirs)).await;
    facts
}

/// Reads Events about claims, and about Pods with reasons of claims.
pub(crate) async fn events(client: &Client, namespace: Option<&str>) -> Facts {
    let mut facts = Facts::default();
    client.list(&mut facts, EVENTS, namespace, "").await;
    facts
}

/// Reads the input of the allocator with concurrent lists: the API server answers them side by side.
async fn supply(client: &Client, facts: &mut Facts) {
    let wants_costs = facts.wants_costs();
    // The node of a Pod may be known already.
    facts.cluster.nodes.clear();
    let list = async |resource: Resource| {
        let mut facts = if wants_costs { Facts::with_costs() } else { Facts::default() };
        client.list(&mut facts, resource, None, "").await;
        facts
    };
    let holders = async {
        let mut facts = Facts::default();
        client.list_holders(&mut facts).await;
        facts
    };
    let (classes, slices, rules, nodes, holders) =
        tokio::join!(list(CLASSES), list(SLICES), list(TAINT_RULES), list(NODES), holders);
    for read in [classes, slices, rules, nodes, holders] {
        facts.merge(read);
    }
}

async fn events_of(client: &Client, facts: &mut Facts, kind: &str, namespace: &str, name: &str) {
    let selector = format!("involvedObject.kind={kind},involvedObject.name={name}");
    client.list(facts, EVENTS, Some(namespace), &format!("&fieldSelector={}", encoded(&selector))).await;
}

/// Reads an object that an answer can do without; that it may not be read is noted.
async fn one(client: &Client, facts: &mut Facts, resource: Resource, namespace: &str, name: &str) {
    drop(client.get(facts, resource, Some(namespace), name).await);
}

async fn one_of_cluster(client: &Client, facts: &mut Facts, resource: Resource, name: &str) {
    let is_there = client.get(facts, resource, None, name).await;
    if resource.kind == NODES.kind && matches!(is_there, Ok(false)) {
        facts.absent_nodes.insert(name.to_owned());
    }
}
