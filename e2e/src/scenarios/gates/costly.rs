//! Claims that any tenant can create and that take long to decide on: they hold up their own namespace alone.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{FLAGS, gated, namespace, says};
use crate::client::{CLAIMS, LEASES, PODS, SLICES};
use crate::control_plane::Shape;
use crate::dragoman::Dragoman;
use crate::objects::{self, Pod};
use crate::scenarios::{Standalone, standalone};
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(selectors_that_take_long_hold_up_their_own_namespace_alone)]
}

const NODES: usize = 10;
const DEVICES: usize = 4;

/// Selectors that the API server accepts, each near what it allows: loops in loops, and patterns that are compiled for
/// longer than they run. No device satisfies the last one.
fn selectors() -> Vec<Value> {
    let ones = vec!["1"; 300].join(",");
    let looped = |number: usize| format!("[{ones}].all(x, [{ones}].all(y, x + y + {number} > 0))");
    let patterns = |number: usize| {
        let one = |pattern: usize| format!("!device.driver.matches('^\\\\w{{5,{}}}{number}')", 10 + pattern);
        (0..5).map(one).collect::<Vec<String>>().join(" && ")
    };
    let all = (0..10).map(looped).chain((0..10).map(patterns)).chain(["false".to_owned()]);
    all.map(|expression| json!({"cel": {"expression": expression}})).collect()
}

/// A process renews its Lease every two seconds. Where the operator takes twice as long, the machine is too slow for both, and a Lease
/// that the allocator loses says nothing about its searches.
const LATE: f64 = 4.0;

/// The longest time between two renewals of its Lease in the log of a process, in seconds.
fn slowest_renewal(log: &str) -> anyhow::Result<f64> {
    let renewals =
        log.lines().filter(|line| line.contains("write kind=\"Lease\"") && line.contains("outcome=\"Done\""));
    let times = renewals.map(|line| line.split_whitespace().next().unwrap_or_default().parse::<Timestamp>());
    let times = times.collect::<Result<Vec<_>, _>>()?;
    let gaps = times.windows(2).map(|pair| match pair {
        [before, after] => after.duration_since(*before).as_secs_f64(),
        _ => 0.0,
    });
    ensure!(times.len() > 5, "{} renewals were logged: that tells nothing", times.len());
    Ok(gaps.fold(0.0, f64::max))
}

/// Creates a claim that takes long to decide on, and its Pod.
pub async fn dear(world: &World, ns: &str, name: &str) -> anyhow::Result<()> {
    let mut claim = objects::claim(name);
    claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = json!(selectors());
    world.client.create(CLAIMS, ns, &claim).await?;
    world.client.create(PODS, ns, Pod::new(name).with_claim("device", name).held().object()).await?;
    Ok(())
}

/// The time that kubelet waits for the answer of a liveness probe (`timeoutSeconds` in config/components/allocator/deployment.yaml).
const PROBED: Duration = Duration::from_secs(5);

/// Does `work` while the process is probed; returns its result, with the longest time until `/livez` had answered.
async fn probed<T>(
    dragoman: &Dragoman,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<(T, Duration)> {
    let mut longest = Duration::ZERO;
    let mut pace = tokio::time::interval(Duration::from_millis(200));
    let probes = async {
        loop {
            pace.tick().await;
            let asked = Instant::now();
            let (code, said) = dragoman.liveness().await?;
            ensure!(code == 200, "/livez: {code} {said}");
            longest = longest.max(asked.elapsed());
        }
    };
    let done = tokio::select! {
        done = work => done?,
        failed = probes => return failed,
    };
    Ok((done, longest))
}

/// Pods of a neighbour, one after the other, each from creation to its end; returns the longest time until one ran.
async fn neighbours(world: &World, ns: &str, names: &str) -> anyhow::Result<f32> {
    let mut longest = 0.0_f32;
    for number in 0..5 {
        let name = format!("{names}-{number}");
        let created = Instant::now();
        world.client.create(PODS, ns, Pod::new(&name).with_template("device", "one").held().object()).await?;
        world.phase(ns, &name, "Running").await?;
        longest = longest.max(created.elapsed().as_secs_f32());
        world.let_end(ns, &name).await?;
    }
    Ok(longest)
}

async fn selectors_that_take_long_hold_up_their_own_namespace_alone(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "costly", Shape::default(), NODES).await?;
    for node in 0..NODES {
        // No verdict on one device is true for another.
        let device = |number: usize| json!({"name": format!("dev-{number}"), "attributes": {"number": {"int": node * DEVICES + number}}});
        let devices: Vec<Value> = (0..DEVICES).map(device).collect();
        let changed = json!({"spec": {"devices": devices}});
        world.client.merge(SLICES, "", &format!("node-{node}"), &changed).await?;
    }
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let (tenant, neighbour) =
        (namespace(&world, "costly", "enabled").await?, namespace(&world, "neighbour", "enabled").await?);
    let before = neighbours(&world, &neighbour, "before").await?;
    for name in ["dear", "dearer", "dearest"] {
        dear(&world, &tenant, name).await?;
    }
    let (beside, silent) = probed(&allocator, neighbours(&world, &neighbour, "beside")).await?;
    ensure!(silent < PROBED, "/livez answered after {silent:?} beside them");
    println!("        {}", world.event(&tenant, "dear", "TooLong").await?);
    says(&world, &tenant, "dear", "takes too long").await?;
    allocator.kill().await?;
    let allocator = world.allocator(&[]).await?;
    let after = neighbours(&world, &neighbour, "after").await?;
    println!(
        "        a neighbour ran after {before:.2} s at most, beside them after {beside:.2} s, with a new leader {after:.2} s; /livez took {silent:?} at most"
    );
    let lease = world.client.get(LEASES, "kube-system", "dragoman-allocator").await?.context("Lease")?;
    if lease["spec"]["leaseTransitions"] != 1 {
        let slowest = slowest_renewal(&operator.log())?;
        println!(
            "        the allocator lost its Lease; the operator, which searches nothing, took {slowest:.1} s for a renewal"
        );
        ensure!(slowest > LATE, "the allocator lost its Lease, and the operator did not: {lease}");
    }
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}
