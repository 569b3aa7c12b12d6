//! Changes of claims and Pods in words: what was written, and why.

use serde_json::Value;

/// The annotation of a claim that was made from a template: the entry of the Pod.
const ENTRY: &str = "resource.kubernetes.io/pod-claim-name";
/// The finalizer of an allocated claim.
const PROTECTION: &str = "resource.kubernetes.io/delete-protection";

/// A change of an object: before and after. One that was created has no before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) before: Option<&'a Value>,
    pub(super) after: Option<&'a Value>,
}

/// A field of an object; null where there is none.
fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    object.pointer(path).unwrap_or(&NULL)
}

static NULL: Value = Value::Null;

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the changes of a claim in words. `fate` says of a consumer why it is none any more.
pub(super) fn of_claim(change: Change<'_>, fate: impl Fn(&Value) -> String) -> Vec<String> {
    let none = Value::Null;
    let (before, after) = (change.before.unwrap_or(&none), change.after.unwrap_or(&none));
    match (change.before, change.after) {
        (None, Some(claim)) => return vec![created(claim)],
        // That it was to be deleted has been said before.
        (Some(claim), None) if !at(claim, "/metadata/deletionTimestamp").is_null() => return Vec::new(),
        (Some(claim), None) => return vec![deleted(claim)],
        _ => {}
    }
    let mut words = Vec::new();
    let consumers = |claim: &Value| items(at(claim, "/status/reservedFor")).to_vec();
    let (old, new) = (consumers(before), consumers(after));
    let gone: Vec<String> = old.iter().filter(|of| !new.contains(of)).map(&fate).collect();
    if !gone.is_empty() {
        words.push(format!("is reserved no more for {}", gone.join(", ")));
    }
    let come: Vec<String> = new.iter().filter(|of| !old.contains(of)).map(consumer).collect();
    if !come.is_empty() {
        words.push(format!("is reserved for {}", come.join(", ")));
    }
    let devices = |claim: &Value| items(at(claim, "/status/allocation/devices/results")).len();
    if at(before, "/status/allocation").is_object() && !at(after, "/status/allocation").is_object() {
        words.push(format!("gives back {}", counted(devices(before))));
    }
    if !at(before, "/status/allocation").is_object() && at(after, "/status/allocation").is_object() {
        words.push(format!("gets {}", counted(devices(after))));
    }
    let is_protected =
        |claim: &Value| items(at(claim, "/metadata/finalizers")).iter().any(|of| text(of) == PROTECTION);
    if is_protected(before) && !is_protected(after) {
        words.push(format!("may be deleted: the finalizer {PROTECTION} is taken away"));
    }
    if at(before, "/metadata/deletionTimestamp").is_null()
        && !at(after, "/metadata/deletionTimestamp").is_null()
    {
        words.push(deleted(after));
    }
    words
}

fn created(claim: &Value) -> String {
    let owner = owner(claim);
    match (owner, text(at(claim, "/metadata/annotations").get(ENTRY).unwrap_or(&NULL))) {
        (Some(owner), "") => format!("is made for {owner}"),
        (Some(owner), entry) => format!("is made for entry {entry} of {owner}"),
        (None, _) => "is made".to_owned(),
    }
}

fn deleted(claim: &Value) -> String {
    owner(claim)
        .map_or_else(|| "is deleted".to_owned(), |owner| format!("is deleted; it was made for {owner}"))
}

/// The object that a claim was made for.
fn owner(claim: &Value) -> Option<String> {
    let owners = items(at(claim, "/metadata/ownerReferences"));
    let owner = owners.iter().find(|owner| at(owner, "/controller") == &Value::Bool(true))?;
    Some(format!("{} {}", text(at(owner, "/kind")), text(at(owner, "/name"))))
}

/// The name of a consumer.
pub(super) fn name(of: &Value) -> &str {
    text(at(of, "/name"))
}

/// A consumer of a claim.
pub(super) fn consumer(of: &Value) -> String {
    let kind = match text(at(of, "/resource")) {
        "pods" => "Pod",
        "podgroups" => "PodGroup",
        other => other,
    };
    format!("{kind} {}", text(at(of, "/name")))
}

