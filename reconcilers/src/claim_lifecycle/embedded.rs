//! The controller put together in another process than its own: without lease, questions about
//! rights, and doors. For simulations.

use std::sync::Arc;
use std::time::Duration;

use dragoman_machinery::connect::Clients;
use dragoman_machinery::discovery::Discovery;
use dragoman_machinery::lease::Leadership;
use dragoman_machinery::metrics::{ControllerMetrics, MachineryMetrics, QueueMetrics};
use dragoman_machinery::queue::SharedQueue;
use dragoman_machinery::rights::Rights;
use dragoman_machinery::watch::Journal;
use dragoman_machinery::{clock, events, work};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::controller::{ClaimLifecycle, Ground, Options};
use super::metrics::LifecycleMetrics;

/// A running controller; dropping it is a crash.
pub struct Embedded {
    lifecycle: Arc<ClaimLifecycle>,
    tasks: JoinSet<()>,
}

/// How often it is looked whether every index is complete.
const LOOK: Duration = Duration::from_millis(50);

impl Embedded {
    /// Starts it in mode own with so many keys in work at once.
    pub fn start(clients: &Clients, registry: &mut Registry, workers: usize) -> Self {
        let machinery = MachineryMetrics::register(registry);
        let reporter = "dragoman.dev/operator";
        let (recorder, sender) =
            events::recorder(clients.api.clone(), machinery.clone(), reporter, "dragoman".to_owned());
        let queue = SharedQueue::new(QueueMetrics::register(registry, "resource_claim"));
        let controller = ControllerMetrics::register(registry, "claim_lifecycle", workers);
        let ground = Ground {
            api: clients.api.clone(),
            watch: clients.watch.clone(),
            discovery: Discovery::new(clients.api.clone()),
            recorder,
            rights: Arc::new(Rights::new(Vec::new())),
            leadership: Leadership::without_lease(),
            journal: Journal::new(machinery.clone()),
            machinery,
            metrics: LifecycleMetrics::register(registry),
        };
        let options = Options { own: true, born_protected: false };
        let lifecycle = ClaimLifecycle::new(ground, queue.clone(), options);
        let mut tasks = JoinSet::new();
        tasks.spawn(sender.run());
        for (_, task) in lifecycle.tasks() {
            tasks.spawn(task);
        }
        let works = Arc::clone(&lifecycle);
        tasks.spawn(async move {
            while !works.synced() {
                tokio::time::sleep(LOOK).await;
            }
            works.leads_since(clock::now().as_second());
            let (_stop, stopped) = watch::channel(false);
            work::run(works, queue, workers, controller, stopped).await;
        });
        Self { lifecycle, tasks }
    }

    /// Whether every index is complete.
    pub fn synced(&self) -> bool {
        self.lifecycle.synced()
    }

    /// Every index in words, with the objects that stand in the way.
    pub fn dump(&self) -> String {
        self.lifecycle.dump()
    }

    /// Waits until a part of it ends, which none should.
    pub async fn ended(&mut self) {
        self.tasks.join_next().await;
    }
}
