//! Why a claim has no devices, or what it has and for whom.

use dragoman_crds::protocol::{ALLOCATION_GATES, ALLOCATOR, RELEASE_GATES, closed_gates};
use dragoman_objects::{ConsumerReference, Pod, ResourceClaim, Tolerated};
use jiff::Timestamp;

use super::devices::{self, Asked};
use super::{Answer, Link, Verdict, age, count, link, unknown, with_age};
use crate::facts::Facts;

/// Parameters of a question about a claim, beside its name.
pub(super) struct For<'a> {
    /// Nodes that the Pod may run on, if a Pod asks.
    pub(super) asked: Asked<'a>,
    pub(super) now: Timestamp,
}

/// Explains a claim.
pub fn explain(facts: Facts, namespace: &str, name: &str, now: Timestamp) -> Answer {
    let facts = &facts.settled();
    let object = format!("ResourceClaim {namespace}/{name}");
    let key = (namespace.to_owned(), name.to_owned());
    let mut chain = Vec::new();
    let verdict = match facts.claims.get(&key) {
        None => unreadable(facts, namespace, name),
        Some(claim) => {
            chain = links(facts, claim, 0, now);
            let asked = Asked { pod: None, claims: vec![format!("{namespace}/{name}")] };
            of(facts, claim, &For { asked, now }).unwrap_or_else(|| in_use(facts, claim))
        }
    };
    let is_missing = verdict.reason == "ClaimMissing";
    Answer { object, verdict, chain, is_missing, lacks: facts.partial() }
}

/// A claim that is not among the readable ones.
pub(super) fn unreadable(facts: &Facts, namespace: &str, name: &str) -> Verdict {
    match facts.why_unreadable("ResourceClaim", namespace, name) {
        Some(why) => Verdict::blocked(
            "ClaimUnreadable",
            format!("claim {namespace}/{name} does not decode: {why}"),
            "a newer kubectl dra may read it; its author may have written something that no controller reads",
        ),
        None if facts.lacks("resourceclaims") => unknown(&format!("claim {namespace}/{name}")),
        None => Verdict::blocked(
            "ClaimMissing",
            format!("claim {namespace}/{name} {}", facts.absence()),
            "create it, or correct the name in the Pod",
        ),
    }
}

/// Returns what became of each consumer of a claim; nothing where one of them may be there still, or where that is not known.
/// The Pods in the namespace of the claim have been read before.
pub fn departed(facts: &Facts, claim: &ResourceClaim) -> Option<Vec<String>> {
    let (meta, consumers) = (&claim.metadata, &claim.status.reserved_for);
    if consumers.is_empty() || !facts.knows_consumers_of(claim) {
        return None;
    }
    let fate = |consumer: &ConsumerReference| {
        let name = &consumer.name;
        let is_unreadable = facts.why_unreadable("Pod", &meta.namespace, name).is_some();
        if !consumer.is_pod() || is_unreadable {
            return None;
        }
        match facts.pods.get(&(meta.namespace.to_string(), name.to_string())) {
            None if facts.from_files => Some(format!("Pod {name} is not in the files")),
            None => Some(format!("Pod {name} is gone")),
            Some(pod) if pod.metadata.uid != consumer.uid => Some(format!("Pod {name} is another one now")),
            Some(pod) if matches!(&*pod.status.phase, "Succeeded" | "Failed") => {
                Some(format!("Pod {name} has ended"))
            }
            Some(_) => None,
        }
    };
    consumers.iter().map(fate).collect()
}

fn in_use(facts: &Facts, claim: &ResourceClaim) -> Verdict {
    let name = &claim.metadata.name;
    let devices = devices_of(claim);
    if let Some(departed) = departed(facts, claim) {
        return Verdict::blocked(
            "ConsumersGone",
            format!("claim {name} holds {devices} for nothing: {}", first(&departed)),
            format!(
                "the controller of claims takes such consumers out within seconds, or after --hold-vanished-for; if it does not, \
                 look whether kube-controller-manager or dragoman runs, and what `kubectl dra events -n {}` says of the claim",
                claim.metadata.namespace
            ),
        );
    }
    match claim.status.reserved_for.as_slice() {
        [] => Verdict {
            advice: waits_with(facts, claim).map_or_else(
                || {
                    "if no Pod needs the claim any more, delete it: `kubectl dra reclaim` looks for more"
                        .to_owned()
                },
                |pod| format!("Pod {pod} waits with it: `kubectl dra explain pod/{pod}` says why"),
            ),
            ..Verdict::fine("Idle", format!("claim {name} holds {devices}, and is reserved for no consumer"))
        },
        consumers => {
            let consumers: Vec<String> = consumers.iter().map(consumer).collect();
            Verdict::fine("InUse", format!("claim {name} holds {devices} for {}", first(&consumers)))
        }
    }
}

