//! Broken situations, and the verdict that each gets.

mod absent;
mod cost;
mod near;
mod tainted;
mod template;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Answer;
use crate::facts::Facts;

const CREATED: &str = "2026-01-01T10:00:00Z";

fn now() -> Timestamp {
    "2026-01-01T10:05:00Z".parse().expect("a time")
}

fn facts(objects: &[Value]) -> Facts {
    let mut facts = Facts::with_costs();
    let list = json!({"kind": "List", "items": objects});
    facts.take_file(std::path::Path::new("f"), &list.to_string()).expect("objects");
    facts
}

fn meta(name: &str) -> Value {
    json!({"namespace": "ml", "name": name, "uid": format!("uid-{name}"), "creationTimestamp": CREATED})
}

/// A Pod that waits, with an entry `gpu` that is changed by the case.
fn pod(entry: Value, status: Value) -> Value {
    let mut entry = entry;
    entry["name"] = json!("gpu");
    let mut pod = json!({"kind": "Pod", "metadata": meta("train"), "spec": {"resourceClaims": [entry]},
        "status": {"phase": "Pending"}});
    merge(&mut pod["status"], status);
    pod
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

/// The Pod uses the claim `c` by name.
fn by_name() -> Value {
    pod(json!({"resourceClaimName": "c"}), json!({}))
}

fn from_template() -> Value {
    pod(json!({"resourceClaimTemplateName": "t"}), json!({}))
}

fn template() -> Value {
    json!({"kind": "ResourceClaimTemplate", "metadata": meta("t"), "spec": {"spec": {}}})
}

fn claim(name: &str) -> Value {
    json!({"kind": "ResourceClaim", "metadata": meta(name), "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}})
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let parent = if parent.is_empty() { Some(&mut object) } else { object.pointer_mut(parent) };
    parent.expect("a parent")[key] = value;
    object
}

fn allocated(name: &str, device: &str, consumers: &Value) -> Value {
    let result = json!({"request": "r", "driver": "d", "pool": "node-0", "device": device});
    with(
        claim(name),
        "/status",
        json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers}),
    )
}

fn consumer(name: &str) -> Value {
    json!([{"resource": "pods", "name": name, "uid": format!("uid-{name}")}])
}

fn class() -> Value {
    json!({"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"selectors": [
        {"cel": {"expression": "device.driver == 'd'"}}]}})
}

