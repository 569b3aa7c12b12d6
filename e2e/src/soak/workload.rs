//! What people do to a cluster, from a seed.

use std::time::Duration;

use dragoman_simcluster::{Answer, Body, Door, HOLD, Request};
use fastrand::Rng;
use http::Method;
use serde_json::{Value, json};

use crate::client::path;
use crate::objects::{self, Pod};

/// The namespace in which everything happens.
pub(super) const NAMESPACE: &str = "soak";

/// Something that somebody does.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Template(String),
    Claim(String),
    Pod(Box<Value>),
    DeletePod(String),
    /// Opens the gate.
    Release(String),
    /// Deletes the claim that a Pod's status names first.
    DeleteClaimOf(String),
    /// Drops the names of claims from a Pod's status.
    WipeStatus(String),
    /// Names a claim in a Pod's status that is not the Pod's.
    Misname(String),
    /// Reserves a claim for somebody of whom the controller cannot know anything.
    Lend(String),
    /// Sets a Pod's phase, as whoever evicts it does.
    Fail(String),
    /// The controller is killed, and is back after so long.
    Crash(Duration),
}

/// An action, and when.
pub(super) type Script = Vec<(Duration, Action)>;

/// What classes stand for beside their name.
pub(super) const EXTENDED: &str = "soak.dragoman.dev/device";

/// Within this everything happens.
pub(super) const SPAN: Duration = Duration::from_secs(60);

/// Everything that is done in a run; `holds` says whether Pods may run until somebody ends them,
/// and keep their devices.
pub(super) fn script(rng: &mut Rng, holds: bool) -> Script {
    let mut script: Script = Vec::new();
    let at = |rng: &mut Rng, from: Duration| from + SPAN.saturating_sub(from).mul_f64(rng.f64());
    // One template is there from the start, the other comes whenever it comes.
    script.push((Duration::ZERO, Action::Template("one".to_owned())));
    script.push((at(rng, Duration::ZERO), Action::Template("late".to_owned())));
    for number in 0..rng.usize(..3) {
        let (name, made) = (format!("shared-{number}"), at(rng, Duration::ZERO));
        script.push((made, Action::Claim(name.clone())));
        if holds && rng.u32(..4) == 0 {
            script.push((at(rng, made), Action::Lend(name)));
        }
    }
    for number in 0..rng.usize(1..=6) {
        let name = format!("pod-{number}");
        let begins = at(rng, Duration::ZERO);
        script.push((begins, Action::Pod(Box::new(pod(rng, &name, holds)))));
        for _ in 0..rng.usize(..3) {
            let when = at(rng, begins);
            let action = match rng.u32(..9) {
                0 | 1 => Action::DeletePod(name.clone()),
                2 => Action::DeleteClaimOf(name.clone()),
                3 => Action::WipeStatus(name.clone()),
                4 => Action::Fail(name.clone()),
                // The name is used again.
                5 => {
                    script.push((when, Action::DeletePod(name.clone())));
                    let again = at(rng, when);
                    script.push((again, Action::Pod(Box::new(pod(rng, &name, holds)))));
                    continue;
                }
                6 => Action::Misname(name.clone()),
                _ => Action::Release(name.clone()),
            };
            script.push((when, action));
        }
    }
    for _ in 0..rng.usize(..3) {
        let down = Duration::from_millis(rng.u64(..10_000));
        script.push((at(rng, Duration::ZERO), Action::Crash(down)));
    }
    script.sort_by_key(|(when, _)| *when);
    script
}

