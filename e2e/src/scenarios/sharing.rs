//! Claims that several consumers share, foreign writers, and reservations.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Scenario, scenario};
use crate::client::{CLAIMS, PODS};
use crate::dragoman::Dragoman;
use crate::objects::{self, Pod, foreign_allocation, pod_consumer, unknown_consumer};
use crate::wait;
use crate::world::World;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario!(a_shared_claim_lives_as_long_as_its_last_pod),
        scenario!(an_unknown_consumer_holds_only_itself),
        scenario!(a_generated_claim_held_by_an_unknown_consumer_is_at_rest),
        scenario!(an_allocation_without_finalizer_is_released_with_its_last_consumer),
        scenario!(an_allocated_unreserved_claim_is_left_alone),
        scenario!(a_pod_with_a_node_gets_its_reservations),
        scenario!(the_257th_consumer_is_told),
        scenario!(a_terminating_claim_loses_its_finalizer_at_once),
        scenario!(other_finalizers_and_fields_survive),
    ]
}

pub(super) fn reserved(claim: Option<&Value>) -> Vec<String> {
    let consumers = claim.and_then(|c| c["status"]["reservedFor"].as_array()).cloned().unwrap_or_default();
    consumers.iter().filter_map(|c| c["name"].as_str().map(str::to_owned)).collect()
}

pub(super) fn allocated(claim: Option<&Value>) -> bool {
    claim.is_some_and(|c| !c["status"]["allocation"].is_null())
}

pub(super) fn protected(claim: Option<&Value>) -> bool {
    let finalizers = claim.and_then(|c| c["metadata"]["finalizers"].as_array()).cloned().unwrap_or_default();
    finalizers.iter().any(|f| f == "resource.kubernetes.io/delete-protection")
}

/// The oscillation of kubernetes/kubernetes#141274 does not happen.
async fn a_shared_claim_lives_as_long_as_its_last_pod(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("shared").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("shared")).await?;
    for name in ["one", "two"] {
        world.pod(&ns, &Pod::new(name).with_claim("gpu", "shared").held()).await?;
        world.phase(&ns, name, "Running").await?;
    }
    world.let_end(&ns, "one").await?;
    world.claim_until(&ns, "shared", "is reserved for two only", |c| reserved(c) == ["two"]).await?;
    let writes = world.rest(&ns).await?.len();
    world.let_end(&ns, "two").await?;
    world.claim_until(&ns, "shared", "is free", |c| !allocated(c) && !protected(c)).await?;
    ensure!(world.rest(&ns).await?.len() > writes, "nothing was written");
    let claim = world.client.get(CLAIMS, &ns, "shared").await?;
    ensure!(claim.is_some(), "a claim of its user's own was deleted");
    // The claim can be used again.
    world.pod(&ns, &Pod::new("three").with_claim("gpu", "shared")).await?;
    world.phase(&ns, "three", "Succeeded").await?;
    world.claim_until(&ns, "shared", "is free again", |c| !allocated(c) && !protected(c)).await?;
    Ok(())
}

async fn an_unknown_consumer_holds_only_itself(world: &World, dragoman: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("unknown_consumer").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("claim")).await?;
    let pod = world.pod(&ns, &Pod::new("pod").with_claim("gpu", "claim").gated()).await?;
    let allocation = foreign_allocation("node-1", &[pod_consumer(&pod), unknown_consumer(0)]);
    world.client.merge(CLAIMS, &ns, "claim/status", &allocation).await?;
    let failed = json!({"status": {"phase": "Failed"}});
    world.client.merge(PODS, &ns, "pod/status", &failed).await?;
    world.claim_until(&ns, "claim", "is reserved for the job only", |c| reserved(c) == ["job-0"]).await?;
    world.rest(&ns).await?;
    ensure!(allocated(world.client.get(CLAIMS, &ns, "claim").await?.as_ref()), "it was deallocated");
    wait::value("the dump and the metric have it", async || {
        let is_dumped =
            dragoman.dump().await?.contains(&format!("{ns}/claim held by jobs.example.com job-0"));
        let counted = dragoman.metric("dragoman_claims_held_by_unknown_consumer", &[]).await?;
        Ok((is_dumped && counted >= 1.0).then_some(()))
    })
    .await?;
    Ok(())
}

/// The built-in controller does not come to rest here (docs/upstream-defects.md).
async fn a_generated_claim_held_by_an_unknown_consumer_is_at_rest(
    world: &World,
    _: &Dragoman,
) -> anyhow::Result<()> {
    let ns = world.namespace("held_generated").await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "one").held()).await?;
    world.phase(&ns, "pod", "Running").await?;
    let claim = world.claim_of(&ns, "pod", "gpu").await?;
    let name = claim["metadata"]["name"].as_str().context("name")?.to_owned();
    let mut consumers = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
    consumers.push(unknown_consumer(1));
    world
        .client
        .merge(CLAIMS, &ns, &format!("{name}/status"), &json!({"status": {"reservedFor": consumers}}))
        .await?;
    world.let_end(&ns, "pod").await?;
    world.claim_until(&ns, &name, "is reserved for the job only", |c| reserved(c) == ["job-1"]).await?;
    world.rest(&ns).await?;
    let held = world.client.get(CLAIMS, &ns, &name).await?.context("the claim is gone")?;
    ensure!(allocated(Some(&held)) && held["metadata"]["deletionTimestamp"].is_null(), "{held}");
    // Once the foreign consumer is gone, the claim is released and deleted as usual.
    world
        .client
        .merge(CLAIMS, &ns, &format!("{name}/status"), &json!({"status": {"reservedFor": null}}))
        .await?;
    world.claims(&ns, 0).await?;
    world.rest(&ns).await?;
    Ok(())
}

