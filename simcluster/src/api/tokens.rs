//! Authentication by bearer tokens that this server issues.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::json;
use tokio_rustls::rustls::crypto::ring;

use super::body::{dry_run, json_body};
use super::status::Status;
use super::{Answer, ApiServer, Body, State, Target, User, meta};

/// Users by token, with the uid of the service account if the token belongs to one.
pub(super) type Tokens = BTreeMap<String, (User, Option<String>)>;

/// The bytes of a token: 128 random bits.
const TOKEN: usize = 16;
/// The lifetime of a token without `expirationSeconds`.
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// Draws a token. It is a secret and therefore not drawn from the seeded generator.
fn secret() -> Option<String> {
    let mut secret = [0; TOKEN];
    ring::default_provider().secure_random.fill(&mut secret).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(secret)))
}

impl ApiServer {
    /// Issues a token for `user`, or `None` if the system provides no random numbers.
    pub(crate) fn token(&self, user: User) -> Option<String> {
        let token = secret()?;
        self.state().tokens.insert(token.clone(), (user, None));
        Some(token)
    }

    /// Returns the user of a token. A token is invalid once its service account is removed.
    pub(crate) fn bearer(&self, token: &str) -> Option<User> {
        let state = self.state();
        let (user, account) = state.tokens.get(token)?;
        let there = account.as_ref().is_none_or(|uid| state.store.by_uid(uid).is_some());
        there.then(|| user.clone())
    }
}

impl State {
    /// Issues a token for a service account. Expiry is not simulated: the token is valid until the account is
    /// removed.
    pub(super) fn issue(&mut self, target: &Target<'_>) -> Result<Answer, Status> {
        let account = self.current(target)?;
        let mut request = json_body(target)?;
        if meta::items(&request["spec"]["audiences"]).next().is_some() {
            return Err(Status::not_simulated("tokens for others than the API server"));
        }
        let (namespace, name) = meta::name_of(&account);
        let user = User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")],
        };
        let token = secret().ok_or_else(|| Status::internal("there are no random numbers"))?;
        let seconds = request["spec"]["expirationSeconds"].as_i64();
        let lasts = seconds.map_or(HOUR, SignedDuration::from_secs);
        let now: Option<jiff::Timestamp> = target.now.parse().ok();
        let end = now.and_then(|now| now.checked_add(lasts).ok());
        meta::set(&mut request, "name", json!(name));
        meta::set(&mut request, "namespace", json!(namespace));
        meta::set(&mut request, "creationTimestamp", json!(target.now));
        let status = json!({"token": token, "expirationTimestamp": end.map(|end| end.to_string())});
        meta::put(&mut request, &["status"], status);
        if !dry_run(target)? {
            self.tokens.insert(token, (user, Some(meta::text(&account, "uid").to_owned())));
        }
        Ok(Answer { code: 201, body: Body::Json(request) })
    }
}
