//! `dragoman run`: puts the parts together and keeps them running.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use dragoman_machinery::admin::{self, Admin, Door};
use dragoman_machinery::api::{Api, Limits};
use dragoman_machinery::connect::connect;
use dragoman_machinery::discovery::Discovery;
use dragoman_machinery::events;
use dragoman_machinery::lease::{Candidate, Leadership, Periods};
use dragoman_machinery::metrics::{ControllerMetrics, MachineryMetrics, QueueMetrics};
use dragoman_machinery::queue::SharedQueue;
use dragoman_machinery::rights::{Rights, Scope};
use dragoman_machinery::supervise::Supervisor;
use dragoman_machinery::watch::Journal;
use dragoman_machinery::work;
use dragoman_reconcilers::claim_lifecycle::{ClaimLifecycle, Ground, LifecycleMetrics, Options, rights};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::config::{Config, Mode, RunFlags};
use crate::{rbac, telemetry};

/// The name of our Lease.
const LEASE_NAME: &str = "dragoman";

/// Runs until told to stop or until a part ends.
///
/// # Errors
/// Whatever ended us but a signal.
pub(crate) async fn run(flags: RunFlags) -> anyhow::Result<()> {
    let config = flags.resolve()?;
    let telemetry = telemetry::start(&config)?;
    let outcome = control(config).await;
    telemetry.stop().await;
    outcome
}

