//! `dragoman-allocator` side by side with the published allocator of Kubernetes: both fill the
//! same clusters with the same claims, one Pod after the other, and must give the same
//! devices on the same nodes.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::oracle::Judge;

/// A cluster and what is asked of it.
struct Case {
    name: &'static str,
    nodes: usize,
    devices: usize,
    pods: usize,
    /// Nodes tried for each Pod.
    tried: usize,
    requests: usize,
    count: usize,
    selector: Option<&'static str>,
    matching: bool,
    /// How many devices have the same value of what must match.
    alike: usize,
    /// How often faster we have to be.
    at_least: f64,
}

const PLAIN: Case = Case {
    name: "one device of ten",
    nodes: 500,
    devices: 10,
    pods: 1000,
    tried: 100,
    requests: 1,
    count: 1,
    selector: None,
    matching: false,
    alike: 4,
    at_least: 10.0,
};

const CASES: [Case; 4] = [
    PLAIN,
    Case {
        name: "the same, with a selector",
        selector: Some(
            "device.attributes['gpu.example.com'].driverVersion.compareTo(semver('1.0.0')) >= 0 \
             && device.capacity['gpu.example.com'].memory.compareTo(quantity('1Mi')) >= 0",
        ),
        ..PLAIN
    },
    Case { name: "four alike of sixteen", devices: 16, count: 4, matching: true, pods: 300, ..PLAIN },
    Case {
        name: "eight requests for seven devices",
        nodes: 10,
        devices: 7,
        pods: 10,
        tried: 5,
        requests: 8,
        at_least: 100.0,
        ..PLAIN
    },
];

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Figures {
    ns_per_pod: f64,
    hash: String,
}

/// Measures every case in turn and prints medians.
pub(crate) async fn run(repository: &Path, output: &Path) -> anyhow::Result<()> {
    const TURNS: usize = 7;
    let judge = Judge::build(repository, "allocator").await?;
    std::fs::create_dir_all(output).context("output")?;
    for case in &CASES {
        let path = output.canonicalize().context("output")?.join("filling.json");
        std::fs::write(&path, scenario(case).to_string()).context("scenario")?;
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TURNS {
            let our = our_figures(repository, &path, case.tried).await?;
            let their: Figures =
                serde_json::from_str(&judge.fill(&path, case.tried)?).context("figures of the judge")?;
            ensure!(our.hash == their.hash, "{}: not the same devices", case.name);
            ratios.push(their.ns_per_pod / our.ns_per_pod);
            ours.push(our.ns_per_pod);
            theirs.push(their.ns_per_pod);
        }
        let ratio = median(ratios);
        println!(
            "{}: {:.3} ms for a Pod, {:.3} ms upstream, {ratio:.1} times faster (at least {})",
            case.name,
            median(ours) / 1e6,
            median(theirs) / 1e6,
            case.at_least
        );
        ensure!(ratio >= case.at_least, "{}: {ratio:.1} times faster", case.name);
    }
    Ok(())
}

async fn our_figures(repository: &Path, scenario: &Path, tried: usize) -> anyhow::Result<Figures> {
    let out = Command::new("cargo")
        .args(["bench", "--quiet", "--package", "dragoman-allocator", "--bench", "filling", "--"])
        .arg("--scenario")
        .arg(scenario)
        .args(["--tried", &tried.to_string()])
        .current_dir(repository)
        .output()
        .await?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).context("our figures")
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

fn scenario(case: &Case) -> Value {
    let node = |number: usize| format!("node-{number:04}");
    let device = |number: usize| {
        json!({
            "name": format!("gpu-{number}"),
            "attributes": {
                "uuid": {"string": format!("uuid-{number}")},
                "numa": {"int": number % case.alike},
                "driverVersion": {"version": "1.2.0"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        })
    };
    let slice = |number: usize| {
        json!({"metadata": {"name": format!("slice-{number:04}")}, "spec": {
            "driver": "gpu.example.com",
            "nodeName": node(number),
            "pool": {"name": node(number), "generation": 1, "resourceSliceCount": 1},
            "devices": (0..case.devices).map(device).collect::<Vec<_>>(),
        }})
    };
    let mut asked = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": case.count});
    if let Some(selector) = case.selector {
        asked["selectors"] = json!([{"cel": {"expression": selector}}]);
    }
    let requests: Vec<Value> = (0..case.requests)
        .map(|number| json!({"name": format!("request-{number}"), "exactly": asked}))
        .collect();
    let mut devices = json!({"requests": requests});
    if case.matching {
        devices["constraints"] = json!([{"matchAttribute": "gpu.example.com/numa"}]);
    }
    let name = |pod: usize| format!("claim-{pod}");
    let claim = |pod: usize| {
        let metadata = json!({"namespace": "default", "name": name(pod), "uid": format!("uid-{pod}")});
        json!({"metadata": metadata, "spec": {"devices": devices}})
    };
    let class = json!({"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]});
    // What Kubernetes 1.37 has on by itself.
    let gates = [
        "DRAAdminAccess",
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRADeviceTaintRules",
        "DRADeviceTaints",
        "DRAFractionalCapacityRange",
        "DRAPartitionableDevices",
        "DRAPrioritizedList",
    ];
    json!({
        "nodes": (0..case.nodes).map(|number| json!({"metadata": {"name": node(number)}})).collect::<Vec<_>>(),
        "resourceSlices": (0..case.nodes).map(slice).collect::<Vec<_>>(),
        "deviceClasses": [{"metadata": {"name": "gpu"}, "spec": class}],
        "resourceClaims": (0..case.pods).map(claim).collect::<Vec<_>>(),
        "allocate": (0..case.pods).map(|pod| format!("default/{}", name(pod))).collect::<Vec<_>>(),
        "candidates": (0..case.nodes).map(node).collect::<Vec<_>>(),
        "featureGates": gates.iter().map(|gate| ((*gate).to_owned(), true.into()))
            .collect::<serde_json::Map<String, Value>>(),
    })
}
