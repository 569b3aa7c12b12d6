//! Dragoman in this process: what `dragoman run --mode own` puts together, on a clock that can be
//! wound and with a way in that goes wrong.

use std::sync::Arc;

use dragoman_machinery::api::{Api, Limits};
use dragoman_machinery::discovery::Discovery;
use dragoman_machinery::events;
use dragoman_machinery::kind::{POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE};
use dragoman_machinery::lease::Leadership;
use dragoman_machinery::metrics::{ClientMetrics, ControllerMetrics, MachineryMetrics, QueueMetrics};
use dragoman_machinery::queue::SharedQueue;
use dragoman_machinery::rights::Rights;
use dragoman_machinery::watch::{Journal, Watched, drive};
use dragoman_machinery::{clock, work};
use dragoman_reconcilers::claim_lifecycle::{
    ClaimLifecycle, Claims, Feed, Ground, LifecycleMetrics, Options, Pods, Templates,
};
use dragoman_simcluster::FaultyDoor;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A running instance; dropping it is a crash.
pub(super) struct Instance {
    _tasks: JoinSet<()>,
}

/// Keys in work at once.
const WORKERS: usize = 8;

impl Instance {
    pub(super) fn start(door: &FaultyDoor) -> Self {
        let mut registry = Registry::default();
        let metrics = ClientMetrics::register(&mut registry, "simcluster");
        let client = || kube::Client::new(door.clone(), "kube-system");
        let api = Api::new(client(), Limits::default(), metrics);
        let machinery = MachineryMetrics::register(&mut registry);
        let (recorder, sender) =
            events::recorder(api.clone(), machinery.clone(), "dragoman.dev/operator", "dragoman".to_owned());
        let queue = SharedQueue::new(QueueMetrics::register(&mut registry, "resource_claim"));
        let controller = ControllerMetrics::register(&mut registry, "claim_lifecycle", WORKERS);
        let ground = Ground {
            api: api.clone(),
            watch: client(),
            discovery: Discovery::new(api),
            recorder,
            rights: Arc::new(Rights::new(Vec::new())),
            leadership: Leadership::without_lease(),
            journal: Journal::new(machinery.clone()),
            machinery,
            metrics: LifecycleMetrics::register(&mut registry),
        };
        let options = Options { own: true, born_protected: false };
        let lifecycle = ClaimLifecycle::new(ground.clone(), queue.clone(), options);
        let mut tasks = JoinSet::new();
        tasks.spawn(sender.run());
        let source = |kind| Watched::new(ground.watch.clone(), kind, ground.discovery.clone());
        let journal = || ground.journal.clone();
        tasks.spawn(drive(POD.kind, source(POD), Feed::<Pods>::new(lifecycle.clone()), journal()));
        let claims = Feed::<Claims>::new(lifecycle.clone());
        tasks.spawn(drive(RESOURCE_CLAIM.kind, source(RESOURCE_CLAIM), claims, journal()));
        let kind = RESOURCE_CLAIM_TEMPLATE;
        let templates = Feed::<Templates>::new(lifecycle.clone());
        tasks.spawn(drive(kind.kind, source(kind), templates, journal()));
        tasks.spawn(lifecycle.clone().watch_groups());
        tasks.spawn(lifecycle.clone().level());
        tasks.spawn(async move {
            while !lifecycle.synced() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            lifecycle.leads_since(clock::now().as_second());
            let (_stop, stopped) = watch::channel(false);
            work::run(lifecycle, queue, WORKERS, controller, stopped).await;
        });
        Self { _tasks: tasks }
    }
}
