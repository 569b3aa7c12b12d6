//! Gated Pods in company: on a real control plane, beside Pods of others that kube-scheduler brings to the same nodes. Every
//! event is recorded, replayed in the order of the API server, and held against the promises of docs/protocol.md 4.

mod load;
mod neighbourhood;
mod pods;
pub mod races;
mod record;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use dragoman_judge::promises::Cpus;
use dragoman_judge::record as judged;
use serde_json::{Value, json};

use self::neighbourhood::Spaces;
use self::record::Recorder;
use crate::client::{CLAIMS, PODS, TAINT_RULES};
use crate::control_plane::Shape;
use crate::dragoman::Dragoman;
use crate::objects::DRIVER;
use crate::scenarios::gates::room::holders;
use crate::scenarios::gates::{COUNTS, Costs, FLAGS, Size, gated_where, namespace};
use crate::wait;
use crate::world::{Bench, World};

/// The nodes of a run.
const NODES: usize = 6;
/// Six devices take nearly all that a node has, and eight more.
const SIZE: Size = Size { cpus: 32, devices: 8, each: 5 };
const CPUS: Cpus = Cpus { node: SIZE.cpus * 1_000, device: SIZE.each * 1_000, driver: DRIVER };
/// Claims that several Pods share.
const SHARED: usize = 4;
/// The node whose Pods are drained, and the one whose devices get a taint.
const DRAINED: &str = "node-1";
const BROKEN: &str = "node-2";

/// A kind of cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// kube-scheduler counts claims, and slices say what they take.
    CountedSlices,
    /// kube-scheduler counts claims, and a DeviceFootprint says what they take.
    CountedFootprints,
    /// kube-scheduler counts no claims.
    Held,
    /// The same, and no Pod of others is there.
    HeldAlone,
}

impl Kind {
    fn has_neighbours(self) -> bool {
        self != Self::HeldAlone
    }

    fn may_share(self) -> bool {
        self != Self::CountedSlices
    }

    fn counts(self) -> bool {
        matches!(self, Self::CountedSlices | Self::CountedFootprints)
    }

    fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Processes that are killed in the course of a run, in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kills {
    /// Nothing.
    None,
    /// Operator, allocator and kube-scheduler.
    Parties,
    /// These, and the API server.
    ApiServerToo,
}

/// Parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The kind of cluster.
    pub kind: Kind,
    /// The seed of its Pods.
    pub seed: u64,
    /// The number of Pods.
    pub pods: usize,
    /// Processes that are killed in turn.
    pub kills: Kills,
    /// The binary of another version: two operators run side by side, one of each, and an allocator that was killed is started again in
    /// the version that it was not.
    pub previous: Option<&'a Path>,
}

/// Runs every kind of cluster with `seeds` seeds from `first` on.
///
/// # Errors
/// A promise was broken.
pub async fn run(
    bench: &Bench,
    kinds: &[Kind],
    (first, seeds): (u64, u64),
    like: Run<'_>,
) -> anyhow::Result<()> {
    let all: &[Kind] = if kinds.is_empty() { Kind::value_variants() } else { kinds };
    let mut broken = 0;
    for kind in all {
        for seed in first..first + seeds {
            broken += one(bench, Run { kind: *kind, seed, ..like }).await?;
        }
    }
    ensure!(broken == 0, "{broken} promises were broken");
    Ok(())
}

/// Judges a record anew.
///
/// # Errors
/// A promise was broken.
pub fn replay(file: &Path) -> anyhow::Result<()> {
    let report = judged::judge(&judged::read(file)?, CPUS);
    report.broken.iter().for_each(|(promise, why)| println!("        {}: {why}", promise.word()));
    println!("{report}");
    ensure!(report.bound > 0, "{} records no binding", file.display());
    ensure!(report.broken.is_empty(), "{} promises were broken", report.broken.len());
    Ok(())
}

