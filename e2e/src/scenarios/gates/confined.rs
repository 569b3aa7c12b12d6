//! What the shipped policies refuse: to the tokens of the operator and of the allocator, to tenants, and to owners of
//! other gates.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{GATE, gated, gates_of, gating, namespace, promise};
use crate::client::{CLAIMS, PODS};
use crate::control_plane::Shape;
use crate::installed;
use crate::objects::{self, Pod};
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(stolen_tokens_and_other_hands_are_confined),
        standalone!(a_gate_is_opened_and_closed_by_its_owner_alone),
    ]
}

/// Waits until a patch of a user is refused in these words. Until the API server knows the policy the patch is taken, and
/// until it knows the rights it is refused for the want of these.
async fn is_refused(
    world: &World,
    user: &str,
    (collection, ns, name): (&str, &str, &str),
    patch: &Value,
    words: &str,
) -> anyhow::Result<()> {
    let client = world.plane.client(user).await?;
    wait::value(&format!("{user} may not {patch}: {words}"), async || {
        let path = format!("{name}?dryRun=All");
        let outcome = client.json_patch(collection, ns, &path, patch).await;
        Ok(outcome.err().filter(|error| format!("{error:#}").contains(words)).map(drop))
    })
    .await
}

/// The tokens of the operator and of the allocator are of no use for anything else, and where gating is
/// enforced a tenant cannot take the gate off.
async fn stolen_tokens_and_other_hands_are_confined(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "gated-confined", Shape::default(), 1).await?;
    let ns = namespace(&world, "confined", "enforced").await?;
    let pod = Pod::new("pod").with_claim("device", "claim").gated();
    world.pod(&ns, &pod).await?;
    let mut claim = objects::claim("claim");
    claim["metadata"]["finalizers"] = json!(["example.com/keep"]);
    world.client.create(CLAIMS, &ns, &claim).await?;
    let pod = (PODS, &*ns, "pod");
    let claim = (CLAIMS, &*ns, "claim");
    let status = (CLAIMS, &*ns, "claim/status");
    let annotated = |key: &str| json!([{"op": "add", "path": "/metadata/annotations", "value": {key: "b"}}]);
    let of_operator: [((&str, &str, &str), Value, &str); 8] = [
        (pod, json!([{"op": "remove", "path": "/spec/schedulingGates/0"}]), "its own gate and no other"),
        (
            pod,
            json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]),
            "nothing else of the spec",
        ),
        (pod, json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]), "no labels"),
        (pod, annotated("a"), "attributes.dragoman.dev/*"),
        (pod, annotated("dragoman.dev/released"), "in which it opens the gate"),
        (
            claim,
            json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]),
            "changes no other label",
        ),
        (claim, json!([{"op": "remove", "path": "/metadata/finalizers"}]), "and no other"),
        (
            status,
            json!([{"op": "add", "path": "/status", "value": promise("dev-0", "node-0", &[])["status"]}]),
            "makes none",
        ),
    ];
    for (object, patch, why) in &of_operator {
        is_refused(&world, "operator", *object, patch, why).await?;
    }
    let label = json!({"metadata": {"labels": {"dragoman.dev/allocator": "another"}}});
    world.client.merge(CLAIMS, &ns, "claim", &label).await?;
    let allocation =
        json!([{"op": "add", "path": "/status", "value": promise("dev-0", "node-0", &[])["status"]}]);
    let of_allocator: [((&str, &str, &str), Value, &str); 3] = [
        (status, allocation, "names another allocator"),
        (
            claim,
            json!([{"op": "replace", "path": "/metadata/labels/dragoman.dev~1allocator", "value": "dragoman"}]),
            "changes no label",
        ),
        (pod, json!([{"op": "remove", "path": "/spec/schedulingGates/0"}]), "cannot patch resource"),
    ];
    for (object, patch, why) in &of_allocator {
        is_refused(&world, "allocator", *object, patch, why).await?;
    }
    tenant_keeps_the_gate(&world, &ns).await?;
    world.stop().await
}

