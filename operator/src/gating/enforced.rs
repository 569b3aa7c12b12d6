//! Whether the API server enforces the policies: it learns of them from a watch of its own, a moment after it has stored
//! them. Each policy is asked by a write without effect (a dry run) that it must refuse, in a namespace made for that.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use dragoman_crds::protocol::GATE;
use dragoman_machinery::api::{Api, Call, JSON, Repeat, decode};
use dragoman_machinery::kind::{
    CLAIM_GATE, DRIVER_OWNER, Kind, NAMESPACE, POD, RESOURCE_CLAIM, ROLE, ROLE_BINDING,
};
use dragoman_machinery::refusal::Refusal;
use dragoman_objects::Meta;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(200);
/// The name of the objects of a question, and the user name under which questions about tenants are asked.
const NAME: &str = "dragoman-gating-probe";
/// The label of the namespace, by which one is found that an interrupted run has left.
const OF_PROBES: (&str, &str) = ("app.kubernetes.io/managed-by", "dragoman-gating");

/// The user name under which questions about tenants are asked. It has rights in the namespace of the probes alone.
pub(super) const TENANT: &str = NAME;

/// The user name of kube-scheduler in the roles that every API server makes.
pub(super) const SCHEDULER: &str = "system:kube-scheduler";

/// The user under whose name a question is asked.
#[derive(Debug, Clone, Copy)]
enum Asker {
    /// A user who may write Pods and claims of the namespace.
    Tenant,
    /// The operator, with the same rights there.
    Operator,
    /// kube-scheduler, with the rights that it has: those to allocate cannot be given for one namespace.
    Scheduler,
}

/// A write that a policy must refuse, or change.
struct Question {
    policy: &'static str,
    asker: Asker,
    method: Method,
    kind: Kind,
    /// The object and a subresource; a creation has none.
    object: Option<(&'static str, Option<&'static str>)>,
    /// A merge patch, or the object to create.
    body: Value,
    /// The words of the refusal; none where the policy changes what is created.
    words: Option<&'static str>,
    /// The words of another refusal, after which there is nothing for the policy to refuse.
    moot: Option<&'static str>,
}

/// Object, or a subresource of it, that a patch is about.
#[derive(Debug, Clone, Copy)]
struct Target {
    kind: Kind,
    subresource: Option<&'static str>,
}

impl Target {
    const POD: Self = Self { kind: POD, subresource: None };
    const CLAIM: Self = Self { kind: RESOURCE_CLAIM, subresource: None };

    fn part(self, subresource: &'static str) -> Self {
        Self { subresource: Some(subresource), ..self }
    }
}

impl Question {
    /// A patch that must be refused in these words.
    fn patch(policy: &'static str, asker: Asker, target: Target, body: Value, words: &'static str) -> Self {
        let Target { kind, subresource } = target;
        let (object, words) = (Some((NAME, subresource)), Some(words));
        Self { policy, asker, method: Method::PATCH, kind, object, body, words, moot: None }
    }

    /// The creation of a Pod, which must be refused in these words, or changed.
    fn creation(policy: &'static str, asker: Asker, words: Option<&'static str>) -> Self {
        let body = pod(ANOTHER, &[HOLD], None);
        Self { policy, asker, method: Method::POST, kind: POD, object: None, body, words, moot: None }
    }
}

/// A question for every policy that is shipped. `owned` is the name of the ClaimGate and the
/// DriverOwner of this run.
fn questions(owned: &str) -> Vec<Question> {
    of_tenants(owned).into_iter().chain(of_the_operator()).collect()
}

/// Those about what tenants may not do, and kube-scheduler with the devices of others.
fn of_tenants(owned: &str) -> [Question; 6] {
    let gate = json!({"spec": {"schedulingGates": [{"name": HOLD}]}});
    let of_an_owner =
        json!({"metadata": {"annotations": {format!("release-gates.dragoman.dev/{owned}"): "closed"}}});
    let class = Some("is for the holder Pods of Dragoman");
    [
        Question::creation("dragoman-gate", Asker::Tenant, None),
        Question {
            body: placed(pod(ANOTHER, &[], None)),
            ..Question::creation(
                "dragoman-gate-bypassed",
                Asker::Tenant,
                Some("names no node where gating is enforced"),
            )
        },
        Question::patch("dragoman-gate-enforced", Asker::Tenant, Target::POD, gate, "taken off by Dragoman"),
        Question::patch(
            "dragoman-gate-owners",
            Asker::Tenant,
            Target::CLAIM,
            of_an_owner,
            "added and removed by the owners",
        ),
        Question::patch(
            "dragoman-driver-owners",
            Asker::Scheduler,
            Target::CLAIM.part("status"),
            allocation(owned),
            "are allocated and deallocated by",
        ),
        Question {
            body: pod(ANOTHER, &[HOLD], Some("dragoman-holder")),
            moot: Some("no PriorityClass with name dragoman-holder"),
            ..Question::creation("dragoman-holder-class", Asker::Tenant, class)
        },
    ]
}

