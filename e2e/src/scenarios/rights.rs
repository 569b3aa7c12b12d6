//! Least privilege: each right of the operator and of the allocator is removed in turn, and the API server
//! must then refuse a request for want of exactly this right.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::client::{CLAIMS, LEASES, PODS};
use crate::control_plane::{ALLOCATOR, Backend, OPERATOR, Scheduling, Shape};
use crate::dragoman::Dragoman;
use crate::objects::{self, Pod, foreign_allocation, pod_consumer};
use crate::world::{Bench, World};
use crate::{manifest, wait};

use super::{Outcome, gates, parameters};

const STATES: &str = "/apis/dragoman.dev/v1alpha1/nodeallocatabledraclaimstates";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A part of Dragoman with a role of its own.
struct Party {
    /// File of the party's roles.
    file: &'static str,
    /// The name of its Lease.
    lease: &'static str,
    user: &'static str,
    start: fn(&World) -> anyhow::Result<Dragoman>,
    /// Provokes every kind of its requests in a namespace.
    provoke: for<'a> fn(&'a World, &'a str) -> Outcome<'a>,
    /// Changes what its last request was about, once for each look: an Event recurs.
    stir: for<'a> fn(&'a World, &'a str, usize) -> Outcome<'a>,
}

const GATES: &str = "config/components/gating/roles.yaml";
const HOLDERS: &str = "config/components/holders/roles.yaml";

const PARTIES: [Party; 4] = [
    Party {
        file: "config/base/roles.yaml",
        lease: "dragoman",
        user: OPERATOR,
        start: |world| Dragoman::spawn(&world.start_of(world.plane.kubeconfig("operator"), "own", &[])),
        provoke: |world, ns| Box::pin(provoke(world, ns)),
        stir: |world, ns, turn| Box::pin(complain(world, ns, turn)),
    },
    Party {
        file: GATES,
        lease: "dragoman",
        user: OPERATOR,
        start: |world| assists(world, "--controllers=*,gates"),
        provoke: |world, ns| Box::pin(gates::provoke(world, ns)),
        stir: |_, _, _| Box::pin(async { Ok(()) }),
    },
    Party {
        file: HOLDERS,
        lease: "dragoman",
        user: OPERATOR,
        start: |world| assists(world, "--controllers=*,gates,holders"),
        provoke: |world, ns| Box::pin(gates::provoke_holders(world, ns)),
        stir: |_, _, _| Box::pin(async { Ok(()) }),
    },
    Party {
        file: "config/components/allocator/roles.yaml",
        lease: "dragoman-allocator",
        user: ALLOCATOR,
        start: |world| Dragoman::spawn(&world.allocator_start(&[])),
        provoke: |world, ns| Box::pin(gates::provoke_allocator(world, ns)),
        stir: |world, _, turn| Box::pin(gates::stir_allocator(world, turn)),
    },
];

/// The operator in mode assist, with these controllers.
fn assists(world: &World, controllers: &str) -> anyhow::Result<Dragoman> {
    let flags = [controllers, "--default-allocator=dragoman"];
    Dragoman::spawn(&world.start_of(world.plane.kubeconfig("operator"), "assist", &flags))
}

/// A right: a verb of a rule of a role.
pub(super) struct Right {
    role: Value,
    rule: usize,
    pub verb: String,
    pub resource: String,
}

/// Runs the lane and returns the number of rights, each of which was shown to be needed.
pub(super) async fn run(bench: &Bench) -> anyhow::Result<usize> {
    let shape = Shape { pod_groups: true, scheduler: Scheduling::Absent, ..Shape::default() };
    let world = World::start(bench, "rights", shape, 3, 96).await?;
    install(&world).await?;
    // Devices cost their node something, so that its ledger is published.
    world.client.create(crate::client::FOOTPRINTS, "", &super::ledger::footprint("cores", "1")).await?;
    gates::rest(&world).await?;
    let (mut count, mut useless) = (0, Vec::new());
    for party in &PARTIES {
        // Mode own and gates have rights in common: what one has is not needed once more.
        let (own, gates) = if [GATES, HOLDERS].contains(&party.file) { (false, true) } else { (true, false) };
        give(&world, "config/base/roles.yaml", "dragoman-own", own).await?;
        give(&world, GATES, "dragoman-gates", gates).await?;
        let roles = std::fs::read_to_string(bench.repository.join(party.file)).context(party.file)?;
        let rights: Vec<Right> = manifest::parse(&roles)?.iter().flat_map(rights_of).collect();
        for right in &rights {
            let name = format!("{} {} of {}", right.verb, right.resource, party.file);
            take_away(&world, right).await?;
            // With the Lease of an earlier start the right to create one would not be needed.
            world.client.delete(LEASES, "kube-system", party.lease, None).await?;
            if let Err(error) = needed(&world, party, right).await {
                useless.push(format!("{name} ({error:#})"));
            }
            give_back(&world, right).await?;
        }
        count += rights.len();
    }
    world.stop().await?;
    ensure!(useless.is_empty(), "not shown to be needed: {}", useless.join(", "));
    Ok(count)
}

