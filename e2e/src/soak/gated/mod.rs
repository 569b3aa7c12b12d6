//! Runs of gated Pods: the operator with claim gates and the reference allocator, each behind a door with
//! faults of its own, on a simulated cluster whose nodes have fewer cpus than their devices take.

mod judge;

use std::sync::Arc;
use std::time::Duration;

use dragoman_crds::crdgen;
use dragoman_machinery::api::Limits;
use dragoman_machinery::clock;
use dragoman_machinery::connect::within;
use dragoman_machinery::controller::{ControllerSpec, Embedded};
use dragoman_reconcilers::cluster::SharedCluster;
use dragoman_reconcilers::protocol::GATE;
use dragoman_reconcilers::{allocation, claim_lifecycle, gates, holders, ledger, pod_status};
use dragoman_simcluster::{
    ApiServer, Clock, Door, Driver, FaultyDoor, HistoryStep, Kubelet, Pace, Profile, Scheduler, User,
};
use fastrand::Rng;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::case::{Case, Outcome, Play, SOON, endless, faults, panicked};
use super::hand::{Hand, NAMESPACE};
use super::workload::{self, LINGERS, SPAN};
use crate::objects::{self, Pod};

/// The cpus that a device takes from its node. A node of 64 has room for three of its four devices.
const CORES: i64 = 20;
/// Devices of a node.
const DEVICES: usize = 4;
/// The most faults of each party.
const MOST_FAULTS: usize = 10;
/// The name of our allocator.
const OURS: &str = "ours";
/// A gate of another owner.
const FOREIGN: &str = "soak.dragoman.dev/gate";
/// Keys in work at once.
const WORKERS: usize = 8;
/// The user of the operator.
const OPERATOR: &str = "dragoman";