fn pod(rng: &mut Rng, name: &str, holds: bool) -> Value {
    let mut pod = Pod::new(name);
    for entry in 0..rng.usize(..4) {
        let entry = format!("entry-{entry}");
        pod = match rng.u32(..6) {
            0 => pod.with_template(&entry, "late"),
            1 => pod.with_claim(&entry, &format!("shared-{}", rng.usize(..2))),
            _ => pod.with_template(&entry, "one"),
        };
    }
    if rng.u32(..6) == 0 {
        pod = pod.gated();
    } else if rng.u32(..8) == 0 {
        pod = pod.on("node-0");
    }
    let mut pod = pod.object().clone();
    if holds && rng.u32(..3) == 0 {
        // It runs until somebody ends it.
        pod["metadata"]["annotations"] = json!({HOLD: ""});
    }
    if rng.u32(..6) == 0 {
        pod["spec"]["containers"][0]["resources"] = json!({"limits": {EXTENDED: "1"}});
    }
    pod["spec"]["terminationGracePeriodSeconds"] = json!(rng.u32(..4));
    pod
}

/// Somebody with every right.
pub(super) struct Hand(pub(super) Door);

impl Hand {
    fn ask(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Value {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let Answer { body, .. } = self.0.ask(Request {
            method,
            path: path.to_owned(),
            content_type: content_type.to_owned(),
            user_agent: "soak/1".to_owned(),
            body,
            ..Request::default()
        });
        match body {
            Body::Json(object) => object,
            Body::Text(_) | Body::Watch(_) => Value::Null,
        }
    }

    pub(super) fn create(&self, collection: &str, object: &Value) {
        self.ask(Method::POST, &path(collection, NAMESPACE), "application/json", object);
    }

    /// Does it; what has no object by now does nothing.
    pub(super) fn act(&self, action: &Action) {
        let pod = |name: &str| format!("{}/{name}", path(crate::client::PODS, NAMESPACE));
        match action {
            Action::Template(name) => self.create(crate::client::TEMPLATES, &objects::template(name)),
            Action::Claim(name) => self.create(crate::client::CLAIMS, &objects::claim(name)),
            Action::Pod(object) => self.create(crate::client::PODS, object),
            Action::DeletePod(name) => {
                self.ask(Method::DELETE, &pod(name), "", &Value::Null);
            }
            Action::Release(name) => {
                self.merge(&pod(name), &json!({"spec": {"schedulingGates": null}}));
            }
            Action::DeleteClaimOf(name) => {
                let status = self.ask(Method::GET, &pod(name), "", &Value::Null);
                if let Some(claim) =
                    status["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str()
                {
                    let claim = format!("{}/{claim}", path(crate::client::CLAIMS, NAMESPACE));
                    self.ask(Method::DELETE, &claim, "", &Value::Null);
                }
            }
            Action::WipeStatus(name) => {
                self.merge(&(pod(name) + "/status"), &json!({"status": {"resourceClaimStatuses": null}}));
            }
            Action::Misname(name) => {
                let names = json!([{"name": "entry-0", "resourceClaimName": "shared-0"}]);
                self.merge(&(pod(name) + "/status"), &json!({"status": {"resourceClaimStatuses": names}}));
            }
            Action::Lend(name) => self.lend(&format!("{}/{name}", path(crate::client::CLAIMS, NAMESPACE))),
            Action::Fail(name) => {
                self.merge(&(pod(name) + "/status"), &json!({"status": {"phase": "Failed"}}));
            }
            Action::Crash(_) => {}
        }
    }

    /// Whoever has it already keeps it.
    fn lend(&self, claim: &str) {
        let there = self.ask(Method::GET, claim, "", &Value::Null);
        let group = json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "group", "uid": "group"});
        let status = format!("{claim}/status");
        if there["status"]["reservedFor"].is_array() {
            let patch = json!([{"op": "add", "path": "/status/reservedFor/-", "value": group}]);
            self.ask(Method::PATCH, &status, "application/json-patch+json", &patch);
        } else if there["status"]["allocation"].is_null() {
            self.merge(&status, &objects::foreign_allocation("node-0", &[group]));
        }
    }

    fn merge(&self, path: &str, patch: &Value) {
        self.ask(Method::PATCH, path, "application/merge-patch+json", patch);
    }
}
