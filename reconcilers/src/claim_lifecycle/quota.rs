//! Waiting for a `ResourceQuota` to have room again.
//!
//! A quota refuses by namespace, and one that counts devices by DeviceClass as well, so that claims
//! of one template are refused alike. Keys whose creation was refused wait in a list of their
//! namespace, oldest first. Few of them try at a time, in rounds:
//! - After a refusal one key tries, later each time.
//! - A claim that goes leaves a place, and as many keys try as places are known. The quota is counted
//!   anew within seconds, so they do not try at once.
//! - Room that no claim has left (the quota was raised) is found by the one key, and used by two, four and
//!   so on, until one is refused.
//!
//! Templates may ask for different classes, each with a quota of its own. After a refusal the oldest key of another template tries,
//! eight of them without a pause, until each template was refused: a place of one class is not offered to another one for ever.
//!
//! A key whose template has waiting keys joins them without a try. A tenant with a full quota thus
//! costs one request a minute, however many Pods wait, and at most two for a place that is freed, where all ask for the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use dragoman_machinery::backoff::Backoff;
use dragoman_objects::Name;
use tokio::time::Instant;

use super::key::Key;

/// Waits between two tries of a namespace, for room that no claim has left.
const WAITS: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_mins(1));
/// Time after which a quota has counted that a claim went.
const COUNTED: Duration = Duration::from_secs(2);
/// A round whose keys have not all answered by then is over: their Pods fail for another reason.
const PATIENCE: Duration = Duration::from_mins(1);
/// So many other templates are tried after a refusal, then there is a pause.
const PROBES: usize = 8;
/// Templates with waiting keys in one namespace from which on every template counts as refused.
const TEMPLATES: usize = 16;
/// Refused creations in the whole cluster: the time that each one takes, with a burst.
const EACH: Duration = Duration::from_millis(100);
const BURST: Duration = Duration::from_secs(10);
/// The longest text of a refusal that is kept.
const WHY: usize = 512;

/// Whether a key may try to create a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Try {
    /// Now.
    Now,
    /// After this time.
    After(Duration),
    /// When its turn comes; the text is the last refusal.
    Wait(Arc<str>),
}

/// Outcome of the creations of a key in one pass. All defaults: the key waits for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreationOutcome {
    /// Number of claims that were created.
    pub created: usize,
    /// The templates whose claims wait, each with the refusal if a quota refused one in this pass.
    pub waits: BTreeMap<Name, Option<String>>,
}

/// The keys that wait for quotas, by namespace.
#[derive(Debug, Default)]
pub struct QuotaWaits {
    namespaces: HashMap<Arc<str>, Waiting>,
    /// When the bucket of refused creations will be full again.
    spent_until: Option<Instant>,
}

/// The waiting keys of a namespace.
#[derive(Debug)]
struct Waiting {
    /// By age: the number of the first refusal.
    by_age: BTreeMap<u64, Key>,
    /// The age of each key, and the templates that it waits for.
    keys: HashMap<Key, (u64, BTreeSet<Name>)>,
    /// Number of keys that wait for each template.
    templates: HashMap<Name, usize>,
    /// The templates whose last try was refused.
    failed: BTreeSet<Name>,
    /// Those that were refused since a claim went, or since all were.
    passed_over: BTreeSet<Name>,
    /// Number of templates that were refused one after the other without a pause.
    probes: usize,
    next_age: u64,
    why: Arc<str>,
    round: Round,
    /// Places that were left since the last success.
    places: usize,
    /// A round was refused although a place had been left.
    missed: bool,
    /// Pauses since the last success that no freed place has cut short. Each doubles the next.
    waits: u32,
}

/// The keys that may try.
#[derive(Debug, Default)]
struct Round {
    keys: BTreeSet<Key>,
    /// From then on.
    opens: Option<Instant>,
    /// Number of keys in the round that try without a known place.
    guessed: usize,
    /// Whether it has as many keys as places were left.
    known: bool,
    succeeded: usize,
    refused: usize,
}

