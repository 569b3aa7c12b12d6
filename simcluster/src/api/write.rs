//! Writing: create, replace, patch, bind.

use std::sync::Arc;

use serde_json::{Value, json};

use super::body::{body, dry_run, json_body, manager};
use super::checks::{check_kind, check_version, place, same, validate_finalizers, validate_meta};
use super::rights::RequestAttributes;
use super::spelling::Spelling;
use super::status::{FieldError, Status};
use super::{Answer, State, Target, Write, admission, events, meta, quota};
use crate::kinds::{Occasion, resources, shapes, strategy};
use crate::patch::{self, Lists, Managed, Owners};
use crate::schema::Schema;

/// A change of an object by a request body.
enum Change {
    Replace(Value),
    JsonPatch(Value),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

impl Change {
    /// Returns the changed object. `object` has the spelling of the path. An apply also replaces the owners
    /// of the fields.
    ///
    /// # Errors
    /// A patch is malformed or does not fit the object, or an apply conflicts with another manager.
    fn made(
        self,
        target: &Target<'_>,
        mut object: Value,
        lists: &Lists,
        owners: &mut Owners,
    ) -> Result<Value, Status> {
        match self {
            Self::Replace(new) => object = new,
            Self::JsonPatch(patch) => {
                object = patch::json_patch(&object, &patch).map_err(patch::Failed::into_status)?;
            }
            Self::Merge(patch) => patch::merge_patch(&mut object, &patch),
            Self::Strategic(patch) => {
                patch::strategic_merge_patch(&mut object, &patch, lists).map_err(Status::bad_request)?;
            }
            Self::Apply(configuration) => {
                let (by, now) = (manager(target, "Apply"), json!(target.now));
                let force = target.request.query.is_on("force");
                let applied = patch::apply(&object, &configuration, &by, force, lists, &now)
                    .map_err(|conflicts| apply_conflict(&conflicts))?;
                *owners = applied.owners;
                object = applied.object;
            }
        }
        Ok(object)
    }
}

impl State {
    pub(super) fn create(&mut self, target: &Target<'_>) -> Result<Answer, Status> {
        let body = body(target)?;
        let object = self.insert(target, body)?;
        Ok(Answer { code: 201, body: super::Body::Json(events::shown(&target.resource, object)) })
    }

    /// Stores a new object.
    fn insert(&mut self, target: &Target<'_>, mut object: Value) -> Result<Value, Status> {
        let resource = &target.resource;
        check_kind(target, &object)?;
        place(target, &mut object)?;
        if resource.namespaced && meta::text(&object, "namespace").is_empty() {
            return Err(Status::bad_request("an empty namespace may not be set during creation"));
        }
        if meta::text(&object, "name").is_empty() && !meta::text(&object, "generateName").is_empty() {
            let name = self.generated_name(meta::text(&object, "generateName"));
            meta::set(&mut object, "name", json!(name));
        }
        let name = meta::text(&object, "name").to_owned();
        if !meta::text(&object, "resourceVersion").is_empty() {
            return Err(Status::internal("resourceVersion should not be set on objects to be created"));
        }
        admission::admit(self, target, &mut object)?;
        let schema = self.shaped(target, &mut object)?;
        object = events::kept(resource, object);
        meta::set(&mut object, "uid", json!(self.uid()));
        meta::set(&mut object, "creationTimestamp", json!(target.now));
        for field in
            ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink", "managedFields"]
        {
            meta::set(&mut object, field, Value::Null);
        }
        let profile = self.profile.clone();
        let of = Occasion { resource, profile: &profile, subresource: "", now: &target.now };
        strategy::default(&of, &mut object);
        // The client owns the fields that it sent and their defaults. Fields that admission adds have no
        // owner.
        let mut owners = Owners::default();
        let nothing = strategy::nothing(resource);
        owners.updated(
            manager(target, "Update"),
            &nothing,
            &object,
            &self.lists_of(resource),
            &json!(target.now),
        );
        strategy::prepare_create(&of, &mut object);
        let mut errors = validate_meta(resource.namespaced, &object);
        errors.extend(strategy::validate_create(&of, &object));
        errors.extend(schema.iter().flat_map(|schema| schema.check(None, &object)));
        errors.extend(admission::admin_access(self, resource, &object));
        if !errors.is_empty() {
            return Err(Status::invalid(resource, &name, &errors));
        }
        quota::admit(self, resource, &object)?;
        let key = meta::name_of(&object);
        if self.store.get(&resource.stored_as(), &key).is_some() {
            return Err(Status::already_exists(resource, &name));
        }
        owners.write(&mut object);
        if dry_run(target)? {
            return Ok(object);
        }
        let kept = self.store_new(target, object);
        let latest = self.store.get(&resource.stored_as(), &meta::name_of(&kept)).cloned().unwrap_or(kept);
        Ok(Value::clone(&latest))
    }

