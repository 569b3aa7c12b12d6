//! Dragoman and the built-in controller: takeover, detection of a second writer, and drain.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{Standalone, standalone};
use crate::client::{CLAIMS, NAMESPACES, PODS};
use crate::control_plane::{Backend, OPERATOR, Release, Shape};
use crate::objects::{self, Pod};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn all() -> Vec<Standalone> {
    vec![
        standalone!(claims_of_the_built_in_controller_are_taken_over),
        standalone!(a_second_writer_is_noticed_in_mid_run),
        standalone!(auto_assists_and_says_what_it_lacks),
        standalone!(drain_leaves_nothing_that_needs_us),
        standalone!(leaving_works_where_there_are_no_policies_of_ours_in_1_36),
        standalone!(a_group_that_is_turned_off_while_claims_are_held),
    ]
}

async fn claims_of_the_built_in_controller_are_taken_over(bench: &Bench) -> anyhow::Result<()> {
    let mut world =
        World::start(bench, "takeover", Shape { built_in: true, ..Shape::default() }, 1, 8).await?;
    let ns = world.namespace("takeover").await?;
    world.pod(&ns, &Pod::new("running").with_template("gpu", "one").held()).await?;
    world.phase(&ns, "running", "Running").await?;
    world.pod(&ns, &Pod::new("waiting").with_template("gpu", "one").gated()).await?;
    let before = world.claim_of(&ns, "waiting", "gpu").await?;
    world.plane.restart_controllers(false).await?;
    // The Pod ends while no claim controller runs.
    world.let_end(&ns, "running").await?;
    let dragoman = world.dragoman("own", &[]).await?;
    let left = world.claims(&ns, 1).await?;
    ensure!(
        left[0]["metadata"]["uid"] == before["metadata"]["uid"],
        "the claim of the waiting Pod was replaced"
    );
    world.client.delete(PODS, &ns, "waiting", Some(0)).await?;
    world.claims(&ns, 0).await?;
    ensure!(dragoman.metric("dragoman_second_writer", &[]).await? == 0.0, "old claims are no second writer");
    dragoman.stop().await?;
    world.stop().await
}

async fn a_second_writer_is_noticed_in_mid_run(bench: &Bench) -> anyhow::Result<()> {
    let mut world = World::start(bench, "second-writer", Shape::default(), 1, 8).await?;
    let ns = world.namespace("second").await?;
    // A process that begins anew has noticed nothing yet: it begins anew where it has lost its Lease.
    let dragoman = world.dragoman("own", &["--without-lease"]).await?;
    world.pod(&ns, &Pod::new("ours").with_template("gpu", "one").gated()).await?;
    world.claim_of(&ns, "ours", "gpu").await?;
    world.plane.restart_controllers(true).await?;
    // Clocks may differ by some seconds, so that only a claim well after the start of the lease is proof.
    let noticed = async |i: usize| -> anyhow::Result<bool> {
        world.pod(&ns, &Pod::new(&format!("pod-{i}")).with_template("gpu", "one").gated()).await?;
        world.claim_of(&ns, &format!("pod-{i}"), "gpu").await?;
        Ok(dragoman.metric("dragoman_second_writer", &[]).await? == 1.0)
    };
    let started = std::time::Instant::now();
    let mut count = 0;
    while !noticed(count).await? {
        count += 1;
        ensure!(started.elapsed() < wait::patience(), "not noticed with {count} Pods");
        wait::apart().await;
    }
    println!("        noticed with {} Pods", count + 1);
    world.rest(&ns).await?;
    // From here on the built-in controller makes all writes about claims, and Dragoman none.
    let ours =
        |w: &&crate::control_plane::Entry| w.party() == "dragoman" && w.object_ref.resource != "events";
    let before = world.plane.audit().entries(&ns).iter().filter(ours).count();
    world.client.delete(PODS, &ns, "ours", Some(0)).await?;
    world.pod(&ns, &Pod::new("after").with_template("gpu", "one").gated()).await?;
    world.claim_of(&ns, "after", "gpu").await?;
    let after = world.rest(&ns).await?.iter().filter(ours).count();
    ensure!(after == before, "{} writes after the second writer was noticed", after - before);
    ensure!(dragoman.readiness().await?.0 == 200, "it must stay up");
    ensure!(dragoman.log().contains("another process creates claims"), "not said");
    dragoman.stop().await?;
    world.stop().await
}