impl QuotaWaits {
    /// Whether `key` may try to create a claim of `template`.
    pub fn may_try(&self, key: &Key, template: &str, now: Instant) -> Try {
        let Some(waiting) = self.namespaces.get(&key.namespace) else { return Try::Now };
        if waiting.round.keys.contains(key) {
            let opens = waiting.round.opens.unwrap_or(now);
            let wait = opens.saturating_duration_since(now);
            return if wait.is_zero() { Try::Now } else { Try::After(wait) };
        }
        let is_refused = waiting.templates.contains_key(template) || waiting.templates.len() >= TEMPLATES;
        if is_refused { Try::Wait(Arc::clone(&waiting.why)) } else { Try::Now }
    }

    /// Takes in what became of the creations of `key`. Returns the keys whose turn has come: they
    /// ask [`QuotaWaits::may_try`] when.
    pub fn note(&mut self, key: &Key, outcome: CreationOutcome, now: Instant) -> Vec<Key> {
        if outcome.waits.is_empty() && !self.namespaces.contains_key(&key.namespace) {
            return Vec::new();
        }
        let refusals = outcome.waits.values().flatten().count();
        if refusals > 0 {
            let spent = EACH * u32::try_from(refusals).unwrap_or(1);
            self.spent_until = Some(self.spent_until.map_or(now, |until| until.max(now)) + spent);
        }
        let throttled = self.throttled();
        let namespace = Arc::clone(&key.namespace);
        let waiting = self.namespaces.entry(namespace).or_insert_with(Waiting::new);
        waiting.places = waiting.places.saturating_sub(outcome.created);
        if waiting.round.keys.remove(key) {
            match (refusals, outcome.created) {
                (0, 0) => {}
                (0, _) => waiting.round.succeeded += 1,
                _ => waiting.round.refused += 1,
            }
        }
        if let Some(why) = outcome.waits.values().flatten().next() {
            waiting.why = why.chars().take(WHY).collect::<String>().into();
        }
        waiting.learn(key, &outcome.waits);
        waiting.waits_for(key, outcome.waits.into_keys().collect());
        let turn = waiting.turn(now, throttled);
        if waiting.keys.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
        turn
    }

    /// A claim of `namespace` went. Returns the keys whose turn comes sooner now.
    pub fn claim_went(&mut self, namespace: &str, now: Instant) -> Vec<Key> {
        let throttled = self.throttled();
        let Some(waiting) = self.namespaces.get_mut(namespace) else { return Vec::new() };
        waiting.places += 1;
        waiting.missed = false;
        waiting.passed_over.clear();
        waiting.round.known = true;
        if waiting.round.opens <= Some(now + COUNTED) {
            return waiting.turn(now, throttled);
        }
        waiting.round.opens = Some(now + COUNTED).max(throttled);
        waiting.round.keys.iter().cloned().collect()
    }

    /// Returns the time before which no key tries, because too many were refused.
    fn throttled(&self) -> Option<Instant> {
        self.spent_until?.checked_sub(BURST)
    }

    /// Counts the waiting keys.
    pub fn len(&self) -> usize {
        self.namespaces.values().map(|waiting| waiting.keys.len()).sum()
    }

    /// Whether no key waits.
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }
}

impl Waiting {
    fn new() -> Self {
        Self {
            by_age: BTreeMap::new(),
            keys: HashMap::new(),
            templates: HashMap::new(),
            failed: BTreeSet::new(),
            passed_over: BTreeSet::new(),
            probes: 0,
            next_age: 0,
            why: "".into(),
            round: Round::default(),
            places: 0,
            missed: false,
            waits: 0,
        }
    }

    /// Takes in for which templates a key was refused, and for which not.
    fn learn(&mut self, key: &Key, waits: &BTreeMap<Name, Option<String>>) {
        let before = self.keys.get(key).map(|(_, templates)| templates.clone()).unwrap_or_default();
        for template in before.iter().filter(|template| !waits.contains_key(*template)) {
            self.failed.remove(template);
            self.passed_over.remove(template);
        }
        for (template, _) in waits.iter().filter(|(_, refusal)| refusal.is_some()) {
            self.failed.insert(template.clone());
            self.passed_over.insert(template.clone());
        }
    }

