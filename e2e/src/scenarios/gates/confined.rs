//! The shipped policies refuse changes of a gate by the owners of other gates.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{gated, gating, namespace};
use crate::client::CLAIMS;
use crate::control_plane::Shape;
use crate::installed;
use crate::objects;
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(a_gate_is_opened_and_closed_by_its_owner_alone)]
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
