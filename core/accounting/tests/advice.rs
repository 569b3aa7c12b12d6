//! QoS classes and cgroups (docs/accounting.md 4), advice to authors of Pods, and resizes.

#![expect(clippy::unwrap_used, reason = "a test")]

mod words;

use dragoman_accounting::amounts::Amounts;
use dragoman_accounting::claim::contribution::Contribution;
use dragoman_accounting::claim::footprint::AccountingPolicy::{ConsumeFrom, Max};
use dragoman_accounting::pod::advice::{Advice, advice};
use dragoman_accounting::pod::budget::OverBudget;
use dragoman_accounting::pod::cgroups::{Cgroup, Kubelet, Qos, container_cgroup, pod_cgroup, qos};
use dragoman_accounting::pod::resize::{Refused, Rules, resize};
use dragoman_accounting::pod::{Container, PodSpecView, Resources};
use dragoman_accounting::resource::Resource;
use words::{amounts, claim, container, limited, line, pod, policed, q, resource};

fn both(amount: &str) -> [(&'static str, String); 2] {
    [("cpu", amount.to_owned()), ("memory", format!("{amount}Gi"))]
}

fn same(name: &str, request: &str, limit: &str) -> Container {
    let list = |amount: &str| {
        let both = both(amount);
        let list: Vec<_> = both.iter().map(|(name, text)| (*name, text.as_str())).collect();
        if amount.is_empty() { Amounts::default() } else { amounts(&list) }
    };
    let resources = Resources { requests: list(request), limits: list(limit) };
    Container { name: name.into(), resources, ..Container::default() }
}

fn five(containers: &[&str]) -> Contribution {
    claim("five", containers, vec![line("cpu", "5", "", ""), line("memory", "5Gi", "", "")])
}

/// Checks weight, cpu.max and memory.max; an empty text means none.
fn is(cgroup: &Cgroup, weight: &str, cpu: &str, memory: &str) {
    let some = |text: &str| (!text.is_empty()).then(|| q(text));
    assert_eq!(
        (cgroup.cpu_weight, cgroup.cpu_max, cgroup.memory_max),
        (some(weight), some(cpu), some(memory))
    );
}

fn of(pod: &PodSpecView) -> Cgroup {
    pod_cgroup(pod, Kubelet::V1_37).unwrap()
}

fn inside(pod: &PodSpecView, name: &str) -> Cgroup {
    let container = pod.all_containers().find(|container| *container.name == *name).unwrap();
    container_cgroup(pod, container, Kubelet::V1_37).unwrap()
}

#[test]
fn a_claim_on_top_of_limits() {
    let pod = pod(vec![same("c1", "2", "4")], vec![five(&["c1"])]);
    is(&of(&pod), "7", "9", "9Gi");
    is(&inside(&pod, "c1"), "2", "9", "9Gi");
    // Before 1.37 claims do not touch cgroups.
    is(&pod_cgroup(&pod, Kubelet::V1_36).unwrap(), "2", "4", "4Gi");
    is(&container_cgroup(&pod, &pod.containers[0], Kubelet::V1_36).unwrap(), "2", "4", "4Gi");
}

#[test]
fn a_claim_alone() {
    let pod = pod(vec![container("c1", &[])], vec![five(&["c1"])]);
    is(&of(&pod), "5", "", "");
    is(&inside(&pod, "c1"), "", "", "");
    assert_eq!(qos(&pod), Qos::BestEffort);
}

#[test]
fn two_containers_share_a_claim() {
    let pod = pod(vec![same("c1", "2", "4"), same("c2", "4", "8")], vec![five(&["c1", "c2"])]);
    is(&of(&pod), "11", "17", "17Gi");
    is(&inside(&pod, "c1"), "2", "9", "9Gi");
    is(&inside(&pod, "c2"), "4", "13", "13Gi");
}

#[test]
fn pod_level_resources_are_used_as_they_are() {
    let mut pod = pod(vec![container("c1", &[]), container("c2", &[])], vec![five(&["c1", "c2"])]);
    pod.pod_level = Some(same("", "5", "5").resources);
    is(&of(&pod), "5", "5", "5Gi");
    is(&inside(&pod, "c1"), "", "5", "5Gi");
    is(&inside(&pod, "c2"), "", "5", "5Gi");
    assert_eq!(qos(&pod), Qos::Guaranteed);
}

#[test]
fn a_plain_sidecar_beside_a_claim_has_the_pods_limit() {
    let sidecar = Container { sidecar: true, ..container("sidecar", &[]) };
    let mut pod = pod(vec![same("c1", "", "4"), same("c2", "", "8")], vec![five(&["c1", "c2"])]);
    pod.init_containers = vec![sidecar];
    pod.pod_level = Some(same("", "8", "15").resources);
    is(&of(&pod), "8", "15", "15Gi");
    is(&inside(&pod, "c1"), "", "9", "9Gi");
    is(&inside(&pod, "c2"), "", "13", "13Gi");
    is(&inside(&pod, "sidecar"), "", "15", "15Gi");
}

#[test]
fn overhead_counts_for_each_container() {
    let lines = vec![line("cpu", "", "1", "500m"), line("memory", "", "1Gi", "500Mi")];
    let containers = vec![
        limited("c1", &[("cpu", "2")], &[("cpu", "2"), ("memory", "4Gi")]),
        limited("c2", &[("cpu", "2")], &[("cpu", "4"), ("memory", "8Gi")]),
    ];
    let pod = pod(containers, vec![claim("gpu", &["c1", "c2"], lines)]);
    is(&of(&pod), "6", "8", "14312Mi");
    is(&inside(&pod, "c1"), "2", "3500m", "5620Mi");
    is(&inside(&pod, "c2"), "2", "5500m", "9716Mi");
}

#[test]
fn huge_pages_are_always_limited() {
    let pages = vec![line("hugepages-2Mi", "4Mi", "", "")];
    let pod = pod(vec![container("c", &[])], vec![claim("pages", &["c"], pages)]);
    assert_eq!(inside(&pod, "c").huge_pages, amounts(&[("hugepages-2Mi", "4Mi")]));
    assert_eq!(of(&pod).huge_pages, amounts(&[("hugepages-2Mi", "4Mi")]));
}

#[test]
fn one_container_without_a_limit_leaves_the_pod_without() {
    let pod = pod(vec![same("c1", "2", "4"), container("c2", &[])], vec![]);
    is(&of(&pod), "2", "", "");
    assert_eq!(qos(&pod), Qos::Burstable);
}

// Warnings.

fn warnings(pod: &PodSpecView, kubelet: Kubelet) -> Vec<Advice> {
    let fact = |advice: &Advice| matches!(advice, Advice::Qos(_) | Advice::Pod(_) | Advice::Container { .. });
    advice(pod, kubelet).unwrap().into_iter().filter(|advice| !fact(advice)).collect()
}

#[test]
fn facts_come_first() {
    let pod = pod(vec![same("c1", "2", "4")], vec![five(&["c1"])]);
    let all = advice(&pod, Kubelet::V1_37).unwrap();
    let container = Advice::Container { container: "c1".into(), cgroup: inside(&pod, "c1") };
    assert_eq!(all, [Advice::Qos(Qos::Burstable), Advice::Pod(of(&pod)), container]);
}

#[test]
fn a_limit_below_the_claim() {
    let pod = pod(vec![limited("c", &[("cpu", "2")], &[("cpu", "4")])], vec![five(&["c"])]);
    let below = Advice::LimitBelowClaim {
        container: "c".into(),
        resource: Resource::Cpu,
        limit: q("4"),
        needs: q("7"),
    };
    assert_eq!(warnings(&pod, Kubelet::V1_36), [below]);
    assert_eq!(warnings(&pod, Kubelet::V1_37), [], "this kubelet raises the limit");
}

#[test]
fn a_budget_that_is_missing_and_one_that_is_too_small() {
    let mut pod =
        pod(vec![container("c", &[("cpu", "1")])], vec![claim("a", &["c"], vec![line("cpu", "5", "", "")])]);
    pod.pod_level = Some(Resources { requests: amounts(&[("memory", "1Gi")]), limits: Amounts::default() });
    assert_eq!(warnings(&pod, Kubelet::V1_37), [Advice::BudgetMissing { resource: Resource::Cpu }]);
    pod.pod_level = Some(Resources { requests: amounts(&[("cpu", "5")]), limits: Amounts::default() });
    let over = OverBudget::Requests { resource: Resource::Cpu, inner: q("6"), budget: q("5") };
    assert_eq!(warnings(&pod, Kubelet::V1_37), [Advice::OverBudget(over)]);
}

#[test]
fn a_claim_does_not_make_a_qos_class() {
    assert_eq!(
        warnings(&pod(vec![container("c", &[])], vec![five(&["c"])]), Kubelet::V1_37),
        [Advice::ClaimOnlyBestEffort]
    );
    let storage = claim("a", &["c"], vec![line("ephemeral-storage", "5Gi", "", "")]);
    assert_eq!(warnings(&pod(vec![container("c", &[])], vec![storage]), Kubelet::V1_37), []);
}

#[test]
fn a_draw_without_an_amount() {
    let pool = claim("a", &["c"], vec![policed("d", ConsumeFrom, "5")]);
    let pod = pod(vec![container("c", &[("memory", "1Gi")])], vec![pool]);
    let unbounded = Advice::UnboundedDraw { container: "c".into(), resource: Resource::Cpu };
    assert_eq!(warnings(&pod, Kubelet::V1_37), [unbounded]);
}

#[test]
fn a_request_that_repeats_what_the_claims_bring() {
    let warned = |request: &str, contribution: Contribution| {
        warnings(&pod(vec![container("c", &[("cpu", request)])], vec![contribution]), Kubelet::V1_37)
    };
    let cores = || claim("a", &["c"], vec![line("cpu", "5", "", "")]);
    let repeated = Advice::Repeated { container: "c".into(), resource: Resource::Cpu, amount: q("5") };
    assert!(
        repeated.to_string().starts_with("container c requests 5 cpu, as much as its claims bring"),
        "{repeated}"
    );
    assert_eq!(warned("5", cores()), [repeated]);
    assert_eq!(warned("6", cores()), [], "that is a request of its own");
    let larger = claim("a", &["c"], vec![policed("d", Max, "5")]);
    assert_eq!(warned("5", larger), [], "the larger one is charged");
    assert_eq!(
        warned("5", claim("a", &["other"], vec![line("cpu", "5", "", "")])),
        [],
        "another container has it"
    );
}

// Resizes.

#[test]
fn what_may_be_resized() {
    let at = |request: &str| pod(vec![container("c", &[("cpu", request)])], vec![five(&["c"])]);
    assert_eq!(resize(&at("1"), &at("2"), Rules::V1_37).unwrap(), []);
    // 1.36 counts only what is in the status, and what containers name.
    assert_eq!(resize(&at("1"), &at("2"), Rules::V1_36).unwrap(), []);
    let mut published = at("1");
    published.recorded = published.contributions.clone();
    assert_eq!(resize(&published, &at("2"), Rules::V1_36).unwrap(), [Refused::ClaimStatuses]);
    let mut naming = at("1");
    naming.containers[0].names_claims = true;
    assert_eq!(resize(&naming, &at("2"), Rules::V1_36).unwrap(), [Refused::NamesClaims("c".into())]);
    assert_eq!(resize(&naming, &at("2"), Rules::V1_37).unwrap(), []);
    assert_eq!(
        resize(&at("1"), &at("0"), Rules::V1_37).unwrap(),
        [Refused::Qos { from: Qos::Burstable, to: Qos::BestEffort }]
    );
    let pages = |amount: &str| pod(vec![container("c", &[("cpu", "1"), ("hugepages-2Mi", amount)])], vec![]);
    let field = "spec.containers[c].resources.requests".to_owned();
    let stuck = Refused::NotResizable { field, resource: resource("hugepages-2Mi") };
    assert_eq!(resize(&pages("2Mi"), &pages("4Mi"), Rules::V1_37).unwrap(), [stuck]);
}

#[test]
fn a_resize_stays_within_the_budget() {
    let at = |request: &str| PodSpecView {
        pod_level: Some(Resources { requests: amounts(&[("cpu", "8")]), limits: Amounts::default() }),
        ..pod(vec![container("c", &[("cpu", request)])], vec![five(&["c"])])
    };
    assert_eq!(resize(&at("1"), &at("3"), Rules::V1_37).unwrap(), []);
    let over = OverBudget::Requests { resource: Resource::Cpu, inner: q("9"), budget: q("8") };
    assert_eq!(resize(&at("1"), &at("4"), Rules::V1_37).unwrap(), [Refused::OverBudget(over)]);
}
