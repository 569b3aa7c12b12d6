//! Authorization by RBAC. Roles and bindings are ordinary objects, read at each request. The default roles of
//! a cluster do not exist as objects; their grants to every authenticated user (discovery and reviews of
//! one's own permissions) are built in.

use http::Method;
use serde_json::{Value, json};

use super::body::{json_body, manager};
use super::meta::{self, items};
use super::request::Place;
use super::status::Status;
use super::{Answer, Body, Request, State, Target, User};
use crate::patch::{Owners, lists_of};

/// Members of this group may do everything, without a role.
const MASTERS: &str = "system:masters";
/// Every authenticated user is a member of this group.
const AUTHENTICATED: &str = "system:authenticated";
/// The prefix of the user names of service accounts; namespace and name follow.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// The paths that every authenticated user may read.
const OPEN: [&str; 14] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/readyz/*",
    "/livez/*",
    "/healthz/*",
    "/version",
    "/version/",
];

/// A request that RBAC refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The user.
    pub user: String,
    /// The verb.
    pub verb: String,
    /// The plural, followed by a slash and the subresource if there is one.
    pub resource: String,
    /// The namespace; empty for cluster-scoped requests.
    pub namespace: String,
    /// The name of the object, if the path contains one.
    pub name: String,
}

/// The number of refused requests that are kept.
const REFUSED: usize = 1000;

/// The attributes of a request to a resource, as RBAC sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RequestAttributes {
    pub(super) verb: String,
    pub(super) group: String,
    /// The plural.
    pub(super) resource: String,
    pub(super) subresource: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl RequestAttributes {
    /// Returns the attributes of a request, or `None` for a path that is not a resource.
    fn of(place: &Place, request: &Request) -> Option<Self> {
        let Place::Resource { group, namespace, plural, name, subresource, .. } = place else { return None };
        let watches = request.query.is_on("watch");
        // A list with a field selector for one name is authorized as a request for that object.
        let reads = request.method == Method::GET && name.is_none();
        let chosen = request.query.get("fieldSelector").strip_prefix("metadata.name=").filter(|_| reads);
        let chosen = chosen.map(|name| name.trim_start_matches('=')).filter(|name| !name.contains(','));
        let chosen = chosen.map(str::to_owned);
        let verb = match (&request.method, name) {
            (&Method::GET, _) if watches => "watch",
            (&Method::GET, Some(_)) => "get",
            (&Method::GET, None) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, Some(_)) => "delete",
            (&Method::DELETE, None) => "deletecollection",
            _ => "",
        };
        // The namespace of a Namespace object is the object itself.
        let itself = || name.clone().filter(|_| plural == "namespaces" && group.is_empty());
        Some(Self {
            verb: verb.to_owned(),
            group: group.clone(),
            resource: plural.clone(),
            subresource: subresource.clone().unwrap_or_default(),
            namespace: namespace.clone().or_else(itself).unwrap_or_default(),
            name: name.clone().or(chosen).unwrap_or_default(),
        })
    }

    /// Reads the `resourceAttributes` of an access review.
    pub(super) fn asked(attributes: &Value) -> Self {
        let text = |field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
        Self {
            verb: text("verb"),
            group: text("group"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
        }
    }

    /// Returns the resource in the spelling of RBAC rules.
    fn spelled(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    fn allowed_by(&self, rule: &Value) -> bool {
        let spelled = self.spelled();
        let any_subresource = format!("*/{}", self.subresource);
        let resource = |one: &str| {
            one == "*" || one == spelled || (!self.subresource.is_empty() && one == any_subresource)
        };
        let named =
            items(&rule["resourceNames"]).count() == 0 || has(&rule["resourceNames"], |n| n == self.name);
        has(&rule["verbs"], |verb| verb == "*" || verb == self.verb)
            && has(&rule["apiGroups"], |group| group == "*" || group == self.group)
            && has(&rule["resources"], resource)
            && named
    }

    /// Returns the 403 status for `user`; `why` is appended to the message.
    pub(super) fn refused(&self, user: &User, why: &str) -> Status {
        let place = if self.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", self.namespace)
        };
        let what = format!(
            "User {:?} cannot {} resource {:?} in API group {:?} {place}{why}",
            user.name,
            self.verb,
            self.spelled(),
            self.group
        );
        Status::forbidden_to(&self.group, &self.resource, &self.name, &what)
    }
}

fn has(list: &Value, fits: impl Fn(&str) -> bool) -> bool {
    items(list).filter_map(Value::as_str).any(fits)
}

impl Target<'_> {
    /// Returns the attributes of the target, without a verb.
    pub(super) fn attributes(&self) -> RequestAttributes {
        RequestAttributes {
            group: self.resource.group.clone(),
            resource: self.resource.plural.clone(),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone().unwrap_or_default(),
            name: self.name.clone().unwrap_or_default(),
            ..RequestAttributes::default()
        }
    }
}

