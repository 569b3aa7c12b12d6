//! Late and cut watches, lost replies, two instances, a lost lease and throttling. Each scenario has a
//! cluster of its own, behind the proxy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{Standalone, standalone};
use crate::client::{CLAIMS, PODS};
use crate::control_plane::{Scheduling, Shape};
use crate::objects::Pod;
use crate::proxy::{Harm, Proxy};
use crate::world::{Bench, World};

pub(super) fn all() -> Vec<Standalone> {
    vec![
        standalone!(two_instances_late_watches_and_lost_replies_make_each_claim_once),
        standalone!(pods_that_go_while_the_watch_is_cut),
        standalone!(the_lease),
        standalone!(a_new_leader_waits_for_what_the_last_one_wrote),
        standalone!(two_installations_in_two_namespaces_notice_each_other),
        standalone!(a_throttled_client_waits_with_everything),
    ]
}

async fn proxied(bench: &Bench, name: &str) -> anyhow::Result<(World, Proxy, std::path::PathBuf)> {
    let world =
        World::start(bench, name, Shape { scheduler: Scheduling::Absent, ..Shape::default() }, 1, 1).await?;
    let proxy = Proxy::start(world.plane.client("operator").await?.kube).await?;
    let kubeconfig = proxy.kubeconfig(&world.directory)?;
    Ok((world, proxy, kubeconfig))
}

async fn two_instances_late_watches_and_lost_replies_make_each_claim_once(
    bench: &Bench,
) -> anyhow::Result<()> {
    const COUNT: usize = 400;
    let (world, proxy, kubeconfig) = proxied(bench, "two-instances").await?;
    let one = world.dragoman_as(kubeconfig.clone(), "own", &["--without-lease"]).await?;
    let two = world.dragoman_as(kubeconfig, "own", &["--without-lease"]).await?;
    let ns = world.namespace("burst").await?;
    proxy.hold_watches(Some("resourceclaims"));
    proxy.harm(Some(Harm::LoseReplies { path: "/resourceclaims".to_owned(), every: 3 }));
    for i in 0..COUNT {
        world.pod(&ns, &Pod::new(&format!("pod-{i}")).with_template("gpu", "one").gated()).await?;
    }
    let published = async || {
        let pods = world.client.list(PODS, &ns).await?;
        let named = pods.iter().filter(|p| crate::world::claim_name(p, "gpu").is_some()).count();
        Ok((named == COUNT).then_some(()))
    };
    crate::wait::value("every Pod has its claim's name", published).await?;
    proxy.harm(None);
    proxy.hold_watches(None);
    world.rest(&ns).await?;
    let claims = world.client.list(CLAIMS, &ns).await?.len();
    ensure!(claims == COUNT, "{claims} claims for {COUNT} entries");
    let second: f64 =
        one.metric("dragoman_second_writer", &[]).await? + two.metric("dragoman_second_writer", &[]).await?;
    ensure!(second == 0.0, "they take each other for a built-in controller");
    one.stop().await?;
    two.stop().await?;
    world.stop().await
}

async fn pods_that_go_while_the_watch_is_cut(bench: &Bench) -> anyhow::Result<()> {
    const COUNT: usize = 300;
    let (world, proxy, kubeconfig) = proxied(bench, "cut-watch").await?;
    let dragoman = world.dragoman_as(kubeconfig, "own", &["--without-lease"]).await?;
    let ns = world.namespace("cut").await?;
    for i in 0..COUNT {
        world
            .pod(&ns, &Pod::new(&format!("pod-{i}")).with_template("gpu", "one").on("node-0").held())
            .await?;
    }
    for claim in world.claims(&ns, COUNT).await? {
        let name = claim["metadata"]["name"].as_str().context("name")?;
        let allocation = crate::objects::foreign_allocation("node-0", &[]);
        world.client.merge(CLAIMS, &ns, &format!("{name}/status"), &allocation).await?;
    }
    let running = async || {
        let pods = world.client.list(PODS, &ns).await?;
        Ok(pods.iter().all(|p| p["status"]["phase"] == "Running").then_some(()))
    };
    crate::wait::value("all Pods run, reserved by Dragoman", running).await?;
    world.rest(&ns).await?;
    let asked = dragoman.metric("dragoman_live_gets_total", &[]).await?;
    proxy.harm(Some(Harm::Refuse { paths: vec!["/api/v1/pods"] }));
    proxy.cut_watches();
    for i in 0..COUNT - 1 {
        world.client.delete(PODS, &ns, &format!("pod-{i}"), Some(0)).await?;
    }
    world.rest(&ns).await?;
    proxy.harm(None);
    let held = async || {
        let claims = world.client.list(CLAIMS, &ns).await?;
        Ok((claims.iter().filter(|c| !c["status"]["allocation"].is_null()).count() == 1).then_some(()))
    };
    crate::wait::value("all claims but one are released", held).await?;
    world.rest(&ns).await?;
    let gets = dragoman.metric("dragoman_live_gets_total", &[]).await? - asked;
    println!("        {gets} live reads for {} Pods that went unseen", COUNT - 1);
    ensure!(gets <= 2.0 * f64::from(u32::try_from(COUNT)?), "{gets} live reads");
    world.phase(&ns, &format!("pod-{}", COUNT - 1), "Running").await?;
    dragoman.stop().await?;
    world.stop().await
}