/// Plays a run; returns how many promises were broken.
pub async fn one(bench: &Bench, run: Run<'_>) -> anyhow::Result<usize> {
    let Run { kind, seed, pods, kills, previous } = run;
    let name = format!("company-{}", kind.word());
    let on: &[&str] = if kind.counts() { &[COUNTS] } else { &[] };
    let costs = if kind == Kind::CountedSlices { Costs::InSlices } else { Costs::InFootprint };
    let shape = Shape { on, pod_groups: true, controllers: &[neighbourhood::BINDER], ..Shape::default() };
    let mut world = gated_where(bench, &name, shape, (NODES, SIZE), costs).await?;
    let recorder = Recorder::start(&world.client);
    let spaces = Spaces {
        gated: namespace(&world, "company", "enabled").await?,
        others: world.namespace("neighbours").await?,
        release: world.release,
    };
    let foreign = neighbourhood::prepare(&world, &spaces).await?;
    let mut parties = Parties::start(&mut world, previous).await?;
    let client = world.client.clone();
    let ended = load::run(&client, &spaces, kind, (seed, pods), async |created| {
        disturb(&world, &spaces, created, pods).await?;
        // Another one each time, seven times a run.
        if kills != Kills::None && created % (pods / 8).max(1) == 0 {
            parties.kill(&mut world, kills).await
        } else {
            Ok(())
        }
    })
    .await;
    let ended = match ended {
        Ok(()) => nothing_is_left(&world, &spaces).await,
        failed => failed,
    };
    let events = recorder.events(parties.starts)?;
    let file = bench.output.join(format!("{name}-{seed}.jsonl"));
    judged::write(&events, &file)?;
    parties.stop().await?;
    foreign.kill().await?;
    let report = judged::judge(&events, CPUS);
    // A record without bindings breaks no promise.
    ensure!(
        ended.is_err() || report.bound * 2 > pods,
        "{} bindings of {pods} Pods were recorded",
        report.bound
    );
    for (promise, why) in &report.broken {
        println!("        {}: {why}", promise.word());
    }
    println!("{}, seed {seed}, kills {kills:?}: {report}", kind.word());
    println!("        record: {}", file.display());
    ended.with_context(|| format!("record: {}", file.display()))?;
    world.stop().await?;
    Ok(report.broken.len())
}

/// Waits until no device is allocated to Pods that have ended, and nothing holds room for them.
async fn nothing_is_left(world: &World, spaces: &Spaces) -> anyhow::Result<()> {
    wait::value("no claim has devices or consumers, and no holder is left", async || {
        let mut left = holders(world).await?;
        for namespace in [&spaces.gated, &spaces.others] {
            let claims = world.client.list(CLAIMS, namespace).await?;
            let is_taken = |claim: &Value| {
                let status = &claim["status"];
                !status["allocation"].is_null()
                    || status["reservedFor"].as_array().is_some_and(|all| !all.is_empty())
            };
            left.extend(claims.into_iter().filter(is_taken));
        }
        Ok(left.is_empty().then_some(()))
    })
    .await
}

/// In the middle of a run a node is tainted, then drained, and given back. In the same time the devices of another node get a
/// taint that evicts the Pods which have them, for as long as a quarter of the Pods comes.
async fn disturb(world: &World, spaces: &Spaces, created: usize, pods: usize) -> anyhow::Result<()> {
    let client = &world.client;
    let taints = match created {
        _ if created == pods * 9 / 16 => {
            let spec = json!({"deviceSelector": {"driver": DRIVER, "pool": BROKEN},
                "taint": {"key": "e2e.dragoman.dev/broken", "effect": "NoExecute"}});
            let rule = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule",
                "metadata": {"name": BROKEN}, "spec": spec});
            client.create(TAINT_RULES, "", &rule).await?;
            return Ok(());
        }
        _ if created == pods * 13 / 16 => return client.delete(TAINT_RULES, "", BROKEN, None).await,
        _ if created == pods / 2 => json!([{"key": "drain", "effect": "NoSchedule"}]),
        _ if created == pods * 5 / 8 => return drain(world, spaces, DRAINED).await,
        _ if created == pods * 3 / 4 => json!(null),
        _ => return Ok(()),
    };
    client.merge("/api/v1/nodes", "", DRAINED, &json!({"spec": {"taints": taints}})).await?;
    Ok(())
}

