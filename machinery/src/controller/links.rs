//! Reverse references: from an object that is named to those that name it.

use std::collections::BTreeSet;
use std::sync::Arc;

use dragoman_objects::Name;

/// The users of objects of one kind, by namespace and name of the object.
///
/// One flat set, because both ends occur: a claim has one user as a rule, a template may have
/// as many as there are Pods, and a link must not cost more for those beside it.
#[derive(Debug, Default)]
pub struct Links(BTreeSet<(Arc<str>, Name, Arc<str>)>);

impl Links {
    /// `user` uses `name`.
    pub fn link(&mut self, namespace: &Arc<str>, name: &str, user: &Arc<str>) {
        self.0.insert((Arc::clone(namespace), name.into(), Arc::clone(user)));
    }

    /// `user` no longer uses `name`.
    pub fn unlink(&mut self, namespace: &Arc<str>, name: &str, user: &Arc<str>) {
        self.0.remove(&(Arc::clone(namespace), name.into(), Arc::clone(user)));
    }

    /// The users of `name`, in order.
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
