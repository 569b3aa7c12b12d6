//! Hostile tenants beside gated Pods, with the operator, the allocator and the real kube-scheduler. An attack stays while the next ones come.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use dragoman_e2e::client::{CLAIMS, LEASES, PODS};
use dragoman_e2e::control_plane::{Entry, Shape};
use dragoman_e2e::dragoman::{Dragoman, Start};
use dragoman_e2e::objects::{self, DRIVER, Pod};
use dragoman_e2e::scenarios::gates::{self, Costs, FLAGS, GATE, Size, costly};
use dragoman_e2e::usage::Usage;
use dragoman_e2e::wait;
use dragoman_e2e::world::{Bench, World};
use serde_json::{Value, json};

use super::{Bill, create};

/// The nodes, with devices that take nothing of them: a Pod of a neighbour always finds one.
const NODES: (usize, Size) = (10, Size { cpus: 64, devices: 8, each: 0 });
/// Pods of the neighbour during an attack.
const NEIGHBOURS: usize = 30;
/// The time within which a Pod of the neighbour is to be released, and the Pods of an attack that may take longer: the busy machine
/// of a long lane has such moments without any attack.
const SOON: (Duration, usize) = (Duration::from_secs(5), 3);
/// The most consumers of a claim (`ResourceClaimReservedForMaxSize` of the API).
const MOST_CONSUMERS: usize = 256;
/// MiB that each process may have more after what a tenant has written.
const MORE: usize = 60;

/// The two processes.
struct Parties {
    operator: Dragoman,
    allocator: Dragoman,
}

impl Parties {
    /// Resident memory of both in MiB.
    fn memory(&self) -> anyhow::Result<[usize; 2]> {
        let of = |process: &Dragoman| {
            anyhow::Ok(usize::try_from(Usage::of(process.pid().context("pid")?)?.resident >> 10)?)
        };
        Ok([of(&self.operator)?, of(&self.allocator)?])
    }
}

/// Runs the attacks one after the other.
pub(super) async fn run(bench: &Bench, bill: &mut Bill) -> anyhow::Result<()> {
    let world = gates::gated_where(bench, "tenants-gates", Shape::default(), NODES, Costs::InSlices).await?;
    let operator = Start { log: "info", ..world.start_of(world.plane.kubeconfig("operator"), "own", &FLAGS) };
    let operator = Dragoman::start(&operator).await?;
    let allocator = Dragoman::start(&Start { log: "info", ..world.allocator_start(&[]) }).await?;
    let parties = Parties { operator, allocator };
    beside(&world, "nothing", bill).await?;
    let tenant = gates::namespace(&world, "tenant", "enabled").await?;
    lacks_a_claim(&world).await?;
    beside(&world, "a Pod that lacks a claim", bill).await?;
    costly::dear(&world, &tenant, "dear").await?;
    beside(&world, "a claim with 21 expensive selectors", bill).await?;
    waits_for_others(&world, &tenant, bill).await?;
    share(&world, bill).await?;
    let entries = many_entries(&world, &tenant);
    let (made, waits) = tokio::join!(entries, released(&world, "beside-entries"));
    made?;
    count(bill, "4 Pods with 20 000 entries", &waits?);
    for (what, objects) in
        [("500 claims with 317 kB", claims()), ("20 Pods with 9 000 containers", containers())]
    {
        let before = parties.memory()?;
        let ns = gates::namespace(&world, "writes", "enabled").await?;
        let (collection, objects) = objects;
        create(&world, &ns, collection, objects.into_iter()).await?;
        beside(&world, what, bill).await?;
        let after = parties.memory()?;
        for (process, (before, after)) in ["operator", "allocator"].iter().zip(before.into_iter().zip(after))
        {
            bill.count(
                &format!("MiB more in the {process} beside {what}"),
                after.saturating_sub(before),
                MORE,
            );
        }
    }
    for lease in ["dragoman", "dragoman-allocator"] {
        let lease = world.client.get(LEASES, "kube-system", lease).await?.context("Lease")?;
        let changes = lease["spec"]["leaseTransitions"].as_u64().unwrap_or_default();
        bill.count("changes of the holder of a Lease", usize::try_from(changes)?, 0);
    }
    parties.allocator.stop().await?;
    parties.operator.stop().await?;
    world.stop().await
}

