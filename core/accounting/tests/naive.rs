//! A second, slow implementation that follows the rules to the letter, over random Pods and random
//! histories. It judges the peak, the policies and the ledger, for which there is no published
//! library, and the rest besides.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod words;

use std::collections::{BTreeMap, BTreeSet};

use dragoman_accounting::amounts::Amounts;
use dragoman_accounting::claim::contribution::{Contribution, Generation, Line, Source};
use dragoman_accounting::claim::footprint::AccountingPolicy::{
    self, AddPerClaim, AddPerReference, ConsumeFrom, Max,
};
use dragoman_accounting::ledger::charge::{PodCharge, charge};
use dragoman_accounting::ledger::fit::{Candidate, Fit};
use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_accounting::ledger::{Bucket, Charging, NodeLedger, Stage};
use dragoman_accounting::per_resource::Units;
use dragoman_accounting::pod::requests::{Claims, Options, Variant, request};
use dragoman_accounting::pod::{Container, ContainerStatus, PodSpecView, PodStatusView, Resources};
use dragoman_accounting::resource::Resource;
use dragoman_objects::{DeviceId, Name};
use dragoman_quantity::Decimal;
use fastrand::Rng;

const RESOURCES: [Resource; 2] = [Resource::Cpu, Resource::Memory];

/// The amount in billionths.
fn nanos(amount: Decimal) -> i128 {
    amount.mantissa() * 10_i128.pow(u32::try_from(amount.exponent() + 9).unwrap())
}

fn of(amounts: &Amounts, resource: Resource) -> i128 {
    nanos(amounts.get(resource))
}

/// Rounds up by long division, not by the rounding of `Decimal`.
fn ceil(resource: Resource, nanos: i128) -> i128 {
    let unit = if resource == Resource::Cpu { 1_000_000 } else { 1_000_000_000 };
    nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) != 0)
}

/// An unoptimised program tries a tenth of the cases; the long lanes try all of them, optimised.
const SPARED: usize = if cfg!(debug_assertions) { 10 } else { 1 };

// The rules, moment by moment.

/// The way in which a Pod is counted.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Claims are not counted.
    Seen,
    /// Claims are not counted, nor is what is drawn from them.
    Own,
    /// Everything is counted.
    All(Claims),
}

/// The containers that run together, for each moment in the life of a Pod.
fn moments(pod: &PodSpecView) -> Vec<Vec<&Container>> {
    let mut moments = Vec::new();
    for (i, container) in pod.init_containers.iter().enumerate() {
        let mut running: Vec<_> = pod.init_containers[..i].iter().filter(|before| before.sidecar).collect();
        running.push(container);
        moments.push(running);
    }
    moments.push(pod.init_containers.iter().filter(|c| c.sidecar).chain(&pod.containers).collect());
    moments
}

fn named<'a>(pod: &'a PodSpecView, container: &Container, policy: AccountingPolicy) -> Vec<&'a Line> {
    let claims = pod.contributions.iter().filter(|claim| claim.containers.contains(&container.name));
    claims.flat_map(|claim| &claim.lines).filter(|line| line.policy == Some(policy)).collect()
}

fn amount(amount: Option<Decimal>) -> i128 {
    nanos(amount.unwrap_or_default())
}

fn count(number: usize) -> i128 {
    i128::try_from(number).unwrap()
}

