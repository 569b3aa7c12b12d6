//! Requests that a stolen token can make, and that other users can make where gating is enforced: the shipped
//! policies and roles refuse the rest.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{GATE, gated, gates_of, namespace, promise};
use crate::client::{CLAIMS, PODS};
use crate::control_plane::Shape;
use crate::objects::{self, DRIVER, Pod, pod_consumer};
use crate::scenarios::{Standalone, standalone};
use crate::world::{Bench, World};
use crate::{installed, manifest, wait};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(stolen_tokens_and_other_hands_are_confined)]
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// An object by collection, namespace, and name with a subresource.
type Object<'a> = (&'a str, &'a str, &'a str);

/// Waits until a patch of a user is refused in these words. Until the API server knows the policy the patch is taken, and
/// until it knows the rights it is refused for the want of these.
async fn is_refused(
    world: &World,
    user: &str,
    (collection, ns, name): Object<'_>,
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

/// Tries patches without effect that must be refused.
async fn are_refused(world: &World, user: &str, patches: &[(Object<'_>, Value, &str)]) -> anyhow::Result<()> {
    for (object, patch, words) in patches {
        is_refused(world, user, *object, patch, words).await?;
    }
    Ok(())
}

/// A JSON patch that adds one thing.
fn add(path: &str, value: &Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

/// An owner that does not exist: the garbage collector deletes what has it.
fn no_such_owner() -> Value {
    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}])
}

/// The tokens of Dragoman are of no use for anything else, and where gating is enforced a tenant cannot take the gate off.
async fn stolen_tokens_and_other_hands_are_confined(bench: &Bench) -> anyhow::Result<()> {
    let world = gated(bench, "gated-confined", Shape::default(), 1).await?;
    let ns = namespace(&world, "confined", "enforced").await?;
    world.pod(&ns, &Pod::new("pod").with_claim("device", "claim").gated()).await?;
    let mut claim = objects::claim("claim");
    claim["metadata"]["finalizers"] = json!(["example.com/keep"]);
    world.client.create(CLAIMS, &ns, &claim).await?;
    pods_are_confined(&world, &ns).await?;
    claims_are_confined(&world, &ns).await?;
    allocations_are_confined(&world, &ns).await?;
    holders_are_confined(&world).await?;
    the_account_that_leaves_changes_no_deployment(&world).await?;
    tenant_keeps_the_gate(&world, &ns).await?;
    world.stop().await
}

/// Pods, with and without their status.
async fn pods_are_confined(world: &World, ns: &str) -> anyhow::Result<()> {
    let (pod, status) = ((PODS, ns, "pod"), (PODS, ns, "pod/status"));
    let annotated = |key: &str| add("/metadata/annotations", &json!({key: "b"}));
    let labelled = add("/metadata/labels", &json!({"k8s-app": "kube-dns"}));
    let ready = json!({"type": "Ready", "status": "True"});
    let waiting = json!([{"name": "device", "resourceClaimName": "another"}]);
    are_refused(
        world,
        "operator",
        &[
            (pod, json!([{"op": "remove", "path": "/spec/schedulingGates/0"}]), "its own gate and no other"),
            (
                pod,
                json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]),
                "nothing else of the spec",
            ),
            (pod, labelled.clone(), "no labels"),
            (pod, annotated("a"), "attributes.dragoman.dev/*"),
            (pod, annotated("dragoman.dev/released"), "in which it opens the gate"),
            (status, labelled, "no metadata of a Pod"),
            (status, annotated("attributes.dragoman.dev/device"), "no metadata of a Pod"),
            (status, add("/metadata/finalizers", &json!(["example.com/keep"])), "no metadata of a Pod"),
            (status, add("/status/phase", &json!("Failed")), "nothing else of its status"),
            (status, add("/status/podIPs", &json!([{"ip": "6.6.6.6"}])), "nothing else of its status"),
            (status, add("/status/conditions/-", &ready), "conditions of its own"),
            (status, add("/status/message", &json!("the node is down")), "what its condition says"),
        ],
    )
    .await?;
    // What it is for, it may do.
    let operator = world.plane.client("operator").await?;
    let condition = json!({"type": "dragoman.dev/ClaimsReady", "status": "False", "message": "waits"});
    let said = json!([
        {"op": "add", "path": "/status/conditions/-", "value": condition},
        {"op": "add", "path": "/status/message", "value": "waits"},
    ]);
    for patch in [&said, &add("/status/resourceClaimStatuses", &waiting)] {
        operator.json_patch(PODS, ns, "pod/status?dryRun=All", patch).await?;
    }
    kubelets_keep_their_words(world, ns).await?;
    is_refused(
        world,
        "allocator",
        pod,
        &json!([{"op": "remove", "path": "/spec/schedulingGates/0"}]),
        "cannot patch resource",
    )
    .await
}

