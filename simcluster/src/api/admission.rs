//! Admission checks between a request and the store: namespaces, admin access, policies.

use std::sync::Arc;

use serde_json::{Value, json};

use super::rights::RequestAttributes;
use super::status::{FieldError, Status};
use super::{State, Target, User, meta};
use crate::kinds::Resource;

/// The label of namespaces that may use admin access.
const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";

/// Checks that the namespace of a new object accepts it.
///
/// # Errors
/// The namespace does not exist or is terminating.
fn admit_namespace(state: &State, target: &Target<'_>, object: &Value) -> Result<(), Status> {
    let Some(namespace) = &target.namespace else { return Ok(()) };
    let Some(found) = state.store.get("namespaces", &(String::new(), namespace.clone())) else {
        let namespaces = state.resource("", "v1", "namespaces").ok_or_else(Status::unserved)?;
        return Err(Status::not_found(&namespaces, namespace));
    };
    if !meta::is_deleting(found) {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = Status::forbidden(&target.resource, meta::text(object, "name"), &why);
    status.details["causes"] = json!([{
        "reason": "NamespaceTerminating", "message": format!("namespace {namespace} is being terminated"),
        "field": "metadata.namespace",
    }]);
    Err(status)
}

/// Returns an error for every request with admin access in a namespace without the label.
pub(super) fn admin_access(state: &State, resource: &Resource, object: &Value) -> Vec<FieldError> {
    let (spec, path) = match &*resource.kind {
        "ResourceClaim" => (&object["spec"], "spec"),
        "ResourceClaimTemplate" => (&object["spec"]["spec"], "spec.spec"),
        _ => return Vec::new(),
    };
    let namespace = meta::text(object, "namespace").to_owned();
    let allowed = state
        .store
        .get("namespaces", &(String::new(), namespace))
        .is_some_and(|namespace| namespace["metadata"]["labels"][ADMIN_ACCESS] == "true");
    let requests = meta::items(&spec["devices"]["requests"]).enumerate();
    let asks = requests.filter(|(_, request)| request["exactly"]["adminAccess"] == true && !allowed);
    let why = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    asks.map(|(number, _)| {
        FieldError::forbidden(format!("{path}.devices.requests[{number}].adminAccess"), why)
    })
    .collect()
}

/// Checks the `binding` permission, which a change of `status.allocation` or `status.reservedFor` needs
/// besides the permission on the status (since 1.36).
pub(super) fn claim_rights(
    state: &State,
    target: &Target<'_>,
    verb: &str,
    before: &Value,
    object: &Value,
) -> Vec<FieldError> {
    let about_status = target.resource.kind == "ResourceClaim" && target.subresource == "status";
    if !about_status || !state.profile.has("DRAResourceClaimGranularStatusAuthorization") {
        return Vec::new();
    }
    let same = |field: &str| before["status"][field] == object["status"][field];
    if same("allocation") && same("reservedFor") {
        return Vec::new();
    }
    // The check is cluster-wide, without namespace and name: a role in the namespace does not suffice.
    let attributes = RequestAttributes {
        verb: verb.to_owned(),
        subresource: "binding".to_owned(),
        namespace: String::new(),
        name: String::new(),
        ..target.attributes()
    };
    let Err(refused) = state.require(&target.request.user, &attributes) else { return Vec::new() };
    let why = format!(
        "changing status.allocation or status.reservedFor requires \
         resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {}",
        refused.message
    );
    vec![FieldError::forbidden("status.allocation", &why)]
}

/// Admits a new object, and sets what admission sets.
///
/// # Errors
/// The namespace takes no such object, or there is no such class of priority.
pub(super) fn admit(state: &State, target: &Target<'_>, object: &mut Value) -> Result<(), Status> {
    admit_namespace(state, target, object)?;
    admit_priority(state, &target.resource, object)
}

/// The priority of a Pod is that of its class.
fn admit_priority(state: &State, resource: &Resource, object: &mut Value) -> Result<(), Status> {
    let class = object["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    if resource.kind != "Pod" || class.is_empty() {
        return Ok(());
    }
    let known = match &*class {
        "system-node-critical" => Some((2_000_001_000, None)),
        "system-cluster-critical" => Some((2_000_000_000, None)),
        _ => state.store.get("priorityclasses.scheduling.k8s.io", &(String::new(), class.clone())).map(
            |found| {
                (
                    found["value"].as_i64().unwrap_or_default(),
                    found["preemptionPolicy"].as_str().map(str::to_owned),
                )
            },
        ),
    };
    let Some((value, policy)) = known else {
        let why = format!("no PriorityClass with name {class} was found");
        return Err(Status::forbidden(resource, meta::text(object, "name"), &why));
    };
    meta::put(object, &["spec", "priority"], value.into());
    if let Some(policy) = policy {
        meta::put(object, &["spec", "preemptionPolicy"], policy.into());
    }
    Ok(())
}

/// Stands for the admission policies of a cluster: it sees the user and a claim before and after a write of its status, and says why
/// that is refused.
pub type Referee = Arc<dyn Fn(&User, &Value, &Value) -> Option<String> + Send + Sync>;

/// Asks the referee of the cluster.
///
/// # Errors
/// It refuses the write.
pub(super) fn admit_status(
    state: &State,
    target: &Target<'_>,
    before: &Value,
    object: &Value,
) -> Result<(), Status> {
    let about_status = target.resource.kind == "ResourceClaim" && target.subresource == "status";
    let Some(referee) = state.referee.as_ref().filter(|_| about_status) else { return Ok(()) };
    match referee(&target.request.user, before, object) {
        Some(why) => Err(Status::forbidden(&target.resource, meta::text(object, "name"), &why)),
        None => Ok(()),
    }
}
