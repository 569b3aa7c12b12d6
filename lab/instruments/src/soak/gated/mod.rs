//! Runs of gated Pods: the operator with claim gates and the reference allocator, each behind an API handle with
//! faults of its own, on a simulated cluster whose nodes have fewer cpus than their devices take.

mod hostile;
mod judge;
mod script;

use std::sync::Arc;
use std::time::Duration;

use dragoman_crds::crdgen;
use dragoman_machinery::api::Limits;
use dragoman_machinery::clock;
use dragoman_machinery::connect::within;
use dragoman_machinery::controller::Embedded;
use dragoman_reconcilers::{allocation, table};
use dragoman_simcluster::{
    ApiHandle, ApiServer, Clock, Driver, FaultInjector, HistoryStep, Kubelet, Pace, Profile, Scheduler, User,
};
use fastrand::Rng;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

pub(super) use self::script::Action;
use self::script::Script;
use super::actor::{Actor, NAMESPACE};
use super::case::{Case, Outcome, Play, SOON, endless, faults, panicked};
use super::workload::{self, LINGERS, SPAN};
use dragoman_e2e::client::{PODS, TEMPLATES};
use dragoman_e2e::objects;

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
/// The user of the allocator.
const ALLOCATOR: &str = "allocator";

/// Properties of the cluster of a run, gated Pods aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    /// Whether kube-scheduler counts what claims take, and the API server keeps it in the status of Pods.
    counts: bool,
    /// Whether slices say what a device takes; otherwise a DeviceFootprint does.
    slices: bool,
    /// Whether Pods of others are there.
    neighbours: bool,
}

impl Kind {
    /// Half of the clusters count, and of these one half by slices. A third has no neighbours.
    fn of(seed: u64) -> Self {
        let counts = seed.is_multiple_of(2);
        Self { counts, slices: counts && seed.is_multiple_of(4), neighbours: !seed.is_multiple_of(3) }
    }

    /// Kubernetes refuses a second consumer where the devices are node resources of a slice.
    fn may_share(self) -> bool {
        !self.slices
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    Operator,
    Allocator,
}

const GATES: [&str; 2] = ["allocation-gates.dragoman.dev/soak", "release-gates.dragoman.dev/soak"];
/// The namespaces of gated Pods.
const TEAMS: [&str; 2] = [NAMESPACE, "team"];
/// The namespace of Pods of others.
const NEIGHBOURS: &str = "neighbours";
/// Longest delay with which kube-scheduler sees a change, and longest time of each write of a binding. A gate
/// is opened no sooner than a quarter of a second after the nomination.
const LAG: Duration = Duration::from_millis(100);

/// The time after the last act in which every Pod has to have its turn.
fn patience(script: &Script) -> Duration {
    let is_hostile = script.iter().any(|(_, act)| matches!(act, Action::Hostile(_)));
    if is_hostile { EVENTUALLY } else { SOON }
}

/// A Pod that asks for what no device has keeps devices for five minutes (docs/protocol.md 5), and then others have their
/// turns one after the other, each with pauses that double up to five minutes.
const EVENTUALLY: Duration = Duration::from_mins(15);

impl Play for Action {
    fn draw(seed: u64) -> Case<Self> {
        let mut rng = Rng::with_seed(seed);
        let script = script::draw(&mut rng, Kind::of(seed));
        Case { seed, script, schedule: faults(&mut rng, MOST_FAULTS) }
    }

