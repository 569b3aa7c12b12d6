//! The table of controllers, and the process that they make up.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::sleep;

use super::shared::{Shared, Whole, Wholes};
use super::work::{self, Reconcile};
use super::{Context, Controller, Index};
use crate::metrics::{ControllerFamilies, ControllerMetrics};
use crate::mode::Mode;
use crate::rights::{Rule, Scope};
use crate::supervise::Task;
use crate::watch::{Connection, Watches};

/// Period of the level timer, which enqueues every key without a reason. A lost event costs this
/// much latency, never correctness; a look without a change costs no request.
pub const LEVEL: Duration = Duration::from_mins(10);
/// The parts of a level, spread over its period: keys with a reason do not wait behind all others.
const PORTIONS: u32 = 60;

/// A row of the table of controllers.
pub struct ControllerSpec {
    /// Name of the controller, as in metrics and the dump.
    pub name: &'static str,
    /// Whether it works on keys in a mode; in the others it keeps its index only.
    pub works: fn(Mode) -> bool,
    /// The rights that a mode adds to those of the mode before.
    pub rights: fn(Mode) -> &'static [Rule],
    /// The rights that the chosen settings need, from mode assist on.
    pub asked: &'static [Rule],
    /// The rights that do not hold for all objects of the cluster, from mode assist on; the argument is our own namespace.
    pub confined: fn(&str) -> Vec<(Scope, &'static [Rule])>,
    /// The controllers that it does not work without, by name: they come before it in the table.
    pub needs: &'static [&'static str],
    /// Whether it runs where nothing is chosen.
    pub on_by_default: bool,
    /// The settings that nothing but this controller reads.
    pub settings: fn() -> Vec<Setting>,
    /// Puts it together: its metrics, its watches, its reconciler.
    pub start: Start,
}

/// A setting of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Name of its flag, without dashes in front.
    pub name: String,
    /// Text for people.
    pub help: String,
}

/// Puts a controller together.
pub type Start = Box<dyn Fn(&mut Assembly<'_>) -> Arc<dyn Running>>;

impl ControllerSpec {
    /// A controller that works in every mode, runs unless it is switched off, and needs neither rights nor other controllers.
    pub fn new(name: &'static str, start: Start) -> Self {
        Self {
            name,
            works: |_| true,
            rights: |_| &[],
            asked: &[],
            confined: |_| Vec::new(),
            needs: &[],
            on_by_default: true,
            settings: Vec::new,
            start,
        }
    }
}

/// A controller that is put together, whatever its keys are.
pub trait Running: Send + Sync {
    /// Returns the name of the controller.
    fn name(&self) -> &'static str;
    /// Whether every index is complete.
    fn synced(&self) -> bool;
    /// Whether every kind has been listed and nothing keeps it from working.
    ///
    /// # Errors
    /// The kinds that are not listed yet, a kind of ours that is not served, or what keeps it from working.
    fn ready(&self) -> Result<(), String>;
    /// Whether it has stopped its work because of something in the cluster.
    fn yields(&self) -> bool;
    /// Returns the index in words, with the objects that stand in the way.
    fn dump(&self) -> String;
    /// Brings the gauges up to date that are computed when they are asked for.
    fn measure(&self);
    /// Wants every key worked on once within `period`, a portion at a time.
    fn level(self: Arc<Self>, period: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    /// Works on keys with up to `workers` at once until `stop` is true, then finishes what is in
    /// work.
    fn work(
        self: Arc<Self>,
        workers: usize,
        stop: watch::Receiver<bool>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    /// Works on no key any more, until [`Running::work`] is called again.
    fn cease(&self);
}

impl<R: Reconcile> Running for R {
    fn name(&self) -> &'static str {
        self.controller().name()
    }

    fn synced(&self) -> bool {
        self.controller().missing().is_empty()
    }

    fn ready(&self) -> Result<(), String> {
        let missing = self.controller().missing();
        if !missing.is_empty() {
            return Err(format!("not yet listed: {}", missing.join(", ")));
        }
        let undefined = self.controller().read(Index::undefined);
        if let Some(kind) = self.missing_kind().or_else(|| undefined.first().copied()) {
            let version = kind.version;
            return Err(if kind.is_own() {
                format!("not served: {kind} in {version}: apply the definitions of this release")
            } else {
                format!("{kind} are not served, or may not be read: what depends on them waits")
            });
        }
        self.degraded_reason().map_or(Ok(()), Err)
    }

    fn yields(&self) -> bool {
        self.degraded_reason().is_some()
    }

    fn dump(&self) -> String {
        self.controller().dump(self.remembers())
    }

    fn measure(&self) {
        self.controller().measure();
        Reconcile::measure(self);
    }

    fn level(self: Arc<Self>, period: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let controller = self.controller();
            controller.sweep();
            let keys = if controller.works() { controller.read(Index::all_keys) } else { Vec::new() };
            spread(keys, period, |portion| controller.enqueue(portion)).await;
        })
    }

    fn work(
        self: Arc<Self>,
        workers: usize,
        stop: watch::Receiver<bool>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.on_elected();
        self.controller().begin();
        Box::pin(work::run(self, workers, stop))
    }

    fn cease(&self) {
        self.controller().cease();
    }
}

