//! The load of a run: Pods come in bursts, run for a while, and end.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use serde_json::Value;

use super::Kind;
use super::neighbourhood::{self, Provisioner, Spaces};
use super::pods::{self, Drawn, Role};
use crate::client::{Client, PODS};
use crate::wait;

/// Pods that have not ended at any time: several times what the nodes have room for, so that every freed cpu is fought for.
const CROWD: usize = 200;
/// Pods that are created at once.
const BURST: usize = 50;

/// Namespace and name.
type Key = (String, String);

/// A Pod of a run that has not ended.
struct Live {
    role: Role,
    /// Number of looks for which the Pod still runs.
    looks: u32,
    /// The number of the Pods that came with it: a gang works together, and ends together.
    company: usize,
}

/// The Pods of a run.
struct Load<'a> {
    client: &'a Client,
    spaces: &'a Spaces,
    kind: Kind,
    rng: Rng,
    live: BTreeMap<Key, Live>,
    created: usize,
    count: usize,
}

/// Runs `count` Pods from creation to their end. `between` is called with the number of Pods that were created.
///
/// # Errors
/// A Pod does not end.
pub(super) async fn run(
    client: &Client,
    spaces: &Spaces,
    kind: Kind,
    (seed, count): (u64, usize),
    mut between: impl AsyncFnMut(usize) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let rng = Rng::with_seed(seed);
    let mut load = Load { client, spaces, kind, rng, live: BTreeMap::new(), created: 0, count };
    let mut provisioner = Provisioner::default();
    wait::value(&format!("{count} Pods have ended"), async || {
        while load.created < count && load.live.len() + BURST <= CROWD {
            let (first, most) = (load.created, count.min(load.created + BURST));
            load.burst(most).await?;
            for created in first + 1..=load.created {
                between(created).await?;
            }
        }
        provisioner.look(client, spaces).await?;
        load.look().await?;
        let waits = |live: &Live| live.role != Role::Ungated;
        Ok((load.created >= count && !load.live.values().any(waits)).then_some(()))
    })
    .await?;
    for (namespace, name) in load.live.keys() {
        client.delete(PODS, namespace, name, Some(0)).await?;
    }
    Ok(())
}

impl Load<'_> {
    /// Creates Pods until there were `most` of them, all at once.
    async fn burst(&mut self, most: usize) -> anyhow::Result<()> {
        let mut drawn = Vec::new();
        while self.created < most.min(self.count) {
            let next = pods::draw(&mut self.rng, self.kind, self.spaces.release, self.created);
            self.created += next.pods.len();
            drawn.push(next);
        }
        futures::future::try_join_all(drawn.iter().map(|next| create(self.client, self.spaces, next)))
            .await?;
        for (number, Drawn { role, pods, .. }) in drawn.into_iter().enumerate() {
            let (looks, company) = (self.rng.u32(2..5), self.created * BURST + number);
            for pod in pods {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let live = Live { role, looks, company };
                self.live.insert((self.spaces.of(role.is_gated()).clone(), name), live);
            }
        }
        Ok(())
    }

    /// Lets Pods end that have run for a while, and forgets those that are gone.
    async fn look(&mut self) -> anyhow::Result<()> {
        let mut there = BTreeMap::new();
        for namespace in [&self.spaces.gated, &self.spaces.others] {
            for pod in self.client.list(PODS, namespace).await? {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                there.insert((namespace.clone(), name), pod["status"]["phase"] == "Running");
            }
        }
        let gone = |key: &Key, live: &Live| (!there.contains_key(key)).then_some(live.company);
        let broken: BTreeSet<usize> = self.live.iter().filter_map(|(key, live)| gone(key, live)).collect();
        self.live.retain(|key, _| there.contains_key(key));
        let waits = self.live.iter().filter(|(key, _)| there.get(*key) == Some(&false));
        let waiting: BTreeSet<usize> = waits.map(|(_, live)| live.company).collect();
        for (key, live) in &mut self.live {
            if waiting.contains(&live.company) {
                // kube-scheduler binds no Pod of a gang that has lost one: its controller would make the gang anew.
                if broken.contains(&live.company) {
                    self.client.delete(PODS, &key.0, &key.1, None).await?;
                }
                continue;
            }
            live.looks = live.looks.saturating_sub(1);
            if live.looks == 1 {
                let ended = self.client.merge(PODS, &key.0, &key.1, &pods::ends()).await;
                // kube-scheduler may have removed it for a more important one.
                ended.map(drop).or_else(|refusal| {
                    if refusal.to_string().contains("not found") { Ok(()) } else { Err(refusal) }
                })?;
            }
        }
        Ok(())
    }
}

async fn create(client: &Client, spaces: &Spaces, drawn: &Drawn) -> anyhow::Result<Vec<Value>> {
    let namespace = spaces.of(drawn.role.is_gated());
    if let Some(group) = &drawn.group {
        client.create(&spaces.release.pod_groups_path(), namespace, group).await?;
    }
    for volume in &drawn.volumes {
        neighbourhood::volume(client, namespace, volume).await?;
    }
    let mut created = Vec::new();
    for pod in &drawn.pods {
        created.push(client.create(PODS, namespace, pod).await?);
    }
    Ok(created)
}
