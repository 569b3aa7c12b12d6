//! Which nodes are worth a try, and which Pod is woken when a node changes.
//!
//! Pods that ask for the same are of one shape: a node that refused one refuses the next, until the node
//! changes. A shape keeps the nodes that have not refused it since their last change, so that a Pod in a
//! full cluster of 5 000 nodes tries the one that has changed, and not 5 000. The order of the nodes is
//! that of their ranks and names, as if every node were tried.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use dragoman_allocator::Rank;
use dragoman_machinery::controller::ObjectKey;
use dragoman_objects::Name;

use super::reasons::Reason;

/// The changes of nodes, numbered.
#[derive(Debug, Default)]
pub(super) struct Changes {
    last: u64,
    /// The last change of each node.
    of: HashMap<Name, u64>,
    by_number: BTreeMap<u64, Name>,
    /// The last change that may be about every node.
    of_all: u64,
}

impl Changes {
    /// A node has changed.
    pub(super) fn node(&mut self, node: &str) {
        self.last += 1;
        if let Some(before) = self.of.insert(node.into(), self.last) {
            self.by_number.remove(&before);
        }
        self.by_number.insert(self.last, node.into());
    }

    /// Something has changed that may be about every node.
    pub(super) fn everything(&mut self) {
        self.last += 1;
        self.of_all = self.last;
    }

    /// A node is gone.
    pub(super) fn gone(&mut self, node: &str) {
        if let Some(before) = self.of.remove(node) {
            self.by_number.remove(&before);
        }
    }

    /// The nodes that have changed after a change of this number.
    fn since(&self, number: u64) -> impl Iterator<Item = &Name> {
        self.by_number.range(number + 1..).map(|(_, node)| node)
    }

    fn is_since(&self, number: u64, node: &str) -> bool {
        self.of.get(node).is_some_and(|last| *last > number)
    }

    /// The number of the last change.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The number of the last change that may be about a node.
    pub(super) fn last_of(&self, node: &str) -> u64 {
        self.of.get(node).copied().unwrap_or_default().max(self.of_all)
    }
}

/// The nodes that there are, as Pods of one shape see them.
pub(super) trait Nodes {
    /// Their names.
    fn all(&self) -> Vec<Name>;
    /// The place of one.
    fn rank(&self, node: &str) -> Rank;
}

/// Tells equivalence classes apart: a hash over everything that decides about a node.
pub(super) type EquivalenceClassId = u64;

/// The place of a Pod among those that wait: by priority, then by age.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePosition {
    pub(super) priority: Reverse<i32>,
    /// `metadata.creationTimestamp`.
    pub(super) created: Name,
    pub(super) key: ObjectKey,
}

/// The meaning of other Pods and of volumes for the Pods of a shape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Around {
    /// Nothing.
    #[default]
    Nothing,
    /// Something that this number tells apart. `has_others`: Pods of other namespaces count as well.
    Something { fingerprint: u64, has_others: bool },
}

/// Pods that ask for the same.
#[derive(Debug, Default)]
struct EquivalenceClass {
    /// The nodes that have not refused it since their last change, those that go first first.
    open: BTreeSet<(Rank, Name)>,
    /// Their ranks.
    ranks: HashMap<Name, Rank>,
    /// The change up to which `open` is complete.
    seen: u64,
    /// The change of a rank up to which `open` is in order.
    in_order: u64,
    /// The Pods that were refused, those that go first first.
    waiting: BTreeSet<QueuePosition>,
    /// Why some of the nodes refused it, for people.
    reasons: Vec<Reason>,
    /// The meaning of other Pods and volumes when they did.
    around: Around,
}

impl EquivalenceClass {
    fn open(&mut self, node: &Name, rank: Rank) {
        self.close(node);
        self.ranks.insert(node.clone(), rank);
        self.open.insert((rank, node.clone()));
    }

    fn close(&mut self, node: &str) {
        if let Some((node, rank)) = self.ranks.remove_entry(node) {
            self.open.remove(&(rank, node));
        }
    }
}

/// The shapes of the Pods that wait or were decided on.
#[derive(Debug, Default)]
pub(super) struct EquivalenceClasses {
    by_id: HashMap<EquivalenceClassId, EquivalenceClass>,
    of: HashMap<ObjectKey, (EquivalenceClassId, QueuePosition)>,
    /// For shapes without waiting Pods: those that were used longest ago are forgotten.
    recent: std::collections::VecDeque<EquivalenceClassId>,
}

/// Nodes that are tried at once: some milliseconds.
pub(super) const PORTION: usize = 32;
/// The shapes without waiting Pods that are remembered. Each knows up to all nodes, some hundred bytes for
/// each of them.
const REMEMBERED: usize = 128;

