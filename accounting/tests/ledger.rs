//! The ledger against a naive one that forgets nothing and computes everything anew.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};

use dragoman_accounting::amounts::Amounts;
use dragoman_accounting::contribution::{Contribution, Line, Source};
use dragoman_accounting::ledger::{
    Bucket, ClaimCharge, DeviceId, Fit, Headroom, NodeLedger, PodCharge, Stage, Units, Violation,
};
use dragoman_accounting::resource::Resource;
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_quantity::{Decimal, Quantity};
use fastrand::Rng;

fn q(text: &str) -> Decimal {
    text.parse::<Quantity>().unwrap().amount
}

fn amounts(list: &[(&str, &str)]) -> Amounts {
    list.iter().map(|(name, text)| (Resource::of(name).unwrap(), q(text))).collect()
}

/// Facts, kept as they came.
#[derive(Default)]
struct Naive {
    pods: BTreeMap<Box<str>, PodCharge>,
    devices: BTreeMap<DeviceId, (Amounts, BTreeSet<Box<str>>)>,
}

impl Naive {
    fn sums(&self) -> BTreeMap<(Bucket, Resource), i128> {
        let mut sums: BTreeMap<(Bucket, Resource), i128> = BTreeMap::new();
        let mut take = |bucket, amounts: &Amounts| {
            for (resource, amount) in amounts.iter() {
                *sums.entry((bucket, resource.clone())).or_default() += ceil(resource, amount);
            }
        };
        let mut mappings: BTreeMap<&str, Units> = BTreeMap::new();
        for pod in self.pods.values() {
            take(Bucket::Pods, &pod.spec);
            for claim in &pod.claims {
                let mut overhead = Amounts::default();
                for line in &claim.contribution.lines {
                    let containers = i64::try_from(claim.contribution.containers.len()).unwrap();
                    let each = line
                        .per_container
                        .unwrap_or_default()
                        .checked_mul(Decimal::from(containers))
                        .unwrap();
                    overhead.add(&line.resource, each).unwrap();
                    overhead.add(&line.resource, line.per_pod.unwrap_or_default()).unwrap();
                }
                take(Bucket::Overhead, &overhead);
                let mut mapped = Amounts::default();
                for line in &claim.contribution.lines {
                    mapped.add(&line.resource, line.mapping.unwrap_or_default()).unwrap();
                }
                let known = mappings.entry(&claim.uid).or_default();
                for (resource, amount) in mapped {
                    let most = known.get(&resource).copied().unwrap_or_default().max(ceil(&resource, amount));
                    known.insert(resource, most);
                }
            }
        }
        for (reservation, _) in self.devices.values().filter(|(_, users)| !users.is_empty()) {
            take(Bucket::Reservation, reservation);
        }
        for (resource, count) in mappings.into_values().flatten() {
            *sums.entry((Bucket::Mapping, resource)).or_default() += count;
        }
        sums.retain(|_, count| *count != 0);
        sums
    }
}

/// By long division, not by the number's own rounding.
fn ceil(resource: &Resource, amount: Decimal) -> i128 {
    let nanos = amount.mantissa() * 10_i128.pow(u32::try_from(amount.exponent() + 9).unwrap());
    let unit = if *resource == Resource::Cpu { 1_000_000 } else { 1_000_000_000 };
    nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) != 0)
}

fn some(rng: &mut Rng) -> Amounts {
    const RESOURCES: [Resource; 3] = [Resource::Cpu, Resource::Memory, Resource::EphemeralStorage];
    let mut amounts = Amounts::default();
    for resource in RESOURCES {
        if rng.u8(0..3) > 0 {
            amounts.set(resource, Decimal::new(rng.i128(0..50_000), -rng.i32(0..6)).unwrap());
        }
    }
    amounts
}

