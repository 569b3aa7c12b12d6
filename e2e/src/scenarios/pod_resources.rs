//! Compares the API server with `dragoman-accounting`: budgets, defaults, QoS classes and resizes of Pods.

use anyhow::{Context as _, ensure};
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::pod::budget::{Checks, defaulted, refused};
use dragoman_accounting::pod::cgroups::{Qos, qos};
use dragoman_accounting::pod::resize::{Rules, resize};
use dragoman_objects::Pod;
use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::{Scenario, scenario};
use crate::client::PODS;
use crate::control_plane::Release;
use crate::dragoman::Dragoman;
use crate::world::World;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario!(pods_are_refused_defaulted_and_classed_as_we_say),
        Scenario { newest_only: true, ..scenario!(resizes_are_refused_as_we_say) },
    ]
}

const PAGES: &str = "hugepages-2Mi";
const DRY: &str = "/api/v1/{}/pods?dryRun=All";

fn view(pod: &Value) -> anyhow::Result<PodSpecView> {
    let mut unaccounted = Vec::new();
    let view = PodSpecView::of(&serde_json::from_value::<Pod>(pod.clone())?, &mut unaccounted);
    ensure!(unaccounted.is_empty(), "{unaccounted:?}");
    Ok(view)
}

fn list(rng: &mut Rng, most: u8) -> Map<String, Value> {
    let mut list = Map::new();
    for name in ["cpu", "memory"] {
        if rng.u8(0..4) > 0 {
            let unit = if name == "cpu" { "" } else { "Gi" };
            list.insert(name.to_owned(), json!(format!("{}{unit}", rng.u8(1..most))));
        }
    }
    list
}

/// Random requests, of which some have an equal limit.
fn requirements(rng: &mut Rng, most: u8) -> Value {
    let requests = list(rng, most);
    let limits = requests.iter().filter(|_| rng.bool()).map(|(name, amount)| (name.clone(), amount.clone()));
    let mut limits: Map<String, Value> = limits.collect();
    let mut requests = requests.clone();
    // The limit of huge pages must equal their request, and a request for CPU or memory must go with them.
    if rng.u8(0..4) == 0 && !requests.is_empty() {
        let size = json!(format!("{}Mi", 2 * rng.u8(1..4)));
        for list in [&mut requests, &mut limits] {
            list.insert(PAGES.to_owned(), size.clone());
        }
    }
    json!({"requests": requests, "limits": limits})
}

fn pod(rng: &mut Rng) -> Value {
    let container = |rng: &mut Rng, name: String| json!({"name": name, "image": "none", "resources": requirements(rng, 6)});
    let containers: Vec<Value> = (0..rng.u8(1..3)).map(|i| container(rng, format!("c{i}"))).collect();
    let init: Vec<Value> = (0..rng.u8(0..3))
        .map(|i| {
            let mut container = container(rng, format!("i{i}"));
            if rng.bool() {
                container["restartPolicy"] = json!("Always");
            }
            container
        })
        .collect();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"},
        "spec": {"containers": containers, "initContainers": init},
    });
    if rng.u8(0..4) > 0 {
        let mut level = json!({});
        for part in ["requests", "limits"] {
            let list = list(rng, 16);
            if !list.is_empty() && rng.u8(0..4) > 0 {
                level[part] = Value::Object(list);
            }
        }
        if rng.u8(0..4) == 0 && !level["requests"].is_null() && !level["limits"].is_null() {
            let size = json!(format!("{}Mi", 2 * rng.u8(1..8)));
            level["limits"][PAGES] = size.clone();
            if rng.bool() {
                level["requests"][PAGES] = size;
            }
        }
        if level != json!({}) {
            pod["spec"]["resources"] = level;
        }
    }
    pod
}