/// The message of a Pod that a kubelet has refused stays, whatever the condition of the Pod says.
async fn kubelets_keep_their_words(world: &World, ns: &str) -> anyhow::Result<()> {
    world.client.create(PODS, ns, Pod::new("refused").on("node-0").held().object()).await?;
    // Once it runs, nothing else writes its conditions.
    let pod = world.phase(ns, "refused", "Running").await?;
    let conditions = |message: &str| {
        let ours = json!({"type": "dragoman.dev/ClaimsReady", "status": "False", "message": message});
        let others = pod["status"]["conditions"].as_array().into_iter().flatten().cloned();
        others.chain([ours]).collect::<Value>()
    };
    let refused = json!({"status": {"message": "Pod was rejected", "conditions": conditions("waits")}});
    world.client.merge(PODS, ns, "refused/status", &refused).await?;
    let other = json!([
        {"op": "add", "path": "/status/conditions", "value": conditions("other")},
        {"op": "add", "path": "/status/message", "value": "other"},
    ]);
    let nothing = json!([{"op": "remove", "path": "/status/message"}]);
    let status = (PODS, ns, "refused/status");
    let words = "changes no other message";
    are_refused(world, "operator", &[(status, other.clone(), words), (status, nothing.clone(), words)])
        .await?;
    let repeated = add("/status/conditions", &conditions("Pod was rejected"));
    is_refused(world, "operator", status, &repeated, "does not repeat the message").await?;
    let ours = json!({"status": {"message": "waits"}});
    world.client.merge(PODS, ns, "refused/status", &ours).await?;
    is_refused(world, "operator", status, &other, words).await?;
    world.plane.client("operator").await?.json_patch(PODS, ns, "refused/status?dryRun=All", &nothing).await?;
    Ok(())
}

/// Claims, without their status.
async fn claims_are_confined(world: &World, ns: &str) -> anyhow::Result<()> {
    let claim = (CLAIMS, ns, "claim");
    are_refused(
        world,
        "operator",
        &[
            (claim, add("/metadata/labels", &json!({"a": "b"})), "changes no other label"),
            (claim, json!([{"op": "remove", "path": "/metadata/finalizers"}]), "and no other"),
            (claim, add("/metadata/ownerReferences", &no_such_owner()), "changes no owners"),
        ],
    )
    .await?;
    let another = json!({"metadata": {"labels": {"dragoman.dev/allocator": "another"}}});
    world.client.merge(CLAIMS, ns, "claim", &another).await?;
    let promised = add("/status", &promise("dev-0", "node-0", &[])["status"]);
    are_refused(world, "allocator", &[
        ((CLAIMS, ns, "claim/status"), promised, "names another allocator"),
        (
            claim,
            json!([{"op": "replace", "path": "/metadata/labels/dragoman.dev~1allocator", "value": "dragoman"}]),
            "changes no label",
        ),
    ])
    .await?;
    let ours = json!({"metadata": {"labels": {"dragoman.dev/allocator": "dragoman"}}});
    world.client.merge(CLAIMS, ns, "claim", &ours).await?;
    is_refused(
        world,
        "allocator",
        claim,
        &add("/metadata/ownerReferences", &no_such_owner()),
        "changes no owners",
    )
    .await
}

