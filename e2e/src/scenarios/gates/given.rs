//! Allocators of another make that give a claim other devices than it asks for.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{FLAGS, GATE, gated, namespace, promise_of, waits_for};
use crate::client::{CLAIMS, CLASSES, FOOTPRINTS, NAMESPACES, PODS, SLICES};
use crate::control_plane::Shape;
use crate::objects::{self, DRIVER, Pod, pod_consumer};
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(devices_that_were_not_asked_for_are_given_back)]
}

/// A claim with its request, the devices that it is given, and the words about them; no words where they are
/// right.
struct Case {
    name: &'static str,
    exactly: Value,
    results: Vec<Value>,
    /// `config` of the allocation.
    config: Value,
    words: &'static str,
}

fn result(driver: &str, pool: &str, device: &str) -> Value {
    json!({"request": "device", "driver": driver, "pool": pool, "device": device})
}

fn cases() -> [Case; 8] {
    let one = || json!({"deviceClassName": "e2e"});
    let dev = |number: u8| result(DRIVER, "node-0", &format!("dev-{number}"));
    let case = |name, exactly, results, words| Case { name, exactly, results, config: json!([]), words };
    let parameters = json!({"driver": DRIVER, "parameters": {"privileged": true}});
    let none = json!([{"cel": {"expression": "'size' in device.attributes['e2e.example.com']"}}]);
    let mut watched = dev(3);
    watched["adminAccess"] = json!(true);
    [
        case(
            "driver",
            one(),
            vec![result("nic.example.com", "nics", "nic")],
            "device nic is none of its class",
        ),
        case("class", json!({"deviceClassName": "none"}), vec![dev(0)], "device dev-0 is none of its class"),
        case("two", one(), vec![dev(0), dev(1)], "has 2 devices, and asks for 1"),
        case(
            "excluded",
            json!({"deviceClassName": "e2e", "selectors": none}),
            vec![dev(2)],
            "dev-2 is excluded by its selectors",
        ),
        case("empty", one(), vec![], "has 0 devices, and asks for 1"),
        case("admin", one(), vec![watched], "with admin access, which it does not ask for"),
        Case {
            config: json!([{"source": "FromClass", "opaque": parameters}]),
            ..case("forged", one(), vec![dev(0)], "said to be of its class, and is not")
        },
        case("right", json!({"deviceClassName": "e2e", "count": 2}), vec![dev(1), dev(0)], ""),
    ]
}

/// The allocation is given back with a word about what is wrong, and the gate stays closed. What was asked for is released.
async fn devices_that_were_not_asked_for_are_given_back(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "given", Shape::default(), 1).await?;
    // The devices take nothing of their node.
    world.client.delete(FOOTPRINTS, "", "cores", None).await?;
    let mut nics = objects::slice("nics", 1);
    nics["spec"]["driver"] = json!("nic.example.com");
    nics["spec"]["nodeName"] = json!("node-0");
    nics["spec"]["devices"] = json!([{"name": "nic"}]);
    world.client.create(SLICES, "", &nics).await?;
    let mut none = objects::class();
    none["metadata"]["name"] = json!("none");
    none["spec"]["selectors"] = json!([{"cel": {"expression": "device.driver == 'other.example.com'"}}]);
    world.client.create(CLASSES, "", &none).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let ns = namespace(&world, "given", "enabled").await?;
    let admin = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    world.client.merge(NAMESPACES, "", &ns, &admin).await?;
    for case in cases() {
        played(&world, &ns, &case).await.with_context(|| case.name)?;
    }
    operator.stop().await?;
    world.stop().await
}

async fn played(world: &World, ns: &str, case: &Case) -> anyhow::Result<()> {
    let mut claim = objects::claim(case.name);
    claim["metadata"]["labels"] = json!({"dragoman.dev/allocator": "foreign"});
    claim["spec"]["devices"]["requests"][0]["exactly"] = case.exactly.clone();
    world.client.create(CLAIMS, ns, &claim).await?;
    let mut pod = Pod::new(case.name).with_claim("device", case.name).object().clone();
    pod["spec"]["schedulingGates"] = json!([{"name": GATE}]);
    let pod = world.client.create(PODS, ns, &pod).await?;
    let mut status = promise_of(&Value::Null, "node-0", &[pod_consumer(&pod)]);
    status["status"]["allocation"]["devices"]["results"] = json!(case.results);
    status["status"]["allocation"]["devices"]["config"] = case.config.clone();
    world.client.merge(CLAIMS, ns, &format!("{}/status", case.name), &status).await?;
    if case.words.is_empty() {
        world.phase(ns, case.name, "Succeeded").await?;
        return Ok(());
    }
    let note = world.event(ns, case.name, "WrongDevices").await?;
    println!("        {note}");
    ensure!(note.contains(case.words), "{note}");
    wait::value("the devices are given back", async || {
        let claim = world.client.get(CLAIMS, ns, case.name).await?.context("claim")?;
        Ok(claim["status"]["allocation"].is_null().then_some(()))
    })
    .await?;
    waits_for(world, ns, case.name, "NotAllocated").await?;
    world.client.delete(PODS, ns, case.name, None).await?;
    world.client.delete(CLAIMS, ns, case.name, None).await?;
    Ok(())
}
