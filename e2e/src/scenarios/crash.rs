//! The crash lane: the operator is killed before, during and after every write of a life.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::client::{CLAIMS, PODS};
use crate::control_plane::Shape;
use crate::dragoman::{Dragoman, Start};
use crate::objects::{self, Pod};
use crate::proxy::{Harm, Moment, Proxy};
use crate::wait;
use crate::world::{Bench, World};

const MOMENTS: [Moment; 3] = [Moment::Before, Moment::Committed, Moment::Replied];
const FLAGS: &[&str] = &["--without-lease"];

/// The lives that are interrupted, with the writes that Dragoman makes in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// create, publish, release, unprotect, delete.
    Template,
    /// Two Pods share a claim: unreserve, release, unprotect.
    Shared,
    /// create, publish on the group, publish on the Pod, release, unprotect.
    Group,
}

impl Life {
    fn writes(self) -> usize {
        match self {
            Self::Shared => 3,
            Self::Template | Self::Group => 5,
        }
    }
}

/// Runs the lane and returns the number of interrupted lives.
pub(super) async fn run(bench: &Bench) -> anyhow::Result<usize> {
    let shape = Shape { pod_groups: true, ..Shape::default() };
    let world = World::start(bench, "crash", shape, 2, 32).await?;
    let proxy = Proxy::start(world.plane.client("operator").await?.kube).await?;
    let kubeconfig = proxy.kubeconfig(&world.directory)?;
    let start = world.start_of(kubeconfig, "own", FLAGS);
    let mut interrupted = 0;
    for life in [Life::Template, Life::Shared, Life::Group] {
        for write in 1..=life.writes() {
            for moment in MOMENTS {
                let outcome = one(&world, &proxy, &start, life, write, moment).await;
                outcome.with_context(|| format!("{life:?}, killed at write {write}, {moment:?}"))?;
                interrupted += 1;
            }
        }
    }
    world.stop().await?;
    Ok(interrupted)
}

async fn one(
    world: &World,
    proxy: &Proxy,
    start: &Start<'_>,
    life: Life,
    write: usize,
    moment: Moment,
) -> anyhow::Result<()> {
    let ns = world.namespace("crash").await?;
    proxy.harm(Some(Harm::Kill { namespace: ns.clone(), write, moment }));
    let first = Dragoman::start(start).await?;
    let killed = async {
        wait::ended("the operator sends its write", proxy.struck()).await?;
        first.kill().await?;
        proxy.harm(None);
        Dragoman::start(start).await
    };
    // The life goes on while no operator runs.
    let (second, ()) = tokio::try_join!(killed, live(world, &ns, life))?;
    ended(world, &ns, life).await?;
    second.kill().await
}

async fn live(world: &World, ns: &str, life: Life) -> anyhow::Result<()> {
    let pods: Vec<Pod> = match life {
        Life::Template => vec![Pod::new("a").with_template("gpu", "one").held()],
        Life::Shared => {
            world.client.create(CLAIMS, ns, &objects::claim("shared")).await?;
            ["a", "b"].map(|name| Pod::new(name).with_claim("gpu", "shared").held()).into()
        }
        Life::Group => {
            world
                .client
                .create(
                    &world.release.pod_groups_path(),
                    ns,
                    &objects::pod_group(world.release, "group", "gpu", "one"),
                )
                .await?;
            vec![Pod::new("a").with_template("gpu", "one").in_group("group").held()]
        }
    };
    for pod in &pods {
        world.pod(ns, pod).await?;
    }
    let names = if life == Life::Shared { &["a", "b"][..] } else { &["a"] };
    for name in names {
        world.phase(ns, name, "Running").await?;
    }
    for name in names {
        // No Pod loses a reservation while it runs.
        let claims = world.client.list(CLAIMS, ns).await?;
        ensure!(claims.len() == 1, "{} claims for one entry", claims.len());
        ensure!(holds(&claims[0], name, life), "{name} runs without a reservation: {}", claims[0]);
        world.let_end(ns, name).await?;
        if life == Life::Shared && *name == "a" {
            // One write for each of them: two that have ended are taken out in one.
            let is_out = |claim: Option<&Value>| claim.is_some_and(|claim| !holds(claim, "a", life));
            world.claim_until(ns, "shared", "is not reserved for a", is_out).await?;
        }
    }
    if life == Life::Group {
        world.client.delete(PODS, ns, "a", Some(0)).await?;
        world.client.delete(&world.release.pod_groups_path(), ns, "group", None).await?;
    }
    Ok(())
}

fn holds(claim: &Value, pod: &str, life: Life) -> bool {
    let consumers = claim["status"]["reservedFor"].as_array();
    let name = if life == Life::Group { "group" } else { pod };
    consumers.is_some_and(|list| list.iter().any(|c| c["name"] == name))
}

/// Checks that exactly one claim was made for the entry, and that no device is held.
async fn ended(world: &World, ns: &str, life: Life) -> anyhow::Result<()> {
    if life == Life::Shared {
        let free = |c: Option<&Value>| c.is_some_and(|c| c["status"]["allocation"].is_null());
        world.claim_until(ns, "shared", "is free", free).await?;
    } else {
        world.claims(ns, 0).await?;
    }
    let writes = world.plane.audit().entries(ns);
    let created = |w: &&crate::control_plane::Entry| {
        w.party() == "dragoman" && w.what() == "create resourceclaims" && w.response_status.code == 201
    };
    let made = writes.iter().filter(created).count();
    let wanted = usize::from(life != Life::Shared);
    ensure!(made == wanted, "{made} claims were made for one entry");
    Ok(())
}