/// Returns one sum over the containers, with the additions of claims.
fn total(pod: &PodSpecView, resource: Resource, way: Way, own: &dyn Fn(&Container) -> i128) -> i128 {
    let all: Vec<&Container> = pod.init_containers.iter().chain(&pod.containers).collect();
    let mine = |lines: Vec<&Line>| -> i128 {
        lines.iter().filter(|line| line.resource == resource).map(|line| amount(line.mapping)).sum()
    };
    let mut peak = 0;
    for running in moments(pod) {
        let mut moment = 0;
        for container in &running {
            let drawn = named(pod, container, ConsumeFrom).iter().any(|line| line.resource == resource);
            let mut takes = if drawn && way != Way::Seen { 0 } else { own(container) };
            if let Way::All(claims) = way {
                takes = takes.max(mine(named(pod, container, Max)));
                if claims == Claims::Peak {
                    takes += mine(named(pod, container, AddPerReference));
                    let claims = pod.contributions.iter().filter(|c| c.containers.contains(&container.name));
                    let each =
                        claims.flat_map(|claim| claim.of(resource)).map(|line| amount(line.per_container));
                    takes += each.sum::<i128>();
                }
            }
            moment += takes;
        }
        // Devices stay allocated while none of the containers that name them runs.
        if let Way::All(claims) = way {
            for claim in &pod.contributions {
                let idle = !running.iter().any(|container| claim.containers.contains(&container.name));
                let strange = claim.containers.iter().any(|name| !all.iter().any(|c| c.name == *name));
                for line in claim.of(resource).filter(|_| idle && !strange) {
                    if line.policy == Some(Max)
                        || (line.policy == Some(AddPerReference) && claims == Claims::Peak)
                    {
                        moment += amount(line.mapping);
                    }
                }
            }
        }
        peak = peak.max(moment);
    }
    if let Way::All(claims) = way {
        for claim in &pod.contributions {
            let strange =
                count(claim.containers.iter().filter(|name| !all.iter().any(|c| c.name == **name)).count());
            for line in claim.of(resource) {
                let mapping = amount(line.mapping);
                peak += amount(line.per_pod);
                peak += match claims {
                    Claims::WholeLife => amount(line.per_container) * count(claim.containers.len()),
                    _ => amount(line.per_container) * strange,
                };
                peak += match (line.policy, claims) {
                    (None | Some(AddPerClaim | ConsumeFrom), _) => mapping,
                    (Some(AddPerReference), Claims::WholeLife) => {
                        mapping * count(claim.containers.len()).max(1)
                    }
                    (Some(AddPerReference | Max), _) => mapping * strange,
                };
            }
        }
    }
    peak
}

/// Returns the request of a Pod as kube-scheduler computes it, with resizes and Pod-level
/// resources.
fn naive(pod: &PodSpecView, resource: Resource, way: Way) -> i128 {
    let overhead = of(&pod.overhead, resource);
    let desired = |c: &Container| of(&c.resources.requests, resource);
    let allocated = |c: &Container| match c.status.as_ref().and_then(|s| s.allocated.as_ref()) {
        Some(list) => of(list, resource),
        None if pod.status.resize_infeasible => 0,
        None => desired(c),
    };
    let actual = |c: &Container| match c.status.as_ref().and_then(|s| s.actual.as_ref()) {
        Some(list) if !list.requests.is_empty() => of(&list.requests, resource),
        _ => allocated(c),
    };
    if let Some(level) = pod.pod_level.as_ref().and_then(|level| level.requests.named(resource)) {
        return nanos(level) + overhead;
    }
    let spec = if pod.status.resize_infeasible { 0 } else { total(pod, resource, way, &desired) };
    let without = if way == Way::Seen { Way::Seen } else { Way::Own };
    spec.max(total(pod, resource, way, &allocated)).max(total(pod, resource, without, &actual)) + overhead
}

// Random Pods.

fn some(rng: &mut Rng, most: i128) -> Decimal {
    Decimal::new(rng.i128(0..most), -rng.i32(0..6)).unwrap()
}

fn list(rng: &mut Rng) -> Amounts {
    let mut amounts = Amounts::default();
    for resource in RESOURCES {
        if rng.u8(0..4) > 0 {
            amounts.set(resource, some(rng, 50_000));
        }
    }
    amounts
}

fn random_claim(rng: &mut Rng, number: u8, names: &[Name]) -> Contribution {
    let line = |rng: &mut Rng| {
        let part = |rng: &mut Rng| rng.bool().then(|| some(rng, 9_000));
        let policies = [None, None, Some(AddPerClaim), Some(AddPerReference), Some(Max), Some(ConsumeFrom)];
        Line {
            driver: format!("driver-{}", rng.u8(0..2)).into(),
            policy: policies[rng.usize(0..policies.len())],
            mapping: part(rng),
            per_pod: part(rng),
            per_container: part(rng),
            ..Line::empty(RESOURCES[rng.usize(0..2)])
        }
    };
    let mut containers: BTreeSet<Name> = names.iter().filter(|_| rng.bool()).cloned().collect();
    if rng.u8(0..8) == 0 {
        containers.insert("stranger".into());
    }
    let name = format!("claim-{number}");
    Contribution {
        source: Source { uid: Some(name.as_str().into()), ..Source::claim(name) },
        containers,
        lines: (0..rng.u8(0..3)).map(|_| line(rng)).collect(),
        legacy_total: false,
        recorded: rng.bool().then_some(Generation::V1_37),
    }
}

