//! Objects as they come from a dump: taken in as they are.

use serde_json::{Value, json};

use super::{ApiServer, State, events, meta};

/// What does not say when it was made has always been there.
const LONG_AGO: &str = "1970-01-01T00:00:00Z";

/// Why an object cannot be taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// No such kind is served.
    #[error("{kind} in {version} is no kind that is simulated")]
    UnknownKind {
        /// `kind`.
        kind: String,
        /// `apiVersion`.
        version: String,
    },
    /// It has no name, or no namespace although its kind needs one.
    #[error("it has no {0}")]
    Nameless(&'static str),
    /// An object of this kind and name is there.
    #[error("it comes twice")]
    Twice,
}

impl ApiServer {
    /// Takes in an object as it is, status, uid and all. A namespace that is not there is made.
    ///
    /// # Errors
    /// It cannot be told what it is, or it comes twice.
    pub fn load(&self, object: Value) -> Result<(), LoadError> {
        let outcome = self.state().load(object);
        self.shared.changed.notify_waiters();
        outcome
    }
}

impl State {
    fn load(&mut self, mut object: Value) -> Result<(), LoadError> {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (kind, version) = (text("kind"), text("apiVersion"));
        let known = self.resources.iter().find(|known| known.kind == kind && known.api_version() == version);
        let Some(resource) = known.cloned() else { return Err(LoadError::UnknownKind { kind, version }) };
        let (namespace, name) = meta::name_of(&object);
        if name.is_empty() {
            return Err(LoadError::Nameless("metadata.name"));
        }
        if resource.namespaced && namespace.is_empty() {
            return Err(LoadError::Nameless("metadata.namespace"));
        }
        object = events::kept(&resource, object);
        let key = (namespace.clone(), name);
        let there = self.store.get(&resource.stored_as(), &key).is_some();
        // The namespaces that every cluster has are there already.
        if there && resource.kind != "Namespace" {
            return Err(LoadError::Twice);
        }
        if resource.namespaced && self.store.get("namespaces", &(String::new(), namespace.clone())).is_none()
        {
            let uid = self.uid();
            let metadata = json!({"name": namespace, "uid": uid});
            self.store
                .put("namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
        }
        if meta::text(&object, "uid").is_empty() {
            let uid = self.uid();
            meta::set(&mut object, "uid", json!(uid));
        }
        if meta::text(&object, "creationTimestamp").is_empty() {
            meta::set(&mut object, "creationTimestamp", json!(LONG_AGO));
        }
        let kept = self.store.put(&resource.stored_as(), object);
        self.learn(&resource, &kept, LONG_AGO);
        Ok(())
    }
}
