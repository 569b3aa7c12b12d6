//! One run: a cluster, a workload and faults from a seed, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use dragoman_crds::crdgen;
use dragoman_machinery::clock;
use dragoman_machinery::controller::Embedded;
use dragoman_simcluster::{
    ApiHandle, ApiServer, Clock, Driver, Fault, FaultInjector, Kubelet, Pace, Profile, Scheduler, User,
};
use fastrand::Rng;
use tokio::time::{Instant, sleep_until};

use super::actor::{Actor, NAMESPACE};
use super::case::{Case, Outcome, Play, REQUESTS, REST, SOON, endless, faults, panicked};
use super::instance;
use super::invariants::{self, Judged, tenants};
use super::workload::{Action, CORES, EXTENDED, Kind, SPAN, Script, script};
use dragoman_e2e::objects;

/// The most faults of a run.
const MOST_FAULTS: usize = 16;

/// The most claims that exist at once. With this many devices on each node no Pod waits for a device of
/// another Pod.
const MOST_CLAIMS: usize = 26;
/// The most claims of one Pod. With fewer devices on a node such a Pod would wait for ever.
const MOST_OF_A_POD: usize = 4;

/// The properties of the run of a seed. Pods may keep devices only in runs with enough devices for all.
fn kind(seed: u64) -> Kind {
    Kind {
        holds: !seed.is_multiple_of(2),
        groups: seed % 4 == 1,
        calm: matches!(seed % 16, 3 | 5 | 6),
        // Runs in which Pods may keep devices to the end: others have nothing to be counted then.
        accounts: matches!(seed % 16, 7 | 11 | 15).then_some(seed % 32 >= 16),
        tenant: matches!(seed % 16, 2 | 6 | 13),
    }
}

impl Play for Action {
    fn draw(seed: u64) -> Case<Self> {
        let mut rng = Rng::with_seed(seed);
        let kind = kind(seed);
        let script = script(&mut rng, kind);
        let mut schedule = faults(&mut rng, if kind.calm { 0 } else { MOST_FAULTS });
        if kind.tenant && !kind.calm {
            schedule.insert(rng.u64(1..=REQUESTS), Fault::any_outage(&mut rng));
        }
        Case { seed, script, schedule }
    }

    async fn play(case: &Case<Self>) -> Outcome {
        let began = Instant::now();
        let clock = Clock::runtime();
        clock::bind(clock.now());
        let kind = kind(case.seed);
        let gates: &[&str] = match kind {
            Kind { groups: true, .. } => &["GenericWorkload", "DRAWorkloadResourceClaims"],
            Kind { accounts: Some(true), .. } => &["DRANodeAllocatableResources"],
            Kind { .. } => &[],
        };
        let profile =
            Profile { on: gates.iter().map(|gate| (*gate).to_owned()).collect(), ..Profile::default() };
        let server = ApiServer::new(profile, clock, case.seed);
        server.chronicle();
        let handle = ApiHandle::new(server.clone(), User::admin());
        let hand = Actor { handle, groups: kind.groups, lends: kind.holds, namespace: NAMESPACE };
        populate(&hand, kind);
        if kind.tenant {
            hand.let_a_tenant_in();
        }
        let pace = Pace { run: Duration::from_secs(1 + case.seed % 30), ..Pace::default() };
        let devices = if kind.holds { MOST_CLAIMS } else { MOST_OF_A_POD };
        let others = [
            tokio::spawn(server.clone().collect()),
            tokio::spawn(Driver::new(server.clone(), objects::DRIVER, devices).run()),
            tokio::spawn(Scheduler::new(server.clone()).run()),
            tokio::spawn(Kubelet::new(server.clone(), pace, case.seed).run()),
        ];
        let user = User { name: "dragoman".to_owned(), groups: vec!["system:masters".to_owned()] };
        let rival = hand.clone();
        let rival = Arc::new(move |path: &str| rival.overtake(path));
        let handle = FaultInjector::new(ApiHandle::new(server.clone(), user), case.schedule.clone(), rival);
        let mut instances = vec![instance::start(&handle, kind.accounts.is_some())];
        for (when, step) in timeline(&case.script) {
            sleep_until(began + when).await;
            step.take(&hand, &handle, &mut instances, kind);
        }
        sleep_until(began + SPAN + SOON).await;
        let judged = Judged { server: &server, kind };
        let late = judged.at_the_end().map(|why| format!("late: {why}"));
        let rested = server.writes(0).len();
        sleep_until(began + SPAN + REST).await;
        drop(instances);
        others.iter().for_each(tokio::task::JoinHandle::abort);
        let struck = handle.struck().len()
            + case.script.iter().filter(|(_, action)| Step::of(action).is_some()).count();
        Outcome {
            broken: panicked()
                .or_else(|| endless(&handle))
                .or_else(|| handle.hasty().map(|what| format!("hasty: {what} while it was told to wait")))
                .or_else(|| judged.broken(handle.changes(), struck))
                .or_else(|| kind.tenant.then(|| tenants::stormy(&handle.history()))?)
                .or(late)
                .or_else(|| judged.restless(rested)),
            succeeded: invariants::succeeded(&server),
            history: handle.history(),
            struck,
            lasted: began.elapsed().as_secs(),
        }
    }
}

