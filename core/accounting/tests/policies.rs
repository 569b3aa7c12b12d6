//! The worked numbers of accounting policies (P; docs/accounting.md 3), and the decisions where the
//! draft has a gap.

mod words;

use dragoman_accounting::amounts::Amounts;
use dragoman_accounting::claim::contribution::Contribution;
use dragoman_accounting::claim::footprint::AccountingPolicy::{
    self, AddPerClaim, AddPerReference, ConsumeFrom, Max,
};
use dragoman_accounting::ledger::charge::charge;
use dragoman_accounting::ledger::fit::{Candidate, Fit, Refusal};
use dragoman_accounting::ledger::{Bucket, Charging, NodeLedger, Stage, Violation};
use dragoman_accounting::pod::policy::{Clash, incompatible};
use dragoman_accounting::pod::requests::{Claims, Variant};
use dragoman_accounting::pod::{PodSpecView, Resources};
use dragoman_accounting::resource::Resource;
use dragoman_quantity::Decimal;
use words::{amounts, claim, container, cpu, line, pod, policed, q, total};

fn peak(pod: &PodSpecView) -> Decimal {
    total(pod, Claims::Peak).get(Resource::Cpu)
}

fn clashes(pod: &PodSpecView) -> Vec<Clash> {
    let mut clashes: Vec<_> = incompatible(pod).into_iter().map(|found| found.why).collect();
    clashes.dedup();
    clashes
}

#[test]
fn p1_once_for_each_claim() {
    let shared = claim("a", &["c1", "c2"], vec![policed("d", AddPerClaim, "4")]);
    let pod = pod(vec![container("c1", &[("cpu", "1")]), container("c2", &[("cpu", "2")])], vec![shared]);
    assert_eq!((cpu(&pod), peak(&pod)), (q("7"), q("7")));
}

#[test]
fn p3_once_for_each_reference() {
    let both = ["c1", "c2"];
    let claims = vec![
        claim("a", &both, vec![policed("d", AddPerClaim, "4")]),
        claim("b", &both, vec![policed("d", AddPerReference, "2")]),
    ];
    let pod = pod(vec![container("c1", &[("cpu", "1")]), container("c2", &[("cpu", "2")])], claims);
    assert_eq!((cpu(&pod), peak(&pod)), (q("11"), q("11")));
}

#[test]
fn p5_the_larger_of_request_and_claims() {
    let both = |second| {
        let claims = vec![
            claim("a", &["c"], vec![policed("d", Max, "3")]),
            claim("b", &["c"], vec![policed(second, Max, "3")]),
        ];
        pod(vec![container("c", &[("cpu", "4")])], claims)
    };
    assert_eq!((cpu(&both("d")), clashes(&both("d"))), (q("6"), vec![]));
    assert_eq!(clashes(&both("other")), [Clash::MaxOfSeveralDrivers]);
}

#[test]
fn p6b_two_containers_take_the_larger_each() {
    let shared = claim("a", &["c1", "c2"], vec![policed("d", Max, "4")]);
    let pod = pod(vec![container("c1", &[("cpu", "2")]), container("c2", &[("cpu", "5")])], vec![shared]);
    assert_eq!(cpu(&pod), q("9"));
}

#[test]
fn p7_a_container_without_the_claim_is_not_touched() {
    let containers = vec![container("c1", &[("cpu", "2")]), container("c2", &[("cpu", "3")])];
    assert_eq!(cpu(&pod(containers, vec![claim("a", &["c1"], vec![policed("d", Max, "4")])])), q("7"));
}

#[test]
fn p13_the_device_goes_before_the_class() {
    assert_eq!(AccountingPolicy::resolved(Some(Max), Some(AddPerClaim)), Some(Max));
    assert_eq!(AccountingPolicy::resolved(None, Some(AddPerReference)), Some(AddPerReference));
    assert_eq!(AccountingPolicy::resolved(None, None), None);
}

