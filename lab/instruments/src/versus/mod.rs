//! The same load on the same control plane with the built-in claim controller, with raised and with
//! default client limits, and with Dragoman. The benchmark prints figures and gives no verdict.

mod figures;
mod overload;
mod watch;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use serde_json::{Value, json};

use dragoman_e2e::client::{CLAIMS, FOOTPRINTS, PODS};
use dragoman_e2e::control_plane::{Garbage, Shape};
use dragoman_e2e::dragoman::{Dragoman, Start};
use dragoman_e2e::objects::{DRIVER, Pod};
use dragoman_e2e::usage::Usage;
use dragoman_e2e::world::{Bench, World};
use figures::Column;
pub(crate) use overload::run as overload;
use watch::Clock;

/// The size of the load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// The number of Pods that run from creation to deletion.
    pub pods: usize,
    /// The number of gated Pods that are created in one burst.
    pub gated: usize,
    /// The number of completed Pods that are kept.
    pub completed: usize,
    /// Time for which the completed Pods are watched.
    pub idle: Duration,
    /// The number of measurements of the lives; everything else is measured once.
    pub runs: usize,
}

const SIDES: [Side; 6] = [
    Side::BuiltInRaised,
    Side::BuiltInDefault,
    Side::Dragoman,
    Side::DragomanBornProtected,
    Side::DragomanClaimsOnly,
    Side::DragomanGated,
];

/// The controller that owns the lifecycle of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    BuiltInRaised,
    BuiltInDefault,
    Dragoman,
    DragomanBornProtected,
    /// Neither the ledger nor Pod status.
    DragomanClaimsOnly,
    /// Pods with the gate, and the reference allocator.
    DragomanGated,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::BuiltInRaised => "built-in, 5000 qps",
            Self::BuiltInDefault => "built-in, default",
            Self::Dragoman => "dragoman",
            Self::DragomanBornProtected => "dragoman, born protected",
            Self::DragomanClaimsOnly => "dragoman, claims only",
            Self::DragomanGated => "dragoman, gated",
        }
    }

    fn shape(self) -> Shape {
        let built_in = matches!(self, Self::BuiltInRaised | Self::BuiltInDefault);
        let built_in_qps = (self != Self::BuiltInDefault).then_some(5000);
        Shape { built_in, built_in_qps, garbage: Garbage::AsShipped, ..Shape::default() }
    }
}

const NODES: usize = 100;
const DEVICES: usize = 32;
/// Requests of the load generator in flight.
const AT_ONCE: usize = 32;

/// Runs the sides whose name contains one of `only`, or all of them, and prints the table.
pub(crate) async fn run(bench: &Bench, load: Load, only: &[String]) -> anyhow::Result<()> {
    let mut columns: Vec<Column> = Vec::new();
    // The sides take turns, so that other load on the machine affects all of them alike.
    for round in 0..load.runs {
        let is_asked = |side: &Side| only.is_empty() || only.iter().any(|part| side.name().contains(part));
        let sides = SIDES.into_iter().filter(is_asked);
        for (position, side) in sides.enumerate() {
            let column = measure(bench, side, load, round == 0).await.with_context(|| side.name())?;
            match columns.get_mut(position) {
                Some(known) => known.merge(column),
                None => columns.push(column),
            }
        }
    }
    println!("{}", figures::table(&columns));
    Ok(())
}

async fn measure(bench: &Bench, side: Side, load: Load, all: bool) -> anyhow::Result<Column> {
    let directory = format!("versus-{}", side.name().replace([' ', ','], ""));
    let world = World::start(bench, &directory, side.shape(), NODES, DEVICES).await?;
    // Every device takes a cpu from its node.
    world.client.create(FOOTPRINTS, "", &footprint()).await?;
    let flags: Option<&[&str]> = match side {
        Side::Dragoman => Some(&[]),
        Side::DragomanBornProtected => Some(&["--born-protected"]),
        Side::DragomanClaimsOnly => Some(&["--controllers", "claim_lifecycle"]),
        Side::DragomanGated => {
            world.install("config/gated").await?;
            Some(&["--controllers=*,gates,holders", "--default-allocator=dragoman", "--born-protected"])
        }
        Side::BuiltInRaised | Side::BuiltInDefault => None,
    };
    let dragoman = match flags {
        // The default log level, as in production.
        Some(flags) => {
            let start =
                Start { log: "info", ..world.start_of(world.plane.kubeconfig("operator"), "own", flags) };
            Some(Dragoman::start(&start).await?)
        }
        None => None,
    };
    let allocator = match side {
        Side::DragomanGated => {
            Some(Dragoman::start(&Start { log: "info", ..world.allocator_start(&[]) }).await?)
        }
        _ => None,
    };
    let ours = Ours { dragoman: dragoman.as_ref(), allocator: allocator.as_ref() };
    let mut column = Column::new(side.name());
    // Default client limits make lives slow, so that fewer of them are measured.
    let slow = side == Side::BuiltInDefault;
    lives(&world, ours, if slow { load.pods.min(400) } else { load.pods }, &mut column).await?;
    if let Some(dragoman) = dragoman.as_ref().filter(|_| side != Side::DragomanClaimsOnly) {
        let published = dragoman.metric("dragoman_ledger_published_total", &[]).await?;
        #[expect(clippy::cast_precision_loss, reason = "a count of Pods")]
        column.figure("ledgers of nodes published per life", published / load.pods as f64, 2);
    }
    if all && matches!(side, Side::BuiltInRaised | Side::Dragoman) {
        gated(&world, ours, load.gated, &mut column).await?;
        completed(&world, load.completed, load.idle, &mut column).await?;
    }
    if let Some(allocator) = allocator {
        allocator.stop().await?;
    }
    if let Some(dragoman) = dragoman {
        dragoman.stop().await?;
    }
    world.stop().await?;
    Ok(column)
}