async fn an_allocation_without_finalizer_is_released_with_its_last_consumer(
    world: &World,
    _: &Dragoman,
) -> anyhow::Result<()> {
    let ns = world.namespace("no_finalizer").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("claim")).await?;
    let pod = world.pod(&ns, &Pod::new("pod").with_claim("gpu", "claim").gated()).await?;
    world
        .client
        .merge(CLAIMS, &ns, "claim/status", &foreign_allocation("node-1", &[pod_consumer(&pod)]))
        .await?;
    world.client.delete(PODS, &ns, "pod", Some(0)).await?;
    world.claim_until(&ns, "claim", "is free", |c| c.is_some() && !allocated(c)).await?;
    world.rest(&ns).await?;
    Ok(())
}

/// Other allocators allocate a claim before they reserve it.
async fn an_allocated_unreserved_claim_is_left_alone(
    world: &World,
    dragoman: &Dragoman,
) -> anyhow::Result<()> {
    let ns = world.namespace("unreserved").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("claim")).await?;
    world.client.merge(CLAIMS, &ns, "claim/status", &foreign_allocation("node-1", &[])).await?;
    world.rest(&ns).await?;
    ensure!(allocated(world.client.get(CLAIMS, &ns, "claim").await?.as_ref()), "it was deallocated");
    wait::value("it is counted", async || {
        let counted = dragoman.metric("dragoman_claims_allocated_unreserved", &[]).await?;
        Ok((counted >= 1.0).then_some(()))
    })
    .await
}

/// One missing claim does not hold up the reservation of the others.
async fn a_pod_with_a_node_gets_its_reservations(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("prescheduled").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("claim")).await?;
    let pod =
        Pod::new("pod").with_claim("missing", "not-there").with_claim("gpu", "claim").held().on("node-1");
    world.pod(&ns, &pod).await?;
    world.client.merge(CLAIMS, &ns, "claim/status", &foreign_allocation("node-1", &[])).await?;
    world.claim_until(&ns, "claim", "is reserved for the Pod", |c| reserved(c) == ["pod"]).await?;
    wait::value("the kubelet refuses it", async || Ok(world.refusals.contains(&ns, "pod").then_some(())))
        .await?;
    ensure!(
        world.client.get(PODS, &ns, "pod").await?.is_some_and(|p| p["status"]["phase"] == "Pending"),
        "it runs"
    );
    world.client.create(CLAIMS, &ns, &objects::claim("not-there")).await?;
    world.client.merge(CLAIMS, &ns, "not-there/status", &foreign_allocation("node-1", &[])).await?;
    world.phase(&ns, "pod", "Running").await?;
    world.let_end(&ns, "pod").await?;
    for claim in ["claim", "not-there"] {
        world.claim_until(&ns, claim, "is free", |c| c.is_some() && !allocated(c)).await?;
    }
    world.rest(&ns).await?;
    Ok(())
}

async fn the_257th_consumer_is_told(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("consumers").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("claim")).await?;
    let consumers: Vec<_> = (0..256).map(unknown_consumer).collect();
    world.client.merge(CLAIMS, &ns, "claim/status", &foreign_allocation("node-1", &consumers)).await?;
    world.pod(&ns, &Pod::new("pod").with_claim("gpu", "claim").held().on("node-1")).await?;
    let note = world.event(&ns, "pod", "FailedResourceClaimCreation").await?;
    ensure!(note.contains("256") && note.contains("claim"), "{note}");
    world.rest(&ns).await?;
    Ok(())
}

/// The finalizer is removed even while a Pod that references the claim lives.
async fn a_terminating_claim_loses_its_finalizer_at_once(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("terminating").await?;
    let mut claim = objects::claim("claim");
    claim["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
    world.client.create(CLAIMS, &ns, &claim).await?;
    world.pod(&ns, &Pod::new("pod").with_claim("gpu", "claim").gated()).await?;
    world.rest(&ns).await?;
    ensure!(
        protected(world.client.get(CLAIMS, &ns, "claim").await?.as_ref()),
        "a live claim lost its finalizer"
    );
    world.client.delete(CLAIMS, &ns, "claim", None).await?;
    world.claim_until(&ns, "claim", "is gone", |c| c.is_none()).await?;
    world.rest(&ns).await?;
    Ok(())
}

/// Dragoman does not change finalizers and fields that it does not know.
async fn other_finalizers_and_fields_survive(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("survive").await?;
    let mut claim = objects::claim("claim");
    claim["metadata"]["finalizers"] =
        json!(["example.com/a", "resource.kubernetes.io/delete-protection", "example.com/b"]);
    claim["metadata"]["labels"] = json!({"x": "y"});
    world.client.create(CLAIMS, &ns, &claim).await?;
    world.pod(&ns, &Pod::new("pod").with_claim("gpu", "claim")).await?;
    world.phase(&ns, "pod", "Succeeded").await?;
    world.claim_until(&ns, "claim", "is free", |c| !allocated(c) && !protected(c)).await?;
    let claim = world.client.get(CLAIMS, &ns, "claim").await?.context("claim")?;
    ensure!(claim["metadata"]["finalizers"] == json!(["example.com/a", "example.com/b"]), "{claim}");
    ensure!(claim["metadata"]["labels"]["x"] == "y", "{claim}");
    world.client.merge(CLAIMS, &ns, "claim", &json!({"metadata": {"finalizers": null}})).await?;
    world.rest(&ns).await?;
    Ok(())
}
