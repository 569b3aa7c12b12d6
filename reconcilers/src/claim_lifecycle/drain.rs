//! Decision of `dragoman drain` about a claim: the pure part.

use dragoman_machinery::kind::RESOURCE_CLAIM;
use dragoman_machinery::write::{Action, Guard, Write};
use dragoman_objects as objects;
use serde_json::json;

use super::facts::ClaimFacts;

/// A claim to be judged.
#[derive(Debug)]
pub struct Claim {
    namespace: String,
    name: String,
    uid: String,
    facts: ClaimFacts,
}

impl From<objects::ResourceClaim> for Claim {
    fn from(claim: objects::ResourceClaim) -> Self {
        Self {
            namespace: claim.metadata.namespace.to_string(),
            name: claim.metadata.name.to_string(),
            uid: claim.metadata.uid.to_string(),
            facts: ClaimFacts::from(&claim),
        }
    }
}

/// Action of `dragoman drain` on a claim.
#[derive(Debug, PartialEq)]
pub enum DrainAction {
    /// The claim carries no delete-protection finalizer.
    Unprotected,
    /// The claim is allocated or reserved; the text names its consumers.
    Held(String),
    /// Nothing holds it: this write removes the finalizer.
    Free(Box<Write>),
}

/// Judges a claim.
pub fn action(claim: &Claim) -> DrainAction {
    let facts = &claim.facts;
    if facts.allocated || !facts.reserved.is_empty() {
        let consumers: Vec<_> = facts.reserved.iter().map(|c| format!("{} {}", c.resource, c.name)).collect();
        let state = if facts.allocated { "allocated" } else { "not allocated" };
        let by = if consumers.is_empty() { "no consumer".to_owned() } else { consumers.join(", ") };
        return DrainAction::Held(format!("{state}, reserved for {by}"));
    }
    let Some(position) = facts.protection() else { return DrainAction::Unprotected };
    let action = Action::Patch {
        subresource: None,
        guard: Guard { uid: claim.uid.clone(), resource_version: facts.version.to_string() },
        operations: vec![json!({"op": "remove", "path": format!("/metadata/finalizers/{position}")})],
    };
    let (namespace, name) = (claim.namespace.clone(), claim.name.clone());
    DrainAction::Free(Box::new(Write::new(RESOURCE_CLAIM, namespace, name, action)))
}