/// The processes of Dragoman.
#[derive(Clone, Copy)]
struct Ours<'a> {
    dragoman: Option<&'a Dragoman>,
    allocator: Option<&'a Dragoman>,
}

fn usage(world: &World, ours: Ours<'_>) -> anyhow::Result<Vec<(&'static str, Usage)>> {
    let mut pids = world.plane.pids();
    pids.extend(ours.dragoman.and_then(Dragoman::pid).map(|pid| ("dragoman", pid)));
    pids.extend(ours.allocator.and_then(Dragoman::pid).map(|pid| ("allocator", pid)));
    pids.into_iter().map(|(name, pid)| Ok((name, Usage::of(pid)?))).collect()
}

async fn create(world: &World, ns: &str, pods: impl Iterator<Item = Pod>) -> anyhow::Result<()> {
    let mut made = futures::stream::iter(pods.map(|pod| async move { world.pod(ns, &pod).await }))
        .buffer_unordered(AT_ONCE);
    while let Some(outcome) = made.next().await {
        outcome?;
    }
    Ok(())
}

async fn lives(world: &World, ours: Ours<'_>, count: usize, column: &mut Column) -> anyhow::Result<()> {
    let ns = if ours.allocator.is_some() {
        dragoman_e2e::scenarios::gated_namespace(world, "lives").await?
    } else {
        world.namespace("lives").await?
    };
    let clock = Clock::start(world.client.kube.clone(), &ns);
    let before = usage(world, ours)?;
    let started = Instant::now();
    create(
        world,
        &ns,
        (0..count).map(|i| Pod::new(&format!("pod-{i}")).with_template("gpu", "one").reaped()),
    )
    .await?;
    dragoman_e2e::wait::until("every life is over", async || clock.lives() == count).await?;
    let took = started.elapsed();
    let after = usage(world, ours)?;
    ensure!(world.client.list(CLAIMS, &ns).await?.is_empty(), "claims are left");
    #[expect(clippy::cast_precision_loss, reason = "a count of Pods")]
    let pods = count as f64;
    column.figure("lives", pods, 0);
    column.figure("lives per second", pods / took.as_secs_f64(), 1);
    column.figure("Pods bound per second", pods / clock.until_bound().as_secs_f64(), 1);
    column.latencies(&clock);
    column.cpu(&before, &after, pods);
    world.rest(&ns).await?;
    column.writes(&world.plane.audit().entries(&ns), pods);
    Ok(())
}

fn footprint() -> Value {
    json!({
        "apiVersion": "dragoman.dev/v1alpha1", "kind": "DeviceFootprint", "metadata": {"name": "cores"},
        "spec": {"driver": DRIVER, "resources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}}},
    })
}

async fn gated(world: &World, ours: Ours<'_>, count: usize, column: &mut Column) -> anyhow::Result<()> {
    let ns = world.namespace("gated").await?;
    let before = usage(world, ours)?;
    let started = Instant::now();
    create(world, &ns, (0..count).map(|i| Pod::new(&format!("pod-{i}")).with_template("gpu", "one").gated()))
        .await?;
    let all = async || {
        let entries = world.plane.audit().entries(&ns);
        entries.iter().filter(|e| e.what() == "patch pods/status" && e.party() != "test").count() >= count
    };
    dragoman_e2e::wait::slowly("every gated Pod has its claim", all).await?;
    let took = started.elapsed();
    let claims = world.client.list(CLAIMS, &ns).await?.len();
    ensure!(claims == count, "{claims} claims for {count} gated Pods");
    let after = usage(world, ours)?;
    #[expect(clippy::cast_precision_loss, reason = "a count of Pods")]
    let pods = count as f64;
    column.figure("gated Pods at once", pods, 0);
    column.figure("claims per second for them", pods / took.as_secs_f64(), 0);
    let controller = if ours.dragoman.is_some() { "dragoman" } else { "kube-controller-manager" };
    column.controller(controller, &before, &after, pods);
    Ok(())
}

/// Measures the writes about the claims of completed Pods while nothing else happens.
async fn completed(world: &World, count: usize, idle: Duration, column: &mut Column) -> anyhow::Result<()> {
    let ns = world.namespace("completed").await?;
    create(world, &ns, (0..count).map(|i| Pod::new(&format!("pod-{i}")).with_template("gpu", "one"))).await?;
    let ended = async || {
        let path = format!(
            "{}?limit=1&fieldSelector=status.phase%21%3DSucceeded",
            dragoman_e2e::client::path(PODS, &ns)
        );
        world.client.text(&path).await.is_ok_and(|text| text.contains("\"items\":[]"))
    };
    dragoman_e2e::wait::slowly("all have completed", ended).await?;
    let writes = || {
        world.plane.audit().entries(&ns).iter().filter(|e| e.object_ref.resource == "resourceclaims").count()
    };
    // Waits for the last writes of the lives: until five seconds pass without one, but at most a minute,
    // because the built-in controller never comes to rest.
    let (mut before, mut quiet) = (writes(), 0);
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = writes();
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
        if quiet == 5 {
            break;
        }
    }
    tokio::time::sleep(idle).await;
    #[expect(clippy::cast_precision_loss, reason = "a count of writes")]
    let idle_writes = (writes() - before) as f64;
    column.figure(
        &format!("claim writes in {} s with {count} completed Pods", idle.as_secs()),
        idle_writes,
        0,
    );
    Ok(())
}
