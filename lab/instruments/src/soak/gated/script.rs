//! The script of a run, drawn from a seed: the lives of gated Pods and of their neighbours, and what people, gate owners and parties
//! do in between.

use std::time::Duration;

use dragoman_crds::protocol::GATE;
use fastrand::Rng;
use serde_json::{Value, json};

use super::hostile::{self, Hand};
use super::{FOREIGN, GATES, Kind, OURS, Party, TEAMS};
use crate::soak::workload::{self, SPAN};
use dragoman_e2e::objects::Pod;

/// The most neighbours of a run.
const MOST_NEIGHBOURS: usize = 16;
/// The time for which a party is away where its Deployment is broken: six periods of the level timer of the other party.
const AWAY: Duration = Duration::from_hours(1);
/// The same of one that was left alone for a day.
const FORGOTTEN: Duration = Duration::from_hours(24);
/// The class of neighbours that may take the place of others.
pub(super) const IMPORTANT: &str = "important";

/// An action of a run.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// An action of the life of claims in a namespace.
    Life(&'static str, workload::Action),
    /// An act of the hostile tenant.
    Hostile(Hand),
    /// Creates a Pod of others.
    Neighbour(Box<Value>),
    /// Removes a Pod of others.
    Leaves(String),
    /// Removes the gate of the other owner from a Pod of a namespace.
    Open(&'static str, String),
    /// Closes a gate of a claim, or opens it.
    Gate { namespace: &'static str, claim: String, gate: &'static str, closed: bool },
    /// Names the allocator of a claim, or none.
    Label(&'static str, String, Option<&'static str>),
    /// Writes an annotation of the protocol that says nothing or lies.
    Scribble(&'static str, String, &'static str, &'static str),
    /// Kills a party, and starts it after this time.
    Crash(Party, Duration),
    /// Starts another instance of a party. The older one stops after this time.
    Takeover(Party, Duration),
}

const LIES: [(&str, &str); 3] = [
    ("dragoman.dev/verdict", "{"),
    (
        "dragoman.dev/rejections",
        r#"[{"node":"node-0","reason":"a lie","revision":9,"time":"2999-01-01T00:00:00Z"}]"#,
    ),
    ("dragoman.dev/rejections", "[1, 2"),
];

pub(super) type Script = Vec<(Duration, Action)>;

fn at(rng: &mut Rng, from: Duration) -> Duration {
    from + SPAN.saturating_sub(from).mul_f64(rng.f64())
}

/// A claim that is there from the start: two Pods may share it.
pub(super) fn shared(number: usize) -> String {
    format!("shared-{number}")
}

/// One of the namespaces of gated Pods.
fn team(rng: &mut Rng) -> &'static str {
    if rng.u32(..3) == 0 { TEAMS[1] } else { TEAMS[0] }
}

fn pod(rng: &mut Rng, kind: Kind, name: &str) -> Value {
    let mut pod = Pod::new(name);
    for entry in 0..rng.usize(1..=2) {
        let name = format!("entry-{entry}");
        pod = match rng.u32(..4) {
            0 if kind.may_share() => pod.with_claim(&name, &shared(rng.usize(..2))),
            _ => pod.with_template(&name, "one"),
        };
    }
    let mut pod = pod.object().clone();
    let other = rng.u32(..8) == 0;
    let gates: Vec<Value> = [Some(GATE), other.then_some(FOREIGN)]
        .into_iter()
        .flatten()
        .map(|gate| json!({"name": gate}))
        .collect();
    pod["spec"]["schedulingGates"] = gates.into();
    pod["spec"]["terminationGracePeriodSeconds"] = json!(rng.u32(..4));
    let cpu = format!("{}m", 1_000 * rng.u32(..6));
    pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": cpu});
    pod
}

fn life(rng: &mut Rng, kind: Kind, number: usize, script: &mut Script) {
    use workload::Action as Life;
    let (name, team) = (format!("pod-{number}"), team(rng));
    let begins = at(rng, Duration::ZERO);
    let object = pod(rng, kind, &name);
    if object["spec"]["schedulingGates"].to_string().contains(FOREIGN) {
        script.push((at(rng, begins), Action::Open(team, name.clone())));
    }
    script.push((begins, Action::Life(team, Life::Pod(Box::new(object)))));
    for _ in 0..rng.usize(..2) {
        let (when, name) = (at(rng, begins), name.clone());
        let action = match rng.u32(..6) {
            0 => Life::DeletePod(name),
            1 => Life::Vanish(name),
            2 => Life::DeleteClaimOf(name),
            3 => Life::Fail(name),
            4 => Life::WipeStatus(name),
            _ => {
                script.push((when, Action::Life(team, Life::Vanish(name.clone()))));
                script.push((at(rng, when), Action::Open(team, name.clone())));
                Life::Pod(Box::new(pod(rng, kind, &name)))
            }
        };
        script.push((when, Action::Life(team, action)));
    }
}

/// A Pod of others: an ordinary one, an important one, or one that wants a device whose driver is not its scheduler's.
fn neighbour(rng: &mut Rng, number: usize, script: &mut Script) {
    let name = format!("neighbour-{number}");
    let begins = at(rng, Duration::ZERO);
    let wants_a_device = rng.u32(..8) == 0;
    let plain = Pod::new(&name);
    let mut pod = if wants_a_device { plain.with_template("device", "one") } else { plain }.object().clone();
    pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": rng.u32(4..25).to_string()});
    if rng.u32(..4) == 0 {
        pod["spec"]["priorityClassName"] = json!(IMPORTANT);
    }
    script.push((begins, Action::Neighbour(Box::new(pod))));
    if wants_a_device {
        script.push((at(rng, begins), Action::Leaves(name)));
    }
}

/// Adds the acts of people and gate owners on a claim; in the end every gate is open and the label names us.
fn meddle(rng: &mut Rng, number: usize, script: &mut Script) {
    let (claim, namespace) = (shared(number), team(rng));
    for _ in 0..rng.usize(..3) {
        let when = at(rng, Duration::ZERO);
        let until = at(rng, when);
        match rng.u32(..3) {
            0 => {
                let gate = if rng.bool() { GATES[0] } else { GATES[1] };
                script.push((when, Action::Gate { namespace, claim: claim.clone(), gate, closed: true }));
                script.push((until, Action::Gate { namespace, claim: claim.clone(), gate, closed: false }));
            }
            1 => {
                let other = rng.bool().then_some("nowhere");
                script.push((when, Action::Label(namespace, claim.clone(), other)));
                script.push((until, Action::Label(namespace, claim.clone(), Some(OURS))));
            }
            _ => {
                let (key, lie) = LIES.get(rng.usize(..LIES.len())).copied().unwrap_or_default();
                script.push((when, Action::Scribble(namespace, claim.clone(), key, lie)));
            }
        }
    }
}

/// Draws the script of a run.
pub(super) fn draw(rng: &mut Rng, kind: Kind) -> Script {
    let mut script = Script::new();
    for number in 0..2 {
        meddle(rng, number, &mut script);
    }
    (0..rng.usize(2..=10)).for_each(|number| life(rng, kind, number, &mut script));
    let neighbours = if kind.neighbours { rng.usize(1..=MOST_NEIGHBOURS) } else { 0 };
    (0..neighbours).for_each(|number| neighbour(rng, number, &mut script));
    for _ in 0..rng.usize(..4) {
        let party = if rng.bool() { Party::Operator } else { Party::Allocator };
        let end = match rng.u32(..3) {
            0 => Action::Takeover(party, Duration::from_millis(rng.u64(..20_000))),
            _ => Action::Crash(party, Duration::from_millis(rng.u64(..10_000))),
        };
        script.push((at(rng, Duration::ZERO), end));
    }
    if rng.u32(..16) == 0 {
        let party = if rng.bool() { Party::Operator } else { Party::Allocator };
        let when = at(rng, Duration::ZERO);
        let away = if rng.u32(..8) == 0 { FORGOTTEN } else { AWAY };
        script.push((when, Action::Crash(party, away)));
    }
    hostile::draw(rng, kind, &mut script);
    script.sort_by_key(|(when, _)| *when);
    script
}
