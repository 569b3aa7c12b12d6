//! Who cares about what: from a name in a namespace to those who use it.

use std::collections::HashMap;
use std::sync::Arc;

use dragoman_crds::wire::Name;

/// The users of claims, templates or groups, by namespace and name.
#[derive(Debug, Default)]
pub struct Users(HashMap<(Arc<str>, Name), Vec<Arc<str>>>);

impl Users {
    /// `user` uses `name`.
    pub fn link(&mut self, namespace: &Arc<str>, name: &str, user: &Arc<str>) {
        // Most have one user: start with room for one, not for four.
        let at = (Arc::clone(namespace), Name::from(name));
        let users = self.0.entry(at).or_insert_with(|| Vec::with_capacity(1));
        if !users.iter().any(|u| u == user) {
            users.push(Arc::clone(user));
        }
    }

    /// `user` no longer uses `name`.
    pub fn unlink(&mut self, namespace: &Arc<str>, name: &str, user: &Arc<str>) {
        let at = (Arc::clone(namespace), Name::from(name));
        if let Some(users) = self.0.get_mut(&at) {
            users.retain(|u| u != user);
            if users.is_empty() {
                self.0.remove(&at);
            }
        }
    }

    /// Those who use `name`.
    pub fn of(&self, namespace: &Arc<str>, name: &str) -> &[Arc<str>] {
        self.0.get(&(Arc::clone(namespace), Name::from(name))).map_or(&[], Vec::as_slice)
    }

    /// Every user with its namespace; one of several names comes up several times.
    pub fn all(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().flat_map(|((namespace, _), users)| users.iter().map(move |user| (namespace, user)))
    }
}
