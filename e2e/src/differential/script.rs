//! The script of both sides, and the rows of the specification that its chapters visit.

use std::future::Future;
use std::pin::Pin;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::client::{CLAIMS, PODS, TEMPLATES};
use crate::objects::{self, Pod, foreign_allocation, pod_consumer, unknown_consumer};
use crate::world::World;

/// The rows of the specification of claim lifecycles, sections 1.4, 2.7, 3 and 4.
pub(super) const ROWS: &[&str] = &[
    "1.4 claim add",
    "1.4 claim update",
    "1.4 claim delete",
    "1.4 template add",
    "1.4 template delete",
    "1.4 PodGroup add",
    "1.4 PodGroup delete",
    "1.4 pod delete",
    "1.4 needs work: name unresolved",
    "1.4 needs work: by-name claim missing",
    "1.4 needs work: owner check fails",
    "1.4 needs work: allocated, not reserved",
    "2.7 claim deleted by user",
    "2.7 claim owned by somebody else",
    "2.7 terminating, scheduled",
    "2.7 terminating, unscheduled",
    "2.7 Succeeded or Failed",
    "2.7 created but not published",
    "2.7 status wiped",
    "2.7 pod before template",
    "3 append consumer",
    "3 PodGroup as consumer",
    "3 claim missing",
    "3 unallocated stays",
    "3 limit of consumers",
    "4.2 uid seen deleted",
    "4.2 not found live",
    "4.2 uid differs",
    "4.2 pod done",
    "4.2 PodGroup gone",
    "4.2 anything else is kept",
    "4.3 others remain",
    "4.3 nothing remains",
    "4.3 finalizer absent",
    "4.4 terminating and empty",
    "4.5 owner done",
    "4.5 owner alive",
    "4.5 owner gone: garbage collector",
];

/// A deliberate difference.
pub(super) struct Difference {
    /// The chapter.
    pub chapter: &'static str,
    /// The object whose history differs.
    pub object: &'static str,
    /// The section of the specification.
    pub section: &'static str,
    /// Why Dragoman's behaviour is better.
    pub why: &'static str,
}

/// All deliberate differences.
pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        chapter: "claim_deleted",
        object: "claim of pod/gpu #2",
        section: "2.7",
        why: "a deleted claim of a waiting Pod is made again, without waiting for anything",
    },
    Difference { chapter: "claim_deleted", object: "status of Pod pod", section: "2.7", why: "and named" },
    Difference {
        chapter: "full",
        object: "events FailedResourceClaimCreation about Pod pod",
        section: "8.2 D8",
        why: "the 257th consumer is told",
    },
    Difference {
        chapter: "no_finalizer",
        object: "claim",
        section: "4.3",
        why: "an allocation by a third party without the finalizer is released with its last consumer",
    },
    Difference {
        chapter: "prescheduled",
        object: "events ConsumerVanished about ResourceClaim claim",
        section: "8.1 #141471",
        why: "a Pod that was removed while it may have been running is said",
    },
    Difference {
        chapter: "prescheduled_missing",
        object: "claim",
        section: "8.2 D6",
        why: "one missing claim does not hold up the reservation of the others",
    },
];

type Told<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'a>>;

/// A part of the script, in a namespace of its own.
pub(super) struct Chapter {
    pub name: &'static str,
    pub rows: &'static [&'static str],
    /// Whether the chapter needs PodGroups. They are off in the other chapters, because with them the
    /// built-in controller of 1.36.3 panics in one chapter.
    pub pod_groups: bool,
    pub run: for<'a> fn(&'a World, &'a str) -> Told<'a>,
}

macro_rules! chapter {
    ($function:ident: $($row:literal),+ $(,)?) => {
        Chapter { name: stringify!($function), rows: &[$($row),+], pod_groups: false, run: |world, ns| Box::pin($function(world, ns)) }
    };
}

