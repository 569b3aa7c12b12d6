//! The turns of a Pod, or of its gang: others have theirs in between, and long searches go on aside.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use dragoman_crds::wire::Name;
use dragoman_machinery::clock;
use dragoman_machinery::controller::{ObjectKey, Verdict};
use dragoman_machinery::refusal::Refusal;

use super::aside::{Ended, Long};
use super::controller::{Allocator, TOO_LONG, locked, share_id};
use super::decide::{Decision, Question, Tried, Turn, decide};
use super::gangs::{Attempt, Member, place};
use super::index::{Named, PodFacts};
use super::stance::holds_something;

/// The attempts to place a gang before it waits for a change: 5 000 nodes that refuse are eighteen.
const ATTEMPTS: usize = 64;

/// How a look for devices ended.
pub(super) enum Looked {
    /// A node takes the Pod.
    Decided(Decision),
    /// The Pods of its gang have their decisions.
    Placed,
    /// One of its claims is decided on for another Pod, kube-scheduler allocates for it, or another search is in its way.
    Waits,
    /// The search takes longer than it may now.
    TooLong,
    /// No node takes it: the reasons, for people.
    Refused(Vec<String>),
}

/// What keeps a Pod from its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
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
    /// Decides about a Pod, a portion of the nodes at a time.
    pub(super) async fn decide(
        &self,
        key: &ObjectKey,
        (uid, pod): (&Name, &PodFacts),
        claims: &[Named],
        refused: &BTreeSet<Name>,
    ) -> Looked {
        let mut tried = Tried::default();
        loop {
            match self.turn(key, (uid, pod), claims, refused, &mut tried) {
                Ok(Turn::Decided(decision)) => return Looked::Decided(decision),
                Ok(Turn::Refused(why)) => return Looked::Refused(why),
                Ok(Turn::More) => tokio::task::yield_now().await,
                Ok(Turn::Aside(long)) => match self.aside(key, *long).await {
                    Ok(ended) => tried.ended = Some(ended),
                    Err(stop) => return stop.into(),
                },
                Err(stop) => return stop.into(),
            }
        }
    }

    /// Takes a turn. A decision is taken in under the same lock, so that nothing is given twice.
    fn turn(
        &self,
        key: &ObjectKey,
        (uid, pod): (&Name, &PodFacts),
        claims: &[Named],
        refused: &BTreeSet<Name>,
        tried: &mut Tried,
    ) -> Result<Turn, Stop> {
        let mut decided = locked(&self.decided);
        // Both would write, and only one allocation counts.
        if claims.iter().any(|(_, uid, _)| decided.is_for_another(key, uid)) {
            return Err(Stop::Waits);
        }
        let turn = self.kit.note(|index| {
            let of = claims.iter().filter_map(|(_, uid, _)| index.snapshot.claim(uid).cloned());
            let question = Question { key, pod, claims: of.collect(), in_gang: false };
            decide(&question, index, &decided, (refused, self.options.order), tried, &mut share_id)
        });
        if let Turn::Decided(decision) = &turn {
            // It was released, and has nothing left: kube-scheduler allocates what has no owner.
            if !pod.is_gated
                && !holds_something(uid, claims)
                && !self.kit.read(|index| index.are_owned(decision))
            {
                return Err(Stop::Waits);
            }
            decided.put(key, uid, claims, decision);
            self.kit.note(|index| index.reranked.node(&decision.node));
        }
        Ok(turn)
    }

    /// Goes on with a long search, if no other one runs and its namespace may.
    async fn aside(&self, key: &ObjectKey, long: Long) -> Result<Ended, Stop> {
        let allowed = locked(&self.allowances).of(&key.namespace, clock::steady().as_millisecond());
        let Ok(limit) = allowed else { return Err(Stop::TooLong) };
        // A reconciliation that waited here would keep those of others from starting.
        let Ok(_runs) = self.aside.try_acquire() else { return Err(Stop::Waits) };
        let ended = long.run(limit).await;
        locked(&self.allowances).spend(&key.namespace, ended.took, clock::steady().as_millisecond());
        tracing::debug!(namespace = %key.namespace, pod = %key.name, node = %ended.node, took = ?ended.took, "long search");
        if ended.comes_further() { Err(Stop::TooLong) } else { Ok(ended) }
    }

    /// A Pod whose search took too long rests, longer each time, and says why.
    pub(super) async fn rest(
        &self,
        key: &ObjectKey,
        uid: &Name,
        claims: &[Named],
        now: i64,
    ) -> Result<Verdict, Refusal> {
        let rest = {
            let mut decided = locked(&self.decided);
            decided.rests_again(key, now, fastrand::f64());
            decided.rests(key, now).unwrap_or_default()
        };
        let seconds = rest.div_ceil(1_000);
        let message = format!(
            "the search for devices takes too long, and goes on in {seconds} s: selectors with loops or large patterns \
             take the most time, and the Pods of a namespace share what there is"
        );
        self.verdict(key, uid, claims, (TOO_LONG, &message, Some(seconds))).await?;
        let rests = Verdict::After(Duration::from_millis(rest));
        // What it has of its devices is not kept from others for that long.
        Ok(match self.gives_part_back(key, uid, claims, now).await? {
            Some(kept) => rests.most_urgent(kept),
            None => rests,
        })
    }

    /// Decides about a gang. Its Pods are looked at again, and what stands for each is written.
    pub(super) async fn gang(&self, key: &ObjectKey, members: &[Member], needed: usize, now: i64) -> Looked {
        let mut tried = HashMap::new();
        for _ in 0..ATTEMPTS {
            let attempt = {
                let mut decided = locked(&self.decided);
                let order = self.options.order;
                self.kit.note(|index| {
                    place((members, &mut tried), needed, index, &mut decided, (order, now), &mut share_id)
                })
            };
            match attempt {
                Attempt::Again => tokio::task::yield_now().await,
                // Other devices are free when it begins anew, but what was evaluated is remembered.
                Attempt::Aside(long) => match self.aside(key, *long).await {
                    Ok(_) => {}
                    Err(stop) => return stop.into(),
                },
                Attempt::Placed(pods) => {
                    pods.iter().for_each(|pod| self.leave(pod));
                    self.kit.enqueue(pods);
                    return Looked::Placed;
                }
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
