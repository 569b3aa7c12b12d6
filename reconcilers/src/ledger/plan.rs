//! The next write about a node: a pure function of its ledger and what is published of it.

use std::time::Duration;

use dragoman_crds::crdgen::{GROUP, VERSION};
use dragoman_crds::node_allocatable_dra_claim_state::{Condition, NodeAllocatableDRAClaimStateStatus};
use dragoman_machinery::backoff::Backoff;
use dragoman_machinery::kind::NODE_ALLOCATABLE_DRA_CLAIM_STATE as STATE;
use dragoman_machinery::times;
use dragoman_machinery::write::{Action, Write};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::content::{ConditionUpdate, NodeReport, OVERCOMMITTED};
use crate::cluster::{Published, fingerprint};

/// The field manager of the status.
pub const MANAGER: &str = "dragoman-ledger";
/// The shortest time between two writes about a node.
pub const COALESCED: Duration = Duration::from_secs(1);
/// Time for which a node without claims keeps its object: claims come and go.
pub const LINGER: Duration = Duration::from_mins(1);

/// A node with what is published of it.
#[derive(Debug)]
pub struct Snapshot<'a> {
    /// Name of the node.
    pub node: &'a str,
    /// The uid of the Node; absent where there is none.
    pub uid: Option<&'a str>,
    /// Content according to the ledger.
    pub content: Option<NodeReport>,
    /// Published object, as it was read back.
    pub published: Option<&'a Published>,
    /// Whether nodes without claims have an object, too.
    pub all: bool,
    /// The last write of its object by this process.
    pub written: Option<Written>,
    /// The last time that this process created the object; `content` is of no meaning.
    pub created: Option<Written>,
    /// Since when this process has seen it without claims.
    pub claimless: Option<Instant>,
    /// Time that conditions which change are given.
    pub time: Timestamp,
}

/// A write of the object of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// When.
    pub at: Instant,
    /// Tells what was written from anything else.
    pub content: u64,
    /// Number of times that the same was written before in a row: what was published did not stay.
    pub again: u32,
}

impl Written {
    /// Notes a write of `content` at `now` after the `last` one.
    pub fn next(last: Option<Self>, content: u64, now: Instant) -> Self {
        let again = last.filter(|last| last.content == content).map_or(0, |last| last.again + 1);
        Self { at: now, content, again }
    }

    /// Whether it is known from now on that another writer changes each time what was written: that is logged, once.
    pub fn is_disputed(self) -> bool {
        self.again == 2
    }
}

/// Next step about a node.
#[derive(Debug, PartialEq)]
pub enum Plan {
    /// Nothing, until something changes.
    Rest,
    /// Look again after this time: nothing is to be written before.
    Wait(Duration),
    /// Something has changed, or may have; it is written after this time.
    Later(Duration),
    /// Create the object.
    Create(Box<Write>),
    /// Delete the object.
    Delete(Box<Write>),
    /// Publish the status.
    Publish {
        /// The write.
        write: Box<Write>,
        /// Tells what is written from anything else.
        content: u64,
        /// The message, where the node has become overcommitted.
        overcommitted: Option<String>,
    },
}

/// Returns the time that the next write about a node has to wait after the last one, `written`, if it has to.
pub fn coalesced(written: Option<Written>, now: Instant) -> Option<Duration> {
    pause(written, COALESCED, now)
}

/// Returns the time that a write of `content` has to wait, if it has to. Content that another writer
/// changes each time is put back ever more slowly: after 1, 2, 4 … 64 seconds.
fn repeated(written: Option<Written>, content: u64, now: Instant) -> Option<Duration> {
    const BACKOFF: Backoff = Backoff::new(COALESCED, Duration::from_secs(64));
    let again = written.filter(|last| last.content == content).map_or(0, |last| last.again + 1);
    pause(written, BACKOFF.pause(again), now)
}

fn pause(written: Option<Written>, period: Duration, now: Instant) -> Option<Duration> {
    times::left(written?.at + period, now)
}

