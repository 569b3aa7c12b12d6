//! Deletion: at once, gracefully, or with the last finalizer; in the background, in the foreground, or with
//! orphaned dependents.

use serde_json::{Value, json};

use super::body::json_body;
use super::selector::Selector;
use super::status::{FieldError, Status};
use super::{Answer, State, Target, events, meta};
use crate::clock::seconds;
use crate::kinds::Resource;
use crate::kinds::namespaces;

/// The finalizer of an owner that is deleted after its dependents.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner whose dependents stay without an owner.
pub(super) const ORPHAN: &str = "orphan";

/// The options of a deletion.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ending {
    /// The grace period in seconds. `None` takes the object's own.
    pub(super) grace: Option<i64>,
    /// The fate of the dependents. `None` keeps the object's finalizers.
    pub(super) propagation: Option<Propagation>,
}

/// The fate of the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Propagation {
    /// They are deleted after the owner.
    Background,
    /// They are deleted before the owner.
    Foreground,
    /// They stay, without this owner.
    Orphan,
}

impl State {
    pub(super) fn delete(&mut self, target: &Target<'_>) -> Result<Answer, Status> {
        let options = options(target)?;
        let object = self.current(target)?;
        let (resource, name) = (target.resource.clone(), meta::text(&object, "name").to_owned());
        for (field, what, happened) in
            [("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")]
        {
            let is = meta::text(&object, field);
            let Some(wanted) = options["preconditions"][field].as_str().filter(|wanted| *wanted != is) else {
                continue;
            };
            let message = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({is}). \
                 The object might have been {happened}"
            );
            return Err(Status::precondition(&resource, &name, &message));
        }
        if is_dry(target, &options) {
            return Ok(success(&resource, &object));
        }
        self.wrote(target, "delete", &object);
        let gone = self.end(&resource, &object, ending_of(&options), &target.now);
        match gone {
            // Pods and terminating objects are returned as they are now, the kinds below as they were before,
            // and all others as a Status.
            Some(left) if resource.kind == "Pod" || meta::is_deleting(&left) => {
                Ok(Answer::ok(events::shown(&resource, left)))
            }
            _ if matches!(
                &*resource.kind,
                "Pod"
                    | "ResourceClaim"
                    | "ResourceClaimTemplate"
                    | "ResourceQuota"
                    | "ResourceSlice"
                    | "DeviceClass"
                    | "ServiceAccount"
                    | "CustomResourceDefinition"
            ) =>
            {
                Ok(Answer::ok(events::shown(&resource, Value::clone(&object))))
            }
            _ => Ok(success(&resource, &object)),
        }
    }

    pub(super) fn delete_collection(&mut self, target: &Target<'_>) -> Result<Answer, Status> {
        let options = options(target)?;
        let (query, resource) = (&target.request.query, target.resource.clone());
        let selector = Selector::parse(&resource, query.get("labelSelector"), query.get("fieldSelector"))?;
        let all = self.store.list(&resource.stored_as(), target.namespace.as_deref());
        let selected = all.map(|(_, object)| object.clone()).filter(|object| selector.selects(object));
        let selected: Vec<_> = selected.collect();
        for object in selected.iter().filter(|_| !is_dry(target, &options)) {
            self.wrote(target, "delete", object);
            self.end(&resource, object, ending_of(&options), &target.now);
        }
        let items: Vec<Value> = selected.iter().map(|object| Value::clone(object)).collect();
        Ok(Answer::ok(json!({
            "kind": format!("{}List", resource.kind), "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": self.store.revision().to_string()}, "items": items,
        })))
    }

    /// Starts or completes the deletion of an object. Returns the object afterwards while it is stored, and
    /// the terminating state of a Pod that is removed at once.
    pub(super) fn end(
        &mut self,
        resource: &Resource,
        object: &Value,
        ending: Ending,
        now: &str,
    ) -> Option<Value> {
        let grace = grace_of(resource, object, ending.grace);
        let mut held = object.clone();
        let finalizers = finalizers_of(object, ending.propagation);
        if finalizers != meta::items(&object["metadata"]["finalizers"]).cloned().collect::<Vec<_>>() {
            let finalizers = if finalizers.is_empty() { Value::Null } else { json!(finalizers) };
            meta::set(&mut held, "finalizers", finalizers);
        }
        if grace == 0 && !meta::has_finalizers(&held) && resource.kind != "Namespace" {
            self.remove(resource, object);
            // The answer to the deletion of a Pod is the terminating Pod.
            return (resource.kind == "Pod").then(|| ends_after(resource, object, grace, now));
        }
        let shorter =
            object["metadata"]["deletionGracePeriodSeconds"].as_i64().is_none_or(|known| grace < known);
        if meta::is_deleting(object) && !shorter && held == *object {
            return Some(held);
        }
        if !meta::is_deleting(object) || shorter {
            held = ends_after(resource, &held, grace, now);
        }
        if finalizers.iter().any(|finalizer| finalizer == FOREGROUND || finalizer == ORPHAN) {
            self.lingering.insert((resource.stored_as(), meta::name_of(object)));
        }
        Some(Value::clone(&self.store.put(&resource.stored_as(), held)))
    }

    /// Removes an object from the store and queues its dependents for the garbage collector.
    pub(super) fn remove(&mut self, resource: &Resource, object: &Value) {
        if self.store.remove(&resource.stored_as(), &meta::name_of(object)).is_some() {
            self.orphaned.push_back(meta::text(object, "uid").to_owned());
            self.spellings.remove(meta::text(object, "uid"));
            self.unlearn(resource, object);
            if resource.kind == "CustomResourceDefinition" {
                // Custom objects are removed together with their definition.
                let stored_as = meta::text(object, "name").to_owned();
                let of_kind = self.store.list(&stored_as, None).map(|(_, object)| object.clone());
                for object in of_kind.collect::<Vec<_>>() {
                    self.store.remove(&stored_as, &meta::name_of(&object));
                    self.orphaned.push_back(meta::text(&object, "uid").to_owned());
                }
            }
        }
    }

    /// Removes a namespace whose contents are gone, unless it has other finalizers.
    pub(super) fn finalize_namespace(&mut self, resource: &Resource, namespace: &Value) {
        let mut finalizers: Vec<Value> = meta::items(&namespace["spec"]["finalizers"]).cloned().collect();
        finalizers.retain(|finalizer| finalizer != namespaces::FINALIZER);
        if finalizers.is_empty() && !meta::has_finalizers(namespace) {
            self.remove(resource, namespace);
        }
    }
}