fn random_pod(rng: &mut Rng, uid: &str) -> PodSpecView {
    let container = |rng: &mut Rng, name: String, init: bool| Container {
        name: name.into(),
        resources: Resources { requests: list(rng), limits: Amounts::default() },
        sidecar: init && rng.bool(),
        names_claims: false,
        status: (rng.u8(0..4) == 0).then(|| ContainerStatus {
            allocated: rng.bool().then(|| list(rng)),
            actual: rng.bool().then(|| Resources { requests: list(rng), limits: Amounts::default() }),
        }),
    };
    let containers: Vec<_> = (0..rng.u8(1..3)).map(|i| container(rng, format!("c{i}"), false)).collect();
    let init_containers: Vec<_> = (0..rng.u8(0..4)).map(|i| container(rng, format!("i{i}"), true)).collect();
    let names: Vec<Name> = containers.iter().chain(&init_containers).map(|c| c.name.clone()).collect();
    let claims: BTreeSet<u8> = (0..rng.u8(0..3)).map(|_| rng.u8(0..4)).collect();
    let level = (rng.u8(0..8) == 0).then(|| Resources { requests: list(rng), limits: Amounts::default() });
    let claims: Vec<Contribution> =
        claims.into_iter().map(|number| random_claim(rng, number, &names)).collect();
    // The record in the status has no policies.
    let plain = |claim: &Contribution| {
        let lines = claim.lines.iter().map(|line| Line { policy: None, ..line.clone() });
        Contribution { lines: lines.collect(), ..claim.clone() }
    };
    PodSpecView {
        namespace: "ns".into(),
        name: uid.into(),
        uid: uid.into(),
        containers,
        init_containers,
        pod_level: level,
        overhead: if rng.u8(0..4) == 0 { list(rng) } else { Amounts::default() },
        status: PodStatusView { resize_infeasible: rng.u8(0..8) == 0, ..PodStatusView::default() },
        recorded: claims.iter().filter(|claim| claim.recorded.is_some()).map(plain).collect(),
        contributions: claims,
        conflicts: Vec::new(),
    }
}

#[test]
fn pods_are_counted_like_this() {
    let mut rng = Rng::with_seed(5);
    for number in 0..100_000 / SPARED {
        let pod = random_pod(&mut rng, "pod");
        for resource in RESOURCES {
            for claims in [Claims::Ignored, Claims::WholeLife, Claims::Peak] {
                let way = if claims == Claims::Ignored { Way::Seen } else { Way::All(claims) };
                let ours = request(&pod, resource, Options::scheduler(claims)).unwrap().unwrap_or_default();
                assert_eq!(
                    nanos(ours),
                    naive(&pod, resource, way),
                    "Pod {number}: {resource} {claims:?}: {pod:#?}"
                );
            }
        }
    }
}

/// Checks that the charges of a Pod add up to its request, rounded up once.
fn adds_up(pod: &PodSpecView, charge: &PodCharge, claims: Claims) {
    for resource in RESOURCES {
        let of = |units: &Units| i128::from(units.get(resource));
        let seen = ceil(resource, naive(pod, resource, Way::Seen));
        let own = ceil(resource, naive(pod, resource, Way::Own));
        let all = ceil(resource, naive(pod, resource, Way::All(claims)));
        let drawn = charge.rare.as_ref().map_or(0, |rare| of(&rare.drawn));
        let read = PodSpecView { contributions: pod.recorded.clone(), ..pod.clone() };
        let aware = ceil(resource, naive(&read, resource, Way::All(Claims::WholeLife)));
        let published: i128 = charge.published.iter().map(|(_, units)| of(units)).sum();
        assert_eq!(published, aware - seen, "{pod:#?}");
        let parts: i128 = charge.claims.iter().map(|claim| of(&claim.mapping) + of(&claim.overhead)).sum();
        assert_eq!((of(&charge.spec), drawn, of(&charge.spec) + parts), (own, seen - own, all), "{pod:#?}");
    }
}

