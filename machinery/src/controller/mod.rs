//! The controller kit: everything of a controller but its index, its plan and its rights.
//!
//! The way of a change: a watch puts it into the [`Index`] through [`Keeps`], the keys that it makes
//! dirty go into the queue, a worker takes a key, waits until the index holds the key's own writes
//! ([`Expectations`]) and calls [`Reconcile::reconcile`], which takes a snapshot, plans and sends.
//! CONTRIBUTING.md ("Add a controller") leads through it; tests/toy/mod.rs is the smallest one.

mod embedded;
mod failure;
mod feed;
mod index;
mod key;
mod links;
mod pass;
mod running;
mod shared;
mod work;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::api::Api;
use crate::discovery::Discovery;
use crate::events::{Event, Recorder, Regarding, Severity};
use crate::expectations::{Expectations, Readiness};
use crate::kind::Kind;
use crate::lease::Leadership;
use crate::metrics::{ControllerMetrics, MachineryMetrics};
use crate::queue::SharedQueue;
use crate::refusal::Refusal;
use crate::rights::Rights;
use crate::trace;
use crate::watch::Journal;
use crate::write::{Write, Written};

pub use embedded::Embedded;
pub use failure::Failure;
pub use index::{Fed, Index, Keeps, Left, Place};
pub use key::ObjectKey;
pub use links::Links;
pub use pass::{Answer, LiveRead, Next, Pass, ReadBy};
pub use running::{Assembly, ControllerSpec, LEVEL, Process, Running, Setting, Start};
pub use shared::{Holds, Shared, Whole};
pub use work::{Outcome, Reconcile};

/// Clients and state of the process that all its controllers share. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// For requests.
    pub api: Api,
    /// The namespace of the process itself.
    pub namespace: Arc<str>,
    /// Tells which kinds are served.
    pub discovery: Discovery,
    /// For Events.
    pub recorder: Recorder,
    /// The rights of the process.
    pub rights: Arc<Rights>,
    /// Looked at before each write.
    pub leadership: Leadership,
    /// Counters of the machinery.
    pub machinery: MachineryMetrics,
    /// Journal of the watches of the process.
    pub journal: Journal,
}

/// The state of one controller that its watches and workers share.
pub struct Controller<I: Index> {
    /// Context of the process.
    pub context: Context,
    metrics: ControllerMetrics,
    queue: SharedQueue<I::Key>,
    shared: Arc<Shared<I::Whole>>,
    expectations: Mutex<Expectations<I::Key, Kind>>,
    /// Whether keys are worked on. A standby keeps its index only.
    works: AtomicBool,
    warnings: work::Warnings,
    /// Permits for the reads of passes: reads of one tenant's keys leave room for the writes of others.
    reads: Semaphore,
}

