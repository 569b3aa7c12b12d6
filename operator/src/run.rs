//! `dragoman run`: puts the parts together and keeps them running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::CommandFactory as _;
use dragoman_machinery::admin::{self, Access, Admin, Check, Endpoints, Tls};
use dragoman_machinery::api::{Api, Limits};
use dragoman_machinery::backoff::Backoff;
use dragoman_machinery::connect::connect;
use dragoman_machinery::controller::{Assembly, Context, ControllerSpec, Process};
use dragoman_machinery::discovery::Discovery;
use dragoman_machinery::events;
use dragoman_machinery::lease::{Candidate, Elsewhere, Fitness, Leadership, Periods};
use dragoman_machinery::metrics::{FloatGauge, MachineryMetrics};
use dragoman_machinery::mode::Mode;
use dragoman_machinery::process;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::rights::{Rights, Scope};
use dragoman_machinery::stall::StallWatch;
use dragoman_machinery::supervise::Supervisor;
use dragoman_machinery::watch::{Connection, Journal};
use dragoman_reconcilers::indexes::Indexes;
use dragoman_reconcilers::{gates, ledger, table};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::account;
use crate::config::{AllocatorFlags, AskedMode, Config, RunFlags};
use crate::controllers::{self, ALLOCATOR_LEASE, LEASE_NAME};
use crate::gating::presence::Presence;
use crate::{Arguments, environment, gating, telemetry};

/// A program of this binary.
struct Program {
    /// The source of its Events.
    reporter: &'static str,
    /// The name of its Lease.
    lease: &'static str,
    /// Whether it has modes, and says in which one it is.
    has_modes: bool,
    table: Vec<ControllerSpec>,
}

/// Runs the operator until told to stop or until a part ends.
///
/// # Errors
/// The end of a part, or a setting that is of no use.
pub(crate) async fn run(flags: RunFlags) -> anyhow::Result<()> {
    let config = flags.resolve()?;
    let mut table = table::operator(config.controllers.clone());
    controllers::choose(&mut table, &config.chosen, &config.given)
        .map_err(anyhow::Error::msg)
        .context("controllers")?;
    let reporter = "dragoman.dev/operator";
    start(config, Program { reporter, lease: LEASE_NAME, has_modes: true, table }).await
}

/// Runs the reference allocator. It has a Lease and rights of its own, and no modes.
///
/// # Errors
/// The end of a part, or a setting that is of no use.
pub(crate) async fn allocator(flags: AllocatorFlags) -> anyhow::Result<()> {
    let (config, options) = flags.resolve()?;
    let table = table::allocator(options);
    let reporter = "dragoman.dev/allocator";
    start(config, Program { reporter, lease: ALLOCATOR_LEASE, has_modes: false, table }).await
}

async fn start(config: Config, program: Program) -> anyhow::Result<()> {
    let identity = identity();
    let telemetry = telemetry::start(&config, &identity)?;
    for name in environment::unknown(&Arguments::command(), std::env::vars_os().map(|(name, _)| name)) {
        tracing::warn!("{name} in the environment names no setting");
    }
    let outcome = control(config, program, identity).await;
    telemetry.stop().await;
    outcome
}

