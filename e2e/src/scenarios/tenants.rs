//! Acts of a tenant in its namespace harm no other: a tenant may create Pods, claims and claim templates
//! there and nothing else.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::gates::{FLAGS, gated, namespace};
use super::{Scenario, Standalone, scenario, standalone};
use crate::client::{CLAIMS, CLASSES, LEASES, PODS, TEMPLATES};
use crate::control_plane::{Entry, Shape};
use crate::dragoman::Dragoman;
use crate::objects::{self, Pod};
use crate::usage::Usage;
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario!(a_forged_or_copied_claim_stops_nobody),
        scenario!(a_full_quota_is_no_storm),
        scenario!(a_full_quota_of_one_class_starves_no_other),
        scenario!(a_pod_with_many_entries_harms_nobody),
    ]
}

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(large_objects_are_listed_in_little_memory),
        standalone!(long_questions_for_attributes_take_little_memory),
        standalone!(claims_of_no_pod_take_little_memory),
        standalone!(pods_with_many_containers_take_little_memory),
        standalone!(pods_with_many_entries_stop_no_gate),
    ]
}

/// The Pods and templates of the tenant, and the bytes that each carries in an annotation: near the limit
/// of 256 KiB.
const LARGE: (usize, usize) = (400, 100);
const WEIGHT: usize = 250_000;
/// Most KiB by which the peak of a process that lists them may exceed that of one that lists none of them.
/// All of them together have 125 MiB. The difference counts: a binary that is not optimised has 40 MiB of
/// code.
const MORE: u64 = 80 << 10;

/// A process that starts when they are there holds one at a time.
async fn large_objects_are_listed_in_little_memory(bench: &Bench) -> anyhow::Result<()> {
    let world = World::start(bench, "large", Shape::default(), 1, 8).await?;
    let ns = world.namespace("large").await?;
    // The objects alone keep an API server on a busy machine from answering for seconds; a Lease that is lost would end the process.
    let flags = ["--without-lease"];
    let without = peak(world.dragoman("own", &flags).await?).await?;
    let weight = json!({"weight": "x".repeat(WEIGHT)});
    let (pods, templates) = LARGE;
    for number in 0..templates {
        let mut template = objects::template(&format!("large-{number}"));
        template["metadata"]["annotations"] = weight.clone();
        template["spec"]["metadata"] = json!({"annotations": weight});
        world.client.create(TEMPLATES, &ns, &template).await?;
    }
    for number in 0..pods {
        let mut pod =
            Pod::new(&format!("large-{number}")).with_template("gpu", "one").gated().object().clone();
        pod["metadata"]["annotations"] = weight.clone();
        world.client.create(PODS, &ns, &pod).await?;
    }
    let dragoman = world.dragoman("own", &flags).await?;
    world.claims(&ns, pods).await?;
    let with = peak(dragoman).await?;
    println!(
        "        {pods} Pods and {templates} templates of {WEIGHT} bytes: {with} KiB, {without} without"
    );
    ensure!(with <= without + MORE, "a peak of {with} KiB, and {without} KiB without them");
    world.stop().await
}

/// Pods that ask for attributes, and the bytes of each question.
const QUESTIONS: (usize, usize) = (600, 250_000);
/// Most KiB by which the peak of a process may exceed that of one without these Pods, whose questions have 143 MiB. A list
/// passes through in pages.
const OF_QUESTIONS: u64 = 100 << 10;

/// A question is read up to its limit, and no more of it is kept.
async fn long_questions_for_attributes_take_little_memory(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "questions", Shape::default(), 1).await?;
    let ns = namespace(&world, "questions", "enabled").await?;
    let without = peaks(&world).await?;
    let (pods, bytes) = QUESTIONS;
    let line = "a: gpu/r/b\n";
    for number in 0..pods {
        let mut pod =
            Pod::new(&format!("asks-{number}")).with_template("gpu", "one").gated().object().clone();
        pod["metadata"]["annotations"] = json!({"dragoman.dev/attributes": line.repeat(bytes / line.len())});
        world.client.create(PODS, &ns, &pod).await?;
    }
    // The answers to writes about these Pods are large, and as many at once as there are workers: those are written before.
    let first = world.dragoman("own", &OPERATOR).await?;
    world.claims(&ns, pods).await?;
    first.stop().await?;
    let what = format!("{pods} questions of {bytes} bytes");
    are_small((without, peaks(&world).await?), OF_QUESTIONS, &what)?;
    world.stop().await
}

