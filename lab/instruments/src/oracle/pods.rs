//! Compares `dragoman-accounting` with `k8s.io/component-helpers/resource`: requests and limits of Pods,
//! and the share of each container in its claims.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use dragoman_accounting::amounts::Amounts;
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::pod::limits::{container_share, limits};
use dragoman_accounting::pod::requests::{Claims, Options, requests};
use dragoman_accounting::resource::Resource;
use dragoman_objects::Pod;
use dragoman_quantity::Quantity;
use fastrand::Rng;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Declared, Judge};

type Lists = BTreeMap<String, String>;

#[derive(Deserialize)]
struct Answer {
    requests: Lists,
    limits: Lists,
    containers: BTreeMap<String, Lists>,
}

/// Compares the answers about `count` Pods. No answer may differ.
pub(super) fn compare(judge: &Judge, count: usize, seed: u64) -> anyhow::Result<(usize, Declared)> {
    const AT_ONCE: usize = 20_000;
    let mut rng = Rng::with_seed(seed);
    let (mut with_claims, mut left) = (0, count);
    while left > 0 {
        let mut wrong = Vec::new();
        let questions: Vec<(Value, Options)> = (0..left.min(AT_ONCE)).map(|_| question(&mut rng)).collect();
        left -= questions.len();
        let lines: Vec<String> = questions.iter().map(|(question, _)| question.to_string()).collect();
        for ((question, options), answer) in questions.iter().zip(judge.answer(&lines)?) {
            let pod: Pod = serde_json::from_value(question["Pod"].clone())?;
            let mut unaccounted = Vec::new();
            let view = PodSpecView::of(&pod, &mut unaccounted);
            ensure!(unaccounted.is_empty(), "{unaccounted:?}");
            with_claims += usize::from(!view.contributions.is_empty());
            let answer: Answer = serde_json::from_str(&answer).context("answer")?;
            if let Err(why) = judged(&view, *options, &answer) {
                wrong.push((question.to_string(), why));
            }
        }
        // The shortest question is the easiest to understand.
        wrong.sort_by_key(|(question, _)| question.len());
        if !wrong.is_empty() {
            let count = wrong.len();
            let (question, why) = wrong.swap_remove(0);
            return Err(why.context(question).context(format!("{count} of {AT_ONCE} answers differ")));
        }
    }
    ensure!(with_claims * 2 >= count, "only {with_claims} of {count} Pods have claims");
    Ok((count, Declared::new()))
}

fn judged(pod: &PodSpecView, options: Options, answer: &Answer) -> anyhow::Result<()> {
    same("requests", &requests(pod, options)?, &answer.requests)?;
    same("limits", &limits(pod, options)?, &answer.limits)?;
    for (container, theirs) in &answer.containers {
        same(container, &container_share(&pod.contributions, container)?, theirs)?;
    }
    Ok(())
}

/// Compares the node-allocatable resources. An amount of zero equals a missing one.
fn same(what: &str, ours: &Amounts, theirs: &Lists) -> anyhow::Result<()> {
    let mut expected = Amounts::default();
    for (name, text) in theirs {
        if let Some(resource) = Resource::of(name) {
            expected.set(resource, text.parse::<Quantity>()?.amount);
        }
    }
    let ours = ours.clone().without_zeros();
    ensure!(ours == expected, "{what}: we say {ours:?}, the judge {expected:?}");
    Ok(())
}

const RESOURCES: &[&str] = &["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi"];

fn question(rng: &mut Rng) -> (Value, Options) {
    let mut flag = || rng.bool();
    let options = Options {
        status: flag(),
        pod_level_status: flag(),
        skip_pod_level: flag(),
        exclude_overhead: flag(),
        claims: if flag() { Claims::WholeLife } else { Claims::Ignored },
    };
    let question = json!({
        "Pod": pod(rng),
        "UseStatusResources": options.status,
        "PodLevelVerticalScaling": options.pod_level_status,
        "SkipPodLevelResources": options.skip_pod_level,
        "ExcludeOverhead": options.exclude_overhead,
        "NodeAllocatableResourceClaims": options.claims == Claims::WholeLife,
    });
    (question, options)
}

