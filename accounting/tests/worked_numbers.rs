//! The worked numbers of node-allocatable.md 2.8, under the names they have there.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use dragoman_accounting::allocation::{Device, DeviceResult, Judgement, Remark, cost};
use dragoman_accounting::amounts::{Amounts, Text};
use dragoman_accounting::contribution::{Contribution, Line, Source};
use dragoman_accounting::footprint::{Basis, DeviceFootprint, Mapping, Overhead, ResourceFootprint};
use dragoman_accounting::pod::{Container, ContainerStatus, PodSpecView, Resources};
use dragoman_accounting::requests::{Claims, Options, requests};
use dragoman_accounting::resource::Resource;
use dragoman_accounting::wire::pod_status::{NodeAllocatableResourceClaimStatus, Recorded, contributions};
use dragoman_quantity::{Decimal, Quantity};

fn q(text: &str) -> Decimal {
    text.parse::<Quantity>().unwrap().amount
}

fn amounts(list: &[(&str, &str)]) -> Amounts {
    list.iter().map(|(name, text)| (Resource::of(name).unwrap(), q(text))).collect()
}

fn container(name: &str, requests: &[(&str, &str)]) -> Container {
    let resources = Resources { requests: amounts(requests), limits: Amounts::default() };
    Container { name: name.into(), resources, ..Container::default() }
}

/// Mapping, overhead per Pod, overhead per container.
fn line(resource: &str, mapping: &str, per_pod: &str, per_container: &str) -> Line {
    let amount = |text: &str| (!text.is_empty()).then(|| q(text));
    Line {
        mapping: amount(mapping),
        per_pod: amount(per_pod),
        per_container: amount(per_container),
        ..Line::mapping(Resource::of(resource).unwrap(), Decimal::ZERO)
    }
}

fn claim(name: &str, containers: &[&str], lines: Vec<Line>) -> Contribution {
    let containers = containers.iter().map(|c| Box::from(*c)).collect();
    Contribution { source: Source::claim(name), containers, lines, legacy_total: false }
}

fn pod(containers: Vec<Container>, contributions: Vec<Contribution>) -> PodSpecView {
    PodSpecView { containers, contributions, ..PodSpecView::default() }
}

fn total(pod: &PodSpecView, claims: Claims) -> Amounts {
    requests(pod, Options { claims, ..Options::default() }).unwrap()
}

fn now(pod: &PodSpecView) -> Amounts {
    total(pod, Claims::WholeLife)
}

#[test]
fn s1_two_containers_share_cpu_and_memory() {
    let shared = claim("a", &["c1", "c2"], vec![line("cpu", "4", "", ""), line("memory", "8Gi", "", "")]);
    let pod = pod(
        vec![container("c1", &[("cpu", "100m"), ("memory", "100Mi")]), container("c2", &[])],
        vec![shared],
    );
    assert_eq!(now(&pod), amounts(&[("cpu", "4100m"), ("memory", "8694792192")]));
}

#[test]
fn s2_one_branch_brings_cpu_and_the_other_nothing() {
    let spec = || vec![container("c", &[("cpu", "1"), ("memory", "1Gi")])];
    assert_eq!(now(&pod(spec(), vec![])), amounts(&[("cpu", "1"), ("memory", "1Gi")]));
    let branch = claim("a", &["c"], vec![line("cpu", "30", "", "")]);
    assert_eq!(now(&pod(spec(), vec![branch])), amounts(&[("cpu", "31"), ("memory", "1Gi")]));
}

#[test]
fn s3_a_cpu_claim_and_a_gpu_claim_with_host_costs() {
    let containers = vec![
        container("c1", &[("cpu", "100m"), ("memory", "1Gi")]),
        container("c2", &[("cpu", "200m"), ("memory", "2Gi")]),
    ];
    let both = ["c1", "c2"];
    let cpu = claim("cpu", &both, vec![line("cpu", "10", "", "")]);
    let gpu = claim("gpu", &both, vec![line("cpu", "2", "", ""), line("memory", "4Gi", "", "")]);
    assert_eq!(now(&pod(containers, vec![cpu, gpu])), amounts(&[("cpu", "12300m"), ("memory", "7Gi")]));
}

#[test]
fn s4_pod_level_requests_replace_everything_below() {
    let shared = claim("a", &["c1", "c2"], vec![line("cpu", "10", "", "")]);
    let mut pod = pod(["c1", "c2", "c3", "c4"].map(|name| container(name, &[])).into(), vec![shared]);
    let level = amounts(&[("cpu", "11"), ("memory", "10Gi")]);
    pod.pod_level = Some(Resources { requests: level.clone(), limits: Amounts::default() });
    assert_eq!(now(&pod), level);
    let inner = Options { claims: Claims::WholeLife, skip_pod_level: true, ..Options::default() };
    assert_eq!(requests(&pod, inner).unwrap().get(&Resource::Cpu), q("10"));
}

