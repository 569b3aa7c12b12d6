//! The Pods of a run: what they ask for, and whether they can end.

use dragoman_simcluster::{HOLD, REAP};
use fastrand::Rng;
use serde_json::{Value, json};

use super::{Kind, NODES, SHARED};
use crate::control_plane::Release;
use crate::objects::{self, Pod};
use crate::scenarios::accounts::requesting;

/// The extended resource of the devices that kube-scheduler allocates.
pub(super) const CARD: &str = "e2e.dragoman.dev/card";
/// The extended resource of the devices that the reference allocator owns.
pub(super) const OWNED_CARD: &str = "e2e.dragoman.dev/owned-card";
/// A class of Pods that may take the place of others.
pub(super) const IMPORTANT: &str = "important";
/// A class of volumes that wait for the node of their first Pod, and take a moment then.
pub(super) const SLOW: &str = "slow";
/// The templates of each namespace beside `one`: devices of the allocator in Python, and of kube-scheduler.
pub(super) const FOREIGN: &str = "foreign";
pub(super) const FREE: &str = "free";
/// The Pods of a gang.
const GANG: usize = 3;

/// Role of a Pod in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The Pod has the gate.
    Gated,
    /// The Pod has the gate, and its group starts as a whole.
    Gang,
    /// The Pod has no claim.
    Ordinary,
    /// The Pod has no gate, and devices that kube-scheduler allocates.
    Free,
    /// The Pod has no gate, and a claim for a device that another allocator owns: it never runs.
    Ungated,
}

impl Role {
    /// Whether the Pod lives in the namespace of gated Pods.
    pub(super) fn is_gated(self) -> bool {
        matches!(self, Self::Gated | Self::Gang)
    }

    fn drawn(rng: &mut Rng, kind: Kind) -> Self {
        let number = rng.u32(..100);
        match number {
            0..56 => Self::Gated,
            56..59 => Self::Gang,
            _ if !kind.has_neighbours() => Self::Gated,
            59..91 => Self::Ordinary,
            91..97 => Self::Free,
            _ => Self::Ungated,
        }
    }
}

/// Pods that come together, and what comes before them.
pub(super) struct Drawn {
    /// Role of all the Pods.
    pub(super) role: Role,
    /// The Pods.
    pub(super) pods: Vec<Value>,
    /// The names of volumes that they have.
    pub(super) volumes: Vec<String>,
    /// The PodGroup that they belong to.
    pub(super) group: Option<Value>,
}

/// Draws what the Pods from number `number` on are: one, or those of a gang.
pub(super) fn draw(rng: &mut Rng, kind: Kind, release: Release, number: usize) -> Drawn {
    let role = Role::drawn(rng, kind);
    if role == Role::Gang {
        return gang(rng, release, number);
    }
    let name = format!("pod-{number}");
    let new = Pod::new(&name).held().reaped();
    let small = format!("{}m", rng.u32(1..=8) * 250);
    let mut pod = match role {
        Role::Ordinary => requesting(&new, &rng.u32(2..=8).to_string()),
        Role::Free => requesting(&by_claim_or_name(new, rng, FREE, CARD), &small),
        Role::Ungated => requesting(&by_claim_or_name(new, rng, "one", OWNED_CARD), "100m"),
        Role::Gated | Role::Gang => requesting(&claims(new, rng, kind), &small),
    };
    if role == Role::Ordinary && rng.u32(..4) == 0 {
        pod["spec"]["priorityClassName"] = json!(IMPORTANT);
    }
    let mut volumes = Vec::new();
    match rng.u32(..12) {
        _ if role == Role::Ungated => {}
        0 => {
            pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
            volumes.push(name);
        }
        1 => of_a_daemon_set(&mut pod, rng.usize(..NODES)),
        _ => {}
    }
    Drawn { role, pods: vec![pod], volumes, group: None }
}

/// A device by a claim, or by the name of an extended resource.
fn by_claim_or_name(pod: Pod, rng: &mut Rng, template: &str, resource: &str) -> Pod {
    if rng.bool() { pod.with_template("device", template) } else { pod.limited(resource) }
}

fn claims(pod: Pod, rng: &mut Rng, kind: Kind) -> Pod {
    match rng.u32(..10) {
        0 => pod.with_template("first", "one").with_template("second", "one"),
        // Kubernetes refuses a second consumer where the devices are node resources of a slice.
        1 if kind.may_share() => pod.with_claim("shared", &format!("shared-{}", rng.usize(..SHARED))),
        2 => pod.with_template("foreign", FOREIGN),
        3 => pod.with_template("device", "one").with_template("foreign", FOREIGN),
        _ => pod.with_template("device", "one"),
    }
}

fn gang(rng: &mut Rng, release: Release, number: usize) -> Drawn {
    let name = format!("gang-{number}");
    let mut group = objects::pod_group(release, &name, "unused", "one");
    group["spec"] = json!({"schedulingPolicy": {"gang": {"minCount": GANG}}});
    let cpu = format!("{}m", rng.u32(1..=4) * 250);
    let member = |member: usize| {
        let pod = Pod::new(&format!("pod-{}", number + member)).held().reaped().in_group(&name);
        requesting(&pod.with_template("device", "one"), &cpu)
    };
    Drawn { role: Role::Gang, pods: (0..GANG).map(member).collect(), volumes: Vec::new(), group: Some(group) }
}

/// Confines a Pod to a node as a `DaemonSet` does.
pub(super) fn of_a_daemon_set(pod: &mut Value, node: usize) {
    let term = json!({"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": [format!("node-{node}")]}]});
    pod["spec"]["affinity"] = json!({"nodeAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
}

/// A Pod that names its node itself, as a static one does.
pub(super) fn fixed(node: usize) -> Value {
    let pod = Pod::new(&format!("fixed-{node}")).held().on(&format!("node-{node}"));
    requesting(&pod, "500m")
}

/// The annotation that lets a Pod end.
pub(super) fn ends() -> Value {
    json!({"metadata": {"annotations": {HOLD: null, REAP: "true"}}})
}
