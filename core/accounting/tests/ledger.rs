//! The ledger of a node: charges, answers about candidates, and the amounts of holders.

mod words;

use dragoman_accounting::amounts::Amounts;
use dragoman_accounting::claim::contribution::{Contribution, Generation, Line};
use dragoman_accounting::claim::footprint::AccountingPolicy;
use dragoman_accounting::ledger::charge::{PodCharge, charge};
use dragoman_accounting::ledger::fit::{Candidate, Fit, Headroom, Refusal};
use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_accounting::ledger::{Bucket, Cause, Charging, Holding, NodeLedger, Stage, Violation};
use dragoman_accounting::per_resource::{Sums, Units};
use dragoman_accounting::pod::requests::Variant;
use dragoman_accounting::pod::{PodSpecView, PodStatusView, Resources};
use dragoman_accounting::resource::Resource;
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_objects::DeviceId;
use dragoman_quantity::Decimal;
use words::{amounts, claim, container, line, pod, units};

fn node(cpu: &str) -> NodeLedger {
    of(cpu, Charging::PerClaim)
}

fn of(cpu: &str, charging: Charging) -> NodeLedger {
    let mut ledger = NodeLedger::new(charging);
    ledger.set_allocatable(&amounts(&[("cpu", cpu), ("memory", "256Gi"), ("hugepages-2Mi", "1Gi")]));
    ledger
}

fn view(uid: &str, spec: &[(&str, &str)], claims: Vec<Contribution>) -> PodSpecView {
    let recorded = claims.iter().filter(|claim| claim.recorded.is_some()).cloned().collect();
    PodSpecView { uid: uid.into(), recorded, ..pod(vec![container("c", spec)], claims) }
}

fn charged(view: &PodSpecView, stage: Stage) -> PodCharge {
    charge(view, stage, Variant::WholeLife, Vec::new())
}

fn bound(uid: &str, spec: &[(&str, &str)], claims: Vec<Contribution>) -> PodCharge {
    charged(&view(uid, spec, claims), Stage::Bound)
}

fn candidate(spec: &[(&str, &str)], claims: Vec<Contribution>) -> Candidate {
    Candidate { pod: charged(&view("candidate", spec, claims), Stage::Assumed), devices: Vec::new() }
}

fn mapped(uid: &str, cpu: &str) -> Contribution {
    claim(uid, &["c"], vec![line("cpu", cpu, "", "")])
}

fn published(claim: Contribution) -> Contribution {
    Contribution { recorded: Some(Generation::V1_37), ..claim }
}

fn cpus(ledger: &NodeLedger) -> i128 {
    ledger.requested(Resource::Cpu)
}

fn sums(list: &[(&str, i64)]) -> Sums {
    let mut sums = Sums::default();
    sums.add(&units(list));
    sums
}

#[test]
fn e19_the_boundary() {
    let s1 = || vec![claim("c", &["c"], vec![line("cpu", "4", "", "")])];
    for (requested, fits) in [("11900m", Fit::Yes), ("11901m", Fit::Missing(sums(&[("cpu", 1)])))] {
        let mut ledger = node("16");
        ledger.put_pod(bound("others", &[("cpu", requested)], vec![]));
        assert_eq!(ledger.fits(&candidate(&[("cpu", "100m")], s1())), fits);
        ledger.put_pod(bound("s1", &[("cpu", "100m")], s1()));
        let left = if fits == Fit::Yes { 0 } else { -1 };
        assert_eq!(
            ledger.headroom(Resource::Cpu),
            Headroom::Left(left),
            "a fact counts, whether it fits or not"
        );
        assert_eq!(ledger.fits(&candidate(&[("cpu", "0"), ("memory", "1Gi")], vec![])), Fit::Yes);
    }
    let too_large = node("16").fits(&candidate(&[("cpu", "17")], vec![]));
    assert_eq!(too_large, Fit::Never([Resource::Cpu].into()));
    let nowhere = node("16").fits(&candidate(&[("hugepages-1Gi", "1Gi")], vec![]));
    assert_eq!(nowhere, Fit::Never([words::resource("hugepages-1Gi")].into()));
}

