//! `dragoman run`: puts the parts together and keeps them running.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use dragoman_machinery::admin::{self, Access, Admin, Door, Tls};
use dragoman_machinery::api::{Api, Limits};
use dragoman_machinery::connect::connect;
use dragoman_machinery::controller::{Assembly, Context, ControllerSpec, Process};
use dragoman_machinery::discovery::Discovery;
use dragoman_machinery::events;
use dragoman_machinery::lease::{Candidate, Leadership, Periods};
use dragoman_machinery::metrics::MachineryMetrics;
use dragoman_machinery::mode::Mode;
use dragoman_machinery::process;
use dragoman_machinery::rights::{Rights, Scope};
use dragoman_machinery::stall::StallWatch;
use dragoman_machinery::supervise::Supervisor;
use dragoman_machinery::watch::{Connection, Journal};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::{AskedMode, Config, RunFlags};
use crate::controllers::{self, LEASE_NAME};
use crate::telemetry;

/// Runs until told to stop or until a part ends.
///
/// # Errors
/// The end of a part, or a setting that is of no use.
pub(crate) async fn run(flags: RunFlags) -> anyhow::Result<()> {
    let config = flags.resolve()?;
    let identity = identity();
    let telemetry = telemetry::start(&config, &identity)?;
    let outcome = control(config, identity).await;
    telemetry.stop().await;
    outcome
}

/// Runs the controllers of the table.
async fn control(config: Config, identity: String) -> anyhow::Result<()> {
    let mut registry = Registry::default();
    process::register(&mut registry);
    let stalls = StallWatch::register(&mut registry);
    let limits = Limits { concurrency: config.concurrency, ..Limits::default() };
    let clients = connect(config.kubeconfig.as_deref(), limits, &mut registry).await?;
    let namespace = config.namespace.clone().unwrap_or_else(|| clients.namespace.clone());
    let table = controllers::table(config.controllers);
    let (mode, why) = effective_mode(config.mode, &table, &clients.api).await?;
    announce_mode(&mut registry, mode, &why);
    let leased = controllers::works(&table, mode) && !config.without_lease;

    let machinery = MachineryMetrics::register(&mut registry);
    let reporter = "dragoman.dev/operator";
    let (recorder, sender) =
        events::recorder(clients.api.clone(), machinery.clone(), reporter, identity.clone());
    let leadership = if config.without_lease { Leadership::without_lease() } else { Leadership::default() };
    let rights = Arc::new(controllers::rights(&table, mode, leased.then_some(&*namespace)));
    let context = Context {
        api: clients.api.clone(),
        discovery: Discovery::new(clients.api.clone()),
        recorder,
        rights: Arc::clone(&rights),
        leadership: leadership.clone(),
        machinery: machinery.clone(),
    };
    let journal = Journal::new(machinery.clone());
    let connection =
        Connection { client: clients.watch, discovery: context.discovery.clone(), journal: journal.clone() };
    let assembly = Assembly::new(context, &mut registry, config.workers);
    let (process, watches) = assembly.start(&table, mode, &connection);
    let process = Arc::new(process);

    let mut supervisor = Supervisor::default();
    serve(&mut supervisor, &config, &clients.api, admin(registry, &process, &rights, journal)).await?;
    supervisor.spawn("stall watch", stalls.run());
    supervisor.spawn("events", sender.run());
    let api = clients.api.clone();
    supervisor.spawn("rights", async move { rights.keep(&api).await });
    watches.into_iter().for_each(|task| supervisor.spawn(task.name, task.future));
    let candidate = leased.then(|| Candidate {
        api: clients.api,
        metrics: machinery,
        namespace,
        name: LEASE_NAME,
        identity,
        periods: Periods::default(),
    });
    work(supervisor, process, leadership, candidate).await
}

