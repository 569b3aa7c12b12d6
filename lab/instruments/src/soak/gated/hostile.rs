//! A hostile tenant beside gated Pods: it may create Pods, claims and templates in its own namespace, and nothing else.
//!
//! The Pods of other namespaces get their devices and end all the same.

use std::time::Duration;

use dragoman_crds::protocol::GATE;
use dragoman_e2e::client::{CLAIMS, PODS, TEMPLATES};
use dragoman_e2e::objects::{self, Pod};
use fastrand::Rng;
use serde_json::{Value, json};

use super::script::{Action, Script};
use super::{FOREIGN, Kind, OURS};
use crate::soak::actor::{Actor, TENANT};
use crate::soak::workload::SPAN;

/// The claim that Pods of the tenant share.
const COMMON: &str = "common";
/// A template that does not exist.
const NEVER: &str = "never";
/// An attribute that no device has.
const WANTED: &str = "dragoman.dev/attributes";

/// An act of the tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hand {
    /// A Pod that names a node, a claim that is allocated, and a template that does not exist: what it takes is not known.
    Unknown(usize),
    /// Pods behind the gate of another owner, which is never opened: they would keep devices for nothing.
    Held(usize),
    /// Pods that wait for an attribute that no device has.
    Attributes(usize),
    /// Pods that share one claim.
    Sharers(usize),
    /// A Pod with so many entries.
    Entries(usize),
    /// A claim with expensive selectors, and a Pod that wants it.
    Selectors(usize),
    /// A Pod with so many containers.
    Containers(usize),
    /// A claim with opaque parameters of so many bytes, and a Pod that wants it.
    Opaque(usize),
    /// A Pod that says of itself that it was released.
    Liar(usize),
    /// A Pod with two claims, of which one is deleted later: [`Hand::Robbed`].
    Twins(usize),
    /// The deletion of one of two claims: the Pod keeps the devices of the other one, and never runs.
    Robbed(usize),
    /// Another allocator for the claim that Pods share, or none, or the one it had.
    Flipped(usize),
    /// A Pod that is deleted and created again under its name.
    Namesake(usize),
    /// Pods that want devices which share an attribute that none has, under a name of so many characters.
    Aligned(usize),
    /// A Pod of a PodGroup that does not exist.
    Stray(usize),
    /// A Pod that asks for more than any node has.
    Immense(usize),
    /// A Pod on a node of its own choice with more claims than are read.
    Hoard(usize),
    /// A Pod with so many values in its node affinity.
    Picky(usize),
}

impl Hand {
    fn draw(rng: &mut Rng, kind: Kind, number: usize) -> Self {
        match rng.u32(..18) {
            0 => Self::Unknown(number),
            1 => Self::Held(rng.usize(1..=4)),
            2 => Self::Attributes(rng.usize(1..=4)),
            3 if kind.may_share() => Self::Sharers(rng.usize(2..=40)),
            4 => Self::Entries(rng.usize(300..=1_500)),
            5 => Self::Selectors(number),
            6 => Self::Containers(rng.usize(100..=800)),
            7 => Self::Opaque(rng.usize(1_000..=100_000)),
            8 | 9 => Self::Twins(rng.usize(..2)),
            10 | 11 => Self::Robbed(rng.usize(..2)),
            12 if kind.may_share() => Self::Flipped(number),
            12 => Self::Namesake(number),
            13 => Self::Aligned(rng.usize(1..=10_000)),
            14 => Self::Stray(number),
            15 => Self::Immense(number),
            16 => Self::Hoard(number),
            17 => Self::Picky(rng.usize(100..=5_000)),
            _ => Self::Liar(number),
        }
    }

    pub(super) fn take(self, hand: &Actor, kind: Kind) {
        let create = |collection: &str, object: &Value| hand.create_in(TENANT, collection, object);
        match self {
            Self::Unknown(number) => {
                let pod = Pod::new(&format!("unknown-{number}")).on("node-0").held();
                let pod = if kind.may_share() { pod.with_claim("known", COMMON) } else { pod };
                create(PODS, pod.with_template("missing", NEVER).object());
            }
            Self::Held(count) => {
                (0..count).for_each(|n| create(PODS, &behind(&format!("held-{n}"), &[GATE, FOREIGN], "one")));
            }
            Self::Attributes(count) => {
                for n in 0..count {
                    let mut pod = behind(&format!("attributes-{n}"), &[GATE], "one");
                    pod["metadata"]["annotations"][WANTED] = json!("such: entry/device/none.example/such");
                    create(PODS, &pod);
                }
            }
            Self::Sharers(count) => {
                for n in 0..count {
                    create(
                        PODS,
                        Pod::new(&format!("sharer-{n}")).behind(GATE).with_claim("entry", COMMON).object(),
                    );
                }
            }
            Self::Entries(count) => {
                let pod = Pod::new(&format!("entries-{count}")).behind(GATE);
                let entries = (0..count).map(|n| format!("entry-{n}"));
                create(PODS, entries.fold(pod, |pod, entry| pod.with_claim(&entry, NEVER)).object());
            }
            Self::Selectors(number) => {
                let name = format!("selectors-{number}");
                create(CLAIMS, &selecting(&name));
                create(PODS, Pod::new(&name).behind(GATE).with_claim("entry", &name).object());
            }
            Self::Containers(count) => create(PODS, &with_containers(count)),
            Self::Opaque(size) => {
                let name = format!("opaque-{size}");
                create(CLAIMS, &opaque(&name, size));
                create(PODS, Pod::new(&name).behind(GATE).with_claim("entry", &name).object());
            }
            Self::Liar(number) => {
                let mut pod = behind(&format!("liar-{number}"), &[GATE], "one");
                pod["metadata"]["annotations"]["dragoman.dev/released"] =
                    json!("00000000-0000-0000-0000-000000000000");
                create(PODS, &pod);
            }
            _ => self.take_again(hand),
        }
    }