#[test]
fn e21_overhead_is_paid_by_each_and_a_mapping_once() {
    let overhead =
        |containers: &[&str]| vec![claim("o", containers, vec![line("memory", "", "1Gi", "256Mi")])];
    let mut ledger = node("64");
    ledger.put_pod(bound("a", &[], overhead(&["c", "c2"])));
    ledger.put_pod(bound("b", &[], overhead(&["c"])));
    assert_eq!(ledger.requested(Resource::Memory), 2816 << 20);
    assert_eq!(ledger.violations(), []);
    ledger.put_pod(bound("x", &[], vec![mapped("m", "4")]));
    assert_eq!(ledger.violations(), []);
    let Fit::Refused(refusals) = ledger.fits(&candidate(&[], vec![mapped("m", "4")])) else {
        panic!("shared")
    };
    assert_eq!(refusals, [Refusal::OnePod { claim: "m".into() }]);
    ledger.put_pod(bound("y", &[], vec![mapped("m", "4")]));
    let violation = Violation::SharedMapping { claim: "m".into(), consumers: 2 };
    assert_eq!(ledger.violations_of("y"), std::slice::from_ref(&violation));
    assert_eq!(ledger.violations(), [violation]);
    assert_eq!(cpus(&ledger), 4000);
    ledger.remove_pod("x");
    assert_eq!(cpus(&ledger), 4000, "until the last one leaves");
    ledger.remove_pod("y");
    assert_eq!(cpus(&ledger), 0);
}

/// A Pod of which kubelet reports this total, as 1.37.2 does with what claims take (`node-faults/the_cpus_of_a_claim…`).
fn reported(uid: &str, spec: &[(&str, &str)], claims: Vec<Contribution>, cpu: &str) -> PodSpecView {
    let total = amounts(&[("cpu", cpu)]);
    let actual = Some(Resources { requests: total.clone(), limits: Amounts::default() });
    let status = PodStatusView { allocated: Some(total), actual, resize_infeasible: false };
    PodSpecView { status, ..view(uid, spec, claims) }
}

#[test]
fn totals_of_kubelet_do_not_move_a_claim_into_its_pod() {
    let mut ledger = node("64");
    for uid in ["x", "y"] {
        let claims = vec![published(mapped("m", "4"))];
        ledger.put_pod(charged(&reported(uid, &[("cpu", "100m")], claims, "4100m"), Stage::Bound));
    }
    let of = |ledger: &NodeLedger, bucket| ledger.charged(bucket, Resource::Cpu);
    assert_eq!((of(&ledger, Bucket::Pods), of(&ledger, Bucket::Mapping)), (200, 4000));
    // Of another Pod the claim is hidden. The totals of the first show what their claim takes: that is not held again.
    ledger.remove_pod("y");
    ledger.put_pod(bound("z", &[("cpu", "1")], vec![mapped("hidden", "4")]));
    assert_eq!(ledger.holder(Scheduler::Unaware).request, units(&[("cpu", 4000)]));
    // Requests for the whole Pod that name another resource change nothing.
    let mut level = reported("level", &[], vec![published(mapped("l", "4"))], "4");
    level.pod_level = Some(Resources { requests: amounts(&[("memory", "1Gi")]), limits: Amounts::default() });
    ledger.put_pod(charged(&level, Stage::Bound));
    assert_eq!(of(&ledger, Bucket::Mapping), 12_000);
}