/// The finalizers of an object after a deletion with this propagation policy.
fn finalizers_of(object: &Value, propagation: Option<Propagation>) -> Vec<Value> {
    let known = meta::items(&object["metadata"]["finalizers"]).cloned();
    let Some(propagation) = propagation else { return known.collect() };
    let others = known.filter(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
    let ours = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(json!(FOREGROUND)),
        Propagation::Orphan => Some(json!(ORPHAN)),
    };
    others.chain(ours).collect()
}

/// Returns the object as terminating, with `grace` seconds from `now`.
fn ends_after(resource: &Resource, object: &Value, grace: i64, now: &str) -> Value {
    let mut ending = object.clone();
    if resource.kind == "Pod" || !meta::is_deleting(object) {
        let now: jiff::Timestamp = now.parse().unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        let at = now.checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(now);
        let generation = ending["metadata"]["generation"].as_i64().filter(|_| !meta::is_deleting(object));
        meta::set(&mut ending, "deletionTimestamp", json!(seconds(at)));
        meta::set(&mut ending, "deletionGracePeriodSeconds", json!(grace));
        if let Some(generation) = generation {
            meta::set(&mut ending, "generation", json!(generation.saturating_add(1)));
        }
    }
    if resource.kind == "Namespace" {
        meta::set(&mut ending, "deletionGracePeriodSeconds", Value::Null);
        meta::put(&mut ending, &["status", "phase"], json!("Terminating"));
    }
    ending
}

/// Whether the query or the options ask for a dry run.
fn is_dry(target: &Target<'_>, options: &Value) -> bool {
    !target.request.query.get("dryRun").is_empty() || meta::items(&options["dryRun"]).next().is_some()
}

fn options(target: &Target<'_>) -> Result<Value, Status> {
    let body = &target.request.body;
    let mut options = if body.is_empty() { json!({}) } else { json_body(target)? };
    let query = &target.request.query;
    if let Some(grace) = query.number("gracePeriodSeconds") {
        meta::put(&mut options, &["gracePeriodSeconds"], json!(grace));
    }
    let policy = query.get("propagationPolicy");
    if !policy.is_empty() {
        meta::put(&mut options, &["propagationPolicy"], json!(policy));
    }
    check(&options)?;
    Ok(options)
}

fn check(options: &Value) -> Result<(), Status> {
    let (policy, orphans) = (&options["propagationPolicy"], &options["orphanDependents"]);
    let error = if !policy.is_null() && !orphans.is_null() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        FieldError::invalid("propagationPolicy", policy, why)
    } else if matches!(policy.as_str(), None | Some("Background" | "Foreground" | "Orphan")) {
        return Ok(());
    } else {
        let supported = ["Foreground", "Background", "Orphan", "nil"].map(Value::from);
        FieldError::unsupported("propagationPolicy", policy, supported.iter())
    };
    Err(Status::invalid_options("DeleteOptions", &error))
}

/// Reads the ending from the `DeleteOptions`.
fn ending_of(options: &Value) -> Ending {
    let propagation = match (options["propagationPolicy"].as_str(), options["orphanDependents"].as_bool()) {
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some(_), _) | (None, Some(false)) => Some(Propagation::Background),
        (None, None) => None,
    };
    Ending { grace: options["gracePeriodSeconds"].as_i64(), propagation }
}

/// The grace period in seconds. It is zero except for an unfinished Pod on a node.
fn grace_of(resource: &Resource, object: &Value, asked: Option<i64>) -> i64 {
    if resource.kind != "Pod" {
        return 0;
    }
    let unplaced = object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let done = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if unplaced || done {
        return 0;
    }
    asked.or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30).max(0)
}

fn success(resource: &Resource, object: &Value) -> Answer {
    let mut details = json!({
        "name": meta::text(object, "name"), "kind": resource.plural, "uid": meta::text(object, "uid"),
    });
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    Answer::ok(
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
    )
}
