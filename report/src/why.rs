//! Why the Pods of a namespace wait: each verdict is that of `explain`, and Pods with the same cause stand together.

use std::collections::BTreeMap;

use dragoman_objects::{ClaimEntry, Pod, PodSpec, ResourceClaim};
use jiff::Timestamp;
use serde::Serialize;

use crate::explain::pod::{NOT_LOOKED_AT, claim_name, verdict_without_search};
use crate::explain::{self, Verdict, age};
use crate::facts::{Facts, Key};
use crate::printable;

/// The attempts on nodes that the allocator may make for all Pods together: a person waits. Pods that are left over stand for themselves,
/// with the words of their conditions.
const ATTEMPTS: usize = 20_000;
/// The Pods of a group that are named.
const NAMED: usize = 5;

/// The Pods that wait, by cause.
#[derive(Debug, Default, Serialize)]
pub struct Why {
    /// Causes. First comes that of the Pod that waits longest.
    #[serde(rename = "items")]
    pub groups: Vec<Group>,
    /// The number of Pods that wait.
    pub pods: usize,
    /// The number of Pods that are starting on their node.
    pub starting: usize,
    /// Objects that could not be read. The answer may lack them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    #[serde(skip)]
    now: Timestamp,
    /// Whether everything could be read that shows a Pod.
    #[serde(skip)]
    is_complete: bool,
}

/// Pods that wait for the same cause.
#[derive(Debug, Serialize)]
pub struct Group {
    /// The verdict about the Pod that waits longest.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The Pods, the one that waits longest first.
    pub pods: Vec<Waiting>,
}

/// A Pod that waits.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// Namespace of the Pod.
    pub namespace: String,
    /// Name of the Pod.
    pub name: String,
    /// Time at which it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
}

/// Explains the Pods that wait, of one namespace or of all.
pub fn why(facts: Facts, namespace: Option<&str>, now: Timestamp) -> Why {
    let facts = &facts.settled();
    let is_asked = |key: &&Key| namespace.is_none_or(|namespace| key.0 == namespace);
    let mut waiting: Vec<(&Key, &Pod)> = facts
        .pods
        .iter()
        .filter(|(key, pod)| is_asked(key) && matches!(&*pod.status.phase, "" | "Pending"))
        .collect();
    waiting.sort_by_key(|(_, pod)| pod.metadata.creation_timestamp.as_deref());
    let mut causes = Causes { attempts: ATTEMPTS / facts.supply.nodes.len().max(1), ..Causes::default() };
    for (key, pod) in waiting {
        causes.add(facts, key, pod, now);
    }
    let Causes { groups, starting, .. } = causes;
    let pods = groups.iter().map(|(group, ..)| group.pods.len()).sum();
    let groups = groups.into_iter().map(|(group, ..)| group).collect();
    Why { groups, pods, starting, lacks: facts.partial(), now, is_complete: facts.is_complete() }
}

/// The groups so far.
#[derive(Default)]
struct Causes<'a> {
    /// Each with its first Pod, and the spec of that without the names of claims.
    groups: Vec<(Group, &'a Pod, PodSpec)>,
    /// Places of the groups by reason and sentence, names of Pod and claims aside.
    places: BTreeMap<(&'static str, String), usize>,
    /// The Pods for which the allocator may still be asked.
    attempts: usize,
    starting: usize,
}

impl<'a> Causes<'a> {
    fn add(&mut self, facts: &'a Facts, key: &'a Key, pod: &'a Pod, now: Timestamp) {
        let waiting = Waiting {
            namespace: key.0.clone(),
            name: key.1.clone(),
            creation_timestamp: pod.metadata.creation_timestamp.as_deref().map(str::to_owned),
        };
        // The verdict would be the same.
        let spec = without_claims(&pod.spec);
        let is_alike = |of: &&mut (Group, &Pod, PodSpec)| of.2 == spec && are_alike(facts, of.1, pod);
        if let Some((group, ..)) = self.groups.iter_mut().find(is_alike) {
            group.pods.push(waiting);
            return;
        }
        let mut verdict = verdict_without_search(facts, key, pod, now);
        if verdict.reason == NOT_LOOKED_AT && self.attempts > 0 {
            self.attempts -= 1;
            verdict = explain::pod::verdict(facts, key, pod, now);
        }
        if !verdict.blocked {
            self.starting += 1;
            return;
        }
        let cause = (verdict.reason, impersonal(&verdict.sentence, key, pod));
        if let Some((group, ..)) = self.places.get(&cause).and_then(|place| self.groups.get_mut(*place)) {
            group.pods.push(waiting);
            return;
        }
        self.places.insert(cause, self.groups.len());
        self.groups.push((Group { verdict, pods: vec![waiting] }, pod, spec));
    }
}

/// The claim of an entry of a Pod.
fn claim_of<'a>(facts: &'a Facts, pod: &Pod, entry: &ClaimEntry) -> Option<&'a ResourceClaim> {
    let name = claim_name(pod, entry)?;
    facts.claims.get(&(pod.metadata.namespace.to_string(), name.to_owned()))
}