/// kubelet counts the overhead of a RuntimeClass in its total, and a scheduler adds it again.
#[test]
fn what_a_scheduler_counts_besides_is_charged_to_the_pod() {
    let mut ledger = node("64");
    let mut pod = reported("x", &[("cpu", "100m")], Vec::new(), "350m");
    pod.overhead = amounts(&[("cpu", "250m")]);
    ledger.put_pod(charged(&pod, Stage::Bound));
    assert_eq!((ledger.charged(Bucket::Pods, Resource::Cpu), cpus(&ledger)), (600, 600));
    assert_eq!(ledger.holder(Scheduler::Unaware).request, Units::default());
}

#[test]
fn in_the_tree_every_pod_is_charged() {
    let mut ledger = of("64", Charging::InTree);
    ledger.put_pod(bound("x", &[], vec![mapped("m", "4")]));
    ledger.put_pod(bound("y", &[], vec![mapped("m", "4")]));
    assert_eq!(cpus(&ledger), 8000);
    ledger.remove_pod("x");
    assert_eq!(cpus(&ledger), 4000);
}

#[test]
fn a_claim_within_the_pods_budget_is_charged_once_only() {
    let mut ledger = node("64");
    let mut view = view("pod", &[], vec![mapped("m", "10")]);
    view.pod_level = Some(Resources { requests: amounts(&[("cpu", "11")]), limits: Amounts::default() });
    ledger.put_pod(charged(&view, Stage::Bound));
    assert_eq!(cpus(&ledger), 11000);
    // The claim is still for one Pod: its devices are node resources.
    assert!(matches!(ledger.fits(&candidate(&[], vec![mapped("m", "10")])), Fit::Refused(_)));
    assert_eq!(ledger.holder(Scheduler::Unaware).request, Units::default());
}

#[test]
fn a_reservation_is_held_once_for_a_device_in_use() {
    let device = || DeviceId { driver: "d".into(), pool: "p".into(), device: "dev".into() };
    let held = |ledger: &NodeLedger| ledger.charged(Bucket::Reservation, Resource::Memory);
    let mut ledger = node("64");
    for claim in ["a", "b", "b"] {
        ledger.use_device(device(), claim.into(), &amounts(&[("memory", "1Gi")]));
    }
    assert_eq!(held(&ledger), 1 << 30);
    // The slice has another amount now. The larger amount is held while a claim states it.
    ledger.use_device(device(), "a".into(), &amounts(&[("memory", "2Gi")]));
    assert_eq!(held(&ledger), 2 << 30);
    ledger.leave_device(&device(), "a");
    assert_eq!(held(&ledger), 1 << 30);
    // A candidate with the same device costs nothing more. One with another device does.
    let other = DeviceId { device: "other".into(), ..device() };
    let of = |device, memory| Candidate {
        devices: vec![(device, units(&[("memory", memory)]))],
        ..candidate(&[], vec![])
    };
    ledger.put_pod(bound("full", &[("memory", "255Gi")], vec![]));
    assert_eq!(ledger.fits(&of(device(), 1 << 30)), Fit::Yes);
    assert_eq!(ledger.fits(&of(other, 1 << 30)), Fit::Missing(sums(&[("memory", 1 << 30)])));
    ledger.leave_device(&device(), "b");
    assert_eq!(held(&ledger), 0);
}

