//! Who somebody is: tokens that were made up here and are known to nobody else.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::json;
use tokio_rustls::rustls::crypto::ring;

use super::status::Status;
use super::write::json_body;
use super::{Answer, ApiServer, Body, State, Target, User, meta};

/// Tokens and their holders.
pub(super) type Tokens = BTreeMap<String, User>;

/// Bytes of a token: 128 bits that nobody guesses.
const TOKEN: usize = 16;
/// How long a token lasts if nobody says.
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// A new token. Not from the seeded numbers of the simulation: it is a secret.
fn secret() -> Option<String> {
    let mut secret = [0; TOKEN];
    ring::default_provider().secure_random.fill(&mut secret).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(secret)))
}

impl ApiServer {
    /// A new token for `user`; none where there are no random numbers.
    pub(crate) fn token(&self, user: User) -> Option<String> {
        let token = secret()?;
        self.state().tokens.insert(token.clone(), user);
        Some(token)
    }

    /// Whose token that is.
    pub(crate) fn bearer(&self, token: &str) -> Option<User> {
        self.state().tokens.get(token).cloned()
    }
}

impl State {
    /// A token for a service account. It does not end by itself: this cluster ends before it.
    pub(super) fn issue(&mut self, target: &Target<'_>) -> Result<Answer, Status> {
        let account = self.current(target)?;
        let mut request = json_body(target)?;
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
        self.tokens.insert(token, user);
        Ok(Answer { code: 201, body: Body::Json(request) })
    }
}