/// A user who may update Pods, and nothing else, cannot take the gate off.
async fn tenant_keeps_the_gate(world: &World, ns: &str) -> anyhow::Result<()> {
    let kubectl = async |arguments: &[&str]| -> anyhow::Result<Result<String, String>> {
        world.plane.kubectl(arguments, "").await
    };
    let role = ["create", "clusterrole", "tenant", "--verb=get,patch,update", "--resource=pods"];
    kubectl(&role).await?.map_err(anyhow::Error::msg)?;
    let binding = ["create", "clusterrolebinding", "tenant", "--clusterrole=tenant", "--user=tenant"];
    kubectl(&binding).await?.map_err(anyhow::Error::msg)?;
    let pod = world.client.get(PODS, ns, "pod").await?.context("Pod")?;
    let at = gates_of(&pod).iter().position(|gate| *gate == GATE).context("the gate is there")?;
    let patch = json!([{"op": "remove", "path": format!("/spec/schedulingGates/{at}")}]).to_string();
    let open =
        ["patch", "pod", "pod", "-n", ns, "--as=tenant", "--type=json", "--dry-run=server", "-p", &patch];
    let words = "taken off by Dragoman once the claims of the Pod are ready";
    wait::value("the tenant is refused", async || {
        Ok(kubectl(&open).await?.err().filter(|said| said.contains(words)).map(drop))
    })
    .await?;
    // Everything else about the Pod is the tenant's.
    let label = ["label", "pod", "pod", "-n", ns, "--as=tenant", "a=b"];
    kubectl(&label).await?.map_err(anyhow::Error::msg)?;
    Ok(())
}

const GATES: &str = "/apis/dragoman.dev/v1alpha1/claimgates";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A merge patch of the annotations of a claim.
fn annotation(key: &str, value: Option<&str>) -> String {
    json!({"metadata": {"annotations": {key: value}}}).to_string()
}

/// Patches a claim as a user; returns why that is refused.
async fn patches(
    world: &World,
    whose: (&str, &str, Option<&str>),
    patch: &str,
) -> anyhow::Result<Option<String>> {
    tries(world, whose, patch, &[]).await
}

/// As [`patches`], with further flags.
async fn tries(
    world: &World,
    (ns, user, subresource): (&str, &str, Option<&str>),
    patch: &str,
    flags: &[&str],
) -> anyhow::Result<Option<String>> {
    let user = format!("--as={user}");
    let mut arguments =
        vec!["patch", "resourceclaim", "claim", "-n", ns, "--type=merge", "-p", patch, user.as_str()];
    arguments.extend(flags);
    let subresource = subresource.map(|name| format!("--subresource={name}"));
    arguments.extend(subresource.as_deref());
    Ok(world.plane.kubectl(&arguments, "").await?.err())
}

const KEY: &str = "release-gates.dragoman.dev/quota";
const OWNER: &str = "system:serviceaccount:quota:owner";
const OTHER: &str = "system:serviceaccount:fabric:owner";

/// Users who may update claims, a ClaimGate for each of two owners, and in each namespace a claim that was born with the
/// gate quota.
async fn owned_gates(world: &World, namespaces: [&str; 2]) -> anyhow::Result<()> {
    let role = "--resource=resourceclaims,resourceclaims/status";
    let commands: [&[&str]; 2] = [
        &["create", "clusterrole", "users", "--verb=get,patch,update", role],
        &[
            "create",
            "clusterrolebinding",
            "users",
            "--clusterrole=users",
            "--user=tenant",
            "--serviceaccount=quota:owner",
            "--serviceaccount=fabric:owner",
        ],
    ];
    for command in commands {
        world.plane.kubectl(command, "").await?.map_err(anyhow::Error::msg)?;
    }
    for user in ["tenant", OWNER, OTHER] {
        let patch = json!({"verb": "patch", "group": "resource.k8s.io", "resource": "resourceclaims"});
        installed::may(&world.client, user, &patch).await?;
    }
    for name in ["quota", "fabric"] {
        let gate = json!({"apiVersion": "dragoman.dev/v1alpha1", "kind": "ClaimGate", "metadata": {"name": name},
            "spec": {"owners": [{"namespace": name, "name": "owner"}]}});
        world.client.create(GATES, "", &gate).await?;
    }
    let mut claim = objects::claim("claim");
    claim["metadata"]["annotations"] = json!({KEY: "born with it"});
    for ns in namespaces {
        world.client.create(CLAIMS, ns, &claim).await?;
    }
    Ok(())
}

