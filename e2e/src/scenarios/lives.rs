//! Whole lives of Pods with claims from templates.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{Scenario, scenario};
use crate::client::{CLAIMS, PODS, SLICES, TEMPLATES};
use crate::dragoman::Dragoman;
use crate::objects::{self, Pod};
use crate::world::{World, claim_name};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario!(one_pod_one_template),
        scenario!(completed_pods_cost_nothing),
        scenario!(several_entries_and_a_late_template),
        scenario!(a_deleted_claim_is_made_again),
        scenario!(a_wiped_status_is_published_again),
        scenario!(a_waiting_pod_gets_the_device_of_one_that_ends),
        scenario!(a_replaced_pod_gets_a_claim_of_its_own),
        Scenario { newest_only: true, ..scenario!(extended_resources) },
    ]
}

/// A whole life costs Dragoman and kube-scheduler at most ten writes, none of them twice.
async fn one_pod_one_template(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("one_pod_one_template").await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "one").held()).await?;
    let claim = world.claim_of(&ns, "pod", "gpu").await?;
    let name = claim["metadata"]["name"].as_str().context("name")?.to_owned();
    world.phase(&ns, "pod", "Running").await?;
    world.let_end(&ns, "pod").await?;
    world.claim_until(&ns, &name, "is gone", |c| c.is_none()).await?;
    world.client.delete(PODS, &ns, "pod", Some(0)).await?;
    let writes = world.rest(&ns).await?;
    ensure!(world.client.list(CLAIMS, &ns).await?.is_empty(), "a claim is left");
    let life: Vec<_> = writes
        .iter()
        .filter(|w| !w.was_late() && matches!(w.party(), "dragoman" | "kube-scheduler"))
        .map(|w| format!("{} {}", w.party(), w.what()))
        .collect();
    let mut sorted: Vec<_> = life.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let most = [
        "dragoman create resourceclaims",
        "dragoman delete resourceclaims",
        "dragoman patch pods/status",
        "dragoman patch resourceclaims",
        "dragoman patch resourceclaims/status",
        "kube-scheduler create events",
        "kube-scheduler create pods/binding",
        "kube-scheduler patch pods/status",
        "kube-scheduler update resourceclaims",
        "kube-scheduler update resourceclaims/status",
    ];
    // kube-scheduler before 1.36 may see the claim before it has reported that the claim is missing.
    ensure!(
        sorted.iter().all(|w| most.contains(w)) && sorted.len() <= most.len(),
        "a life costs other writes: {life:?}"
    );
    ensure!(sorted.windows(2).all(|pair| pair[0] != pair[1]), "something was written twice: {life:?}");
    Ok(())
}

/// Completed Pods that stay cause no writes. (The built-in controller makes and deletes their claims for
/// ever.)
async fn completed_pods_cost_nothing(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    const PODS_AT_ONCE: usize = 300;
    let ns = world.namespace("completed_pods").await?;
    for i in 0..PODS_AT_ONCE {
        // There are more Pods than devices. Gated Pods get claims, but are never scheduled.
        world.pod(&ns, &Pod::new(&format!("pod-{i}")).with_template("gpu", "one").gated()).await?;
    }
    world.claims(&ns, PODS_AT_ONCE).await?;
    for i in 0..PODS_AT_ONCE {
        // A gated Pod can fail: an eviction sets its phase.
        let failed = json!({"status": {"phase": "Failed"}});
        world.client.merge(PODS, &ns, &format!("pod-{i}/status"), &failed).await?;
    }
    world.claims(&ns, 0).await?;
    let writes = world.rest(&ns).await?;
    let done = |what: &str| writes.iter().filter(|w| !w.was_late() && w.what() == what).count();
    let (created, deleted) = (done("create resourceclaims"), done("delete resourceclaims"));
    ensure!((created, deleted) == (PODS_AT_ONCE, PODS_AT_ONCE), "{created} created, {deleted} deleted");
    ensure!(world.client.list(PODS, &ns).await?.len() == PODS_AT_ONCE, "the Pods stay");
    Ok(())
}

/// An entry that waits for its template does not hold up the others. The status is complete and sorted.
async fn several_entries_and_a_late_template(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("several_entries").await?;
    let pod = Pod::new("pod").with_template("z", "one").with_template("m", "late").with_template("a", "one");
    world.pod(&ns, &pod.held()).await?;
    world.claim_of(&ns, "pod", "z").await?;
    world.claim_of(&ns, "pod", "a").await?;
    world.event_with(&ns, "pod", "FailedResourceClaimCreation", &["PodResourceClaim m", "late"]).await?;
    world.client.create(TEMPLATES, &ns, &objects::template("late")).await?;
    world.claim_of(&ns, "pod", "m").await?;
    let pod = world.phase(&ns, "pod", "Running").await?;
    let statuses = pod["status"]["resourceClaimStatuses"].as_array().context("statuses")?;
    let names: Vec<_> = statuses.iter().filter_map(|s| s["name"].as_str()).collect();
    ensure!(names == ["a", "m", "z"], "{names:?}");
    world.let_end(&ns, "pod").await?;
    world.claims(&ns, 0).await?;
    world.rest(&ns).await?;
    Ok(())
}

