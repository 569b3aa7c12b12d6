//! Permission to read the metrics: asked of the API server, as controller-runtime's metrics server does.
//!
//! The bearer token of a request goes to a TokenReview, the user that it belongs to to a
//! SubjectAccessReview for `get` on the URL `/metrics`. The service account needs the ClusterRole
//! `system:auth-delegator` for both.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::locked;
use crate::api::{Api, Call, JSON, decode};
use crate::bounds::{Bucket, Rate, Recent};
use crate::kind::{Kind, SUBJECT_ACCESS_REVIEW, TOKEN_REVIEW};
use crate::refusal::Refusal;

/// Time for which a permission is believed. A scraper comes several times in it.
const ALLOWED: Duration = Duration::from_mins(1);
/// Time for which a refusal is believed: a right that was just given works soon.
const DENIED: Duration = Duration::from_secs(10);
/// Tokens that a generation of [`Recent`] remembers.
const TOKENS: usize = 64;
/// The longest token that is looked at; those of service accounts are a quarter of it.
const LONGEST: usize = 8 * 1024;
/// Questions to the API server: clients that make tokens up must not turn into its load.
const QUESTIONS: Rate = Rate { size: 20.0, per_second: 2.0 };

/// Asks the API server about tokens, and remembers its answers.
pub struct Access {
    api: Api,
    known: Mutex<Known>,
}

struct Known {
    answers: Recent<String, Option<(Instant, StatusCode)>>,
    questions: Bucket,
}

/// A user, as a TokenReview gives it and a SubjectAccessReview takes it.
#[derive(Debug, Deserialize, Serialize)]
struct User {
    #[serde(rename(serialize = "user"), default)]
    username: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: Option<User>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AccessStatus {
    allowed: bool,
}

#[derive(Deserialize)]
struct Review<S> {
    status: S,
}

impl Access {
    /// Knows no token yet.
    pub fn new(api: Api) -> Self {
        let now = Instant::now();
        let known =
            Known { answers: Recent::new(ALLOWED, TOKENS, now), questions: Bucket::full(QUESTIONS, now) };
        Self { api, known: Mutex::new(known) }
    }

    /// Whether the sender of a request may read the metrics.
    ///
    /// # Errors
    /// 401 without a valid token, 403 for a user without the right, 429 when too many unknown tokens
    /// are asked about, 503 when the API server does not answer.
    pub async fn check(&self, headers: &HeaderMap) -> Result<(), StatusCode> {
        let token = bearer(headers).ok_or(StatusCode::UNAUTHORIZED)?;
        let status = if let Some(status) = self.remembered(token)? {
            status
        } else {
            let status = self.ask(token).await.map_err(|error| {
                tracing::warn!(%error, "cannot ask who may read the metrics");
                StatusCode::SERVICE_UNAVAILABLE
            })?;
            self.remember(token, status);
            status
        };
        if status == StatusCode::OK { Ok(()) } else { Err(status) }
    }

    /// The answer about a token, while it is believed.
    ///
    /// # Errors
    /// There is none, and no question may be put now.
    fn remembered(&self, token: &str) -> Result<Option<StatusCode>, StatusCode> {
        let now = Instant::now();
        let mut known = locked(&self.known);
        let answer = known.answers.get(token, now).and_then(|answer| *answer);
        let believed = |(at, status): &(Instant, StatusCode)| {
            let age = if *status == StatusCode::OK { ALLOWED } else { DENIED };
            now.saturating_duration_since(*at) < age
        };
        match answer.filter(believed) {
            Some((_, status)) => Ok(Some(status)),
            None if known.questions.take(QUESTIONS, now) => Ok(None),
            None => Err(StatusCode::TOO_MANY_REQUESTS),
        }
    }

    fn remember(&self, token: &str, status: StatusCode) {
        let now = Instant::now();
        let mut known = locked(&self.known);
        if let Some(answer) = known.answers.entry(&token.to_owned(), now, || None) {
            *answer = Some((now, status));
        }
    }

    async fn ask(&self, token: &str) -> Result<StatusCode, Refusal> {
        let review: Review<TokenStatus> = self.review(TOKEN_REVIEW, json!({"token": token})).await?;
        let (true, Some(user)) = (review.status.authenticated, review.status.user) else {
            return Ok(StatusCode::UNAUTHORIZED);
        };
        let mut question = serde_json::to_value(&user).unwrap_or_default();
        if let Some(question) = question.as_object_mut() {
            let url = json!({"path": "/metrics", "verb": "get"});
            question.insert("nonResourceAttributes".to_owned(), url);
        }
        let review: Review<AccessStatus> = self.review(SUBJECT_ACCESS_REVIEW, question).await?;
        Ok(if review.status.allowed { StatusCode::OK } else { StatusCode::FORBIDDEN })
    }

    async fn review<S: for<'a> Deserialize<'a>>(
        &self,
        kind: Kind,
        spec: Value,
    ) -> Result<Review<S>, Refusal> {
        let body = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "spec": spec});
        let call = Call {
            method: Method::POST,
            body: body.to_string().into_bytes(),
            content_type: "application/json",
            accept: JSON,
            // A review stores nothing.
            ..Call::get(kind, kind.all_path(), "")
        };
        decode(&self.api.send(&call).await?)
    }
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    let usable = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= LONGEST;
    usable.then_some(token)
}

#[cfg(test)]
pub(super) mod tests;