fn pod(rng: &mut Rng, uid: Box<str>) -> PodCharge {
    let claim = |rng: &mut Rng| {
        let number = rng.u8(0..4);
        let part =
            |rng: &mut Rng| rng.bool().then(|| Decimal::new(rng.i128(0..9_000), -rng.i32(0..5)).unwrap());
        let lines = [Resource::Cpu, Resource::Memory].map(|resource| Line {
            mapping: part(rng),
            per_pod: part(rng),
            per_container: part(rng),
            ..Line::mapping(resource, Decimal::ZERO)
        });
        let containers = (0..rng.u8(0..3)).map(|i| format!("c{i}").into()).collect();
        let source = Source::claim(format!("claim-{number}"));
        ClaimCharge {
            uid: format!("claim-{number}").into(),
            contribution: Contribution { source, containers, lines: lines.into(), legacy_total: false },
            published: rng.bool(),
        }
    };
    let mut claims: BTreeMap<Box<str>, ClaimCharge> = BTreeMap::new();
    for _ in 0..rng.u8(0..3) {
        let claim = claim(rng);
        claims.insert(claim.uid.clone(), claim);
    }
    let stage = if rng.bool() { Stage::Assumed } else { Stage::Bound };
    PodCharge { uid, stage, spec: some(rng), claims: claims.into_values().collect(), unaccounted: Vec::new() }
}

#[test]
fn random_histories_end_where_a_naive_ledger_does() {
    let mut rng = Rng::with_seed(11);
    let device = |i: u8| DeviceId { driver: "d".into(), pool: "p".into(), device: format!("dev-{i}").into() };
    for history in 0..100_000 {
        let (mut ledger, mut naive) = (NodeLedger::default(), Naive::default());
        for _ in 0..rng.u8(1..14) {
            let uid: Box<str> = format!("pod-{}", rng.u8(0..4)).into();
            match rng.u8(0..8) {
                0..4 => {
                    let pod = pod(&mut rng, uid.clone());
                    // A fact that comes twice counts once.
                    for _ in 0..rng.u8(1..3) {
                        ledger.put_pod(pod.clone());
                    }
                    naive.pods.insert(uid, pod);
                }
                4 | 5 => {
                    ledger.remove_pod(&uid);
                    naive.pods.remove(&uid);
                }
                6 => {
                    let (number, claim) = (rng.u8(0..3), Box::<str>::from(format!("claim-{}", rng.u8(0..3))));
                    let known = naive
                        .devices
                        .entry(device(number))
                        .or_insert_with(|| (some(&mut rng), BTreeSet::new()));
                    ledger.use_device(device(number), claim.clone(), &known.0);
                    known.1.insert(claim);
                }
                _ => {
                    let (number, claim) = (rng.u8(0..3), format!("claim-{}", rng.u8(0..3)));
                    ledger.leave_device(&device(number), &claim);
                    if let Some(known) = naive.devices.get_mut(&device(number)) {
                        known.1.remove(&*claim);
                    }
                }
            }
        }
        assert_eq!(*ledger.sums(), naive.sums(), "history {history}");
        assert_eq!(*ledger.sums(), ledger.recomputed(), "history {history}");
        // The order in which the facts came makes no difference.
        let mut again = NodeLedger::default();
        let mut pods: Vec<_> = naive.pods.values().cloned().collect();
        rng.shuffle(&mut pods);
        pods.into_iter().for_each(|pod| drop(again.put_pod(pod)));
        let mut uses: Vec<_> = naive
            .devices
            .iter()
            .flat_map(|(d, (r, users))| users.iter().map(move |u| (d.clone(), u.clone(), r.clone())))
            .collect();
        rng.shuffle(&mut uses);
        uses.iter().for_each(|(device, user, reservation)| {
            again.use_device(device.clone(), user.clone(), reservation);
        });
        assert_eq!(again.sums(), ledger.sums(), "history {history}");
        // Taking everything away leaves nothing.
        naive.pods.keys().for_each(|uid| ledger.remove_pod(uid));
        uses.iter().for_each(|(device, user, _)| ledger.leave_device(device, user));
        assert!(ledger.sums().is_empty(), "history {history}");
    }
}

fn node(cpu: &str) -> NodeLedger {
    let mut ledger = NodeLedger::default();
    ledger.set_allocatable(&amounts(&[("cpu", cpu), ("memory", "256Gi")]));
    ledger
}