#[test]
fn s5_nine_cpus() {
    let claims = vec![
        claim("a", &["c1", "c2"], vec![line("cpu", "4", "", "")]),
        claim("b", &["c1"], vec![line("cpu", "2", "", "")]),
    ];
    let pod = pod(vec![container("c1", &[("cpu", "1")]), container("c2", &[("cpu", "2")])], claims);
    assert_eq!(now(&pod), amounts(&[("cpu", "9")]));
}

#[test]
fn s8_overhead_for_the_pod_and_for_each_container() {
    let gpu = claim("a", &["c1", "c2"], vec![line("memory", "", "1Gi", "500Mi")]);
    let pod = pod(vec![container("c1", &[]), container("c2", &[])], vec![gpu]);
    assert_eq!(now(&pod), amounts(&[("memory", "2122317824")]));
}

#[test]
fn e1_the_claim_counts_on_top_of_the_peak() {
    let mut pod = pod(
        vec![container("c1", &[("cpu", "1")]), container("c2", &[("cpu", "2")])],
        vec![claim("a", &["c1"], vec![line("cpu", "4", "", "")])],
    );
    pod.init_containers = vec![container("i", &[("cpu", "6")])];
    assert_eq!(now(&pod), amounts(&[("cpu", "10")]));
}

#[test]
fn e3_a_mapping_that_only_an_init_container_uses_stays() {
    let mut pod =
        pod(vec![container("c", &[("cpu", "1")])], vec![claim("a", &["i"], vec![line("cpu", "4", "", "")])]);
    pod.init_containers = vec![container("i", &[("cpu", "2")])];
    for claims in [Claims::WholeLife, Claims::Peak] {
        assert_eq!(total(&pod, claims), amounts(&[("cpu", "6")]));
    }
}

#[test]
fn e5_overhead_per_container_of_an_init_container() {
    let overhead = line("cpu", "", "1", "500m");
    let regular = vec![container("c1", &[("cpu", "1")]), container("c2", &[("cpu", "1")])];
    let mut pod = pod(regular, vec![claim("a", &["c1", "c2", "i"], vec![overhead])]);
    pod.init_containers = vec![container("i", &[("cpu", "6")])];
    // 6 + 1 + 3 · 0.5 for the whole life; at the peak only the init container runs.
    assert_eq!(now(&pod), amounts(&[("cpu", "8500m")]));
    assert_eq!(total(&pod, Claims::Peak), amounts(&[("cpu", "7500m")]));
}

#[test]
fn e7_a_claim_that_no_container_names_counts_once() {
    let claim = claim("a", &[], vec![line("cpu", "4", "", ""), line("memory", "", "1Gi", "512Mi")]);
    let pod = pod(vec![container("c", &[("cpu", "1")])], vec![claim]);
    assert_eq!(now(&pod), amounts(&[("cpu", "5"), ("memory", "1Gi")]));
}

#[test]
fn e13_pod_overhead_comes_last_also_on_pod_level_requests() {
    let claim = claim("a", &["c"], vec![line("cpu", "4", "", ""), line("memory", "8Gi", "", "")]);
    let mut pod = pod(vec![container("c", &[("cpu", "1"), ("memory", "1Gi")])], vec![claim]);
    pod.overhead = amounts(&[("cpu", "250m"), ("memory", "120Mi")]);
    assert_eq!(now(&pod), amounts(&[("cpu", "5250m"), ("memory", "9336Mi")]));
    pod.pod_level = Some(Resources { requests: amounts(&[("cpu", "6")]), limits: Amounts::default() });
    assert_eq!(now(&pod).get(&Resource::Cpu), q("6250m"));
}

fn resized(spec: &str, allocated: &str, actual: &str, infeasible: bool) -> Decimal {
    let mut container = container("c", &[("cpu", spec)]);
    container.status = Some(ContainerStatus {
        allocated: Some(amounts(&[("cpu", allocated)])),
        actual: Some(Resources { requests: amounts(&[("cpu", actual)]), limits: Amounts::default() }),
    });
    let mut pod = pod(vec![container], vec![claim("a", &["c"], vec![line("cpu", "5", "", "")])]);
    pod.status.resize_infeasible = infeasible;
    let options = Options { claims: Claims::WholeLife, status: true, ..Options::default() };
    requests(&pod, options).unwrap().get(&Resource::Cpu)
}

