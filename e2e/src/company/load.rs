//! The load of a run: gated Pods with claims of every form, and Pods of others.

use std::collections::BTreeMap;

use dragoman_simcluster::HOLD;
use fastrand::Rng;
use serde_json::{Value, json};

use super::Kind;
use crate::client::{CLAIMS, PODS};
use crate::objects::{self, Pod};
use crate::scenarios::accounts::requesting;
use crate::wait;
use crate::world::World;

/// Pods that have not ended at any time: several times what the nodes have room for, so that every freed cpu is fought for.
const CROWD: usize = 200;
/// Pods that are created at once.
const BURST: usize = 50;
/// Claims that several Pods share.
const SHARED: usize = 4;
/// A class of Pods that may take the place of others.
pub(super) const IMPORTANT: &str = "important";

/// The namespaces of a run.
pub(super) struct Spaces {
    /// That of gated Pods.
    pub(super) gated: String,
    /// That of Pods of others.
    pub(super) others: String,
}

impl Spaces {
    fn of(&self, role: Role) -> &String {
        if role == Role::Gated { &self.gated } else { &self.others }
    }
}

/// What a Pod of a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It has the gate.
    Gated,
    /// It has no claim.
    Ordinary,
    /// It has no gate, and a claim for a device that another allocator owns: it never runs.
    Ungated,
}

/// A Pod of a run that has not ended, and how many looks it still runs for.
struct Live {
    role: Role,
    looks: u32,
}

/// Creates the objects that the Pods of a run need.
pub(super) async fn prepare(world: &World, spaces: &Spaces) -> anyhow::Result<()> {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": IMPORTANT}, "value": 1000});
    world.client.create("/apis/scheduling.k8s.io/v1/priorityclasses", "", &class).await?;
    for number in 0..SHARED {
        world.client.create(CLAIMS, &spaces.gated, &objects::claim(&format!("shared-{number}"))).await?;
    }
    Ok(())
}

fn draw(rng: &mut Rng, kind: Kind, number: usize) -> (Role, Value) {
    let name = format!("pod-{number}");
    let role = match rng.u32(..100) {
        _ if !kind.has_neighbours() => Role::Gated,
        0..60 => Role::Gated,
        60..97 => Role::Ordinary,
        _ => Role::Ungated,
    };
    let pod = Pod::new(&name).held().reaped();
    let (pod, cpu) = match role {
        Role::Gated => {
            let pod = match rng.u32(..8) {
                0 => pod.with_template("first", "one").with_template("second", "one"),
                // Kubernetes refuses a second consumer where the devices are node resources of a slice.
                1 if kind.may_share() => pod.with_claim("shared", &format!("shared-{}", rng.usize(..SHARED))),
                _ => pod.with_template("device", "one"),
            };
            (pod, rng.u32(1..=8) * 250)
        }
        Role::Ordinary => (pod, rng.u32(2..=8) * 1_000),
        Role::Ungated => (pod.with_template("device", "one"), 100),
    };
    let mut pod = requesting(&pod, &format!("{cpu}m"));
    if role == Role::Ordinary && rng.u32(..4) == 0 {
        pod["spec"]["priorityClassName"] = json!(IMPORTANT);
    }
    (role, pod)
}

/// Runs `count` Pods from creation to their end. `between` is called with the number of Pods that were created.
pub(super) async fn run(
    world: &World,
    spaces: &Spaces,
    kind: Kind,
    (seed, count): (u64, usize),
    mut between: impl AsyncFnMut(usize) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut rng = Rng::with_seed(seed);
    let mut live: BTreeMap<(String, String), Live> = BTreeMap::new();
    let mut created = 0;
    wait::value(&format!("{count} Pods have ended"), async || {
        while created < count && live.len() + BURST <= CROWD {
            let burst = created..count.min(created + BURST);
            let drawn: Vec<(Role, Value)> = burst.map(|number| draw(&mut rng, kind, number)).collect();
            let creations = drawn.iter().map(|(role, pod)| world.client.create(PODS, spaces.of(*role), pod));
            futures::future::try_join_all(creations).await?;
            for (role, _) in drawn {
                let looks = rng.u32(2..5);
                live.insert((spaces.of(role).clone(), format!("pod-{created}")), Live { role, looks });
                created += 1;
                between(created).await?;
            }
        }
        look(world, spaces, &mut live).await?;
        let waits = |live: &Live| live.role != Role::Ungated;
        Ok((created == count && !live.values().any(waits)).then_some(()))
    })
    .await?;
    for (namespace, name) in live.keys() {
        world.client.delete(PODS, namespace, name, Some(0)).await?;
    }
    Ok(())
}

/// Lets Pods end that have run for a while, and forgets those that are gone.
async fn look(
    world: &World,
    spaces: &Spaces,
    live: &mut BTreeMap<(String, String), Live>,
) -> anyhow::Result<()> {
    let mut there = BTreeMap::new();
    for namespace in [&spaces.gated, &spaces.others] {
        for pod in world.client.list(PODS, namespace).await? {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            there.insert((namespace.clone(), name), pod["status"]["phase"] == "Running");
        }
    }
    live.retain(|key, _| there.contains_key(key));
    for (key, live) in live.iter_mut().filter(|(key, _)| there.get(*key) == Some(&true)) {
        live.looks = live.looks.saturating_sub(1);
        if live.looks == 1 {
            let release = json!({"metadata": {"annotations": {HOLD: null}}});
            // kube-scheduler may have removed it for a more important one.
            world.client.merge(PODS, &key.0, &key.1, &release).await.map(drop).or_else(|refusal| {
                if refusal.to_string().contains("not found") { Ok(()) } else { Err(refusal) }
            })?;
        }
    }
    Ok(())
}