/// Runs the controllers.
async fn control(config: Config) -> anyhow::Result<()> {
    let mut registry = Registry::default();
    let limits = Limits { concurrency: config.concurrency, ..Limits::default() };
    let clients = connect(config.kubeconfig.as_deref(), limits, &mut registry).await?;
    let namespace = config.namespace.clone().unwrap_or_else(|| clients.namespace.clone());
    let machinery = MachineryMetrics::register(&mut registry);
    let lifecycle_metrics = LifecycleMetrics::register(&mut registry);
    let (mode, why) = effective_mode(config.mode, &clients.api).await?;
    announce_mode(&mut registry, mode, &why);

    let identity = identity();
    let (recorder, sender) =
        events::recorder(clients.api.clone(), machinery.clone(), "dragoman.dev/operator", identity.clone());
    let queue = SharedQueue::new(QueueMetrics::register(&mut registry, "resource_claim"));
    let controller_metrics = ControllerMetrics::register(&mut registry, "claim_lifecycle", config.workers);
    let leadership = if config.without_lease { Leadership::without_lease() } else { Leadership::default() };
    let held = Arc::new(rights(mode, &namespace, config.without_lease));
    let ground = Ground {
        api: clients.api.clone(),
        watch: clients.watch.clone(),
        discovery: Discovery::new(clients.api.clone()),
        recorder,
        rights: Arc::clone(&held),
        leadership: leadership.clone(),
        journal: Journal::new(machinery.clone()),
        machinery: machinery.clone(),
        metrics: lifecycle_metrics.clone(),
    };
    let options = Options { own: mode == Mode::Own, born_protected: config.born_protected };
    let lifecycle = ClaimLifecycle::new(ground.clone(), queue.clone(), options);

    let admin = Arc::new(Admin::new(registry));
    let journal = ground.journal.clone();
    admin.dump("watches", Box::new(move || journal.dump()));
    open_doors(&admin, &lifecycle, &queue, &lifecycle_metrics);
    let mut supervisor = Supervisor::default();
    supervise_doors(&mut supervisor, &config, &admin).await?;
    supervisor.spawn("events", sender.run());
    let api = clients.api.clone();
    supervisor.spawn("rights", async move { held.keep(&api).await });
    for (name, task) in lifecycle.tasks() {
        supervisor.spawn(name, task);
    }

    let (stop, stopped) = watch::channel(false);
    let mut ending = Supervisor::default();
    let candidate = Candidate {
        api: clients.api,
        metrics: machinery,
        namespace,
        name: LEASE_NAME,
        identity,
        periods: Periods::default(),
    };
    let (workers_done, lease_stop) = watch::channel(false);
    if mode == Mode::Own {
        let workers = {
            let (lifecycle, leadership, stopped) =
                (Arc::clone(&lifecycle), leadership.clone(), stopped.clone());
            async move {
                lead(&lifecycle, &leadership, stopped.clone()).await;
                work::run(lifecycle, queue, config.workers, controller_metrics, stopped).await;
                // The lease is given up only when no write is on its way any more.
                workers_done.send_replace(true);
            }
        };
        ending.spawn("workers", workers);
        if !config.without_lease {
            ending.spawn_fallible("lease", async move {
                candidate.run(&leadership, lease_stop).await.map_err(|e| e.to_string())
            });
        }
    }
    let mut terminate = signal(SignalKind::terminate()).context("signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
    tokio::select! {
        end = supervisor.first_end() => bail!(end),
        end = ending.first_end(), if mode == Mode::Own => bail!(end),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stop.send_replace(true);
    tokio::select! {
        () = ending.all_end() => Ok(()),
        // Whoever says it twice does not want to wait for answers under way. Every
        // write is guarded: what is left half done is taken up by the next leader.
        _ = terminate.recv() => bail!("told twice to stop"),
        _ = interrupt.recv() => bail!("told twice to stop"),
    }
}

/// Waits until we lead and every index is complete.
async fn lead(lifecycle: &ClaimLifecycle, leadership: &Leadership, stopped: watch::Receiver<bool>) {
    // Polled because both ends are only ever read, and only before the first key.
    const POLL: std::time::Duration = std::time::Duration::from_millis(50);
    loop {
        if *stopped.borrow() || (leadership.holds() && lifecycle.synced()) {
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    lifecycle.leads_since(dragoman_machinery::clock::now().as_second());
}

/// Resolves `auto`: assist, or observe where rights are missing. Every other mode
/// is taken at its word; what it lacks shows in /readyz.
async fn effective_mode(asked: Mode, api: &Api) -> anyhow::Result<(Mode, String)> {
    if asked != Mode::Auto {
        return Ok((asked, "asked for".to_owned()));
    }
    let assist = Rights::new(vec![(Scope::default(), rbac::ASSIST.to_vec())]);
    let missing = assist.ask(api).await.context("cannot ask for our rights")?;
    Ok(if missing.is_empty() {
        (Mode::Assist, "no right is missing".to_owned())
    } else {
        (Mode::Observe, format!("missing: {}", missing.join(", ")))
    })
}

fn announce_mode(registry: &mut Registry, mode: Mode, why: &str) {
    tracing::info!(mode = mode.name(), why, "mode");
    let modes = Family::<Vec<(&'static str, &'static str)>, Gauge>::default();
    for each in [Mode::Observe, Mode::Assist, Mode::Own] {
        modes.get_or_create(&vec![("mode", each.name())]).set(i64::from(each == mode));
    }
    registry.register("dragoman_mode", "1 for the mode that is in force", modes);
}

fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "dragoman".to_owned());
    let started = jiff::Timestamp::now().as_nanosecond();
    format!("{host}_{started:x}_{}", std::process::id())
}

fn open_doors(
    admin: &Admin,
    lifecycle: &Arc<ClaimLifecycle>,
    queue: &SharedQueue<dragoman_reconcilers::claim_lifecycle::Key>,
    metrics: &LifecycleMetrics,
) {
    let checked = Arc::clone(lifecycle);
    admin.check("claim_lifecycle", Box::new(move || checked.ready()));
    let dumped = Arc::clone(lifecycle);
    admin.dump("claim_lifecycle", Box::new(move || dumped.dump()));
    let (measured, queue, metrics) = (Arc::clone(lifecycle), queue.clone(), metrics.clone());
    admin.refresh(Box::new(move || {
        queue.measure();
        measured.read(|index| metrics.measure(index, dragoman_machinery::clock::now().as_second()));
    }));
}

async fn supervise_doors(
    supervisor: &mut Supervisor,
    config: &Config,
    admin: &Arc<Admin>,
) -> anyhow::Result<()> {
    let doors = [(Some(config.admin_address), Door::Public), (config.dump_address, Door::Loopback)];
    for (address, door) in doors {
        let Some(address) = address else { continue };
        let listener = admin::listen(address, door).await.map_err(anyhow::Error::msg)?;
        supervisor
            .spawn(format!("admin server on {address}"), admin::serve(listener, door, Arc::clone(admin)));
    }
    Ok(())
}

/// What a mode needs.
fn rights(mode: Mode, namespace: &str, without_lease: bool) -> Rights {
    let mut needed = vec![(Scope::default(), [rights::OBSERVE, rbac::EVENTS].concat())];
    if mode == Mode::Own {
        needed.push((Scope::default(), rights::OWN.to_vec()));
        if !without_lease {
            let (namespace, name) = (Some(namespace.to_owned()), Some(LEASE_NAME));
            needed.push((Scope { namespace, name }, rbac::LEASE.to_vec()));
        }
    }
    Rights::new(needed)
}
