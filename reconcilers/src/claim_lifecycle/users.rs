//! Who cares about what: from a name in a namespace to those who use it.

use std::collections::BTreeSet;
use std::sync::Arc;

use dragoman_crds::wire::Name;

/// The users of claims, templates or groups, by namespace and name.
///
/// One flat set, because both ends occur: a claim has one user as a rule, a template may have
/// as many as there are Pods, and a link must not cost more for those beside it.
#[derive(Debug, Default)]
pub struct Users(BTreeSet<(Arc<str>, Name, Arc<str>)>);

impl Users {
    /// `user` uses `name`.
    pub fn link(&mut self, namespace: &Arc<str>, name: &str, user: &Arc<str>) {
        self.0.insert((Arc::clone(namespace), name.into(), Arc::clone(user)));
    }

    /// `user` no longer uses `name`.
    pub fn unlink(&mut self, namespace: &Arc<str>, name: &str, user: &Arc<str>) {
        self.0.remove(&(Arc::clone(namespace), name.into(), Arc::clone(user)));
    }

    /// Those who use `name`, in order.
    pub fn of(&self, namespace: &Arc<str>, name: &str) -> impl Iterator<Item = &Arc<str>> {
        // No user comes before the empty name.
        let first = (Arc::clone(namespace), name.into(), Arc::default());
        let here = self.0.range(first..).take_while(move |(ns, used, _)| ns == namespace && **used == *name);
        here.map(|(_, _, user)| user)
    }

    /// Every user with its namespace; one of several names comes up several times.
    pub fn all(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(namespace, _, user)| (namespace, user))
    }
}
