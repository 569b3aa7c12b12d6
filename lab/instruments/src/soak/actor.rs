//! The client that takes the actions of a script.

use dragoman_crds::protocol::ALLOCATOR;
use dragoman_simcluster::{Answer, ApiHandle, Body, Request};
use http::Method;
use serde_json::{Value, json};

use super::invariants::{MOST_CONSUMERS, claim_name};
use super::workload::{Action, Attack, ROOM};
use dragoman_e2e::client::{CLAIMS, NAMESPACES, PODS, TEMPLATES, path};
use dragoman_e2e::control_plane::Release;
use dragoman_e2e::objects::{self, Pod};

/// The release that is simulated.
const RELEASE: Release = Release::V1_36;

/// The namespace of the script.
pub(super) const NAMESPACE: &str = "soak";
/// The namespace of the hostile tenant.
pub(super) const TENANT: &str = "tenant";

/// A client with all rights.
#[derive(Clone)]
pub(super) struct Actor {
    pub(super) handle: ApiHandle,
    /// PodGroups are served, so that the absence of one is certain.
    pub(super) groups: bool,
    /// The client may reserve claims for foreign consumers, which never release them.
    pub(super) lends: bool,
    /// The namespace of its actions.
    pub(super) namespace: &'static str,
}

impl Actor {
    /// The same client, in another namespace.
    pub(super) fn within(&self, namespace: &'static str) -> Self {
        Self { namespace, ..self.clone() }
    }