/// Runs the controllers of the table.
async fn control(config: Config, program: Program, identity: String) -> anyhow::Result<()> {
    let Program { reporter, lease, has_modes, table } = program;
    let mut registry = Registry::default();
    process::register(&mut registry);
    let stalls = StallWatch::register(&mut registry);
    let limits = Limits { concurrency: config.concurrency, ..Limits::default() };
    let clients = connect(config.kubeconfig.as_deref(), limits, &mut registry).await?;
    let namespace = config.namespace.clone().unwrap_or_else(|| clients.namespace.clone());
    // Open before anything is asked: an API server that is not there yet is no reason to be restarted.
    let mut supervisor = Supervisor::default();
    let admin = Arc::new(Admin::default());
    let settled = Arc::new(AtomicBool::new(false));
    admin.check("mode", mode_check(&settled));
    serve(&mut supervisor, &config, &clients.api, &admin).await?;
    let (mode, why) = effective_mode(config.mode, &table, &clients.api).await;
    settled.store(true, Ordering::Relaxed);
    let in_force = has_modes.then(|| announce_mode(&mut registry, mode, &why));
    let leased = controllers::works(&table, mode) && !config.without_lease;
    look_for_policies(&table, &clients.api, &mut registry, &admin, &mut supervisor)?;

    let machinery = MachineryMetrics::register(&mut registry);
    let (recorder, sender) =
        events::recorder(clients.api.clone(), machinery.clone(), reporter, identity.clone());
    let leadership = if config.without_lease { Leadership::without_lease() } else { Leadership::default() };
    let rights = Arc::new(controllers::rights(&table, mode, &namespace, leased.then_some(lease)));
    let context = Context {
        api: clients.api.clone(),
        namespace: namespace.as_str().into(),
        discovery: Discovery::new(clients.api.clone()),
        recorder,
        rights: Arc::clone(&rights),
        leadership: leadership.clone(),
        machinery: machinery.clone(),
        journal: Journal::new(machinery.clone()),
    };
    let journal = context.journal.clone();
    let connection =
        Connection { client: clients.watch, discovery: context.discovery.clone(), journal: journal.clone() };
    if leased {
        supervisor.spawn("leaders elsewhere", elsewhere(&context, &connection, &namespace, lease));
    }
    let assembly = Assembly::new(context, &mut registry, config.workers);
    let (process, watches) = assembly.start(&table, mode, &connection);
    let process = Arc::new(process);

    admin.show(registry);
    register_admin(&admin, &process, &rights, &journal, &leadership);
    measure(&admin, &process, leased.then_some(&leadership), machinery.lease_age.clone(), in_force);
    dump_ledgers(&admin, &process);
    supervisor.spawn("stall watch", stalls.run());
    supervisor.spawn("events", sender.run());
    let renewals = leased.then(|| journal.clone());
    // The next process remembers nothing of the history that is lost.
    let history = journal.clone();
    supervisor.spawn_fallible("history", async move { Err(history.went_back().await) });
    let fitness = fitness(&process, &rights, journal);
    supervisor.spawn("rights", async move { rights.keep(&clients.api).await });
    watches.into_iter().for_each(|task| supervisor.spawn(task.name, task.future));
    let holder = if has_modes { controllers::holder(&identity, mode) } else { identity };
    let candidate = leased.then(|| candidate(clients.lease, machinery, namespace, lease, holder, fitness));
    work(supervisor, process, leadership, candidate, renewals).await
}

/// Has `/dump` show the ledgers, if the process keeps them.
fn dump_ledgers(admin: &Admin, process: &Process) {
    let has_ledgers = process.controllers().any(|controller| controller.name() == ledger::NAME);
    if let Some(indexes) = process.indexes::<Indexes>().filter(|_| has_ledgers) {
        admin.dump_in_portions("account", Box::new(move || Box::pin(account::of_index(indexes.clone()))));
    }
}

/// Looks for the policies of claim gates while the process runs, if it opens gates.
fn look_for_policies(
    table: &[ControllerSpec],
    api: &Api,
    registry: &mut Registry,
    admin: &Admin,
    supervisor: &mut Supervisor,
) -> anyhow::Result<()> {
    if table.iter().any(|spec| spec.name == gates::NAME) {
        let policies = Presence::register(gating::names_of_gates()?, registry);
        admin.check("policies", policies.check());
        supervisor.spawn("policies", policies.keep(api.clone(), Discovery::new(api.clone())));
    }
    Ok(())
}

/// Adds the gauges that are about the process as a whole.
fn measure(
    admin: &Admin,
    process: &Arc<Process>,
    leadership: Option<&Leadership>,
    lease_age: FloatGauge,
    in_force: Option<impl Fn(bool) + Send + Sync + 'static>,
) {
    let (process, leadership) = (Arc::clone(process), leadership.cloned());
    admin.refresh(Box::new(move || {
        let age = leadership.as_ref().and_then(Leadership::age);
        lease_age.set(age.unwrap_or_default().as_secs_f64());
        in_force.iter().for_each(|in_force| in_force(process.yields()));
    }));
}

/// Looks for leaders in other namespaces.
fn elsewhere(
    context: &Context,
    connection: &Connection,
    namespace: &str,
    name: &'static str,
) -> impl Future<Output = ()> + use<> {
    let elsewhere = Elsewhere {
        connection: connection.clone(),
        recorder: context.recorder.clone(),
        metrics: context.machinery.clone(),
        namespace: namespace.to_owned(),
        name,
    };
    elsewhere.run(context.leadership.clone())
}

/// Returns the candidate for the Lease.
fn candidate(
    api: Api,
    metrics: MachineryMetrics,
    namespace: String,
    name: &'static str,
    identity: String,
    fitness: Box<dyn Fn() -> Fitness + Send + Sync>,
) -> Candidate {
    Candidate { api, metrics, namespace, name, identity, periods: Periods::default(), fitness }
}