impl User {
    fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }

    /// Returns namespace and name, if the user is a service account.
    fn account(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')
    }

    fn is_in(&self, group: &str) -> bool {
        let accounts = self.account().is_some_and(|(namespace, _)| {
            group.strip_prefix("system:serviceaccounts").is_some_and(|rest| {
                rest.is_empty() || rest.strip_prefix(':').is_some_and(|of| of == namespace)
            })
        });
        group == AUTHENTICATED || accounts || self.groups.iter().any(|own| own == group)
    }

    /// Returns the subject as an access review words it, if the subject of a binding in `namespace` includes
    /// this user.
    fn is_subject(&self, subject: &Value, namespace: &str) -> Option<String> {
        let name = subject["name"].as_str()?;
        match subject["kind"].as_str()? {
            "User" => (name == self.name).then(|| format!("User {name:?}")),
            "Group" => self.is_in(name).then(|| format!("Group {name:?}")),
            "ServiceAccount" => {
                let of = subject["namespace"].as_str().filter(|of| !of.is_empty()).unwrap_or(namespace);
                (self.account() == Some((of, name)))
                    .then(|| format!("ServiceAccount {:?}", format!("{name}/{of}")))
            }
            _ => None,
        }
    }
}

/// A rule that applies to a user, with the binding that grants it.
struct Held<'a> {
    rule: &'a Value,
    by: String,
}

impl State {
    /// Authorizes a request, and records a refusal.
    ///
    /// # Errors
    /// The user lacks the permission.
    pub(super) fn authorize(&mut self, place: &Place, request: &Request) -> Result<(), Status> {
        let user = &request.user;
        if user.is_master() {
            return Ok(());
        }
        let Some(attributes) = RequestAttributes::of(place, request) else {
            return self.authorize_path(user, request);
        };
        let outcome = self.require(user, &attributes);
        if outcome.is_err() {
            self.remember_refused(user, attributes);
        }
        outcome
    }

    pub(super) fn remember_refused(&mut self, user: &User, attributes: RequestAttributes) {
        if self.refused.len() == REFUSED {
            self.refused.pop_front();
        }
        let resource = attributes.spelled();
        let RequestAttributes { verb, namespace, name, .. } = attributes;
        self.refused.push_back(Refused { user: user.name.clone(), verb, resource, namespace, name });
    }

    /// Checks one permission of `user`.
    ///
    /// # Errors
    /// `user` lacks the permission.
    pub(super) fn require(&self, user: &User, attributes: &RequestAttributes) -> Result<(), Status> {
        self.allows(user, attributes).map(|_| ()).map_err(|why| attributes.refused(user, &why))
    }

    /// Returns the reason why `user` has a permission, as an access review words it. It is empty for built-in
    /// permissions.
    ///
    /// # Errors
    /// `user` lacks the permission. The text names missing roles of bindings, and is empty if there are none.
    pub(super) fn allows(&self, user: &User, attributes: &RequestAttributes) -> Result<String, String> {
        if user.is_master() || is_about_oneself(attributes) {
            return Ok(String::new());
        }
        let (held, dangling) = self.held(user, &attributes.namespace);
        match held.into_iter().find(|held| attributes.allowed_by(held.rule)) {
            Some(held) => Ok(format!("RBAC: allowed by {}", held.by)),
            None if dangling.is_empty() => Err(String::new()),
            None => Err(format!(": RBAC: {}", wrong(&dangling))),
        }
    }

    fn authorize_path(&self, user: &User, request: &Request) -> Result<(), Status> {
        let verb = request.method.as_str().to_lowercase();
        if self.allows_path(user, &verb, &request.path) {
            return Ok(());
        }
        Err(Status::forbidden_path(&format!("User {:?} cannot {verb} path {:?}", user.name, request.path)))
    }

