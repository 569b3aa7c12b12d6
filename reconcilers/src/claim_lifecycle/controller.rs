//! The state that watches and workers share, and the one loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dragoman_machinery::api::Api;
use dragoman_machinery::discovery::Discovery;
use dragoman_machinery::events::{Event, Recorder, Regarding, Severity};
use dragoman_machinery::expectations::{Expectations, PATIENCE, Readiness};
use dragoman_machinery::kind::{Kind, RESOURCE_CLAIM};
use dragoman_machinery::lease::Leadership;
use dragoman_machinery::metrics::MachineryMetrics;
use dragoman_machinery::queue::{MAX_DELAY, SharedQueue};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::rights::Rights;
use dragoman_machinery::watch::{Failure, Journal};
use dragoman_machinery::work::{Reconcile, Verdict};
use dragoman_machinery::write::{Write, Written};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::index::{Index, Kept};
use super::key::{Key, Subject};
use super::metrics::LifecycleMetrics;

/// How often everything is looked at without a reason. A lost event costs this
/// much latency, never correctness; a look without a change costs no request.
pub const LEVEL: Duration = Duration::from_mins(10);

/// What can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Write at all (mode own); else only the index and its metrics live.
    pub own: bool,
    /// Create claims with the delete-protection finalizer: one write less per
    /// life, but a namespace of unscheduled Pods hangs in deletion while we are down.
    pub born_protected: bool,
}

/// What the controller stands on.
#[derive(Clone)]
pub struct Ground {
    /// For requests.
    pub api: Api,
    /// For watches of kinds that come and go.
    pub watch: dragoman_machinery::watch::WatchClient,
    /// Who serves what.
    pub discovery: Discovery,
    /// For Events.
    pub recorder: Recorder,
    /// What we may do.
    pub rights: Arc<Rights>,
    /// Looked at before each write.
    pub leadership: Leadership,
    /// What becomes of the watches.
    pub journal: Journal,
    /// Counters of the machinery.
    pub machinery: MachineryMetrics,
    /// Counters of this controller.
    pub metrics: LifecycleMetrics,
}