/// Returns the function that tells how well this process could lead: its indexes, its watches, its rights.
fn fitness(
    process: &Arc<Process>,
    rights: &Arc<Rights>,
    journal: Journal,
) -> Box<dyn Fn() -> Fitness + Send + Sync> {
    let (process, rights) = (Arc::clone(process), Arc::clone(rights));
    Box::new(move || Fitness { complete: process.synced(), blind: journal.blind(), barred: rights.barred() })
}

/// Leads, works until told to stop, finishes what is in work and gives the lease up.
async fn work(
    mut supervisor: Supervisor,
    process: Arc<Process>,
    leadership: Leadership,
    candidate: Option<Candidate>,
    journal: Option<Journal>,
) -> anyhow::Result<()> {
    let (stop, stopped) = watch::channel(false);
    let (workers_done, lease_stop) = watch::channel(false);
    let works = process.works();
    let mut ending = Supervisor::default();
    if works {
        let leadership = leadership.clone();
        ending.spawn("workers", async move {
            while !*stopped.borrow() && lead(&process, &leadership, journal.as_ref(), &stopped).await {
                if !term(&process, &leadership, stopped.clone()).await {
                    return;
                }
            }
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

/// Waits until this process leads, every index is complete, and nothing is missing there that a leader
/// before may have written. Returns false when it is to stop instead.
async fn lead(
    process: &Process,
    leadership: &Leadership,
    journal: Option<&Journal>,
    stopped: &watch::Receiver<bool>,
) -> bool {
    // Polled because both ends are only ever read, and only before the first key.
    const POLL: Duration = Duration::from_millis(50);
    // While an API server accepts no new watch, a leader works on the indexes that it has: every write
    // is guarded.
    const RENEWED_WITHIN: Duration = Duration::from_secs(10);
    let mut led = None;
    loop {
        if *stopped.borrow() {
            return false;
        }
        if !leadership.holds() {
            led = None;
        } else if led.is_none() {
            journal.inspect(|journal| journal.renew());
            led = Some(Instant::now());
        }
        if let Some(since) = led.filter(|_| process.synced()) {
            if journal.is_none_or(Journal::is_renewed) {
                return true;
            }
            if since.elapsed() >= RENEWED_WITHIN {
                tracing::warn!("working although not every watch has been renewed");
                return true;
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Works on keys while this process leads, until it is to stop, and finishes what is in work.
/// Returns false when the workers have ended by themselves, which they never should.
async fn term(process: &Process, leadership: &Leadership, mut stopped: watch::Receiver<bool>) -> bool {
    let at_work = leadership.work();
    let (end, ended) = watch::channel(false);
    let mut workers = JoinSet::new();
    process.work(&ended).into_iter().for_each(|task| drop(workers.spawn(task.future)));
    let workers = workers.join_all();
    tokio::pin!(workers);
    tokio::select! {
        _ = &mut workers => return false,
        () = leadership.ended() => {}
        // An end of the channel is a stop, too.
        _ = stopped.wait_for(|stop| *stop) => {}
    }
    end.send_replace(true);
    workers.await;
    process.cease();
    drop(at_work);
    true
}

/// The pause before the API server is asked again for the rights of mode `auto`, and the longest one.
const ASK_AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));

/// Resolves `auto`: assist, or observe where rights are missing. Every other mode
/// is taken at its word; what it lacks shows in /readyz. Asks until the API server answers: it may
/// start after us.
async fn effective_mode(asked: AskedMode, table: &[ControllerSpec], api: &Api) -> (Mode, String) {
    if let Some(mode) = asked.settled() {
        return (mode, "asked for".to_owned());
    }
    let assist = Rights::new(vec![(Scope::default(), controllers::rules(table, Mode::Assist))]);
    let missing = until_answered(async || assist.ask(api).await).await;
    if missing.is_empty() {
        (Mode::Assist, "no right is missing".to_owned())
    } else {
        (Mode::Observe, format!("missing: {}", missing.join(", ")))
    }
}

/// Asks until there is an answer.
async fn until_answered<T>(ask: impl AsyncFn() -> Result<T, Refusal>) -> T {
    let mut asked = 0;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => tracing::warn!(%error, "cannot ask for the rights of mode auto"),
        }
        tokio::time::sleep(ASK_AGAIN.pause(asked)).await;
        asked += 1;
    }
}

/// Not ready until the mode is known.
fn mode_check(settled: &Arc<AtomicBool>) -> Check {
    let settled = Arc::clone(settled);
    Box::new(move || {
        let why = || "the API server has not said yet which rights there are".to_owned();
        settled.load(Ordering::Relaxed).then_some(()).ok_or_else(why)
    })
}

/// Says which mode it is; returns what brings its gauge up to date. A process in mode own that yields to
/// another full writer does what mode assist does.
fn announce_mode(registry: &mut Registry, mode: Mode, why: &str) -> impl Fn(bool) + Send + Sync + use<> {
    tracing::info!(mode = mode.name(), why, "mode");
    let modes = Family::<Vec<(&'static str, &'static str)>, Gauge>::default();
    registry.register("dragoman_mode", "1 for the mode that is in force", modes.clone());
    move |yields| {
        let in_force = if yields { mode.min(Mode::Assist) } else { mode };
        for each in Mode::ALL {
            modes.get_or_create(&vec![("mode", each.name())]).set(i64::from(each == in_force));
        }
    }
}

fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "dragoman".to_owned());
    let started = jiff::Timestamp::now().as_nanosecond();
    format!("{host}_{started:x}_{}", std::process::id())
}

/// Registers with the admin server: a check, a dump and gauges for each controller.
fn register_admin(
    admin: &Admin,
    process: &Arc<Process>,
    rights: &Arc<Rights>,
    journal: &Journal,
    leadership: &Leadership,
) {
    let [dumped, measured, checked] = std::array::from_fn(|_| journal.clone());
    admin.dump("watches", move || dumped.dump());
    admin.refresh(Box::new(move || measured.measure()));
    let (standing, granted) = (leadership.clone(), Arc::clone(rights));
    admin.dump("lease", move || standing.in_words() + "\n");
    let in_words =
        |missing: Result<(), String>| missing.err().unwrap_or_else(|| "nothing is missing".to_owned());
    admin.dump("rights", move || in_words(granted.check()) + "\n");
    // A standby that does not see is none of the readiness of a Service: it does not stand.
    let leadership = leadership.clone();
    let check = move || if leadership.holds() { checked.ready() } else { Ok(()) };
    admin.check("watches", Box::new(check));
    let checked = Arc::clone(rights);
    admin.check("rights", Box::new(move || checked.check()));
    for controller in process.controllers() {
        let [checked, dumped, measured] = std::array::from_fn(|_| Arc::clone(controller));
        admin.check(controller.name(), Box::new(move || checked.ready()));
        admin.dump(controller.name(), move || dumped.dump());
        admin.refresh(Box::new(move || measured.measure()));
    }
}

/// Serves the endpoints.
async fn serve(
    supervisor: &mut Supervisor,
    config: &Config,
    api: &Api,
    admin: &Arc<Admin>,
) -> anyhow::Result<()> {
    let listener =
        admin::listen(config.admin_address, Endpoints::Public).await.map_err(anyhow::Error::msg)?;
    let name = format!("admin server on {}", config.admin_address);
    match &config.admin_tls {
        Some(files) => {
            let tls = Tls::read(files.certificate.clone(), files.key.clone());
            let tls = tls.map_err(anyhow::Error::msg).context("admin-tls-cert, admin-tls-key")?;
            let access = Access::new(api.clone());
            supervisor.spawn(name, admin::serve_guarded(listener, tls, access, Arc::clone(admin)));
        }
        None => supervisor.spawn(name, admin::serve(listener, Endpoints::Public, Arc::clone(admin))),
    }
    if let Some(address) = config.dump_address {
        let listener = admin::listen(address, Endpoints::Loopback).await.map_err(anyhow::Error::msg)?;
        let name = format!("admin server on {address}");
        supervisor.spawn(name, admin::serve(listener, Endpoints::Loopback, Arc::clone(admin)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_not_there_at_the_start_is_asked_until_it_is() {
        let asked = AtomicU32::new(0);
        let began = tokio::time::Instant::now();
        let ask = async || match asked.fetch_add(1, Ordering::Relaxed) {
            0..40 => Err(Refusal::Transient("connection refused".to_owned())),
            _ => Ok(7),
        };
        assert_eq!(until_answered(ask).await, 7);
        // 1, 2, 4, 8 seconds, then 15 each time.
        assert_eq!(began.elapsed(), Duration::from_secs(15 + 36 * 15));
    }
}