/// Claims without a Pod, and the parameters that each has for its driver: their number, and the bytes of one. An API server stores no
/// more of one claim.
const PARAMETERS: (usize, usize, usize) = (500, 32, 9_900);
/// Most KiB by which the peak of the allocator may exceed that of one without them: kept, they take 188 MiB.
const OF_PARAMETERS: u64 = 80 << 10;

/// The allocator keeps no requests that are unusually long, and allocates for them what they say.
async fn claims_of_no_pod_take_little_memory(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "parameters", Shape::default(), 1).await?;
    let ns = namespace(&world, "parameters", "enabled").await?;
    let flags = ["--without-lease"];
    let without = peak(world.allocator(&flags).await?).await?;
    let (claims, configurations, bytes) = PARAMETERS;
    let parameters = |number: usize| json!({"opaque": {"driver": objects::DRIVER, "parameters": {"number": number, "text": "x".repeat(bytes)}}});
    let mut claim = objects::claim("long");
    claim["metadata"]["labels"] = json!({"dragoman.dev/allocator": "dragoman"});
    claim["spec"]["devices"]["config"] = (0..configurations).map(parameters).collect();
    for number in 0..claims {
        claim["metadata"]["name"] = json!(format!("long-{number}"));
        world.client.create(CLAIMS, &ns, &claim).await?;
    }
    let operator = world.dragoman("own", &OPERATOR).await?;
    let allocator = world.allocator(&flags).await?;
    world.pod(&ns, &Pod::new("asks").with_claim("long", "long-7").held()).await?;
    world.phase(&ns, "asks", "Running").await?;
    let given = world.client.get(CLAIMS, &ns, "long-7").await?.context("claim")?;
    let given = given["status"]["allocation"]["devices"]["config"].as_array().cloned().unwrap_or_default();
    let numbers = given.iter().map(|of| of["opaque"]["parameters"]["number"].as_u64());
    let all: Vec<Option<u64>> = (0..configurations).map(|number| u64::try_from(number).ok()).collect();
    ensure!(numbers.eq(all), "{} configurations were allocated", given.len());
    let with = peak(allocator).await?;
    operator.stop().await?;
    println!(
        "        allocator: {with} KiB, {without} without {claims} claims of {} bytes",
        configurations * bytes
    );
    ensure!(with <= without + OF_PARAMETERS, "a peak of {with} KiB, and {without} KiB without the claims");
    world.stop().await
}

/// Pods and their containers: an API server stores no more of one Pod.
const CONTAINERS: (usize, usize) = (30, 9_000);
/// Most KiB by which the peak of a process may exceed that of one without them. To decode one takes some 30 MiB for a moment, and its
/// containers would take 3 MiB for as long as it is there.
const OF_CONTAINERS: u64 = 70 << 10;

/// Amounts of a Pod are kept in few numbers, however many containers it has.
async fn pods_with_many_containers_take_little_memory(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "containers", Shape::default(), 1).await?;
    let ns = namespace(&world, "containers", "enabled").await?;
    let without = peaks(&world).await?;
    let (pods, containers) = CONTAINERS;
    let container = |number: usize| json!({"name": format!("c{number}"), "image": "x", "resources": {"requests": {"cpu": "1m"}}});
    let mut pod = Pod::new("many").with_claim("device", "nowhere").gated().object().clone();
    pod["spec"]["containers"] = (0..containers).map(container).collect();
    for number in 0..pods {
        pod["metadata"]["name"] = json!(format!("many-{number}"));
        world.client.create(PODS, &ns, &pod).await?;
    }
    let what = format!("{pods} Pods of {containers} containers");
    are_small((without, peaks(&world).await?), OF_CONTAINERS, &what)?;
    world.stop().await
}

