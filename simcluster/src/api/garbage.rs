//! Garbage collection: dependents without a living owner are deleted, and terminating owners wait for their
//! dependents or orphan them.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::delete::{Ending, FOREGROUND, ORPHAN, Propagation};
use super::request::{Request, User};
use super::store::Key;
use super::{State, Target, Write, meta};
use crate::kinds::Resource;

/// The user name of the garbage collector.
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

impl State {
    /// Visits the dependents of removed owners, and the owners that terminate in the foreground or orphan
    /// their dependents. Returns whether anything changed.
    pub(super) fn collect_garbage(&mut self, now: &str) -> bool {
        let mut did = false;
        while let Some(uid) = self.orphaned.pop_front() {
            for key in self.store.dependents(&uid).to_vec() {
                did |= self.attend(&key, now);
            }
        }
        for key in self.lingering.clone() {
            did |= self.linger(&key, now);
        }
        did
    }

    /// Deletes an object without a living owner, or removes references to owners that are gone or terminate
    /// in the foreground. Returns whether anything changed.
    fn attend(&mut self, (stored_as, name): &Key, now: &str) -> bool {
        let Some(object) = self.store.get(stored_as, name).cloned() else { return false };
        let Some(resource) = self.kind_of(stored_as) else { return false };
        let (mut alive, mut waits) = (Vec::new(), false);
        for owner in meta::owners(&object) {
            let Some((kind, name)) = self.store.by_uid(meta::owner_uid(owner)) else { continue };
            let ends = self.store.get(kind, name).is_some_and(|owner| is_ending(owner, FOREGROUND));
            waits |= ends;
            if !ends {
                alive.push(owner.clone());
            }
        }
        if !alive.is_empty() {
            let all = meta::owners(&object).count() == alive.len();
            return !all
                && self.change_as_collector(&resource, &object, &json!({"ownerReferences": alive}), now);
        }
        if meta::is_deleting(&object) {
            return false;
        }
        // Foreground deletion is transitive: an owner that waits for this object also waits for its
        // dependents.
        let owns = !self.store.dependents(meta::text(&object, "uid")).is_empty();
        let propagation = (waits && owns).then_some(Propagation::Foreground);
        self.collected(&resource, &object);
        self.end(&resource, &object, Ending { grace: None, propagation }, now);
        true
    }

    /// Records a deletion by the collector.
    fn collected(&mut self, resource: &Resource, object: &Value) {
        let (namespace, name) = meta::name_of(object);
        self.writes.push(Write {
            user: COLLECTOR.to_owned(),
            verb: "delete",
            resource: resource.plural.clone(),
            namespace,
            name,
            uid: meta::text(object, "uid").to_owned(),
        });
    }

    /// Advances a terminating owner: orphans its dependents, or deletes them and waits until none blocks it,
    /// then removes the finalizer. Returns whether anything changed.
    fn linger(&mut self, key: &Key, now: &str) -> bool {
        let (stored_as, name) = key;
        let owner = self.store.get(stored_as, name).cloned().filter(|owner| meta::is_deleting(owner));
        let (Some(owner), Some(resource)) = (owner, self.kind_of(stored_as)) else {
            return self.lingering.remove(key);
        };
        let uid = meta::text(&owner, "uid");
        let dependents = self.store.dependents(uid).to_vec();
        let finalizer = if is_ending(&owner, ORPHAN) {
            dependents.iter().for_each(|dependent| self.leave(dependent, uid, now));
            ORPHAN
        } else if is_ending(&owner, FOREGROUND) {
            let mut did = false;
            for dependent in &dependents {
                did |= self.attend(dependent, now);
            }
            if self.blocks(uid) {
                return did;
            }
            FOREGROUND
        } else {
            return self.lingering.remove(key);
        };
        let finalizers: Vec<&Value> =
            meta::items(&owner["metadata"]["finalizers"]).filter(|one| *one != finalizer).collect();
        self.change_as_collector(&resource, &owner, &json!({"finalizers": finalizers}), now)
    }

    /// Whether a dependent with `blockOwnerDeletion` still exists.
    fn blocks(&self, owner: &str) -> bool {
        self.store.dependents(owner).iter().any(|(stored_as, name)| {
            self.store.get(stored_as, name).is_some_and(|object| {
                meta::owners(object)
                    .any(|one| meta::owner_uid(one) == owner && one["blockOwnerDeletion"] == true)
            })
        })
    }

    /// Removes an owner from the references of an object.
    fn leave(&mut self, (stored_as, name): &Key, owner: &str, now: &str) {
        let object = self.store.get(stored_as, name).cloned();
        if let (Some(object), Some(resource)) = (object, self.kind_of(stored_as)) {
            let others: Vec<&Value> =
                meta::owners(&object).filter(|one| meta::owner_uid(one) != owner).collect();
            self.change_as_collector(&resource, &object, &json!({"ownerReferences": others}), now);
        }
    }

    /// Patches metadata of an object through the same path as a client. Empty lists are removed.
    fn change_as_collector(
        &mut self,
        resource: &Arc<Resource>,
        object: &Value,
        metadata: &Value,
        now: &str,
    ) -> bool {
        let mut metadata = metadata.clone();
        for list in metadata.as_object_mut().into_iter().flat_map(|fields| fields.values_mut()) {
            if meta::items(list).next().is_none() {
                *list = Value::Null;
            }
        }
        let request = Request {
            method: Method::PATCH,
            content_type: "application/merge-patch+json".to_owned(),
            user_agent: "kube-controller-manager/simcluster".to_owned(),
            user: User { name: COLLECTOR.to_owned(), groups: vec!["system:masters".to_owned()] },
            body: json!({"metadata": metadata}).to_string().into_bytes(),
            ..Request::default()
        };
        let (namespace, name) = meta::name_of(object);
        let target = Target {
            resource: Arc::clone(resource),
            namespace: resource.namespaced.then_some(namespace),
            name: Some(name),
            subresource: String::new(),
            request: &request,
            now: now.to_owned(),
        };
        self.patch(&target).is_ok()
    }
}

/// Whether the object is terminating and has this finalizer.
fn is_ending(object: &Value, finalizer: &str) -> bool {
    meta::is_deleting(object) && meta::items(&object["metadata"]["finalizers"]).any(|one| one == finalizer)
}
