//! Why a Pod has no devices, in words for its tenant: an Event about the Pod, and the verdict on its first claim without devices.

use std::time::Duration;

use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::times;
use jiff::Timestamp;

use super::index::NamedClaim;
use super::pass::{Notice, Purpose, Step};
use super::writes;
use dragoman_crds::protocol::{Verdict, shown};

/// The reason of verdicts and Events: no node takes the Pod.
pub(super) const NO_NODE: &str = "NoNode";
/// The reason of verdicts and Events: the Pods of the PodGroup are not all there.
pub(super) const GANG: &str = "GangIncomplete";
/// The reason of verdicts and Events: the search for devices takes too long, and goes on later.
pub(super) const TOO_LONG: &str = "TooLong";
/// The reason of verdicts and Events: the API server does not store what was decided.
pub(super) const REFUSED: &str = "Refused";
/// Message for a Pod that is not the first of its shape.
pub(super) const BEHIND: &str = "a Pod that asks for the same comes first";
/// A verdict is written anew after this time at the earliest.
const STAYS: Duration = Duration::from_secs(30);

/// Facts about a Pod for the messages to its tenant.
#[derive(Debug)]
pub(super) struct Words {
    key: ObjectKey,
    /// The first claim without devices, if there is one.
    claim: Option<NamedClaim>,
    /// Whether one of the claims says already that no node takes the Pod.
    is_told: bool,
    /// The number of nodes.
    nodes: usize,
    /// Message about the devices that the allocator leaves out, if any.
    left_out: Option<String>,
    now: Timestamp,
}

impl Words {
    /// Words about a Pod with these claims, in a cluster of so many nodes.
    pub(super) fn new(
        key: &ObjectKey,
        claims: &[NamedClaim],
        nodes: usize,
        left_out: Option<String>,
        now: Timestamp,
    ) -> Self {
        let is_told = |claim: &NamedClaim| {
            claim.facts.verdict.as_ref().is_some_and(|verdict| verdict.reason == NO_NODE)
        };
        Self {
            key: key.clone(),
            claim: claims.iter().find(|claim| !claim.facts.is_allocated).cloned(),
            is_told: claims.iter().any(is_told),
            nodes,
            left_out,
            now,
        }
    }

    /// Says why a Pod has no devices. The same is not written again, and another message for the same reason not at once.
    pub(super) fn verdict(&self, reason: &'static str, message: &str, retry_after: Option<u64>) -> Vec<Step> {
        let message = shown(message);
        let mut steps = vec![Step::Say(Notice::Warning(reason, message.to_string()))];
        // All claims have devices, and no node has room for the Pod beside those that share a claim with it: a verdict is about
        // a claim that is not allocated.
        let Some(claim) = &self.claim else { return steps };
        if let Some(known) = &claim.facts.verdict {
            let since = known.time.parse().unwrap_or(Timestamp::UNIX_EPOCH);
            // A time that is still to come is that of a clock that was set back.
            let is_fresh = since <= self.now && times::passed(since, self.now) < STAYS;
            // Of two Pods that share the claim each would write over what the other says.
            let stays = is_fresh && (known.reason == reason || reason == GANG);
            if known.message == *message || stays {
                return steps;
            }
        }
        let time = self.time();
        let (reason, nodes) = (reason.to_owned(), self.nodes);
        let verdict = Verdict { reason, message: message.to_string(), nodes, time, retry_after };
        let write = writes::verdict(&self.key.namespace, claim, &verdict);
        steps.extend(write.map(|write| Step::Send(Purpose::Verdict, Box::new(write))));
        steps
    }

    /// The time as objects of Kubernetes have it.
    pub(super) fn time(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Says why no node takes a Pod.
    pub(super) fn no_node(&self, why: &[String]) -> Vec<Step> {
        self.verdict(NO_NODE, &self.no_node_text(why), None)
    }

    /// Returns the time until another message than the known one may be written. Without another look it would stay, although
    /// what it says is over.
    pub(super) fn rewords_after(&self, why: &[String]) -> Option<Duration> {
        let known = self.claim.as_ref()?.facts.verdict.as_ref()?;
        let is_other = known.reason == NO_NODE && known.message != *shown(&self.no_node_text(why));
        let since = known.time.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let left = STAYS.saturating_sub(times::passed(since, self.now));
        (is_other && since <= self.now && !left.is_zero()).then_some(left)
    }

    /// The first claim without devices.
    pub(super) fn claim(&self) -> Option<&NamedClaim> {
        self.claim.as_ref()
    }

    fn no_node_text(&self, why: &[String]) -> String {
        let nodes = if self.nodes == 1 {
            "the only node does not take".to_owned()
        } else {
            format!("none of {} nodes takes", self.nodes)
        };
        let reasons =
            if why.is_empty() { "all were refused a short while ago".to_owned() } else { why.join("; ") };
        let left_out = self.left_out.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        format!("{nodes} the Pod: {reasons}{left_out}")
    }

    /// Says of a Pod of a gang that the first of them finds no node: once, and again when another one is the first.
    pub(super) fn in_gang(&self, first: &str) -> Vec<Step> {
        let why = format!(
            "the Pods of its PodGroup get devices at once or not at all, and Pod {first} says what is missing"
        );
        let said = self.claim.as_ref().and_then(|claim| claim.facts.verdict.as_ref());
        if said.is_some_and(|said| said.message == *shown(&why)) {
            return Vec::new();
        }
        self.verdict(NO_NODE, &why, None)
    }

    /// Says that another Pod of its shape comes first, and why every node has refused that one, if any has. It is
    /// said once: whatever becomes of the first one, the others still wait.
    pub(super) fn behind(&self, mut why: Vec<String>) -> Vec<Step> {
        if self.is_told {
            return Vec::new();
        }
        if why.is_empty() {
            return self.verdict(NO_NODE, BEHIND, None);
        }
        why.push(BEHIND.to_owned());
        self.no_node(&why)
    }
}