fn slice(devices: &[&str]) -> Value {
    let devices: Vec<Value> = devices.iter().map(|name| json!({"name": name})).collect();
    json!({"kind": "ResourceSlice", "metadata": {"name": "node-0-d"}, "spec": {"driver": "d", "nodeName": "node-0",
        "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1}, "devices": devices}})
}

fn node() -> Value {
    json!({"kind": "Node", "metadata": {"name": "node-0"}, "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": "10"}}})
}

fn rule() -> Value {
    json!({"kind": "DeviceTaintRule", "metadata": {"name": "broken"}, "spec": {"deviceSelector": {"driver": "d"},
        "taint": {"key": "broken", "effect": "NoSchedule"}}})
}

fn cluster(more: &[Value]) -> Vec<Value> {
    [&[class(), slice(&["a", "b"]), node()], more].concat()
}

fn of_pod(objects: &[Value]) -> Answer {
    super::pod::explain(facts(objects), "ml", "train", now())
}

/// Fails unless the verdict has this reason, and its sentence these words.
fn says(what: &str, answer: &Answer, reason: &str, words: &str) {
    let verdict = &answer.verdict;
    assert_eq!(verdict.reason, reason, "{what}: {}", verdict.sentence);
    assert!(verdict.sentence.contains(words), "{what}: {}", verdict.sentence);
    assert!(
        !verdict.sentence.contains('\n') && !verdict.sentence.ends_with('.'),
        "{what}: {}",
        verdict.sentence
    );
}

#[test]
fn a_pod_without_its_claim() {
    let quota = |used: &str| {
        let of = |count: &str| json!({"count/resourceclaims.resource.k8s.io": count});
        json!({"kind": "ResourceQuota", "metadata": meta("claims"), "status": {"hard": of("2"), "used": of(used)}})
    };
    let event = json!({"kind": "Event", "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "train"},
        "type": "Warning", "reason": "FailedResourceClaimCreation", "message": "admission webhook denied it"});
    let by_class = {
        let of = json!({"gpu.deviceclass.resource.k8s.io/devices": "3"});
        json!({"kind": "ResourceQuota", "metadata": meta("classes"), "status": {"hard": of, "used": of}})
    };
    let cases: [(&str, Vec<Value>, &str, &str); 10] = [
        ("no Pod", vec![], "PodMissing", "Pod ml/train does not exist"),
        ("no template", vec![from_template()], "TemplateMissing", "template ml/t does not exist"),
        (
            "an unreadable template",
            vec![from_template(), with(template(), "/spec", json!("text"))],
            "TemplateUnreadable",
            "template ml/t does not decode",
        ),
        (
            "a full quota",
            vec![from_template(), template(), quota("2")],
            "QuotaExceeded",
            "quota claims admits no more: 2 of 2",
        ),
        (
            "a full quota by class",
            vec![from_template(), with(template(), "/spec", json!({"spec": claim("x")["spec"]})), by_class],
            "QuotaExceeded",
            "quota classes admits no more: 3 of 3 devices of DeviceClass gpu are used",
        ),
        (
            "no controller",
            vec![from_template(), template(), quota("1")],
            "ClaimNotCreated",
            "from template \"t\" for 5m",
        ),
        (
            "a refusal",
            vec![from_template(), template(), event],
            "ClaimRefused",
            "was refused: admission webhook denied it",
        ),
        ("no claim", vec![by_name()], "ClaimMissing", "claim ml/c does not exist"),
        (
            "an unreadable claim",
            vec![by_name(), with(claim("c"), "/spec", json!(7))],
            "ClaimUnreadable",
            "claim ml/c does not decode",
        ),
        (
            "an entry of a later API",
            vec![pod(json!({"resourceClaimGroup": "x"}), json!({}))],
            "EntryUnknown",
            "neither a claim nor a template",
        ),
    ];
    for (what, objects, reason, words) in cases {
        says(what, &of_pod(&objects), reason, words);
    }
}

#[test]
fn a_pod_whose_claim_is_not_its_own_or_not_usable() {
    let published = json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]});
    let generated = pod(json!({"resourceClaimTemplateName": "t"}), published);
    let owner =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "uid-other", "controller": true}]);
    let deleting = with(
        with(claim("c"), "/metadata/deletionTimestamp", json!(CREATED)),
        "/metadata/finalizers",
        json!(["x/y"]),
    );
    let gated = |prefix: &str, of: Value| {
        with(of, "/metadata/annotations", json!({format!("{prefix}/image"): "pulls"}))
    };
    let many: Vec<Value> = (0..256)
        .map(|n| json!({"resource": "pods", "name": format!("p{n}"), "uid": format!("u{n}")}))
        .collect();
    let cases: [(&str, Vec<Value>, &str, &str); 7] = [
        (
            "another's claim",
            cluster(&[generated, with(claim("c"), "/metadata/ownerReferences", owner)]),
            "ClaimOfAnother",
            "for another owner",
        ),
        ("a claim that goes", cluster(&[by_name(), deleting]), "ClaimDeleted", "finalizers hold it: x/y"),
        (
            "a closed gate",
            cluster(&[by_name(), gated("allocation-gates.dragoman.dev", claim("c"))]),
            "AllocationGateClosed",
            "gate image: pulls",
        ),
        (
            "a closed release gate",
            cluster(&[by_name(), gated("release-gates.dragoman.dev", allocated("c", "a", &json!([])))]),
            "ReleaseGateClosed",
            "its release gate image is closed",
        ),
        (
            "too many consumers",
            cluster(&[by_name(), allocated("c", "a", &json!(many))]),
            "TooManyConsumers",
            "256 consumers",
        ),
        (
            "an unreadable allocation",
            cluster(&[by_name(), with(claim("c"), "/status", json!({"allocation": 7}))]),
            "ClaimUnreadable",
            "the allocation of claim ml/c does not decode",
        ),
        (
            "a device that is gone",
            cluster(&[by_name(), allocated("c", "z", &consumer("train"))]),
            "DeviceGone",
            "device d/node-0/z",
        ),
    ];
    for (what, objects, reason, words) in cases {
        says(what, &of_pod(&objects), reason, words);
    }
}

/// Fails unless this is the verdict of the Pod among these objects.
fn pod_says(objects: &[Value], reason: &str, words: &str) {
    says(words, &of_pod(objects), reason, words);
}

fn selecting(expression: &str) -> Value {
    let selectors = json!([{"cel": {"expression": expression}}]);
    with(claim("c"), "/spec/devices/requests/0/exactly/selectors", selectors)
}