/// A random list of resources with amounts that are often equal. The list is never empty, because the API
/// stores no empty lists.
fn list(rng: &mut Rng) -> Value {
    let mut list = Map::new();
    list.insert(RESOURCES[rng.usize(0..RESOURCES.len())].to_owned(), json!("4"));
    for name in RESOURCES {
        if rng.u8(0..3) > 0 {
            let amount = ["0", "1", "2", "3", "100m", "1500m", "7", "1Ki", "2.5"][rng.usize(0..9)];
            list.insert((*name).to_owned(), json!(amount));
        }
    }
    // Other resources are not counted, and must not change the result.
    if rng.u8(0..8) == 0 {
        list.insert("example.com/gpu".to_owned(), json!("1"));
    }
    Value::Object(list)
}

fn requirements(rng: &mut Rng) -> Value {
    let mut requirements = json!({});
    for part in ["requests", "limits"] {
        if rng.u8(0..4) > 0 {
            requirements[part] = list(rng);
        }
    }
    requirements
}

fn pod(rng: &mut Rng) -> Value {
    let names = |prefix: &str, count: usize| (0..count).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>();
    let (regular, init) = (names("c", rng.usize(1..4)), names("i", rng.usize(0..4)));
    let container = |rng: &mut Rng, name: &String, init: bool| {
        let mut container = json!({"name": name, "resources": requirements(rng)});
        if init && rng.bool() {
            container["restartPolicy"] = json!("Always");
        }
        container
    };
    let state = |rng: &mut Rng, name: &String| {
        let mut state = json!({"name": name});
        if rng.u8(0..3) > 0 {
            state["allocatedResources"] = list(rng);
        }
        if rng.u8(0..3) > 0 {
            state["resources"] = requirements(rng);
        }
        state
    };
    let mut pod = json!({"metadata": {"name": "pod", "namespace": "ns"}, "spec": {}, "status": {}});
    pod["spec"]["containers"] = regular.iter().map(|name| container(rng, name, false)).collect();
    pod["spec"]["initContainers"] = init.iter().map(|name| container(rng, name, true)).collect();
    if rng.bool() {
        pod["spec"]["resources"] = requirements(rng);
    }
    if rng.bool() {
        pod["spec"]["overhead"] = list(rng);
    }
    let states = |rng: &mut Rng, names: &[String]| -> Value {
        let known: Vec<_> = names.iter().filter(|_| rng.u8(0..4) > 0).cloned().collect();
        known.iter().map(|name| state(rng, name)).collect()
    };
    pod["status"]["containerStatuses"] = states(rng, &regular);
    pod["status"]["initContainerStatuses"] = states(rng, &init);
    if rng.bool() {
        pod["status"]["allocatedResources"] = list(rng);
    }
    if rng.bool() {
        pod["status"]["resources"] = requirements(rng);
    }
    if rng.u8(0..3) == 0 {
        let reason = if rng.bool() { "Infeasible" } else { "Deferred" };
        pod["status"]["conditions"] =
            json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
    }
    if rng.u8(0..4) > 0 {
        let all: Vec<String> = [regular, init].concat();
        pod["status"]["nodeAllocatableResourceClaimStatuses"] =
            (0..rng.usize(1..3)).map(|i| claim(rng, i, &all)).collect();
    }
    pod
}

fn claim(rng: &mut Rng, number: usize, containers: &[String]) -> Value {
    let users: Vec<_> = containers.iter().filter(|_| rng.bool()).collect();
    let mapping: Vec<Value> = list(rng)
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !name.contains('/'))
        .map(|(name, amount)| json!({"name": name, "quantity": amount}))
        .collect();
    let overhead: Vec<Value> = list(rng)
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !name.contains('/'))
        .map(|(name, amount)| match rng.u8(0..3) {
            0 => json!({"name": name, "perPod": amount}),
            1 => json!({"name": name, "perContainer": amount}),
            _ => json!({"name": name, "perPod": amount, "perContainer": "300m"}),
        })
        .collect();
    json!({"resourceClaimName": format!("claim-{number}"), "containers": users, "mapping": mapping, "overhead": overhead})
}