/// Mode `auto` never owns claims, even while the built-in controller is down. It observes if a right to
/// watch is missing.
async fn auto_assists_and_says_what_it_lacks(bench: &Bench) -> anyhow::Result<()> {
    let world = World::start(bench, "auto", Shape::default(), 1, 1).await?;
    let ns = world.namespace("auto").await?;
    let dragoman = world.dragoman("auto", &[]).await?;
    ensure!(dragoman.metric("dragoman_mode", &["assist"]).await? == 1.0, "{}", dragoman.log());
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "one").gated()).await?;
    let writes = world.rest(&ns).await?;
    ensure!(writes.iter().all(|w| w.party() != "dragoman"), "auto wrote");
    dragoman.stop().await?;
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role_now = world.client.get(role, "", "dragoman-observe").await?.context("role")?;
    let rules = role_now["rules"].as_array().context("rules")?;
    let fewer: Vec<_> = rules.iter().filter(|r| r["resources"][0] != "resourceclaimtemplates").collect();
    world.client.merge(role, "", "dragoman-observe", &json!({"rules": fewer})).await?;
    // The API server takes a moment until it knows the role; simcluster does not.
    let right = json!({"verb": "list", "group": "resource.k8s.io", "resource": "resourceclaimtemplates"});
    if bench.backend == Backend::Real {
        crate::installed::may_not(&world.client, OPERATOR, &right).await?;
    }
    let dragoman = crate::dragoman::Dragoman::supervised(&world.start_of(
        world.plane.kubeconfig("operator"),
        "auto",
        &[],
    ))?;
    let observes = async || {
        let unready = dragoman
            .readiness()
            .await
            .is_ok_and(|(code, text)| code == 503 && text.contains("resourceclaimtemplates"));
        Ok((unready && dragoman.metric("dragoman_mode", &["observe"]).await? == 1.0).then_some(()))
    };
    crate::wait::value("it observes and names the missing right", observes).await?;
    world.client.merge(role, "", "dragoman-observe", &json!({"rules": rules})).await?;
    let ready = async || Ok((dragoman.readiness().await?.0 == 200).then_some(()));
    crate::wait::value("it is ready once the right is given", ready).await?;
    dragoman.stop().await?;
    world.stop().await
}

/// A namespace that is deleted while the operator is down ends in each of three ways: the operator is
/// back, the built-in controller is back, or `drain` runs.
async fn drain_leaves_nothing_that_needs_us(bench: &Bench) -> anyhow::Result<()> {
    let mut world = World::start(bench, "drain", Shape::default(), 1, 8).await?;
    let flags = &["--born-protected", "--without-lease"];
    for way in ["operator", "built-in", "drain"] {
        let ns = world.namespace(way).await?;
        let dragoman = world.dragoman("own", flags).await?;
        world.pod(&ns, &Pod::new("pod").with_template("gpu", "one").gated()).await?;
        let claim = world.claim_of(&ns, "pod", "gpu").await?;
        ensure!(claim["metadata"]["finalizers"].is_array(), "not born protected: {claim}");
        dragoman.stop().await?;
        world.client.delete(NAMESPACES, "", &ns, None).await?;
        let stuck = async || {
            let pods = world.client.list(PODS, &ns).await?;
            let claims = world.client.list(CLAIMS, &ns).await?;
            Ok((pods.is_empty() && claims.len() == 1).then_some(()))
        };
        crate::wait::value("the namespace hangs on the claim", stuck).await?;
        let back = match way {
            "operator" => Some(world.dragoman("own", flags).await?),
            "built-in" => {
                world.plane.restart_controllers(true).await?;
                None
            }
            _ => {
                let out = drain(&world).await?;
                ensure!(out.contains("finalizer removed from 1 claims"), "{out}");
                None
            }
        };
        let gone = async || Ok(world.client.get(NAMESPACES, "", &ns).await?.is_none().then_some(()));
        crate::wait::value(&format!("the namespace ends ({way})"), gone).await?;
        if let Some(dragoman) = back {
            dragoman.stop().await?;
        }
        if way == "built-in" {
            world.plane.restart_controllers(false).await?;
        }
    }
    // A claim that is in use is listed, but not changed.
    let ns = world.namespace("in-use").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("used")).await?;
    world
        .client
        .merge(
            CLAIMS,
            &ns,
            "used/status",
            &objects::foreign_allocation("node-0", &[objects::unknown_consumer(0)]),
        )
        .await?;
    // Beside a leader it would miss the claims that are made meanwhile.
    let dragoman = world.dragoman("own", &["--born-protected"]).await?;
    crate::wait::value("drain is refused", async || {
        let refused = drain(&world).await.err().map(|why| why.to_string());
        Ok(refused.filter(|why| why.contains("renews the Lease kube-system/dragoman")))
    })
    .await?;
    dragoman.stop().await?;
    let out = drain(&world).await?;
    ensure!(out.contains(&format!("still held: {ns}/used: allocated, reserved for jobs job-0")), "{out}");
    world.stop().await
}

