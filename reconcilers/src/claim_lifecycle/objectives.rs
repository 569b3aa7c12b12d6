//! Waiting times that people see: of Pods for their claims, and of claims until the reservation of an ended
//! consumer is removed.
//!
//! Both are measured on the index: in every mode, whichever process writes the objects.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use dragoman_machinery::times;
use dragoman_objects::{self as objects, Name};
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::facts::{ConsumerClaims, PodFacts, Source};

/// Around the objectives of five seconds, in seconds.
const BUCKETS: [f64; 13] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0];

/// Whether a trouble held a Pod up before its claims were published: a wait for a quota or a template is none of
/// Dragoman's, and no tenant can make the objective look missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HeldUp {
    held_up: &'static str,
}

/// A histogram of seconds for each of the two.
#[derive(Debug, Clone)]
pub struct Published(pub Family<HeldUp, Histogram, fn() -> Histogram>);

impl Default for Published {
    fn default() -> Self {
        let family = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        // The first observation is an increase.
        for held_up in ["false", "true"] {
            drop(family.get_or_create(&HeldUp { held_up }));
        }
        Self(family)
    }
}

impl Published {
    fn observe(&self, wait: Wait, now: Timestamp) {
        let held_up = if wait.reason == PENDING { "false" } else { "true" };
        self.0.get_or_create(&HeldUp { held_up }).observe(times::passed(wait.since, now).as_secs_f64());
    }
}

/// A histogram of seconds.
#[derive(Debug, Clone)]
pub struct Waited(pub Histogram);

impl Default for Waited {
    fn default() -> Self {
        Self(Histogram::new(BUCKETS))
    }
}

impl Waited {
    /// Observes the time from `since` to `now`.
    fn observe(&self, since: Timestamp, now: Timestamp) {
        self.0.observe(times::passed(since, now).as_secs_f64());
    }
}

/// The word for a Pod with which no pass has met a trouble.
pub(super) const PENDING: &str = "Pending";
/// The same for a Pod that is in a PodGroup: its claims may be the group's.
pub(super) const GROUP_PENDING: &str = "PodGroupPending";
/// The word for every Pod in a process that makes no passes.
pub(super) const UNJUDGED: &str = "Unjudged";

/// The Pods whose status does not name all their claims from templates yet.
#[derive(Debug, Default)]
pub struct PodWaits {
    /// From the creation of a Pod until its status names its claims.
    pub published: Published,
    pods: HashMap<Name, Wait>,
    /// The same, the oldest of each reason first.
    by_reason: BTreeMap<&'static str, BTreeSet<(Timestamp, Name)>>,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    since: Timestamp,
    reason: &'static str,
}

impl PodWaits {
    /// A Pod was read at `now`.
    pub fn read(&mut self, pod: &objects::Pod, facts: &PodFacts, now: Timestamp) {
        let uid = &pod.metadata.uid;
        let waits = facts.claims.as_deref().is_some_and(waits) && !facts.done();
        if !waits {
            if let Some(wait) = self.forget(uid)
                && !facts.done()
            {
                self.published.observe(wait, now);
            }
            return;
        }
        if !self.pods.contains_key(uid) {
            let since = since(&pod.metadata, now);
            let is_member = facts.claims.as_ref().is_some_and(|claims| claims.group.is_some());
            let reason = if is_member { GROUP_PENDING } else { PENDING };
            self.insert(uid.clone(), Wait { since, reason });
        }
    }

    /// A trouble of a fixed set stands in the way of the Pod with `uid`.
    pub fn blocked(&mut self, uid: &str, reason: &'static str) {
        if self.pods.get(uid).is_some_and(|wait| wait.reason != reason)
            && let Some(wait) = self.forget(uid)
        {
            self.insert(uid.into(), Wait { reason, ..wait });
        }
    }

    /// The Pod with `uid` is gone, or is not readable any more.
    pub fn gone(&mut self, uid: &str) {
        self.forget(uid);
    }

    /// The number of Pods that wait for each reason, and since when the oldest does. A reason for which none
    /// waits is left out.
    pub fn by_reason(&self) -> impl Iterator<Item = (&'static str, usize, Timestamp)> {
        let oldest = |pods: &BTreeSet<(Timestamp, Name)>| pods.first().map(|(since, _)| *since);
        self.by_reason.iter().filter_map(move |(reason, pods)| Some((*reason, pods.len(), oldest(pods)?)))
    }

    fn insert(&mut self, uid: Name, wait: Wait) {
        self.by_reason.entry(wait.reason).or_default().insert((wait.since, uid.clone()));
        self.pods.insert(uid, wait);
    }

    fn forget(&mut self, uid: &str) -> Option<Wait> {
        let (uid, wait) = self.pods.remove_entry(uid)?;
        let same = self.by_reason.get_mut(wait.reason)?;
        same.remove(&(wait.since, uid));
        if same.is_empty() {
            self.by_reason.remove(wait.reason);
        }
        Some(wait)
    }
}