    fn ask(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Value {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let Answer { body, .. } = self.handle.ask(Request {
            method,
            path: path.to_owned(),
            content_type: content_type.to_owned(),
            user_agent: "soak/1".to_owned(),
            body,
            ..Request::default()
        });
        match body {
            Body::Json(object) => object,
            Body::Protobuf(_) | Body::Text(_) | Body::Watch(_) => Value::Null,
        }
    }

    fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, "", &Value::Null)
    }

    fn merge(&self, path: &str, patch: &Value) {
        self.ask(Method::PATCH, path, "application/merge-patch+json", patch);
    }

    fn delete(&self, path: &str) {
        self.ask(Method::DELETE, path, "", &Value::Null);
    }

    fn delete_at_once(&self, path: &str) {
        self.ask(Method::DELETE, path, "application/json", &json!({"gracePeriodSeconds": 0}));
    }

    pub(super) fn create(&self, collection: &str, object: &Value) {
        self.create_in(self.namespace, collection, object);
    }

    pub(super) fn create_in(&self, namespace: &str, collection: &str, object: &Value) {
        self.ask(Method::POST, &path(collection, namespace), "application/json", object);
    }

    pub(super) fn remove(&self, namespace: &str, collection: &str, name: &str) {
        self.delete(&format!("{}/{name}", path(collection, namespace)));
    }

    /// Takes an action. An action whose object does not exist has no effect.
    pub(super) fn act(&self, action: &Action) {
        let in_soak = |collection: &str, name: &str| format!("{}/{name}", path(collection, self.namespace));
        let pod = |name: &str| in_soak(PODS, name);
        let claim = |name: &str| in_soak(CLAIMS, name);
        match action {
            Action::Template(name) => self.create(TEMPLATES, &template(name)),
            Action::Claim(name) => self.create(CLAIMS, &objects::claim(name)),
            Action::Pod(object) => self.create(PODS, object),
            Action::Group(name) => {
                self.create(&RELEASE.pod_groups_path(), &objects::pod_group(RELEASE, name, "entry-0", "one"));
            }
            Action::DeleteGroup(name) => self.delete(&in_soak(&RELEASE.pod_groups_path(), name)),
            Action::DeletePod(name) => self.delete(&pod(name)),
            Action::Vanish(name) => self.delete_at_once(&pod(name)),
            Action::Release(name) => self.merge(&pod(name), &json!({"spec": {"schedulingGates": null}})),
            Action::DeleteClaimOf(name) => {
                if let Some(name) = self.first_claim_of(&pod(name)) {
                    self.delete(&claim(&name));
                }
            }
            Action::WipeStatus(name) => self.set_names(&pod(name), &Value::Null),
            Action::Misname(name) => {
                let names = json!([{"name": "entry-0", "resourceClaimName": "shared-0"}]);
                self.set_names(&pod(name), &names);
            }
            Action::Garble(name) => self.set_names(&pod(name), &json!("what nobody understands")),
            Action::Lend(name) => self.lend(&claim(name), 1),
            Action::LendClaimOf(name) => {
                if let Some(name) = self.first_claim_of(&pod(name)) {
                    self.lend(&claim(&name), 1);
                }
            }
            Action::Fill(name) => self.lend(&claim(name), MOST_CONSUMERS),
            Action::Allot(name) => self.allot(&pod(name)),
            Action::Forge(name) => self.create(CLAIMS, &forged(name)),
            Action::Fail(name) => {
                self.merge(&(pod(name) + "/status"), &json!({"status": {"phase": "Failed"}}));
            }
            Action::Attack(attack) => self.attack(*attack),
            Action::Crash(_) | Action::Takeover(_) => {}
        }
    }

    /// Writes an annotation of a claim, or removes it.
    pub(super) fn annotate(&self, claim: &str, key: &str, text: Option<&str>) {
        let path = format!("{}/{claim}", path(CLAIMS, self.namespace));
        self.merge(&path, &json!({"metadata": {"annotations": {key: text}}}));
    }

    /// Names the allocator of a claim, or none.
    pub(super) fn label(&self, claim: &str, allocator: Option<&str>) {
        let path = format!("{}/{claim}", path(CLAIMS, self.namespace));
        self.merge(&path, &json!({"metadata": {"labels": {ALLOCATOR: allocator}}}));
    }

    /// Removes one scheduling gate of a Pod.
    pub(super) fn open(&self, pod: &str, gate: &str) {
        let path = format!("{}/{pod}", path(PODS, self.namespace));
        let pod = self.get(&path);
        let gates = pod["spec"]["schedulingGates"].as_array().into_iter().flatten();
        if let Some(at) = gates.into_iter().position(|known| known["name"] == gate) {
            let patch = json!([{"op": "remove", "path": format!("/spec/schedulingGates/{at}")}]);
            self.ask(Method::PATCH, &path, "application/json-patch+json", &patch);
        }
    }

    /// Gives the hostile tenant its namespace, with a quota.
    pub(super) fn let_a_tenant_in(&self) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}});
        self.create_in("", NAMESPACES, &namespace);
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "claims"},
            "spec": {"hard": {"count/resourceclaims.resource.k8s.io": ROOM.to_string()}},
        });
        self.create_in(TENANT, "/api/v1/{}/resourcequotas", &quota);
        self.create_in(TENANT, TEMPLATES, &template("one"));
    }

    fn attack(&self, attack: Attack) {
        let pod = |name: String, entries: usize, template: &str| {
            let entries = (0..entries).map(|number| format!("entry-{number}"));
            let pod = Pod::new(&name).gated();
            entries.fold(pod, |pod, entry| pod.with_template(&entry, template)).object().clone()
        };
        let create = |pod: Value| self.create_in(TENANT, PODS, &pod);
        let one = format!("{}/one", path(TEMPLATES, TENANT));
        match attack {
            Attack::Crowd(count) => (0..count).for_each(|n| create(pod(format!("crowd-{n}"), 1, "one"))),
            Attack::Refused(count) => (0..count).for_each(|n| create(pod(format!("no-{n}"), 1, "never"))),
            Attack::Entries(count) => create(pod(format!("entries-{count}"), count, "one")),
            Attack::Touch(second) => {
                self.merge(&one, &json!({"metadata": {"annotations": {"touched": second.to_string()}}}));
            }
            Attack::Fatten => {
                let fat = json!({"fat": "x".repeat(100_000)});
                self.merge(&one, &json!({"metadata": {"annotations": fat}}));
            }
            Attack::Forge(count) => {
                (0..count).for_each(|n| self.create_in(TENANT, CLAIMS, &forged(&format!("forged-{n}"))));
            }
            Attack::Free => {
                let claims = self.get(&path(CLAIMS, TENANT));
                let owner = claims.pointer("/items/0/metadata/ownerReferences/0/name");
                if let Some(owner) = owner.and_then(Value::as_str) {
                    self.delete_at_once(&format!("{}/{owner}", path(PODS, TENANT)));
                }
            }
        }
    }

    /// Changes the object at `path` just before the request of another client does.
    pub(super) fn overtake(&self, path: &str) {
        if self.lends && path.contains("/resourceclaims/") {
            self.lend(path, 1);
        } else if path.contains("/pods/") {
            self.replace(path);
        } else {
            self.touch(path);
        }
    }

    /// Changes the object at `path` so that nothing is different but its version.
    pub(super) fn touch(&self, path: &str) {
        self.merge(path, &json!({"metadata": {"annotations": {"soak.dragoman.dev/overtaken": ""}}}));
    }

    /// Replaces a Pod by a new one with the same name and spec.
    fn replace(&self, path: &str) {
        let mut pod = self.get(path);
        if pod["kind"] != "Pod" {
            return;
        }
        let (name, annotations) = (pod["metadata"]["name"].take(), pod["metadata"]["annotations"].take());
        pod["metadata"] = json!({"name": name, "annotations": annotations});
        pod["status"] = Value::Null;
        if let Some(spec) = pod["spec"].as_object_mut() {
            spec.remove("nodeName");
        }
        self.delete_at_once(path);
        self.create(PODS, &pod);
    }

    fn set_names(&self, pod: &str, names: &Value) {
        self.merge(&format!("{pod}/status"), &json!({"status": {"resourceClaimStatuses": names}}));
    }

    fn first_claim_of(&self, pod: &str) -> Option<String> {
        let pod = self.get(pod);
        let first = pod.pointer("/status/resourceClaimStatuses/0/resourceClaimName")?;
        first.as_str().map(str::to_owned)
    }

    /// Appends up to `consumers` foreign consumers within the limit of the API. Existing entries are kept.
    fn lend(&self, claim: &str, consumers: usize) {
        let there = self.get(claim);
        let of_groups = |number: usize| {
            json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups",
                "name": format!("group-{number}"), "uid": format!("group-{number}")})
        };
        let known = there["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        let mut all = known.clone();
        for number in known.len()..MOST_CONSUMERS.min(known.len() + consumers) {
            // While PodGroups are served, the controller knows that these PodGroups do not exist.
            all.push(if self.groups { objects::unknown_consumer(number) } else { of_groups(number) });
        }
        let status = format!("{claim}/status");
        if !known.is_empty() {
            // The test operation refuses the patch if the reservations have changed meanwhile.
            let test = json!({"op": "test", "path": "/status/reservedFor", "value": known});
            let patch = json!([test, {"op": "replace", "path": "/status/reservedFor", "value": all}]);
            self.ask(Method::PATCH, &status, "application/json-patch+json", &patch);
        } else if there["kind"] == "ResourceClaim" && there["status"]["allocation"].is_null() {
            let device = there["metadata"]["name"].as_str().unwrap_or_default();
            self.merge(&status, &objects::foreign_device(device, "node-0", &all));
        }
    }

    /// Allocates the first free claim of a Pod, if the Pod can use it.
    fn allot(&self, pod: &str) {
        let pod = self.get(pod);
        let can_use = matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Running"))
            && pod["metadata"]["deletionTimestamp"].is_null();
        let is_free = |claim: &Value| {
            claim["kind"] == "ResourceClaim"
                && claim["metadata"]["deletionTimestamp"].is_null()
                && claim["status"]["allocation"].is_null()
        };
        let entries = pod["spec"]["resourceClaims"].as_array().into_iter().flatten();
        let mut claims = entries
            .filter_map(|entry| claim_name(&pod, entry))
            .map(|name| format!("{}/{name}", path(CLAIMS, self.namespace)));
        if let Some(claim) = claims.find(|claim| can_use && is_free(&self.get(claim))) {
            // A device of its own for every claim: this allocator promises none twice.
            let device = claim.rsplit('/').next().unwrap_or_default();
            let allocation = objects::foreign_device(device, "node-0", &[objects::pod_consumer(&pod)]);
            self.merge(&format!("{claim}/status"), &allocation);
        }
    }
}

/// A claim with everything that a user can write of a generated one.
fn forged(pod: &str) -> Value {
    let mut claim = objects::claim(&format!("{}-entry-0-forgd", pod.split('.').next().unwrap_or(pod)));
    claim["metadata"]["annotations"] = json!({"resource.kubernetes.io/pod-claim-name": "entry-0"});
    claim["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": format!("never-was-{pod}"), "controller": true}]);
    claim
}

/// A template with labels and annotations for its claims.
fn template(name: &str) -> Value {
    let mut template = objects::template(name);
    template["spec"]["metadata"] = json!({
        "labels": {"soak.dragoman.dev/template": name},
        "annotations": {"soak.dragoman.dev/template": name},
    });
    template
}