    /// Acts about what is there already, and wishes that nothing fulfils.
    fn take_again(self, hand: &Actor) {
        let create = |collection: &str, object: &Value| hand.create_in(TENANT, collection, object);
        match self {
            Self::Twins(number) => {
                let names = ["a", "b"].map(|twin| format!("twin-{number}-{twin}"));
                for name in &names {
                    let mut claim = objects::claim(name);
                    claim["metadata"]["labels"] = json!({"dragoman.dev/allocator": OURS});
                    create(CLAIMS, &claim);
                }
                let pod = Pod::new(&format!("twins-{number}")).behind(GATE);
                create(PODS, pod.with_claim("a", &names[0]).with_claim("b", &names[1]).object());
            }
            Self::Robbed(number) => hand.remove(TENANT, CLAIMS, &format!("twin-{number}-b")),
            Self::Flipped(number) => {
                let other = [Some("another"), None, Some(OURS)][number % 3];
                hand.within(TENANT).label(COMMON, other);
            }
            Self::Namesake(number) => {
                let name = format!("namesake-{}", number % 2);
                hand.remove(TENANT, PODS, &name);
                create(PODS, &behind(&name, &[GATE], "one"));
            }
            Self::Aligned(length) => {
                let mut pod = behind(&format!("aligned-{length}"), &[GATE], "one");
                pod["metadata"]["annotations"]["dragoman.dev/aligned-by"] = json!("x".repeat(length));
                create(PODS, &pod);
            }
            Self::Stray(number) => {
                let mut pod = behind(&format!("stray-{number}"), &[GATE], "one");
                pod["spec"]["schedulingGroup"] = json!({"podGroupName": NEVER});
                create(PODS, &pod);
            }
            Self::Immense(number) => {
                let mut pod = behind(&format!("immense-{number}"), &[GATE], "one");
                pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "9223372036854775807"});
                create(PODS, &pod);
            }
            Self::Hoard(number) => {
                let pod =
                    Pod::new(&format!("hoard-{number}")).on("node-0").held().with_claim("common", COMMON);
                let entries = (0..300).map(|n| format!("entry-{n}"));
                create(PODS, entries.fold(pod, |pod, entry| pod.with_claim(&entry, &entry)).object());
            }
            Self::Picky(values) => {
                let mut pod = behind(&format!("picky-{values}"), &[GATE], "one");
                let values: Vec<String> = (0..values).map(|n| format!("node-{}", 1 + n)).collect();
                let requirement =
                    json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": values});
                pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                    json!({"nodeSelectorTerms": [{"matchExpressions": [requirement]}]});
                create(PODS, &pod);
            }
            _ => {}
        }
    }
}

/// A Pod behind these gates with a claim from a template.
fn behind(name: &str, gates: &[&str], template: &str) -> Value {
    let mut pod = Pod::new(name).with_template("entry", template).object().clone();
    pod["spec"]["schedulingGates"] = gates.iter().map(|gate| json!({"name": gate})).collect();
    pod
}

/// A Pod with so many containers.
fn with_containers(count: usize) -> Value {
    let mut pod = behind(&format!("containers-{count}"), &[GATE], NEVER);
    let container = |n: usize| {
        json!({"name": format!("c-{n}"), "image": "none",
        "resources": {"requests": {"cpu": "1m"}}})
    };
    pod["spec"]["containers"] = (0..count).map(container).collect();
    pod
}

/// A claim with opaque parameters of so many bytes.
fn opaque(name: &str, size: usize) -> Value {
    let mut claim = objects::claim(name);
    claim["metadata"]["labels"] = json!({"dragoman.dev/allocator": OURS});
    claim["spec"]["devices"]["config"] =
        json!([{"opaque": {"driver": objects::DRIVER, "parameters": {"text": "x".repeat(size)}}}]);
    claim
}

/// A claim for a device that none of several expensive selectors selects.
fn selecting(name: &str) -> Value {
    let mut claim = objects::claim(name);
    claim["metadata"]["labels"] = json!({"dragoman.dev/allocator": OURS});
    let range = (0..30).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let expression = format!("![{range}].all(a, [{range}].all(b, [{range}].all(c, a + b + c >= 0)))");
    let selectors: Vec<Value> = (0..4).map(|_| json!({"cel": {"expression": expression}})).collect();
    claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = selectors.into();
    claim
}

/// The objects that the tenant has from the start.
pub(super) fn populate(hand: &Actor) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}});
    hand.create("/api/v1/namespaces", &namespace);
    hand.create_in(TENANT, TEMPLATES, &objects::template("one"));
    let mut claim = objects::claim(COMMON);
    claim["metadata"]["labels"] = json!({"dragoman.dev/allocator": OURS});
    hand.create_in(TENANT, CLAIMS, &claim);
}

/// Adds the acts of the tenant, in every fourth run: such a run takes six times as long as another one.
pub(super) fn draw(rng: &mut Rng, kind: Kind, script: &mut Script) {
    if rng.u32(..4) != 0 {
        return;
    }
    for number in 0..rng.usize(1..=6) {
        let when: Duration = SPAN.mul_f64(rng.f64());
        script.push((when, Action::Hostile(Hand::draw(rng, kind, number))));
    }
}