fn plain(uid: &str, stage: Stage, spec: &[(&str, &str)], claims: Vec<ClaimCharge>) -> PodCharge {
    PodCharge { uid: uid.into(), stage, spec: amounts(spec), claims, unaccounted: Vec::new() }
}

fn charge(uid: &str, containers: &[&str], lines: Vec<Line>, published: bool) -> ClaimCharge {
    let containers = containers.iter().map(|c| Box::from(*c)).collect();
    let contribution = Contribution { source: Source::claim(uid), containers, lines, legacy_total: false };
    ClaimCharge { uid: uid.into(), contribution, published }
}

fn mapping(cpu: &str) -> Line {
    Line::mapping(Resource::Cpu, q(cpu))
}

#[test]
fn e19_the_boundary() {
    let pod = || {
        plain("s1", Stage::Bound, &[("cpu", "100m")], vec![charge("c", &["c1"], vec![mapping("4")], false)])
    };
    for (requested, fits) in [("11900m", true), ("11901m", false)] {
        let mut ledger = node("16");
        ledger.put_pod(plain("others", Stage::Bound, &[("cpu", requested)], vec![]));
        assert_eq!(ledger.fits(&amounts(&[("cpu", "4100m")])) == Fit::Yes, fits);
        ledger.put_pod(pod());
        let left = if fits { 0 } else { -1 };
        assert_eq!(
            ledger.headroom(&Resource::Cpu),
            Headroom::Left(left),
            "a fact counts, whether it fits or not"
        );
        assert_eq!(ledger.fits(&amounts(&[("cpu", "0"), ("memory", "1Gi")])), Fit::Yes);
    }
    assert!(matches!(node("16").fits(&amounts(&[("cpu", "17")])), Fit::Never { .. }));
}

#[test]
fn e21_overhead_is_paid_by_each_and_a_mapping_once() {
    let overhead = || Line {
        mapping: None,
        per_pod: Some(q("1Gi")),
        per_container: Some(q("256Mi")),
        ..Line::mapping(Resource::Memory, q("0"))
    };
    let mut ledger = node("64");
    ledger.put_pod(plain("a", Stage::Bound, &[], vec![charge("c", &["c1", "c2"], vec![overhead()], false)]));
    ledger.put_pod(plain("b", Stage::Bound, &[], vec![charge("c", &["c1"], vec![overhead()], false)]));
    assert_eq!(Decimal::new(ledger.requested(&Resource::Memory), 0), Ok(q("2816Mi")));
    let shared = || vec![charge("m", &[], vec![mapping("4")], false)];
    assert_eq!(ledger.put_pod(plain("x", Stage::Bound, &[], shared())), []);
    let violation = Violation::SharedMapping { claim: "m".into(), consumers: 2 };
    assert_eq!(ledger.put_pod(plain("y", Stage::Bound, &[], shared())), [violation]);
    assert_eq!(ledger.requested(&Resource::Cpu), 4000);
    ledger.remove_pod("x");
    assert_eq!(ledger.requested(&Resource::Cpu), 4000, "until the last one leaves");
    ledger.remove_pod("y");
    assert_eq!(ledger.requested(&Resource::Cpu), 0);
}

#[test]
fn a_reservation_is_held_once_for_a_device_in_use() {
    let device = || DeviceId { driver: "d".into(), pool: "p".into(), device: "dev".into() };
    let mut ledger = node("64");
    for claim in ["a", "b", "b"] {
        ledger.use_device(device(), claim.into(), &amounts(&[("memory", "1Gi")]));
    }
    assert_eq!(ledger.sum(Bucket::Reservation, &Resource::Memory), 1 << 30);
    ledger.leave_device(&device(), "a");
    assert_eq!(ledger.sum(Bucket::Reservation, &Resource::Memory), 1 << 30);
    ledger.leave_device(&device(), "b");
    assert_eq!(ledger.sum(Bucket::Reservation, &Resource::Memory), 0);
}

