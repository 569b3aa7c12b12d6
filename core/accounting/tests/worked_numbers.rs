//! The worked numbers of single Pods and claims, by name (S: use cases, E: edges;
//! docs/accounting.md 2).

#![expect(clippy::unwrap_used, reason = "a test")]

mod words;

use std::collections::BTreeMap;

use dragoman_accounting::amounts::Amounts;
use dragoman_accounting::claim::allocation::{
    ClaimUse, Class, Device, DeviceResult, Judgement, Remark, cost,
};
use dragoman_accounting::claim::contribution::{Contribution, Generation, Line, Source, reconciled};
use dragoman_accounting::claim::footprint::{Basis, DeviceCost, Mapping, Overhead, ResourceFootprint};
use dragoman_accounting::pod::budget::{Checks, OverBudget, defaulted, refused, unschedulable};
use dragoman_accounting::pod::requests::{Claims, Options, requests};
use dragoman_accounting::pod::{Container, ContainerStatus, PodStatusView, Resources};
use dragoman_accounting::resource::Resource;
use dragoman_accounting::wire::pod_status::{Reading, Recorded, read};
use dragoman_objects::{Name, NodeAllocatableResourceClaimStatus};
use dragoman_quantity::{Decimal, QuantityText};
use words::{amounts, claim, container, cpu, limited, line, now, pod, q, resource, total};

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
    assert_eq!(requests(&pod, inner).unwrap().get(Resource::Cpu), q("10"));
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
    assert_eq!(now(&pod).get(Resource::Cpu), q("6250m"));
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
    requests(&pod, options).unwrap().get(Resource::Cpu)
}

#[test]
fn e23_resizes_in_place() {
    assert_eq!(resized("4", "2", "2", false), q("9"));
    assert_eq!(resized("4", "2", "2", true), q("7"));
    assert_eq!(resized("1", "4", "4", false), q("9"));
    assert_eq!(resized("1", "1", "1", false), q("6"));
}

#[test]
fn e23d_the_kubelets_own_totals() {
    let mut pod =
        pod(vec![container("c", &[("cpu", "4")])], vec![claim("a", &["c"], vec![line("cpu", "5", "", "")])]);
    let seven = amounts(&[("cpu", "7")]);
    let actual = Some(Resources { requests: seven.clone(), limits: Amounts::default() });
    pod.status = PodStatusView { allocated: Some(seven), actual, resize_infeasible: false };
    let all = |pod: &_| requests(pod, Options::scheduler(Claims::WholeLife)).unwrap();
    assert_eq!(all(&pod), amounts(&[("cpu", "9")]));
    pod.status.resize_infeasible = true;
    assert_eq!(all(&pod), amounts(&[("cpu", "7")]));
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
    let resources = [(self::resource(resource), footprint)].into();
    let capacity =
        capacity.iter().map(|(key, text)| (Name::from(*key), QuantityText(Box::from(*text)))).collect();
    Device { cost: DeviceCost { resources }, capacity, unread: None }
}

fn mapping(basis: Basis, multiplier: &str) -> ResourceFootprint {
    ResourceFootprint {
        mapping: Some(Mapping { basis, multiplier: q(multiplier) }),
        ..ResourceFootprint::default()
    }
}

fn result(name: &str, consumed: &[(&str, &str)]) -> DeviceResult {
    let consumed: BTreeMap<_, _> =
        consumed.iter().map(|(key, text)| (Name::from(*key), QuantityText(Box::from(*text)))).collect();
    DeviceResult {
        driver: "d".into(),
        pool: "p".into(),
        device: name.into(),
        consumed: (!consumed.is_empty()).then_some(consumed),
        ..DeviceResult::default()
    }
}

/// A claim that a container names.
fn named_by(container: &str) -> ClaimUse {
    let (object, source) = ("ResourceClaim ns/claim".to_owned(), Source::claim("claim"));
    ClaimUse { object, source, containers: [container.into()].into(), ..ClaimUse::default() }
}