#[test]
fn what_cannot_be_read_makes_the_answer_unknown_never_yes() {
    let broken = |resource| Unaccounted {
        object: "Pod ns/pod".into(),
        field: "spec.containers[c].resources.requests[cpu]".into(),
        resource,
        why: "quantity \"many\"".into(),
    };
    let mut ledger = node("64");
    let pod = view("p", &[("memory", "1Gi")], vec![]);
    ledger.put_pod(charge(&pod, Stage::Bound, Variant::WholeLife, vec![broken(Some(Resource::Cpu))]));
    assert_eq!(ledger.headroom(Resource::Cpu), Headroom::Unknown);
    assert_eq!(ledger.fits(&candidate(&[("cpu", "1")], vec![])), Fit::Unknown([Resource::Cpu].into()));
    assert_eq!(ledger.fits(&candidate(&[("memory", "1Gi")], vec![])), Fit::Yes);
    ledger.remove_pod("p");
    assert_eq!(ledger.fits(&candidate(&[("cpu", "1")], vec![])), Fit::Yes);
    // The same for an object other than a Pod.
    ledger.doubt("ResourceClaim ns/c", vec![broken(None)]);
    assert_eq!(
        ledger.fits(&candidate(&[("memory", "1Gi")], vec![])),
        Fit::Unknown([Resource::Memory].into())
    );
    ledger.doubt("ResourceClaim ns/c", vec![]);
    assert_eq!(ledger.fits(&candidate(&[("memory", "1Gi")], vec![])), Fit::Yes);
    // A candidate that cannot be read is refused as a whole.
    let question = charge(&pod, Stage::Assumed, Variant::WholeLife, vec![broken(Some(Resource::Cpu))]);
    let refused = ledger.fits(&Candidate { pod: question, devices: Vec::new() });
    assert_eq!(refused, Fit::Refused(vec![Refusal::Unaccounted(broken(Some(Resource::Cpu)))]));
}

#[test]
fn what_a_scheduler_does_not_see() {
    let mut ledger = node("64");
    let hidden = |ledger: &NodeLedger, scheduler| ledger.holder(scheduler).request;
    // A bound Pod: the scheduler sees its spec and not its claim.
    ledger.put_pod(bound("bound", &[("cpu", "1")], vec![mapped("a", "4")]));
    assert_eq!(hidden(&ledger, Scheduler::Unaware), units(&[("cpu", 4000)]));
    // An assumed Pod: the scheduler counts its spec itself when it binds it, and nothing of what a DeviceFootprint says of
    // its claim.
    let mut footprint = mapped("b", "8");
    footprint.lines.iter_mut().for_each(|line| line.local = true);
    let assumed = view("assumed", &[("cpu", "2")], vec![footprint]);
    ledger.put_pod(charged(&assumed, Stage::Assumed));
    assert_eq!(hidden(&ledger, Scheduler::Unaware), units(&[("cpu", 12000)]));
    // The claim is recorded in the status: an aware scheduler sees it, and it is not held twice.
    ledger.put_pod(bound("bound", &[("cpu", "1")], vec![published(mapped("a", "4"))]));
    assert_eq!(hidden(&ledger, Scheduler::Unaware), units(&[("cpu", 12000)]));
    assert_eq!(hidden(&ledger, Scheduler::Aware(Generation::V1_37)), units(&[("cpu", 8000)]));
    let said = ("bound".into(), Generation::V1_37, units(&[("cpu", 4000)]));
    assert_eq!(ledger.holder(Scheduler::Unaware).published, [said]);
    // A scheduler of another version does not read it.
    assert_eq!(hidden(&ledger, Scheduler::Aware(Generation::V1_38)), units(&[("cpu", 12000)]));
    // The assumed Pod is bound now.
    ledger.put_pod(charged(&assumed, Stage::Bound));
    assert_eq!(hidden(&ledger, Scheduler::Unaware), units(&[("cpu", 12000)]));
    ledger.remove_pod("assumed");
    assert_eq!(hidden(&ledger, Scheduler::Aware(Generation::V1_37)), Units::default());
}

/// A holder that carried it, too, would keep the Pod itself from its node.
#[test]
fn a_scheduler_that_counts_claims_finds_what_slices_say_of_an_assumed_pod() {
    let mut ledger = node("64");
    let mut both = mapped("a", "8");
    let local =
        both.lines.first().map(|line| Line { local: true, mapping: Some(Decimal::from(3)), ..line.clone() });
    both.lines.extend(local);
    let pod = view("assumed", &[("cpu", "2")], vec![both]);
    ledger.put_pod(charged(&pod, Stage::Assumed));
    let aware = Scheduler::Aware(Generation::V1_37);
    assert_eq!(ledger.holder(aware).request, units(&[("cpu", 3000)]));
    assert_eq!(ledger.holder(Scheduler::Unaware).request, units(&[("cpu", 11000)]));
    // Once it is bound, only what its status says is counted.
    ledger.put_pod(charged(&pod, Stage::Bound));
    assert_eq!(ledger.holder(aware).request, units(&[("cpu", 11000)]));
}