    fn store_new(&mut self, target: &Target<'_>, object: Value) -> Arc<Value> {
        self.keep_spelling(&object, Spelling::of_body(target));
        let kept = self.store.put(&target.resource.stored_as(), object);
        self.wrote(target, "create", &kept);
        self.learn(&target.resource, &kept, &target.now);
        kept
    }

    /// Prunes the object to the shape of its kind, fills in defaults of a custom schema, and normalizes
    /// quantities. Returns the schema of a custom resource.
    ///
    /// # Errors
    /// The object has an unknown field and `fieldValidation` is `Strict`, or a quantity cannot be parsed.
    fn shaped(&self, target: &Target<'_>, object: &mut Value) -> Result<Option<Arc<Schema>>, Status> {
        let resource = &target.resource;
        let schema = self.schemas.get(&resource.qualified(), &resource.version);
        let unknown = match &schema {
            Some(schema) => schema.prune(object),
            None => shapes::prune(resource, object),
        };
        if !unknown.is_empty() && target.request.query.get("fieldValidation") == "Strict" {
            let unknown: Vec<String> =
                unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
            let why = format!("strict decoding error: {}", unknown.join(", "));
            if target.request.method == http::Method::PATCH && schema.is_none() {
                let error = FieldError::invalid("patch", &json!(object.to_string()), &why);
                // Upstream's error names no object here.
                let mut status = Status::invalid(resource, "", &[error]);
                status.details = json!({"causes": status.details["causes"]});
                return Err(status);
            }
            let (version, kind) = (&resource.version, &resource.kind);
            return Err(Status::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
            )));
        }
        if let Some(schema) = &schema {
            schema.fill(object);
        } else if let Err(why) = resources::decode(&resource.kind, object) {
            let (version, kind) = (&resource.version, &resource.kind);
            return Err(Status::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
            )));
        }
        Ok(schema)
    }

    fn generated_name(&mut self, stem: &str) -> String {
        // Upstream's alphabet: no vowels and no characters that are easily confused.
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let stem: String = stem.chars().take(58).collect();
        let random = (0..5).filter_map(|_| self.rng.choice(LETTERS).map(|letter| char::from(*letter)));
        let random: String = random.collect();
        stem + &random
    }

    pub(super) fn replace(&mut self, target: &Target<'_>) -> Result<Answer, Status> {
        let object = body(target)?;
        check_kind(target, &object)?;
        if meta::text(&object, "name") != target.name.as_deref().unwrap_or_default() {
            let message = format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                meta::text(&object, "name"),
                target.name.as_deref().unwrap_or_default()
            );
            return Err(Status::bad_request(message));
        }
        self.change(target, "update", Change::Replace(object))
    }

    pub(super) fn patch(&mut self, target: &Target<'_>) -> Result<Answer, Status> {
        const FORMS: &str = "application/json-patch+json, application/merge-patch+json, \
                             application/strategic-merge-patch+json, application/apply-patch+yaml";
        let custom = self.lists.contains_key(&target.resource.stored_as());
        let change = match &*target.request.content_type {
            "application/json-patch+json" => Change::JsonPatch(json_body(target)?),
            "application/merge-patch+json" => Change::Merge(json_body(target)?),
            "application/strategic-merge-patch+json" if !custom => Change::Strategic(json_body(target)?),
            "application/apply-patch+yaml" => Change::Apply(json_body(target)?),
            _ => return Err(Status::unsupported_media_type(FORMS)),
        };
        if let Change::Apply(configuration) = change {
            return self.apply(target, &configuration);
        }
        self.change(target, "patch", change)
    }

    fn apply(&mut self, target: &Target<'_>, configuration: &Value) -> Result<Answer, Status> {
        let resource = target.resource.clone();
        let name = target.name.clone().unwrap_or_default();
        if target.request.query.get("fieldManager").is_empty() {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            return Err(Status::invalid_options("PatchOptions", &error));
        }
        if !configuration["metadata"]["managedFields"].is_null() {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        let there = self.current(target).is_ok();
        if there || !target.subresource.is_empty() {
            return self.change(target, "patch", Change::Apply(configuration.clone()));
        }
        // Apply creates a missing object, unless the configuration names a uid.
        let mut object = configuration.clone();
        meta::set(&mut object, "name", json!(name));
        if !meta::text(configuration, "uid").is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                meta::text(configuration, "uid")
            );
            return Err(Status::conflict(&resource, &name, &why));
        }
        let create = RequestAttributes { verb: "create".to_owned(), ..target.attributes() };
        if let Err(refused) = self.require(&target.request.user, &create) {
            self.remember_refused(&target.request.user, create);
            return Err(refused);
        }
        let created = self.insert(target, object)?;
        let mut owned = created.clone();
        let by = manager(target, "Apply");
        let lists = self.lists_of(&resource);
        let now = json!(target.now);
        meta::set(&mut owned, "managedFields", Value::Null);
        if let Ok(applied) = patch::apply(&owned, configuration, &by, true, &lists, &now) {
            applied.owners.write(&mut owned);
            if !dry_run(target)? {
                owned = Value::clone(&self.store.put(&resource.stored_as(), owned));
            }
        }
        Ok(Answer { code: 201, body: super::Body::Json(events::shown(&resource, owned)) })
    }

    /// Changes a stored object.
    fn change(&mut self, target: &Target<'_>, verb: &'static str, change: Change) -> Result<Answer, Status> {
        let resource = &target.resource;
        let sent = matches!(change, Change::Replace(_)).then(|| Spelling::of_body(target));
        let before = self.current(target)?;
        let (lists, now) = (self.lists_of(resource), json!(target.now));
        let applies = matches!(change, Change::Apply(_));
        let mut owners = Owners::of(&before);
        // Objects without managedFields stay untracked until their first apply.
        let tracked = !owners.is_empty();
        let mut shown = events::shown(resource, Value::clone(&before));
        if applies && !tracked {
            let first = Managed { manager: "before-first-apply".to_owned(), ..manager(target, "Update") };
            owners.updated(first, &strategy::nothing(resource), &shown, &lists, &now);
            owners.write(&mut shown);
        }
        let object = change.made(target, shown, &lists, &mut owners)?;
        let (mut object, schema) = self.admissible(target, &before, object)?;
        let of = self.occasion(target);
        strategy::reset(&of, &before, &mut object);
        if !applies && tracked {
            owners.updated(manager(target, "Update"), &before, &object, &lists, &now);
        }
        strategy::prepare_update(&of, &before, &mut object);
        let mut errors = validate_finalizers(&before, &object);
        errors.extend(strategy::validate_update(&of, &before, &object));
        errors.extend(schema.iter().flat_map(|schema| schema.check(Some(&*before), &object)));
        let (spelling, changed) = self.respelled(target, (&before, &object), sent);
        errors.extend(changed);
        errors.extend(admission::claim_rights(self, target, verb, &before, &object));
        if !errors.is_empty() {
            return Err(Status::invalid(resource, meta::text(&before, "name"), &errors));
        }
        admission::admit_status(self, target, &before, &object)?;
        owners.write(&mut object);
        if same(&before, &object) {
            return Ok(Answer::ok(events::shown(resource, Value::clone(&before))));
        }
        if dry_run(target)? {
            return Ok(Answer::ok(events::shown(resource, object)));
        }
        self.keep_spelling(&object, spelling);
        Ok(self.store_changed(target, verb, object))
    }

    /// Brings a changed object into the shape in which it is stored, and restores the metadata that no write
    /// changes. Returns the schema of a custom resource too.
    ///
    /// # Errors
    /// The object contradicts the path or the stored version, or does not have the shape of its kind.
    fn admissible(
        &self,
        target: &Target<'_>,
        before: &Value,
        object: Value,
    ) -> Result<(Value, Option<Arc<Schema>>), Status> {
        let resource = &target.resource;
        let mut object = events::kept(resource, object);
        place(target, &mut object)?;
        let schema = self.shaped(target, &mut object)?;
        strategy::tidy(resource, &mut object);
        check_version(target, before, &object)?;
        for field in [
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "uid",
            "generation",
            "generateName",
        ] {
            meta::set(&mut object, field, before["metadata"][field].clone());
        }
        Ok((object, schema))
    }

    /// The context of a write to the target.
    fn occasion<'a>(&'a self, target: &'a Target<'_>) -> Occasion<'a> {
        Occasion {
            resource: &target.resource,
            profile: &self.profile,
            subresource: &target.subresource,
            now: &target.now,
        }
    }

    /// Stores a changed object, and removes it if it only waited for this change.
    fn store_changed(&mut self, target: &Target<'_>, verb: &'static str, object: Value) -> Answer {
        let resource = &target.resource;
        let kept = self.store.put(&resource.stored_as(), object);
        self.wrote(target, verb, &kept);
        self.learn(resource, &kept, &target.now);
        // A terminating object is removed with its last finalizer, unless its grace period is positive.
        let graceful = kept["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() > 0;
        if meta::is_deleting(&kept) && !meta::has_finalizers(&kept) && !graceful && !is_held(&kept) {
            self.remove(resource, &kept);
        }
        Answer::ok(events::shown(resource, Value::clone(&kept)))
    }

    pub(super) fn bind(&mut self, target: &Target<'_>) -> Result<Answer, Status> {
        let binding = body(target)?;
        let pod = self.current(target)?;
        let (resource, name) = (target.resource.clone(), meta::text(&pod, "name").to_owned());
        if meta::text(&binding, "name") != name {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        let conflict = |why: &str| {
            let mut status = Status::conflict(&resource, &name, why);
            status.message = format!("Operation cannot be fulfilled on pods/binding {name:?}: {why}");
            status.details["kind"] = json!("pods/binding");
            status
        };
        if !meta::text(&binding, "uid").is_empty() && meta::text(&binding, "uid") != meta::text(&pod, "uid") {
            return Err(conflict("Precondition failed: UID in precondition"));
        }
        if meta::is_deleting(&pod) {
            return Err(conflict(&format!("pod {name} is being deleted, cannot be assigned to a host")));
        }
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            return Err(conflict(&format!("pod {name} is already assigned to node {node:?}")));
        }
        if meta::items(&pod["spec"]["schedulingGates"]).next().is_some() {
            return Err(conflict(&format!("pod {name} has non-empty .spec.schedulingGates")));
        }
        // Fields that a binding sets have no owner.
        let mut bound = Value::clone(&pod);
        meta::put(&mut bound, &["spec", "nodeName"], binding["target"]["name"].clone());
        let mut conditions: Vec<Value> = meta::items(&bound["status"]["conditions"]).cloned().collect();
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": target.now}));
        meta::put(&mut bound, &["status", "conditions"], json!(conditions));
        let kept = self.store.put(&resource.stored_as(), bound);
        self.wrote(target, "create", &kept);
        let body =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Answer { code: 201, body: super::Body::Json(body) })
    }

    pub(super) fn wrote(&mut self, target: &Target<'_>, verb: &'static str, object: &Value) {
        let resource = &target.resource.plural;
        let resource = if target.subresource.is_empty() {
            resource.clone()
        } else {
            format!("{resource}/{}", target.subresource)
        };
        let (namespace, name) = meta::name_of(object);
        let user = target.request.user.name.clone();
        let uid = meta::text(object, "uid").to_owned();
        self.writes.push(Write { user, verb, resource, namespace, name, uid });
        // A reference to a missing owner is handled like one to a removed owner.
        for owner in meta::owners(object).map(meta::owner_uid) {
            if self.store.by_uid(owner).is_none() {
                self.orphaned.push_back(owner.to_owned());
            }
        }
    }
}