/// Those about what the operator may not do.
fn of_the_operator() -> [Question; 7] {
    let asker = Asker::Operator;
    let labels = || json!({"metadata": {"labels": {"dragoman.dev/probe": "true"}}});
    let other_pods = "deletes and resizes holder Pods and no other Pod";
    [
        Question::patch("dragoman-operator-pods", asker, Target::POD, labels(), "changes no labels"),
        Question::patch(
            "dragoman-operator-pod-status",
            asker,
            Target::POD.part("status"),
            labels(),
            "no metadata of a Pod",
        ),
        Question::patch("dragoman-operator-claims", asker, Target::CLAIM, labels(), "changes no other label"),
        Question::patch(
            "dragoman-operator-allocations",
            asker,
            Target::CLAIM.part("status"),
            allocation("probe.dragoman.dev"),
            "makes none",
        ),
        Question::creation(
            "dragoman-operator-holders",
            asker,
            Some("creates holder Pods in its own namespace"),
        ),
        Question::patch(
            "dragoman-operator-other-pods",
            asker,
            Target::POD.part("resize"),
            json!({}),
            other_pods,
        ),
        Question {
            method: Method::DELETE,
            ..Question::patch(
                "dragoman-operator-unbound",
                asker,
                Target::POD,
                json!({"dryRun": ["All"]}),
                "deletes Pods that kube-scheduler cannot bind",
            )
        },
    ]
}

/// A claim gets a device of a driver.
fn allocation(driver: &str) -> Value {
    json!({"status": {"allocation": {"devices": {"results": [
        {"request": "probe", "driver": driver, "pool": "probe", "device": "probe"}]}}}})
}

/// A gate of the probe, so that its Pod is scheduled in no case.
const HOLD: &str = "dragoman.dev/gating-probe";

/// The name of a Pod that is created without effect.
const ANOTHER: &str = "dragoman-gating-probe-2";

/// The Pod on a node that does not exist. Without a gate, because the API server refuses one beside a node.
fn placed(mut pod: Value) -> Value {
    let spec = pod.get_mut("spec").and_then(Value::as_object_mut);
    spec.map(|spec| spec.insert("nodeName".to_owned(), json!(NAME)));
    pod
}

/// A Pod with these gates. It waits for a claim that does not exist, so that the operator does not open its gate.
fn pod(name: &str, gates: &[&str], class: Option<&str>) -> Value {
    let gates: Vec<Value> = gates.iter().map(|gate| json!({"name": gate})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "schedulingGates": gates,
            "priorityClassName": class.unwrap_or_default(),
            "resourceClaims": [{"name": "probe", "resourceClaimName": "missing"}],
            "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "probe", "image": "none", "securityContext":
                {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
        },
    })
}

/// The clients under whose names questions are asked.
pub(super) struct Askers {
    /// The user who runs the command.
    pub(super) api: Api,
    /// [`TENANT`], impersonated.
    pub(super) tenant: Api,
    /// The operator, impersonated.
    pub(super) operator: Api,
    /// [`SCHEDULER`], impersonated.
    pub(super) scheduler: Api,
    /// The user name of the operator: namespace and service account.
    pub(super) account: (String, String),
}

/// State of the API server that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Every policy refuses its question.
    Enforced,
    /// No policy refuses its question any more.
    Gone,
}

#[derive(Deserialize)]
struct Named {
    metadata: Meta,
}