/// Kubernetes 1.35 has no `MutatingAdmissionPolicy`: `gating off`, which leaving runs in any case, finds none.
async fn leaving_works_where_there_are_no_policies_of_ours_in_1_36(bench: &Bench) -> anyhow::Result<()> {
    let shape = Shape { release: Release::V1_36, emulated: Some("1.35"), ..Shape::default() };
    let world = World::start(bench, "no-policies", shape, 1, 1).await?;
    let mut command = tokio::process::Command::new(&world.bench.binary);
    command.args(["gating", "off", "--kubeconfig"]).arg(world.plane.kubeconfig("admin"));
    let out = command.output().await?;
    ensure!(out.status.success(), "gating off: {}", String::from_utf8_lossy(&out.stderr));
    ensure!(out.stdout == b"gate removed from 0 Pods\n", "{}", String::from_utf8_lossy(&out.stdout));
    drain(&world).await?;
    world.stop().await
}

async fn drain(world: &World) -> anyhow::Result<String> {
    let out = tokio::process::Command::new(&world.bench.binary)
        .args(["drain", "--kubeconfig"])
        .arg(world.plane.kubeconfig("admin"))
        .output()
        .await?;
    ensure!(out.status.success(), "drain: {}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8(out.stdout)?)
}

/// Unknown is not gone: a claim keeps its consumer while the consumer's kind is not served.
async fn a_group_that_is_turned_off_while_claims_are_held(bench: &Bench) -> anyhow::Result<()> {
    let mut world =
        World::start(bench, "group-off", Shape { pod_groups: true, ..Shape::default() }, 1, 8).await?;
    let ns = world.namespace("off").await?;
    let dragoman = world.dragoman("own", &[]).await?;
    world
        .client
        .create(
            &world.release.pod_groups_path(),
            &ns,
            &objects::pod_group(world.release, "group", "shared", "one"),
        )
        .await?;
    world.pod(&ns, &Pod::new("pod").with_template("shared", "one").in_group("group").held()).await?;
    world.phase(&ns, "pod", "Running").await?;
    let claim = world.claim_of(&ns, "pod", "shared").await?;
    let name = claim["metadata"]["name"].as_str().context("name")?.to_owned();
    world.plane.restart_apiserver(|shape| shape.pod_groups = false).await?;
    let off = async || Ok(dragoman.dump().await?.contains("podgroups served: Some(false)").then_some(()));
    crate::wait::value("the vanished group is noticed", off).await?;
    // A change of the claim makes Dragoman reconcile it again.
    world.client.merge(CLAIMS, &ns, &name, &json!({"metadata": {"labels": {"touched": "yes"}}})).await?;
    world.rest(&ns).await?;
    let held = world.client.get(CLAIMS, &ns, &name).await?.context("claim")?;
    ensure!(held["status"]["reservedFor"] == claim["status"]["reservedFor"], "released: {held}");
    let ready = async || Ok((dragoman.readiness().await?.0 == 200).then_some(()));
    crate::wait::value("a missing group narrows, it does not stop us", ready).await?;
    world.plane.restart_apiserver(|shape| shape.pod_groups = true).await?;
    let on = async || Ok(dragoman.dump().await?.contains("podgroups served: Some(true)").then_some(()));
    crate::wait::value("the group is back", on).await?;
    world.let_end(&ns, "pod").await?;
    world.client.delete(PODS, &ns, "pod", Some(0)).await?;
    world.client.delete(&world.release.pod_groups_path(), &ns, "group", None).await?;
    world.claims(&ns, 0).await?;
    dragoman.stop().await?;
    world.stop().await
}
