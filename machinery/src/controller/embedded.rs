//! Controllers put together in another process than their own: without lease, questions about
//! rights, and admin server. For simulations.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Context;
use super::running::{Assembly, ControllerSpec, Process};
use crate::connect::Clients;
use crate::discovery::Discovery;
use crate::events;
use crate::lease::Leadership;
use crate::metrics::MachineryMetrics;
use crate::mode::Mode;
use crate::rights::Rights;
use crate::watch::{Connection, Journal};

/// Running controllers; dropping them is a crash.
pub struct Embedded {
    process: Arc<Process>,
    tasks: JoinSet<()>,
}

/// Interval between checks whether every index is complete.
const LOOK: Duration = Duration::from_millis(50);

impl Embedded {
    /// Starts the controllers of `table` in mode own, each with `workers` keys in work at once.
    pub fn start(
        clients: &Clients,
        registry: &mut Registry,
        workers: usize,
        table: &[ControllerSpec],
    ) -> Self {
        let machinery = MachineryMetrics::register(registry);
        let reporter = "dragoman.dev/operator";
        let (recorder, sender) =
            events::recorder(clients.api.clone(), machinery.clone(), reporter, "dragoman".to_owned());
        let context = Context {
            api: clients.api.clone(),
            namespace: clients.namespace.as_str().into(),
            discovery: Discovery::new(clients.api.clone()),
            recorder,
            rights: Arc::new(Rights::new(Vec::new())),
            leadership: Leadership::without_lease(),
            journal: Journal::new(machinery.clone()),
            machinery,
        };
        let connection = Connection {
            client: clients.watch.clone(),
            discovery: context.discovery.clone(),
            journal: context.journal.clone(),
        };
        let (process, watches) =
            Assembly::new(context, registry, workers).start(table, Mode::Own, &connection);
        let mut tasks = JoinSet::new();
        tasks.spawn(sender.run());
        for task in watches {
            tasks.spawn(task.future);
        }
        let process = Arc::new(process);
        let works = Arc::clone(&process);
        tasks.spawn(async move {
            while !works.synced() {
                tokio::time::sleep(LOOK).await;
            }
            let (_stop, stopped) = watch::channel(false);
            let mut workers = JoinSet::new();
            for task in works.work(&stopped) {
                workers.spawn(task.future);
            }
            workers.join_all().await;
        });
        Self { process, tasks }
    }

    /// Whether every index is complete.
    pub fn synced(&self) -> bool {
        self.process.synced()
    }

    /// Every index in words, with the objects that stand in the way.
    pub fn dump(&self) -> String {
        self.process.controllers().map(|controller| controller.dump()).collect()
    }

    /// Brings the gauges up to date that are computed when they are asked for.
    pub fn measure(&self) {
        self.process.controllers().for_each(|controller| controller.measure());
    }

    /// Waits until a part of it ends, which none should.
    pub async fn ended(&mut self) {
        self.tasks.join_next().await;
    }
}