/// Allocations and consumers of a claim that is the allocator's.
async fn allocations_are_confined(world: &World, ns: &str) -> anyhow::Result<()> {
    let status = (CLAIMS, ns, "claim/status");
    let promised = |consumers: &[Value]| promise("dev-0", "node-0", consumers);
    is_refused(world, "operator", status, &add("/status", &promised(&[])["status"]), "makes none").await?;
    let pod = world.client.get(PODS, ns, "pod").await?.context("Pod")?;
    world.pod(ns, &Pod::new("other").with_claim("device", "claim").gated()).await?;
    let other = world.client.get(PODS, ns, "other").await?.context("Pod")?;
    world
        .client
        .merge(CLAIMS, ns, "claim/status", &promised(&[pod_consumer(&pod), pod_consumer(&other)]))
        .await?;
    let nothing = json!([
        {"op": "remove", "path": "/status/reservedFor"}, {"op": "remove", "path": "/status/allocation"},
    ]);
    let all = json!([{"op": "remove", "path": "/status/reservedFor"}]);
    let ready = json!({"type": "Ready", "status": "True", "reason": "Lies", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let device = json!({"driver": DRIVER, "pool": "node-0", "device": "dev-0", "conditions": [ready]});
    let health = add("/status/devices", &json!([device]));
    // Kubernetes 1.36 and newer want a right for it, which an administrator may give by a wildcard; before that nothing is wanted.
    for account in ["operator", "allocator"] {
        is_refused(world, account, status, &health, "changing status.devices requires").await?;
    }
    speak_for_drivers(world).await?;
    for account in ["operator", "allocator"] {
        is_refused(world, account, status, &health, "says nothing of the devices").await?;
    }
    are_refused(
        world,
        "allocator",
        &[(status, all, "one Pod at a time"), (status, nothing, "one Pod at a time")],
    )
    .await?;
    let allocator = world.plane.client("allocator").await?;
    let one = json!([{"op": "remove", "path": "/status/reservedFor/0"}]);
    allocator.json_patch(CLAIMS, ns, "claim/status?dryRun=All", &one).await?;
    Ok(())
}

/// Gives operator and allocator the right to write the status of devices.
async fn speak_for_drivers(world: &World) -> anyhow::Result<()> {
    let rule =
        json!({"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"], "verbs": ["*"]});
    let metadata = json!({"name": "speaks-for-drivers"});
    let role = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": metadata, "rules": [rule]});
    world.client.create(&format!("/apis/{RBAC}/clusterroles"), "", &role).await?;
    let account = |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": "kube-system"});
    let binding = json!({"apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "speaks-for-drivers"},
        "subjects": [account("dragoman"), account("dragoman-allocator")]});
    world.client.create(&format!("/apis/{RBAC}/clusterrolebindings"), "", &binding).await?;
    Ok(())
}

/// A holder as the operator makes it.
fn holder() -> Value {
    let this = json!({"key": "metadata.name", "operator": "In", "values": ["node-0"]});
    let only = json!({"nodeSelectorTerms": [{"matchFields": [this]}]});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "holder-tried", "labels": {"app.kubernetes.io/name": "dragoman",
            "app.kubernetes.io/component": "holder", "app.kubernetes.io/managed-by": "dragoman"}},
        "spec": {
            "schedulingGates": [{"name": "dragoman.dev/holder"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": only}},
            "priorityClassName": "dragoman-holder",
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "none"}], "enableServiceLinks": false, "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65_535, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "hold", "image": "holder.invalid/never-runs", "imagePullPolicy": "Never",
                "resources": {"requests": {"cpu": "3"}},
                "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]}},
            }],
        },
    })
}

/// Changes that make a holder a Pod which the operator may not create: a JSON pointer, and the value there.
fn changes() -> Vec<(String, Value)> {
    let container = |key: &str| format!("/spec/containers/0/{key}");
    let security = |key: &str| format!("/spec/securityContext/{key}");
    vec![
        ("/metadata/labels/k8s-app".to_owned(), json!("kube-dns")),
        ("/metadata/labels/app.kubernetes.io~1component".to_owned(), json!("other")),
        ("/metadata/name".to_owned(), json!("other")),
        ("/spec/priorityClassName".to_owned(), json!("system-node-critical")),
        ("/spec/schedulingGates/0/name".to_owned(), json!("dragoman.dev/claims")),
        ("/spec/schedulingGates/1".to_owned(), json!({"name": "dragoman.dev/claims"})),
        ("/spec/imagePullSecrets".to_owned(), json!([{"name": "secret"}])),
        ("/spec/hostAliases".to_owned(), json!([{"ip": "6.6.6.6", "hostnames": ["kubernetes.default"]}])),
        ("/spec/hostNetwork".to_owned(), json!(true)),
        ("/spec/serviceAccountName".to_owned(), json!("dragoman")),
        ("/spec/automountServiceAccountToken".to_owned(), json!(true)),
        ("/spec/volumes".to_owned(), json!([{"name": "root", "hostPath": {"path": "/"}}])),
        ("/spec/affinity/podAffinity".to_owned(), json!({})),
        ("/spec/affinity".to_owned(), json!({})),
        (security("sysctls"), json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "53"}])),
        (security("supplementalGroups"), json!([0])),
        (security("fsGroup"), json!(0)),
        (security("runAsGroup"), json!(0)),
        (security("seccompProfile"), json!({"type": "Unconfined"})),
        (security("seLinuxOptions"), json!({"type": "spc_t"})),
        (container("image"), json!("evil")),
        (container("imagePullPolicy"), json!("Always")),
        (container("command"), json!(["sh"])),
        (container("livenessProbe"), json!({"exec": {"command": ["sh"]}})),
        (container("securityContext/runAsUser"), json!(0)),
        (container("stdin"), json!(true)),
        (container("tty"), json!(true)),
        (container("workingDir"), json!("/")),
        (container("ports"), json!([{"containerPort": 53}])),
        (container("securityContext/privileged"), json!(false)),
        (container("securityContext/capabilities/add"), json!(["SYS_ADMIN"])),
        ("/spec/resourceClaims".to_owned(), json!([{"name": "device", "resourceClaimName": "claim"}])),
        ("/spec/containers/1".to_owned(), json!({"name": "second", "image": "evil"})),
    ]
}

