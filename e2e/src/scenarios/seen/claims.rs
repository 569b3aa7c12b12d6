//! Alerts about claims, nodes and gates: what users and other controllers do to a cluster.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::OnCall;
use super::incident::Seen;
use crate::client::{CLAIMS, PODS, SLICES, TEMPLATES};
use crate::control_plane::Shape;
use crate::objects::{self, Pod};
use crate::scenarios::gates;
use crate::wait;
use crate::world::{Bench, World};

/// Brings about one incident after the other, all in one cluster and side by side.
pub(super) async fn incidents(bench: &Bench) -> anyhow::Result<Seen> {
    let world = gates::gated(bench, "seen-claims", Shape::default(), 2).await?;
    let flags = [&gates::FLAGS[..], &["--metrics-per-node"]].concat();
    let operator = world.dragoman("own", &flags).await?;
    let allocator = world.allocator(&[]).await?;
    let on_call = OnCall::start(&world).await?;
    on_call.prometheus.scrape("operator", operator.admin_port()).await?;
    on_call.prometheus.scrape("allocator", allocator.admin_port()).await?;
    on_call.quiet().await?;
    let admin = super::processes::address(&operator);
    futures::try_join!(
        quota(&world, &on_call),
        missing_template(&world, &on_call),
        leaked(&world, &on_call),
        ghost(&world),
        unknown_consumer(&world, &on_call),
        vanished(&world, &on_call),
        refused(&world, &on_call),
        ledgers(&world, &on_call),
        missing_claim(&world, &on_call),
        no_device(&world, &on_call),
        promised_twice(&world, &on_call),
        pool_of_another(&world, &on_call),
        not_understood(&world, &on_call),
        policy_of_gates(&world, &on_call, &admin),
    )?;
    on_call.quiet().await?;
    let seen = on_call.stop().await?;
    allocator.stop().await?;
    operator.stop().await?;
    // The judge has seen what the incident of the device that is promised twice is about.
    let verdict = world.stop().await;
    anyhow::ensure!(verdict.is_err(), "the device was not promised twice: this tells nothing");
    Ok(seen)
}

async fn quota(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    let ns = world.namespace("quota").await?;
    world.quota(&ns, &[("count/resourceclaims.resource.k8s.io", 0)]).await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "one").gated()).await?;
    on_call
        .ends("DragomanPodsWaitForQuota", &[("NAMESPACE", &ns), ("QUOTA", "claims")], "exceeded quota")
        .await?;
    world.claim_of(&ns, "pod", "gpu").await.map(drop)
}

/// One policy of claim gates is deleted. The gates of the other incidents do not need it.
async fn policy_of_gates(world: &World, on_call: &OnCall<'_>, admin: &str) -> anyhow::Result<()> {
    let bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    world.client.delete(bindings, "", "dragoman-gate-owners", None).await?;
    let names = [("OVERLAY", "config/gated"), ("ADMIN", admin)];
    let missing =
        "1 of 12 policies of claim gates are missing: ValidatingAdmissionPolicyBinding dragoman-gate-owners";
    on_call.ends("DragomanGatingPolicyMissing", &names, missing).await
}

async fn missing_template(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    let ns = world.namespace("template").await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "missing").gated()).await?;
    on_call
        .ends("DragomanPodsWaitForClaims", &[("NAMESPACE", &ns), ("POD", "pod")], "\"missing\" not found")
        .await
}

/// A third party allocates without a finalizer and without a consumer.
async fn leaked(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    let ns = world.namespace("leaked").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("leaked")).await?;
    let allocation = objects::foreign_allocation("node-0", &[]);
    world.client.merge(CLAIMS, &ns, "leaked/status", &allocation).await?;
    on_call.ends("DragomanDevicesLeaked", &[("NAMESPACE", &ns), ("CLAIM", "leaked")], "leaked").await
}

/// A claim is reserved for a Pod that never was: only a live read can tell.
async fn ghost(world: &World) -> anyhow::Result<()> {
    let ns = world.namespace("ghost").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("held")).await?;
    let ghost = json!({"resource": "pods", "name": "ghost", "uid": "never"});
    world.client.merge(CLAIMS, &ns, "held/status", &objects::foreign_allocation("node-0", &[ghost])).await?;
    let is_free = |claim: Option<&Value>| claim.is_some_and(|claim| claim["status"]["reservedFor"].is_null());
    world.claim_until(&ns, "held", "is reserved for no ghost", is_free).await?;
    world.client.delete(CLAIMS, &ns, "held", None).await
}