impl patch::Failed {
    fn into_status(self) -> Status {
        match self {
            Self::Malformed(why) => Status::bad_request(why),
            Self::Unfit => Status::unprocessable(),
        }
    }
}

/// Whether the object is a namespace with finalizers in `spec`: it stays until its contents are gone.
fn is_held(object: &Value) -> bool {
    object["kind"] == "Namespace" && meta::items(&object["spec"]["finalizers"]).next().is_some()
}

fn apply_conflict(conflicts: &[patch::Conflict]) -> Status {
    let with = |conflict: &patch::Conflict| {
        let by = format!("{:?}", conflict.manager);
        if conflict.operation == "Apply" {
            return by;
        }
        let with = if conflict.subresource.is_empty() {
            String::new()
        } else {
            format!(" with subresource {:?}", conflict.subresource)
        };
        format!("{by}{with} using {}", conflict.api_version)
    };
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|conflict| json!({"reason": "FieldManagerConflict", "message": format!("conflict with {}", with(conflict)), "field": conflict.field}))
        .collect();
    let message = match conflicts {
        [one] => format!("Apply failed with 1 conflict: conflict with {}: {}", with(one), one.field),
        many => {
            let lines: Vec<String> = many.iter().map(|one| format!("- {}", one.field)).collect();
            let first = many.first().map(with).unwrap_or_default();
            format!(
                "Apply failed with {} conflicts: conflicts with {first}:\n{}",
                many.len(),
                lines.join("\n")
            )
        }
    };
    Status { code: 409, reason: "Conflict", message, details: json!({"causes": causes}) }
}