/// Gives `keys` out in equal portions over `period`.
async fn spread<K>(keys: Vec<K>, period: Duration, mut enqueue: impl FnMut(Vec<K>)) {
    let size = keys.len().div_ceil(PORTIONS as usize);
    let mut keys = keys.into_iter();
    for _ in 0..PORTIONS {
        sleep(period / PORTIONS).await;
        enqueue(keys.by_ref().take(size).collect());
    }
}

/// Everything that the controllers of a process are put together with.
pub struct Assembly<'a> {
    /// Context that all controllers share.
    pub context: Context,
    /// For metrics of its own.
    pub registry: &'a mut Registry,
    /// The watches of the process.
    pub watches: Watches,
    families: ControllerFamilies,
    wholes: Wholes,
    workers: usize,
}

impl<'a> Assembly<'a> {
    /// Nothing yet; `workers` is how many keys each controller has in work at once.
    pub fn new(context: Context, registry: &'a mut Registry, workers: usize) -> Self {
        let families = ControllerFamilies::register(registry);
        let (watches, wholes) = (Watches::default(), Wholes::default());
        Self { context, registry, watches, families, wholes, workers }
    }

    /// The kit of a controller, whose queue dashboards know as `queue`.
    pub fn controller<I: Index>(&mut self, name: &'static str, queue: &'static str) -> Arc<Controller<I>> {
        let metrics: ControllerMetrics = self.families.of(name, queue, self.workers);
        Controller::new(self.context.clone(), metrics, self.workers, self.wholes.of())
    }

    /// Puts the controllers of the table together. Returns them with the tasks that keep their
    /// indexes in step, and the level timers; none of these may end.
    pub fn start(
        mut self,
        table: &[ControllerSpec],
        mode: Mode,
        connection: &Connection,
    ) -> (Process, Vec<Task>) {
        let start = |spec: &ControllerSpec| ((spec.start)(&mut self), (spec.works)(mode));
        let controllers: Vec<(Arc<dyn Running>, bool)> = table.iter().map(start).collect();
        let mut tasks = self.watches.open(connection);
        for (controller, _) in &controllers {
            let controller = Arc::clone(controller);
            tasks.push(Task::new(format!("level timer of {}", controller.name()), async move {
                loop {
                    Arc::clone(&controller).level(LEVEL).await;
                }
            }));
        }
        (Process { controllers, wholes: self.wholes, workers: self.workers }, tasks)
    }
}

/// The controllers of a process, each with whether it works on keys.
pub struct Process {
    controllers: Vec<(Arc<dyn Running>, bool)>,
    wholes: Wholes,
    workers: usize,
}

impl Process {
    /// The indexes of this type, if a controller has a part of them.
    pub fn indexes<W: Whole>(&self) -> Option<Arc<Shared<W>>> {
        self.wholes.known()
    }

    /// Every controller.
    pub fn controllers(&self) -> impl Iterator<Item = &Arc<dyn Running>> {
        self.controllers.iter().map(|(controller, _)| controller)
    }

    /// Whether any controller works on keys, so that the lease is needed.
    pub fn works(&self) -> bool {
        self.controllers.iter().any(|(_, works)| *works)
    }

    /// Whether any controller has stopped its work because of something in the cluster.
    pub fn yields(&self) -> bool {
        self.controllers().any(|controller| controller.yields())
    }

    /// Whether every index is complete.
    pub fn synced(&self) -> bool {
        self.controllers().all(|controller| controller.synced())
    }

    /// The workers of each controller that works on keys; call it once this process leads and every
    /// index is complete. They end when `stop` is true and what is in work is done.
    pub fn work(&self, stop: &watch::Receiver<bool>) -> Vec<Task> {
        let working = self.controllers.iter().filter(|(_, works)| *works);
        let task = |controller: &Arc<dyn Running>| {
            let workers = Arc::clone(controller).work(self.workers, stop.clone());
            Task::new(format!("workers of {}", controller.name()), workers)
        };
        working.map(|(controller, _)| task(controller)).collect()
    }

    /// The workers have ended: no key is wanted until [`Process::work`] is called again.
    pub fn cease(&self) {
        self.controllers().for_each(|controller| controller.cease());
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_level_is_spread_over_its_period() {
        let began = Instant::now();
        let mut given = Vec::new();
        spread((0..1_000).collect(), LEVEL, |portion| given.push((began.elapsed(), portion))).await;
        assert_eq!(began.elapsed(), LEVEL);
        assert!(given.iter().all(|(_, portion)| portion.len() <= 17), "not equal");
        assert!(given.iter().any(|(at, portion)| *at > LEVEL * 9 / 10 && !portion.is_empty()), "in a burst");
        let keys: Vec<i32> = given.into_iter().flat_map(|(_, portion)| portion).collect();
        assert_eq!(keys, (0..1_000).collect::<Vec<_>>());
    }
}
