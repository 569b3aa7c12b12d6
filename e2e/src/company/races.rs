//! Races of a gated Pod with an ordinary one for all the cpus of a node: one runs, and the other says why it waits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dragoman_judge::promises::{Cpus, is_bound, is_gated};
use dragoman_judge::record as judged;
use fastrand::Rng;
use serde_json::Value;

use super::record::Recorder;
use super::{Kind, OPERATOR, pods};
use crate::client::{CLAIMS, Client, PODS};
use crate::control_plane::Shape;
use crate::objects::{DRIVER, Pod};
use crate::scenarios::accounts::requesting;
use crate::scenarios::gates::company::own;
use crate::scenarios::gates::{COUNTS, Costs, Size, gated_where, namespace};
use crate::wait;
use crate::world::Bench;

/// Nodes, on each of which one race is run at a time.
const TRACKS: usize = 16;
const SIZE: Size = Size { cpus: 8, devices: 1, each: 3 };
const CPUS: Cpus = Cpus { node: SIZE.cpus * 1_000, device: SIZE.each * 1_000, driver: DRIVER };
/// The gated Pod requests the rest of the node beside what its device takes, the ordinary one the whole node.
const REQUESTS: [&str; 2] = ["5", "8"];
/// Longest time between the creations of both Pods, in milliseconds: the gated Pod needs some tenths of a
/// second until it is nominated.
const LATER: u64 = 600;

/// Results of the races.
#[derive(Debug, Default)]
struct Results {
    /// The gated Pod won.
    gated: usize,
    /// The ordinary Pod won.
    ordinary: usize,
    /// The gated Pod had been released, and lost.
    released: usize,
    /// From the moment in which the winner was seen until the loser said why it waits.
    said: Vec<Duration>,
}

/// Runs `count` races in each kind of cluster with neighbours.
///
/// # Errors
/// Both Pods of a race run, or a promise is broken.
pub async fn run(bench: &Bench, kinds: &[Kind], seed: u64, count: usize) -> anyhow::Result<()> {
    let all = [Kind::CountedFootprints, Kind::Held, Kind::CountedSlices];
    for kind in all.into_iter().filter(|kind| kinds.is_empty() || kinds.contains(kind)) {
        one(bench, kind, seed, count).await?;
    }
    Ok(())
}

async fn one(bench: &Bench, kind: Kind, seed: u64, count: usize) -> anyhow::Result<()> {
    let on: &[&str] = if kind.counts() { &[COUNTS] } else { &[] };
    let costs = if kind == Kind::CountedSlices { Costs::InSlices } else { Costs::InFootprint };
    let shape = Shape { on, ..Shape::default() };
    let name = format!("races-{}", kind.word());
    let world = gated_where(bench, &name, shape, (TRACKS, SIZE), costs).await?;
    let recorder = Recorder::start(&world.client);
    let space = namespace(&world, "races", "enabled").await?;
    own(&world, DRIVER, "dragoman-allocator").await?;
    let (operator, allocator) =
        (world.dragoman("own", &OPERATOR).await?, world.allocator(&super::ALLOCATOR).await?);
    let started = Instant::now();
    let tracks = (0..TRACKS).map(|track| {
        let races = count / TRACKS + usize::from(track < count % TRACKS);
        along(&world.client, &space, track, Rng::with_seed(seed + track as u64), races)
    });
    let mut results = Results::default();
    for track in futures::future::try_join_all(tracks).await? {
        results.gated += track.gated;
        results.ordinary += track.ordinary;
        results.released += track.released;
        results.said.extend(track.said);
    }
    let events = recorder.events(1)?;
    judged::write(&events, &bench.output.join(format!("{name}.jsonl")))?;
    for party in [allocator, operator] {
        party.stop().await?;
    }
    let report = judged::judge(&events, CPUS);
    report.broken.iter().for_each(|(promise, why)| println!("        {}: {why}", promise.word()));
    println!("{}: {results} in {} s; {report}", kind.word(), started.elapsed().as_secs());
    ensure!(report.broken.is_empty(), "{} promises were broken", report.broken.len());
    ensure!(report.moved == 0, "{} allocations were moved", report.moved);
    ensure!(results.gated + results.ordinary == count, "{count} races had {results}");
    world.stop().await
}