#[test]
fn a_pod_whose_claim_asks_for_what_there_is_not() {
    let wants = |count: u64| with(claim("c"), "/spec/devices/requests/0/exactly/count", json!(count));
    let other_class = with(claim("c"), "/spec/devices/requests/0/exactly/deviceClassName", json!("tpu"));
    let taken = [allocated("x", "a", &consumer("one")), allocated("y", "b", &consumer("two"))];
    pod_says(
        &cluster(&[by_name(), other_class]),
        "ClassMissing",
        "DeviceClass \"tpu\", which does not exist",
    );
    pod_says(&[class(), node(), by_name(), claim("c")], "NoDevices", "no driver publishes devices");
    pod_says(&cluster(&[by_name(), wants(3)]), "NoDevicesFree", "wants 3 devices, 2 suitable");
    pod_says(
        &cluster(&[&[by_name(), claim("c")], &taken[..]].concat()),
        "NoDevicesFree",
        "held by claims ml/x, ml/y",
    );
    let h100 = selecting("device.attributes['d'].?model.orValue('') == 'h100'");
    pod_says(&cluster(&[by_name(), h100]), "NoDevicesFree", "== 'h100'");
    pod_says(&cluster(&[by_name(), selecting("device.")]), "RequestInvalid", "CEL compile error");
    let fails = selecting("device.attributes['d'].model == 'h100'");
    pod_says(&cluster(&[by_name(), fails]), "RequestInvalid", "no such key: model");
    pod_says(&cluster(&[by_name(), claim("c")]), "DevicesFree", "free on node node-0");
}