/// Pods, their entries, and the claims of those that exist.
const ENTRIES: (usize, usize, usize) = (4, 20_000, 200);

/// A Pod with more entries than are read waits, and says so. Each claim that it names costs others nothing.
async fn pods_with_many_entries_stop_no_gate(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "entries", Shape::default(), 1).await?;
    let ns = namespace(&world, "entries", "enabled").await?;
    let operator = world.dragoman("own", &FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let (pods, entries, claims) = ENTRIES;
    let entry =
        |number: usize| json!({"name": format!("e{number}"), "resourceClaimName": format!("c{number}")});
    let mut pod = Pod::new("many").object().clone();
    pod["spec"]["resourceClaims"] = (0..entries).map(entry).collect();
    for number in 0..pods {
        pod["metadata"]["name"] = json!(format!("many-{number}"));
        world.client.create(PODS, &ns, &pod).await?;
    }
    let others = namespace(&world, "neighbours", "enabled").await?;
    for number in 0..claims {
        world.client.create(CLAIMS, &ns, &objects::claim(&format!("c{number}"))).await?;
        if number % (claims / 4) == 0 {
            let name = format!("neighbour-{number}");
            world.pod(&others, &Pod::new(&name).with_template("device", "one")).await?;
            world.phase(&others, &name, "Succeeded").await?;
        }
    }
    for number in 0..pods {
        wait::value("the Pod says that it has too many entries", async || {
            let pod = world.client.get(PODS, &ns, &format!("many-{number}")).await?.context("Pod")?;
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let told = conditions.iter().any(|of| {
                of["reason"] == "ClaimUnreadable" && of["message"].to_string().contains("20000 entries")
            });
            Ok(told.then_some(()))
        })
        .await?;
    }
    for lease in ["dragoman", "dragoman-allocator"] {
        let lease = world.client.get(LEASES, "kube-system", lease).await?.context("Lease")?;
        let changes = lease["spec"]["leaseTransitions"].as_u64().unwrap_or_default();
        ensure!(changes == 0, "the Lease changed its holder {changes} times");
    }
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// The operator with gates, as the only process of its kind.
const OPERATOR: [&str; 3] = ["--without-lease", FLAGS[0], FLAGS[1]];

/// The peaks of an operator and of an allocator that start now.
async fn peaks(world: &World) -> anyhow::Result<[u64; 2]> {
    let both = (world.dragoman("own", &OPERATOR).await?, world.allocator(&OPERATOR[..1]).await?);
    Ok([peak(both.0).await?, peak(both.1).await?])
}

/// Holds the peaks of both against those `without` the objects of a tenant.
fn are_small((without, with): ([u64; 2], [u64; 2]), more: u64, what: &str) -> anyhow::Result<()> {
    println!("        operator and allocator: {with:?} KiB, {without:?} without {what}");
    let is_small = without.iter().zip(&with).all(|(without, with)| *with <= without + more);
    ensure!(is_small, "peaks of {with:?} KiB, and {without:?} KiB without {what}");
    Ok(())
}

/// The peak of the resident memory of a process that is at work, in KiB. The process is stopped.
async fn peak(dragoman: Dragoman) -> anyhow::Result<u64> {
    let peak = Usage::of(dragoman.pid().context("pid")?)?.peak;
    dragoman.stop().await?;
    Ok(peak)
}

/// A claim as a controller would make it from a template, for a Pod that never was.
fn forged(number: usize) -> Value {
    let mut claim = objects::claim(&format!("pod-gpu-aaa{number:02}"));
    claim["metadata"]["annotations"] = json!({"resource.kubernetes.io/pod-claim-name": "gpu"});
    claim["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": "never-was", "controller": true}]);
    claim
}