impl Askers {
    /// Waits until the API server enforces the policies, or none of them.
    ///
    /// # Errors
    /// The user may not make the namespace or impersonate the askers; or `patience` is over.
    pub(super) async fn see(
        &self,
        policies: &[String],
        wanted: Wanted,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let namespace = self.namespace().await?;
        let outcome = self.seen_in(&namespace, policies, wanted, patience).await;
        // Whatever was seen, nothing is left.
        let cleared = self.clear(&namespace).await;
        outcome?;
        cleared
    }

    /// Makes the namespace. An interrupted run leaves its own, which [`OF_PROBES`] finds. Its generated name is that of
    /// the ClaimGate and the DriverOwner, too, so that two runs at once do not remove each other's.
    async fn namespace(&self) -> anyhow::Result<String> {
        let (key, value) = OF_PROBES;
        let labels = json!({key: value, "dragoman.dev/gating": "enforced"});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"generateName": format!("{NAME}-"), "labels": labels}});
        let made =
            create(&self.api, NAMESPACE, "", &namespace).await.context("make a namespace for the probes")?;
        Ok(decode::<Named>(&made)?.metadata.name.to_string())
    }

    async fn clear(&self, namespace: &str) -> anyhow::Result<()> {
        // The Pod at once: it would stand among those that wait, until its namespace is gone.
        let at_once = json!({"gracePeriodSeconds": 0}).to_string();
        for (kind, name, options) in [
            (POD, NAME, at_once.as_str()),
            (CLAIM_GATE, namespace, ""),
            (DRIVER_OWNER, namespace, ""),
            (NAMESPACE, namespace, ""),
        ] {
            let path = kind.object_path(namespace, name, None);
            match ask(&self.api, Method::DELETE, kind, path, name, options.as_bytes().to_vec()).await {
                Ok(_) | Err(Refusal::NotFound | Refusal::Unserved(_)) => {}
                Err(refusal) => return Err(refusal).with_context(|| format!("remove {} {name}", kind.kind)),
            }
        }
        Ok(())
    }

    async fn seen_in(
        &self,
        namespace: &str,
        policies: &[String],
        wanted: Wanted,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let until = Instant::now() + patience;
        self.populate(namespace, until).await?;
        let mut open: Vec<Question> = questions(namespace);
        open.retain(|question| policies.iter().any(|name| name == question.policy));
        let mut last = String::new();
        while !open.is_empty() {
            let mut still = Vec::new();
            for question in open {
                match self.answer(namespace, &question).await? {
                    Seen::Moot => {}
                    Seen::Refused if wanted == Wanted::Enforced => {}
                    Seen::Taken if wanted == Wanted::Gone => {}
                    seen => {
                        last = format!("policy {}: {}", question.policy, seen.in_words());
                        still.push(question);
                    }
                }
            }
            open = still;
            if !open.is_empty() {
                if Instant::now() > until {
                    let what = if wanted == Wanted::Enforced {
                        "enforces the policies"
                    } else {
                        "has forgotten the policies"
                    };
                    bail!("it was not seen in {} s that the API server {what}: {last}", patience.as_secs());
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// Makes what is asked about: rights for the askers, a Pod and a claim; a ClaimGate and a DriverOwner, where the kinds
    /// are served.
    async fn populate(&self, namespace: &str, until: Instant) -> anyhow::Result<()> {
        let verbs = json!(["create", "patch", "update", "delete"]);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": NAME},
        "rules": [
            {"apiGroups": [""], "resources": ["pods", "pods/status", "pods/resize"], "verbs": verbs},
            {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims", "resourceclaims/status", "resourceclaims/binding"], "verbs": verbs},
        ]});
        let (of, account) = &self.account;
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": TENANT},
            {"kind": "ServiceAccount", "namespace": of, "name": account},
        ]});
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": NAME},
            "spec": {"devices": {"requests": [{"name": "probe", "exactly": {"deviceClassName": NAME}}]}}});
        let owned = |kind: Kind| {
            json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": namespace},
                "spec": {"owners": [{"namespace": namespace, "name": NAME}]}})
        };
        for (kind, object) in [
            (ROLE, role),
            (ROLE_BINDING, binding),
            (RESOURCE_CLAIM, claim),
            (CLAIM_GATE, owned(CLAIM_GATE)),
            (DRIVER_OWNER, owned(DRIVER_OWNER)),
        ] {
            match create(&self.api, kind, namespace, &object).await {
                Ok(_) | Err(Refusal::AlreadyExists) => {}
                // Without the kind the policy of owners refuses nothing, and the wait for it says so.
                Err(Refusal::Unserved(_)) if kind.is_own() => {}
                Err(refusal) => return Err(refusal).with_context(|| format!("make {} {NAME}", kind.kind)),
            }
        }
        // A namespace has no service account at once, and without one it takes no Pod.
        loop {
            match create(&self.api, POD, namespace, &pod(NAME, &[GATE, HOLD], None)).await {
                Ok(_) | Err(Refusal::AlreadyExists) => return Ok(()),
                Err(refusal) if Instant::now() > until => {
                    return Err(refusal).context("make a Pod to ask about");
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    async fn answer(&self, namespace: &str, question: &Question) -> anyhow::Result<Seen> {
        let api = match question.asker {
            Asker::Tenant => &self.tenant,
            Asker::Operator => &self.operator,
            Asker::Scheduler => &self.scheduler,
        };
        let (kind, method) = (question.kind, question.method.clone());
        let (path, name) = match question.object {
            Some((name, subresource)) => (kind.object_path(namespace, name, subresource), name),
            None => (kind.collection_path(namespace), ""),
        };
        let body = question.body.to_string().into_bytes();
        let outcome = ask(api, method, kind, format!("{path}?dryRun=All"), name, body).await;
        Ok(match (question.words, outcome) {
            (None, Ok(made)) if is_gated(&made)? => Seen::Refused,
            (_, Ok(_)) => Seen::Taken,
            (Some(words), Err(refusal)) if refusal.to_string().contains(words) => Seen::Refused,
            (_, Err(refusal)) if question.moot.is_some_and(|words| refusal.to_string().contains(words)) => {
                Seen::Moot
            }
            (_, Err(refusal)) => Seen::Otherwise(refusal.to_string()),
        })
    }
}

/// The answer to a question.
enum Seen {
    /// The policy refused or changed it.
    Refused,
    /// The write was taken as it is.
    Taken,
    /// There is nothing to refuse.
    Moot,
    /// The write was refused for another reason: rights come later than the binding that gives them, too.
    Otherwise(String),
}

impl Seen {
    fn in_words(self) -> String {
        match self {
            Self::Refused => "it still refuses".to_owned(),
            Self::Taken => "a write that it must refuse was taken".to_owned(),
            Self::Moot => "there is nothing to refuse".to_owned(),
            Self::Otherwise(why) => why,
        }
    }
}

fn is_gated(made: &[u8]) -> anyhow::Result<bool> {
    let made: Value = decode(made)?;
    let gates = made.pointer("/spec/schedulingGates").and_then(Value::as_array);
    Ok(gates.is_some_and(|gates| gates.iter().any(|gate| gate.get("name").is_some_and(|name| name == GATE))))
}

async fn create(api: &Api, kind: Kind, namespace: &str, object: &Value) -> Result<Vec<u8>, Refusal> {
    ask(api, Method::POST, kind, kind.collection_path(namespace), "", object.to_string().into_bytes()).await
}

async fn ask(
    api: &Api,
    method: Method,
    kind: Kind,
    uri: String,
    name: &str,
    body: Vec<u8>,
) -> Result<Vec<u8>, Refusal> {
    let content_type =
        if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let call = Call {
        method,
        uri,
        body,
        content_type,
        accept: JSON,
        kind,
        name: name.to_owned(),
        repeat: Repeat::Untaken,
    };
    api.send(&call).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gating::policy_names;

    #[test]
    fn every_shipped_policy_has_a_question() {
        let names = policy_names().expect("policies");
        let shipped =
            names.iter().filter(|(kind, _)| !kind.kind.ends_with("Binding")).flat_map(|(_, names)| names);
        let mut shipped: Vec<&str> = shipped.map(String::as_str).collect();
        let mut asked: Vec<&str> = questions(NAME).iter().map(|question| question.policy).collect();
        shipped.sort_unstable();
        asked.sort_unstable();
        assert_eq!(shipped, asked);
    }

    #[test]
    fn the_words_of_a_refusal_are_those_of_the_policy() {
        let text = super::super::MANIFESTS.join("\n");
        for words in questions(NAME).iter().filter_map(|question| question.words) {
            assert!(text.contains(words), "{words}");
        }
    }
}