pub(super) fn chapters() -> Vec<Chapter> {
    vec![
        chapter!(a_life: "1.4 claim add", "1.4 claim update", "1.4 needs work: name unresolved", "2.7 Succeeded or Failed",
            "4.2 pod done", "4.3 nothing remains", "4.5 owner done", "4.5 owner alive"),
        chapter!(template_late: "1.4 template add", "2.7 pod before template"),
        chapter!(template_deleted: "1.4 template delete"),
        chapter!(claim_deleted: "1.4 claim delete", "2.7 claim deleted by user"),
        chapter!(status_wiped: "2.7 created but not published", "2.7 status wiped"),
        chapter!(foreign_owner: "1.4 needs work: owner check fails", "2.7 claim owned by somebody else"),
        chapter!(terminating_scheduled: "2.7 terminating, scheduled", "1.4 pod delete", "4.5 owner gone: garbage collector"),
        chapter!(terminating_unscheduled: "2.7 terminating, unscheduled"),
        chapter!(shared: "4.3 others remain"),
        chapter!(prescheduled: "1.4 needs work: allocated, not reserved", "3 append consumer"),
        chapter!(prescheduled_missing: "1.4 needs work: by-name claim missing", "3 claim missing", "3 unallocated stays"),
        chapter!(full: "3 limit of consumers"),
        chapter!(uid_seen_deleted: "4.2 uid seen deleted"),
        chapter!(ghosts: "4.2 not found live", "4.2 uid differs"),
        chapter!(foreign_consumer: "4.2 anything else is kept"),
        chapter!(no_finalizer: "4.3 finalizer absent"),
        chapter!(terminating_claim: "4.4 terminating and empty"),
        Chapter {
            pod_groups: true,
            ..chapter!(group: "1.4 PodGroup add", "1.4 PodGroup delete", "3 PodGroup as consumer", "4.2 PodGroup gone")
        },
    ]
}

async fn fail(world: &World, ns: &str, pod: &str) -> anyhow::Result<()> {
    let failed = json!({"status": {"phase": "Failed"}});
    world.client.merge(PODS, ns, &format!("{pod}/status"), &failed).await?;
    Ok(())
}

async fn allocate(world: &World, ns: &str, claim: &str, consumers: &[Value]) -> anyhow::Result<()> {
    world
        .client
        .merge(CLAIMS, ns, &format!("{claim}/status"), &foreign_allocation("node-1", consumers))
        .await?;
    Ok(())
}