fn counted(results: &[DeviceResult], device: &Device, judgement: Judgement) -> (Amounts, Vec<Remark>, usize) {
    let used = ClaimUse { judgement, ..named_by("c") };
    let cost = cost(used, results, |_| Some(device));
    (cost.contribution.total().unwrap(), cost.remarks, cost.unaccounted.len())
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
    for part in ["32", "8"] {
        assert_eq!(ours(&devices(1), &per_device(part)), amounts(&[("cpu", part)]));
    }
    let pool = ours(&[result("pool", &[("cores", "2")])], &cores);
    assert_eq!(pool, amounts(&[("cpu", "4")]));
    let beside = claim("pool", &["c"], vec![line("cpu", "4", "", "")]);
    assert_eq!(cpu(&pod(vec![container("c", &[("cpu", "1")])], vec![beside])), q("5"));
    let mut xpu = per_device("2");
    xpu.cost.resources.extend(device("memory", mapping(Basis::PerDevice, "8Gi"), &[]).cost.resources);
    assert_eq!(ours(&devices(1), &xpu), amounts(&[("cpu", "2"), ("memory", "8Gi")]));
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
    assert_eq!((upstream.get(Resource::Cpu), unaccounted), (Decimal::ZERO, 1));
}

#[test]
fn a_capacity_that_is_not_consumed_counts_as_nothing_and_is_said() {
    let shared = device("cpu", mapping(Basis::Capacity("cores".into()), "1"), &[("cores", "8")]);
    let (amount, remarks, unaccounted) =
        counted(&[result("dev", &[("other", "1")])], &shared, Judgement::Ours);
    assert_eq!((amount.get(Resource::Cpu), unaccounted), (Decimal::ZERO, 0));
    assert!(matches!(&remarks[..], [Remark::NotConsumed { .. }]));
}

/// A driver may change the spelling while shares are held, and API servers from 1.38 on may record either.
#[test]
fn a_capacity_is_consumed_whichever_way_its_name_is_spelled() {
    for (key, recorded) in [("cores", "d/cores"), ("d/cores", "cores"), ("d/cores", "d/cores")] {
        let shared = device("cpu", mapping(Basis::Capacity(key.into()), "1"), &[(key, "8")]);
        let share = DeviceResult { driver: "d".into(), ..result("dev", &[(recorded, "3")]) };
        assert_eq!(
            counted(&[share], &shared, Judgement::Ours).0,
            amounts(&[("cpu", "3")]),
            "{key} {recorded}"
        );
    }
    let shared = device("cpu", mapping(Basis::Capacity("cores".into()), "1"), &[("cores", "8")]);
    // An exclusive device counts whole.
    let whole = DeviceResult { driver: "d".into(), ..result("dev", &[]) };
    let exclusive = device("cpu", mapping(Basis::Capacity("d/cores".into()), "1"), &[("cores", "8")]);
    assert_eq!(counted(&[whole], &exclusive, Judgement::Ours).0, amounts(&[("cpu", "8")]));
    let (other, ..) = counted(&[result("dev", &[("other.domain/cores", "3")])], &shared, Judgement::Ours);
    assert_eq!(other.get(Resource::Cpu), Decimal::ZERO, "another domain is another capacity");
}

/// A DeviceFootprint is checked against no slice: a key that the device does not have must not make a share of it cost nothing.
#[test]
fn a_share_of_a_capacity_that_the_device_lacks_is_unknown() {
    let misspelled = device("cpu", mapping(Basis::Capacity("cpus".into()), "1"), &[("cpu", "128")]);
    for consumed in [&[("cpu", "100")][..], &[]] {
        let (amount, remarks, unaccounted) =
            counted(&[result("dev", consumed)], &misspelled, Judgement::Ours);
        assert_eq!(
            (amount.get(Resource::Cpu), remarks, unaccounted),
            (Decimal::ZERO, vec![], 1),
            "{consumed:?}"
        );
    }
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
        let results = [result("dev", &[("cores", nonsense)]), result("dev", &[("cores", "2")])];
        let used = ClaimUse { containers: [].into(), ..named_by("c") };
        let cost = cost(used, &results, |_| Some(&shared));
        let unaccounted = cost.unaccounted;
        let amount = cost.contribution.total().unwrap_or_default();
        if nonsense == "9e999" {
            // A quantity above the largest int64 is lowered to it.
            assert_eq!(unaccounted, [], "{nonsense}");
            assert!(amount.get(Resource::Cpu) >= Decimal::from(i64::MAX), "{nonsense}");
        } else {
            assert_eq!(amount, amounts(&[("cpu", "4")]), "{nonsense}");
            assert_eq!(unaccounted[0].resource, Some(Resource::Cpu), "{nonsense}");
            assert!(unaccounted[0].field.starts_with("status.allocation.devices.results[0]"), "{nonsense}");
        }
    }
    let cost = cost(named_by("c"), &[result("dev", &[])], |_| None);
    assert_eq!(cost.unaccounted[0].resource, None);
}