/// Leads, works until told to stop, finishes what is in work and gives the lease up.
async fn work(
    mut supervisor: Supervisor,
    process: Arc<Process>,
    leadership: Leadership,
    candidate: Option<Candidate>,
) -> anyhow::Result<()> {
    let (stop, stopped) = watch::channel(false);
    let (workers_done, lease_stop) = watch::channel(false);
    let works = process.works();
    let mut ending = Supervisor::default();
    if works {
        let leadership = leadership.clone();
        ending.spawn("workers", async move {
            lead(&process, &leadership, stopped.clone()).await;
            let mut workers = JoinSet::new();
            process.work(&stopped).into_iter().for_each(|task| drop(workers.spawn(task.future)));
            workers.join_all().await;
            // The lease is given up only when no write is on its way any more.
            workers_done.send_replace(true);
        });
    }
    if let Some(candidate) = candidate {
        ending.spawn_fallible("lease", async move {
            candidate.run(&leadership, lease_stop).await.map_err(|e| e.to_string())
        });
    }
    let mut terminate = signal(SignalKind::terminate()).context("signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
    tokio::select! {
        end = supervisor.first_end() => bail!(end),
        end = ending.first_end(), if works => bail!(end),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stop.send_replace(true);
    tokio::select! {
        () = ending.all_end() => Ok(()),
        // A second signal does not wait for answers under way. Every write is guarded: the next
        // leader takes up what is left half done.
        _ = terminate.recv() => bail!("told twice to stop"),
        _ = interrupt.recv() => bail!("told twice to stop"),
    }
}

/// Waits until this process leads and every index is complete.
async fn lead(process: &Process, leadership: &Leadership, stopped: watch::Receiver<bool>) {
    // Polled because both ends are only ever read, and only before the first key.
    const POLL: std::time::Duration = std::time::Duration::from_millis(50);
    loop {
        let ready = leadership.holds() && process.synced();
        if ready || *stopped.borrow() {
            break;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Resolves `auto`: assist, or observe where rights are missing. Every other mode
/// is taken at its word; what it lacks shows in /readyz.
async fn effective_mode(
    asked: AskedMode,
    table: &[ControllerSpec],
    api: &Api,
) -> anyhow::Result<(Mode, String)> {
    if let Some(mode) = asked.settled() {
        return Ok((mode, "asked for".to_owned()));
    }
    let assist = Rights::new(vec![(Scope::default(), controllers::rules(table, Mode::Assist))]);
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
    for each in Mode::ALL {
        modes.get_or_create(&vec![("mode", each.name())]).set(i64::from(each == mode));
    }
    registry.register("dragoman_mode", "1 for the mode that is in force", modes);
}

fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "dragoman".to_owned());
    let started = jiff::Timestamp::now().as_nanosecond();
    format!("{host}_{started:x}_{}", std::process::id())
}

/// What the doors show: a check, a dump and gauges for each controller.
fn admin(registry: Registry, process: &Arc<Process>, rights: &Arc<Rights>, journal: Journal) -> Arc<Admin> {
    let admin = Arc::new(Admin::new(registry));
    admin.dump("watches", Box::new(move || journal.dump()));
    let checked = Arc::clone(rights);
    admin.check("rights", Box::new(move || checked.check()));
    for controller in process.controllers() {
        let [checked, dumped, measured] = std::array::from_fn(|_| Arc::clone(controller));
        admin.check(controller.name(), Box::new(move || checked.ready()));
        admin.dump(controller.name(), Box::new(move || dumped.dump()));
        admin.refresh(Box::new(move || measured.measure()));
    }
    admin
}

async fn serve(
    supervisor: &mut Supervisor,
    config: &Config,
    api: &Api,
    admin: Arc<Admin>,
) -> anyhow::Result<()> {
    let listener = admin::listen(config.admin_address, Door::Public).await.map_err(anyhow::Error::msg)?;
    let name = format!("admin server on {}", config.admin_address);
    match &config.admin_tls {
        Some(files) => {
            let tls = Tls::read(files.certificate.clone(), files.key.clone());
            let tls = tls.map_err(anyhow::Error::msg).context("admin-tls-cert, admin-tls-key")?;
            let access = Access::new(api.clone());
            supervisor.spawn(name, admin::serve_guarded(listener, tls, access, Arc::clone(&admin)));
        }
        None => supervisor.spawn(name, admin::serve(listener, Door::Public, Arc::clone(&admin))),
    }
    if let Some(address) = config.dump_address {
        let listener = admin::listen(address, Door::Loopback).await.map_err(anyhow::Error::msg)?;
        let name = format!("admin server on {address}");
        supervisor.spawn(name, admin::serve(listener, Door::Loopback, admin));
    }
    Ok(())
}