/// Decides the next write about a node at `now`.
pub fn plan(snapshot: Snapshot<'_>, now: Instant) -> Plan {
    let Snapshot { node, uid, content, published, all, written, created, claimless, time } = snapshot;
    let delete = |published: &Published| {
        let action = Action::Delete { guard: published.guard.clone() };
        Plan::Delete(Box::new(Write::new(STATE, "", node, action)))
    };
    if published.is_some_and(|published| published.deleting) {
        return Plan::Rest;
    }
    let Some(uid) = uid else {
        // The garbage collector would delete it, too, where one runs.
        return published.map_or(Plan::Rest, delete);
    };
    if let Some(published) = published
        && published.owner.as_deref() != Some(uid)
    {
        // It belongs to a Node of the same name that is gone.
        return delete(published);
    }
    let is_wanted = all || content.as_ref().is_some_and(|content| content.has_claims);
    let Some(content) = content else { return published.map_or(Plan::Rest, delete) };
    let Some(published) = published else {
        if !is_wanted {
            return Plan::Rest;
        }
        // A leader that does not see the claims, for a moment, deletes what this one creates.
        let wait = repeated(created, 0, now);
        return wait.map_or_else(|| Plan::Create(Box::new(create(node, uid))), Plan::Later);
    };
    let linger = (!is_wanted).then(|| (claimless.unwrap_or(now) + LINGER).saturating_duration_since(now));
    if linger.is_some_and(|left| left.is_zero()) {
        return delete(published);
    }
    let rest = linger.map_or(Plan::Rest, Plan::Wait);
    let Some(status) = changed(&content, published, time) else { return rest };
    let id = content.id();
    if let Some(wait) = repeated(written, id, now) {
        return Plan::Later(wait);
    }
    let overcommitted = became_overcommitted(&content, published);
    let body = json!({
        "apiVersion": STATE.api_version(), "kind": STATE.kind,
        "metadata": {
            "name": node, "uid": published.guard.uid, "resourceVersion": published.guard.resource_version,
        },
        "status": status,
    });
    let action = Action::Apply { subresource: Some("status"), manager: MANAGER, force: true, body };
    Plan::Publish { write: Box::new(Write::new(STATE, "", node, action)), content: id, overcommitted }
}

fn create(node: &str, uid: &str) -> Write {
    let body: Value = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": STATE.kind,
        "metadata": {
            "name": node,
            "labels": {"app.kubernetes.io/managed-by": "dragoman"},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true,
            }],
        },
    });
    Write::new(STATE, "", node, Action::Create { body: body.to_string() })
}

/// The status to be published, if it differs from the one that is.
fn changed(
    content: &NodeReport,
    published: &Published,
    time: Timestamp,
) -> Option<NodeAllocatableDRAClaimStateStatus> {
    let conditions: Vec<Condition> =
        content.findings.iter().map(|finding| condition(finding, published, time)).collect();
    let same_amounts = published.revision.is_some() && fingerprint(&content.status) == published.fingerprint;
    if same_amounts && conditions == published.conditions {
        return None;
    }
    let before = published.revision.unwrap_or(0);
    let revision = if same_amounts { before } else { before + 1 };
    Some(NodeAllocatableDRAClaimStateStatus { revision, conditions, ..content.status.clone() })
}

/// The condition, with the time of its last transition.
fn condition(finding: &ConditionUpdate, published: &Published, time: Timestamp) -> Condition {
    let before = published.conditions.iter().find(|known| known.r#type == finding.r#type);
    let same = before.filter(|known| known.status == finding.status);
    let now = || time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    Condition {
        r#type: finding.r#type.to_owned(),
        status: finding.status,
        reason: finding.reason.to_owned(),
        message: finding.message.clone(),
        last_transition_time: same.map_or_else(now, |known| known.last_transition_time.clone()),
    }
}

/// The message, where the node was not overcommitted before.
fn became_overcommitted(content: &NodeReport, published: &Published) -> Option<String> {
    let status = |conditions: &[Condition]| {
        conditions.iter().find(|known| known.r#type == OVERCOMMITTED).map(|known| known.status)
    };
    let finding = content.findings.iter().find(|of| of.r#type == OVERCOMMITTED)?;
    let is_news = content.is_overcommitted() && status(&published.conditions) != Some(finding.status);
    is_news.then(|| finding.message.clone())
}