impl EquivalenceClasses {
    /// The first nodes that are worth a try for a shape, in the order of their ranks, without those in
    /// `leave_out`, and whether there are more. `changes` are those after which a node may take what it
    /// has refused, `reranked` those of ranks alone. A Pod on one node may concern others: where `around` has become
    /// another, every node is worth a try.
    pub(super) fn candidates(
        &mut self,
        id: EquivalenceClassId,
        changes: &Changes,
        reranked: &Changes,
        nodes: &dyn Nodes,
        leave_out: &BTreeSet<Name>,
        around: Around,
    ) -> (Vec<Name>, bool) {
        if !self.by_id.contains_key(&id) {
            self.remember(id);
        }
        let shape = self.by_id.entry(id).or_default();
        if std::mem::replace(&mut shape.around, around) != around {
            shape.seen = 0;
        }
        if shape.seen == 0 || shape.seen < changes.of_all {
            (shape.open, shape.ranks) = Default::default();
            nodes.all().iter().for_each(|node| shape.open(node, nodes.rank(node)));
        } else {
            changes.since(shape.seen).for_each(|node| shape.open(node, nodes.rank(node)));
            let seen = shape.seen;
            for node in reranked.since(shape.in_order).filter(|node| !changes.is_since(seen, node)) {
                if shape.ranks.contains_key(node) {
                    shape.open(node, nodes.rank(node));
                }
            }
        }
        (shape.seen, shape.in_order) = (changes.last().max(1), reranked.last());
        let mut open = shape.open.iter().map(|(_, node)| node).filter(|node| !leave_out.contains(*node));
        let first = open.by_ref().take(PORTION).cloned().collect();
        (first, open.next().is_some())
    }

    /// A node has refused a shape as it was at the change `at`.
    pub(super) fn refused(&mut self, id: EquivalenceClassId, node: &str, at: u64, changes: &Changes) {
        let Some(shape) = self.by_id.get_mut(&id) else { return };
        shape
            .reasons
            .iter_mut()
            .filter(|reason| *reason.node == *node)
            .for_each(|reason| reason.is_stale = true);
        // What has changed meanwhile may take it.
        if changes.last_of(node) <= at {
            shape.close(node);
        }
    }

    /// Whether a Pod was refused everywhere, and waits.
    pub(super) fn waits(&self, pod: &ObjectKey) -> bool {
        self.of.contains_key(pod)
    }

    /// The reasons for which nodes refused a shape.
    pub(super) fn reasons(&self, id: EquivalenceClassId) -> &[Reason] {
        self.by_id.get(&id).map_or(&[], |shape| &shape.reasons)
    }

    /// A shape was refused everywhere, for these reasons.
    pub(super) fn told(&mut self, id: EquivalenceClassId, reasons: Vec<Reason>) {
        self.by_id.entry(id).and_modify(|shape| shape.reasons = reasons);
    }

    /// A Pod was refused everywhere: it waits for a change.
    pub(super) fn wait(&mut self, id: EquivalenceClassId, turn: QueuePosition) {
        self.leave(&turn.key.clone());
        self.of.insert(turn.key.clone(), (id, turn.clone()));
        self.by_id.entry(id).or_default().waiting.insert(turn);
    }

    /// A Pod does not wait any more. Returns the Pod of its shape that is next.
    pub(super) fn leave(&mut self, key: &ObjectKey) -> Option<ObjectKey> {
        let (id, turn) = self.of.remove(key)?;
        let shape = self.by_id.get_mut(&id)?;
        shape.waiting.remove(&turn);
        let next = shape.waiting.first().map(|turn| turn.key.clone());
        if next.is_none() {
            self.remember(id);
        }
        next
    }

    /// The Pod of a shape that waits and goes before this one, if there is one.
    pub(super) fn before(&self, id: EquivalenceClassId, turn: &QueuePosition) -> Option<&ObjectKey> {
        let first = self.by_id.get(&id)?.waiting.first()?;
        (first < turn).then_some(&first.key)
    }

    /// The first Pod of every shape: a node has changed.
    pub(super) fn heads(&self) -> Vec<ObjectKey> {
        let waiting = self.by_id.values().filter_map(|shape| shape.waiting.first());
        let mut heads: Vec<&QueuePosition> = waiting.collect();
        heads.sort_unstable();
        heads.into_iter().map(|turn| turn.key.clone()).collect()
    }

    /// The first Pod of every shape for which other Pods or volumes mean something: those of this namespace, or any.
    pub(super) fn heads_in(&self, namespace: Option<&str>) -> Vec<ObjectKey> {
        let heads = self.by_id.values().filter_map(|shape| {
            let Around::Something { has_others, .. } = shape.around else { return None };
            let first = shape.waiting.first()?;
            let is_here = namespace.is_none_or(|namespace| *first.key.namespace == *namespace);
            (has_others || is_here).then_some(first)
        });
        let heads: BTreeSet<&QueuePosition> = heads.collect();
        heads.into_iter().map(|turn| turn.key.clone()).collect()
    }

    /// The number of Pods that wait.
    pub(super) fn waiting(&self) -> usize {
        self.of.len()
    }

