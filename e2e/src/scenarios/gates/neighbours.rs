//! A gated Pod and an ordinary Pod race for the last cpus of a node, again and again. kube-scheduler knows the ordinary Pod
//! alone: the gated one has to hold its room before its gate is opened.

use anyhow::{Context as _, ensure};
use dragoman_simcluster::HOLD;
use serde_json::{Value, json};

use super::{COUNTS, Costs, FLAGS, GATE, SMALL, condition, gated_where, gates_of, namespace};
use crate::client::{CLAIMS, FOOTPRINTS, PODS};
use crate::company::{self, Kills, Kind, Run};
use crate::control_plane::Shape;
use crate::objects::{self, Pod};
use crate::scenarios::accounts::requesting;
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(neighbours_take_no_room_of_gated_pods),
        standalone!(neighbours_take_no_room_of_gated_pods_where_kube_scheduler_counts),
        standalone!(neighbours_take_no_room_that_kube_scheduler_does_not_count),
        standalone!(every_promise_holds_in_company),
        standalone!(a_pod_that_lacks_a_claim_holds_up_no_neighbour),
        standalone!(one_tenants_entries_hold_up_no_other),
        standalone!(neighbours_take_no_room_of_gated_pods_a_thousand_times),
    ]
}

/// Number of races on each node, and number of nodes.
const FEW: (usize, usize) = (3, 12);
const MANY: (usize, usize) = (20, 50);

async fn neighbours_take_no_room_of_gated_pods(bench: &Bench) -> anyhow::Result<()> {
    race(bench, "neighbours", Shape::default(), Costs::InFootprint, FEW).await
}

async fn neighbours_take_no_room_of_gated_pods_where_kube_scheduler_counts(
    bench: &Bench,
) -> anyhow::Result<()> {
    race(bench, "neighbours-counted", Shape { on: &[COUNTS], ..Shape::default() }, Costs::InSlices, FEW).await
}

/// kube-scheduler counts claims, and forgets what others wrote about them in the moment in which it places the Pod.
async fn neighbours_take_no_room_that_kube_scheduler_does_not_count(bench: &Bench) -> anyhow::Result<()> {
    let shape = Shape { on: &[COUNTS], ..Shape::default() };
    race(bench, "neighbours-footprints", shape, Costs::InFootprint, FEW).await
}

async fn neighbours_take_no_room_of_gated_pods_a_thousand_times(bench: &Bench) -> anyhow::Result<()> {
    race(bench, "neighbours", Shape::default(), Costs::InFootprint, MANY).await
}

/// Two short runs; `cargo xtask company` has the long ones, in every kind of cluster.
async fn every_promise_holds_in_company(bench: &Bench) -> anyhow::Result<()> {
    let like = Run { kind: Kind::Held, seed: 1, pods: 60, kills: Kills::Parties, previous: None };
    company::run(bench, &[Kind::CountedFootprints, Kind::Held], (1, 1), like).await
}