/// The reads of all passes of a controller that are in flight at once.
const READS_IN_FLIGHT: usize = 16;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<I: Index> Controller<I> {
    /// A controller that does not work yet, whose index is a part of `shared`, and that will have so many workers.
    fn new(
        context: Context,
        metrics: ControllerMetrics,
        workers: usize,
        shared: Arc<Shared<I::Whole>>,
    ) -> Arc<Self> {
        let controller = Arc::new(Self {
            context,
            queue: SharedQueue::new(workers, metrics.queue.clone()),
            metrics,
            shared,
            expectations: Mutex::default(),
            works: AtomicBool::new(false),
            warnings: work::Warnings::default(),
            reads: Semaphore::new(READS_IN_FLIGHT),
        });
        controller.shared.wakes(&controller);
        controller
    }

    /// Returns the name of the controller, as in metrics and the dump.
    pub fn name(&self) -> &'static str {
        self.metrics.controller()
    }

    /// Reads the index.
    pub fn read<T>(&self, read: impl FnOnce(&I) -> T) -> T {
        self.read_all(|whole| read(whole.part()))
    }

    /// Reads the index and those beside it, at one moment.
    pub fn read_all<T>(&self, read: impl FnOnce(&I::Whole) -> T) -> T {
        self.shared.read(read)
    }

    /// Changes what the index knows beside its objects.
    pub fn update<T>(&self, update: impl FnOnce(&mut I) -> T) -> T {
        self.update_all(|whole| update(whole.part_mut()))
    }

    /// Changes what the index and those beside it know beside their objects.
    pub fn update_all<T>(&self, update: impl FnOnce(&mut I::Whole) -> T) -> T {
        self.shared.update(update)
    }

    /// Has another controller of the process look at an object, if that controller runs.
    pub fn wake(&self, controller: &'static str, object: ObjectKey) {
        self.shared.wake(vec![(controller, object)]);
    }

    /// The index was changed: enqueues what that made dirty, and the keys that waited for the version that it has reached.
    fn settled(&self, reached: Option<(Kind, u64)>, mut dirty: Vec<I::Key>) {
        if let Some((kind, reached)) = reached {
            dirty.extend(locked(&self.expectations).advanced(kind, reached));
        }
        self.enqueue(dirty);
    }

    /// Wants these keys worked on, if this process works on keys.
    pub fn enqueue(&self, keys: Vec<I::Key>) {
        if self.works() {
            self.queue.add_all(keys);
        }
    }

    /// Wants everything worked on.
    pub fn enqueue_all(&self) {
        if self.works() {
            self.queue.add_all(self.read(I::all_keys));
        }
    }

    /// Whether keys are worked on.
    pub fn works(&self) -> bool {
        self.works.load(Ordering::Relaxed)
    }

    /// Keys are worked on from now on, and first of all everything that is there.
    fn begin(&self) {
        self.works.store(true, Ordering::Relaxed);
        self.enqueue_all();
    }

    /// No key is worked on any more.
    pub fn cease(&self) {
        self.works.store(false, Ordering::Relaxed);
    }

    /// The plurals of the kinds that have not been listed completely.
    fn missing(&self) -> Vec<&'static str> {
        self.read(I::missing)
    }

    /// Whether the index holds every write of `key`; if not, the key comes back when it does.
    fn readiness(&self, key: &I::Key) -> Readiness {
        let readiness = self.read(|index| {
            let reached = |kind| index.store_of(kind).map_or(u64::MAX, |(_, store)| store.reached());
            locked(&self.expectations).check(key, reached, Instant::now())
        });
        match readiness {
            Readiness::Ready => {}
            Readiness::Parked => {
                self.metrics.stale_skips.inc();
            }
            Readiness::Overdue => {
                self.metrics.stale_overdue.inc();
            }
        }
        readiness
    }

    /// Sends a write of the reconciliation of `key`, if the lease is held. Where the index keeps the
    /// kind, the key waits until the index has seen the write.
    ///
    /// # Errors
    /// A [`Refusal`]; after one that is transient the write may have happened.
    pub async fn send(&self, key: &I::Key, write: &Write) -> Result<Written, Refusal> {
        if !self.context.leadership.holds() {
            return Err(Refusal::Transient("the lease is not held".to_owned()));
        }
        trace::requested();
        let outcome = write.send(&self.context.api, &self.context.machinery).await;
        match &outcome {
            Ok(written) if !write.dry_run => self.expect(key, write.kind, &written.meta.resource_version),
            Err(Refusal::Rbac(rule)) => self.context.rights.doubt(rule),
            Ok(_) | Err(_) => {}
        }
        outcome
    }

    /// Carries out a plan of at most one write.
    pub async fn send_one(&self, key: &I::Key, write: Option<Write>) -> Outcome {
        let Some(write) = write else { return Outcome::Done };
        match self.send(key, &write).await {
            Ok(_) => Outcome::Done,
            Err(refusal) => Outcome::Failed(refusal.into()),
        }
    }

    /// `key` waits until the index has reached `version` of a kind that it keeps.
    pub fn expect(&self, key: &I::Key, kind: Kind, version: &str) {
        if let Some(kind) = self.read(|index| index.store_of(kind).map(|(kind, _)| kind)) {
            locked(&self.expectations).expect(key, kind, version, Instant::now());
        }
    }

    /// Records a warning about an object.
    pub fn warn(&self, regarding: Regarding, reason: &'static str, action: &'static str, note: String) {
        let severity = Severity::Warning;
        self.context.recorder.record(Event { regarding, severity, reason, action, note });
    }

    /// Forgets what only keys remember that nothing will ever wake again.
    fn sweep(&self) {
        locked(&self.expectations).sweep(Instant::now());
    }

    /// Records a warning that is for the engineer of the cluster: complaints about objects do not
    /// crowd it out.
    pub fn alarm(&self, regarding: Regarding, reason: &'static str, action: &'static str, note: String) {
        let severity = Severity::Warning;
        self.context.recorder.alarm(Event { regarding, severity, reason, action, note });
    }

    /// The index in words, and what is remembered beside it.
    fn dump(&self, remembered: Vec<String>) -> String {
        let expected = locked(&self.expectations).len();
        let mut lines: Vec<String> = self.read(|index| {
            let stores = index.stores().flat_map(|(kind, store)| store.describe(kind.plural));
            stores.chain(index.remarks()).collect()
        });
        lines.extend(remembered);
        lines.push(format!("keys that wait for the index: {expected}"));
        lines.extend(self.queue.describe());
        lines.push(String::new());
        lines.join("\n")
    }

    /// Brings the gauges up to date that are computed when they are asked for.
    fn measure(&self) {
        self.queue.measure();
        self.read(|index| {
            for (kind, store) in index.stores() {
                let (count, unreadable) = store.count();
                self.metrics.objects(kind.kind, count, unreadable);
            }
        });
    }
}

/// An object for an Event.
pub fn regarding(kind: Kind, namespace: &str, name: &str, uid: &str) -> Regarding {
    Regarding { kind, namespace: namespace.into(), name: name.into(), uid: uid.into() }
}
