//! The Pods of nodes that keep other Pods away from them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dragoman_objects::Name;

use crate::placement::terms::{PodKind, Term};

/// Lists of terms of one namespace that a Pod of the same namespace is compared with. A tenant makes as many as it likes,
/// and each decision pays for them, and for up to 128 terms of each.
const MOST_LISTS: usize = 128;
/// Those that a Pod of any other namespace is compared with.
const MOST_LISTS_ELSEWHERE: usize = 16;

/// Kinds by their anti-affinity. The Pods of a `StatefulSet` differ in labels, and have the same terms.
type Lists = HashMap<Box<[Term]>, HashSet<Arc<PodKind>>>;

/// Kinds with anti-affinity of their own, by namespace.
#[derive(Debug, Default)]
pub(super) struct Repelling {
    /// Those whose terms are about their own namespace only.
    here: HashMap<Name, Lists>,
    /// Those whose terms are about others, too.
    elsewhere: HashMap<Name, Lists>,
}

impl Repelling {
    fn of_its_scope(&mut self, kind: &PodKind) -> &mut HashMap<Name, Lists> {
        if kind.repels_here() { &mut self.here } else { &mut self.elsewhere }
    }

    /// Adds a kind. One that keeps no Pod away is left out.
    pub(super) fn add(&mut self, kind: &Arc<PodKind>) {
        if kind.repels.is_empty() {
            return;
        }
        let lists = self.of_its_scope(kind).entry(kind.namespace.clone()).or_default();
        match lists.get_mut(&kind.repels) {
            Some(kinds) => drop(kinds.insert(Arc::clone(kind))),
            None => drop(lists.insert(kind.repels.clone(), HashSet::from([Arc::clone(kind)]))),
        }
    }

    /// Takes a kind out.
    pub(super) fn remove(&mut self, kind: &PodKind) {
        let scope = self.of_its_scope(kind);
        let Some(lists) = scope.get_mut(&kind.namespace) else { return };
        if let Some(kinds) = lists.get_mut(&kind.repels) {
            kinds.remove(kind);
            if kinds.is_empty() {
                lists.remove(&kind.repels);
            }
        }
        if lists.is_empty() {
            scope.remove(&kind.namespace);
        }
    }

    /// The lists of terms with one that keeps a Pod of this kind away, and the kinds that have them.
    pub(super) fn against<'a>(
        &'a self,
        kind: &'a PodKind,
    ) -> impl Iterator<Item = (&'a [Term], &'a HashSet<Arc<PodKind>>)> {
        let here = self.here.get(&kind.namespace).into_iter().flat_map(|lists| lists.iter().take(MOST_LISTS));
        let elsewhere = self.elsewhere.iter().flat_map(|(namespace, lists)| {
            let is_own = *namespace == kind.namespace;
            lists.iter().take(if is_own { MOST_LISTS } else { MOST_LISTS_ELSEWHERE })
        });
        let all = here.chain(elsewhere).map(|(terms, kinds)| (&**terms, kinds));
        all.filter(|(terms, _)| terms.iter().any(|term| term.matches(kind)))
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.here.is_empty() && self.elsewhere.is_empty()
    }
}