#[test]
fn e23_resizes_in_place() {
    assert_eq!(resized("4", "2", "2", false), q("9"));
    assert_eq!(resized("4", "2", "2", true), q("7"));
    assert_eq!(resized("1", "4", "4", false), q("9"));
    assert_eq!(resized("1", "1", "1", false), q("6"));
}

#[test]
fn e23c_the_most_of_sums_not_the_sum_of_the_most() {
    let with = |name, spec, allocated| Container {
        status: Some(ContainerStatus { allocated: Some(amounts(&[("cpu", allocated)])), actual: None }),
        ..container(name, &[("cpu", spec)])
    };
    let pod = pod(vec![with("c1", "1", "3"), with("c2", "3", "1")], vec![]);
    let options = Options { status: true, ..Options::default() };
    assert_eq!(requests(&pod, options).unwrap(), amounts(&[("cpu", "4")]));
}

// From allocations.

fn device(resource: &str, footprint: ResourceFootprint, capacity: &[(&str, &str)]) -> Device {
    let resources = [(Resource::of(resource).unwrap(), footprint)].into();
    let capacity = capacity.iter().map(|(key, text)| (Box::from(*key), Text(Box::from(*text)))).collect();
    Device { footprint: DeviceFootprint { resources }, capacity }
}

fn mapping(basis: Basis, multiplier: &str) -> ResourceFootprint {
    ResourceFootprint {
        mapping: Some(Mapping { basis, multiplier: q(multiplier) }),
        ..ResourceFootprint::default()
    }
}

fn result(name: &str, consumed: &[(&str, &str)]) -> DeviceResult {
    let consumed: BTreeMap<_, _> =
        consumed.iter().map(|(key, text)| (Box::from(*key), Text(Box::from(*text)))).collect();
    DeviceResult {
        driver: "d".into(),
        pool: "p".into(),
        device: name.into(),
        consumed: (!consumed.is_empty()).then_some(consumed),
        admin_access: false,
    }
}

fn counted(results: &[DeviceResult], device: &Device, judgement: Judgement) -> (Amounts, Vec<Remark>, usize) {
    let mut unaccounted = Vec::new();
    let source = Source::claim("claim");
    let cost = cost(source, ["c".into()].into(), results, |_| Some(device), judgement, &mut unaccounted);
    (cost.contribution.total().unwrap(), cost.remarks, unaccounted.len())
}

#[test]
fn s7_devices_and_capacities() {
    let per_device = |multiplier| device("cpu", mapping(Basis::PerDevice, multiplier), &[]);
    let cores = device("cpu", mapping(Basis::Capacity("cores".into()), "2"), &[]);
    let ours = |results: &[DeviceResult], device: &Device| counted(results, device, Judgement::Ours).0;
    let devices = |count: usize| (0..count).map(|i| result(&format!("dev-{i}"), &[])).collect::<Vec<_>>();
    assert_eq!(ours(&devices(2), &per_device("1")), amounts(&[("cpu", "2")]));
    assert_eq!(ours(&devices(4), &per_device("2")), amounts(&[("cpu", "8")]));
    assert_eq!(ours(&[result("pool", &[("cores", "8")])], &cores), amounts(&[("cpu", "16")]));
    assert_eq!(ours(&[result("pool", &[("cores", "2")])], &cores), amounts(&[("cpu", "4")]));
}

#[test]
fn e9_two_shares_of_one_device_count_twice() {
    let overhead = Some(Overhead { per_pod: Some(q("100m")), per_container: None });
    let shared =
        device("cpu", ResourceFootprint { overhead, ..mapping(Basis::Capacity("cores".into()), "1") }, &[]);
    let results = [result("dev", &[("cores", "1")]), result("dev", &[("cores", "1")])];
    assert_eq!(counted(&results, &shared, Judgement::Ours).0, amounts(&[("cpu", "2200m")]));
}

#[test]
fn e11_units_change() {
    let gib = device("memory", mapping(Basis::Capacity("memGiB".into()), "1Gi"), &[]);
    let results = [result("dev", &[("memGiB", "8")])];
    assert_eq!(counted(&results, &gib, Judgement::Ours).0, amounts(&[("memory", "8589934592")]));
}

#[test]
fn e27_an_exclusive_device_counts_its_capacity_whole() {
    let exclusive = device("cpu", mapping(Basis::Capacity("cores".into()), "1"), &[("cores", "8")]);
    let results = [result("dev", &[])];
    let (ours, remarks, unaccounted) = counted(&results, &exclusive, Judgement::Ours);
    assert_eq!((ours, unaccounted), (amounts(&[("cpu", "8")]), 0));
    assert!(matches!(&remarks[..], [Remark::WholeCapacity { .. }]));
    let (upstream, _, unaccounted) = counted(&results, &exclusive, Judgement::Upstream);
    assert_eq!((upstream.get(&Resource::Cpu), unaccounted), (Decimal::ZERO, 1));
}