#[test]
fn what_is_charged_adds_up() {
    let mut rng = Rng::with_seed(6);
    for _ in 0..50_000 / SPARED {
        let pod = random_pod(&mut rng, "pod");
        for variant in [Variant::WholeLife, Variant::Peak] {
            adds_up(&pod, &charge(&pod, Stage::Bound, variant, Vec::new()), variant.into());
        }
    }
}

/// kubelet reports totals with overhead, and with the claims that it knows: nothing of what a scheduler counts is lost, and
/// a claim stays a claim.
#[test]
fn what_is_charged_adds_up_to_the_totals_of_kubelet() {
    let mut rng = Rng::with_seed(8);
    for _ in 0..50_000 / SPARED {
        let mut pod = random_pod(&mut rng, "pod");
        for line in pod.contributions.iter_mut().flat_map(|claim| &mut claim.lines) {
            line.policy = None;
        }
        let known = if rng.bool() { Claims::WholeLife } else { Claims::Ignored };
        let before = charge(&pod, Stage::Bound, Variant::WholeLife, Vec::new());
        let amount =
            |resource| Some((resource, request(&pod, resource, Options::scheduler(known)).unwrap()?));
        let totals: Amounts = RESOURCES.into_iter().filter_map(amount).collect();
        pod.status.allocated = Some(totals.clone());
        pod.status.actual = Some(Resources { requests: totals, limits: Amounts::default() });
        let after = charge(&pod, Stage::Bound, Variant::WholeLife, Vec::new());
        for resource in RESOURCES {
            let level = pod.pod_level.as_ref().and_then(|level| level.requests.named(resource)).is_some();
            let of_scheduler = Options::scheduler(Claims::WholeLife);
            let counted = |options| request(&pod, resource, options).unwrap().unwrap_or_default();
            let by_containers = Options { pod_level_status: level, ..of_scheduler };
            let all = counted(of_scheduler).max(counted(by_containers));
            let claims = |charge: &PodCharge| -> i128 {
                let of = charge.claims.iter();
                of.map(|claim| i128::from(claim.mapping.get(resource) + claim.overhead.get(resource))).sum()
            };
            let charged = i128::from(after.spec.get(resource)) + claims(&after);
            assert_eq!(charged, ceil(resource, nanos(all)), "{resource}: {pod:#?}");
            // While a resize is under way, what it holds covers a part of the claims.
            let rests = pod.all_containers().all(|container| container.status.is_none())
                && !pod.status.resize_infeasible;
            if rests && !level && pod.overhead.named(resource).is_none() {
                assert_eq!(claims(&after), claims(&before), "{resource}: {pod:#?}");
            }
        }
    }
}

/// A Pod with more of any amount never takes less.
#[test]
fn more_never_takes_less() {
    let mut rng = Rng::with_seed(7);
    for _ in 0..50_000 / SPARED {
        let before = random_pod(&mut rng, "pod");
        let mut after = before.clone();
        let resource = RESOURCES[rng.usize(0..2)];
        let more = |amounts: &mut Amounts, rng: &mut Rng| amounts.add(resource, some(rng, 1_000)).unwrap();
        match rng.u8(0..4) {
            0 => more(&mut after.overhead, &mut rng),
            1 => more(&mut after.containers[0].resources.requests, &mut rng),
            2 => after.contributions.push(random_claim(&mut rng, 9, &["c0".into(), "i0".into()])),
            _ => {
                if let Some(line) = after.contributions.iter_mut().flat_map(|claim| &mut claim.lines).next() {
                    let more = some(&mut rng, 1_000);
                    line.mapping = Some(line.mapping.unwrap_or_default().checked_add(more).unwrap());
                }
            }
        }
        // A pool replaces the requests of its containers.
        let pool = |pod: &PodSpecView| {
            pod.contributions
                .iter()
                .flat_map(|claim| &claim.lines)
                .any(|line| line.policy == Some(ConsumeFrom))
        };
        for variant in [Variant::WholeLife, Variant::Peak] {
            let total = |pod: &PodSpecView| {
                request(pod, resource, Options::scheduler(variant.into())).unwrap().unwrap_or_default()
            };
            assert!(
                total(&after) >= total(&before) || pool(&after),
                "{resource} {variant:?}: {before:#?} {after:#?}"
            );
        }
    }
}