async fn unknown_consumer(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    let ns = world.namespace("unknown").await?;
    world.client.create(CLAIMS, &ns, &objects::claim("held")).await?;
    let allocation = objects::foreign_allocation("node-0", &[objects::unknown_consumer(1)]);
    world.client.merge(CLAIMS, &ns, "held/status", &allocation).await?;
    on_call
        .ends(
            "DragomanUnknownConsumer",
            &[("NAMESPACE", &ns), ("CLAIM", "held"), ("INDEX", "0"), ("CONSUMER_UID", "uid-1")],
            "jobs.example.com job-1",
        )
        .await?;
    world.client.delete(CLAIMS, &ns, "held", None).await
}

async fn vanished(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    let ns = world.namespace("vanished").await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "one").held()).await?;
    world.phase(&ns, "pod", "Running").await?;
    world.client.delete(PODS, &ns, "pod", Some(0)).await?;
    on_call.ends("DragomanConsumersVanished", &[("NODE", "node-1")], "ConsumerVanished").await
}

async fn overcommitted(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    let ns = world.namespace("overcommitted").await?;
    // A Pod that names its node passes no scheduler.
    let mut pod = Pod::new("large").held().on("node-0").object().clone();
    pod["spec"]["containers"][0]["resources"]["requests"] = json!({"memory": "20Gi"});
    world.client.create(PODS, &ns, &pod).await?;
    // The ledger may still be in the back-off after the refusals of before. In production the alert waits ten minutes.
    wait::value("the ledger says it", async || {
        let state = world.client.get(gates::STATES, "", "node-0").await?.unwrap_or_default();
        let mut conditions = state["status"]["conditions"].as_array().into_iter().flatten();
        let is_said = |of: &Value| of["type"] == "Overcommitted" && of["status"] == "True";
        Ok(conditions.any(is_said).then_some(()))
    })
    .await?;
    let names = [("NAMESPACE", &*ns), ("POD", "large"), ("NODE", "node-0")];
    on_call.ends("DragomanNodesOvercommitted", &names, "memory").await
}

/// A policy of the cluster engineer refuses writes of Dragoman, by each of these bindings.
async fn policy(
    world: &World,
    (group, resource): (&str, &str),
    only: &str,
    bindings: &[&str],
) -> anyhow::Result<()> {
    let api = "/apis/admissionregistration.k8s.io/v1";
    let user = "system:serviceaccount:kube-system:dragoman";
    let ours = format!("request.userInfo.username == {user:?} && ({only})");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": bindings[0]},
        "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [group], "apiVersions": ["*"],
                "operations": ["CREATE", "UPDATE"], "resources": [resource]}]},
            "matchConditions": [{"name": "ours", "expression": ours}],
            "validations": [{"expression": "false", "message": "not here"}],
        },
    });
    world.client.create(&format!("{api}/validatingadmissionpolicies"), "", &policy).await?;
    for name in bindings {
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": bindings[0], "validationActions": ["Deny"]},
        });
        world.client.create(&format!("{api}/validatingadmissionpolicybindings"), "", &binding).await?;
    }
    Ok(())
}

/// Waits until the API server refuses a claim of the operator: it takes a moment until it knows a new policy.
async fn enforced(world: &World, ns: &str) -> anyhow::Result<()> {
    let operator = world.plane.client("operator").await?;
    wait::value("the policy is enforced", async || {
        let tried = operator.create(&format!("{CLAIMS}?dryRun=All"), ns, &objects::claim("tried")).await;
        Ok(tried.is_err_and(|error| error.to_string().contains("not here")).then_some(()))
    })
    .await
}

