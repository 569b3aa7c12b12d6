//! From the ledger of a node to what is published of it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use dragoman_accounting::claim::footprint::AccountingPolicy;
use dragoman_accounting::cluster::{About, ClusterLedger, Notice};
use dragoman_accounting::ledger::fit::Headroom;
use dragoman_accounting::ledger::{Bucket, NodeLedger, words};
use dragoman_accounting::object::ObjectRef;
use dragoman_accounting::per_resource::{Sums, Units};
use dragoman_accounting::resource::Resource;
use dragoman_crds::node_allocatable_dra_claim_state::{
    Amounts, ConditionStatus, NodeAllocatableDRAClaimStateStatus, OtherClaims, PublishedClaim,
    RequestedByClaims,
};

use crate::cluster::fingerprint;

/// The most claims in one object.
const CLAIMS: usize = 256;
/// The most Pods that are named for a claim.
const CONSUMERS: usize = 16;
/// The most names of an object, in bytes, so that it stays far below what etcd takes (1.5 MiB).
const NAMES: usize = 256 << 10;
/// The most resources of one object: cpu, memory, ephemeral storage and the sizes of huge pages.
const RESOURCES: usize = 16;
/// The longest uid that the definition takes.
const UID: usize = 36;
/// Maximum number of facts, holders or notices that a message names.
const NAMED: usize = 5;
/// The longest name of an object or field in a message, in characters.
const MESSAGE: usize = 2048;

/// Report to publish for a node: amounts, claims and findings, without revision and times.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeReport {
    /// Amounts and claims; neither revision nor conditions are set.
    pub status: NodeAllocatableDRAClaimStateStatus,
    /// The conditions.
    pub findings: Vec<ConditionUpdate>,
    /// Whether any claim takes something from the node, or might.
    pub has_claims: bool,
}

/// A condition without its time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConditionUpdate {
    /// Type of the condition.
    pub r#type: &'static str,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One word.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// The condition that more is taken from a node than it has.
pub(super) const OVERCOMMITTED: &str = "Overcommitted";
/// The condition that facts are missing or cannot be read.
pub(super) const UNACCOUNTED: &str = "Unaccounted";
/// The condition that the status of Pods records other amounts.
pub(super) const DRIFTED: &str = "Drifted";

impl NodeReport {
    /// Returns the content that the ledger has for a node; `None` where the node has no account.
    pub fn of(cluster: &ClusterLedger, node: &str) -> Option<Self> {
        let ledger = cluster.node(node)?;
        let claims = claims(ledger);
        let has_claims = !claims.is_empty()
            || ledger.resources().into_iter().any(|of| ledger.charged(Bucket::Reservation, of) != 0)
            || ledger.unaccounted().next().is_some();
        let drifts = cluster.notices(node).filter(|notice| notice.about == About::Drift);
        let findings = vec![overcommitted(ledger), unaccounted(ledger), drifted(drifts)];
        Some(Self { status: status(ledger, claims), findings, has_claims })
    }

    /// Tells it from any other.
    pub fn id(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        fingerprint(&self.status).hash(&mut hasher);
        self.findings.hash(&mut hasher);
        hasher.finish()
    }