/// The steps in order of time, with the restart after each crash and the end of each takeover.
fn timeline(script: &Script) -> Vec<(Duration, Step<'_>)> {
    let mut steps: Vec<(Duration, Step<'_>)> = Vec::new();
    for (when, action) in script {
        steps.push((*when, Step::of(action).unwrap_or(Step::Act(action))));
        match action {
            Action::Crash(down) => steps.push((*when + *down, Step::Begin)),
            Action::Takeover(both) => steps.push((*when + *both, Step::Leave)),
            _ => {}
        }
    }
    steps.sort_by_key(|(when, _)| *when);
    steps
}

/// A step of a run.
enum Step<'a> {
    Act(&'a Action),
    /// Kills every instance of the controller.
    Crash,
    /// Starts an instance, if none runs.
    Begin,
    /// Starts one more instance.
    Join,
    /// Stops the oldest instance, if there is another.
    Leave,
}

impl<'a> Step<'a> {
    /// The step of an action that concerns the controller.
    fn of(action: &'a Action) -> Option<Self> {
        match action {
            Action::Crash(_) => Some(Self::Crash),
            Action::Takeover(_) => Some(Self::Join),
            _ => None,
        }
    }

    fn take(&self, hand: &Actor, handle: &FaultInjector, instances: &mut Vec<Embedded>, kind: Kind) {
        match self {
            Self::Act(action) => hand.act(action),
            Self::Crash => instances.clear(),
            Self::Begin if !instances.is_empty() => {}
            Self::Begin | Self::Join => {
                instances.push(instance::start(&handle.for_another(), kind.accounts.is_some()));
            }
            Self::Leave if instances.len() > 1 => drop(instances.remove(0)),
            Self::Leave => {}
        }
    }
}

/// Creates the objects that every run starts with.
fn populate(hand: &Actor, kind: Kind) {
    let namespace =
        serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    hand.create("/api/v1/namespaces", &namespace);
    let mut class = objects::class();
    class["spec"]["extendedResourceName"] = EXTENDED.into();
    hand.create("/apis/resource.k8s.io/v1/deviceclasses", &class);
    if kind.accounts.is_some() {
        for definition in crdgen::definitions() {
            hand.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
        }
        let footprint = serde_json::json!({
            "apiVersion": "dragoman.dev/v1alpha1", "kind": "DeviceFootprint", "metadata": {"name": "cores"},
            "spec": {"driver": objects::DRIVER,
                "resources": {"cpu": {"mapping": {"deviceMultiplier": CORES.to_string()}}}},
        });
        hand.create("/apis/dragoman.dev/v1alpha1/devicefootprints", &footprint);
    }
    for node in 0..2 {
        hand.create("/api/v1/nodes", &objects::node(&format!("node-{node}")));
    }
}