/// A Pod with a node of its own choice uses an allocated claim, and lacks another one for ever. What it takes is known: Pods of
/// others behind the gate do not wait for the rest.
async fn a_pod_that_lacks_a_claim_holds_up_no_neighbour(bench: &Bench) -> anyhow::Result<()> {
    let world = gated_where(bench, "lacking", Shape::default(), (1, SMALL), Costs::InFootprint).await?;
    // A claim whose devices take something of their node has one Pod.
    world.client.delete(FOOTPRINTS, "", "cores", None).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let (tenant, ns) = (world.namespace("tenant").await?, namespace(&world, "lacking", "enabled").await?);
    world.client.create(CLAIMS, &tenant, &objects::claim("shared")).await?;
    world.pod(&tenant, &Pod::new("runs").with_claim("shared", "shared").held()).await?;
    world.phase(&tenant, "runs", "Running").await?;
    let lacking = Pod::new("lacking").with_claim("shared", "shared").with_template("other", "nowhere");
    let lacking = world.pod(&tenant, &lacking.on("node-0")).await?;
    // In mode own nothing is reserved for a Pod that lacks a claim; a scheduler of another make may do it.
    let claim = world.client.get(CLAIMS, &tenant, "shared").await?.context("claim")?;
    let mut consumers = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
    consumers.push(objects::pod_consumer(&lacking));
    let reserved = json!({"status": {"reservedFor": consumers}});
    world.client.merge(CLAIMS, &tenant, "shared/status", &reserved).await?;
    for number in 0..3 {
        let name = format!("neighbour-{number}");
        world.pod(&ns, &Pod::new(&name).with_template("device", "one")).await?;
        world.phase(&ns, &name, "Succeeded").await?;
    }
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Entries beyond those that are read.
const ENTRIES: usize = 300;

/// An ordinary Pod names more claims than are read. The last of them takes three of eight cpus, or nothing. It counts once kube-scheduler has
/// reserved it, and no gated Pod of the node waits for more.
async fn one_tenants_entries_hold_up_no_other(bench: &Bench) -> anyhow::Result<()> {
    let world = gated_where(bench, "entries", Shape::default(), (1, SMALL), Costs::InFootprint).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let (tenant, ns) = (world.namespace("tenant").await?, namespace(&world, "entries", "enabled").await?);
    let mut nothing = objects::claim("last");
    nothing["spec"] = json!({});
    let names: Vec<String> = (0..ENTRIES).map(|number| format!("c{number:03}")).collect();
    for name in &names {
        nothing["metadata"]["name"] = json!(name);
        world.client.create(CLAIMS, &tenant, &nothing).await?;
    }
    for (last, cpus, fits) in [("nothing", 5, true), ("small", 1, true), ("large", 5, false)] {
        let mut claim = if last == "nothing" { nothing.clone() } else { objects::claim(last) };
        claim["metadata"]["name"] = json!(last);
        world.client.create(CLAIMS, &tenant, &claim).await?;
        let many = names.iter().fold(Pod::new(last).held(), |pod, name| pod.with_claim(name, name));
        world.pod(&tenant, &many.with_claim("last", last)).await?;
        world.phase(&tenant, last, "Running").await?;
        let gated = Pod::new(last).with_template("device", "one");
        world.client.create(PODS, &ns, &requesting(&gated, &cpus.to_string())).await?;
        if !fits {
            wait::value("the gated Pod lacks cpu", async || {
                let pod = world.client.get(PODS, &ns, last).await?.context("Pod")?;
                let why = condition(&pod).and_then(|of| of["message"].as_str()).unwrap_or_default();
                Ok((gates_of(&pod).contains(&GATE) && why.contains("cpu")).then_some(()))
            })
            .await?;
            world.client.delete(PODS, &tenant, last, None).await?;
        }
        world.phase(&ns, last, "Succeeded").await?;
        if fits {
            world.client.delete(PODS, &tenant, last, None).await?;
        }
    }
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Each node has eight cpus. The gated Pod requests two and its device takes three; its neighbour requests six.
async fn race(
    bench: &Bench,
    name: &str,
    shape: Shape,
    costs: Costs,
    (rounds, nodes): (usize, usize),
) -> anyhow::Result<()> {
    let world = gated_where(bench, name, shape, (nodes, SMALL), costs).await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let spaces =
        Spaces { gated: namespace(&world, name, "enabled").await?, others: world.namespace(name).await? };
    let mut won = 0;
    for round in 0..rounds {
        // The neighbours come from at once to later than it takes to open a gate.
        spaces.create(&world, nodes, 2 * nodes * round / rounds).await?;
        let winners = wait::value("one of two runs on each node, and the other says why not", async || {
            spaces.outcome(&world, nodes).await
        })
        .await?;
        won += winners.iter().filter(|(namespace, _)| *namespace == spaces.gated).count();
        end(&world, &winners).await?;
        let losers = wait::value("the other one runs", async || {
            let running = spaces.running(&world).await?;
            let others: Vec<_> = running.into_iter().filter(|pod| !winners.contains(pod)).collect();
            Ok((others.len() == nodes).then_some(others))
        })
        .await?;
        end(&world, &losers).await?;
        wait::value("all are gone", async || {
            let left = (
                world.client.list(PODS, &spaces.gated).await?,
                world.client.list(PODS, &spaces.others).await?,
            );
            Ok((left.0.is_empty() && left.1.is_empty()).then_some(()))
        })
        .await?;
    }
    println!("        {} races; the gated Pod won {won}", rounds * nodes);
    let writes = world.plane.audit().entries(&spaces.gated);
    let done = writes.iter().filter(|write| write.took_effect());
    let scheduler = done.filter(|write| write.party() == "kube-scheduler");
    let moved = scheduler.filter(|write| write.object_ref.resource == "resourceclaims").count();
    ensure!(moved == 0, "kube-scheduler wrote {moved} times about claims: it moves devices");
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// The namespaces of the two kinds of Pods.
struct Spaces {
    gated: String,
    others: String,
}

/// A Pod: namespace and name.
type Named = (String, String);

impl Spaces {
    /// Creates two Pods for each node. The ordinary ones come `lag` Pods later.
    async fn create(&self, world: &World, nodes: usize, lag: usize) -> anyhow::Result<()> {
        for step in 0..nodes + lag {
            let on = |node: usize, pod: Pod, cpu: &str| {
                let mut pod = requesting(&pod.held().reaped(), cpu);
                pod["metadata"]["name"] = json!(format!("pod-{node}"));
                pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": format!("node-{node}")});
                pod
            };
            if step < nodes {
                let ours = on(step, Pod::new("gated").with_template("device", "one"), "2");
                world.client.create(PODS, &self.gated, &ours).await?;
            }
            if let Some(node) = step.checked_sub(lag) {
                world.client.create(PODS, &self.others, &on(node, Pod::new("other"), "6")).await?;
            }
        }
        Ok(())
    }

    async fn running(&self, world: &World) -> anyhow::Result<Vec<Named>> {
        let mut running = Vec::new();
        for namespace in [&self.gated, &self.others] {
            for pod in world.client.list(PODS, namespace).await? {
                if pod["status"]["phase"] == "Running" {
                    running.push((namespace.clone(), text(&pod["metadata"]["name"])));
                }
            }
        }
        Ok(running)
    }

    /// The Pods that run, once each node has one and each other Pod says what it waits for.
    ///
    /// # Errors
    /// Two run on one node.
    async fn outcome(&self, world: &World, nodes: usize) -> anyhow::Result<Option<Vec<Named>>> {
        let mut waiting = 0;
        for namespace in [&self.gated, &self.others] {
            let pods = world.client.list(PODS, namespace).await?;
            waiting += pods.iter().filter(|pod| waits(pod)).count();
        }
        let running = self.running(world).await?;
        let mut names: Vec<&String> = running.iter().map(|(_, name)| name).collect();
        names.sort();
        let twice: Vec<_> = names.iter().zip(names.iter().skip(1)).filter(|(a, b)| a == b).collect();
        ensure!(twice.is_empty(), "a node has eight cpus, and eleven are taken, for {twice:?}");
        Ok((running.len() == nodes && waiting == nodes).then_some(running))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Whether a Pod says that cpu is missing: to kube-scheduler, or behind its gate.
fn waits(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut said = conditions.filter(|of| of["status"] == "False").map(|of| text(&of["message"]));
    pod["status"]["phase"] == "Pending"
        && said.any(|text| text.contains("Insufficient cpu") || text.contains("of cpu is missing"))
}

/// Lets Pods end, without waiting until they have.
async fn end(world: &World, pods: &[Named]) -> anyhow::Result<()> {
    for (namespace, name) in pods {
        let release = json!({"metadata": {"annotations": {HOLD: null}}});
        world.client.merge(PODS, namespace, name, &release).await?;
    }
    Ok(())
}
