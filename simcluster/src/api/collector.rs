//! Background work of a control plane: garbage collection, namespace deletion, quota usage, and serving
//! custom resources.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::delete::Ending;
use super::{ApiServer, State, meta};
use crate::clock::seconds;
use crate::kinds::Resource;
use crate::patch::lists_of_schema;

/// The pause between two passes of the collector.
const SEES_AFTER: Duration = Duration::from_millis(100);

impl ApiServer {
    /// Collects garbage, empties terminating namespaces and updates quota status, for as long as it is
    /// polled.
    pub async fn collect(self) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let did = {
                let now = seconds(self.shared.clock.now());
                let mut state = self.state();
                let orphaned = state.collect_garbage(&now);
                let emptied = state.empty_namespaces(&now);
                let counted = state.count_quotas();
                orphaned | emptied | counted
            };
            if did {
                self.shared.changed.notify_waiters();
            } else {
                changed.await;
            }
            tokio::time::sleep(SEES_AFTER).await;
        }
    }
}

impl State {
    /// Deletes the contents of terminating namespaces, and finalizes those that are empty. Returns whether
    /// anything changed.
    fn empty_namespaces(&mut self, now: &str) -> bool {
        let ending =
            self.store.list("namespaces", None).filter(|(_, namespace)| meta::is_deleting(namespace));
        let ending: Vec<Arc<Value>> = ending.map(|(_, namespace)| namespace.clone()).collect();
        let mut did = false;
        for namespace in ending {
            let name = meta::text(&namespace, "name").to_owned();
            let mut left = 0;
            for stored_as in self.store.resources().cloned().collect::<Vec<_>>() {
                let Some(resource) = self.kind_of(&stored_as).filter(|resource| resource.namespaced) else {
                    continue;
                };
                let inside = self.store.list(&stored_as, Some(&name)).map(|(_, object)| object.clone());
                for object in inside.collect::<Vec<_>>() {
                    left += 1;
                    if !meta::is_deleting(&object) {
                        self.end(&resource, &object, Ending::default(), now);
                        did = true;
                    }
                }
            }
            if let Some(resource) = self.kind_of("namespaces").filter(|_| left == 0) {
                self.finalize_namespace(&resource, &namespace);
                did = true;
            }
        }
        did
    }

    /// Writes the usage of every quota into its status. Returns whether anything changed.
    fn count_quotas(&mut self) -> bool {
        let quotas: Vec<Arc<Value>> =
            self.store.list("resourcequotas", None).map(|(_, quota)| quota.clone()).collect();
        let mut did = false;
        for quota in quotas {
            let status = super::quota::status(self, &quota);
            if quota["status"] != status {
                let mut counted = Value::clone(&quota);
                meta::put(&mut counted, &["status"], status);
                self.store.put("resourcequotas", counted);
                did = true;
            }
        }
        did
    }

    /// Returns the resource whose objects are stored under `stored_as`.
    pub(super) fn kind_of(&self, stored_as: &str) -> Option<Arc<Resource>> {
        self.resources.iter().find(|resource| resource.stored_as() == stored_as).cloned()
    }

    /// Serves the kind of a `CustomResourceDefinition` from now on and establishes the definition. Other
    /// objects are ignored.
    pub(super) fn learn(&mut self, resource: &Resource, object: &Value, now: &str) {
        if resource.kind != "CustomResourceDefinition" || self.is_served_anyway(object) {
            return;
        }
        self.unlearn(resource, object);
        let (spec, names) = (&object["spec"], &object["spec"]["names"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for version in meta::items(&spec["versions"]).filter(|version| version["served"] == true) {
            let custom = Resource {
                group: text(&spec["group"]),
                version: text(&version["name"]),
                kind: text(&names["kind"]),
                plural: text(&names["plural"]),
                singular: text(&names["singular"]),
                short: meta::items(&names["shortNames"]).map(text).collect(),
                namespaced: spec["scope"] == "Namespaced",
                subresources: version["subresources"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.clone())
                    .collect(),
                verbs: Vec::new(),
            };
            self.lists.insert(custom.stored_as(), lists_of_schema(&version["schema"]["openAPIV3Schema"]));
            self.resources.push(Arc::new(custom));
        }
        self.schemas.learn(object);
        let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
        let stored = meta::items(&spec["versions"]).filter(|version| version["storage"] == true);
        let status = json!({
            "acceptedNames": names,
            "storedVersions": stored.map(|version| version["name"].clone()).collect::<Vec<_>>(),
            "conditions": [
                condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            ],
        });
        if object["status"]["acceptedNames"] != status["acceptedNames"] {
            let mut established = object.clone();
            meta::put(&mut established, &["status"], status);
            self.store.put(&resource.stored_as(), established);
        }
    }

    /// Whether the definition names a built-in resource. Such a definition replaces nothing.
    fn is_served_anyway(&self, definition: &Value) -> bool {
        let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
        let mut known =
            self.resources.iter().filter(|known| *group == *known.group && *plural == *known.plural);
        known.any(|known| !self.lists.contains_key(&known.stored_as()))
    }

    /// Stops serving the kind of a `CustomResourceDefinition`.
    pub(super) fn unlearn(&mut self, resource: &Resource, object: &Value) {
        if resource.kind != "CustomResourceDefinition" || self.is_served_anyway(object) {
            return;
        }
        let (group, plural) = (&object["spec"]["group"], &object["spec"]["names"]["plural"]);
        self.resources.retain(|known| *group != *known.group || *plural != *known.plural);
        self.schemas.forget(meta::text(object, "name"));
    }
}