    /// Whether `user` may use `verb` on a path that is not a resource.
    pub(super) fn allows_path(&self, user: &User, verb: &str, path: &str) -> bool {
        let covers = |pattern: &str| match pattern.strip_suffix('*') {
            Some(stem) => path.starts_with(stem),
            None => path == pattern,
        };
        let (held, _) = self.held(user, "");
        let by_rule = |held: &Held<'_>| {
            has(&held.rule["verbs"], |one| one == "*" || one == verb)
                && has(&held.rule["nonResourceURLs"], covers)
        };
        user.is_master() || (verb == "get" && OPEN.into_iter().any(covers)) || held.iter().any(by_rule)
    }

    /// Returns the rules that apply to `user` in a namespace (empty for cluster scope), and the missing roles
    /// of its bindings.
    fn held(&self, user: &User, namespace: &str) -> (Vec<Held<'_>>, Vec<String>) {
        let (mut held, mut dangling) = (Vec::new(), Vec::new());
        let cluster = self.store.list("clusterrolebindings.rbac.authorization.k8s.io", None);
        let local = self.store.list("rolebindings.rbac.authorization.k8s.io", Some(namespace));
        let local = local.filter(|_| !namespace.is_empty());
        for (_, binding) in cluster.chain(local) {
            let home = meta::text(binding, "namespace");
            let mut subjects = items(&binding["subjects"]);
            let Some(whom) = subjects.find_map(|s| user.is_subject(s, home)) else { continue };
            let (kind, role) = (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]);
            let (kind, role) = (kind.as_str().unwrap_or_default(), role.as_str().unwrap_or_default());
            let (kept, of) = if kind == "Role" { ("roles", home) } else { ("clusterroles", "") };
            let at = (of.to_owned(), role.to_owned());
            let Some(found) = self.store.get(&format!("{kept}.rbac.authorization.k8s.io"), &at) else {
                dangling
                    .push(format!("{}.rbac.authorization.k8s.io {role:?} not found", kind.to_lowercase()));
                continue;
            };
            let name = meta::text(binding, "name");
            let name = if home.is_empty() { name.to_owned() } else { format!("{name}/{home}") };
            let binding = binding["kind"].as_str().unwrap_or_default();
            let by = format!("{binding} {name:?} of {kind} {role:?} to {whom}");
            held.extend(items(&found["rules"]).map(|rule| Held { rule, by: by.clone() }));
        }
        (held, dangling)
    }

    /// Returns the rules that apply to `user` in a namespace, as the status of a `SelfSubjectRulesReview`.
    pub(super) fn rules(&self, user: &User, namespace: &str) -> Value {
        if user.is_master() {
            return json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}], "incomplete": false,
            });
        }
        let (held, _) = self.held(user, namespace);
        let (paths, resources): (Vec<_>, Vec<_>) = held
            .into_iter()
            .map(|held| held.rule.clone())
            .partition(|rule| !rule["nonResourceURLs"].is_null());
        let [oneself, name] = [
            ("authorization.k8s.io", &["selfsubjectaccessreviews", "selfsubjectrulesreviews"][..]),
            ("authentication.k8s.io", &["selfsubjectreviews"]),
        ]
        .map(|(group, reviews)| json!({"verbs": ["create"], "apiGroups": [group], "resources": reviews}));
        let resources: Vec<Value> = [oneself, name].into_iter().chain(resources).collect();
        let open = json!({"verbs": ["get"], "nonResourceURLs": OPEN});
        let paths: Vec<Value> = std::iter::once(open).chain(paths).collect();
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
    }

    /// Returns the user that `request` impersonates.
    ///
    /// # Errors
    /// The impersonation is malformed or not simulated, or the caller lacks the `impersonate` permission.
    pub(super) fn speaks_for(&self, request: &Request) -> Result<Option<User>, Status> {
        let Some(other) = &request.impersonated else { return Ok(None) };
        if other.name.is_empty() {
            let why = "impersonation needs a user; simcluster simulates it for users and groups only";
            return Err(Status::bad_request(why));
        }
        let impersonate = |resource: &str, namespace: &str, name: &str| RequestAttributes {
            verb: "impersonate".to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..RequestAttributes::default()
        };
        let whom = match other.account() {
            Some((namespace, name)) => impersonate("serviceaccounts", namespace, name),
            None => impersonate("users", "", &other.name),
        };
        self.require(&request.user, &whom)?;
        for group in &other.groups {
            self.require(&request.user, &impersonate("groups", "", group))?;
        }
        Ok(Some(other.clone()))
    }
}

/// Whether the request is a review of the caller's own permissions or name, which is always allowed.
fn is_about_oneself(attributes: &RequestAttributes) -> bool {
    attributes.verb == "create"
        && matches!(
            (&*attributes.group, &*attributes.resource),
            ("authorization.k8s.io", "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
                | ("authentication.k8s.io", "selfsubjectreviews")
        )
}

fn wrong(dangling: &[String]) -> String {
    match dangling {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Answers a review of the caller's own permissions or name.
///
/// # Errors
/// The method is not POST, or the body cannot be read.
pub(super) fn review(state: &State, target: &Target<'_>) -> Result<Answer, Status> {
    if target.request.method != http::Method::POST {
        return Err(Status::method_not_allowed());
    }
    let mut review = json_body(target)?;
    let user = &target.request.user;
    let spec = &review["spec"];
    let status = match &*target.resource.kind {
        "SelfSubjectReview" => json!({"userInfo": {"username": user.name, "groups": user.groups}}),
        "SelfSubjectAccessReview" if !spec["nonResourceAttributes"].is_null() => {
            let text = |field: &str| spec["nonResourceAttributes"][field].as_str().unwrap_or_default();
            json!({"allowed": state.allows_path(user, text("verb"), text("path"))})
        }
        "SelfSubjectAccessReview" => {
            match state.allows(user, &RequestAttributes::asked(&spec["resourceAttributes"])) {
                Ok(by) if by.is_empty() => json!({"allowed": true}),
                Ok(by) => json!({"allowed": true, "reason": by}),
                Err(_) => json!({"allowed": false}),
            }
        }
        _ => state.rules(user, spec["namespace"].as_str().unwrap_or_default()),
    };
    let mut owners = Owners::default();
    let lists = lists_of(&target.resource.kind);
    owners.updated(manager(target, "Update"), &json!({"spec": {}}), &review, &lists, &json!(target.now));
    owners.write(&mut review);
    meta::put(&mut review, &["status"], status);
    meta::put(&mut review, &["apiVersion"], target.resource.api_version().into());
    meta::put(&mut review, &["kind"], json!(target.resource.kind));
    Ok(Answer { code: 201, body: Body::Json(review) })
}