/// An action of a run.
#[derive(Debug, Clone)]
pub(super) enum Deed {
    /// An action of the life of claims.
    Life(workload::Action),
    /// Removes the gate of the other owner from a Pod.
    Open(String),
    /// Closes a gate of a claim, or opens it.
    Gate { claim: String, gate: &'static str, closed: bool },
    /// Names the allocator of a claim, or none.
    Label(String, Option<&'static str>),
    /// Writes an annotation of the protocol that says nothing or lies.
    Scribble(String, &'static str, &'static str),
    /// Kills a party, and starts it after this time.
    Crash(Party, Duration),
    /// Starts another instance of a party. The older one stops after this time.
    Takeover(Party, Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    Operator,
    Allocator,
}

const GATES: [&str; 2] = ["allocation-gates.dragoman.dev/soak", "release-gates.dragoman.dev/soak"];
const LIES: [(&str, &str); 3] = [
    ("dragoman.dev/verdict", "{"),
    (
        "dragoman.dev/rejections",
        r#"[{"node":"node-0","reason":"a lie","revision":9,"time":"2999-01-01T00:00:00Z"}]"#,
    ),
    ("dragoman.dev/rejections", "[1, 2"),
];

type Script = Vec<(Duration, Deed)>;

fn at(rng: &mut Rng, from: Duration) -> Duration {
    from + SPAN.saturating_sub(from).mul_f64(rng.f64())
}

/// A claim that is there from the start: two Pods may share it.
fn shared(number: usize) -> String {
    format!("shared-{number}")
}

fn pod(rng: &mut Rng, name: &str) -> Value {
    let mut pod = Pod::new(name);
    for entry in 0..rng.usize(1..=2) {
        let name = format!("entry-{entry}");
        pod = match rng.u32(..4) {
            0 => pod.with_claim(&name, &shared(rng.usize(..2))),
            _ => pod.with_template(&name, "one"),
        };
    }
    let mut pod = pod.object().clone();
    let other = rng.u32(..8) == 0;
    let gates: Vec<Value> = [Some(GATE), other.then_some(FOREIGN)]
        .into_iter()
        .flatten()
        .map(|gate| json!({"name": gate}))
        .collect();
    pod["spec"]["schedulingGates"] = gates.into();
    pod["spec"]["terminationGracePeriodSeconds"] = json!(rng.u32(..4));
    let cpu = format!("{}m", 1_000 * rng.u32(..6));
    pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": cpu});
    pod
}

fn life(rng: &mut Rng, number: usize, script: &mut Script) {
    use workload::Action as Life;
    let name = format!("pod-{number}");
    let begins = at(rng, Duration::ZERO);
    let object = pod(rng, &name);
    if object["spec"]["schedulingGates"].to_string().contains(FOREIGN) {
        script.push((at(rng, begins), Deed::Open(name.clone())));
    }
    script.push((begins, Deed::Life(Life::Pod(Box::new(object)))));
    for _ in 0..rng.usize(..2) {
        let (when, name) = (at(rng, begins), name.clone());
        let action = match rng.u32(..6) {
            0 => Life::DeletePod(name),
            1 => Life::Vanish(name),
            2 => Life::DeleteClaimOf(name),
            3 => Life::Fail(name),
            4 => Life::WipeStatus(name),
            _ => {
                script.push((when, Deed::Life(Life::Vanish(name.clone()))));
                script.push((at(rng, when), Deed::Open(name.clone())));
                Life::Pod(Box::new(pod(rng, &name)))
            }
        };
        script.push((when, Deed::Life(action)));
    }
}

/// What people and gate owners do to a claim; in the end every gate is open and the label names us.
fn meddle(rng: &mut Rng, number: usize, script: &mut Script) {
    let claim = shared(number);
    for _ in 0..rng.usize(..3) {
        let when = at(rng, Duration::ZERO);
        let until = at(rng, when);
        match rng.u32(..3) {
            0 => {
                let gate = if rng.bool() { GATES[0] } else { GATES[1] };
                script.push((when, Deed::Gate { claim: claim.clone(), gate, closed: true }));
                script.push((until, Deed::Gate { claim: claim.clone(), gate, closed: false }));
            }
            1 => {
                let other = rng.bool().then_some("nowhere");
                script.push((when, Deed::Label(claim.clone(), other)));
                script.push((until, Deed::Label(claim.clone(), Some(OURS))));
            }
            _ => {
                let (key, lie) = LIES.get(rng.usize(..LIES.len())).copied().unwrap_or_default();
                script.push((when, Deed::Scribble(claim.clone(), key, lie)));
            }
        }
    }
}

impl Play for Deed {
    fn draw(seed: u64) -> Case<Self> {
        let mut rng = Rng::with_seed(seed);
        let mut script: Script = Vec::new();
        for number in 0..2 {
            meddle(&mut rng, number, &mut script);
        }
        (0..rng.usize(2..=10)).for_each(|number| life(&mut rng, number, &mut script));
        for _ in 0..rng.usize(..4) {
            let party = if rng.bool() { Party::Operator } else { Party::Allocator };
            let end = match rng.u32(..3) {
                0 => Deed::Takeover(party, Duration::from_millis(rng.u64(..20_000))),
                _ => Deed::Crash(party, Duration::from_millis(rng.u64(..10_000))),
            };
            script.push((at(&mut rng, Duration::ZERO), end));
        }
        script.sort_by_key(|(when, _)| *when);
        Case { seed, script, schedule: faults(&mut rng, MOST_FAULTS) }
    }

    async fn play(case: &Case<Self>) -> Outcome {
        let began = Instant::now();
        let clock = Clock::runtime();
        clock::bind(clock.now());
        // Half of the clusters keep what claims take in the status of Pods.
        let is_kept = case.seed.is_multiple_of(2);
        let on = is_kept.then(|| "DRANodeAllocatableResources".to_owned()).into_iter().collect();
        let server = ApiServer::new(Profile { on, ..Profile::default() }, clock, case.seed);
        server.chronicle();
        let hand = Hand { door: Door::new(server.clone(), User::admin()), groups: false, lends: false };
        populate(&hand);
        let pace = Pace { run: Duration::from_secs(1 + case.seed % 20), ..Pace::default() };
        let others = [
            tokio::spawn(server.clone().collect()),
            tokio::spawn(Driver::new(server.clone(), objects::DRIVER, DEVICES).run()),
            tokio::spawn(Scheduler::new(server.clone()).run()),
            tokio::spawn(Kubelet::new(server.clone(), pace, case.seed).run()),
        ];
        let mut rng = Rng::with_seed(case.seed ^ 1);
        let mut parties = [Party::Operator, Party::Allocator].map(|party| {
            let name = if party == Party::Operator { OPERATOR } else { "allocator" };
            let user = User { name: name.to_owned(), groups: vec!["system:masters".to_owned()] };
            // The faults of the operator are those of the case; a smaller case has them of the allocator, too.
            let schedule = if party == Party::Operator {
                case.schedule.clone()
            } else {
                mirrored(&case.schedule, &mut rng)
            };
            let rival = hand.clone();
            let rival = Arc::new(move |path: &str| rival.touch(path));
            let door = FaultyDoor::new(Door::new(server.clone(), user), schedule, rival);
            Side { party, instances: vec![start(&door, party)], door }
        });
        for (when, step) in timeline(&case.script) {
            sleep_until(began + when).await;
            step.take(&hand, &mut parties);
        }
        sleep_until(began + SPAN + SOON).await;
        let struck = parties.iter().map(|side| side.door.struck().len()).sum();
        let panicked = panicked();
        let doors = parties.each_ref().map(|side| side.door.clone());
        drop(parties);
        others.iter().for_each(tokio::task::JoinHandle::abort);
        let chronicle = server.chronicled(0);
        let mut history = doors.iter().flat_map(FaultyDoor::history).collect::<Vec<_>>();
        history.push(format!("{} steps", chronicle.len()));
        Outcome {
            broken: panicked
                .or_else(|| doors.iter().find_map(endless))
                .or_else(|| judge::broken(&chronicle, &two_leaders(case, &chronicle)))
                .or_else(|| judge::at_the_end(&server)),
            succeeded: judge::succeeded(&server),
            history,
            struck,
            lasted: began.elapsed().as_secs(),
        }
    }
}

/// The same faults at other requests.
fn mirrored(schedule: &dragoman_simcluster::Schedule, rng: &mut Rng) -> dragoman_simcluster::Schedule {
    schedule.iter().map(|(number, fault)| (number + rng.u64(..20), *fault)).collect()
}

/// When two leaders of a party may each have seen a part only.
fn two_leaders(case: &Case<Deed>, chronicle: &[HistoryStep]) -> Vec<(Timestamp, Timestamp)> {
    let Some(began) = chronicle.first().map(|step| step.at) else { return Vec::new() };
    let takeovers = case.script.iter().filter_map(|(when, deed)| match deed {
        Deed::Takeover(_, both) => Some((began + *when, began + *when + *both + LINGERS)),
        _ => None,
    });
    takeovers.collect()
}

/// A party: its instances and its door.
struct Side {
    party: Party,
    instances: Vec<Embedded>,
    door: FaultyDoor,
}

/// Starts an instance of a party.
fn start(door: &FaultyDoor, party: Party) -> Embedded {
    let mut registry = Registry::default();
    let clients = within(door, Limits::default(), &mut registry);
    let table: Vec<ControllerSpec> = match party {
        Party::Operator => {
            let allocator = || Some(OURS.into());
            let (cluster, publisher) = (SharedCluster::default(), Arc::<pod_status::Publisher>::default());
            let holders = Arc::<holders::SharedHolders>::default();
            let birth = claim_lifecycle::Birth {
                default_allocator: allocator(),
                ..claim_lifecycle::Birth::default()
            };
            vec![
                claim_lifecycle::spec(claim_lifecycle::Options { birth, ..Default::default() }),
                ledger::spec(
                    ledger::Options::default(),
                    SharedCluster::clone(&cluster),
                    Arc::clone(&holders),
                ),
                pod_status::spec(
                    SharedCluster::clone(&cluster),
                    Arc::clone(&publisher),
                    Arc::clone(&holders),
                ),
                gates::spec(
                    gates::Options { default_allocator: allocator(), ..gates::Options::default() },
                    cluster,
                    publisher,
                    holders,
                ),
            ]
        }
        Party::Allocator => vec![allocation::spec(allocation::Options {
            name: OURS.into(),
            order: allocation::Order::default(),
        })],
    };
    Embedded::start(&clients, &mut registry, WORKERS, &table)
}

/// A step of a run.
enum Step<'a> {
    Act(&'a Deed),
    Kill(Party),
    /// Starts an instance, if none runs.
    Begin(Party),
    Join(Party),
    /// Stops the oldest instance, if there is another.
    Leave(Party),
}

/// The steps in order of time, with the restart after each crash and the end of each takeover.
fn timeline(script: &Script) -> Vec<(Duration, Step<'_>)> {
    let mut steps = Vec::new();
    for (when, deed) in script {
        match deed {
            Deed::Crash(party, down) => {
                steps.extend([(*when, Step::Kill(*party)), (*when + *down, Step::Begin(*party))]);
            }
            Deed::Takeover(party, both) => {
                steps.extend([(*when, Step::Join(*party)), (*when + *both, Step::Leave(*party))]);
            }
            deed => steps.push((*when, Step::Act(deed))),
        }
    }
    steps.sort_by_key(|(when, _)| *when);
    steps
}

impl Step<'_> {
    fn take(&self, hand: &Hand, parties: &mut [Side; 2]) {
        let of = |party: &Party| match party {
            Party::Operator => 0,
            Party::Allocator => 1,
        };
        let (act, party) = match self {
            Self::Act(deed) => return deed.take(hand),
            Self::Kill(party) | Self::Begin(party) | Self::Join(party) | Self::Leave(party) => (self, party),
        };
        let Some(side) = parties.get_mut(of(party)) else { return };
        match act {
            Self::Kill(_) => side.instances.clear(),
            Self::Begin(_) if !side.instances.is_empty() => {}
            Self::Begin(_) | Self::Join(_) => {
                side.instances.push(start(&side.door.for_another(), side.party));
            }
            Self::Leave(_) if side.instances.len() > 1 => drop(side.instances.remove(0)),
            Self::Leave(_) | Self::Act(_) => {}
        }
    }
}

impl Deed {
    fn take(&self, hand: &Hand) {
        match self {
            Self::Life(action) => hand.act(action),
            Self::Open(pod) => hand.open(pod, FOREIGN),
            Self::Gate { claim, gate, closed } => {
                hand.annotate(claim, gate, closed.then_some("closed by the script"));
            }
            Self::Label(claim, allocator) => hand.label(claim, *allocator),
            Self::Scribble(claim, key, text) => hand.annotate(claim, key, Some(text)),
            Self::Crash(..) | Self::Takeover(..) => {}
        }
    }
}

/// Creates the objects that every run starts with.
fn populate(hand: &Hand) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    hand.create("/api/v1/namespaces", &namespace);
    hand.create("/apis/resource.k8s.io/v1/deviceclasses", &objects::class());
    for definition in crdgen::definitions() {
        hand.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    }
    let footprint = json!({
        "apiVersion": "dragoman.dev/v1alpha1", "kind": "DeviceFootprint", "metadata": {"name": "cores"},
        "spec": {"driver": objects::DRIVER, "resources": {"cpu": {"mapping": {"deviceMultiplier": CORES.to_string()}}}},
    });
    hand.create("/apis/dragoman.dev/v1alpha1/devicefootprints", &footprint);
    hand.act(&workload::Action::Template("one".to_owned()));
    (0..2).for_each(|number| hand.act(&workload::Action::Claim(shared(number))));
    for node in 0..2 {
        hand.create("/api/v1/nodes", &objects::node(&format!("node-{node}")));
    }
}