#[test]
fn what_cannot_be_read_makes_the_answer_unknown_never_yes() {
    let mut ledger = node("64");
    let broken = Unaccounted {
        object: "Pod ns/pod".into(),
        field: "spec.containers[c].resources.requests[cpu]".into(),
        resource: Some(Resource::Cpu),
        why: "quantity \"many\"".into(),
    };
    let pod =
        PodCharge { unaccounted: vec![broken], ..plain("p", Stage::Bound, &[("memory", "1Gi")], vec![]) };
    ledger.put_pod(pod);
    assert_eq!(ledger.headroom(&Resource::Cpu), Headroom::Unknown);
    assert_eq!(ledger.fits(&amounts(&[("cpu", "1")])), Fit::Unknown([Resource::Cpu].into()));
    assert_eq!(ledger.fits(&amounts(&[("memory", "1Gi")])), Fit::Yes);
    ledger.remove_pod("p");
    assert_eq!(ledger.fits(&amounts(&[("cpu", "1")])), Fit::Yes);
}

#[test]
fn what_a_scheduler_does_not_see() {
    let mut ledger = node("64");
    // Bound: its spec is seen, its claim is not.
    ledger.put_pod(plain(
        "bound",
        Stage::Bound,
        &[("cpu", "1")],
        vec![charge("a", &[], vec![mapping("4")], false)],
    ));
    assert_eq!(ledger.unseen(), [(Resource::Cpu, 4000)].into());
    // On its way: nothing of it is seen.
    ledger.put_pod(plain(
        "assumed",
        Stage::Assumed,
        &[("cpu", "2")],
        vec![charge("b", &[], vec![mapping("8")], false)],
    ));
    assert_eq!(ledger.unseen(), [(Resource::Cpu, 14000)].into());
    // Recorded in its status: seen, and not carried twice.
    ledger.put_pod(plain(
        "bound",
        Stage::Bound,
        &[("cpu", "1")],
        vec![charge("a", &[], vec![mapping("4")], true)],
    ));
    assert_eq!(ledger.unseen(), [(Resource::Cpu, 10000)].into());
    ledger.remove_pod("assumed");
    assert_eq!(ledger.unseen(), Units::new());
}

/// The API server takes such Pods, and kube-scheduler binds them.
#[test]
fn absurd_amounts_are_charged_without_harm() {
    let mut ledger = node("64");
    for uid in ["a", "b", "c"] {
        ledger.put_pod(plain(uid, Stage::Bound, &[("memory", "1e38"), ("cpu", "1e900")], vec![]));
    }
    assert_eq!(ledger.requested(&Resource::Memory), 3 * i128::from(i64::MAX));
    assert!(matches!(ledger.fits(&amounts(&[("memory", "1e38")])), Fit::Never { .. }));
    ["a", "b", "c"].into_iter().for_each(|uid| ledger.remove_pod(uid));
    assert_eq!(ledger.fits(&amounts(&[("memory", "1Gi")])), Fit::Yes);
}

#[test]
fn only_news_make_a_revision() {
    let mut ledger = node("64");
    let pod = || plain("a", Stage::Bound, &[("cpu", "1")], vec![]);
    ledger.put_pod(pod());
    let before = ledger.revision();
    ledger.put_pod(pod());
    ledger.set_allocatable(&amounts(&[("cpu", "64"), ("memory", "256Gi")]));
    ledger.remove_pod("nobody");
    assert_eq!(ledger.revision(), before);
    ledger.put_pod(plain("a", Stage::Bound, &[("cpu", "2")], vec![]));
    assert_eq!(ledger.revision(), before + 1);
}

#[test]
fn amounts_are_rounded_up_and_what_the_node_has_down() {
    let mut ledger = NodeLedger::default();
    ledger.set_allocatable(&amounts(&[("cpu", "1.9999")]));
    ledger.put_pod(plain("p", Stage::Bound, &[("cpu", "0.0001")], vec![]));
    assert_eq!(ledger.headroom(&Resource::Cpu), Headroom::Left(1998));
}