/// Two devices that draw on the same 80 gb.
fn partitioned() -> [Value; 2] {
    let slice = |name: &str, more: Value| {
        let mut spec = json!({"driver": "d", "nodeName": "node-0",
            "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 2}});
        merge(&mut spec, more);
        json!({"kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec})
    };
    let device = |name: &str, gb: &str| json!({"name": name, "consumesCounters": [{"counterSet": "memory", "counters": {"gb": {"value": gb}}}]});
    let sets = json!({"sharedCounters": [{"name": "memory", "counters": {"gb": {"value": "80"}}}]});
    [slice("devices", json!({"devices": [device("half", "40"), device("whole", "80")]})), slice("sets", sets)]
}

#[test]
fn a_pod_whose_claim_finds_no_usable_device() {
    let [devices, sets] = partitioned();
    let half = allocated("x", "half", &consumer("one"));
    pod_says(&[class(), devices, sets, node(), by_name(), claim("c"), half], "NoDevicesFree", "gb");
    let incomplete = with(slice(&["a"]), "/spec/pool/resourceSliceCount", json!(2));
    pod_says(&[class(), incomplete, node(), by_name(), claim("c")], "NoDevicesFree", "has 1 of 2 slices");
    pod_says(&cluster(&[by_name(), claim("c"), rule()]), "NoDevicesFree", "DeviceTaintRule broken");
    let taint = json!({"taints": [{"key": "gpu", "value": "only", "effect": "NoSchedule"}]});
    let tainted = with(node(), "/spec", taint);
    pod_says(
        &[class(), slice(&["a"]), tainted, by_name(), claim("c")],
        "NoNodeTakesThePod",
        "taint gpu=only:NoSchedule",
    );
    let elsewhere = with(by_name(), "/spec/nodeSelector", json!({"zone": "b"}));
    pod_says(&cluster(&[elsewhere, claim("c")]), "NoNodeTakesThePod", "zone=b");
}

fn ready() -> Value {
    allocated("c", "a", &consumer("train"))
}

#[test]
fn a_pod_that_waits_for_something_else() {
    let gated = |gate: &str| with(by_name(), "/spec/schedulingGates", json!([{"name": gate}]));
    let said = |pod: Value, of: &str, reason: &str, message: &str| {
        let condition = json!([{"type": of, "status": "False", "reason": reason, "message": message}]);
        with(pod, "/status/conditions", condition)
    };
    pod_says(&cluster(&[gated("queue/wait"), ready()]), "ForeignGate", "queue/wait");
    let both = || {
        with(
            by_name(),
            "/spec/schedulingGates",
            json!([{"name": "queue/wait"}, {"name": "dragoman.dev/claims"}]),
        )
    };
    let open = || claim("c");
    pod_says(&cluster(&[both(), open()]), "ForeignGate", "queue/wait");
    let told = |reason| said(both(), "dragoman.dev/ClaimsReady", reason, "says the operator");
    pod_says(&cluster(&[told("OtherGateClosed"), open()]), "ForeignGate", "queue/wait");
    // An administrator has put the other gate after ours.
    pod_says(&cluster(&[told("DoesNotFit"), ready()]), "GateClosed", "says the operator");
    let ours = || gated("dragoman.dev/claims");
    let told = said(ours(), "dragoman.dev/ClaimsReady", "DoesNotFit", "cpu is missing on node-0");
    pod_says(&cluster(&[told, ready()]), "GateClosed", "DoesNotFit: cpu is missing on node-0");
    pod_says(&cluster(&[ours(), ready()]), "GateClosed", "does Dragoman run");
    let refused = said(by_name(), "PodScheduled", "Unschedulable", "Insufficient cpu");
    pod_says(&cluster(&[refused, ready()]), "Unschedulable", "Insufficient cpu");
    pod_says(&cluster(&[by_name(), ready()]), "SchedulerSilent", "no scheduler has said anything");
}

#[test]
fn a_pod_that_has_a_node() {
    let bound = || with(by_name(), "/spec/nodeName", json!("node-0"));
    let phase = |of: &str| with(bound(), "/status/phase", json!(of));
    let other = allocated("c", "a", &consumer("other"));
    pod_says(&cluster(&[bound(), other]), "NotReserved", "claim c is not reserved for it");
    let lost = with(node(), "/status/conditions", json!([{"type": "Ready", "status": "Unknown"}]));
    pod_says(&[class(), slice(&["a"]), lost, bound(), ready()], "NodeNotReady", "node-0, which is not ready");
    let event = json!({"kind": "Event", "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "train"},
        "type": "Warning", "reason": "FailedPrepareDynamicResources", "message": "driver d: no such device"});
    pod_says(&cluster(&[bound(), ready(), event]), "NotStarted", "driver d: no such device");
    let volume = json!({"kind": "Event", "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "train"},
        "type": "Warning", "reason": "FailedAttachVolume", "message": "Multi-Attach error for volume pvc-1",
        "reportingComponent": "attachdetach-controller"});
    pod_says(&cluster(&[bound(), ready(), volume]), "NotStarted", "Multi-Attach error for volume pvc-1");
    // What the allocator said while the Pod waited is over.
    let before = json!({"kind": "Event", "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "train"},
        "type": "Warning", "reason": "NoNode", "message": "none of 2 nodes takes the Pod",
        "reportingComponent": "dragoman.dev/allocator"});
    pod_says(&cluster(&[bound(), ready(), before]), "Starting", "starting on node node-0");
    pod_says(&cluster(&[bound(), ready()]), "Starting", "starting on node node-0");
    pod_says(&cluster(&[phase("Running"), ready()]), "Running", "runs on node node-0 with 1 claim");
    pod_says(&cluster(&[phase("Succeeded"), ready()]), "Ended", "has ended (Succeeded)");
    let going = with(bound(), "/metadata/deletionTimestamp", json!(CREATED));
    pod_says(&cluster(&[going, ready()]), "PodDeleted", "is being deleted");
}

#[test]
fn what_an_earlier_pod_or_the_scheduler_said_is_over() {
    let bound = with(by_name(), "/spec/nodeName", json!("node-0"));
    let warning = |reason: &str, uid: &str| {
        json!({"kind": "Event", "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "train", "uid": uid},
            "type": "Warning", "reason": reason, "message": "0/3 nodes are available"})
    };
    for event in [warning("FailedScheduling", "uid-train"), warning("Failed", "uid-of-before")] {
        pod_says(&cluster(&[bound.clone(), ready(), event]), "Starting", "starting on node node-0");
    }
    let open = cluster(&[bound, claim("c")]);
    pod_says(&open, "BoundUnallocated", "bound to node node-0, and claim c has no devices");
}

#[test]
fn the_claim_of_a_pod_group_is_that_of_its_pods() {
    let published = json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]});
    let member = pod(json!({"resourceClaimTemplateName": "t"}), published);
    let member = with(member, "/spec/schedulingGroup", json!({"podGroupName": "gang"}));
    let member = with(member, "/spec/nodeName", json!("node-0"));
    let owner = json!([{"apiVersion": "scheduling.k8s.io/v1", "kind": "PodGroup", "name": "gang", "uid": "g", "controller": true}]);
    let group =
        json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "g"}]);
    let of_group = with(allocated("c", "a", &group), "/metadata/ownerReferences", owner);
    pod_says(&cluster(&[member, of_group]), "Starting", "starting on node node-0");
}

#[test]
fn a_pool_that_is_published_anew_has_lost_nothing() {
    let running = with(with(by_name(), "/spec/nodeName", json!("node-0")), "/status/phase", json!("Running"));
    let mut anew = slice(&["b"]);
    anew["spec"]["pool"] = json!({"name": "node-0", "generation": 2, "resourceSliceCount": 2});
    pod_says(&[class(), anew, node(), running.clone(), ready()], "Running", "runs on node node-0");
    pod_says(&[class(), slice(&["b"]), node(), running, ready()], "DeviceGone", "device d/node-0/a");
}

