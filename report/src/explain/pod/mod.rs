//! Why a Pod waits for its claims, or for a node.

mod entry;
mod node;

use dragoman_crds::protocol::{CLAIMS_READY, GATE, shown};
use dragoman_objects::{ClaimEntry, ConsumerReference, Pod, ResourceClaim};
use jiff::Timestamp;

use super::claim::{self, For};
use super::devices::Asked;
use super::gate::opens;
use super::{Answer, Link, Verdict, age, count, link, with_age};
use crate::extended;
use crate::facts::{Event, Facts, Key};

/// Explains a Pod.
pub fn explain(facts: Facts, namespace: &str, name: &str, now: Timestamp) -> Answer {
    let facts = &facts.settled();
    let object = format!("Pod {namespace}/{name}");
    let key = (namespace.to_owned(), name.to_owned());
    let (verdict, chain) = match facts.pods.get(&key) {
        None => (missing(facts, namespace, name), Vec::new()),
        Some(pod) => {
            (verdict(facts, &key, pod, now), View { facts, pod, key: &key, now, may_search: true }.chain())
        }
    };
    let is_missing = verdict.reason == "PodMissing";
    Answer { object, verdict, chain, is_missing, lacks: facts.partial() }
}

/// State of a Pod; the facts are settled.
pub(crate) fn verdict(facts: &Facts, key: &Key, pod: &Pod, now: Timestamp) -> Verdict {
    about(View { facts, pod, key, now, may_search: true }.verdict(), &key.1)
}

/// The same without a search for devices: where only that would say more, the reason is [`NOT_LOOKED_AT`].
pub(crate) fn verdict_without_search(facts: &Facts, key: &Key, pod: &Pod, now: Timestamp) -> Verdict {
    about(View { facts, pod, key, now, may_search: false }.verdict(), &key.1)
}

/// The reason of a verdict for which devices would have to be looked for.
pub(crate) const NOT_LOOKED_AT: &str = "NotLookedAt";

/// Whether a claim is reserved for a Pod: by itself, or by its PodGroup.
pub fn is_for(consumer: &ConsumerReference, pod: &Pod) -> bool {
    let group = pod.spec.scheduling_group.pod_group_name.as_deref();
    consumer.stands_for(&pod.metadata.uid, group)
}

/// The name of the claim of an entry, by the Pod's spec or its status.
pub(crate) fn claim_name<'a>(pod: &'a Pod, entry: &'a ClaimEntry) -> Option<&'a str> {
    let published = pod.status.resource_claim_statuses.iter().find(|status| status.name == entry.name);
    let published = published.and_then(|status| status.resource_claim_name.as_deref());
    entry.resource_claim_name.as_deref().or(published)
}

/// A verdict about a claim or a template, as one about the Pod that waits for it.
fn about(verdict: Verdict, pod: &str) -> Verdict {
    if !verdict.blocked || verdict.sentence.starts_with("Pod ") {
        return verdict;
    }
    Verdict { sentence: format!("Pod {pod} waits: {}", verdict.sentence), ..verdict }
}

fn missing(facts: &Facts, namespace: &str, name: &str) -> Verdict {
    match facts.why_unreadable("Pod", namespace, name) {
        Some(why) => {
            Verdict::blocked("PodUnreadable", format!("Pod {namespace}/{name} does not decode: {why}"), "")
        }
        None => Verdict::blocked(
            "PodMissing",
            format!("Pod {namespace}/{name} {}", facts.absence()),
            "look for it with `kubectl get pods --all-namespaces`",
        ),
    }
}

/// A Pod among what is known.
struct View<'a> {
    facts: &'a Facts,
    pod: &'a Pod,
    key: &'a Key,
    now: Timestamp,
    may_search: bool,
}