    fn remember(&mut self, id: EquivalenceClassId) {
        self.recent.retain(|known| *known != id);
        self.recent.push_back(id);
        while self.recent.len() > REMEMBERED {
            let Some(oldest) = self.recent.pop_front() else { return };
            if self.by_id.get(&oldest).is_some_and(|shape| shape.waiting.is_empty()) {
                self.by_id.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use dragoman_allocator::{Policy, Standing};

    use super::*;

    fn turn(priority: i32, created: &str, name: &str) -> QueuePosition {
        let key = ObjectKey { namespace: "ns".into(), name: name.into() };
        QueuePosition { priority: Reverse(priority), created: created.into(), key }
    }

    /// Free devices of the nodes a, b and c.
    struct Free([i64; 3]);

    impl Nodes for Free {
        fn all(&self) -> Vec<Name> {
            ["a", "b", "c"].map(Name::from).into()
        }

        fn rank(&self, node: &str) -> Rank {
            let free = match node {
                "a" => self.0[0],
                "b" => self.0[1],
                _ => self.0[2],
            };
            Policy::Pack.rank(&Standing { free, ..Standing::default() })
        }
    }

    fn ranked(
        shapes: &mut EquivalenceClasses,
        (changes, reranked): (&Changes, &Changes),
        free: [i64; 3],
    ) -> String {
        shapes.candidates(1, changes, reranked, &Free(free), &BTreeSet::new(), Around::Nothing).0.concat()
    }

    fn open(shapes: &mut EquivalenceClasses, changes: &Changes) -> String {
        ranked(shapes, (changes, &Changes::default()), [0; 3])
    }

    #[test]
    fn nodes_are_tried_in_the_order_of_their_ranks() {
        let (mut shapes, mut changes, mut reranked) =
            (EquivalenceClasses::default(), Changes::default(), Changes::default());
        ["a", "b", "c"].iter().for_each(|node| changes.node(node));
        assert_eq!(ranked(&mut shapes, (&changes, &reranked), [3, 1, 2]), "bca");
        reranked.node("a");
        assert_eq!(ranked(&mut shapes, (&changes, &reranked), [0, 1, 2]), "abc");
        shapes.refused(1, "a", changes.last(), &changes);
        reranked.node("a");
        assert_eq!(ranked(&mut shapes, (&changes, &reranked), [0, 1, 2]), "bc", "a rank opens no node");
        changes.node("a");
        assert_eq!(ranked(&mut shapes, (&changes, &reranked), [4, 1, 2]), "bca");
    }

    #[test]
    fn a_refused_shape_tries_what_has_changed() {
        let (mut shapes, mut changes) = (EquivalenceClasses::default(), Changes::default());
        ["a", "b", "c"].iter().for_each(|node| changes.node(node));
        assert_eq!(open(&mut shapes, &changes), "abc");
        for node in ["a", "b", "c"] {
            shapes.refused(1, node, changes.last(), &changes);
        }
        assert_eq!(open(&mut shapes, &changes), "");
        changes.node("b");
        assert_eq!(open(&mut shapes, &changes), "b");
        // The refusal was about the node before the change.
        shapes.refused(1, "b", changes.last() - 1, &changes);
        assert_eq!(open(&mut shapes, &changes), "b");
        changes.everything();
        assert_eq!(open(&mut shapes, &changes), "abc");
    }

    #[test]
    fn those_that_wait_are_woken_by_priority_and_age() {
        let mut shapes = EquivalenceClasses::default();
        let names = |keys: Vec<ObjectKey>| keys.iter().map(|key| key.name.to_string()).collect::<String>();
        shapes.wait(1, turn(0, "2026-01-02", "y"));
        shapes.wait(1, turn(0, "2026-01-01", "x"));
        shapes.wait(2, turn(5, "2026-01-03", "z"));
        assert_eq!(names(shapes.heads()), "zx");
        let (early, late) = (turn(0, "2025-01-01", "e"), turn(0, "2027-01-01", "l"));
        assert!(shapes.before(1, &early).is_none());
        assert_eq!(shapes.before(1, &late).map(|key| &*key.name), Some("x"));
        let next = shapes.leave(&turn(0, "", "x").key);
        assert_eq!(names(next.into_iter().collect()), "y");
        assert_eq!(shapes.waiting(), 2);
    }

    #[test]
    fn shapes_that_nothing_waits_for_are_forgotten() {
        let (mut shapes, changes) = (EquivalenceClasses::default(), Changes::default());
        shapes.wait(7, turn(0, "", "p"));
        for id in 0..10_000 {
            shapes.candidates(
                id,
                &changes,
                &Changes::default(),
                &Free([0; 3]),
                &BTreeSet::new(),
                Around::Nothing,
            );
        }
        assert!(shapes.by_id.len() <= REMEMBERED + 1, "{}", shapes.by_id.len());
        assert!(shapes.by_id.contains_key(&7), "a Pod waits for it");
    }
}