#[test]
fn a_shared_device_counts_once_on_its_node() {
    let shared = [allocated("x", "a", &consumer("one")), allocated("y", "a", &consumer("two"))];
    let answer = super::node::explain(&facts(&cluster(&shared)), "node-0", now());
    says("shared", &answer, "HasFree", "2 devices, claims hold 1");
}

#[test]
fn a_device_that_cannot_be_read_is_not_free() {
    let newer = with(slice(&["a", "b"]), "/spec/devices/0/sharing", json!({}));
    let of = |name: &str| super::device::explain(facts(&[class(), newer.clone(), node()]), name, now());
    let unreadable = of("a").expect("a device");
    says("newer", &unreadable, "Unreadable", "none gets it: field sharing is not known to this version");
    says("other", &of("b").expect("a device"), "Free", "is held by no claim");
}

#[test]
fn claims_devices_and_nodes() {
    let of_claim = |objects: &[Value]| super::claim::explain(facts(objects), "ml", "c", now());
    says("idle", &of_claim(&cluster(&[allocated("c", "a", &json!([]))])), "Idle", "reserved for no consumer");
    let used = || allocated("c", "a", &consumer("train"));
    says("in use", &of_claim(&cluster(&[used(), by_name()])), "InUse", "for Pod train");
    let missing = of_claim(&cluster(&[]));
    says("missing", &missing, "ClaimMissing", "does not exist");
    assert!(missing.is_missing);
    let of_device = |objects: &[Value], name: &str| super::device::explain(facts(objects), name, now());
    let held =
        cluster(&[allocated("c", "a", &consumer("train")), allocated("g", "gone", &consumer("train"))]);
    says("taken", &of_device(&held, "a").expect("a device"), "Taken", "held by claim ml/c for Pod train");
    let free = of_device(&held, "node-0/b").expect("a device");
    says("free", &free, "Free", "is held by no claim");
    assert_eq!(free.chain[0].says, "slice node-0-d, node node-0");
    says(
        "gone",
        &of_device(&held, "d/node-0/gone").expect("a device"),
        "DeviceGone",
        "in no ResourceSlice of the newest generation",
    );
    let rule = json!({"kind": "DeviceTaintRule", "metadata": {"name": "broken"}, "spec": {
        "deviceSelector": {"driver": "d", "pool": "node-0", "device": "b"},
        "taint": {"key": "broken.example", "effect": "NoExecute"}}});
    let ruled: Vec<Value> = held.iter().cloned().chain([rule]).collect();
    let tainted = of_device(&ruled, "node-0/b").expect("a device");
    says("tainted", &tainted, "Tainted", "tainted: broken.example:NoExecute by DeviceTaintRule broken");
    let taken = of_device(&ruled, "a").expect("a device");
    says("another is tainted", &taken, "Taken", "held by claim ml/c for Pod train");
    assert!(of_device(&held, "nothing").is_err());
    let of_node = |objects: &[Value]| super::node::explain(&facts(objects), "node-0", now());
    says("has free", &of_node(&held), "HasFree", "2 devices, claims hold 1");
    let cordoned = with(node(), "/spec", json!({"unschedulable": true}));
    says("cordoned", &of_node(&[slice(&["a"]), cordoned]), "Cordoned", "it is cordoned");
    says("empty", &of_node(&[node()]), "NoDevices", "publishes no device");
    says("no node", &of_node(&[]), "NodeMissing", "does not exist");
}

#[test]
fn a_claim_that_may_not_be_read_is_not_missing() {
    let mut facts = facts(&[by_name(), node()]);
    facts.forbid(None, "resourceclaims.resource.k8s.io".to_owned());
    let of_node = super::node::explain(&facts, "node-0", now());
    says("node", &of_node, "Unknown", "could not be read");
    says("pod", &super::pod::explain(facts, "ml", "train", now()), "Unknown", "claim ml/c could not be read");
}

#[test]
fn what_may_not_be_read_is_said_and_never_guessed() {
    let mut facts = facts(&[class(), node(), by_name(), claim("c")]);
    facts.forbid(None, "resourceslices.resource.k8s.io".to_owned());
    let answer = super::pod::explain(facts, "ml", "train", now());
    says("no right", &answer, "Unknown", "cannot be told");
    assert!(answer.lacks[0].contains("--resource=resourceslices.resource.k8s.io"), "{:?}", answer.lacks);
}
