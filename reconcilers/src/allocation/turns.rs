//! The turns of a Pod, or of its gang: others have theirs in between, and long searches go on aside.

use std::collections::{BTreeSet, HashMap};

use dragoman_machinery::controller::ObjectKey;
use dragoman_objects::Name;
use tokio::time::Instant;

use super::aside::{Ended, Long};
use super::controller::{Allocator, locked};
use super::decide::{Attempted, Decision, Question, Tried, decide};
use super::gangs::{Attempt, Member, Together, place};
use super::groups::holds_something;
use super::look::{Look, Search, Subject};

/// The attempts to place a gang before it waits for a change: 5 000 nodes that refuse are eighteen.
const ATTEMPTS: usize = 64;

/// Outcome of a search for devices.
#[derive(Debug)]
pub(super) enum Looked {
    /// A node takes the Pod.
    Decided(Box<Decision>),
    /// These Pods of its gang have their decisions.
    Placed(Vec<ObjectKey>),
    /// One of its claims is decided on for another Pod, kube-scheduler allocates for it, or another search is in its way.
    Waits,
    /// The search takes longer than it may now.
    TooLong,
    /// No node takes it: the reasons, for people.
    Refused(Vec<String>),
}

/// Reason why a search for a Pod stops without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Waits,
    TooLong,
}

impl From<Stop> for Looked {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Waits => Self::Waits,
            Stop::TooLong => Self::TooLong,
        }
    }
}

impl Allocator {
    /// Searches for the devices of a Pod, or of its gang.
    pub(super) async fn search(&self, search: &Search<'_>) -> Looked {
        match &search.gang {
            Some((members, needed)) => self.gang(search.of.key, members, *needed).await,
            None => self.decide(&search.of, &search.refused).await,
        }
    }

    /// Decides about a Pod, a portion of the nodes at a time.
    async fn decide(&self, of: &Subject<'_>, refused: &BTreeSet<Name>) -> Looked {
        let mut tried = Tried::default();
        loop {
            match self.look(|look| turn(look, of, refused, &mut tried)) {
                Ok(Attempted::Decided(decision)) => return Looked::Decided(Box::new(decision)),
                Ok(Attempted::Refused(why)) => return Looked::Refused(why),
                Ok(Attempted::More) => tokio::task::yield_now().await,
                Ok(Attempted::Aside(long)) => match self.aside(of.key, *long).await {
                    Ok(ended) => tried.ended = Some(ended),
                    Err(stop) => return stop.into(),
                },
                Err(stop) => return stop.into(),
            }
        }
    }

    /// Goes on with a long search, if no other one runs and its namespace may.
    async fn aside(&self, key: &ObjectKey, long: Long) -> Result<Ended, Stop> {
        let allowed = locked(&self.allowances).of(&key.namespace, Instant::now());
        let Ok(limit) = allowed else { return Err(Stop::TooLong) };
        // A reconciliation that waited here would keep those of others from starting.
        let Ok(_runs) = self.aside.try_acquire() else { return Err(Stop::Waits) };
        let ended = long.run(limit).await;
        locked(&self.allowances).spend(&key.namespace, ended.took, Instant::now());
        tracing::debug!(namespace = %key.namespace, pod = %key.name, node = %ended.node, took = ?ended.took, "long search");
        if ended.comes_further() { Err(Stop::TooLong) } else { Ok(ended) }
    }

    /// Decides about a gang. Its Pods are looked at again, and what stands for each is written.
    async fn gang(&self, key: &ObjectKey, members: &[Member], needed: usize) -> Looked {
        let mut tried = HashMap::new();
        for _ in 0..ATTEMPTS {
            let attempt = self.look(|look| {
                let (order, time) = (look.options.order, look.time);
                let Look { index, decided, .. } = look;
                let claims = members.iter().flat_map(|member| &member.claims);
                if !index.left_behind(claims).is_empty() {
                    return Attempt::Waits;
                }
                place(
                    &Together { members, needed, policy: order, time },
                    &mut tried,
                    index,
                    decided,
                    &mut share_id,
                )
            });
            match attempt {
                Attempt::Again => tokio::task::yield_now().await,
                // A search that has ended has taken back what this one needs.
                Attempt::Waits => return Looked::Waits,
                // Other devices are free when it begins anew, but what was evaluated is remembered.
                Attempt::Aside(long) => match self.aside(key, *long).await {
                    Ok(_) => {}
                    Err(stop) => return stop.into(),
                },
                Attempt::Placed(pods) => return Looked::Placed(pods),
                Attempt::Failed(found, mut why) => {
                    let all = members.len();
                    // How many had a node when it became clear says nothing about the others: not for tenants.
                    tracing::debug!(needed, all, found, "no room for a gang");
                    let text =
                        format!("{needed} of {all} Pods of its group need a node at once, fewer find one");
                    why.insert(0, text);
                    return Looked::Refused(why);
                }
            }
        }
        Looked::Refused(vec![
            "the search for nodes for its group was given up: it is too expensive".to_owned(),
        ])
    }
}

/// Takes a turn. A decision is noted in the same look, so that nothing is given twice.
pub(super) fn turn(
    look: &mut Look<'_>,
    of: &Subject<'_>,
    refused: &BTreeSet<Name>,
    tried: &mut Tried,
) -> Result<Attempted, Stop> {
    let Look { index, decided, options, .. } = look;
    let Subject { key, uid, pod, claims } = of;
    // A search that ends has taken back what this one needs.
    if !index.left_behind(claims.iter()).is_empty() {
        return Err(Stop::Waits);
    }
    // Both would write, and only one allocation counts.
    if claims.iter().any(|claim| decided.is_for_another(key, &claim.uid)) {
        return Err(Stop::Waits);
    }
    let known = claims.iter().filter_map(|claim| index.snapshot.claim(&claim.uid).cloned());
    let question = Question::new(key, pod, known.collect(), index, decided);
    let turn = decide(&question, index, decided, refused, options.order, tried, &mut share_id);
    if let Attempted::Decided(decision) = &turn {
        // It was released, and has nothing left: kube-scheduler allocates what has no owner.
        if !pod.is_gated && !holds_something(uid, claims) && !index.are_owned(decision) {
            return Err(Stop::Waits);
        }
        decided.put(key, uid, claims, decision);
        index.reranked.node(&decision.node);
    }
    Ok(turn)
}

/// A share of a device has an id of its own: a random UUID (RFC 9562, version 4).
pub(super) fn share_id() -> Name {
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_be_bytes()).into_uuid().to_string().into()
}