async fn pods_are_refused_defaulted_and_classed_as_we_say(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("pod-resources").await?;
    let checks = match world.release {
        Release::V1_36 => Checks::V1_36,
        Release::V1_37 => Checks::V1_37,
    };
    let mut rng = Rng::with_seed(3);
    let (mut taken, mut turned_down) = (0, 0);
    for _ in 0..1_000 {
        let pod = pod(&mut rng);
        let mut ours = view(&pod)?;
        ours.pod_level = defaulted(&ours, checks)?;
        let why = refused(&ours)?;
        match world.client.create(DRY, &ns, &pod).await {
            Ok(stored) => {
                taken += 1;
                ensure!(why.is_empty(), "we refuse it ({why:?}), the API server does not: {pod}");
                let theirs = view(&stored)?;
                let level = |view: &PodSpecView| view.pod_level.clone().unwrap_or_default();
                ensure!(
                    level(&ours) == level(&theirs),
                    "defaults: {pod} is stored as {}",
                    stored["spec"]["resources"]
                );
                let class = match qos(&theirs) {
                    Qos::Guaranteed => "Guaranteed",
                    Qos::Burstable => "Burstable",
                    Qos::BestEffort => "BestEffort",
                };
                ensure!(
                    stored["status"]["qosClass"] == class,
                    "{class}, not {}: {pod}",
                    stored["status"]["qosClass"]
                );
            }
            Err(kube::Error::Api(status)) if status.code == 422 => {
                turned_down += 1;
                ensure!(!why.is_empty(), "we take it, the API server does not: {}: {pod}", status.message);
            }
            Err(error) => return Err(error.into()),
        }
    }
    ensure!(taken > 50 && turned_down > 50, "{taken} Pods taken, {turned_down} refused: they tell nothing");
    println!("        {taken} Pods taken, {turned_down} refused");
    Ok(())
}

/// Resizes: the name, the spec before and after, and whether the API server grants the resize.
fn resizes(rules: Rules) -> Vec<(&'static str, Value, Value, bool)> {
    let one =
        |resources: Value| json!({"containers": [{"name": "c", "image": "none", "resources": resources}]});
    let cpu = |cpu: &str| one(json!({"requests": {"cpu": cpu}}));
    let both = |request: &str, limit: &str| {
        one(json!({"requests": {"cpu": request, "memory": "1Gi"}, "limits": {"cpu": limit, "memory": "1Gi"}}))
    };
    let pages = |size: &str| {
        one(json!({"requests": {"cpu": "1", "hugepages-2Mi": size}, "limits": {"hugepages-2Mi": size}}))
    };
    let claim = |cpu: &str| {
        json!({
            "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}, "claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
        })
    };
    let unnamed = |cpu: &str| {
        json!({
            "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
        })
    };
    let budget = |cpu: &str| {
        json!({
            "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}],
            "resources": {"requests": {"cpu": "4"}},
        })
    };
    vec![
        ("more", cpu("1"), cpu("2"), true),
        ("less", cpu("2"), cpu("1"), true),
        ("class", both("1", "2"), both("2", "2"), false),
        ("pages", pages("2Mi"), pages("4Mi"), false),
        ("claim", claim("1"), claim("2"), rules == Rules::V1_37),
        ("unnamed", unnamed("1"), unnamed("2"), true),
        ("within", budget("1"), budget("4"), true),
        ("beyond", budget("1"), budget("5"), false),
    ]
}

async fn resizes_are_refused_as_we_say(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("resizes").await?;
    let rules = match world.release {
        Release::V1_36 => Rules::V1_36,
        Release::V1_37 => Rules::V1_37,
    };
    for (name, from, to, granted) in resizes(rules) {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": from});
        pod["spec"]["schedulingGates"] = json!([{"name": "e2e.dragoman.dev/gate"}]);
        let stored = world.client.create(PODS, &ns, &pod).await.with_context(|| name.to_owned())?;
        let mut wanted = stored.clone();
        for part in ["containers", "resources"] {
            for (i, container) in to["containers"].as_array().into_iter().flatten().enumerate() {
                wanted["spec"]["containers"][i]["resources"] = container["resources"].clone();
            }
            if part == "resources" && !to["resources"].is_null() {
                wanted["spec"]["resources"] = to["resources"].clone();
            }
        }
        let why = resize(&view(&stored)?, &view(&wanted)?, rules)?;
        ensure!(why.is_empty() == granted, "{name}: we say {why:?}");
        let containers = wanted["spec"]["containers"].as_array().context("containers")?;
        let change: Vec<Value> =
            containers.iter().map(|c| json!({"name": c["name"], "resources": c["resources"]})).collect();
        let patch = json!({"spec": {"containers": change}});
        let resize = format!("{name}/resize?dryRun=All");
        let answer = world.client.strategic_merge(PODS, &ns, &resize, &patch).await;
        ensure!(answer.is_ok() == granted, "{name}: the API server says {answer:?}, we say {why:?}");
    }
    Ok(())
}