fn created(object: &Value) -> anyhow::Result<jiff::Timestamp> {
    Ok(object["metadata"]["creationTimestamp"].as_str().context("creationTimestamp")?.parse()?)
}

/// A claim counts as a second writer's only if it is well younger than the lease: forgeries come until one is.
async fn a_forged_or_copied_claim_stops_nobody(world: &World, dragoman: &Dragoman) -> anyhow::Result<()> {
    let (ns, other) = (world.namespace("forger").await?, world.namespace("forgers-neighbour").await?);
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "one").gated()).await?;
    let mut copy = world.claim_of(&ns, "pod", "gpu").await?;
    let begun = created(&copy)?;
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        copy["metadata"].as_object_mut().context("metadata")?.remove(field);
    }
    copy["metadata"]["name"] = json!("copied");
    copy["status"] = Value::Null;
    let mut number = 0;
    wait::slowly("a forgery is 20 s younger than the lease", async || {
        // The look writes: each forgery is an object of its own.
        number += 1;
        let claim = world.client.create(CLAIMS, &ns, &forged(number)).await;
        let at = claim.ok().and_then(|claim| created(&claim).ok());
        at.is_some_and(|at| at.as_second() >= begun.as_second() + 20)
    })
    .await?;
    world.client.create(CLAIMS, &ns, &copy).await?;
    for namespace in [&ns, &other] {
        world.pod(namespace, &Pod::new("after").with_template("gpu", "one")).await?;
        world.phase(namespace, "after", "Succeeded").await?;
    }
    ensure!(dragoman.readiness().await?.0 == 200, "ready");
    ensure!(dragoman.metric("dragoman_second_writer", &[]).await? == 0.0, "a forgery is no second writer");
    Ok(())
}

async fn a_full_quota_is_no_storm(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    const PODS_IN_ALL: usize = 40;
    const ROOM: usize = 4;
    const FREED: usize = 8;
    let (ns, other) = (world.namespace("full").await?, world.namespace("fulls-neighbour").await?);
    world.quota(&ns, &[("count/resourceclaims.resource.k8s.io", ROOM)]).await?;
    let pod = async |number: usize| {
        let pod = Pod::new(&format!("pod-{number:02}")).with_template("gpu", "one").gated();
        world.pod(&ns, &pod).await.map(drop)
    };
    for number in 0..ROOM {
        pod(number).await?;
    }
    world.claims(&ns, ROOM).await?;
    // Pods that try at the same time do not know that one is refused; those that come later do.
    let began = std::time::Instant::now();
    pod(ROOM).await?;
    world.event(&ns, &format!("pod-{ROOM:02}"), "FailedResourceClaimCreation").await?;
    for number in ROOM + 1..PODS_IN_ALL {
        pod(number).await?;
    }
    let tries = |entries: &[Entry]| {
        let ours = entries.iter().filter(|entry| entry.party() == "dragoman" && entry.verb == "create");
        ours.filter(|entry| entry.object_ref.resource == "resourceclaims").count()
    };
    let made = |entries: &[Entry]| {
        let names =
            entries.iter().filter(|entry| entry.verb == "create" && entry.response_status.code == 201);
        names.filter(|entry| entry.object_ref.resource == "resourceclaims").count()
    };
    let at_first = tries(&world.rest(&ns).await?);
    let mut freed = 0;
    while freed < FREED {
        let claims = world.claims(&ns, ROOM).await?;
        let owner = claims.iter().find_map(|claim| claim["metadata"]["ownerReferences"][0]["name"].as_str());
        world.client.delete(PODS, &ns, owner.context("an owner")?, Some(0)).await?;
        freed += 1;
        let again = async || Ok((made(&world.plane.audit().entries(&ns)) >= ROOM + freed).then_some(()));
        wait::value("the place is taken", again).await?;
    }
    world.pod(&other, &Pod::new("pod").with_template("gpu", "one")).await?;
    world.phase(&other, "pod", "Succeeded").await?;
    let tries = tries(&world.plane.audit().entries(&ns)) - at_first;
    println!("        {at_first} creations tried for {ROOM} places, then {tries} for {FREED} freed ones");
    // One tries again after ten seconds.
    let again = usize::try_from(began.elapsed().as_secs() / 10)?;
    ensure!(
        at_first <= ROOM + 4 + again && tries <= 2 * FREED + again,
        "{at_first} and {tries} creations tried"
    );
    Ok(())
}