#[test]
fn a_scheduler_that_counts_a_shared_claim_twice_sees_more_than_there_is() {
    let mut ledger = node("64");
    for uid in ["x", "y"] {
        ledger.put_pod(bound(uid, &[], vec![published(mapped("m", "4"))]));
    }
    assert_eq!(ledger.holder(Scheduler::Unaware).request, units(&[("cpu", 4000)]));
    assert_eq!(ledger.holder(Scheduler::Aware(Generation::V1_37)).request, Units::default());
}

#[test]
fn holders_hold_cpu_and_memory_and_say_what_they_cannot() {
    let mut ledger = node("64");
    let lines =
        vec![line("cpu", "4", "", ""), line("memory", "", "1Gi", ""), line("hugepages-2Mi", "4Mi", "", "")];
    ledger.put_pod(bound("pod", &[], vec![claim("c", &["c"], lines)]));
    let holder = ledger.holder(Scheduler::Unaware);
    assert_eq!(holder.request, units(&[("cpu", 4000), ("memory", 1 << 30)]));
    assert_eq!(holder.uncovered, units(&[("hugepages-2Mi", 4 << 20)]));
    // A holder takes nothing itself, and does not reduce the amounts of holders.
    let of = view("holder", &[("cpu", "4"), ("memory", "1Gi")], vec![]);
    ledger.put_pod(charged(&of, Stage::Holder));
    assert_eq!(ledger.holder(Scheduler::Unaware), holder);
    assert_eq!((cpus(&ledger), ledger.charged(Bucket::Holders, Resource::Cpu)), (4000, 4000));
    assert!(ledger.who_has(Resource::Cpu).iter().all(|holding| holding.cause != Cause::Pod("holder".into())));
}

#[test]
fn who_has_it() {
    let mut ledger = node("64");
    ledger.put_pod(bound("a", &[("cpu", "1")], vec![mapped("m", "4")]));
    ledger.put_pod(bound("b", &[("cpu", "2")], vec![claim("o", &["c"], vec![line("cpu", "", "3", "")])]));
    let device = DeviceId { driver: "d".into(), pool: "p".into(), device: "dev".into() };
    ledger.use_device(device.clone(), "o".into(), &amounts(&[("cpu", "500m")]));
    let overhead = Cause::Overhead { pod: "b".into(), claim: "o".into() };
    let expected = [
        (Cause::Mapping("m".into()), 4000),
        (overhead, 3000),
        (Cause::Pod("b".into()), 2000),
        (Cause::Pod("a".into()), 1000),
        (Cause::Reservation(device), 500),
    ];
    assert_eq!(ledger.who_has(Resource::Cpu), expected.map(|(cause, amount)| Holding { cause, amount }));
    assert_eq!(ledger.who_has(Resource::Memory), []);
}

#[test]
fn a_pod_that_is_there_is_asked_about_as_if_it_were_not() {
    let mut ledger = node("8");
    ledger.put_pod(bound("candidate", &[("cpu", "6")], vec![mapped("m", "1")]));
    assert_eq!(ledger.fits(&candidate(&[("cpu", "7")], vec![mapped("m", "1")])), Fit::Yes);
    assert_eq!(
        ledger.fits(&candidate(&[("cpu", "8")], vec![mapped("m", "1")])),
        Fit::Never([Resource::Cpu].into())
    );
}