// From Pod status.

fn recorded(json: &str) -> (Reading, usize) {
    let statuses: Vec<NodeAllocatableResourceClaimStatus> = serde_json::from_str(json).unwrap();
    let mut unaccounted = Vec::new();
    let recorded = Recorded { statuses: &statuses, ..Recorded::default() };
    (read(recorded, "Pod ns/pod", &mut unaccounted), unaccounted.len())
}

#[test]
fn e31_a_zero_is_kept() {
    let (found, _) =
        recorded(r#"[{"resourceClaimName": "a", "overhead": [{"name": "memory", "perPod": 0}]}]"#);
    assert_eq!(found.contributions[0].lines, [line("memory", "", "0", "")]);
}

#[test]
fn e33_of_two_generations_the_newer_counts() {
    let both = |older: &str| {
        let entry = r#"[{"resourceClaimName": "a", "mapping": [{"name": "cpu", "quantity": "4"}], "resources": {"cpu": "OLD"}}]"#;
        recorded(&entry.replace("OLD", older)).0
    };
    let same = both("4");
    assert_eq!((same.contributions[0].total().unwrap(), same.conflicts), (amounts(&[("cpu", "4")]), vec![]));
    let other = both("5");
    assert_eq!(other.contributions[0].total().unwrap(), amounts(&[("cpu", "4")]));
    assert_eq!((other.conflicts[0].newer, other.conflicts[0].older), (q("4"), q("5")));
    let (old, _) = recorded(r#"[{"resourceClaimName": "a", "containers": ["c"], "resources": {"cpu": 4}}]"#);
    let old = &old.contributions[0];
    assert_eq!((old.total().unwrap(), old.legacy_total), (amounts(&[("cpu", "4")]), true));
}

#[test]
fn the_same_claim_twice_in_one_generation_counts_twice() {
    let twice = r#"[{"resourceClaimName": "a", "resources": {"cpu": 4}}, {"resourceClaimName": "a", "resources": {"cpu": 2}}]"#;
    let found = recorded(twice).0;
    let sums: Vec<_> = found.contributions.iter().map(|c| c.total().unwrap()).collect();
    assert_eq!((sums, found.conflicts), (vec![amounts(&[("cpu", "4")]), amounts(&[("cpu", "2")])], vec![]));
    let lines = r#"[{"resourceClaimName": "a", "mapping": [{"name": "cpu", "quantity": 1}, {"name": "cpu", "quantity": 2}],
        "overhead": [{"name": "cpu", "perPod": 3}]}]"#;
    assert_eq!(recorded(lines).0.contributions[0].total().unwrap(), amounts(&[("cpu", "6")]));
}