#[test]
fn p15_what_an_init_container_used_stays_allocated() {
    let mut pod =
        pod(vec![container("c", &[("cpu", "3")])], vec![claim("a", &["i"], vec![policed("d", Max, "8")])]);
    pod.init_containers = vec![container("i", &[("cpu", "1")])];
    assert_eq!(cpu(&pod), q("11"));
    // While the init container runs it may need more than that itself.
    pod.init_containers = vec![container("i", &[("cpu", "12")])];
    assert_eq!(cpu(&pod), q("12"));
    // Init containers that start later find the devices taken, too.
    pod.init_containers.push(container("j", &[("cpu", "5")]));
    assert_eq!(cpu(&pod), q("13"));
}

#[test]
fn references_of_init_containers_count_at_the_peak_only_while_they_run() {
    let mut pod = pod(
        vec![container("c", &[("cpu", "1")])],
        vec![claim("a", &["c", "i", "j"], vec![policed("d", AddPerReference, "2")])],
    );
    pod.init_containers = vec![container("i", &[]), container("j", &[])];
    assert_eq!((cpu(&pod), peak(&pod)), (q("7"), q("3")));
}

#[test]
fn a_claim_that_no_container_names_counts_once_under_every_policy() {
    for policy in [AddPerClaim, AddPerReference, Max, ConsumeFrom] {
        let pod = pod(
            vec![container("c", &[("cpu", "1")])],
            vec![claim("a", &[], vec![policed("d", policy, "4")])],
        );
        assert_eq!((cpu(&pod), peak(&pod)), (q("5"), q("5")), "{policy:?}");
    }
}

#[test]
fn a_container_that_the_pod_does_not_have_counts_all_the_same() {
    for policy in [AddPerReference, Max] {
        let claim = claim("a", &["ghost"], vec![policed("d", policy, "4")]);
        let pod = pod(vec![container("c", &[("cpu", "1")])], vec![claim]);
        assert_eq!((cpu(&pod), peak(&pod)), (q("5"), q("5")), "{policy:?}");
    }
}

#[test]
fn what_cannot_be_combined() {
    let of = |first, second| {
        let claims = vec![
            claim("a", &["c"], vec![policed("x", first, "4")]),
            claim("b", &["c"], vec![policed("y", second, "4")]),
        ];
        clashes(&pod(vec![container("c", &[("cpu", "1")])], claims))
    };
    assert_eq!(of(Max, ConsumeFrom), [Clash::MaxAndPool]);
    assert_eq!(of(ConsumeFrom, ConsumeFrom), [Clash::PoolsOfSeveralDrivers]);
    assert_eq!(of(Max, Max), [Clash::MaxOfSeveralDrivers]);
    for adding in [AddPerClaim, AddPerReference] {
        assert_eq!((of(Max, adding), of(adding, ConsumeFrom)), (vec![], vec![]), "{adding:?}");
    }
    // A policy belongs to a resource: `Max` of cpu does not clash with a pool of memory.
    let memory = dragoman_accounting::claim::contribution::Line {
        policy: Some(ConsumeFrom),
        driver: "y".into(),
        ..line("memory", "1Gi", "", "")
    };
    let two = vec![claim("a", &["c"], vec![policed("x", Max, "4"), memory])];
    let mut pod = pod(vec![container("c", &[("memory", "1Gi")])], two);
    assert_eq!(clashes(&pod), []);
    pod.pod_level = Some(Resources { requests: amounts(&[("memory", "2Gi")]), limits: Amounts::default() });
    assert_eq!(clashes(&pod), [Clash::PoolAndPodLevel]);
}

// Pools.

fn drawing(uid: &str, request: &str, pools: &[(&str, &str)]) -> PodSpecView {
    let claims: Vec<Contribution> =
        pools.iter().map(|(name, size)| claim(name, &["c"], vec![policed("d", ConsumeFrom, size)])).collect();
    PodSpecView { uid: uid.into(), ..pod(vec![container("c", &[("cpu", request)])], claims) }
}

fn node(allocatable: &str, pods: &[PodSpecView]) -> NodeLedger {
    let mut ledger = NodeLedger::new(Charging::PerClaim);
    ledger.set_allocatable(&amounts(&[("cpu", allocatable)]));
    for pod in pods {
        ledger.put_pod(charge(pod, Stage::Bound, Variant::WholeLife, Vec::new()));
    }
    ledger
}

