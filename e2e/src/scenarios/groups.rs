//! PodGroups (KEP-5729, alpha in 1.36): their shared claims, and Pods that come before them.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Scenario, scenario};
use crate::client::{CLAIMS, PODS};
use crate::dragoman::Dragoman;
use crate::objects::{self, Pod};
use crate::world::World;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario!(the_pods_of_a_group_share_its_claim),
        scenario!(a_pod_comes_before_its_group),
        scenario!(a_bound_pod_keeps_a_claim_of_its_own),
    ]
}

/// The Pods share one claim, which is reserved for the PodGroup, and each has a claim of its own.
async fn the_pods_of_a_group_share_its_claim(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("group").await?;
    world
        .client
        .create(
            &world.release.pod_groups_path(),
            &ns,
            &objects::pod_group(world.release, "group", "shared", "one"),
        )
        .await?;
    for name in ["a", "b"] {
        let pod = Pod::new(name).with_template("shared", "one").with_template("own", "one");
        world.pod(&ns, &pod.in_group("group").held()).await?;
    }
    for name in ["a", "b"] {
        world.phase(&ns, name, "Running").await?;
    }
    let shared = world.claim_of(&ns, "a", "shared").await?;
    ensure!(shared == world.claim_of(&ns, "b", "shared").await?, "two claims");
    ensure!(shared["metadata"]["ownerReferences"][0]["kind"] == "PodGroup", "{shared}");
    let consumers = shared["status"]["reservedFor"].as_array().context("reservedFor")?;
    ensure!(consumers.len() == 1 && consumers[0]["resource"] == "podgroups", "{consumers:?}");
    ensure!(world.client.list(CLAIMS, &ns).await?.len() == 3, "one shared and two own claims");
    for name in ["a", "b"] {
        world.let_end(&ns, name).await?;
    }
    // Completed Pods free their own claims. The PodGroup holds its claim until it is deleted.
    world.claims(&ns, 1).await?;
    world.rest(&ns).await?;
    for name in ["a", "b"] {
        world.client.delete(PODS, &ns, name, Some(0)).await?;
    }
    world.client.delete(&world.release.pod_groups_path(), &ns, "group", None).await?;
    world.claims(&ns, 0).await?;
    world.rest(&ns).await?;
    Ok(())
}

/// A PodGroup that comes after its Pod enqueues the Pod.
async fn a_pod_comes_before_its_group(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("late_group").await?;
    let pod =
        Pod::new("pod").with_template("shared", "one").with_template("own", "one").in_group("late").gated();
    world.pod(&ns, &pod).await?;
    let note = world.event(&ns, "pod", "FailedResourceClaimCreation").await?;
    ensure!(note.contains("late"), "{note}");
    ensure!(world.client.list(CLAIMS, &ns).await?.is_empty(), "whose claim it is cannot be known yet");
    world
        .client
        .create(
            &world.release.pod_groups_path(),
            &ns,
            &objects::pod_group(world.release, "late", "shared", "one"),
        )
        .await?;
    let shared = world.claim_of(&ns, "pod", "shared").await?;
    ensure!(shared["metadata"]["ownerReferences"][0]["kind"] == "PodGroup", "{shared}");
    let own = world.claim_of(&ns, "pod", "own").await?;
    ensure!(own["metadata"]["ownerReferences"][0]["kind"] == "Pod", "{own}");
    world.client.delete(PODS, &ns, "pod", Some(0)).await?;
    world.client.delete(&world.release.pod_groups_path(), &ns, "late", None).await?;
    world.claims(&ns, 0).await?;
    world.rest(&ns).await?;
    Ok(())
}

/// A Pod got its claim before its PodGroup had an entry of the same name: it keeps the claim, which is reserved for the group. The built-in
/// controller does the same.
async fn a_bound_pod_keeps_a_claim_of_its_own(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("own_claim").await?;
    let pod = Pod::new("pod").with_template("shared", "one").in_group("late").on("node-0").held();
    let pod = world.pod(&ns, &pod).await?;
    let mut claim = objects::claim("owned");
    claim["metadata"]["annotations"] = json!({"resource.kubernetes.io/pod-claim-name": "shared"});
    claim["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "pod",
        "uid": pod["metadata"]["uid"], "controller": true}]);
    world.client.create(CLAIMS, &ns, &claim).await?;
    world.client.merge(CLAIMS, &ns, "owned/status", &objects::foreign_allocation("node-0", &[])).await?;
    let named =
        json!({"status": {"resourceClaimStatuses": [{"name": "shared", "resourceClaimName": "owned"}]}});
    world.client.merge(PODS, &ns, "pod/status", &named).await?;
    // The operator has to know the status before it knows the group.
    world.rest(&ns).await?;
    let path = world.release.pod_groups_path();
    world.client.create(&path, &ns, &objects::pod_group(world.release, "late", "shared", "one")).await?;
    let is_reserved = |claim: Option<&Value>| {
        claim.is_some_and(|claim| claim["status"]["reservedFor"][0]["resource"] == "podgroups")
    };
    world.claim_until(&ns, "owned", "is reserved for the group", is_reserved).await?;
    let claim = world.claim_of(&ns, "pod", "shared").await?;
    ensure!(claim["metadata"]["name"] == "owned", "{claim}");
    world.client.delete(PODS, &ns, "pod", Some(0)).await?;
    world.client.delete(&path, &ns, "late", None).await?;
    world.claims(&ns, 0).await?;
    world.rest(&ns).await.map(drop)
}