/// A Pod that names a claim and has not started.
fn waits_with<'a>(facts: &'a Facts, claim: &ResourceClaim) -> Option<&'a str> {
    let (namespace, name) = (&claim.metadata.namespace, &claim.metadata.name);
    let names = |pod: &Pod| {
        let entries = pod.spec.resource_claims.iter();
        entries.filter_map(|entry| super::pod::claim_name(pod, entry)).any(|of| *of == **name)
    };
    let waits = |pod: &Pod| matches!(&*pod.status.phase, "" | "Pending") && names(pod);
    let mut pods = facts.pods.iter().filter(|((of, _), pod)| *of == **namespace && waits(pod));
    pods.next().map(|((_, pod), _)| pod.as_str())
}

/// The first three of some texts, and how many others there are.
pub(crate) fn first(all: &[String]) -> String {
    let first = all.get(..3).unwrap_or(all).join(", ");
    match all.len().saturating_sub(3) {
        0 => first,
        1 => format!("{first} and 1 other"),
        others => format!("{first} and {others} others"),
    }
}

/// Returns the obstacle of a claim: why it has no devices, or why it is in trouble although it has them.
/// `None` if the claim is allocated and nothing is wrong.
pub(super) fn of(facts: &Facts, claim: &ResourceClaim, of: &For<'_>) -> Option<Verdict> {
    let meta = &claim.metadata;
    let (name, namespace) = (&meta.name, &meta.namespace);
    if meta.deleting {
        let holders: Vec<&str> = meta.finalizers.iter().map(AsRef::as_ref).collect();
        return Some(Verdict::blocked(
            "ClaimDeleted",
            format!(
                "claim {namespace}/{name} is being deleted, and finalizers hold it: {}",
                holders.join(", ")
            ),
            "it goes when its last consumer has ended; create another one for new Pods",
        ));
    }
    match &claim.status.allocation {
        Some(Tolerated::Unreadable(why)) => Some(Verdict::blocked(
            "ClaimUnreadable",
            format!("the allocation of claim {namespace}/{name} does not decode: {why}"),
            "an allocator of a newer API wrote it, or a broken one",
        )),
        Some(Tolerated::Read(_)) => allocated(facts, claim),
        None => Some(unallocated(facts, claim, of)),
    }
}

/// Returns the obstacle of an allocated claim: a closed release gate, a device that is gone, or one from which Pods are evicted.
fn allocated(facts: &Facts, claim: &ResourceClaim) -> Option<Verdict> {
    let name = &claim.metadata.name;
    if let Some(gate) = closed_gates(&claim.metadata, RELEASE_GATES).first() {
        return Some(Verdict::blocked(
            "ReleaseGateClosed",
            format!(
                "claim {name} is allocated, and its release gate {} is closed: {}",
                gate.gate, gate.reason
            ),
            format!("the controller that closed it removes the annotation {RELEASE_GATES}{}", gate.gate),
        ));
    }
    trouble_of_devices(facts, claim)
}

/// Returns what is wrong with the devices of a claim: they are gone, their node is, or Pods are evicted from them.
pub(super) fn trouble_of_devices(facts: &Facts, claim: &ResourceClaim) -> Option<Verdict> {
    let name = &claim.metadata.name;
    let mut gone = devices::lost(facts, claim);
    let node = claim.allocation().and_then(|of| of.node_selector.as_ref()?.node());
    if let Some(node) = node.filter(|node| facts.is_node_gone(node)) {
        return Some(Verdict::blocked(
            "NodeGone",
            format!(
                "claim {name} holds {} of node {node}, and the node {}",
                devices_of(claim),
                facts.absence()
            ),
            if facts.from_files {
                "look whether the node exists: the files may have been printed without it"
            } else {
                "its Pods end once the node is known to be gone; delete those that remain with --force, and their next ones get other devices"
            },
        ));
    }
    if let Some(device) = gone.next() {
        return Some(Verdict::blocked(
            "DeviceGone",
            format!("claim {name} holds device {device}, which no ResourceSlice publishes any more"),
            "the driver withdrew it: delete the Pod, and its next one gets another device",
        ));
    }
    let mut results = claim.allocation().into_iter().flat_map(|of| &of.devices.results);
    results.find_map(|of| {
        let why = facts.supply.evicts(of)?;
        let device = format!("{}/{}/{}", of.driver, of.pool, of.device);
        Some(Verdict::blocked(
            "DeviceTainted",
            format!("claim {name} holds device {device} and does not tolerate its taint {why}"),
            if claim.status.reserved_for.is_empty() {
                "a Pod that uses the claim is evicted; delete the claim, and create it anew with a toleration or for another device"
            } else {
                "the Pods that use the claim are evicted; those that come in their place get other devices, or need a toleration in the request"
            },
        ))
    })
}