/// The API server accepts such Pods, and kube-scheduler binds them.
#[test]
fn absurd_amounts_are_charged_without_harm() {
    let mut ledger = node("64");
    for uid in ["a", "b", "c"] {
        ledger.put_pod(bound(uid, &[("memory", "1e37"), ("cpu", "1e900")], vec![mapped("m", "1e300")]));
    }
    assert_eq!(ledger.requested(Resource::Memory), 3 * i128::from(i64::MAX));
    assert_eq!(ledger.headroom(Resource::Cpu), Headroom::Unknown, "no sum of these can be held");
    let absurd = ledger.fits(&candidate(&[("memory", "1e37")], vec![]));
    assert_eq!(absurd, Fit::Never([Resource::Memory].into()));
    ["a", "b", "c"].into_iter().for_each(|uid| ledger.remove_pod(uid));
    assert_eq!(ledger.fits(&candidate(&[("memory", "1Gi")], vec![])), Fit::Yes);
    // No sum holds these digits, so the amount is unknown.
    ledger.put_pod(bound(
        "d",
        &[("memory", "1e37")],
        vec![claim("t", &["c"], vec![line("memory", "1n", "", "")])],
    ));
    assert_eq!(ledger.headroom(Resource::Memory), Headroom::Unknown);
    assert_eq!(ledger.headroom(Resource::Cpu), Headroom::Left(64_000));
}

#[test]
fn only_news_make_a_revision() {
    let mut ledger = node("64");
    let pod = || bound("a", &[("cpu", "1")], vec![]);
    ledger.put_pod(pod());
    let before = ledger.revision();
    ledger.put_pod(pod());
    let same = amounts(&[("cpu", "64"), ("memory", "256Gi"), ("hugepages-2Mi", "1Gi")]);
    ledger.set_allocatable(&same);
    ledger.remove_pod("nobody");
    ledger.doubt("nothing", vec![]);
    assert_eq!(ledger.revision(), before);
    ledger.put_pod(bound("a", &[("cpu", "2")], vec![]));
    assert_eq!(ledger.revision(), before + 1);
}

#[test]
fn a_pod_is_rounded_up_once_and_what_the_node_has_down() {
    let mut ledger = NodeLedger::new(Charging::PerClaim);
    ledger.set_allocatable(&amounts(&[("cpu", "1.9999")]));
    ledger.put_pod(bound("p", &[("cpu", "0.0001")], vec![mapped("m", "0.0001")]));
    assert_eq!(ledger.headroom(Resource::Cpu), Headroom::Left(1998));
}

#[test]
fn a_line_without_a_claim_uid_is_kept_apart_by_namespace() {
    let named = |namespace: &str| {
        let mut claim = mapped("m", "4");
        claim.source.uid = None;
        PodSpecView { namespace: namespace.into(), ..view(namespace, &[], vec![claim]) }
    };
    let mut ledger = node("64");
    ledger.put_pod(charged(&named("one"), Stage::Bound));
    ledger.put_pod(charged(&named("two"), Stage::Bound));
    assert_eq!((cpus(&ledger), ledger.violations()), (8000, vec![]));
}

#[test]
fn a_scheduler_sees_what_is_written_not_what_is_charged() {
    // Two for each of three references are six; the status records two.
    let policy = Some(AccountingPolicy::AddPerReference);
    let lines = vec![Line { policy, ..line("cpu", "2", "", "") }];
    let six = claim("r", &["c", "d", "e"], lines);
    let mut view = view("pod", &[], vec![six]);
    view.recorded = vec![published(claim("r", &["c", "d", "e"], vec![line("cpu", "2", "", "")]))];
    let mut ledger = node("64");
    ledger.put_pod(charged(&view, Stage::Bound));
    assert_eq!(cpus(&ledger), 6000);
    assert_eq!(ledger.holder(Scheduler::Aware(Generation::V1_37)).request, units(&[("cpu", 4000)]));
}