    /// Whether more is taken than the node has.
    pub fn is_overcommitted(&self) -> bool {
        self.findings.iter().any(|of| of.r#type == OVERCOMMITTED && of.status == ConditionStatus::True)
    }
}

fn status(ledger: &NodeLedger, claims: Vec<OfClaim>) -> NodeAllocatableDRAClaimStateStatus {
    let resources = listed_resources(ledger);
    let amounts = |of: &dyn Fn(Resource) -> i128| -> Amounts {
        let named = resources.iter().map(|resource| (*resource, of(*resource)));
        named.map(|(resource, count)| (resource.to_string(), words::quantity(resource, count))).collect()
    };
    let charged = |bucket| amounts(&move |resource| ledger.charged(bucket, resource));
    let left = |resource: &Resource| match ledger.headroom(*resource) {
        Headroom::Left(left) => Some((resource.to_string(), words::quantity(*resource, left.max(0)))),
        Headroom::Unknown => None,
    };
    let reserved = charged(Bucket::Reservation);
    let is_nothing = resources.iter().all(|of| ledger.charged(Bucket::Reservation, *of) == 0);
    let (claims, other_claims) = listed(claims);
    NodeAllocatableDRAClaimStateStatus {
        revision: 0,
        allocatable: amounts(&|resource| ledger.allocatable(resource).into()),
        requested_by_pods: charged(Bucket::Pods),
        requested_by_claims: RequestedByClaims {
            mapping: charged(Bucket::Mapping),
            overhead: charged(Bucket::Overhead),
        },
        reserved: if is_nothing { Amounts::new() } else { reserved },
        headroom: resources.iter().filter_map(left).collect(),
        claims,
        other_claims,
        conditions: Vec::new(),
    }
}

/// The resources of an object: those that the node has before those that Pods name.
fn listed_resources(ledger: &NodeLedger) -> Vec<Resource> {
    let mut resources = ledger.resources();
    let is_ordinary = |of| matches!(of, Resource::Cpu | Resource::Memory | Resource::EphemeralStorage);
    resources.sort_by_key(|of| (!is_ordinary(*of), ledger.allocatable(*of) == 0));
    resources.truncate(RESOURCES);
    resources
}

/// Amounts that one claim takes from the node.
#[derive(Debug, Default)]
struct OfClaim {
    object: ObjectRef,
    mapping: Units,
    overhead: Sums,
    policy: Option<AccountingPolicy>,
    pods: Vec<ObjectRef>,
}

impl OfClaim {
    fn total(&self) -> Sums {
        let mut total = self.overhead.clone();
        total.add(&self.mapping);
        total
    }