fn protected(name: &str) -> Value {
    let mut claim = objects::claim(name);
    claim["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
    claim
}

fn reserved_for(claim: Option<&Value>, count: usize) -> bool {
    claim.is_some_and(|c| c["status"]["reservedFor"].as_array().map_or(0, Vec::len) == count)
}

async fn a_life(world: &World, ns: &str) -> anyhow::Result<()> {
    let mut template = objects::template("decorated");
    template["spec"]["metadata"] = json!({"labels": {"a": "b"}, "annotations": {"c": "d"}});
    world.client.create(TEMPLATES, ns, &template).await?;
    // A built-in controller whose watch of templates lags behind says that there is none.
    world.rest(ns).await?;
    // The Pod has one entry. With two, the built-in controller makes the claims of the completed Pod again
    // and again, a different number of times in each run.
    world.pod(ns, &Pod::new("pod").with_template("gpu", "decorated").held()).await?;
    world.phase(ns, "pod", "Running").await?;
    world.rest(ns).await?;
    world.let_end(ns, "pod").await?;
    world.claims(ns, 0).await?;
    Ok(())
}

async fn template_late(world: &World, ns: &str) -> anyhow::Result<()> {
    world.pod(ns, &Pod::new("pod").with_template("gpu", "late").gated()).await?;
    world.event(ns, "pod", "FailedResourceClaimCreation").await?;
    world.client.create(TEMPLATES, ns, &objects::template("late")).await?;
    world.claim_of(ns, "pod", "gpu").await?;
    Ok(())
}

async fn template_deleted(world: &World, ns: &str) -> anyhow::Result<()> {
    world.pod(ns, &Pod::new("pod").with_template("gpu", "one").gated()).await?;
    world.claim_of(ns, "pod", "gpu").await?;
    world.client.delete(TEMPLATES, ns, "one", None).await
}

async fn claim_deleted(world: &World, ns: &str) -> anyhow::Result<()> {
    world.pod(ns, &Pod::new("pod").with_template("gpu", "one").gated()).await?;
    let claim = world.claim_of(ns, "pod", "gpu").await?;
    let name = claim["metadata"]["name"].as_str().context("name")?.to_owned();
    world.rest(ns).await?;
    world.client.delete(CLAIMS, ns, &name, None).await?;
    world.claim_until(ns, &name, "is gone", |c| c.is_none()).await?;
    let poke = json!({"metadata": {"labels": {"poked": "yes"}}});
    world.client.merge(PODS, ns, "pod", &poke).await?;
    Ok(())
}

async fn status_wiped(world: &World, ns: &str) -> anyhow::Result<()> {
    world.pod(ns, &Pod::new("pod").with_template("gpu", "one").gated()).await?;
    world.claim_of(ns, "pod", "gpu").await?;
    world.rest(ns).await?;
    world.client.merge(PODS, ns, "pod/status", &json!({"status": {"resourceClaimStatuses": null}})).await?;
    world.claim_of(ns, "pod", "gpu").await?;
    Ok(())
}

async fn foreign_owner(world: &World, ns: &str) -> anyhow::Result<()> {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    let owner = world.client.create("/api/v1/{}/configmaps", ns, &owner).await?;
    let mut stranger = objects::claim("stranger");
    stranger["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": owner["metadata"]["uid"], "controller": true}]);
    world.client.create(CLAIMS, ns, &stranger).await?;
    world.pod(ns, &Pod::new("pod").with_template("gpu", "late").gated()).await?;
    world.event(ns, "pod", "FailedResourceClaimCreation").await?;
    let names =
        json!({"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "stranger"}]}});
    world.client.merge(PODS, ns, "pod/status", &names).await?;
    world.rest(ns).await?;
    Ok(())
}

async fn terminating_scheduled(world: &World, ns: &str) -> anyhow::Result<()> {
    world.pod(ns, &Pod::new("pod").with_template("gpu", "one").held()).await?;
    world.phase(ns, "pod", "Running").await?;
    world.rest(ns).await?;
    let hold = json!({"metadata": {"finalizers": ["e2e.dragoman.dev/hold"]}});
    world.client.merge(PODS, ns, "pod", &hold).await?;
    world.client.delete(PODS, ns, "pod", None).await?;
    // The kubelet has ended the Pod. The object stays until its finalizer is removed.
    world.claims(ns, 0).await?;
    world.client.merge(PODS, ns, "pod", &json!({"metadata": {"finalizers": null}})).await?;
    Ok(())
}

async fn terminating_unscheduled(world: &World, ns: &str) -> anyhow::Result<()> {
    let pod = world.pod(ns, &Pod::new("pod").with_template("gpu", "one").gated()).await?;
    let claim = world.claim_of(ns, "pod", "gpu").await?;
    let name = claim["metadata"]["name"].as_str().context("name")?.to_owned();
    world
        .client
        .merge(
            CLAIMS,
            ns,
            &name,
            &json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}),
        )
        .await?;
    allocate(world, ns, &name, &[pod_consumer(&pod)]).await?;
    let hold = json!({"metadata": {"finalizers": ["e2e.dragoman.dev/hold"]}});
    world.client.merge(PODS, ns, "pod", &hold).await?;
    world.rest(ns).await?;
    world.client.delete(PODS, ns, "pod", None).await?;
    world.claims(ns, 0).await?;
    world.client.merge(PODS, ns, "pod", &json!({"metadata": {"finalizers": null}})).await?;
    Ok(())
}

async fn shared(world: &World, ns: &str) -> anyhow::Result<()> {
    world.client.create(CLAIMS, ns, &protected("claim")).await?;
    let one = world.pod(ns, &Pod::new("one").with_claim("gpu", "claim").gated()).await?;
    let two = world.pod(ns, &Pod::new("two").with_claim("gpu", "claim").gated()).await?;
    allocate(world, ns, "claim", &[pod_consumer(&one), pod_consumer(&two)]).await?;
    fail(world, ns, "one").await?;
    world.claim_until(ns, "claim", "has one consumer", |c| reserved_for(c, 1)).await?;
    world.rest(ns).await?;
    fail(world, ns, "two").await?;
    world.claim_until(ns, "claim", "is free", |c| reserved_for(c, 0)).await?;
    Ok(())
}

async fn prescheduled(world: &World, ns: &str) -> anyhow::Result<()> {
    world.client.create(CLAIMS, ns, &protected("claim")).await?;
    world.pod(ns, &Pod::new("pod").with_claim("gpu", "claim").held().on("node-1")).await?;
    allocate(world, ns, "claim", &[]).await?;
    world.phase(ns, "pod", "Running").await?;
    world.rest(ns).await?;
    world.client.delete(PODS, ns, "pod", None).await?;
    world.claim_until(ns, "claim", "is free", |c| reserved_for(c, 0)).await?;
    Ok(())
}

