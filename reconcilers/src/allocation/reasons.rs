//! Why no node takes a Pod, for people.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use dragoman_allocator::Unsatisfiable;
use dragoman_allocator::input::Claim;
use dragoman_objects::Name;

/// The reasons that are told: of many nodes people read the few that came closest.
const TOLD: usize = 3;

/// Why a node does not take a Pod.
#[derive(Debug)]
pub(super) enum Why {
    /// There are devices, and no room for the Pod with them.
    Room(String),
    /// The search for devices ended without an answer.
    Search(String),
    /// There are no devices. The explanation costs more than the attempt, and few are read.
    Devices(Box<Unsatisfiable>),
    /// The Pod may not run there, whatever devices the node has.
    Place(String),
}

/// Stage at which a node refused a Pod, the closest to taking it first. People ask for the closest node. A
/// Pod that names its node does not learn that it does not run on the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Room,
    Devices,
    Place,
}

impl Why {
    fn stage(&self) -> Stage {
        match self {
            Self::Room(_) => Stage::Room,
            Self::Search(_) | Self::Devices(_) => Stage::Devices,
            Self::Place(_) => Stage::Place,
        }
    }

    /// The words, unless they have to be found first.
    fn words(&self) -> Option<&str> {
        match self {
            Self::Room(words) | Self::Search(words) | Self::Place(words) => Some(words),
            Self::Devices(_) => None,
        }
    }

    /// For the authors of all Pods that ask for the same.
    fn in_words(&self, claims: &[Arc<Claim>]) -> String {
        match self {
            Self::Room(words) | Self::Search(words) | Self::Place(words) => words.clone(),
            Self::Devices(unsolved) => {
                let words = unsolved.explain_to_tenants(claims).to_string();
                words.lines().map(str::trim).collect::<Vec<_>>().join("; ")
            }
        }
    }
}

/// A reason in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reason {
    stage: Stage,
    /// A node that it is true for.
    pub(super) node: Name,
    /// The node has been tried again since.
    pub(super) is_stale: bool,
    /// The reason was true for other nodes, too.
    has_others: bool,
    words: String,
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let others = if self.has_others { " and others" } else { "" };
        write!(f, "{}{others}: {}", self.node, self.words)
    }
}

/// Why some nodes did not take a Pod, and whether others gave the same reason: at most [`TOLD`] of each stage.
#[derive(Debug, Default)]
pub(super) struct Reasons(Vec<(Name, Why, bool)>);

impl Reasons {
    /// A node does not take the Pod.
    pub(super) fn put(&mut self, node: &Name, why: Why) {
        let is_same = |known: &Why| known.words().is_some() && known.words() == why.words();
        if let Some((_, _, has_others)) = self.0.iter_mut().find(|(_, known, _)| is_same(known)) {
            *has_others = true;
        } else if self.0.iter().filter(|(_, known, _)| known.stage() == why.stage()).count() < TOLD {
            self.0.push((node.clone(), why, false));
        }
    }

    /// The reasons of those nodes that came closest, and those known `before` that still hold. The words are found
    /// only now: most Pods find a node.
    pub(super) fn closest(&self, before: &[Reason], claims: &[Arc<Claim>]) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = Vec::new();
        for (node, why, has_others) in &self.0 {
            let reason = Reason {
                stage: why.stage(),
                node: node.clone(),
                is_stale: false,
                has_others: *has_others,
                words: why.in_words(claims),
            };
            add(&mut reasons, reason);
        }
        for reason in before {
            let is_known = reasons.iter().any(|known| known.words == reason.words);
            if is_known || !reason.is_stale {
                add(&mut reasons, reason.clone());
            }
        }
        reasons.sort_by(|a, b| (a.stage, &a.node).cmp(&(b.stage, &b.node)));
        reasons.truncate(TOLD);
        reasons
    }
}

/// Adds a reason, or a node to a reason with the same words.
fn add(reasons: &mut Vec<Reason>, reason: Reason) {
    match reasons.iter_mut().find(|known| known.words == reason.words) {
        Some(known) => known.has_others |= reason.has_others || known.node != reason.node,
        None => reasons.push(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(tried: Vec<(&str, Why)>, before: &[Reason]) -> Vec<Reason> {
        let mut reasons = Reasons::default();
        tried.into_iter().for_each(|(node, why)| reasons.put(&node.into(), why));
        reasons.closest(before, &[])
    }

    fn texts(reasons: &[Reason]) -> Vec<String> {
        reasons.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_node_that_came_closest_is_told_first() {
        let elsewhere = || Why::Place("wrong label".to_owned());
        let lacks = |cpus: u8| Why::Room(format!("{cpus} of cpu is missing"));
        let first = told(vec![("a", elsewhere()), ("b", elsewhere()), ("c", lacks(2))], &[]);
        assert_eq!(texts(&first), ["c: 2 of cpu is missing", "a and others: wrong label"]);
        // Another node is tried again: what is known of this one still holds.
        let mut later = told(vec![("b", elsewhere())], &first);
        assert_eq!(texts(&later), ["c: 2 of cpu is missing", "b and others: wrong label"]);
        // This one is tried again: what was known of it does not hold any more.
        later.iter_mut().filter(|reason| &*reason.node == "c").for_each(|reason| reason.is_stale = true);
        let later = told(vec![("c", lacks(1))], &later);
        assert_eq!(texts(&later), ["c: 1 of cpu is missing", "b and others: wrong label"]);
        // Nothing was left to be tried.
        assert_eq!(told(Vec::new(), &later), later);
    }

    #[test]
    fn few_are_told() {
        let tried = (0..9).map(|n| (["a", "b", "c"][n % 3], Why::Room(n.to_string())));
        assert_eq!(told(tried.collect(), &[]).len(), TOLD);
    }
}