fn counted(devices: usize) -> String {
    if devices == 1 { "1 device".to_owned() } else { format!("{devices} devices") }
}

/// Why a Pod is no consumer any more, by the Pod of its name that there is.
pub(super) fn fate(of: &Value, pod: Option<&Value>) -> String {
    let consumer = consumer(of);
    let Some(pod) = pod else { return format!("{consumer}, which does not exist") };
    match text(at(pod, "/status/phase")) {
        _ if at(pod, "/metadata/uid") != at(of, "/uid") => format!("{consumer}, which is another Pod now"),
        phase @ ("Succeeded" | "Failed") => format!("{consumer}, which has ended ({phase})"),
        _ => consumer,
    }
}

/// Returns the changes of a Pod in words.
pub(super) fn of_pod(change: Change<'_>) -> Vec<String> {
    let none = Value::Null;
    let (before, after) = (change.before.unwrap_or(&none), change.after.unwrap_or(&none));
    let mut words = Vec::new();
    let statuses = |pod: &Value| items(at(pod, "/status/resourceClaimStatuses")).to_vec();
    let old = statuses(before);
    for status in statuses(after).iter().filter(|status| !old.contains(status)) {
        words.push(match text(at(status, "/resourceClaimName")) {
            "" => format!("needs no claim for entry {}", text(at(status, "/name"))),
            claim => format!("names claim {claim} for entry {}", text(at(status, "/name"))),
        });
    }
    let gates = |pod: &Value| items(at(pod, "/spec/schedulingGates")).to_vec();
    let closed = gates(after);
    for gate in gates(before).iter().filter(|gate| !closed.contains(gate)) {
        words.push(format!("loses its gate {}", text(at(gate, "/name"))));
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(status: &Value, finalizers: &Value) -> Value {
        json!({"metadata": {"name": "c", "finalizers": finalizers, "annotations": {ENTRY: "gpu"},
            "ownerReferences": [{"kind": "Pod", "name": "a", "controller": true}]}, "status": status})
    }

    fn changed(before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
        let pods = json!({"ended": {"metadata": {"uid": "ended"}, "status": {"phase": "Failed"}}, "new": {"metadata": {"uid": "x"}}});
        of_claim(Change { before, after }, |of| fate(of, pods.get(text(&of["name"]))))
    }

    #[test]
    fn a_claim_that_changes_says_what_and_why() {
        let pod = |name: &str| json!({"resource": "pods", "name": name, "uid": name});
        let allocation = json!({"devices": {"results": [{}, {}]}});
        let held = json!({"allocation": allocation, "reservedFor": [pod("gone"), pod("ended"), pod("new")]});
        let held = claim(&held, &json!([PROTECTION]));
        let free = claim(&json!({}), &json!([]));
        assert_eq!(changed(None, Some(&free)), ["is made for entry gpu of Pod a"]);
        assert_eq!(changed(Some(&free), None), ["is deleted; it was made for Pod a"]);
        assert_eq!(
            changed(Some(&held), Some(&free)),
            [
                "is reserved no more for Pod gone, which does not exist, Pod ended, which has ended (Failed), Pod new, which is another Pod now",
                "gives back 2 devices",
                "may be deleted: the finalizer resource.kubernetes.io/delete-protection is taken away",
            ]
        );
        let back = changed(Some(&free), Some(&held));
        assert_eq!(back, ["is reserved for Pod gone, Pod ended, Pod new", "gets 2 devices"]);
    }

    #[test]
    fn a_pod_that_gets_its_claim_names_it() {
        let before = json!({"spec": {"schedulingGates": [{"name": "g"}]}});
        let after = json!({"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}, {"name": "none"}]}});
        let words = of_pod(Change { before: Some(&before), after: Some(&after) });
        assert_eq!(
            words,
            ["names claim c for entry gpu", "needs no claim for entry none", "loses its gate g"]
        );
    }
}