    async fn play(case: &Case<Self>) -> Outcome {
        let began = Instant::now();
        let clock = Clock::runtime();
        clock::bind(clock.now());
        let kind = Kind::of(case.seed);
        let on = kind.counts.then(|| "DRANodeAllocatableResources".to_owned()).into_iter().collect();
        let server = ApiServer::new(Profile { minor: 37, on, ..Profile::default() }, clock, case.seed);
        server.chronicle();
        let handle = ApiHandle::new(server.clone(), User::admin());
        let hand = Actor { handle, groups: false, lends: false, namespace: NAMESPACE };
        server.admit_by(Arc::new(owned));
        populate(&hand, kind);
        let pace = Pace { run: Duration::from_secs(1 + case.seed % 20), ..Pace::default() };
        let others = [
            tokio::spawn(server.clone().collect()),
            tokio::spawn(driver(&server, kind).run()),
            tokio::spawn(Scheduler::new(server.clone()).lagging(LAG, case.seed).run()),
            tokio::spawn(Kubelet::new(server.clone(), pace, case.seed).run()),
        ];
        let mut rng = Rng::with_seed(case.seed ^ 1);
        let mut parties = [Party::Operator, Party::Allocator].map(|party| {
            let name = if party == Party::Operator { OPERATOR } else { ALLOCATOR };
            let user = User { name: name.to_owned(), groups: vec!["system:masters".to_owned()] };
            // The faults of the operator are those of the case; a smaller case has them of the allocator, too.
            let schedule = match party {
                Party::Operator => case.schedule.clone(),
                Party::Allocator => mirrored(&case.schedule, &mut rng),
            };
            let rival = hand.clone();
            let touch = Arc::new(move |path: &str| rival.touch(path));
            let handle = FaultInjector::new(ApiHandle::new(server.clone(), user), schedule, touch);
            Side { party, instances: vec![start(&handle, party)], handle }
        });
        let mut last = SPAN;
        for (when, step) in timeline(&case.script) {
            sleep_until(began + when).await;
            step.take(&hand, kind, &mut parties);
            last = last.max(when);
        }
        sleep_until(began + last + patience(&case.script)).await;
        let struck = parties.iter().map(|side| side.handle.struck().len()).sum();
        let panicked = panicked();
        let handles = parties.each_ref().map(|side| side.handle.clone());
        let dumps = parties.each_ref().map(Side::dump);
        drop(parties);
        others.iter().for_each(tokio::task::JoinHandle::abort);
        let chronicle = server.chronicled(0);
        let mut history = handles.iter().flat_map(FaultInjector::history).collect::<Vec<_>>();
        history.push(format!("{} steps", chronicle.len()));
        history.extend(dumps);
        Outcome {
            broken: panicked
                .or_else(|| handles.iter().find_map(endless))
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
fn two_leaders(case: &Case<Action>, chronicle: &[HistoryStep]) -> Vec<(Timestamp, Timestamp)> {
    let Some(began) = chronicle.first().map(|step| step.at) else { return Vec::new() };
    let takeovers = case.script.iter().filter_map(|(when, deed)| match deed {
        Action::Takeover(_, both) => Some((began + *when, began + *when + *both + LINGERS)),
        _ => None,
    });
    takeovers.collect()
}

/// A party: its instances and its API handle.
struct Side {
    party: Party,
    instances: Vec<Embedded>,
    handle: FaultInjector,
}

impl Side {
    /// The knowledge of each instance, in words.
    fn dump(&self) -> String {
        self.instances.iter().map(Embedded::dump).collect()
    }
}

/// Starts an instance of a party.
fn start(handle: &FaultInjector, party: Party) -> Embedded {
    let mut registry = Registry::default();
    let clients = within(handle, Limits::default(), &mut registry);
    let table = match party {
        Party::Operator => table::operator(table::Options::with_allocator(OURS)),
        Party::Allocator => {
            table::allocator(allocation::Options { name: OURS.into(), ..allocation::Options::default() })
        }
    };
    Embedded::start(&clients, &mut registry, WORKERS, &table)
}

/// A step of a run.
enum Step<'a> {
    Act(&'a Action),
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
            Action::Crash(party, down) => {
                steps.extend([(*when, Step::Kill(*party)), (*when + *down, Step::Begin(*party))]);
            }
            Action::Takeover(party, both) => {
                steps.extend([(*when, Step::Join(*party)), (*when + *both, Step::Leave(*party))]);
            }
            deed => steps.push((*when, Step::Act(deed))),
        }
    }
    steps.sort_by_key(|(when, _)| *when);
    steps
}

impl Step<'_> {
    fn take(&self, hand: &Actor, kind: Kind, parties: &mut [Side; 2]) {
        let of = |party: &Party| match party {
            Party::Operator => 0,
            Party::Allocator => 1,
        };
        let (act, party) = match self {
            Self::Act(deed) => return deed.take(hand, kind),
            Self::Kill(party) | Self::Begin(party) | Self::Join(party) | Self::Leave(party) => (self, party),
        };
        let Some(side) = parties.get_mut(of(party)) else { return };
        match act {
            Self::Kill(_) => side.instances.clear(),
            Self::Begin(_) if !side.instances.is_empty() => {}
            Self::Begin(_) | Self::Join(_) => {
                side.instances.push(start(&side.handle.for_another(), side.party));
            }
            Self::Leave(_) if side.instances.len() > 1 => drop(side.instances.remove(0)),
            Self::Leave(_) | Self::Act(_) => {}
        }
    }
}

impl Action {
    fn take(&self, hand: &Actor, kind: Kind) {
        match self {
            Self::Life(namespace, action) => hand.within(namespace).act(action),
            Self::Hostile(act) => act.take(hand, kind),
            Self::Neighbour(pod) => hand.create_in(NEIGHBOURS, PODS, pod),
            Self::Leaves(pod) => hand.remove(NEIGHBOURS, PODS, pod),
            Self::Open(namespace, pod) => hand.within(namespace).open(pod, FOREIGN),
            Self::Gate { namespace, claim, gate, closed } => {
                let text = closed.then_some("closed by the script");
                hand.within(namespace).annotate(claim, gate, text);
            }
            Self::Label(namespace, claim, allocator) => hand.within(namespace).label(claim, *allocator),
            Self::Scribble(namespace, claim, key, text) => {
                hand.within(namespace).annotate(claim, key, Some(text));
            }
            Self::Crash(..) | Self::Takeover(..) => {}
        }
    }
}

/// The policy of owned drivers: only the allocator allocates, and a claim loses its allocation by it, by the operator, which
/// ends claims, or by people.
fn owned(user: &User, before: &Value, after: &Value) -> Option<String> {
    let results = |claim: &Value| claim["status"]["allocation"]["devices"]["results"].clone();
    let is_ended = results(after).is_null() && user.name == OPERATOR;
    let is_ours = user.name == ALLOCATOR || *user == User::admin();
    (results(before) != results(after) && !is_ended && !is_ours).then(|| {
        format!("devices of driver {} are allocated and deallocated by {ALLOCATOR}", objects::DRIVER)
    })
}

fn driver(server: &ApiServer, kind: Kind) -> Driver {
    let driver = Driver::new(server.clone(), objects::DRIVER, DEVICES);
    if kind.slices { driver.costing(&CORES.to_string()) } else { driver }
}

/// Creates the objects that every run starts with.
fn populate(hand: &Actor, kind: Kind) {
    for name in TEAMS.into_iter().chain([NEIGHBOURS]) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        hand.create("/api/v1/namespaces", &namespace);
    }
    for (name, value) in [(script::IMPORTANT, 1_000), ("dragoman-holder", 1_000_000_000)] {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value});
        hand.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    }
    hand.create("/apis/resource.k8s.io/v1/deviceclasses", &objects::class());
    for definition in crdgen::definitions() {
        hand.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    }
    if !kind.slices {
        let footprint = json!({
            "apiVersion": "dragoman.dev/v1alpha1", "kind": "DeviceFootprint", "metadata": {"name": "cores"},
            "spec": {"driver": objects::DRIVER, "resources": {"cpu": {"mapping": {"deviceMultiplier": CORES.to_string()}}}},
        });
        hand.create("/apis/dragoman.dev/v1alpha1/devicefootprints", &footprint);
    }
    for namespace in TEAMS.into_iter().chain([NEIGHBOURS]) {
        hand.create_in(namespace, TEMPLATES, &objects::template("one"));
    }
    for namespace in TEAMS {
        let hand = hand.within(namespace);
        (0..2).for_each(|number| hand.act(&workload::Action::Claim(script::shared(number))));
    }
    hostile::populate(hand);
    for node in 0..2 {
        hand.create("/api/v1/nodes", &objects::node(&format!("node-{node}")));
    }
}