/// Only one instance leads. It hands the lease over at once when it is stopped, and ends when it cannot
/// renew the lease.
async fn the_lease(bench: &Bench) -> anyhow::Result<()> {
    let (world, proxy, kubeconfig) = proxied(bench, "lease").await?;
    let leads = async |d: &crate::dragoman::Dragoman| d.metric("leader_election_master_status", &[]).await;
    let first = world.dragoman("own", &[]).await?;
    crate::wait::value("the first leads", async || Ok((leads(&first).await? == 1.0).then_some(()))).await?;
    let mut second = world.dragoman_as(kubeconfig, "own", &[]).await?;
    ensure!(leads(&second).await? == 0.0, "two leaders");
    let holder = async || {
        let lease =
            world.client.get("/apis/coordination.k8s.io/v1/{}/leases", "kube-system", "dragoman").await?;
        anyhow::Ok(lease.context("Lease")?["spec"]["holderIdentity"].clone())
    };
    let of_the_first = holder().await?;
    let stopped = std::time::Instant::now();
    ensure!(first.stop().await?.success(), "the end was not orderly");
    ensure!(holder().await? != of_the_first, "the lease was not handed over");
    crate::wait::value("the second leads", async || Ok((leads(&second).await? == 1.0).then_some(()))).await?;
    println!("        handed over in {:.1} s", stopped.elapsed().as_secs_f32());
    proxy.harm(Some(Harm::Refuse { paths: vec!["/leases"] }));
    let ns = world.namespace("lease").await?;
    // Pods are created until the end, so that the lease is lost between writes.
    let made = AtomicUsize::new(0);
    let work = async {
        loop {
            let name = format!("pod-{}", made.load(Ordering::Relaxed));
            world.pod(&ns, &Pod::new(&name).with_template("gpu", "one").gated()).await?;
            made.fetch_add(1, Ordering::Relaxed);
        }
    };
    let status = tokio::select! {
        status = second.ended() => status?,
        failed = work => return failed,
    };
    ensure!(!status.success() && second.log().contains("the lease dragoman is lost"), "{}", second.log());
    let lease = world.client.get("/apis/coordination.k8s.io/v1/{}/leases", "kube-system", "dragoman").await?;
    ensure!(lease.is_some_and(|l| l["spec"]["holderIdentity"] != json!("")), "it was not held");
    // The request in flight when the work was dropped may have created one Pod more.
    ensure!(made.load(Ordering::Relaxed) > 10, "too little work to be lost in");
    world.rest(&ns).await?;
    let before = world.client.list(CLAIMS, &ns).await?.len();
    let third = world.dragoman("own", &[]).await?;
    crate::wait::value("the third leads", async || Ok((leads(&third).await? == 1.0).then_some(()))).await?;
    world.pod(&ns, &Pod::new("last").with_template("gpu", "one").gated()).await?;
    world.claim_of(&ns, "last", "gpu").await?;
    let count = world.client.list(PODS, &ns).await?.len();
    world.claims(&ns, count).await?;
    world.rest(&ns).await?;
    world.claims(&ns, count).await?;
    println!("        {before} of {count} claims were there when the lease was lost");
    third.stop().await?;
    world.stop().await
}

/// A leader whose watch of claims lags makes no claim before it has given up waiting for it.
async fn a_new_leader_waits_for_what_the_last_one_wrote(bench: &Bench) -> anyhow::Result<()> {
    let (world, proxy, kubeconfig) = proxied(bench, "new-leader").await?;
    let first = world.dragoman("own", &[]).await?;
    let ns = world.namespace("leader").await?;
    let pod = async |name: &str| world.pod(&ns, &Pod::new(name).with_template("gpu", "one").gated()).await;
    pod("before").await?;
    world.claim_of(&ns, "before", "gpu").await?;
    let second = world.dragoman_as(kubeconfig, "own", &[]).await?;
    proxy.hold_watches(Some("resourceclaims"));
    pod("between").await?;
    world.claim_of(&ns, "between", "gpu").await?;
    ensure!(first.stop().await?.success(), "the end was not orderly");
    pod("after").await?;
    world.claim_of(&ns, "after", "gpu").await?;
    ensure!(second.log().contains("working although not every watch has been renewed"), "it did not wait");
    proxy.hold_watches(None);
    world.rest(&ns).await?;
    world.claims(&ns, 3).await?;
    second.stop().await?;
    world.stop().await
}

