//! The cpu of the API server for a write of a claim: as a JSON patch, and in protobuf, read and written whole.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use dragoman_machinery::api::{Api, Limits};
use dragoman_machinery::kind::RESOURCE_CLAIM;
use dragoman_machinery::metrics::{ClientMetrics, MachineryMetrics};
use dragoman_machinery::write::{Action, Guard, Write};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use dragoman_e2e::client::CLAIMS;
use dragoman_e2e::control_plane::{Scheduling, Shape};
use dragoman_e2e::objects;
use dragoman_e2e::scenarios::parameters;
use dragoman_e2e::usage::Usage;
use dragoman_e2e::world::{Bench, World};

/// Writes a label into `count` claims of each kind, `rounds` times, and prints the medians.
///
/// # Errors
/// A write is refused that should not be, or the other way round.
pub(crate) async fn run(bench: &Bench, count: usize, rounds: usize) -> anyhow::Result<()> {
    let shape = Shape { scheduler: Scheduling::Absent, ..Shape::default() };
    let world = World::start(bench, "claim-writes", shape, 0, 0).await?;
    let mut registry = Registry::default();
    let client = ClientMetrics::register(&mut registry, "");
    let metrics = MachineryMetrics::register(&mut registry);
    let api = Api::new(world.client.kube.clone(), Limits::default(), client);
    let (mut patches, mut refusals, mut stored) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let ns = world.namespace("writes").await?;
        for number in 0..count {
            world.client.create(CLAIMS, &ns, &objects::claim(&format!("plain-{number}"))).await?;
            parameters::create(&world, &ns, &format!("raw-{number}"), &json!({})).await?;
        }
        let write = async |claim: &Value| {
            let sent = labelled(claim)?.send(&api, &metrics).await;
            sent.map(drop).with_context(|| format!("{}", claim["metadata"]["name"]))
        };
        let refused = async |claim: &Value| {
            let name = claim["metadata"]["name"].as_str().unwrap_or_default();
            let patch = json!({"metadata": {"labels": {"a": "b"}}});
            ensure!(world.client.merge(CLAIMS, &ns, name, &patch).await.is_err(), "{name} takes a patch");
            Ok(())
        };
        patches.push(cost(&world, &ns, "plain-", write).await?);
        refusals.push(cost(&world, &ns, "raw-", refused).await?);
        stored.push(cost(&world, &ns, "raw-", write).await?);
    }
    let [patch, refusal, stored] = [patches, refusals, stored].map(median);
    let whole = stored.saturating_sub(refusal);
    println!("cpu of the API server for a write of a claim, medians of {rounds} rounds of {count}:");
    println!("        a JSON patch: {patch:?}");
    println!("        a patch that is refused, a read and an update in protobuf: {stored:?}");
    println!(
        "        without the patch, which costs {refusal:?}: {whole:?}, {:.2} times a patch",
        whole.as_secs_f64() / patch.as_secs_f64()
    );
    world.stop().await
}

fn labelled(claim: &Value) -> anyhow::Result<Write> {
    let text = |field: &str| claim["metadata"][field].as_str().map(str::to_owned).context("metadata");
    let guard = Guard { uid: text("uid")?, resource_version: text("resourceVersion")? };
    let labels = [("a".to_owned(), Some("b".to_owned()))].into();
    let action = Action::Merge { guard, labels, annotations: [].into() };
    Ok(Write::new(RESOURCE_CLAIM, text("namespace")?, text("name")?, action))
}

/// Returns the cpu time of kube-apiserver per write, for one write of each claim with this prefix.
async fn cost(
    world: &World,
    ns: &str,
    prefix: &str,
    write: impl AsyncFn(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<Duration> {
    let mut claims = world.client.list(CLAIMS, ns).await?;
    claims.retain(|claim| claim["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix)));
    let pid =
        world.plane.pids().into_iter().find(|(name, _)| *name == "kube-apiserver").context("no process")?.1;
    let before = Usage::of(pid)?.cpu;
    for claim in &claims {
        write(claim).await?;
    }
    let took = Usage::of(pid)?.cpu.saturating_sub(before);
    Ok(took / u32::try_from(claims.len())?)
}

fn median(mut of: Vec<Duration>) -> Duration {
    of.sort();
    of.get(of.len() / 2).copied().unwrap_or_default()
}