/// The right to create Pods in kube-system is one to create holders, and nothing beside them.
async fn holders_are_confined(world: &World) -> anyhow::Result<()> {
    let operator = world.plane.client("operator").await?;
    let dry = format!("{PODS}?dryRun=All");
    wait::value("a holder is accepted", async || {
        Ok(operator.create(&dry, "kube-system", &holder()).await.ok())
    })
    .await?;
    let mut wrong = Vec::new();
    for (path, value) in changes() {
        let mut other = holder();
        let (parent, key) = path.rsplit_once('/').context("path")?;
        let key = key.replace("~1", "/");
        match other.pointer_mut(parent).with_context(|| path.clone())? {
            Value::Array(items) => items.push(value.clone()),
            parent => parent[&*key] = value.clone(),
        }
        let said = operator.create(&dry, "kube-system", &other).await.err();
        let said = said.map_or_else(|| "it is accepted".to_owned(), |said| said.to_string());
        if !said.contains("ValidatingAdmissionPolicy 'dragoman-operator-holders'") {
            wrong.push(format!("{path} {value}: {said}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// A user who may update Pods, and nothing else, cannot take the gate off.
async fn tenant_keeps_the_gate(world: &World, ns: &str) -> anyhow::Result<()> {
    let kubectl = async |arguments: &[&str]| -> anyhow::Result<Result<String, String>> {
        world.plane.kubectl(arguments, "").await
    };
    let role = ["create", "clusterrole", "tenant", "--verb=get,create,patch,update", "--resource=pods"];
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
    let placed = Pod::new("placed").with_claim("device", "claim").on("node-0").object().to_string();
    let create = ["create", "-n", ns, "--as=tenant", "--dry-run=server", "-f", "-"];
    let words = "names no node where gating is enforced";
    wait::value("the tenant gets past no gate by a node", async || {
        Ok(world.plane.kubectl(&create, &placed).await?.err().filter(|said| said.contains(words)).map(drop))
    })
    .await?;
    // Everything else about the Pod is the tenant's.
    let label = ["label", "pod", "pod", "-n", ns, "--as=tenant", "a=b"];
    kubectl(&label).await?.map_err(anyhow::Error::msg)?;
    Ok(())
}

/// The account of the Job that leaves scales our Deployments down. With the right to change one it could run any image in the namespace
/// of the system.
async fn the_account_that_leaves_changes_no_deployment(world: &World) -> anyhow::Result<()> {
    for file in ["serviceaccount", "roles", "bindings"] {
        let path = world.bench.repository.join("config/drain").join(file).with_extension("yaml");
        manifest::apply(&world.client, &manifest::read(&path)?).await?;
    }
    let user = "system:serviceaccount:kube-system:dragoman-drain";
    let deployment = |subresource: &str, name: &str| {
        json!({"namespace": "kube-system", "verb": "patch", "group": "apps", "resource": "deployments",
            "subresource": subresource, "name": name})
    };
    installed::may(&world.client, user, &deployment("scale", "dragoman")).await?;
    for (subresource, name) in [("", "dragoman"), ("", "dragoman-allocator"), ("scale", "coredns")] {
        installed::may_not(&world.client, user, &deployment(subresource, name)).await?;
    }
    Ok(())
}