/// A user who is no owner of the gate quota can do nothing about it.
async fn keeps_out(world: &World, ns: &str, user: &str) -> anyhow::Result<()> {
    // The API server learns of a ClaimGate later than it stores it. A patch with effect would take away what is asked
    // for.
    let words = "the gate quota is added and removed by the owners that ClaimGate quota names";
    wait::value(&format!("{user} is refused"), async || {
        let said = tries(world, (ns, user, None), &annotation(KEY, None), &["--dry-run=server"]).await?;
        Ok(said.filter(|said| said.contains(words)).map(drop))
    })
    .await?;
    for patch in [
        annotation(KEY, Some("other words")),
        annotation("allocation-gates.dragoman.dev/quota", Some("stop")),
    ] {
        let said = patches(world, (ns, user, None), &patch).await?;
        ensure!(said.is_some_and(|said| said.contains("gate quota")), "{user}: {patch}");
    }
    // The API server keeps the annotations in an update of the status, so the policy needs no rule for it.
    let said = patches(world, (ns, user, Some("status")), &annotation(KEY, None)).await?;
    ensure!(said.is_none(), "{said:?}");
    let claim = world.client.get(CLAIMS, ns, "claim").await?.context("claim")?;
    ensure!(claim["metadata"]["annotations"] == json!({KEY: "born with it"}), "{claim}");
    Ok(())
}

/// A tenant and an owner of another gate may update claims, and still neither opens nor closes the gate of
/// an owner that a ClaimGate names. A gate without a ClaimGate, other annotations, and namespaces that do not
/// enforce are left alone, also once the kind is gone.
async fn a_gate_is_opened_and_closed_by_its_owner_alone(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "gate-owners", Shape::default(), 1).await?;
    let enforced = namespace(&world, "owners", "enforced").await?;
    let enabled = namespace(&world, "good-will", "enabled").await?;
    owned_gates(&world, [&enforced, &enabled]).await?;
    for user in ["tenant", OTHER] {
        keeps_out(&world, &enforced, user).await?;
    }
    // What is no gate of an owner is the tenant's, and good will is good will.
    for (ns, user, patch) in [
        (&enforced, "tenant", annotation("release-gates.dragoman.dev/unlisted", Some("stop"))),
        (&enforced, "tenant", annotation("example.com/note", Some("mine"))),
        (&enabled, "tenant", annotation(KEY, None)),
        (&enforced, OTHER, annotation("release-gates.dragoman.dev/fabric", Some("stop"))),
        (&enforced, OWNER, annotation(KEY, None)),
        (&enforced, OWNER, annotation("allocation-gates.dragoman.dev/quota", Some("stop"))),
    ] {
        let said = patches(&world, (ns, user, None), &patch).await?;
        ensure!(said.is_none(), "{user}: {patch}: {said:?}");
    }
    // An administrator is locked out of nothing.
    let open = json!({"metadata": {"annotations": {"allocation-gates.dragoman.dev/quota": null}}});
    world.client.merge(CLAIMS, &enforced, "claim", &open).await?;
    world.client.delete(DEFINITIONS, "", "claimgates.dragoman.dev", None).await?;
    wait::value("the kind is gone", async || {
        let gone = world.client.get(DEFINITIONS, "", "claimgates.dragoman.dev").await?.is_none();
        Ok(gone.then_some(()))
    })
    .await?;
    for patch in [annotation("example.com/note", Some("still mine")), annotation("example.com/note", None)] {
        let said = patches(&world, (&enforced, "tenant", None), &patch).await?;
        ensure!(said.is_none(), "the kind is gone, and claims cannot be updated: {said:?}");
    }
    // An API server that never knew the kind would refuse every update of a claim.
    gating(&world, "off").await?;
    let why = gating(&world, "on").await.err().context("the policies are installed without the kind")?;
    ensure!(format!("{why:#}").contains("the kind ClaimGate is not served"), "{why:#}");
    world.stop().await
}
