//! The rights that a part of Dragoman needs, declared beside the code that uses
//! them. The ClusterRoles are rendered from these declarations and the process
//! asks for them at its start.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::api::{Api, Call, decode};
use crate::kind::SELF_SUBJECT_ACCESS_REVIEW;
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

    /// A request was refused by RBAC: says so in [`Rights::check`] at once and makes
    /// [`Rights::keep`] look at all rights again.
    pub fn doubt(&self, refusal: &str) {
        let missing = &mut self.missing().rights;
        // A handful names the problem; the list must not grow with the cluster.
        if missing.len() < 8 && !missing.iter().any(|m| m == refusal) {
            tracing::error!(refusal, "missing right");
            missing.push(refusal.to_owned());
        }
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
                    let rights: Vec<String> = lacking.iter().map(Lacking::to_string).collect();
                    for right in &rights {
                        tracing::error!(right, "missing right");
                    }
                    let complete = rights.is_empty();
                    let mut missing = self.missing();
                    let barred = lacking.iter().any(Lacking::bars).then(Instant::now);
                    *missing = Missing { rights, barred: barred.map(|now| missing.barred.unwrap_or(now)) };
                    drop(missing);
                    if complete {
                        self.doubted.notified().await;
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
                kind: SELF_SUBJECT_ACCESS_REVIEW,
                name: String::new(),
                // A review stores nothing.
                repeatable: true,
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
