//! The rights that a part of Dragoman needs, declared beside the code that uses
//! them. The ClusterRoles are rendered from these declarations and the process
//! asks for them at its start.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::api::{Api, Call, JSON, Repeat, decode};
use crate::kind::{SELF_SUBJECT_ACCESS_REVIEW, SELF_SUBJECT_REVIEW};
use crate::refusal::Refusal;

/// Verbs on one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// API group.
    pub group: &'static str,
    /// Plural resource, with `/subresource` where it is one.
    pub resource: &'static str,
    /// Verbs, sorted.
    pub verbs: &'static [&'static str],
    /// Why, for the reader of the ClusterRole.
    pub why: &'static str,
}

/// Where a rule has to hold: everywhere, unless narrowed.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// In this namespace only.
    pub namespace: Option<String>,
    /// For the object of this name only.
    pub name: Option<&'static str>,
}

/// The shortest time between two looks at rights of which none was missing.
const BETWEEN_LOOKS: Duration = Duration::from_secs(10);

/// The rights that a process needs, and which of them it lacks.
pub struct Rights {
    needed: Vec<(Scope, Vec<Rule>)>,
    missing: Mutex<Missing>,
    doubted: Notify,
}

#[derive(Default)]
struct Missing {
    /// In words.
    rights: Vec<String>,
    /// Since when the API server has said that a right to write is missing.
    barred: Option<Instant>,
}

impl Rights {
    /// Needs `needed`; nothing is known to be missing yet.
    pub fn new(needed: Vec<(Scope, Vec<Rule>)>) -> Self {
        Self { needed, missing: Mutex::default(), doubted: Notify::new() }
    }

    /// A request was refused by RBAC, as it seems: makes [`Rights::keep`] look at all rights again.
    /// Only what the API server then says is missing counts in [`Rights::check`]; a text never does.
    pub fn doubt(&self, refusal: &str) {
        tracing::error!(refusal, "missing right");
        self.doubted.notify_one();
    }

    /// Whether nothing is missing.
    ///
    /// # Errors
    /// Names what is.
    pub fn check(&self) -> Result<(), String> {
        let missing = &self.missing().rights;
        if missing.is_empty() { Ok(()) } else { Err(format!("missing rights: {}", missing.join("; "))) }
    }

    /// Since when a right to write has been missing, according to the API server. Events do not
    /// count: without them the work goes on.
    pub fn barred(&self) -> Option<Instant> {
        self.missing().barred
    }

    fn missing(&self) -> MutexGuard<'_, Missing> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for every right at the start and after each doubt, until none is missing.
    pub async fn keep(&self, api: &Api) {
        loop {
            match self.lacking(api).await {
                Ok(lacking) => {
                    let complete = lacking.is_empty();
                    self.found(&lacking);
                    if complete {
                        // A text that is taken for RBAC's by mistake must not cost a look at every
                        // right each time.
                        let rest = sleep(BETWEEN_LOOKS);
                        self.doubted.notified().await;
                        rest.await;
                        // An API server that has just started refuses for a moment.
                        sleep(Duration::from_secs(1)).await;
                        continue;
                    }
                }
                Err(refusal) => tracing::warn!(error = %refusal, "cannot ask for our rights"),
            }
            sleep(Duration::from_secs(5)).await;
        }
    }

    /// Notes what a look at all rights found missing.
    fn found(&self, lacking: &[Lacking]) {
        let rights: Vec<String> = lacking.iter().map(Lacking::to_string).collect();
        for right in &rights {
            tracing::error!(right, "missing right");
        }
        let mut missing = self.missing();
        let barred = lacking.iter().any(Lacking::bars).then(Instant::now);
        *missing = Missing { rights, barred: barred.map(|now| missing.barred.unwrap_or(now)) };
    }

    /// Everything that is missing.
    ///
    /// # Errors
    /// The question could not be put.
    pub async fn ask(&self, api: &Api) -> Result<Vec<String>, Refusal> {
        Ok(self.lacking(api).await?.iter().map(Lacking::to_string).collect())
    }

    async fn lacking(&self, api: &Api) -> Result<Vec<Lacking>, Refusal> {
        let mut lacking = Vec::new();
        for (scope, rules) in &self.needed {
            for rule in rules {
                let verbs = rule.missing(api, scope).await?;
                lacking.extend(verbs.into_iter().map(|verb| Lacking { verb, rule: *rule }));
            }
        }
        Ok(lacking)
    }
}

/// A verb of a rule that we lack.
struct Lacking {
    verb: &'static str,
    rule: Rule,
}

impl Lacking {
    /// Whether work on keys is impossible, or in part so, for want of it.
    fn bars(&self) -> bool {
        !["get", "list", "watch"].contains(&self.verb) && self.rule.resource != "events"
    }
}

impl std::fmt::Display for Lacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.rule)
    }
}