/// A generated claim that is deleted is made again at once, under another name. The other claim of the Pod
/// is left alone.
async fn a_deleted_claim_is_made_again(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("made_again").await?;
    world.pod(&ns, &Pod::new("pod").with_template("a", "one").with_template("b", "one").gated()).await?;
    let text = |claim: &serde_json::Value| claim["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let first = text(&world.claim_of(&ns, "pod", "a").await?);
    let neighbour = text(&world.claim_of(&ns, "pod", "b").await?);
    world.client.delete(CLAIMS, &ns, &first, None).await?;
    let second = crate::wait::value("the claim is made again", async || {
        let pod = world.client.get(PODS, &ns, "pod").await?.context("pod")?;
        Ok(claim_name(&pod, "a").filter(|name| *name != first))
    })
    .await?;
    ensure!(world.client.get(CLAIMS, &ns, &second).await?.is_some(), "{second} is not there");
    ensure!(text(&world.claim_of(&ns, "pod", "b").await?) == neighbour, "the neighbour was replaced");
    world.rest(&ns).await?;
    world.claims(&ns, 2).await?;
    Ok(())
}

/// Claim names that another client drops from the status are published again, without new claims.
async fn a_wiped_status_is_published_again(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("wiped_status").await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "one").gated()).await?;
    let before = world.claim_of(&ns, "pod", "gpu").await?;
    world.client.merge(PODS, &ns, "pod/status", &json!({"status": {"resourceClaimStatuses": null}})).await?;
    let after = world.claim_of(&ns, "pod", "gpu").await?;
    ensure!(before["metadata"]["uid"] == after["metadata"]["uid"], "another claim was made");
    world.rest(&ns).await?;
    Ok(())
}

/// kube-scheduler wakes waiting Pods only on updates of claims, so that a claim's status must be cleared
/// before the claim is deleted.
async fn a_waiting_pod_gets_the_device_of_one_that_ends(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("waiting").await?;
    let driver = format!("{ns}.dragoman.dev");
    let mut class = objects::class();
    class["metadata"]["name"] = json!(ns);
    class["spec"]["selectors"][0]["cel"]["expression"] = json!(format!("device.driver == {driver:?}"));
    world.client.create("/apis/resource.k8s.io/v1/deviceclasses", "", &class).await?;
    let mut slice = objects::slice("node-0", 1);
    slice["metadata"]["name"] = json!(ns);
    slice["spec"]["driver"] = json!(driver);
    world.client.create(SLICES, "", &slice).await?;
    let mut template = objects::template("scarce");
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = json!(ns);
    world.client.create(TEMPLATES, &ns, &template).await?;
    world.pod(&ns, &Pod::new("first").with_template("gpu", "scarce").held()).await?;
    world.phase(&ns, "first", "Running").await?;
    world.pod(&ns, &Pod::new("second").with_template("gpu", "scarce").held()).await?;
    let waits = async || -> anyhow::Result<Option<()>> {
        let pod = world.client.get(PODS, &ns, "second").await?.context("pod")?;
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.iter().any(|c| c["reason"] == "Unschedulable").then_some(()))
    };
    crate::wait::value("the second Pod waits", waits).await?;
    world.let_end(&ns, "first").await?;
    let ended = std::time::Instant::now();
    world.phase(&ns, "second", "Running").await?;
    // kube-scheduler looks at all Pods again after five minutes, without any reason.
    ensure!(ended.elapsed().as_secs() < 240, "it took {:?} until the device was used again", ended.elapsed());
    world.let_end(&ns, "second").await?;
    world.claims(&ns, 0).await?;
    world.rest(&ns).await?;
    Ok(())
}

/// A Pod with the name of a deleted one does not take over its claims.
async fn a_replaced_pod_gets_a_claim_of_its_own(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("replaced").await?;
    let pod = Pod::new("pod").with_template("gpu", "one").held();
    world.pod(&ns, &pod).await?;
    world.phase(&ns, "pod", "Running").await?;
    let first = world.claim_of(&ns, "pod", "gpu").await?;
    world.client.delete(PODS, &ns, "pod", Some(0)).await?;
    world.pod(&ns, &pod).await?;
    world.phase(&ns, "pod", "Running").await?;
    let second = world.claim_of(&ns, "pod", "gpu").await?;
    ensure!(first["metadata"]["name"] != second["metadata"]["name"], "the old claim is used");
    let name = first["metadata"]["name"].as_str().context("name")?;
    world.claim_until(&ns, name, "is gone", |c| c.is_none()).await?;
    // The Pod was deleted without grace while it ran. An Event reports that; the release is not delayed.
    world.event(&ns, name, "ConsumerVanished").await?;
    world.let_end(&ns, "pod").await?;
    world.claims(&ns, 0).await?;
    world.rest(&ns).await?;
    Ok(())
}

/// Claims that kube-scheduler makes for extended resources are deleted with their Pod, too.
async fn extended_resources(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    let ns = world.namespace("extended").await?;
    let resource = format!("{ns}.dragoman.dev/device");
    let mut class = objects::class();
    class["metadata"]["name"] = json!(ns);
    class["spec"]["extendedResourceName"] = json!(resource);
    world.client.create("/apis/resource.k8s.io/v1/deviceclasses", "", &class).await?;
    let mut pod = Pod::new("pod").held().object().clone();
    let container = &mut pod["spec"]["containers"][0];
    container["resources"] = json!({"requests": {&resource: "1"}, "limits": {&resource: "1"}});
    world.client.create(PODS, &ns, &pod).await?;
    let claims = world.claims(&ns, 1).await?;
    let annotation = &claims[0]["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"];
    ensure!(annotation == "true", "{annotation}");
    world.phase(&ns, "pod", "Running").await?;
    world.let_end(&ns, "pod").await?;
    world.claims(&ns, 0).await?;
    world.rest(&ns).await?;
    Ok(())
}