/// Whether an entry with a template has nothing in the status yet.
fn waits(claims: &ConsumerClaims) -> bool {
    let from_template = claims.entries.iter().filter(|entry| matches!(entry.source, Source::Template(_)));
    if from_template.clone().count() > claims.published.len() {
        return true;
    }
    let published: HashSet<&Name> = claims.published.iter().map(|published| &published.entry).collect();
    from_template.into_iter().any(|entry| !published.contains(&entry.name))
}

/// When a Pod that is read at `now` began to wait. `metadata.creationTimestamp` has whole seconds, so
/// that a Pod may be a second younger than it says: it is not older than its first event.
fn since(meta: &objects::Meta, now: Timestamp) -> Timestamp {
    let created = meta.creation_timestamp.as_deref().and_then(|text| text.parse().ok());
    created.map_or(now, |created| now.min(times::after(created, Duration::from_secs(1))))
}

/// When consumers of claims were seen to end; the oldest are forgotten.
#[derive(Debug, Default)]
pub struct Ends {
    /// From the end of a consumer until a claim is not reserved for it any more.
    pub released: Waited,
    at: HashMap<Name, Timestamp>,
    order: VecDeque<Name>,
}

/// As many as the evidence keeps of those that are gone.
const ENDS: usize = 32_768;

impl Ends {
    /// The consumer with `uid` was seen at `now` to have ended. Only the first time counts.
    pub fn ended(&mut self, uid: &Name, now: Timestamp) {
        if self.at.contains_key(uid) {
            return;
        }
        self.at.insert(uid.clone(), now);
        self.order.push_back(uid.clone());
        if self.order.len() > ENDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.at.remove(&oldest);
        }
    }

    /// A claim is not reserved any more for the consumer with `uid`.
    pub fn released(&self, uid: &str, now: Timestamp) {
        if let Some(at) = self.at.get(uid) {
            self.released.observe(*at, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Pod created at 10:00:00 with two entries, of which the status names some.
    fn pod(uid: &str, phase: &str, published: &[&str]) -> objects::Pod {
        let statuses: Vec<_> = published
            .iter()
            .map(|name| serde_json::json!({"name": name, "resourceClaimName": "c"}))
            .collect();
        let entry = |name| serde_json::json!({"name": name, "resourceClaimTemplateName": "t"});
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "n", "uid": uid,
                "creationTimestamp": "2026-01-01T10:00:00Z"},
            "spec": {"resourceClaims": [entry("a"), entry("b")]},
            "status": {"phase": phase, "resourceClaimStatuses": statuses},
        }))
        .expect("a Pod")
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn read(waits: &mut PodWaits, pod: &objects::Pod, now: Timestamp) {
        waits.read(pod, &PodFacts::from(pod), now);
    }

    /// The lines of a histogram that are not zero.
    fn observed(histogram: impl prometheus_client::registry::Metric) -> Vec<String> {
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register("waited", "Seconds", histogram);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("encodes");
        let lines = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.ends_with(" 0") && !line.ends_with(" 0.0"));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn a_pod_waits_until_its_status_names_every_claim() {
        let mut waits = PodWaits::default();
        let now = at("2026-01-01T10:00:07.5Z");
        read(&mut waits, &pod("1", "Pending", &[]), now);
        read(&mut waits, &pod("1", "Pending", &["a"]), now + Duration::from_millis(100));
        // It may have been created at the end of the first second.
        let since = at("2026-01-01T10:00:01Z");
        assert_eq!(waits.by_reason().collect::<Vec<_>>(), [(PENDING, 1, since)]);
        waits.blocked("1", "TemplateNotFound");
        assert_eq!(waits.by_reason().collect::<Vec<_>>(), [("TemplateNotFound", 1, since)]);
        read(&mut waits, &pod("1", "Pending", &["b", "a"]), now + Duration::from_millis(500));
        assert_eq!(waits.by_reason().count(), 0);
        assert!(observed(waits.published.0).contains(&"waited_sum{held_up=\"true\"} 7.0".to_owned()));
    }

    #[test]
    fn a_pod_that_ends_without_its_claims_was_not_served() {
        let mut waits = PodWaits::default();
        let now = at("2026-01-01T10:00:07Z");
        read(&mut waits, &pod("1", "Pending", &[]), now);
        read(&mut waits, &pod("2", "Pending", &[]), now);
        read(&mut waits, &pod("1", "Failed", &[]), now);
        waits.gone("2");
        // What is gone already cannot be blocked.
        waits.blocked("2", "TemplateNotFound");
        assert_eq!(waits.by_reason().count(), 0);
        assert_eq!(observed(waits.published.0), Vec::<String>::new());
    }

    #[test]
    fn a_release_is_measured_from_the_first_sight_of_the_end() {
        let mut ends = Ends::default();
        let now = at("2026-01-01T10:00:00Z");
        ends.ended(&"1".into(), now);
        ends.ended(&"1".into(), now + Duration::from_secs(1));
        ends.released("1", now + Duration::from_secs(3));
        ends.released("2", now + Duration::from_secs(3));
        assert!(observed(ends.released.0.clone()).contains(&"waited_sum 3.0".to_owned()));
        (0..ENDS).for_each(|n| ends.ended(&format!("other-{n}").into(), now));
        assert_eq!((ends.at.len(), ends.order.len()), (ENDS, ENDS));
    }
}