// The ledger.

/// The facts, as they came.
#[derive(Default)]
struct Facts {
    pods: BTreeMap<String, PodCharge>,
    devices: BTreeMap<DeviceId, BTreeMap<String, Amounts>>,
}

impl Facts {
    /// Returns the sum that the ledger must have in a bucket.
    fn charged(&self, bucket: Bucket, resource: Resource, charging: Charging) -> i128 {
        let pods = self.pods.values();
        let of = |units: &Units| i128::from(units.get(resource));
        let spec = |holder: bool| {
            let pods = self.pods.values().filter(|pod| (pod.stage == Stage::Holder) == holder);
            pods.map(|pod| of(&pod.spec)).sum()
        };
        match bucket {
            Bucket::Pods => spec(false),
            Bucket::Holders => spec(true),
            Bucket::Overhead => pods.flat_map(|pod| &pod.claims).map(|claim| of(&claim.overhead)).sum(),
            Bucket::Mapping => {
                let mut claims: BTreeMap<&str, i128> = BTreeMap::new();
                for claim in pods.flat_map(|pod| &pod.claims) {
                    let known = claims.entry(claim.object.uid()).or_default();
                    *known = match charging {
                        Charging::PerClaim => (*known).max(of(&claim.mapping)),
                        Charging::InTree => *known + of(&claim.mapping),
                    };
                }
                claims.into_values().sum()
            }
            Bucket::Reservation => {
                let device = |users: &BTreeMap<String, Amounts>| {
                    let say = users.values().map(|amounts| ceil(resource, nanos(amounts.get(resource))));
                    say.max().unwrap_or_default()
                };
                self.devices.values().map(device).sum()
            }
        }
    }

    fn same(&self, ledger: &NodeLedger, charging: Charging, history: usize) {
        for resource in RESOURCES {
            for bucket in
                [Bucket::Pods, Bucket::Mapping, Bucket::Overhead, Bucket::Reservation, Bucket::Holders]
            {
                let (ours, theirs) =
                    (ledger.charged(bucket, resource), self.charged(bucket, resource, charging));
                assert_eq!(ours, theirs, "history {history}: {bucket:?} {resource}");
            }
            let held: i128 = ledger.who_has(resource).iter().map(|holding| i128::from(holding.amount)).sum();
            assert_eq!(held, ledger.requested(resource), "history {history}: somebody has everything");
            let seen: i128 = self
                .pods
                .values()
                .filter(|pod| pod.stage != Stage::Holder)
                .map(|pod| {
                    let drawn = pod.rare.as_ref().map_or(0, |rare| rare.drawn.get(resource));
                    i128::from(pod.spec.get(resource) + drawn)
                })
                .sum();
            let hidden = i128::from(ledger.holder(Scheduler::Unaware).request.get(resource));
            assert_eq!(hidden, (ledger.requested(resource) - seen).max(0), "history {history}");
        }
    }
}

fn device(number: u8) -> DeviceId {
    DeviceId { driver: "d".into(), pool: "p".into(), device: format!("dev-{number}").into() }
}