    fn bytes(&self) -> usize {
        let pods = self.pods.iter().take(CONSUMERS).map(|pod| pod.name().len());
        self.object.namespace().len() + self.object.name().len() + pods.sum::<usize>()
    }
}

/// The claims that take something from the node, each with its Pods there. A mapping counts once; if
/// Pods state different amounts, the larger one, as in the sums.
fn claims(ledger: &NodeLedger) -> Vec<OfClaim> {
    let mut claims: BTreeMap<ObjectRef, OfClaim> = BTreeMap::new();
    for pod in ledger.pods() {
        for charge in &pod.claims {
            let of = claims.entry(charge.object.clone()).or_default();
            of.object = charge.object.clone();
            of.mapping.combine(&charge.mapping, |known, amount| *known = amount.max(*known));
            of.overhead.add(&charge.overhead);
            of.policy = of.policy.or(charge.policy);
            of.pods.push(pod.object.clone());
        }
    }
    claims.into_values().filter(|of| !of.total().is_empty()).collect()
}

/// The claims with the largest amounts, sorted by name, and the others together.
fn listed(mut claims: Vec<OfClaim>) -> (Vec<PublishedClaim>, Option<OtherClaims>) {
    let size = |of: &OfClaim| {
        let total = of.total();
        (total.get(Resource::Cpu), total.get(Resource::Memory))
    };
    // A claim of which only a record in Pod status is known has no name and uid of its own.
    let is_named = |of: &OfClaim| {
        let uid = of.object.uid();
        !of.object.namespace().is_empty() && !uid.is_empty() && uid.len() <= UID && !uid.contains(' ')
    };
    claims.sort_by(|a, b| {
        let by_size = is_named(b).cmp(&is_named(a)).then_with(|| size(b).cmp(&size(a)));
        by_size.then_with(|| a.object.cmp(&b.object))
    });
    let mut bytes = 0;
    let mut names = BTreeSet::new();
    let fit = claims.iter().take(CLAIMS).take_while(|of| {
        bytes += of.bytes();
        is_named(of) && bytes <= NAMES && names.insert((of.object.namespace(), of.object.name()))
    });
    let others = claims.split_off(fit.count());
    let mut total = Sums::default();
    others.iter().for_each(|of| total.combine(&of.total(), |sum, more| *sum += more));
    let other_claims = (!others.is_empty()).then(|| OtherClaims {
        count: i64::try_from(others.len()).unwrap_or(i64::MAX),
        amounts: written(&total),
    });
    let mut listed: Vec<PublishedClaim> = claims.into_iter().map(published).collect();
    listed.sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
    (listed, other_claims)
}

fn published(mut of: OfClaim) -> PublishedClaim {
    of.pods.sort_by(|a, b| a.name().cmp(b.name()));
    PublishedClaim {
        namespace: of.object.namespace().to_owned(),
        name: of.object.name().to_owned(),
        uid: of.object.uid().to_owned(),
        amounts: written(&of.total()),
        accounting_policy: of.policy,
        consumers: of.pods.iter().take(CONSUMERS).map(|pod| pod.name().to_owned()).collect(),
    }
}

fn written(sums: &Sums) -> Amounts {
    let mut named: Vec<_> = sums.iter().collect();
    named.sort_by_key(|(of, _)| matches!(of, Resource::HugePages(_)));
    named
        .into_iter()
        .take(RESOURCES)
        .map(|(resource, count)| (resource.to_string(), words::quantity(resource, count)))
        .collect()
}

fn overcommitted(ledger: &NodeLedger) -> ConditionUpdate {
    let finding =
        |status, reason, message| ConditionUpdate { r#type: OVERCOMMITTED, status, reason, message };
    let short = words::shortages(ledger, NAMED);
    let violations: Vec<String> = ledger.violations().iter().map(ToString::to_string).collect();
    if !short.is_empty() {
        return finding(ConditionStatus::True, "MoreTakenThanAllocatable", limited(&short));
    }
    if !violations.is_empty() {
        return finding(ConditionStatus::True, "RulesBroken", limited(&violations));
    }
    let unknown = ledger.resources().into_iter().any(|of| ledger.headroom(of) == Headroom::Unknown);
    if unknown || ledger.unaccounted().next().is_some() {
        let message = "not everything that is taken from the node is known".to_owned();
        return finding(ConditionStatus::Unknown, "FactsUnknown", message);
    }
    finding(ConditionStatus::False, "Fits", "usage is within allocatable".to_owned())
}

fn unaccounted(ledger: &NodeLedger) -> ConditionUpdate {
    let facts: Vec<String> = ledger.unaccounted().map(ToString::to_string).collect();
    let (status, reason, message) = if facts.is_empty() {
        (ConditionStatus::False, "EverythingCounted", "every fact is counted".to_owned())
    } else {
        (ConditionStatus::True, "FactsUnknown", limited(&facts))
    };
    ConditionUpdate { r#type: UNACCOUNTED, status, reason, message }
}

fn drifted<'a>(drifts: impl Iterator<Item = &'a Notice>) -> ConditionUpdate {
    let drifts: Vec<String> = drifts.map(ToString::to_string).collect();
    let (status, reason, message) = if drifts.is_empty() {
        (ConditionStatus::False, "Agrees", "the status of every Pod agrees".to_owned())
    } else {
        (ConditionStatus::True, "PodStatusDiffers", limited(&drifts))
    };
    ConditionUpdate { r#type: DRIFTED, status, reason, message }
}

/// The first few of many lines, and how many more there are.
fn limited(lines: &[String]) -> String {
    let mut text = lines.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    if text.chars().count() > MESSAGE {
        text = text.chars().take(MESSAGE).chain(['…']).collect();
    }
    match lines.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_five_and_how_many_more_there_are() {
        let lines: Vec<String> = (0..8).map(|number| format!("Pod ns/p-{number}")).collect();
        let text = limited(&lines);
        assert!(text.starts_with("Pod ns/p-0; ") && text.ends_with("Pod ns/p-4; and 3 more"), "{text}");
        assert_eq!(limited(&lines[..5]).matches("Pod").count(), 5);
        assert!(limited(&["x".repeat(10_000)]).chars().count() <= MESSAGE + 1);
    }
}