fn unallocated(facts: &Facts, claim: &ResourceClaim, of: &For<'_>) -> Verdict {
    let meta = &claim.metadata;
    if let Some(gate) = closed_gates(meta, ALLOCATION_GATES).first() {
        return Verdict::blocked(
            "AllocationGateClosed",
            format!("claim {} waits for its allocation gate {}: {}", meta.name, gate.gate, gate.reason),
            format!("the controller that closed it removes the annotation {ALLOCATION_GATES}{}", gate.gate),
        );
    }
    let wanted = claim.spec.devices.requests.iter().map(|request| {
        let subs = request.first_available.iter().map(|sub| &sub.device_class_name);
        request.class().into_iter().chain(subs).filter(|class| !class.is_empty())
    });
    let reads_classes = !facts.lacks("deviceclasses");
    if let Some(class) =
        wanted.flatten().find(|class| reads_classes && !facts.supply.classes.contains(&***class))
    {
        return Verdict::blocked(
            "ClassMissing",
            format!("claim {} asks for DeviceClass {class:?}, which {}", meta.name, facts.absence()),
            "correct deviceClassName, or install the driver that brings the class: `kubectl get deviceclasses` lists them",
        );
    }
    let verdict = devices::verdict(facts, &of.asked);
    with_allocator(verdict, claim, of)
}

/// Names the party that is to allocate, where devices are free.
fn with_allocator(verdict: Verdict, claim: &ResourceClaim, of: &For<'_>) -> Verdict {
    if verdict.reason != devices::FREE {
        return verdict;
    }
    let party = claim.metadata.labels.get(ALLOCATOR);
    let waits = age(claim.metadata.creation_timestamp.as_deref(), of.now);
    let advice = match party {
        Some(allocator) => format!(
            "the claim is {waits} old and allocator {allocator:?} has not allocated it: does it run, and with that name?"
        ),
        None if of.asked.pod.is_some() => {
            "no scheduler has allocated the claim: does the scheduler that `spec.schedulerName` of the Pod names run, and does it know DRA?"
                .to_owned()
        }
        None => "a scheduler allocates it together with a Pod that uses it: `kubectl dra explain pod` says of such a Pod why it waits"
            .to_owned(),
    };
    Verdict { advice, ..verdict }
}

/// The devices of a claim, as people count them.
pub(super) fn devices_of(claim: &ResourceClaim) -> String {
    let Some(Tolerated::Read(allocation)) = &claim.status.allocation else { return "no device".to_owned() };
    match allocation.devices.results.as_slice() {
        [only] => format!("device {} of pool {} ({})", only.device, only.pool, only.driver),
        all => count(all.len(), "device", "devices"),
    }
}

/// The consumers of a claim in words, or what became of them.
pub(super) fn consumers_of(facts: &Facts, claim: &ResourceClaim) -> String {
    if let Some(departed) = departed(facts, claim) {
        return format!("nothing ({})", first(&departed));
    }
    match claim.status.reserved_for.as_slice() {
        [] => "no consumer".to_owned(),
        consumers => first(&consumers.iter().map(consumer).collect::<Vec<_>>()),
    }
}

/// A consumer, as people name it.
pub fn consumer(of: &ConsumerReference) -> String {
    match (&*of.api_group, &*of.resource) {
        ("", "pods") => format!("Pod {}", of.name),
        ("scheduling.k8s.io", "podgroups") => format!("PodGroup {}", of.name),
        (group, resource) => format!("{resource}.{group} {}", of.name),
    }
}

/// The chain below a claim: allocation, devices, slices, consumers.
pub(super) fn links(facts: &Facts, claim: &ResourceClaim, depth: usize, now: Timestamp) -> Vec<Link> {
    let meta = &claim.metadata;
    let since = age(meta.creation_timestamp.as_deref(), now);
    let state = match (&claim.status.allocation, claim.status.reserved_for.len()) {
        (None, _) => "not allocated".to_owned(),
        (Some(_), 0) => "allocated, reserved for no consumer".to_owned(),
        (Some(_), consumers) => {
            format!("allocated, reserved for {}", count(consumers, "consumer", "consumers"))
        }
    };
    let mut chain = vec![link(depth, format!("ResourceClaim {}", meta.name), with_age(&state, &since))];
    if let Some(Tolerated::Read(allocation)) = &claim.status.allocation {
        for result in allocation.devices.results.iter().take(8) {
            let device = format!("device {}/{}/{}", result.driver, result.pool, result.device);
            let admin = if result.is_admin() { "admin access, " } else { "" };
            let place = devices::place(facts, &result.driver, &result.pool, &result.device);
            chain.push(link(depth + 1, device, format!("{admin}request {}, {place}", result.request)));
        }
    } else {
        for request in &claim.spec.devices.requests {
            let says = match request.class() {
                None if request.first_available.is_empty() => "names no class".to_owned(),
                None => count(request.first_available.len(), "alternative", "alternatives"),
                Some(class) => format!("class {class}"),
            };
            chain.push(link(depth + 1, format!("request {}", request.name), says));
        }
    }
    chain
}