#[test]
fn a_claim_in_two_pieces_is_one_claim() {
    let pieces = |amount| vec![mapped("m", amount), mapped("m", amount)];
    let mut ledger = node("64");
    ledger.put_pod(bound("pod", &[], pieces("0.5m")));
    assert_eq!((cpus(&ledger), ledger.who_has(Resource::Cpu).len()), (1, 1));
    let device = DeviceId { driver: "d".into(), pool: "p".into(), device: "dev".into() };
    let twice =
        vec![(device.clone(), units(&[("memory", 200 << 30)])), (device, units(&[("memory", 200 << 30)]))];
    assert_eq!(ledger.fits(&Candidate { devices: twice, ..candidate(&[], vec![]) }), Fit::Yes);
}

#[test]
fn people_read_names_and_not_uids() {
    let named = |name: &str| {
        let mut claim = mapped("m", "4");
        claim.source.uid = Some("uid-of-m".into());
        let view = view(&format!("uid-of-{name}"), &[("cpu", "1")], vec![claim]);
        charged(&PodSpecView { name: name.into(), ..view }, Stage::Bound)
    };
    let mut ledger = node("64");
    ledger.put_pod(named("a"));
    ledger.put_pod(named("b"));
    let causes: Vec<String> =
        ledger.who_has(Resource::Cpu).iter().map(|holding| holding.cause.to_string()).collect();
    assert_eq!(causes, ["devices of ResourceClaim ns/m", "Pod ns/a", "Pod ns/b"]);
    let violations: Vec<String> = ledger.violations().iter().map(ToString::to_string).collect();
    assert_eq!(violations, ["ResourceClaim ns/m: its devices are node resources, and 2 Pods use it"]);
}

#[test]
fn what_nobody_has_said_of_a_node_is_unknown() {
    let ledger = NodeLedger::new(Charging::PerClaim);
    assert_eq!(ledger.headroom(Resource::Cpu), Headroom::Unknown);
    assert_eq!(ledger.fits(&candidate(&[("cpu", "1")], vec![])), Fit::Unknown([Resource::Cpu].into()));
    assert_eq!(ledger.fits(&candidate(&[], vec![])), Fit::Yes);
}

#[test]
fn what_is_certainly_too_large_never_fits() {
    let mut ledger = node("4");
    let unread = |resource| Unaccounted { object: "x".into(), field: "y".into(), resource, why: "z".into() };
    ledger.doubt("x", vec![unread(None)]);
    assert_eq!(ledger.fits(&candidate(&[("cpu", "8")], vec![])), Fit::Never([Resource::Cpu].into()));
    assert_eq!(ledger.fits(&candidate(&[("cpu", "3")], vec![])), Fit::Unknown([Resource::Cpu].into()));
    ledger.doubt_allocatable(vec![unread(Some(Resource::Cpu))]);
    assert_eq!(ledger.fits(&candidate(&[("cpu", "8")], vec![])), Fit::Unknown([Resource::Cpu].into()));
}

#[test]
fn who_is_there_decides_about_sharing_too() {
    let mut ledger = node("64");
    ledger.put_pod(bound("pod", &[], vec![mapped("m", "4")]));
    let shareable = Line { policy: Some(AccountingPolicy::AddPerClaim), ..line("cpu", "4", "", "") };
    let answer = ledger.fits(&candidate(&[], vec![claim("m", &["c"], vec![shareable])]));
    assert_eq!(answer, Fit::Refused(vec![Refusal::OnePod { claim: "m".into() }]));
}

#[test]
fn a_holder_says_what_it_does_not_know() {
    let mut ledger = node("64");
    ledger.put_pod(bound("pod", &[], vec![mapped("m", "4")]));
    let broken =
        Unaccounted { object: "x".into(), field: "y".into(), resource: Some(Resource::Cpu), why: "z".into() };
    ledger.doubt("x", vec![broken]);
    assert_eq!(ledger.holder(Scheduler::Unaware).unknown, [Resource::Cpu].into());
}
