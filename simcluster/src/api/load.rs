//! Loading of dumped objects, unchanged and without validation.

use serde_json::{Value, json};

use super::{ApiServer, State, events, meta};

/// The creation time of objects that do not state one.
const LONG_AGO: &str = "1970-01-01T00:00:00Z";

/// The reason why an object cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The kind is not served.
    #[error("{kind} in {version} is no kind that is simulated")]
    UnknownKind {
        /// `kind`.
        kind: String,
        /// `apiVersion`.
        version: String,
    },
    /// The object has no name, or no namespace although its kind needs one.
    #[error("it has no {0}")]
    Nameless(&'static str),
    /// An object of this kind and name exists already.
    #[error("it comes twice")]
    Twice,
}

impl ApiServer {
    /// Stores an object unchanged, with its status and uid. A missing namespace is created.
    ///
    /// # Errors
    /// The kind is not served, the name or namespace is missing, or the object exists already.
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
        // The namespaces of every cluster exist already and are replaced.
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