impl View<'_> {
    fn name(&self) -> &str {
        &self.key.1
    }

    /// Whether this is the PodGroup of the Pod: its claims are those of its Pods.
    fn is_group(&self, kind: &str, name: &str) -> bool {
        kind == "PodGroup" && self.pod.spec.scheduling_group.pod_group_name.as_deref() == Some(name)
    }

    fn condition(&self, of: &str) -> Option<&dragoman_objects::Condition> {
        self.pod.status.conditions.iter().find(|condition| *condition.r#type == *of)
    }

    fn verdict(&self) -> Verdict {
        let Pod { metadata, spec, status } = self.pod;
        let name = self.name();
        if matches!(&*status.phase, "Succeeded" | "Failed") {
            return Verdict::fine(
                "Ended",
                format!("Pod {name} has ended ({}) and waits for nothing", status.phase),
            );
        }
        if metadata.deleting {
            return Verdict::blocked(
                "PodDeleted",
                format!("Pod {name} is being deleted"),
                if spec.node_name.is_empty() {
                    "it goes when its finalizers are taken away"
                } else {
                    "its claims are released when its node says that its containers have ended"
                },
            );
        }
        if &*status.phase == "Running" {
            return self.running();
        }
        let entries = spec.resource_claims.iter().find_map(|entry| self.entry(entry));
        entries
            .or_else(|| self.other_gate())
            .or_else(|| self.unallocated())
            .or_else(|| self.refused())
            .or_else(|| self.gate())
            .unwrap_or_else(|| if spec.node_name.is_empty() { self.unscheduled() } else { self.starting() })
    }

    fn running(&self) -> Verdict {
        let name = self.name();
        let claims = self.claims();
        let trouble = claims.iter().find_map(|claim| claim::trouble_of_devices(self.facts, claim));
        // A Pod that runs does not wait.
        let runs = |of: Verdict| {
            let sentence =
                format!("Pod {name} runs on node {}, and {}", self.pod.spec.node_name, of.sentence);
            Verdict { sentence, ..of }
        };
        let fine = || {
            let of = count(claims.len(), "claim", "claims");
            Verdict::fine("Running", format!("Pod {name} runs on node {} with {of}", self.pod.spec.node_name))
        };
        trouble.map_or_else(fine, runs)
    }

    /// The claims of the Pod that are there.
    fn claims(&self) -> Vec<&ResourceClaim> {
        let names = self.pod.spec.resource_claims.iter().filter_map(|entry| self.claim_name(entry));
        let extended = self.pod.status.extended_resource_claim_status.as_ref();
        let names = names.chain(extended.map(|status| &*status.resource_claim_name));
        let claims = names.filter_map(|name| self.facts.claims.get(&(self.key.0.clone(), name.to_owned())));
        claims.chain(self.expected()).collect()
    }

    /// The claim that a scheduler will make for the extended resources of the Pod.
    fn expected(&self) -> Option<&ResourceClaim> {
        self.facts.claims.get(&(self.key.0.clone(), extended::claim_name(self.name())))
    }

    /// The claim of an entry, by the Pod's spec or its status.
    fn claim_name<'a>(&'a self, entry: &'a ClaimEntry) -> Option<&'a str> {
        claim_name(self.pod, entry)
    }

    fn asks(&self, claims: &[&ResourceClaim]) -> For<'_> {
        let claims =
            claims.iter().map(|claim| format!("{}/{}", claim.metadata.namespace, claim.metadata.name));
        let asked = Asked {
            pod: self.facts.placements.get(self.key).map(|constraints| (self.pod, constraints)),
            claims: claims.collect(),
        };
        For { asked, now: self.now }
    }

    /// Returns the obstacle to devices for all claims of the Pod together.
    fn unallocated(&self) -> Option<Verdict> {
        let claims = self.claims();
        let node = &self.pod.spec.node_name;
        let open = claims.iter().find(|claim| claim.status.allocation.is_none());
        if let Some(claim) = open.filter(|_| !node.is_empty()) {
            return Some(Verdict::blocked(
                "BoundUnallocated",
                format!(
                    "Pod {} is bound to node {node}, and claim {} has no devices",
                    self.name(),
                    claim.metadata.name
                ),
                "no scheduler allocates for a Pod that has a node: create the Pod without spec.nodeName",
            ));
        }
        if open.is_some() && !self.may_search {
            return Some(self.not_looked_at());
        }
        let asks = self.asks(&claims);
        let verdict = claims.iter().find_map(|claim| claim::of(self.facts, claim, &asks))?;
        if verdict.reason != super::devices::FREE {
            return Some(verdict);
        }
        // Devices are there: what else holds the Pod up says more than that no one has allocated them.
        self.gate().or_else(|| self.refusal()).or(Some(verdict))
    }

    /// The words of the conditions, where devices are not looked for.
    fn not_looked_at(&self) -> Verdict {
        let mut conditions = self.pod.status.conditions.iter().filter(|of| &*of.status == "False");
        let says = conditions.find(|of| !of.message.is_empty());
        let says = says.map_or(String::new(), |of| format!(": {}", shown(&of.message)));
        Verdict::blocked(
            NOT_LOOKED_AT,
            format!(
                "Pod {} waits, and so many others wait that its devices were not looked for{says}",
                self.name()
            ),
            "`kubectl dra explain pod` looks for the devices of one Pod",
        )
    }

    /// The scheduling gates of other controllers. They come before ours, but where the operator is said to be already at
    /// work for the Pod: an administrator has put them after it.
    fn other_gate(&self) -> Option<Verdict> {
        let gates = || self.pod.spec.scheduling_gates.iter().map(|gate| &*gate.name);
        let others: Vec<&str> = gates().filter(|gate| *gate != GATE).collect();
        let is_ours_closed = gates().any(|gate| gate == GATE);
        let waits_for = self.condition(CLAIMS_READY).map(|of| &*of.reason);
        if others.is_empty() || is_ours_closed && waits_for.is_some_and(|reason| reason != "OtherGateClosed")
        {
            return None;
        }
        let meanwhile = if is_ours_closed { "; no devices are taken for the Pod until then" } else { "" };
        Some(Verdict::blocked(
            "ForeignGate",
            format!(
                "Pod {} is held by a scheduling gate of another controller: {}",
                self.name(),
                others.join(", ")
            ),
            format!("that controller removes its gate{meanwhile}"),
        ))
    }

    fn gate(&self) -> Option<Verdict> {
        if self.pod.spec.scheduling_gates.iter().all(|gate| &*gate.name != GATE) {
            return None;
        }
        let name = self.name();
        let ready = self.condition(CLAIMS_READY);
        let (reason, message) = ready.map_or(("", ""), |of| (&*of.reason, &*of.message));
        let says = if message.is_empty() {
            ", and nothing has said yet for what; does Dragoman run with `--controllers=*,gates`?".to_owned()
        } else {
            format!(": {reason}: {}", shown(message))
        };
        Some(Verdict::blocked(
            "GateClosed",
            format!("Pod {name} waits behind its gate {GATE}{says}"),
            opens(reason),
        ))
    }

    /// The Pod has a node: its driver or its kubelet is at work.
    fn starting(&self) -> Verdict {
        let (name, node) = (self.name(), &self.pod.spec.node_name);
        if self.facts.nodes.get(&**node).is_some_and(|node| !node.is_ready()) {
            return Verdict::blocked(
                "NodeNotReady",
                format!("Pod {name} is bound to node {node}, which is not ready"),
                "look at the kubelet of that node",
            );
        }
        let unreserved = self
            .claims()
            .into_iter()
            .find(|claim| !claim.status.reserved_for.iter().any(|consumer| is_for(consumer, self.pod)));
        if let Some(claim) = unreserved {
            return Verdict::blocked(
                "NotReserved",
                format!(
                    "Pod {name} is bound to node {node}, and claim {} is not reserved for it",
                    claim.metadata.name
                ),
                "the kubelet does not start it: the component that bound the Pod must reserve its claims",
            );
        }
        let elsewhere = self.claims().into_iter().find_map(|claim| {
            let of = claim.allocation()?.node_selector.as_ref()?.node()?;
            (of != node).then(|| (claim.metadata.name.clone(), of.clone()))
        });
        if let Some((claim, other)) = elsewhere {
            return Verdict::blocked(
                "OtherNode",
                format!(
                    "Pod {name} is bound to node {node}, and the devices of claim {claim} are on node {other}"
                ),
                "delete the Pod: whatever bound it did not look at its claims",
            );
        }
        // What schedulers, allocators and other controllers said before is over.
        let is_of_node = |event: &Event| {
            matches!(event.reporter(), "" | "kubelet" | "attachdetach-controller")
                && !matches!(event.reason.as_str(), "FailedScheduling" | "FailedResourceClaimCreation")
        };
        match self.warning_of(is_of_node) {
            Some(event) => Verdict::blocked(
                "NotStarted",
                format!(
                    "Pod {name} does not start on node {node}: {} ({})",
                    shown(&event.message),
                    event.reason
                ),
                "if the message is of a DRA driver, its log on that node says more",
            ),
            None => Verdict::fine("Starting", format!("Pod {name} is starting on node {node}")),
        }
    }

    /// The newest warning about the Pod itself, and not about another one of its name.
    fn warning(&self) -> Option<&Event> {
        self.warning_of(|_| true)
    }

    fn warning_of(&self, counts: impl Fn(&Event) -> bool) -> Option<&Event> {
        let uid = &self.pod.metadata.uid;
        let mine = |event: &&Event| {
            let of = &event.involved_object;
            of.kind == "Pod"
                && (&of.namespace, &of.name) == (&self.key.0, &self.key.1)
                && (of.uid.is_empty() || *of.uid == **uid)
                && event.r#type == "Warning"
                && counts(event)
        };
        self.facts.events.iter().filter(mine).max_by_key(|event| event.time())
    }

    fn chain(&self) -> Vec<Link> {
        let Pod { metadata, spec, status } = self.pod;
        let since = age(metadata.creation_timestamp.as_deref(), self.now);
        let node =
            if spec.node_name.is_empty() { "no node".to_owned() } else { format!("node {}", spec.node_name) };
        let mut chain = vec![link(
            0,
            format!("Pod {}", self.name()),
            with_age(&format!("{}, {node}", status.phase), &since),
        )];
        for entry in &spec.resource_claims {
            let from = match (&entry.resource_claim_template_name, &entry.resource_claim_name) {
                (Some(template), _) => format!("from template {template}"),
                (None, Some(claim)) => format!("claim {claim}"),
                (None, None) => "names nothing".to_owned(),
            };
            chain.push(link(1, format!("entry {}", entry.name), from));
            let claim = self.claim_name(entry).map(|name| (self.key.0.clone(), name.to_owned()));
            match claim.as_ref().and_then(|key| self.facts.claims.get(key)) {
                Some(claim) => chain.extend(claim::links(self.facts, claim, 2, self.now)),
                None if self.facts.lacks("resourceclaims") => {
                    chain.push(link(2, "ResourceClaim", "not read"));
                }
                None => chain.push(link(2, "ResourceClaim", "there is none")),
            }
        }
        for request in self.expected().iter().flat_map(|claim| &claim.spec.devices.requests) {
            let asked = request.exactly.as_ref().map(|of| &of.asked);
            let (class, number) = asked.map_or(("", 0), |of| (&of.device_class_name, of.count));
            let says = format!("{number} of DeviceClass {class}; a scheduler makes the claim");
            chain.push(link(1, format!("extended resource {}", request.name), says));
        }
        let has_ended = matches!(&*status.phase, "Succeeded" | "Failed");
        let cost = self.cost().filter(|_| !has_ended);
        for advice in cost.into_iter().flat_map(|(_, cost)| cost.advice()) {
            let party = if advice.is_warning() { "advice" } else { "kubelet" };
            chain.push(link(1, party, advice.to_string()));
        }
        chain
    }
}