/// Runs races one after the other on a node.
async fn along(
    client: &Client,
    space: &str,
    track: usize,
    mut rng: Rng,
    races: usize,
) -> anyhow::Result<Results> {
    let mut results = Results::default();
    for race in 0..races {
        let names = ["gated", "ordinary"].map(|role| format!("{role}-{track}-{race}"));
        let [mut gated, mut ordinary] = [0, 1].map(|of| {
            let pod = Pod::new(names.get(of).map_or("", String::as_str)).held();
            let pod = if of == 0 { pod.with_template("device", "one") } else { pod };
            requesting(&pod, REQUESTS.get(of).copied().unwrap_or_default())
        });
        for pod in [&mut gated, &mut ordinary] {
            pods::of_a_daemon_set(pod, track);
        }
        // A namespace with gating gives the gate to Pods with claims alone.
        let later = Duration::from_millis(rng.u64(..LATER));
        let order = if rng.bool() { [&gated, &ordinary] } else { [&ordinary, &gated] };
        client.create(PODS, space, order[0]).await?;
        tokio::time::sleep(later).await;
        client.create(PODS, space, order[1]).await?;
        judge(client, space, &names, &mut results).await?;
        for name in &names {
            client.delete(PODS, space, name, Some(0)).await?;
        }
        wait::value(&format!("the track of {} is clear", names[0]), async || {
            let is_of = |claim: &Value| claim["metadata"]["ownerReferences"][0]["name"] == *names[0];
            let left = client.list(CLAIMS, space).await?.iter().any(is_of);
            Ok((!left).then_some(()))
        })
        .await?;
    }
    Ok(results)
}

/// Waits until one Pod runs and the other says why it does not.
async fn judge(
    client: &Client,
    space: &str,
    names: &[String; 2],
    results: &mut Results,
) -> anyhow::Result<()> {
    let look = async || {
        let mut found = BTreeMap::new();
        for pod in client.list(PODS, space).await? {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            found.insert(name, pod);
        }
        anyhow::Ok(names.each_ref().map(|name| found.get(name).cloned().unwrap_or_default()))
    };
    wait::value(&format!("one of {} runs", names.join(" and ")), async || {
        Ok(look().await?.iter().any(is_bound).then_some(()))
    })
    .await?;
    let since = Instant::now();
    let [gated, ordinary] =
        wait::value(&format!("the other of {} says why", names.join(" and ")), async || {
            let both = look().await?;
            ensure!(!both.iter().all(is_bound), "{} are both bound", names.join(" and "));
            let says = both.iter().any(|pod| !is_bound(pod) && why(pod).is_some());
            Ok(says.then_some(both))
        })
        .await?;
    results.said.push(since.elapsed());
    results.gated += usize::from(is_bound(&gated));
    results.ordinary += usize::from(is_bound(&ordinary));
    results.released += usize::from(is_bound(&ordinary) && !is_gated(&gated));
    Ok(())
}

/// Why a Pod waits, as its status says.
fn why(pod: &Value) -> Option<&str> {
    let kind =
        if pod["spec"]["resourceClaims"].is_array() { "dragoman.dev/ClaimsReady" } else { "PodScheduled" };
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let said = conditions.find(|of| of["type"] == kind && of["status"] == "False")?;
    said["message"].as_str().filter(|message| !message.is_empty())
}

impl std::fmt::Display for Results {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut said = self.said.clone();
        said.sort_unstable();
        let at = |percent: usize| said.get(said.len() * percent / 100).copied().unwrap_or_default();
        write!(
            f,
            "{} races: the gated Pod won {}, the ordinary one {}, {} of them after the release of the gated one; the loser \
             said why after {:.1} s (median), {:.1} s (99 of 100)",
            self.gated + self.ordinary,
            self.gated,
            self.ordinary,
            self.released,
            at(50).as_secs_f64(),
            at(99).as_secs_f64()
        )
    }
}