/// A quota counts the devices of each DeviceClass. Pods that wait for one class are older than those that wait for another, of which a
/// place comes free.
async fn a_full_quota_of_one_class_starves_no_other(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    const WAITING: usize = 6;
    let ns = world.namespace("classes").await?;
    let mut class = objects::class();
    class["metadata"]["name"] = json!("e2e-other");
    world.client.create(CLASSES, "", &class).await?;
    let mut template = objects::template("other");
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = json!("e2e-other");
    world.client.create(TEMPLATES, &ns, &template).await?;
    let limit = |class: &str| format!("{class}.deviceclass.resource.k8s.io/devices");
    world.quota(&ns, &[(&limit("e2e"), 1), (&limit("e2e-other"), 1)]).await?;
    let pod = async |name: &str, template: &str| {
        let pod = Pod::new(name).with_template("gpu", template).gated();
        world.pod(&ns, &pod).await.map(drop)
    };
    pod("one-first", "one").await?;
    pod("other-first", "other").await?;
    world.claims(&ns, 2).await?;
    let waits = async |name: &str| world.event(&ns, name, "FailedResourceClaimCreation").await.map(drop);
    for number in 0..WAITING {
        pod(&format!("one-{number}"), "one").await?;
    }
    pod("other-second", "other").await?;
    waits("one-0").await?;
    waits("other-second").await?;
    world.client.delete(PODS, &ns, "other-first", Some(0)).await?;
    world.claim_of(&ns, "other-second", "gpu").await?;
    let of_one = async || {
        let claims = world.claims(&ns, 2).await?;
        let owners =
            claims.iter().filter_map(|claim| claim["metadata"]["ownerReferences"][0]["name"].as_str());
        anyhow::Ok(owners.filter(|owner| owner.starts_with("one-")).map(str::to_owned).collect::<Vec<_>>())
    };
    ensure!(of_one().await? == ["one-first"], "the other class has no place");
    world.client.delete(PODS, &ns, "one-first", Some(0)).await?;
    // Of Pods of one second any may be the oldest.
    wait::value("a Pod of the class has the place", async || {
        Ok(of_one().await?.into_iter().find(|owner| owner != "one-first"))
    })
    .await?;
    Ok(())
}

async fn a_pod_with_many_entries_harms_nobody(world: &World, dragoman: &Dragoman) -> anyhow::Result<()> {
    let (ns, other) = (world.namespace("many").await?, world.namespace("manys-neighbour").await?);
    let with = |name: &str, entries: usize| {
        let entries = (0..entries).map(|number| format!("entry-{number}"));
        entries.fold(Pod::new(name).gated(), |pod, entry| pod.with_template(&entry, "one"))
    };
    world.pod(&ns, &with("many", 200)).await?;
    world.pod(&ns, &with("too-many", 3000)).await?;
    world.pod(&other, &Pod::new("pod").with_template("gpu", "one")).await?;
    world.phase(&other, "pod", "Succeeded").await?;
    let named = async || {
        let pod = world.client.get(PODS, &ns, "many").await?.context("the Pod")?;
        let names = pod["status"]["resourceClaimStatuses"].as_array().map_or(0, Vec::len);
        Ok((names == 200).then_some(()))
    };
    wait::value("every entry is named", named).await?;
    let note = world.event(&ns, "too-many", "FailedResourceClaimCreation").await?;
    ensure!(note.contains("3000 entries"), "{note}");
    ensure!(world.claims(&ns, 200).await?.len() == 200, "none for the other");
    ensure!(dragoman.readiness().await?.0 == 200, "ready");
    Ok(())
}