/// Gated Pods of a neighbour; returns how long each waited for its release.
async fn released(world: &World, name: &str) -> anyhow::Result<Vec<Duration>> {
    let ns = gates::namespace(world, name, "enabled").await?;
    let mut waits = Vec::new();
    for number in 0..NEIGHBOURS {
        let name = format!("pod-{number}");
        let created = Instant::now();
        world.pod(&ns, &Pod::new(&name).with_template("device", "one")).await?;
        let is_open = async || {
            let pod = world.client.get(PODS, &ns, &name).await?.context("the Pod")?;
            let gates = pod["spec"]["schedulingGates"].as_array().map_or(0, Vec::len);
            Ok((gates == 0).then_some(()))
        };
        wait::value("the neighbour's Pod is released", is_open).await?;
        waits.push(created.elapsed());
        tokio::time::sleep(super::APART.saturating_sub(created.elapsed())).await;
    }
    Ok(waits)
}

async fn beside(world: &World, what: &str, bill: &mut Bill) -> anyhow::Result<()> {
    let waits = released(world, "beside").await?;
    count(bill, what, &waits);
    Ok(())
}

fn count(bill: &mut Bill, what: &str, waits: &[Duration]) {
    let mut sorted = waits.to_vec();
    sorted.sort();
    for part in [50, 100] {
        let at = (sorted.len() * part / 100).min(sorted.len().saturating_sub(1));
        let wait = sorted.get(at).map_or(0, Duration::as_millis);
        Bill::figure(
            &format!("gated neighbour beside {what}: released after, p{part}"),
            format!("{wait} ms"),
        );
    }
    let (soon, few) = SOON;
    let late = waits.iter().filter(|wait| **wait > soon).count();
    bill.count(&format!("of {} released after more than {} s", waits.len(), soon.as_secs()), late, few);
}

/// A Pod on a node of its choice uses an allocated claim, and lacks another one for ever.
async fn lacks_a_claim(world: &World) -> anyhow::Result<()> {
    let ns = world.namespace("lacking").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("shared")).await?;
    world.pod(&ns, &Pod::new("runs").with_claim("shared", "shared").held()).await?;
    world.phase(&ns, "runs", "Running").await?;
    let lacking = Pod::new("lacking").with_claim("shared", "shared").with_template("other", "nowhere");
    world.pod(&ns, &lacking.on("node-0")).await.map(drop)
}