/// Applies one random event to both.
fn event(rng: &mut Rng, ledger: &mut NodeLedger, facts: &mut Facts) {
    let uid = format!("pod-{}", rng.u8(0..4));
    match rng.u8(0..8) {
        0..4 => {
            let stage = [Stage::Assumed, Stage::Bound, Stage::Bound, Stage::Holder][rng.usize(0..4)];
            let variant = if rng.bool() { Variant::WholeLife } else { Variant::Peak };
            let pod = charge(&random_pod(rng, &uid), stage, variant, Vec::new());
            // A repeated fact counts once.
            (0..rng.u8(1..3)).for_each(|_| ledger.put_pod(pod.clone()));
            facts.pods.insert(uid, pod);
        }
        4 | 5 => {
            ledger.remove_pod(&uid);
            facts.pods.remove(&uid);
        }
        6 => {
            let (number, claim, reservation) = (rng.u8(0..3), format!("claim-{}", rng.u8(0..3)), list(rng));
            ledger.use_device(device(number), claim.as_str().into(), &reservation);
            facts.devices.entry(device(number)).or_default().insert(claim, reservation);
        }
        _ => {
            let (number, claim) = (rng.u8(0..3), format!("claim-{}", rng.u8(0..3)));
            ledger.leave_device(&device(number), &claim);
            if let Some(users) = facts.devices.get_mut(&device(number)) {
                users.remove(&claim);
            }
        }
    }
}

#[test]
fn histories_end_where_the_facts_do() {
    let mut rng = Rng::with_seed(11);
    for history in 0..100_000 / SPARED {
        let charging = if rng.bool() { Charging::PerClaim } else { Charging::InTree };
        let (mut ledger, mut facts) = (NodeLedger::new(charging), Facts::default());
        for _ in 0..rng.u8(1..12) {
            event(&mut rng, &mut ledger, &mut facts);
        }
        facts.same(&ledger, charging, history);
        assert!(ledger.is_consistent(), "history {history}");
        // The order of the facts makes no difference.
        let mut again = NodeLedger::new(charging);
        let mut pods: Vec<_> = facts.pods.values().cloned().collect();
        rng.shuffle(&mut pods);
        pods.into_iter().for_each(|pod| again.put_pod(pod));
        let uses = facts.devices.iter().flat_map(|(d, users)| users.iter().map(move |(u, r)| (d, u, r)));
        let mut uses: Vec<_> = uses.collect();
        rng.shuffle(&mut uses);
        uses.iter().for_each(|(d, user, r)| again.use_device((*d).clone(), user.as_str().into(), r));
        facts.same(&again, charging, history);
        // A ledger without its facts is empty.
        facts.pods.keys().for_each(|uid| ledger.remove_pod(uid));
        uses.iter().for_each(|(device, user, _)| ledger.leave_device(device, user));
        Facts::default().same(&ledger, charging, history);
    }
}

/// A Pod that fits leaves the node within its allocatable resources, and one that does not would
/// overcommit it.
#[test]
fn what_fits_fits() {
    let mut rng = Rng::with_seed(12);
    let (mut yes, mut no) = (0, 0);
    for history in 0..20_000 / SPARED {
        let (mut ledger, mut facts) = (NodeLedger::new(Charging::PerClaim), Facts::default());
        ledger.set_allocatable(&words::amounts(&[("cpu", "80k"), ("memory", "80k")]));
        for _ in 0..rng.u8(1..8) {
            event(&mut rng, &mut ledger, &mut facts);
        }
        let pod = charge(&random_pod(&mut rng, "candidate"), Stage::Assumed, Variant::WholeLife, Vec::new());
        let answer = ledger.fits(&Candidate { pod: pod.clone(), devices: Vec::new() });
        let before: Vec<i128> = RESOURCES.iter().map(|r| ledger.requested(*r)).collect();
        ledger.put_pod(pod);
        let over = |(resource, before): (&Resource, &i128)| {
            let (after, most) = (ledger.requested(*resource), i128::from(ledger.allocatable(*resource)));
            after > *before && after > most
        };
        let over = RESOURCES.iter().zip(&before).any(over);
        match answer {
            Fit::Yes => yes += 1,
            Fit::Missing(_) | Fit::Never(_) => no += 1,
            Fit::Refused(_) => continue,
            Fit::Unknown(_) => panic!("history {history}: everything can be read"),
        }
        assert_eq!(answer == Fit::Yes, !over, "history {history}");
    }
    let enough = 1_000 / SPARED;
    assert!(yes > enough && no > enough, "{yes} fit and {no} do not: the sizes tell nothing");
}