    /// Whether a key waits for none of the templates that were refused since a claim went.
    fn has_untried(&self) -> bool {
        let is_untried = |(_, templates): &(u64, BTreeSet<Name>)| templates.is_disjoint(&self.passed_over);
        self.templates.len() > 1 && self.keys.values().any(is_untried)
    }

    /// The keys that try next, at most so many: the oldest, and of a template that was refused the last time one.
    fn next(&self, size: usize) -> BTreeSet<Key> {
        if self.templates.len() < 2 {
            return self.by_age.values().take(size).cloned().collect();
        }
        let mut probed = BTreeSet::new();
        let may_try = |key: &&Key| {
            let Some((_, templates)) = self.keys.get(*key) else { return false };
            let mut failed = templates.intersection(&self.failed);
            templates.is_disjoint(&self.passed_over) && failed.all(|template| probed.insert(template))
        };
        self.by_age.values().filter(may_try).take(size).cloned().collect()
    }

    /// The key waits for these templates, and keeps its age if it waited before.
    fn waits_for(&mut self, key: &Key, templates: BTreeSet<Name>) {
        for template in &templates {
            *self.templates.entry(template.clone()).or_default() += 1;
        }
        let before = if templates.is_empty() {
            self.keys.remove(key)
        } else {
            let age = self.keys.get(key).map_or(self.next_age, |(age, _)| *age);
            self.keys.insert(key.clone(), (age, templates))
        };
        match before {
            Some((age, before)) => {
                before.iter().for_each(|template| forget(&mut self.templates, template));
                if !self.keys.contains_key(key) {
                    self.by_age.remove(&age);
                }
            }
            None if self.keys.contains_key(key) => {
                self.by_age.insert(self.next_age, key.clone());
                self.next_age += 1;
            }
            None => {}
        }
        let templates = &self.templates;
        self.failed.retain(|template| templates.contains_key(template));
        self.passed_over.retain(|template| templates.contains_key(template));
    }

    /// Begins the next round if the last one is over. Returns its keys.
    fn turn(&mut self, now: Instant, throttled: Option<Instant>) -> Vec<Key> {
        let is_under_way = self.round.opens.is_some_and(|opens| now < opens + PATIENCE);
        if !self.round.keys.is_empty() && is_under_way {
            return Vec::new();
        }
        let Round { succeeded, refused, guessed, known, .. } = self.round;
        let full = succeeded > 0 && refused == 0;
        if succeeded > 0 {
            self.waits = 0;
        }
        let has_untried = self.has_untried();
        if !has_untried {
            self.passed_over.clear();
        }
        let is_for_others = refused > 0 && has_untried && self.probes < PROBES;
        self.probes = if is_for_others { self.probes + 1 } else { 0 };
        if refused > 0 && succeeded == 0 && !is_for_others && std::mem::replace(&mut self.missed, true) {
            // It is not that the quota was counted late: whatever went, it left no room.
            self.places = 0;
        }
        self.missed &= succeeded == 0;
        let (opens, guessed) = if full && self.places > 0 {
            (now, 0)
        } else if full && !known {
            // There was room that no claim had left: there may be more of it.
            (now, (2 * guessed).max(1))
        } else if self.places > 0 {
            (if is_for_others { now } else { now + COUNTED }, 0)
        } else {
            let opens = now + self.jittered();
            self.waits = self.waits.saturating_add(1);
            (opens, 0)
        };
        let (known, size) = (self.places > 0, self.places.max(guessed).max(1));
        let keys = self.next(size);
        self.round =
            Round { keys, opens: Some(opens).max(throttled), guessed, known, succeeded: 0, refused: 0 };
        self.round.keys.iter().cloned().collect()
    }

