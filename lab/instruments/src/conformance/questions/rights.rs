//! Questions about rights: roles, bindings, and the rights that single fields need.

use serde_json::{Value, json};

use super::{APPLY, CLAIMS, CONFIG_MAPS, Chapter, JSON_PATCH, MERGE, PODS, Question, Writer, config_map};
use crate::conformance::Until;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/c/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/c/rolebindings";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const CLUSTER_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

fn role(kind: &str, name: &str, rules: Value) -> Value {
    let mut role =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
    role["rules"] = rules;
    role
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

fn binding(kind: &str, name: &str, (role_kind, role): (&str, &str), subject: Value) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role});
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "roleRef": role,
    });
    binding["subjects"] = Value::Array(vec![subject]);
    binding
}

fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}

fn review(attributes: Value) -> Value {
    let mut review =
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}});
    review["spec"]["resourceAttributes"] = attributes;
    review
}

impl Question {
    /// Asks as this user.
    fn by(&mut self, user: &'static str) -> &mut Self {
        self.user = Some(user);
        self
    }
}

/// Creates the objects, roles and bindings of the chapter, and waits until they are in force.
fn populate(w: &mut Writer) {
    w.namespace();
    w.post("settings", CONFIG_MAPS, config_map("settings", json!({"a": "b"})));
    let mut named = rule("", "configmaps", &["get", "watch", "list"]);
    named["resourceNames"] = json!(["settings"]);
    let rules = json!([rule("", "pods", &["list"]), named, rule("", "pods/status", &["patch"])]);
    w.post("role", ROLES, role("Role", "reader", rules));
    let bound = binding("RoleBinding", "reader", ("Role", "reader"), user("conformance:reader"));
    w.post("binding", BINDINGS, bound);
    let account = json!({"kind": "ServiceAccount", "name": "worker", "namespace": "worker"});
    w.post("binding of an account", BINDINGS, binding("RoleBinding", "worker", ("Role", "reader"), account));
    w.post(
        "cluster role",
        CLUSTER_ROLES,
        role("ClusterRole", "conformance-nodes", json!([rule("", "nodes", &["*"])])),
    );
    let group = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:worker"});
    let bound = ("ClusterRole", "conformance-nodes");
    w.post(
        "cluster binding",
        CLUSTER_BINDINGS,
        binding("ClusterRoleBinding", "conformance-nodes", bound, group),
    );
    let nowhere = ("Role", "nowhere");
    w.post(
        "binding of nothing",
        BINDINGS,
        binding("RoleBinding", "nowhere", nowhere, user("conformance:lost")),
    );
    // The authorizer learns of roles from a watch.
    w.get("until the role is known", PODS).by("conformance:reader").until = Some(Until::Code(200));
    w.get("until the cluster role is known", "/api/v1/nodes/none")
        .by("system:serviceaccount:worker:worker")
        .until = Some(Until::Code(404));
}

pub(super) fn roles() -> Chapter {
    let mut w = Writer::default();
    populate(&mut w);
    let (reader, stranger, worker) =
        ("conformance:reader", "conformance:stranger", "system:serviceaccount:worker:worker");
    w.get("one of a name", &format!("{CONFIG_MAPS}/settings")).by(reader);
    w.get("one of another name", &format!("{CONFIG_MAPS}/others")).by(reader);
    w.get("all where one may", CONFIG_MAPS).by(reader);
    let chosen = format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dsettings");
    w.get("the one of a name among all", &chosen).by(reader).free = vec!["/metadata"];
    w.get("all Pods everywhere", "/api/v1/pods").by(reader);
    w.get("a watch", &format!("{PODS}?watch=1&timeoutSeconds=1")).by(reader);
    w.post("a new one", CONFIG_MAPS, config_map("new", json!({}))).by(reader);
    w.put("a replaced one", &format!("{CONFIG_MAPS}/settings"), config_map("settings", json!({}))).by(reader);
    w.patch("a patched one", &format!("{CONFIG_MAPS}/settings"), MERGE, json!({})).by(reader);
    w.delete("a deleted one", &format!("{CONFIG_MAPS}/settings"), Value::Null).by(reader);
    w.delete("all deleted", CONFIG_MAPS, Value::Null).by(reader);
    w.patch("the status of nothing", &format!("{PODS}/none/status"), MERGE, json!({})).by(reader);
    w.get("the status, read", &format!("{PODS}/none/status")).by(reader);
    w.post("bound", &format!("{PODS}/none/binding"), json!({})).by(reader);
    w.get("as a stranger", PODS).by(stranger);
    w.get("a namespace", "/api/v1/namespaces/c").by(stranger);
    w.get("what is not served", "/apis/nowhere.example.com/v1/things").by(stranger);
    w.get("a claim", &format!("{CLAIMS}/none")).by(stranger);
    w.get("a role that is not there", PODS).by("conformance:lost");
    w.get("as an account", PODS).by(worker).free = vec!["/metadata"];
    w.get("as a group of accounts", "/api/v1/nodes/none").by(worker);
    for (label, path) in
        [("discovery", "/apis/nowhere.example.com/v1"), ("metrics", "/metrics"), ("logs", "/logs/")]
    {
        w.get(label, path).by(stranger);
    }
    for (label, who) in [("may", reader), ("may not", stranger), ("may all", worker)] {
        let pods = json!({"verb": "list", "resource": "pods", "namespace": "c"});
        w.post(&format!("{label} list Pods"), REVIEWS, review(pods)).by(who);
        let nodes = json!({"verb": "delete", "resource": "nodes", "name": "one"});
        w.post(&format!("{label} delete nodes"), REVIEWS, review(nodes)).by(who);
        let status = json!({"verb": "patch", "resource": "pods", "subresource": "status", "namespace": "c"});
        w.post(&format!("{label} patch a status"), REVIEWS, review(status)).by(who);
    }
    let wrong = binding("ClusterRoleBinding", "wrong", ("Role", "reader"), user(reader));
    w.post("a role of a namespace for all", CLUSTER_BINDINGS, wrong);
    let homeless = json!({"kind": "ServiceAccount", "name": "worker"});
    let wrong = binding("ClusterRoleBinding", "wrong", ("ClusterRole", "conformance-nodes"), homeless);
    w.post("an account of no namespace", CLUSTER_BINDINGS, wrong);
    let other = json!({"roleRef": {"name": "other"}});
    // The message prints the fields as Go names them.
    w.patch("another role", &format!("{BINDINGS}/reader"), MERGE, other).free =
        vec!["/message", "/details/causes/0/message"];
    w.delete("the status, deleted", &format!("{PODS}/none/status"), Value::Null);
    w.put("bound by replacement", &format!("{PODS}/none/binding"), json!({}));
    w.done("roles")
}