#[test]
fn what_a_status_says_below_zero_is_unaccounted() {
    let (broken, unaccounted) = recorded(r#"[{"resourceClaimName": "a", "resources": {"cpu": "-4"}}]"#);
    assert_eq!((broken.contributions[0].lines.len(), unaccounted), (0, 1));
}

// Budgets.

#[test]
fn e15_over_budget() {
    let mut pod =
        pod(vec![container("c", &[("cpu", "1")])], vec![claim("a", &["c"], vec![line("cpu", "4", "", "")])]);
    pod.pod_level = Some(Resources { requests: amounts(&[("cpu", "4")]), limits: Amounts::default() });
    let over = OverBudget::Requests { resource: Resource::Cpu, inner: q("5"), budget: q("4") };
    for checks in [Checks::V1_36, Checks::V1_37] {
        assert_eq!(unschedulable(&pod, checks).unwrap(), std::slice::from_ref(&over));
    }
    // The API server cannot see the claim.
    assert_eq!(refused(&pod).unwrap(), []);
}

#[test]
fn e17_a_default_leaves_no_room() {
    let mut pod = pod(
        vec![container("c1", &[("cpu", "2")])],
        vec![claim("a", &["c1"], vec![line("cpu", "10", "", "")])],
    );
    pod.pod_level = Some(Resources { requests: Amounts::default(), limits: amounts(&[("cpu", "12")]) });
    pod.pod_level = defaulted(&pod, Checks::V1_36).unwrap();
    assert_eq!(cpu(&pod), q("2"));
    let over = OverBudget::Requests { resource: Resource::Cpu, inner: q("12"), budget: q("2") };
    assert_eq!(unschedulable(&pod, Checks::V1_37).unwrap(), [over]);
    // Without a request of the container the default is the limit.
    pod.containers = vec![container("c1", &[])];
    pod.pod_level = Some(Resources { requests: Amounts::default(), limits: amounts(&[("cpu", "12")]) });
    pod.pod_level = defaulted(&pod, Checks::V1_36).unwrap();
    assert_eq!((cpu(&pod), unschedulable(&pod, Checks::V1_37).unwrap()), (q("12"), vec![]));
}

#[test]
fn limits_of_containers_and_huge_pages_have_budgets_too() {
    let shared = |lines| claim("a", &["c1", "i"], lines);
    let mut pod = pod(
        vec![limited("c1", &[], &[("cpu", "4")]), container("c2", &[])],
        vec![shared(vec![line("cpu", "5", "", ""), line("hugepages-2Mi", "2Mi", "1Mi", "")])],
    );
    // kube-scheduler does not check init containers.
    pod.init_containers = vec![limited("i", &[], &[("cpu", "8")])];
    let level = amounts(&[("cpu", "8"), ("hugepages-2Mi", "2Mi")]);
    pod.pod_level = Some(Resources { requests: amounts(&[("cpu", "8")]), limits: level });
    let pages = resource("hugepages-2Mi");
    let expected = [
        OverBudget::HugePages { resource: pages, inner: q("3Mi"), budget: q("2Mi") },
        OverBudget::Container {
            container: "c1".into(),
            resource: Resource::Cpu,
            inner: q("9"),
            budget: q("8"),
        },
    ];
    assert_eq!(unschedulable(&pod, Checks::V1_37).unwrap(), expected);
    assert_eq!(unschedulable(&pod, Checks::V1_36).unwrap(), []);
    pod.contributions.clear();
    assert_eq!(unschedulable(&pod, Checks::V1_37).unwrap(), []);
}

#[test]
fn e25_a_slice_is_edited_after_binding() {
    let devices: Vec<_> = (0..4).map(|i| result(&format!("dev-{i}"), &[])).collect();
    let source = || Source { uid: Some("uid".into()), ..Source::claim("claim") };
    let of = |multiplier| {
        let device = device("cpu", mapping(Basis::PerDevice, multiplier), &[]);
        cost(ClaimUse { source: source(), ..named_by("c") }, &devices, |_| Some(&device)).contribution
    };
    let bound = |contribution: Contribution| Contribution {
        source: Source::claim("claim"),
        lines: vec![line("cpu", "8", "", "")],
        recorded: Some(Generation::V1_37),
        ..contribution
    };
    let (edited, drifts) = reconciled(&[bound(of("2"))], vec![of("3")]);
    assert_eq!(edited[0].total().unwrap(), amounts(&[("cpu", "8")]), "the running Pod keeps what it has");
    assert_eq!((drifts[0].recorded, drifts[0].computed), (q("8"), Some(q("12"))));
    assert_eq!((edited.len(), edited[0].source.uid.as_deref()), (1, Some("uid")));
    // A new Pod gets the new amount.
    assert_eq!(reconciled(&[], vec![of("3")]).0[0].total().unwrap(), amounts(&[("cpu", "12")]));
    // If nothing was edited, the computed lines are kept, because they name the driver.
    let (same, drifts) = reconciled(&[bound(of("2"))], vec![of("2")]);
    assert_eq!((&*same[0].lines[0].driver, drifts), ("d", vec![]));
    // Resources that the record does not mention are counted as computed.
    let mut more = of("3");
    more.lines.push(line("memory", "", "1Gi", ""));
    let (partly, _) = reconciled(&[bound(of("2"))], vec![more]);
    let mut sum = Amounts::default();
    for (resource, amount) in partly.iter().flat_map(|c| c.total().unwrap().iter().collect::<Vec<_>>()) {
        sum.add(resource, amount).unwrap();
    }
    assert_eq!(sum, amounts(&[("cpu", "8"), ("memory", "1Gi")]));
}

#[test]
fn records_add_up_and_what_only_we_know_stays() {
    let cpu_of = |all: &[Contribution]| -> Decimal {
        Decimal::checked_sum(all.iter().map(|c| c.counted(Resource::Cpu).unwrap())).unwrap()
    };
    let computed = |lines| vec![claim("a", &["c"], lines)];
    let record = |cpu| Contribution {
        recorded: Some(Generation::V1_36),
        ..claim("a", &["c"], vec![line("cpu", cpu, "", "")])
    };
    let four = || line("cpu", "4", "", "");
    let (both, drifts) = reconciled(&[record("4"), record("2")], computed(vec![four()]));
    assert_eq!((cpu_of(&both), drifts.len()), (q("6"), 1));
    let (both, drifts) = reconciled(&[record("1"), record("3")], computed(vec![four()]));
    assert_eq!((cpu_of(&both), drifts), (q("4"), vec![]));
    // kube-scheduler records the amounts of slices. Those of a DeviceFootprint are added.
    let local = Line { local: true, ..line("cpu", "2", "", "") };
    let (more, drifts) = reconciled(&[record("4")], computed(vec![four(), local.clone()]));
    assert_eq!((cpu_of(&more), drifts), (q("6"), vec![]));
    let (more, drifts) = reconciled(&[record("3")], computed(vec![four(), local]));
    assert_eq!((cpu_of(&more), drifts.len()), (q("5"), 1));
    // Nothing is computed any more.
    let (kept, drifts) = reconciled(&[record("4")], computed(vec![]));
    assert_eq!((cpu_of(&kept), drifts[0].computed), (q("4"), Some(q("0"))));
}

#[test]
fn an_entry_that_has_lost_its_amounts_is_no_record() {
    let (empty, _) = recorded(r#"[{"resourceClaimName": "a", "containers": ["c"]}]"#);
    assert_eq!(empty.contributions, []);
    let (nulls, _) = recorded(
        r#"[{"resourceClaimName": "a", "containers": null, "mapping": null, "overhead": null, "resources": {"cpu": 1}}]"#,
    );
    assert_eq!(nulls.contributions[0].total().unwrap(), amounts(&[("cpu", "1")]));
}

#[test]
fn e29_an_extended_resource_has_no_references() {
    let gpu = claim("gpu", &[], vec![line("memory", "", "1Gi", "512Mi")]);
    assert_eq!(now(&pod(vec![container("c", &[])], vec![gpu])), amounts(&[("memory", "1Gi")]));
}

#[test]
fn a_class_that_promises_amounts_changes_none() {
    let promised =
        [DeviceResult { class: Class { manages: true, ..Class::default() }, ..result("dev", &[]) }];
    let overhead = Some(Overhead { per_pod: Some(q("1")), per_container: None });
    let costly = device("cpu", ResourceFootprint { overhead, ..ResourceFootprint::default() }, &[]);
    let (amount, remarks, _) = counted(&promised, &costly, Judgement::Ours);
    assert_eq!(amount, amounts(&[("cpu", "1")]));
    assert!(matches!(&remarks[..], [Remark::NothingMapped { .. }]));
    let mapped = device("cpu", mapping(Basis::PerDevice, "2"), &[]);
    assert_eq!(counted(&promised, &mapped, Judgement::Ours).1, []);
}

#[test]
fn a_class_has_policies_for_devices_without() {
    use dragoman_accounting::claim::footprint::AccountingPolicy::{AddPerReference, Max};
    let of = |policy| {
        let device = device("cpu", ResourceFootprint { policy, ..mapping(Basis::PerDevice, "2") }, &[]);
        let class = Class { manages: true, policies: [(Resource::Cpu, AddPerReference)].into() };
        let results = [DeviceResult { class, ..result("dev", &[]) }];
        let cost = cost(named_by("c"), &results, |_| Some(&device));
        cost.contribution.lines[0].policy
    };
    assert_eq!((of(None), of(Some(Max))), (Some(AddPerReference), Some(Max)));
}