#[test]
fn a_capacity_that_is_not_consumed_counts_as_nothing_and_is_said() {
    let shared = device("cpu", mapping(Basis::Capacity("cores".into()), "1"), &[("cores", "8")]);
    let (amount, remarks, unaccounted) =
        counted(&[result("dev", &[("other", "1")])], &shared, Judgement::Ours);
    assert_eq!((amount.get(&Resource::Cpu), unaccounted), (Decimal::ZERO, 0));
    assert!(matches!(&remarks[..], [Remark::NotConsumed { .. }]));
}

#[test]
fn admin_access_costs_nothing_but_upstream() {
    let gpu = device("cpu", mapping(Basis::PerDevice, "2"), &[]);
    let looked_at = [DeviceResult { admin_access: true, ..result("dev", &[]) }];
    assert!(counted(&looked_at, &gpu, Judgement::Ours).0.is_empty());
    assert_eq!(counted(&looked_at, &gpu, Judgement::Upstream).0, amounts(&[("cpu", "2")]));
}

#[test]
fn what_does_not_parse_is_unaccounted_and_the_rest_counts() {
    let overhead = Some(Overhead { per_pod: Some(q("1")), per_container: None });
    let shared =
        device("cpu", ResourceFootprint { overhead, ..mapping(Basis::Capacity("cores".into()), "1") }, &[]);
    for nonsense in ["-1", "many", "1e5000", "9e999"] {
        let mut unaccounted = Vec::new();
        let results = [result("dev", &[("cores", nonsense)]), result("dev", &[("cores", "2")])];
        let source = Source::claim("claim");
        let cost = cost(source, [].into(), &results, |_| Some(&shared), Judgement::Ours, &mut unaccounted);
        let amount = cost.contribution.total().unwrap_or_default();
        if nonsense == "9e999" {
            // Exact, but nothing can be added to it.
            assert!(!unaccounted.is_empty(), "{nonsense}");
        } else {
            assert_eq!(amount, amounts(&[("cpu", "4")]), "{nonsense}");
            assert_eq!(unaccounted[0].resource, Some(Resource::Cpu), "{nonsense}");
            assert!(unaccounted[0].field.starts_with("status.allocation.devices.results[0]"), "{nonsense}");
        }
    }
    let mut unaccounted = Vec::new();
    cost(
        Source::claim("claim"),
        [].into(),
        &[result("dev", &[])],
        |_| None,
        Judgement::Ours,
        &mut unaccounted,
    );
    assert_eq!(unaccounted[0].resource, None);
}

// From Pod status.

fn recorded(json: &str) -> (Vec<Contribution>, usize) {
    let statuses: Vec<NodeAllocatableResourceClaimStatus> = serde_json::from_str(json).unwrap();
    let mut unaccounted = Vec::new();
    let recorded = Recorded { statuses: &statuses, additional: &[] };
    (contributions(recorded, "Pod ns/pod", &mut unaccounted), unaccounted.len())
}

#[test]
fn e31_a_zero_is_kept() {
    let (found, _) =
        recorded(r#"[{"resourceClaimName": "a", "overhead": [{"name": "memory", "perPod": 0}]}]"#);
    assert_eq!(found[0].lines, vec![line("memory", "", "0", "")]);
}

#[test]
fn e33_of_two_generations_the_newer_counts() {
    let both = r#"[{"resourceClaimName": "a", "resources": {"cpu": "4"}, "mapping": [{"name": "cpu", "quantity": "4"}]}]"#;
    let (found, _) = recorded(both);
    assert_eq!(found[0].total().unwrap(), amounts(&[("cpu", "4")]));
    assert!(!found[0].legacy_total);
    let (old, _) = recorded(r#"[{"resourceClaimName": "a", "containers": ["c"], "resources": {"cpu": 4}}]"#);
    assert_eq!((old[0].total().unwrap(), old[0].legacy_total), (amounts(&[("cpu", "4")]), true));
    let twice = r#"[{"resourceClaimName": "a", "resources": {"cpu": 4}}, {"resourceClaimName": "a", "resources": {"cpu": 2}}]"#;
    let sums: Vec<_> = recorded(twice).0.iter().map(|c| c.total().unwrap()).collect();
    assert_eq!(sums, [amounts(&[("cpu", "6")])]);
    let (broken, unaccounted) = recorded(r#"[{"resourceClaimName": "a", "resources": {"cpu": "-4"}}]"#);
    assert_eq!((broken[0].lines.len(), unaccounted), (0, 1));
}