/// Pods that another controller holds: none of them gets a device.
async fn waits_for_others(world: &World, ns: &str, bill: &mut Bill) -> anyhow::Result<()> {
    let held = |number: usize| {
        let mut pod = Pod::new(&format!("held-{number}")).with_template("device", "one").object().clone();
        pod["spec"]["schedulingGates"] = json!([{"name": GATE}, {"name": "queue.example/admission"}]);
        pod
    };
    create(world, ns, PODS, (0..100).map(held)).await?;
    beside(world, "100 Pods behind the gate of a queue", bill).await?;
    let claims = world.client.list(CLAIMS, ns).await?;
    let given = claims.iter().filter(|claim| {
        let of = claim["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default();
        of.starts_with("held-") && !claim["status"]["allocation"].is_null()
    });
    bill.count("devices of Pods behind the gate of a queue", given.count(), 0);
    Ok(())
}

/// Pods that share one claim, while others are released: most of them find no place among its consumers. Then some consumers end, and
/// all others wait for their places.
async fn share(world: &World, bill: &mut Bill) -> anyhow::Result<()> {
    const SHARERS: usize = 2_000;
    const ENDED: usize = 20;
    let ns = gates::namespace(world, "sharers", "enabled").await?;
    let roomy = json!({"status": {"allocatable": {"pods": "500"}, "capacity": {"pods": "500"}}});
    for node in 0..NODES.0 {
        world.client.merge("/api/v1/nodes", "", &format!("node-{node}/status"), &roomy).await?;
    }
    world.client.create(CLAIMS, &ns, &objects::claim("shared")).await?;
    let pod = |number: usize| {
        Pod::new(&format!("pod-{number}")).with_claim("device", "shared").held().object().clone()
    };
    create(world, &ns, PODS, (0..SHARERS).map(pod)).await?;
    beside(world, "2 000 Pods that share a claim", bill).await?;
    let first = consumers(world, &ns, &[]).await?;
    let entries = world.plane.audit().entries(&ns);
    bill.count("refused writes of the allocator about them", refused(&entries), first.len());
    let ended = &first[..ENDED];
    for name in ended {
        world.client.delete(PODS, &ns, name, Some(0)).await?;
    }
    beside(world, "20 consumers that end", bill).await?;
    consumers(world, &ns, ended).await?;
    let later = world.plane.audit().entries(&ns).split_off(entries.len());
    bill.count("refused writes about the places of 20 consumers that ended", refused(&later), ENDED);
    Ok(())
}

/// Waits until the shared claim has as many consumers as the API allows, and none that is over; returns their names.
async fn consumers(world: &World, ns: &str, over: &[String]) -> anyhow::Result<Vec<String>> {
    wait::value("the claim is reserved for as many Pods as it may be", async || {
        let claim = world.client.get(CLAIMS, ns, "shared").await?.context("claim")?;
        let consumers = claim["status"]["reservedFor"].as_array().into_iter().flatten();
        let names: Vec<String> =
            consumers.filter_map(|consumer| consumer["name"].as_str().map(str::to_owned)).collect();
        let is_full = names.len() == MOST_CONSUMERS && !names.iter().any(|name| over.contains(name));
        Ok(is_full.then_some(names))
    })
    .await
}

/// The number of refused writes of the allocator. One for each Pod that gets a place is the budget.
fn refused(entries: &[Entry]) -> usize {
    entries.iter().filter(|entry| entry.party() == "allocator" && !entry.took_effect()).count()
}

/// Pods with more entries than are read, and the claims of some of them.
async fn many_entries(world: &World, ns: &str) -> anyhow::Result<()> {
    let entry =
        |number: usize| json!({"name": format!("e{number}"), "resourceClaimName": format!("c{number}")});
    let mut pod = Pod::new("many").object().clone();
    pod["spec"]["resourceClaims"] = (0..20_000).map(entry).collect();
    let pods = (0..4).map(|number| {
        pod["metadata"]["name"] = json!(format!("many-{number}"));
        pod.clone()
    });
    create(world, ns, PODS, pods).await?;
    create(world, ns, CLAIMS, (0..400).map(|number| objects::claim(&format!("c{number}")))).await
}

/// Claims that no Pod uses, with parameters for their driver.
fn claims() -> (&'static str, Vec<Value>) {
    let parameters = |_| json!({"opaque": {"driver": DRIVER, "parameters": {"text": "x".repeat(9_900)}}});
    let claim = |number: usize| {
        let mut claim = objects::claim(&format!("long-{number}"));
        claim["metadata"]["labels"] = json!({"dragoman.dev/allocator": "dragoman"});
        claim["spec"]["devices"]["config"] = (0..32).map(parameters).collect();
        claim
    };
    (CLAIMS, (0..500).map(claim).collect())
}

/// Pods with as many containers as an API server stores.
fn containers() -> (&'static str, Vec<Value>) {
    let container = |number: usize| json!({"name": format!("c{number}"), "image": "x", "resources": {"requests": {"cpu": "1m"}}});
    let pod = |number: usize| {
        let mut pod =
            Pod::new(&format!("wide-{number}")).with_claim("device", "nowhere").gated().object().clone();
        pod["spec"]["containers"] = (0..9_000).map(container).collect();
        pod
    };
    (PODS, (0..20).map(pod).collect())
}