fn claim(name: &str) -> Value {
    let exactly = json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1});
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "one", "exactly": exactly}]}},
    })
}

/// The rights that writes of a claim's status need.
pub(super) fn claim_status() -> Chapter {
    let mut w = Writer::default();
    let writer = "conformance:status";
    w.namespace();
    w.post("claim", CLAIMS, claim("a"));
    let group = "resource.k8s.io";
    let status = rule(group, "resourceclaims/status", &["patch", "update"]);
    let rules = json!([status, rule(group, "resourceclaims", &["get", "patch"])]);
    w.post("role", ROLES, role("Role", "status", rules));
    w.post("binding", BINDINGS, binding("RoleBinding", "status", ("Role", "status"), user(writer)));
    let (one, status) = (format!("{CLAIMS}/a"), format!("{CLAIMS}/a/status"));
    w.get("until the role is known", &one).by(writer).until = Some(Until::Code(200));
    let allocation = json!({"devices": {}});
    w.patch("allocation", &status, MERGE, json!({"status": {"allocation": allocation}})).by(writer);
    let pod = json!({"resource": "pods", "name": "p", "uid": "p"});
    let both = json!({"status": {"allocation": allocation, "reservedFor": [pod]}});
    w.patch("both", &status, MERGE, both.clone()).by(writer);
    w.patch("nothing", &status, MERGE, json!({})).by(writer);
    w.patch("allocated by somebody else", &status, MERGE, both);
    let release = json!([{"op": "remove", "path": "/status/reservedFor"}]);
    w.patch("release", &status, JSON_PATCH, release.clone()).by(writer);
    let allows = || json!([rule(group, "resourceclaims/binding", &["patch"])]);
    let deed =
        json!({"verb": "patch", "resource": "resourceclaims", "group": group, "subresource": "binding"});
    let mut deed_there = deed.clone();
    deed_there["namespace"] = json!("c");
    w.post("role in the namespace", ROLES, role("Role", "binding", allows()));
    let bound = binding("RoleBinding", "in-the-namespace", ("Role", "binding"), user(writer));
    w.post("binding in the namespace", BINDINGS, bound);
    w.post("may there", REVIEWS, review(deed_there)).by(writer).until = Some(Until::Has("/status/reason"));
    w.patch("release, with a right in the namespace", &status, JSON_PATCH, release.clone()).by(writer);
    let name = "conformance-status";
    w.post("role everywhere", CLUSTER_ROLES, role("ClusterRole", name, allows()));
    let bound = binding("ClusterRoleBinding", name, ("ClusterRole", name), user(writer));
    w.post("binding everywhere", CLUSTER_BINDINGS, bound);
    w.post("may everywhere", REVIEWS, review(deed)).by(writer).until = Some(Until::Has("/status/reason"));
    w.patch("release, with the right", &status, JSON_PATCH, release).by(writer);
    let applied = format!("{CLAIMS}/new?fieldManager=me");
    w.patch("applied, but not there", &applied, APPLY, claim("new")).by(writer);
    w.done("claim-status-rights")
}