/// Deletes the Pods of a node.
async fn drain(world: &World, spaces: &Spaces, node: &str) -> anyhow::Result<()> {
    for namespace in [&spaces.gated, &spaces.others] {
        for pod in world.client.list(PODS, namespace).await? {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            if pod["spec"]["nodeName"] == node && !name.starts_with("fixed-") {
                world.client.delete(PODS, namespace, name, None).await?;
            }
        }
    }
    Ok(())
}

/// The operators and the allocator.
struct Parties {
    /// One; two of different versions while an upgrade is under way.
    operators: VecDeque<Dragoman>,
    allocator: Option<Dragoman>,
    /// The versions of the operators, in the order in which the processes were started, and those of the allocator: the one that runs, and the
    /// other.
    versions: [[PathBuf; 2]; 2],
    /// Whether two operators run, and one of them has the Lease.
    are_two: bool,
    kills: usize,
    /// Number of starts of the API server.
    starts: usize,
}

const OPERATOR: [&str; 3] = [FLAGS[0], FLAGS[1], "--without-lease"];
// Without a Lease nothing waits until that of a dead process ends.
const ALLOCATOR: [&str; 1] = ["--without-lease"];

impl Parties {
    /// With another version, an upgrade is under way: an operator of that version leads beside one of the version under test, and the
    /// allocator is of that under test.
    async fn start(world: &mut World, previous: Option<&Path>) -> anyhow::Result<Self> {
        let tested = world.bench.binary.clone();
        let previous = previous.map_or_else(|| tested.clone(), Path::to_path_buf);
        let are_two = previous != tested;
        let versions = [[previous.clone(), tested.clone()], [tested, previous]];
        let (operators, allocator) = (VecDeque::new(), None);
        let mut parties = Self { operators, allocator, versions, are_two, kills: 0, starts: 1 };
        parties.start_operator(world).await?;
        if are_two {
            parties.start_operator(world).await?;
        }
        parties.start_allocator(world).await?;
        Ok(parties)
    }

    async fn start_operator(&mut self, world: &mut World) -> anyhow::Result<()> {
        let [versions, _] = &mut self.versions;
        world.bench.binary.clone_from(&versions[0]);
        versions.swap(0, 1);
        // The first of two has the Lease, and the other one is ready as a standby.
        let flags = if self.are_two { &FLAGS[..] } else { &OPERATOR[..] };
        self.operators.push_back(world.dragoman("own", flags).await?);
        Ok(())
    }

    async fn start_allocator(&mut self, world: &mut World) -> anyhow::Result<()> {
        let [_, versions] = &mut self.versions;
        world.bench.binary.clone_from(&versions[0]);
        versions.swap(0, 1);
        self.allocator = Some(world.allocator(&ALLOCATOR).await?);
        Ok(())
    }

    /// Kills operator, allocator, kube-scheduler or API server, and starts it again.
    async fn kill(&mut self, world: &mut World, kills: Kills) -> anyhow::Result<()> {
        self.kills += 1;
        match self.kills % if kills == Kills::ApiServerToo { 4 } else { 3 } {
            1 => {
                // The older one of two has the Lease: it goes to the other version.
                self.operators.pop_front().context("the operator runs")?.kill().await?;
                self.start_operator(world).await?;
            }
            2 => {
                self.allocator.take().context("the allocator runs")?.kill().await?;
                self.start_allocator(world).await?;
            }
            0 if kills == Kills::ApiServerToo => {
                self.starts += 1;
                world.plane.restart_apiserver(|_| {}).await?;
            }
            _ => world.plane.restart_scheduler().await?,
        }
        Ok(())
    }

    async fn stop(self) -> anyhow::Result<()> {
        for party in self.allocator.into_iter().chain(self.operators) {
            party.stop().await?;
        }
        Ok(())
    }
}