/// Gives the operator its right to a Lease in another namespace too.
pub(super) async fn may_lead_in(world: &World, ns: &str) -> anyhow::Result<()> {
    for plural in ["roles", "rolebindings"] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{{}}/{plural}");
        let shipped = world.client.get(&path, "kube-system", "dragoman-lease").await?;
        let mut copy = shipped.context("it is not shipped")?;
        copy["metadata"] = json!({"name": "dragoman-lease", "namespace": ns});
        world.client.create(&path, ns, &copy).await?;
    }
    Ok(())
}

/// Two installations have a Lease each, and both lead: each says so, and every claim is made once.
async fn two_installations_in_two_namespaces_notice_each_other(bench: &Bench) -> anyhow::Result<()> {
    const LEASE: &str = "dragoman";
    let shape = Shape { scheduler: Scheduling::Absent, ..Shape::default() };
    let world = World::start(bench, "elsewhere", shape, 1, 1).await?;
    let ns = world.namespace("elsewhere").await?;
    may_lead_in(&world, &ns).await?;
    let here = world.dragoman("own", &[]).await?;
    let there = world.dragoman("own", &["--namespace", &ns]).await?;
    for (dragoman, own, other) in [(&here, "kube-system", &*ns), (&there, &*ns, "kube-system")] {
        let noticed = async || {
            let count = dragoman.metric("dragoman_leaders_elsewhere", &[]).await?;
            Ok((count == 1.0).then_some(()))
        };
        crate::wait::value("the other leader is noticed", noticed).await?;
        let note = world.event(own, LEASE, "LeaderElsewhere").await?;
        ensure!(note.contains(&format!("is renewed in namespace {other} (")), "{note}");
    }
    let burst = world.namespace("burst").await?;
    for i in 0..40 {
        world.pod(&burst, &Pod::new(&format!("pod-{i}")).with_template("gpu", "one").gated()).await?;
    }
    world.claims(&burst, 40).await?;
    world.rest(&burst).await?;
    world.claims(&burst, 40).await?;
    ensure!(there.stop().await?.success(), "the end was not orderly");
    let alone = async || {
        let count = here.metric("dragoman_leaders_elsewhere", &[]).await?;
        Ok((count == 0.0).then_some(()))
    };
    crate::wait::value("nobody else leads", alone).await?;
    here.stop().await?;
    world.stop().await
}

/// An API server that answers nothing but 429 pauses the whole client, not the refused requests alone: it
/// sends only lists and watches until Retry-After is over, and no work is lost.
async fn a_throttled_client_waits_with_everything(bench: &Bench) -> anyhow::Result<()> {
    // Half of the Pods come in the pause, many more than requests that a slow machine sends before the first answer.
    const COUNT: usize = 160;
    let (world, proxy, kubeconfig) = proxied(bench, "throttled").await?;
    // A process that begins anew, because it has lost its Lease, knows of no pause and has counted nothing.
    let dragoman = world.dragoman_as(kubeconfig, "own", &["--without-lease"]).await?;
    let ns = world.namespace("throttled").await?;
    // Its watches are open: a 429 to one of them is about that watch alone.
    world.pod(&ns, &Pod::new("first").with_template("gpu", "one").gated()).await?;
    world.claim_of(&ns, "first", "gpu").await?;
    proxy.harm(Some(Harm::Throttle { seconds: 8 }));
    let pods = async |numbers: std::ops::Range<usize>| {
        for i in numbers {
            world.pod(&ns, &Pod::new(&format!("pod-{i}")).with_template("gpu", "one").gated()).await?;
        }
        anyhow::Ok(())
    };
    pods(1..COUNT / 2).await?;
    // What was in flight when the 429 came is over.
    let is_paused = async || proxy.throttled_for().is_some_and(|since| since > Duration::from_secs(4));
    crate::wait::until("the pause is under way", is_paused).await?;
    pods(COUNT / 2..COUNT).await?;
    world.claims(&ns, COUNT).await?;
    world.rest(&ns).await?;
    // One request finds out that the API server still takes nothing, and on a busy machine others are on their way
    // before its answer has come. Without a pause each of the Pods that came late would have sent one.
    let is_paused = proxy.impatient().is_some_and(|count| count <= COUNT / 4);
    ensure!(is_paused, "in the pause: {:?}", proxy.impatient());
    let refused = dragoman.metric("rest_client_requests_total", &["code=\"429\""]).await?;
    ensure!((1.0..=80.0).contains(&refused), "{refused} refusals are counted");
    dragoman.stop().await?;
    world.stop().await
}