/// Installs the rights of all parties; on a real control plane the policies that confine them, too.
async fn install(world: &World) -> anyhow::Result<()> {
    if world.bench.backend == Backend::Real {
        return world.install("config/gated").await;
    }
    let components = world.bench.repository.join("config/components");
    for file in [
        "gating/roles",
        "gating/binding",
        "holders/priorityclass",
        "holders/roles",
        "holders/binding",
        "allocator/serviceaccount",
        "allocator/roles",
        "allocator/bindings",
    ] {
        let objects = manifest::read(&components.join(file).with_extension("yaml"))?;
        manifest::apply(&world.client, &objects).await?;
    }
    Ok(())
}

/// Gives a shipped role what its file says, or nothing.
async fn give(world: &World, file: &str, name: &str, all: bool) -> anyhow::Result<()> {
    let roles = std::fs::read_to_string(world.bench.repository.join(file)).context("roles")?;
    let roles = manifest::parse(&roles)?;
    let role = roles.iter().find(|role| role["metadata"]["name"] == name).context("role")?;
    let rules = if all { role["rules"].clone() } else { json!([]) };
    write_rules(world, role, &rules).await
}

/// Every right of a role.
pub(super) fn rights_of(role: &Value) -> Vec<Right> {
    let mut rights = Vec::new();
    for (rule, content) in role["rules"].as_array().into_iter().flatten().enumerate() {
        let resource = content["resources"][0].as_str().unwrap_or_default().to_owned();
        for verb in content["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            rights.push(Right {
                role: role.clone(),
                rule,
                verb: verb.to_owned(),
                resource: resource.clone(),
            });
        }
    }
    rights
}

pub(super) async fn write_rules(world: &World, role: &Value, rules: &Value) -> anyhow::Result<()> {
    let plural = if role["kind"] == "Role" { "roles" } else { "clusterroles" };
    let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
    let name = role["metadata"]["name"].as_str().context("name")?;
    world.client.merge(&format!("{RBAC}/{{}}/{plural}"), namespace, name, &json!({"rules": rules})).await?;
    Ok(())
}

/// Takes a right from its role.
pub(super) async fn take_away(world: &World, right: &Right) -> anyhow::Result<()> {
    let mut rules = right.role["rules"].clone();
    let verbs = rules[right.rule]["verbs"].as_array_mut().context("verbs")?;
    verbs.retain(|verb| *verb != right.verb);
    if verbs.is_empty() {
        rules.as_array_mut().context("rules")?.remove(right.rule);
    }
    write_rules(world, &right.role, &rules).await
}

/// Gives its role what its file says.
pub(super) async fn give_back(world: &World, right: &Right) -> anyhow::Result<()> {
    write_rules(world, &right.role, &right.role["rules"]).await
}