fn fits(ledger: &NodeLedger, pod: &PodSpecView) -> Fit {
    let pod = charge(pod, Stage::Assumed, Variant::WholeLife, Vec::new());
    ledger.fits(&Candidate { pod, devices: Vec::new() })
}

#[test]
fn s6_p8_a_pool_is_held_whole_and_shared() {
    let pool = [("pool", "100")];
    let mut ledger = node("128", &[drawing("one", "10", &pool)]);
    assert_eq!((ledger.requested(Resource::Cpu), ledger.pools()[0].drawn), (100_000, 10_000));
    ledger.put_pod(charge(&drawing("two", "20", &pool), Stage::Bound, Variant::WholeLife, Vec::new()));
    assert_eq!((ledger.requested(Resource::Cpu), ledger.pools()[0].drawn), (100_000, 30_000));
    assert_eq!(ledger.violations(), []);
    assert_eq!(fits(&ledger, &drawing("three", "70", &pool)), Fit::Yes);
    let Fit::Refused(refusals) = fits(&ledger, &drawing("three", "71", &pool)) else { panic!("it fits") };
    assert!(matches!(&refusals[..], [Refusal::Overdrawn(pool)] if pool.short == 1_000));
    ledger.remove_pod("one");
    assert_eq!((ledger.requested(Resource::Cpu), ledger.pools()[0].drawn), (100_000, 20_000));
    ledger.remove_pod("two");
    assert_eq!((ledger.requested(Resource::Cpu), ledger.pools()), (0, vec![]));
}

#[test]
fn p9_a_pool_and_a_device_besides() {
    let mut pod = drawing("pod", "10", &[("pool", "100")]);
    pod.contributions.push(claim("gpu", &["c"], vec![policed("gpu", AddPerClaim, "2")]));
    let ledger = node("128", &[pod]);
    assert_eq!((ledger.requested(Resource::Cpu), ledger.pools()[0].drawn), (102_000, 10_000));
    assert_eq!(ledger.charged(Bucket::Pods, Resource::Cpu), 0);
}

#[test]
fn p11_two_pools_of_one_driver() {
    let pools = [("a", "30"), ("b", "20")];
    let ledger = node("64", &[drawing("pod", "45", &pools)]);
    assert_eq!((ledger.requested(Resource::Cpu), ledger.violations()), (50_000, vec![]));
    let over = node("64", &[drawing("pod", "55", &pools)]);
    assert_eq!(over.requested(Resource::Cpu), 50_000);
    let [Violation::Overdrawn(pool)] = &over.violations()[..] else { panic!("{:?}", over.violations()) };
    assert_eq!((pool.allocated, pool.drawn, pool.short), (50_000, 55_000, 5_000));
    assert!(matches!(fits(&node("64", &[]), &drawing("pod", "55", &pools)), Fit::Refused(_)));
}

#[test]
fn who_may_draw_from_one_pool_only_leaves_the_others_theirs() {
    let (a, both, b) = ([("a", "30")], [("a", "30"), ("b", "20")], [("b", "20")]);
    // Pod `one` draws all 30 of `a`, so `both` has only `b`.
    let apart = node("64", &[drawing("both", "20", &both), drawing("one", "30", &a)]);
    assert_eq!(apart.violations(), []);
    assert_eq!(apart.pools().len(), 1);
    // The pools are large enough together, but `two` may draw from `b` only.
    let wrong =
        node("64", &[drawing("one", "10", &a), drawing("two", "25", &b), drawing("both", "5", &both)]);
    let pool = &wrong.pools()[0];
    assert_eq!((pool.allocated, pool.drawn, pool.short), (50_000, 40_000, 5_000));
    assert_eq!(wrong.violations_of("two").len(), 1);
}

#[test]
fn a_scheduler_that_knows_nothing_of_pools_counts_the_draws() {
    use dragoman_accounting::ledger::holder::Scheduler;
    let ledger = node("128", &[drawing("pod", "10", &[("pool", "100")])]);
    assert_eq!(ledger.holder(Scheduler::Unaware).request.get(Resource::Cpu), 90_000);
}