/// The claims of one namespace are refused. Its Pods wait, and no key fails for long: the namespace is left alone.
async fn refused(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    let ns = world.namespace("refused").await?;
    let only = format!("request.namespace == {ns:?}");
    policy(world, ("resource.k8s.io", "resourceclaims"), &only, &["refused"]).await?;
    enforced(world, &ns).await?;
    for number in 0..20 {
        world.pod(&ns, &Pod::new(&format!("pod-{number}")).with_template("gpu", "one").gated()).await?;
    }
    on_call.ends("DragomanWritesRefused", &[("BINDING", "refused")], "/refused").await?;
    // What was refused as invalid is tried again within ten minutes.
    for number in 0..20 {
        world.client.delete(PODS, &ns, &format!("pod-{number}"), Some(0)).await?;
    }
    Ok(())
}

/// One after the other: what a node lacks is read where ledgers are published.
async fn ledgers(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    unpublished(world, on_call).await?;
    overcommitted(world, on_call).await
}

/// One cause, two alerts: each runbook removes one of the bindings.
async fn unpublished(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    let resource = ("dragoman.dev", "nodeallocatabledraclaimstates/status");
    policy(world, resource, "true", &["unpublished", "failing"]).await?;
    on_call.answer("DragomanLedgerUnpublished", &[("BINDING", "unpublished")], "unpublished").await?;
    on_call.ends("DragomanKeysFailing", &[("BINDING", "failing")], "failing").await?;
    on_call.ended("DragomanLedgerUnpublished").await
}

async fn missing_claim(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    let ns = gates::namespace(world, "missing", "enabled").await?;
    world.pod(&ns, &Pod::new("pod").with_claim("gpu", "missing")).await?;
    on_call
        .ends("DragomanGatesClosed", &[("NAMESPACE", &ns), ("POD", "pod")], "claim missing does not exist")
        .await
}

async fn no_device(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    let ns = gates::namespace(world, "nothing", "enabled").await?;
    let mut template = objects::template("nothing");
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = json!(30);
    world.client.create(TEMPLATES, &ns, &template).await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "nothing")).await?;
    on_call
        .ends("DragomanAllocatorOutOfIdeas", &[("NAMESPACE", &ns), ("POD", "pod")], "wants 30 devices")
        .await
}

/// A node publishes a pool that has the name of another node.
async fn pool_of_another(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    let mut lie = objects::slice("node-1", 1);
    lie["metadata"]["name"] = json!("lie");
    lie["spec"]["nodeName"] = json!("node-0");
    world.client.create(SLICES, "", &lie).await?;
    on_call.ends("DragomanPoolOfAnotherNode", &[("SLICE", "lie")], "which node node-1 has").await
}

/// A driver publishes a capacity that is larger than any integer.
async fn not_understood(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    let mut large = objects::slice("node-1", 1);
    large["metadata"]["name"] = json!("large");
    large["spec"]["driver"] = json!("large.e2e.dragoman.dev");
    large["spec"]["devices"][0]["capacity"] = json!({"memory": {"value": "9".repeat(39)}});
    world.client.create(SLICES, "", &large).await?;
    on_call.ends("DragomanUndecidableObjects", &[("SLICE", "large")], "the number is too large").await
}

/// A second allocator writes an allocation with a device that another claim has, and kube-scheduler binds its Pod.
async fn promised_twice(world: &World, on_call: &OnCall<'_>) -> anyhow::Result<()> {
    let ns = world.namespace("twice").await?;
    world.pod(&ns, &Pod::new("first").with_template("device", "one").held()).await?;
    world.phase(&ns, "first", "Running").await?;
    let allocation = world.claim_of(&ns, "first", "device").await?["status"]["allocation"].clone();
    let device = allocation["devices"]["results"][0]["device"].as_str().context("device")?.to_owned();
    world.client.create(CLAIMS, &ns, &objects::claim("copy")).await?;
    let status = json!({"status": {"allocation": allocation}});
    world.client.merge(CLAIMS, &ns, "copy/status", &status).await?;
    world.pod(&ns, &Pod::new("second").with_claim("device", "copy").held()).await?;
    world.phase(&ns, "second", "Running").await?;
    for pod in ["first", "second"] {
        let note = world.event(&ns, pod, "PromisedTwice").await?;
        ensure!(note.contains(&device) && !note.contains("copy"), "{pod}: {note}");
    }
    let names = [("NAMESPACE", ns.as_str()), ("POD", "second"), ("DEVICE", device.as_str())];
    on_call.ends("DragomanDevicePromisedTwice", &names, "copy").await?;
    world.let_end(&ns, "first").await
}