impl Rule {
    /// Asks the API server which verbs of this rule we lack in `scope`. Synthetic
    /// subresources are answered like real ones.
    ///
    /// # Errors
    /// The question could not be put.
    async fn missing(&self, api: &Api, scope: &Scope) -> Result<Vec<&'static str>, Refusal> {
        #[derive(Deserialize)]
        struct Review {
            status: ReviewStatus,
        }
        #[derive(Deserialize)]
        struct ReviewStatus {
            #[serde(default)]
            allowed: bool,
        }
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let mut missing = Vec::new();
        for verb in self.verbs {
            let body = json!({
                "apiVersion": SELF_SUBJECT_ACCESS_REVIEW.api_version(), "kind": SELF_SUBJECT_ACCESS_REVIEW.kind,
                "spec": {"resourceAttributes": {
                    "group": self.group, "resource": resource, "subresource": subresource, "verb": verb,
                    "namespace": scope.namespace, "name": scope.name,
                }},
            });
            let call = Call {
                method: http::Method::POST,
                uri: SELF_SUBJECT_ACCESS_REVIEW.all_path(),
                body: body.to_string().into_bytes(),
                content_type: "application/json",
                accept: JSON,
                kind: SELF_SUBJECT_ACCESS_REVIEW,
                name: String::new(),
                // A review stores nothing.
                repeat: Repeat::Harmless,
            };
            let review: Review = decode(&api.send(&call).await?)?;
            if !review.status.allowed {
                missing.push(*verb);
            }
        }
        Ok(missing)
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.group.is_empty() {
            f.write_str(self.resource)
        } else {
            write!(f, "{} ({})", self.resource, self.group)
        }
    }
}

/// Asks the API server for the name of the user that its requests come from. It is empty where the API server does not
/// say it: before Kubernetes 1.28, or without the right.
///
/// # Errors
/// The question could not be put.
pub async fn user_of(api: &Api) -> Result<String, Refusal> {
    #[derive(Deserialize)]
    struct Review {
        status: ReviewStatus,
    }
    #[derive(Deserialize)]
    struct ReviewStatus {
        #[serde(rename = "userInfo")]
        user: User,
    }
    #[derive(Deserialize)]
    struct User {
        #[serde(default)]
        username: String,
    }
    let kind = SELF_SUBJECT_REVIEW;
    let call = Call {
        method: http::Method::POST,
        uri: kind.all_path(),
        body: json!({"apiVersion": kind.api_version(), "kind": kind.kind}).to_string().into_bytes(),
        content_type: "application/json",
        accept: JSON,
        kind,
        name: String::new(),
        // A review stores nothing.
        repeat: Repeat::Harmless,
    };
    match decode::<Review>(&api.send(&call).await?) {
        Ok(review) => Ok(review.status.user.username),
        Err(Refusal::NotFound | Refusal::Unserved(_) | Refusal::Rbac(_)) => Ok(String::new()),
        Err(refusal) => Err(refusal),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::api::Limits;
    use crate::metrics::ClientMetrics;

    const NEEDED: &[Rule] =
        &[Rule { group: "", resource: "pods/status", verbs: &["patch"], why: "to write" }];

    /// A server that says what `allowed` does; also how often it was asked.
    fn reviewer(allowed: &Arc<AtomicBool>) -> (Api, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let (allowed, count) = (Arc::clone(allowed), Arc::clone(&asked));
        let service = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let answer = json!({"status": {"allowed": allowed.load(Ordering::Relaxed)}});
            async move { Ok::<_, std::io::Error>(Response::new(Body::from(answer.to_string().into_bytes()))) }
        });
        let metrics = ClientMetrics::register(&mut Registry::default(), "server");
        (Api::new(kube::Client::new(service, "default"), Limits::default(), metrics), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_review_makes_a_right_missing() {
        let allowed = Arc::new(AtomicBool::new(true));
        let (api, asked) = reviewer(&allowed);
        let rights = Arc::new(Rights::new(vec![(Scope::default(), NEEDED.to_vec())]));
        let kept = Arc::clone(&rights);
        tokio::spawn(async move { kept.keep(&api).await });
        for _ in 0..60 {
            sleep(Duration::from_secs(1)).await;
            rights.doubt("GPUs cannot be claimed in this namespace");
            assert_eq!((rights.check(), rights.barred()), (Ok(()), None));
        }
        let looks = asked.load(Ordering::Relaxed);
        assert!((3..=7).contains(&looks), "{looks} looks in a minute");
        allowed.store(false, Ordering::Relaxed);
        sleep(Duration::from_secs(15)).await;
        assert_eq!(rights.check(), Err("missing rights: patch pods/status".to_owned()));
        // Since it was first found missing.
        let since = rights.barred().expect("missing");
        sleep(Duration::from_secs(30)).await;
        assert_eq!(rights.barred(), Some(since));
        allowed.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(6)).await;
        assert_eq!((rights.check(), rights.barred()), (Ok(()), None));
    }
}