/// The controller.
pub struct ClaimLifecycle {
    pub(super) ground: Ground,
    pub(super) options: Options,
    queue: SharedQueue<Key>,
    index: Mutex<Index>,
    expectations: Mutex<Expectations<Key, Kept>>,
    /// We lead: keys are worked on. A standby only keeps its index.
    leads: AtomicBool,
    /// A second full writer was found and said.
    yielded: AtomicBool,
    /// Told when a watch of PodGroups finds them unserved.
    pub(super) groups_lost: Notify,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClaimLifecycle {
    /// A controller with an empty index.
    pub fn new(ground: Ground, queue: SharedQueue<Key>, options: Options) -> Arc<Self> {
        Arc::new(Self {
            ground,
            options,
            queue,
            index: Mutex::default(),
            expectations: Mutex::default(),
            leads: AtomicBool::new(false),
            yielded: AtomicBool::new(false),
            groups_lost: Notify::new(),
        })
    }

    /// Reads the index.
    pub fn read<T>(&self, read: impl FnOnce(&Index) -> T) -> T {
        read(&locked(&self.index))
    }

    /// Changes the index and enqueues what that made dirty.
    pub fn change(&self, kept: Kept, change: impl FnOnce(&mut Index) -> Vec<Key>) {
        let (mut dirty, reached) = {
            let mut index = locked(&self.index);
            (change(&mut index), index.reached(kept))
        };
        dirty.extend(locked(&self.expectations).advanced(kept, reached));
        if self.writes() {
            dirty.into_iter().for_each(|key| self.queue.add(key));
        }
    }

    /// Whether this controller writes: asked to, leading, and no second writer found.
    pub fn writes(&self) -> bool {
        self.options.own && self.leads.load(Ordering::Relaxed) && !self.yielded.load(Ordering::Relaxed)
    }

    /// We lead from `now` (seconds since the epoch): from here on changes are worked
    /// on, and first of all everything that is there.
    pub fn leads_since(&self, now: i64) {
        locked(&self.index).leading_since = Some(now);
        self.leads.store(true, Ordering::Relaxed);
        self.enqueue_all();
    }

    fn enqueue_all(&self) {
        if self.writes() {
            self.read(Index::all_keys).into_iter().for_each(|key| self.queue.add(key));
        }
    }

    /// Whether every index is complete.
    pub fn synced(&self) -> bool {
        self.read(|index| index.missing().is_empty())
    }

    /// Every index in words: sizes, and the objects that stand in the way.
    pub fn dump(&self) -> String {
        let expected = locked(&self.expectations).len();
        self.read(|index| format!("{}keys that wait for the index: {expected}\n", index.dump()))
    }

    /// What is missing for readiness.
    ///
    /// # Errors
    /// Says it.
    pub fn ready(&self) -> Result<(), String> {
        self.ground.rights.check()?;
        let missing = self.read(Index::missing);
        if missing.is_empty() { Ok(()) } else { Err(format!("not yet listed: {}", missing.join(", "))) }
    }

    /// Enqueues everything now and then.
    pub async fn level(self: Arc<Self>) {
        loop {
            sleep(LEVEL).await;
            self.enqueue_all();
        }
    }

    /// PodGroups are not served.
    pub(super) fn groups_unserved(&self) {
        self.change(Kept::Groups, super::index::Index::groups_vanished);
    }

    /// PodGroups are watched in this version from now on.
    pub(super) fn watches_groups(&self, kind: Kind) {
        locked(&self.index).groups_kind = Some(kind);
    }

    /// A list or watch of `kept` failed.
    pub fn watch_failed(&self, kept: Kept, failure: &Failure) {
        match failure {
            Failure::Forbidden(rule) => self.ground.rights.doubt(rule),
            Failure::Unserved if kept == Kept::Groups => {
                // Its consumers are unknown from now on, not gone.
                self.groups_unserved();
                self.groups_lost.notify_one();
            }
            _ => {}
        }
    }

    /// Sends a write of the reconciliation of `key`, if we still lead.
    pub(super) async fn send(&self, key: &Key, kept: Kept, write: &Write) -> Result<Written, Refusal> {
        if !self.ground.leadership.holds() {
            return Err(Refusal::Transient("the lease is not held".to_owned()));
        }
        let outcome = write.send(&self.ground.api, &self.ground.machinery).await;
        match &outcome {
            Ok(written) => self.expect(key, kept, &written.meta.resource_version),
            Err(Refusal::Rbac(rule)) => self.ground.rights.doubt(rule),
            Err(_) => {}
        }
        outcome
    }

    pub(super) fn expect(&self, key: &Key, kept: Kept, version: &str) {
        locked(&self.expectations).expect(key, kept, version, Instant::now());
    }

    /// When to try again what a quota refused.
    pub(super) fn wait_for_quota(&self, key: &Key) -> Duration {
        if locked(&self.index).quota.refused(key) { Duration::from_secs(2) } else { MAX_DELAY }
    }

    pub(super) fn proven_gone(&self, uid: &str) {
        locked(&self.index).proven_gone(uid);
    }

    pub(super) fn quota_passed(&self, key: &Key) {
        locked(&self.index).quota.passed(key);
    }

    pub(super) fn event(
        &self,
        regarding: Regarding,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        let severity = Severity::Warning;
        self.ground.recorder.record(Event { regarding, severity, reason, action, note });
    }

    pub(super) fn regarding(kind: Kind, namespace: &str, name: &str, uid: &str) -> Regarding {
        Regarding { kind, namespace: namespace.into(), name: name.into(), uid: uid.into() }
    }

    /// Stops all writes once a second full writer is proven.
    fn yield_to_second_writer(&self) -> bool {
        if self.yielded.load(Ordering::Relaxed) {
            return true;
        }
        let Some(found) = self.read(|index| index.second_writer.clone()) else { return false };
        self.yielded.store(true, Ordering::Relaxed);
        tracing::error!(
            namespace = found.namespace,
            claim = found.claim,
            "another process creates claims from templates: all lifecycle writes stop until restart"
        );
        let uid =
            self.read(|index| index.claims.get(&found.namespace, &found.claim).map(|r| r.uid.to_string()));
        let regarding =
            Self::regarding(RESOURCE_CLAIM, &found.namespace, &found.claim, &uid.unwrap_or_default());
        let note = "this claim was created from a template by another process while dragoman runs in \
                    mode own; dragoman stops creating, releasing and deleting claims until it is \
                    restarted (is the built-in resourceclaim-controller switched on?)";
        self.event(regarding, "SecondWriter", "StopLifecycleWrites", note.to_owned());
        true
    }
}

impl Reconcile for ClaimLifecycle {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Verdict {
        if !self.options.own || self.yield_to_second_writer() {
            return Verdict::Done;
        }
        let readiness = {
            let index = locked(&self.index);
            let reached = |kept| index.reached(kept);
            locked(&self.expectations).check(key, reached, Instant::now())
        };
        match readiness {
            Readiness::Ready => {}
            Readiness::Overdue => {
                self.ground.metrics.overdue.inc();
            }
            Readiness::Parked => {
                self.ground.metrics.stale_skips.inc();
                return Verdict::After(PATIENCE);
            }
        }
        match key.subject {
            Subject::Claim => self.reconcile_claim(key).await,
            Subject::Pod | Subject::PodGroup => self.reconcile_holder(key).await,
        }
    }
}