/// The spec of a Pod without the names of claims: their contents are compared.
fn without_claims(spec: &PodSpec) -> PodSpec {
    let mut spec = spec.clone();
    spec.resource_claims.iter_mut().for_each(|entry| entry.resource_claim_name = None);
    spec
}

/// Whether two Pods of a namespace with the same spec wait for a node with claims of the same contents, and the same is said about both.
fn are_alike(facts: &Facts, one: &Pod, other: &Pod) -> bool {
    let says = |pod: &Pod| -> Vec<_> {
        let conditions = pod.status.conditions.iter();
        let says = conditions
            .map(|of| (of.r#type.clone(), of.status.clone(), of.reason.clone(), of.message.clone()));
        says.collect()
    };
    let claims_are_alike = || {
        one.spec.resource_claims.iter().all(|entry| {
            let of_other = other.spec.resource_claims.iter().find(|of| of.name == entry.name);
            let of_other = of_other.and_then(|entry| claim_of(facts, other, entry));
            let claims = (claim_of(facts, one, entry), of_other);
            let owns = |pod: &Pod, claim: &ResourceClaim| {
                claim.metadata.controller.as_ref().is_some_and(|owner| owner.uid == pod.metadata.uid)
            };
            matches!(claims, (Some(of_one), Some(of_other))
                if have_same_contents(of_one, of_other) && owns(one, of_one) == owns(other, of_other))
        })
    };
    one.metadata.namespace == other.metadata.namespace
        && one.spec.node_name.is_empty()
        && !one.spec.resource_claims.is_empty()
        && !one.metadata.deleting
        && !other.metadata.deleting
        && one.status.extended_resource_claim_status.is_none()
        && other.status.extended_resource_claim_status.is_none()
        && says(one) == says(other)
        && claims_are_alike()
}

/// Whether two claims without devices ask for the same, and the same gates and allocator are theirs.
fn have_same_contents(one: &ResourceClaim, other: &ResourceClaim) -> bool {
    let is_plain = |claim: &ResourceClaim| {
        claim.status.allocation.is_none() && claim.status.reserved_for.is_empty() && !claim.metadata.deleting
    };
    is_plain(one)
        && is_plain(other)
        && one.spec == other.spec
        && one.metadata.labels == other.metadata.labels
        && one.metadata.annotations == other.metadata.annotations
}

/// A sentence without the names of the Pod and of its claims, and without ages.
fn impersonal(sentence: &str, key: &Key, pod: &Pod) -> String {
    let claims =
        pod.spec.resource_claims.iter().filter_map(|entry| Some((claim_name(pod, entry)?, &*entry.name)));
    let names: BTreeMap<&str, &str> = claims.chain([(key.1.as_str(), "")]).collect();
    // Words are what names of objects are made of; everything else stands between them.
    let is_part = |character: char| character.is_ascii_alphanumeric() || "-._".contains(character);
    let mut impersonal = String::new();
    let mut rest = sentence;
    // A name may be any word: it is meant where it stands behind a kind or a namespace.
    let mut last = "";
    while let Some(start) = rest.find(is_part) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|character| !is_part(character)).unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        let trimmed = word.trim_end_matches('.');
        let is_age =
            trimmed.strip_suffix(['s', 'm', 'h', 'd']).is_some_and(|number| number.parse::<u64>().is_ok());
        let is_name = before.ends_with('/') || ["Pod", "claim", "ResourceClaim"].contains(&last);
        impersonal.push_str(before);
        let general = if is_age { "" } else { trimmed };
        impersonal.push_str(names.get(trimmed).copied().filter(|_| is_name).unwrap_or(general));
        (rest, last) = (after, trimmed);
    }
    impersonal + rest
}

impl Why {
    /// Whether Pods could be read, or some were.
    pub fn is_known(&self) -> bool {
        !self.groups.is_empty() || self.is_complete
    }

    /// The answer for people. `place` says of which Pods: it is empty, or begins with a blank.
    pub fn in_words(&self, place: &str) -> String {
        let (pods, causes) = (self.pods, self.groups.len());
        let starting = match self.starting {
            0 => String::new(),
            1 => "; 1 is starting".to_owned(),
            several => format!("; {several} are starting"),
        };
        let mut text = match (pods, causes) {
            (0, _) => format!("no Pod{place} waits{starting}\n"),
            (1, _) => format!("1 Pod{place} waits{starting}\n"),
            (_, 1) => format!("{pods} Pods{place} wait for one reason{starting}\n"),
            _ => format!("{pods} Pods{place} wait for {causes} reasons{starting}\n"),
        };
        for group in &self.groups {
            text.push('\n');
            text.push_str(&group.in_words(self.now));
        }
        self.lacks.iter().for_each(|lack| text.push_str(&format!("partial: {}\n", printable(lack))));
        text
    }
}