    /// Between three quarters and all of the delay, so that namespaces do not try in step. The same
    /// history gives the same numbers.
    fn jittered(&self) -> Duration {
        let mut hasher = DefaultHasher::new();
        let delay = WAITS.pause(self.waits);
        (self.by_age.values().next(), self.next_age, delay).hash(&mut hasher);
        let part = u32::try_from(hasher.finish() % 1024).unwrap_or_default();
        delay.saturating_sub(delay / 4 * part / 1024)
    }
}

/// Counts a key less for a template.
fn forget(templates: &mut HashMap<Name, usize>, template: &str) {
    if let Some(count) = templates.get_mut(template) {
        *count -= 1;
        if *count == 0 {
            templates.remove(template);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::super::key::Subject;
    use super::*;

    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// So many milliseconds after the beginning.
    fn at(millis: u64) -> Instant {
        *BEGAN + Duration::from_millis(millis)
    }

    /// The outcome of a pass whose claim waits, after a refusal or without a try.
    fn waits(refusal: Option<&str>) -> CreationOutcome {
        CreationOutcome { created: 0, waits: [("one".into(), refusal.map(str::to_owned))].into() }
    }

    /// A namespace whose quota counts with a lag, and Pods that try when their turn comes.
    struct Namespace {
        waits: QuotaWaits,
        /// Places that the quota has, and those that it will have once it is counted anew.
        room: usize,
        freed: Vec<u64>,
        /// Keys with the time of their next pass.
        due: BTreeMap<(u64, u64), Key>,
        passes: u64,
        tries: usize,
        refused: usize,
        created: Vec<String>,
        /// In milliseconds since the test began.
        now: u64,
    }

    const LAG: u64 = 1_500;

    impl Namespace {
        fn new(room: usize) -> Self {
            Self {
                waits: QuotaWaits::default(),
                room,
                freed: Vec::new(),
                due: BTreeMap::new(),
                passes: 0,
                tries: 0,
                refused: 0,
                created: Vec::new(),
                now: 0,
            }
        }

        fn wake(&mut self, keys: Vec<Key>, at: u64) {
            for key in keys {
                self.due.retain(|_, waiting| *waiting != key);
                self.passes += 1;
                self.due.insert((at, self.passes), key);
            }
        }

        fn pod(&mut self, name: &str) {
            self.wake(vec![Key::new(Subject::Pod, "ns", name)], self.now);
        }

        fn frees(&mut self) {
            self.freed.push(self.now + LAG);
            let keys = self.waits.claim_went("ns", at(self.now));
            self.wake(keys, self.now);
        }

        fn pass(&mut self, key: &Key) {
            let outcome = match self.waits.may_try(key, "one", at(self.now)) {
                Try::After(wait) => {
                    let at = self.now + 1 + u64::try_from(wait.as_millis()).expect("short");
                    return self.wake(vec![key.clone()], at);
                }
                Try::Wait(_) => waits(None),
                Try::Now => {
                    self.tries += 1;
                    if self.room > 0 {
                        self.room -= 1;
                        self.created.push(key.name.to_string());
                        CreationOutcome { created: 1, ..CreationOutcome::default() }
                    } else {
                        self.refused += 1;
                        waits(Some("exceeded quota"))
                    }
                }
            };
            let keys = self.waits.note(key, outcome, at(self.now));
            self.wake(keys, self.now);
        }

        /// Lets time pass.
        fn until(&mut self, end: u64) {
            while let Some(((at, pass), key)) = self.due.pop_first() {
                if at > end {
                    self.due.insert((at, pass), key);
                    break;
                }
                self.now = self.now.max(at);
                let counted = self.freed.iter().filter(|at| **at <= self.now).count();
                self.freed.retain(|at| *at > self.now);
                self.room += counted;
                self.pass(&key);
            }
            self.now = end;
        }
    }

    #[test]
    fn a_full_quota_costs_a_request_a_minute() {
        let mut ns = Namespace::new(10);
        (0..600).for_each(|n| ns.pod(&format!("{n:03}")));
        ns.until(1_000);
        assert_eq!((ns.created.len(), ns.waits.len()), (10, 590));
        assert_eq!(ns.refused, 1, "a refusal counts for all that come later");
        let before = ns.tries;
        ns.until(3_601_000);
        assert!((55..=90).contains(&(ns.tries - before)), "{} tries in an hour", ns.tries - before);
    }

    #[test]
    fn a_freed_place_costs_at_most_two_tries_and_the_oldest_goes_first() {
        let mut ns = Namespace::new(10);
        (0..600).for_each(|n| ns.pod(&format!("{n:03}")));
        ns.until(60_000);
        let (tries, created) = (ns.tries, ns.created.len());
        for second in 0..50 {
            ns.frees();
            ns.until(60_000 + (second + 1) * 1_200);
        }
        ns.until(180_000);
        assert_eq!(ns.created.len() - created, 50, "no place stays empty");
        let tries = ns.tries - tries;
        assert!(tries <= 100, "{tries} tries for 50 places");
        assert!(ns.created.is_sorted(), "{:?}", ns.created);
    }

    #[test]
    fn a_quota_that_is_raised_is_used_within_a_minute() {
        let mut ns = Namespace::new(0);
        (0..600).for_each(|n| ns.pod(&format!("{n:03}")));
        ns.until(600_000);
        ns.room = 1_000;
        let refused = ns.refused;
        ns.until(665_000);
        assert_eq!((ns.created.len(), ns.refused - refused), (600, 0));
        assert!(ns.waits.is_empty(), "nothing is kept of a namespace where nobody waits");
    }

    #[test]
    fn a_key_that_is_gone_or_fails_otherwise_hands_its_turn_on() {
        let mut quota = QuotaWaits::default();
        let key = |name: &str| Key::new(Subject::Pod, "ns", name);
        assert_eq!(quota.note(&key("a"), waits(Some("full")), at(0)), [key("a")]);
        assert_eq!(quota.may_try(&key("b"), "one", at(0)), Try::Wait("full".into()));
        assert_eq!(quota.may_try(&key("b"), "two", at(0)), Try::Now, "another template may have room");
        assert!(quota.note(&key("b"), waits(None), at(0)).is_empty());
        assert_eq!(quota.note(&key("a"), CreationOutcome::default(), at(10)), [key("b")]);
        assert!(quota.note(&key("c"), waits(None), at(10)).is_empty());
        assert_eq!(quota.note(&key("b"), CreationOutcome::default(), at(20)), [key("c")]);
        // A key that does not answer keeps its turn for a minute.
        assert!(quota.note(&key("d"), waits(None), at(30)).is_empty());
        assert_eq!(quota.note(&key("e"), waits(None), at(200_000)), [key("c")]);
    }

    #[test]
    fn a_pod_with_several_claims_keeps_its_age_until_it_has_all() {
        let mut quota = QuotaWaits::default();
        let key = |name: &str| Key::new(Subject::Pod, "ns", name);
        quota.note(&key("a"), waits(Some("full")), at(0));
        quota.note(&key("b"), waits(None), at(0));
        // One of its two claims was created, the other refused: the round has failed.
        assert_eq!(
            quota.note(&key("a"), CreationOutcome { created: 1, ..waits(Some("full")) }, at(5_000)),
            [key("a")]
        );
        assert_eq!(
            quota.note(&key("a"), CreationOutcome { created: 1, ..CreationOutcome::default() }, at(9_000)),
            [key("b")]
        );
    }

    #[test]
    fn a_place_of_one_class_is_not_kept_for_pods_of_another() {
        let mut quota = QuotaWaits::default();
        let key = |name: &str| Key::new(Subject::Pod, "ns", name);
        let of = |template: &str, refusal: Option<&str>| CreationOutcome {
            created: 0,
            waits: [(template.into(), refusal.map(str::to_owned))].into(),
        };
        let created = || CreationOutcome { created: 1, ..CreationOutcome::default() };
        quota.note(&key("a0"), of("a", Some("full of a")), at(0));
        for name in ["a1", "a2", "a3"] {
            quota.note(&key(name), of("a", None), at(0));
        }
        quota.note(&key("b0"), of("b", Some("full of b")), at(0));
        quota.note(&key("b1"), of("b", None), at(0));
        // Two claims of class b go. The oldest key tries, then the oldest of the other template, without a delay.
        quota.claim_went("ns", at(20_000));
        quota.claim_went("ns", at(20_000));
        assert_eq!(quota.note(&key("a0"), of("a", Some("full of a")), at(22_000)), [key("b0")]);
        assert_eq!(quota.may_try(&key("b0"), "b", at(22_000)), Try::Now);
        assert_eq!(quota.note(&key("b0"), created(), at(22_100)), [key("b1")], "there is another place");
        // There is no place more: the round after that is a later one, and begins with the oldest key.
        assert_eq!(quota.note(&key("b1"), created(), at(22_200)), [key("a0")]);
        assert!(matches!(quota.may_try(&key("a0"), "a", at(22_200)), Try::After(_)));
        // Both are raised: every key comes in turn.
        quota.note(&key("b2"), of("b", Some("full of b")), at(30_000));
        let mut turn = vec![key("a0")];
        let mut done = BTreeSet::new();
        for step in 0..20 {
            let now = 100_000 + step * 100_000;
            for key in std::mem::take(&mut turn) {
                turn.extend(quota.note(&key, created(), at(now)));
                done.insert(key);
            }
        }
        assert_eq!(done, ["a0", "a1", "a2", "a3", "b2"].map(key).into());
        assert!(quota.is_empty());
    }

    #[test]
    fn templates_that_are_all_refused_cost_few_tries() {
        let mut quota = QuotaWaits::default();
        let key = |name: &str| Key::new(Subject::Pod, "ns", name);
        let refused = |templates: &[&str]| CreationOutcome {
            created: 0,
            waits: templates.iter().map(|name| ((*name).into(), Some("full".to_owned()))).collect(),
        };
        quota.note(&key("a0"), refused(&["a"]), at(0));
        quota.note(&key("ab"), refused(&["a", "b"]), at(0));
        quota.claim_went("ns", at(20_000));
        // No key waits for b alone: the next try is a later one.
        assert_eq!(quota.note(&key("a0"), refused(&["a"]), at(22_000)), [key("a0")]);
        assert!(matches!(quota.may_try(&key("a0"), "a", at(22_000)), Try::After(_)));
        // A Pod for each template: some are tried at once, then there is a pause.
        let mut quota = QuotaWaits::default();
        for number in 0..100 {
            let name = format!("t{number:02}");
            quota.note(&key(&name), refused(&[&name]), at(0));
        }
        quota.claim_went("ns", at(200_000));
        let (mut turn, mut tries) = (vec![key("t00")], 0);
        while let [next] = &*turn.clone() {
            if quota.may_try(next, &next.name, at(202_000)) != Try::Now {
                break;
            }
            tries += 1;
            turn = quota.note(next, refused(&[&next.name]), at(202_000));
        }
        assert!((2..=2 * (PROBES + 1)).contains(&tries), "{tries}");
    }

    #[test]
    fn many_namespaces_share_one_bucket_of_refusals() {
        let mut quota = QuotaWaits::default();
        let key = |n: usize| Key::new(Subject::Pod, format!("ns-{n}"), "pod");
        for n in 0..1_000 {
            quota.note(&key(n), waits(Some("")), at(0));
        }
        let wait = |n| match quota.may_try(&key(n), "one", at(0)) {
            Try::After(wait) => wait.as_secs(),
            other => panic!("{other:?}"),
        };
        assert!(wait(0) <= 10);
        // A thousand refusals at ten a second, less the burst.
        assert_eq!(wait(999), 90);
    }
}