/// Provokes every kind of request of the operator, and waits for the refusal.
async fn needed(world: &World, party: &Party, right: &Right) -> anyhow::Result<()> {
    let ns = world.namespace("right").await?;
    // One ledger has to be created, and one belongs to no Node.
    world.client.delete(STATES, "", "node-0", None).await?;
    if world.client.get(STATES, "", "gone").await?.is_none() {
        let gone = json!({
            "apiVersion": "dragoman.dev/v1alpha1", "kind": "NodeAllocatableDRAClaimState",
            "metadata": {"name": "gone"},
        });
        world.client.create(STATES, "", &gone).await?;
    }
    let dragoman = (party.start)(world)?;
    let log_before = dragoman.log().len();
    let refused = async || -> anyhow::Result<Option<()>> {
        // No request has the synthetic resource `resourceclaims/binding`; only the text of a refusal
        // names it. A missing right in the operator's review of its own rights proves nothing.
        let log = dragoman.log();
        let in_text = log.get(log_before..).unwrap_or_default().lines().any(|line| {
            line.contains("refusal=") && line.contains(&right.resource) && right.resource.contains("binding")
        });
        let refusals = world.plane.audit().refusals(party.user);
        let audited = refusals.iter().any(|e| e.what() == format!("{} {}", right.verb, right.resource));
        Ok((in_text || audited).then_some(()))
    };
    // What is provoked too early is over when it begins to work. Without some rights it never does.
    let works = async || {
        let worked = dragoman.metric("controller_runtime_reconcile_total", &[]).await;
        worked.is_ok_and(|count| count > 0.0) || refused().await.is_ok_and(|it| it.is_some())
    };
    wait::until("the operator works, or is refused", works).await?;
    (party.provoke)(world, &ns).await?;
    let turn = std::cell::Cell::new(0);
    // The look writes: it changes an object that no right is about, and the refusal is that of another write.
    let stirred = async || {
        let seen = refused().await?;
        if seen.is_none() {
            (party.stir)(world, &ns, turn.replace(turn.get() + 1)).await?;
        }
        Ok(seen)
    };
    let outcome = wait::value("the operator is refused", stirred).await;
    dragoman.kill().await?;
    world.plane.audit().forget()?;
    outcome
}

async fn provoke(world: &World, ns: &str) -> anyhow::Result<()> {
    let client = &world.client;
    // Creation and publication. The end of the Pod deletes the claim, which is not allocated.
    world.pod(ns, &Pod::new("ends").with_template("gpu", "one").gated()).await?;
    client
        .create(
            &world.release.pod_groups_path(),
            ns,
            &objects::pod_group(world.release, "group", "gpu", "one"),
        )
        .await?;
    // Release, and removal of the finalizer.
    let mut claim = objects::claim("released");
    claim["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
    client.create(CLAIMS, ns, &claim).await?;
    let pod = world.pod(ns, &Pod::new("released").with_claim("gpu", "released").gated()).await?;
    client.merge(CLAIMS, ns, "released/status", &foreign_allocation("node-0", &[pod_consumer(&pod)])).await?;
    // Reservation: Pod and claim are read live.
    client.create(CLAIMS, ns, &objects::claim("reserved")).await?;
    client.merge(CLAIMS, ns, "reserved/status", &foreign_allocation("node-0", &[])).await?;
    world.pod(ns, &Pod::new("reserved").with_claim("gpu", "reserved").held().on("node-0")).await?;
    // Consumers that never existed, which are confirmed by live reads.
    let ghost = |group: &str, resource: &str| json!({"apiGroup": group, "resource": resource, "name": "ghost", "uid": "ghost"});
    for (name, consumer) in
        [("ghost-pod", ghost("", "pods")), ("ghost-group", ghost("scheduling.k8s.io", "podgroups"))]
    {
        client.create(CLAIMS, ns, &objects::claim(name)).await?;
        client
            .merge(CLAIMS, ns, &format!("{name}/status"), &foreign_allocation("node-0", &[consumer]))
            .await?;
    }
    // Claims that take no patch in JSON: one loses a consumer of two, the other its finalizer.
    let finalizers = json!({"finalizers": ["resource.kubernetes.io/delete-protection"]});
    for name in ["raw-of-two", "raw"] {
        parameters::create(world, ns, name, &finalizers).await?;
        let pod = world.pod(ns, &Pod::new(name).with_claim("gpu", name).gated()).await?;
        let mut consumers = vec![pod_consumer(&pod)];
        if name == "raw-of-two" {
            let other = world.pod(ns, &Pod::new("stays").with_claim("gpu", name).gated()).await?;
            consumers.push(pod_consumer(&other));
        }
        parameters::give(world, ns, name, &foreign_allocation("node-0", &consumers)).await?;
    }
    world.pod(ns, &Pod::new("complaint").with_template("gpu", "missing").gated()).await?;
    for pod in ["ends", "released", "raw-of-two", "raw"] {
        client.merge(PODS, ns, &format!("{pod}/status"), &json!({"status": {"phase": "Failed"}})).await?;
    }
    Ok(())
}

/// The Pod of which the operator complains changes: the Event is created, and then patched.
async fn complain(world: &World, ns: &str, turn: usize) -> anyhow::Result<()> {
    let names = json!({"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": format!("none-{turn}")}]}});
    world.client.merge(PODS, ns, "complaint/status", &names).await?;
    Ok(())
}