impl Group {
    fn in_words(&self, now: Timestamp) -> String {
        let Verdict { reason, sentence, advice, .. } = &self.verdict;
        let named = self.pods.iter().take(NAMED).map(|pod| {
            let since = age(pod.creation_timestamp.as_deref(), now);
            let since = if since.is_empty() { since } else { format!(" ({since})") };
            format!("{}/{}{since}", pod.namespace, pod.name)
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let others = match self.pods.len().saturating_sub(NAMED) {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let pods = if self.pods.len() == 1 { "Pod".to_owned() } else { format!("{} Pods", self.pods.len()) };
        let mut text =
            format!("{reason}: {pods}: {}{others}\n  {}\n", printable(&named), printable(sentence));
        if !advice.is_empty() {
            text.push_str(&format!("  What to do: {}\n", printable(advice)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, minute: usize, claim: &str) -> [Value; 2] {
        let meta = |name: &str| json!({"namespace": "ml", "name": name, "uid": name, "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z")});
        let claim_name = format!("{name}-gpu-x");
        [
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta(name),
                "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": claim}]},
                "status": {"phase": "Pending", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": claim_name}]}}),
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"namespace": "ml", "name": claim_name, "uid": claim_name,
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true}]},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": claim}}]}}}),
        ]
    }

    fn facts(objects: &[Value]) -> Facts {
        let mut facts = Facts::default();
        let list = json!({"kind": "List", "items": objects});
        facts.take_file(Path::new("f"), &list.to_string()).expect("objects");
        facts
    }

    fn cluster() -> Vec<Value> {
        vec![
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "pods": "110"}}}),
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}),
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "a"}]}}),
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"namespace": "other", "name": "held", "uid": "h"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}, "status": {
                "allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "a"}]}}}}),
        ]
    }

    #[test]
    fn pods_with_one_cause_stand_together_and_the_oldest_is_first() {
        let mut objects = cluster();
        objects.extend(pod("late", 9, "gpu"));
        objects.extend(pod("early", 1, "gpu"));
        objects.extend(pod("lost", 2, "no-such-class"));
        let now = "2026-01-01T01:00:00Z".parse().expect("a time");
        let why = why(facts(&objects), None, now);
        let groups: Vec<(&str, Vec<&str>)> = why
            .groups
            .iter()
            .map(|group| (group.verdict.reason, group.pods.iter().map(|pod| &*pod.name).collect()))
            .collect();
        assert_eq!(groups, [("NoDevicesFree", vec!["early", "late"]), ("ClassMissing", vec!["lost"])]);
        let words = why.in_words("");
        assert!(
            words.starts_with(
                "3 Pods wait for 2 reasons\n\nNoDevicesFree: 2 Pods: ml/early (59m), ml/late (51m)\n"
            ),
            "{words}"
        );
    }

    #[test]
    fn pods_that_name_claims_are_alike_if_the_claims_ask_for_the_same() {
        let mut objects = cluster();
        for (name, class) in [("a", "gpu"), ("b", "no-such-class"), ("c", "gpu")] {
            let [mut pod, mut claim] = pod(name, 1, class);
            pod["spec"]["resourceClaims"] =
                json!([{"name": "gpu", "resourceClaimName": format!("{name}-gpu-x")}]);
            pod["status"] = json!({"phase": "Pending"});
            claim["metadata"]["ownerReferences"] = json!([]);
            objects.extend([pod, claim]);
        }
        let why = why(facts(&objects), Some("ml"), Timestamp::UNIX_EPOCH);
        let groups: Vec<(&str, usize)> =
            why.groups.iter().map(|group| (group.verdict.reason, group.pods.len())).collect();
        assert_eq!(groups, [("NoDevicesFree", 2), ("ClassMissing", 1)]);
    }

    #[test]
    fn sentences_that_differ_by_ages_are_one_cause() {
        let mut objects = cluster();
        for (name, minute) in [("a", 1), ("b", 2), ("c", 3)] {
            let [mut pod, _] = pod(name, minute, "one");
            pod["status"] = json!({"phase": "Pending"});
            objects.push(pod);
        }
        objects.push(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"namespace": "ml", "name": "one"}, "spec": {}}));
        let why = why(facts(&objects), Some("ml"), "2026-01-01T00:05:00Z".parse().expect("a time"));
        assert_eq!((why.groups.len(), why.pods), (1, 3), "{why:?}");
        assert_eq!(why.groups[0].verdict.reason, "ClaimNotCreated");
    }

    #[test]
    fn sentences_that_differ_by_own_names_alone_are_one_cause() {
        let mut objects = cluster();
        for (name, minute) in [("a", 1), ("b", 2)] {
            let [mut pod, claim] = pod(name, minute, "gpu");
            // The gate says the same of each with its own name.
            pod["spec"]["schedulingGates"] = json!([{"name": "queue.example/wait"}]);
            pod["spec"]["priority"] = json!(minute);
            objects.extend([pod, claim]);
        }
        let why = why(facts(&objects), Some("ml"), Timestamp::UNIX_EPOCH);
        assert_eq!((why.groups.len(), why.pods), (1, 2), "{why:?}");
        assert_eq!(why.groups[0].verdict.reason, "ForeignGate");
        let nothing = super::why(facts(&cluster()), Some("ml"), Timestamp::UNIX_EPOCH);
        assert_eq!(nothing.in_words(" in namespace ml"), "no Pod in namespace ml waits\n");
    }
}