async fn prescheduled_missing(world: &World, ns: &str) -> anyhow::Result<()> {
    world.client.create(CLAIMS, ns, &objects::claim("unallocated")).await?;
    world.client.create(CLAIMS, ns, &objects::claim("claim")).await?;
    allocate(world, ns, "claim", &[]).await?;
    let pod =
        Pod::new("pod").with_claim("a", "missing").with_claim("b", "claim").with_claim("c", "unallocated");
    world.pod(ns, &pod.held().on("node-1")).await?;
    world.rest(ns).await?;
    Ok(())
}

async fn full(world: &World, ns: &str) -> anyhow::Result<()> {
    world.client.create(CLAIMS, ns, &objects::claim("claim")).await?;
    allocate(world, ns, "claim", &(0..256).map(unknown_consumer).collect::<Vec<_>>()).await?;
    world.pod(ns, &Pod::new("pod").with_claim("gpu", "claim").held().on("node-1")).await?;
    Ok(())
}

async fn uid_seen_deleted(world: &World, ns: &str) -> anyhow::Result<()> {
    world.client.create(CLAIMS, ns, &protected("claim")).await?;
    let pod = world.pod(ns, &Pod::new("pod").with_claim("gpu", "claim").gated()).await?;
    allocate(world, ns, "claim", &[pod_consumer(&pod)]).await?;
    world.rest(ns).await?;
    world.client.delete(PODS, ns, "pod", Some(0)).await?;
    world.claim_until(ns, "claim", "is free", |c| reserved_for(c, 0)).await?;
    Ok(())
}

async fn ghosts(world: &World, ns: &str) -> anyhow::Result<()> {
    world.pod(ns, &Pod::new("namesake").gated()).await?;
    for (claim, pod) in [("never-was", "ghost"), ("other-uid", "namesake")] {
        world.client.create(CLAIMS, ns, &protected(claim)).await?;
        let consumer =
            json!({"resource": "pods", "name": pod, "uid": "00000000-0000-0000-0000-000000000000"});
        allocate(world, ns, claim, &[consumer]).await?;
        world.claim_until(ns, claim, "is free", |c| reserved_for(c, 0)).await?;
    }
    Ok(())
}

async fn foreign_consumer(world: &World, ns: &str) -> anyhow::Result<()> {
    world.client.create(CLAIMS, ns, &protected("claim")).await?;
    let pod = world.pod(ns, &Pod::new("pod").with_claim("gpu", "claim").gated()).await?;
    allocate(world, ns, "claim", &[unknown_consumer(0), pod_consumer(&pod)]).await?;
    fail(world, ns, "pod").await?;
    world.claim_until(ns, "claim", "has one consumer", |c| reserved_for(c, 1)).await?;
    Ok(())
}

async fn no_finalizer(world: &World, ns: &str) -> anyhow::Result<()> {
    world.client.create(CLAIMS, ns, &objects::claim("claim")).await?;
    let pod = world.pod(ns, &Pod::new("pod").with_claim("gpu", "claim").gated()).await?;
    allocate(world, ns, "claim", &[pod_consumer(&pod)]).await?;
    fail(world, ns, "pod").await?;
    world.claim_until(ns, "claim", "is free", |c| reserved_for(c, 0)).await?;
    Ok(())
}

async fn terminating_claim(world: &World, ns: &str) -> anyhow::Result<()> {
    for claim in ["unallocated", "allocated"] {
        world.client.create(CLAIMS, ns, &protected(claim)).await?;
    }
    allocate(world, ns, "allocated", &[]).await?;
    world.rest(ns).await?;
    for claim in ["unallocated", "allocated"] {
        world.client.delete(CLAIMS, ns, claim, None).await?;
    }
    world.claims(ns, 0).await?;
    Ok(())
}

async fn group(world: &World, ns: &str) -> anyhow::Result<()> {
    world
        .client
        .create(
            &world.release.pod_groups_path(),
            ns,
            &objects::pod_group(world.release, "group", "shared", "one"),
        )
        .await?;
    world.pod(ns, &Pod::new("pod").with_template("shared", "one").in_group("group").held()).await?;
    world.phase(ns, "pod", "Running").await?;
    world.let_end(ns, "pod").await?;
    world.rest(ns).await?;
    world.client.delete(PODS, ns, "pod", Some(0)).await?;
    world.client.delete(&world.release.pod_groups_path(), ns, "group", None).await?;
    world.claims(ns, 0).await?;
    Ok(())
}
