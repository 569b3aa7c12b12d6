//! Published ledgers of nodes, on an index fed with ordinary API objects.

mod bounds;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_crds::node_allocatable_dra_claim_state::{ConditionStatus, NodeAllocatableDRAClaimState};
use dragoman_machinery::controller::{Fed, ObjectKey};
use dragoman_machinery::kind::Watchable;
use dragoman_machinery::watch::decode_item;
use dragoman_machinery::write::{Action, Write};
use dragoman_objects::{Meta, Node, Pod, ResourceClaim, ResourceSlice};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::NodeReport;
use super::plan::{COALESCED, LINGER, Plan, Snapshot, Written, plan};
use crate::cluster::{Cluster, Published};

/// Late enough for times before it.
static NOW: LazyLock<Instant> = LazyLock::new(|| Instant::now() + Duration::from_hours(1));
/// The wall clock at that time.
const TIME: Timestamp = Timestamp::constant(1_000, 0);

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn applied<T: Watchable>(cluster: &mut Cluster, object: &Value) -> Vec<ObjectKey>
where
    Cluster: Fed<T, Key = ObjectKey>,
{
    Fed::<T>::applied(cluster, &decode_item(object.to_string().as_bytes()).expect("metadata"))
}

fn deleted<T: Watchable>(cluster: &mut Cluster, object: &Value) -> Vec<ObjectKey>
where
    Cluster: Fed<T, Key = ObjectKey>,
{
    let meta: Meta = serde_json::from_value(object["metadata"].clone()).expect("metadata");
    Fed::<T>::deleted(cluster, &meta)
}

fn names(keys: Vec<ObjectKey>) -> Vec<String> {
    keys.into_iter().map(|key| key.name.to_string()).collect()
}

fn node(name: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}})
}

fn pod(name: &str, node: &str, cpu: &str, claims: &[&str]) -> Value {
    let entries: Vec<Value> = claims.iter().map(|c| json!({"name": c, "resourceClaimName": c})).collect();
    let named: Vec<Value> = claims.iter().map(|c| json!({"name": c})).collect();
    json!({"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"nodeName": node, "resourceClaims": entries,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}, "claims": named}}]}})
}

fn claim(name: &str, device: &str) -> Value {
    let result = json!({"request": "r", "driver": "d", "pool": "n", "device": device});
    json!({"metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "status": {"allocation": {"devices": {"results": [result]}}}})
}

/// The slice of node `n`: each device takes two cpus.
fn slice(devices: &[String]) -> Value {
    let cost = json!({"cpu": {"mapping": {"deviceMultiplier": "2"}}});
    let device = |name: &String| json!({"name": name, "nodeAllocatableResources": cost});
    json!({"metadata": {"name": "n-d", "uid": "s", "resourceVersion": "1"},
        "spec": {"driver": "d", "nodeName": "n", "pool": {"name": "n", "generation": 1},
            "devices": devices.iter().map(device).collect::<Vec<_>>()}})
}

fn footprint(cpu: &str) -> Value {
    json!({"metadata": {"name": "fp", "uid": "fp", "resourceVersion": "1"},
        "spec": {"driver": "d", "resources": {"cpu": {"mapping": {"deviceMultiplier": cpu}}}}})
}

/// One node of four cpus: a Pod of one cpu with a claim of two.
fn ordinary() -> Cluster {
    let mut cluster = Cluster::default();
    applied::<Node>(&mut cluster, &node("n", "4"));
    applied::<ResourceSlice>(&mut cluster, &slice(&["one".to_owned(), "two".to_owned()]));
    applied::<ResourceClaim>(&mut cluster, &claim("a", "one"));
    applied::<Pod>(&mut cluster, &pod("p", "n", "1", &["a"]));
    cluster
}

fn planned_at(cluster: &Cluster, now: Instant, written: Option<Instant>, claimless: Option<Instant>) -> Plan {
    let written = written.map(|at| Written { at, content: 0, again: 0 });
    planned_after(cluster, now, written, claimless)
}

fn planned_after(
    cluster: &Cluster,
    now: Instant,
    written: Option<Written>,
    claimless: Option<Instant>,
) -> Plan {
    let snapshot = Snapshot {
        node: "n",
        uid: cluster.nodes.get("", "n").map(|record| &*record.uid),
        content: NodeReport::of(cluster.ledger(), "n"),
        published: cluster.published.get("", "n").and_then(|record| record.readable()).map(|p| &**p),
        all: false,
        written,
        created: None,
        claimless,
        time: TIME + now.saturating_duration_since(*NOW),
    };
    plan(snapshot, now)
}

fn planned(cluster: &Cluster) -> Plan {
    planned_at(cluster, *NOW, None, None)
}

/// The object as the API server has it after a write.
fn stored(cluster: &mut Cluster, write: &Write) -> Value {
    let object = match &write.action {
        Action::Create { body } => {
            let mut object: Value = serde_json::from_str(body).expect("json");
            object["metadata"]["uid"] = json!("state");
            object
        }
        Action::Apply { subresource: Some("status"), body, .. } => {
            let mut object = body.clone();
            object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-n", "controller": true}]);
            object
        }
        other => panic!("{other:?}"),
    };
    let mut object = object;
    object["metadata"]["resourceVersion"] = json!("7");
    applied::<NodeAllocatableDRAClaimState>(cluster, &object);
    object
}

/// Publishes the node, and returns the object.
fn published(cluster: &mut Cluster) -> Value {
    let Plan::Create(create) = planned(cluster) else { panic!("{:?}", planned(cluster)) };
    stored(cluster, &create);
    let Plan::Publish { write, .. } = planned(cluster) else { panic!("{:?}", planned(cluster)) };
    stored(cluster, &write)
}

fn condition<'a>(object: &'a Value, of: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().expect("conditions");
    conditions.iter().find(|known| known["type"] == of).expect("condition")
}

#[test]
fn a_node_with_claims_is_published_once() {
    let mut cluster = ordinary();
    let object = published(&mut cluster);
    assert_eq!(object["metadata"]["uid"], "state", "the write is for this object, not for a namesake");
    let status = &object["status"];
    assert_eq!(status["allocatable"], json!({"cpu": "4", "memory": "8Gi"}));
    assert_eq!(status["requestedByPods"]["cpu"], "1");
    assert_eq!(status["requestedByClaims"]["mapping"]["cpu"], "2");
    assert_eq!(status["headroom"], json!({"cpu": "1", "memory": "8Gi"}));
    assert_eq!(status["revision"], 1);
    let claims = json!([{"namespace": "ns", "name": "a", "uid": "uid-a", "amounts": {"cpu": "2"}, "consumers": ["p"]}]);
    assert_eq!(status["claims"], claims);
    assert_eq!(condition(&object, "Overcommitted")["status"], "False");
    assert_eq!(planned(&cluster), Plan::Rest, "no write without a change");
}

#[test]
fn a_node_without_claims_has_no_object_unless_it_is_asked_for() {
    let mut cluster = Cluster::default();
    applied::<Node>(&mut cluster, &node("n", "4"));
    applied::<Pod>(&mut cluster, &pod("p", "n", "1", &[]));
    assert_eq!(planned(&cluster), Plan::Rest);
    let snapshot = Snapshot {
        node: "n",
        uid: Some("uid-n"),
        content: NodeReport::of(cluster.ledger(), "n"),
        published: None,
        all: true,
        written: None,
        created: None,
        claimless: None,
        time: TIME,
    };
    assert!(matches!(plan(snapshot, *NOW), Plan::Create(_)));
}

#[test]
fn an_object_that_another_leader_deletes_each_time_comes_back_ever_more_slowly() {
    let cluster = ordinary();
    let waits = |again: u32| {
        let snapshot = Snapshot {
            node: "n",
            uid: Some("uid-n"),
            content: NodeReport::of(cluster.ledger(), "n"),
            published: None,
            all: false,
            written: None,
            created: Some(Written { at: *NOW - ms(1), content: 0, again }),
            claimless: None,
            time: TIME,
        };
        plan(snapshot, *NOW)
    };
    assert_eq!(waits(0), Plan::Later(ms(1_999)));
    assert_eq!(waits(3), Plan::Later(ms(15_999)));
    assert_eq!(waits(30), Plan::Later(ms(63_999)));
}

#[test]
fn an_object_without_claims_lingers_and_goes() {
    let mut cluster = ordinary();
    published(&mut cluster);
    deleted::<Pod>(&mut cluster, &pod("p", "n", "1", &["a"]));
    let Plan::Publish { write, .. } = planned_at(&cluster, *NOW, None, Some(*NOW)) else { panic!("current") };
    stored(&mut cluster, &write);
    assert_eq!(planned_at(&cluster, *NOW + ms(1), None, Some(*NOW)), Plan::Wait(ms(59_999)));
    let Plan::Delete(delete) = planned_at(&cluster, *NOW + LINGER, None, Some(*NOW)) else {
        panic!("deleted")
    };
    let Action::Delete { guard } = &delete.action else { panic!("{delete:?}") };
    assert_eq!((&*guard.uid, &*guard.resource_version), ("state", "7"));
}

#[test]
fn one_write_a_second() {
    let mut cluster = ordinary();
    published(&mut cluster);
    applied::<Node>(&mut cluster, &node("n", "8"));
    assert_eq!(planned_at(&cluster, *NOW + ms(10), Some(*NOW), None), Plan::Later(ms(990)));
    assert!(matches!(planned_at(&cluster, *NOW + COALESCED, Some(*NOW), None), Plan::Publish { .. }));
}

/// A field that another manager owns stays in the status, whatever is applied.
#[test]
fn what_does_not_stay_is_written_ever_more_slowly() {
    let mut cluster = ordinary();
    let mut foreign = published(&mut cluster);
    foreign["status"]["headroom"]["hugepages-2Mi"] = json!("1");
    applied::<NodeAllocatableDRAClaimState>(&mut cluster, &foreign);
    let (mut now, mut written, mut pauses, mut disputed) = (*NOW, None, Vec::new(), Vec::new());
    for _ in 0..9 {
        let Plan::Publish { content, .. } = planned_after(&cluster, now, written, None) else {
            panic!("due")
        };
        let next = Written::next(written, content, now);
        disputed.push(next.is_disputed());
        written = Some(next);
        let Plan::Later(wait) = planned_after(&cluster, now, written, None) else { panic!("not at once") };
        pauses.push(wait.as_secs());
        now += wait;
    }
    assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 64, 64, 64]);
    assert_eq!(disputed, [false, false, true, false, false, false, false, false, false], "it is logged once");
    // What the ledger itself changes is not held up.
    applied::<Node>(&mut cluster, &node("n", "8"));
    let before = now - ms(64_000) + COALESCED;
    assert!(matches!(planned_after(&cluster, before, written, None), Plan::Publish { .. }));
}

#[test]
fn a_node_that_does_not_decode_any_more_is_uncertain() {
    let mut cluster = ordinary();
    let is_known = |cluster: &Cluster| {
        let content = NodeReport::of(cluster.ledger(), "n").expect("an account");
        !content.status.headroom.is_empty()
    };
    assert!(is_known(&cluster));
    let mut unreadable = node("n", "4");
    unreadable["status"]["allocatable"] = json!("not an object");
    applied::<Node>(&mut cluster, &unreadable);
    assert!(!is_known(&cluster), "what it has is what it once had");
    applied::<Node>(&mut cluster, &node("n", "4"));
    assert!(is_known(&cluster));
}

#[test]
fn a_node_of_the_same_name_gets_an_object_of_its_own() {
    let mut cluster = ordinary();
    published(&mut cluster);
    let mut other = node("n", "4");
    other["metadata"]["uid"] = json!("another");
    assert_eq!(names(applied::<Node>(&mut cluster, &other)), ["n", "n"]);
    assert!(matches!(planned(&cluster), Plan::Delete(_)), "{:?}", planned(&cluster));
}

#[test]
fn the_object_goes_with_its_node() {
    let mut cluster = ordinary();
    published(&mut cluster);
    assert_eq!(names(deleted::<Node>(&mut cluster, &node("n", "4"))), ["n", "n"]);
    assert!(matches!(planned(&cluster), Plan::Delete(_)));
}

#[test]
fn an_overcommitted_node_says_by_how_much_and_through_whom() {
    let mut cluster = ordinary();
    let before = published(&mut cluster);
    applied::<Pod>(&mut cluster, &pod("late", "n", "1500m", &[]));
    let Plan::Publish { write, overcommitted, .. } = planned_at(&cluster, *NOW + ms(5_000), None, None)
    else {
        panic!("published")
    };
    let message = "500m of cpu more is taken than the node has (devices of ResourceClaim ns/a: 2, Pod ns/late: \
                   1500m, Pod ns/p: 1)";
    assert_eq!(overcommitted.as_deref(), Some(message));
    let object = stored(&mut cluster, &write);
    let now = condition(&object, "Overcommitted");
    assert_eq!((&now["status"], &now["message"]), (&json!("True"), &json!(message)));
    assert_eq!(now["lastTransitionTime"], "1970-01-01T00:16:45Z");
    let same =
        |of| condition(&object, of)["lastTransitionTime"] == condition(&before, of)["lastTransitionTime"];
    assert!(same("Unaccounted") && same("Drifted"), "only a condition that changed has a new time");
    assert_eq!(object["status"]["revision"], 2);
    // The same again is no news.
    applied::<Pod>(&mut cluster, &pod("later", "n", "1", &[]));
    let Plan::Publish { overcommitted, .. } = planned(&cluster) else { panic!("published") };
    assert_eq!(overcommitted, None);
}

#[test]
fn the_order_of_events_changes_nothing() {
    let wanted = NodeReport::of(ordinary().ledger(), "n");
    let mut cluster = Cluster::default();
    applied::<Pod>(&mut cluster, &pod("p", "n", "1", &["a"]));
    applied::<ResourceClaim>(&mut cluster, &claim("a", "one"));
    let keys = applied::<Node>(&mut cluster, &node("n", "4"));
    assert_eq!(names(keys), ["n", "n"]);
    let unknown = NodeReport::of(cluster.ledger(), "n").expect("account");
    assert_eq!(unknown.findings[0].status, ConditionStatus::Unknown, "the device is in no slice");
    let keys = applied::<ResourceSlice>(&mut cluster, &slice(&["one".to_owned(), "two".to_owned()]));
    assert_eq!(names(keys), ["n"]);
    assert_eq!(NodeReport::of(cluster.ledger(), "n"), wanted);
}

#[test]
fn a_footprint_counts_where_the_slice_says_nothing() {
    let mut cluster = ordinary();
    let mut bare = slice(&["one".to_owned()]);
    bare["spec"]["devices"][0].as_object_mut().expect("device").remove("nodeAllocatableResources");
    applied::<ResourceSlice>(&mut cluster, &bare);
    let mapped = |cluster: &Cluster| {
        let status = NodeReport::of(cluster.ledger(), "n").expect("account").status;
        status.requested_by_claims.mapping["cpu"].0.to_string()
    };
    assert_eq!(mapped(&cluster), "0");
    assert_eq!(names(applied::<DeviceFootprint>(&mut cluster, &footprint("3"))), ["n"]);
    assert_eq!(mapped(&cluster), "3");
    deleted::<DeviceFootprint>(&mut cluster, &footprint("3"));
    assert_eq!(mapped(&cluster), "0");
}

#[test]
fn a_refused_footprint_makes_nodes_uncertain_and_is_reported() {
    let mut cluster = ordinary();
    applied::<DeviceFootprint>(&mut cluster, &footprint("-1"));
    assert!(cluster.refused["fp"].why.contains("cpu"), "{:?}", cluster.refused);
    let unaccounted = |cluster: &Cluster| {
        let findings = NodeReport::of(cluster.ledger(), "n").expect("account").findings;
        findings.into_iter().find(|of| of.r#type == "Unaccounted").expect("finding")
    };
    let finding = unaccounted(&cluster);
    assert_eq!(finding.status, ConditionStatus::True);
    assert!(finding.message.contains("DeviceFootprint fp"), "{finding:?}");
    applied::<DeviceFootprint>(&mut cluster, &footprint("1"));
    assert_eq!(unaccounted(&cluster).status, ConditionStatus::False);
}

#[test]
fn an_unreadable_pod_makes_its_node_uncertain_and_no_other() {
    let mut cluster = ordinary();
    applied::<Node>(&mut cluster, &node("m", "4"));
    let mut broken = pod("p", "n", "1", &["a"]);
    broken["spec"]["containers"] = json!("none");
    assert_eq!(names(applied::<Pod>(&mut cluster, &broken)), ["n"]);
    let is_certain = |cluster: &Cluster, of: &str| {
        cluster.ledger().node(of).expect("account").unaccounted().next().is_none()
    };
    assert!(!is_certain(&cluster, "n") && is_certain(&cluster, "m"));
    applied::<Pod>(&mut cluster, &pod("p", "n", "1", &["a"]));
    assert!(is_certain(&cluster, "n"));
    applied::<Pod>(&mut cluster, &broken);
    deleted::<Pod>(&mut cluster, &pod("p", "n", "1", &["a"]));
    assert!(is_certain(&cluster, "n"));
    // One that was never read says where it is, as far as its node can be read.
    let mut other = broken.clone();
    other["metadata"]["uid"] = json!("q");
    assert_eq!(names(applied::<Pod>(&mut cluster, &other)), ["n"]);
    assert!(!is_certain(&cluster, "n") && is_certain(&cluster, "m"));
    deleted::<Pod>(&mut cluster, &other);
    assert!(is_certain(&cluster, "n"));
    for nowhere in [json!(null), json!(""), json!(7), json!({})] {
        other["spec"]["nodeName"] = nowhere;
        applied::<Pod>(&mut cluster, &other);
        assert!(is_certain(&cluster, "n") && is_certain(&cluster, "m"), "it is on no node that is known");
    }
}

#[test]
fn a_claim_that_takes_the_name_of_another_counts() {
    let mut cluster = ordinary();
    let mut other = claim("a", "two");
    other["metadata"]["uid"] = json!("uid-b");
    applied::<ResourceClaim>(&mut cluster, &other);
    let content = NodeReport::of(cluster.ledger(), "n").expect("account");
    assert_eq!(content.status.claims[0].uid, "uid-b");
    deleted::<ResourceClaim>(&mut cluster, &claim("a", "one"));
    assert_eq!(
        NodeReport::of(cluster.ledger(), "n"),
        Some(content),
        "the deletion of the one before comes late"
    );
}

#[test]
fn what_was_published_by_another_version_is_written_anew() {
    let mut cluster = ordinary();
    let mut object = published(&mut cluster);
    object["status"]["claims"] = json!("none");
    applied::<NodeAllocatableDRAClaimState>(&mut cluster, &object);
    let record = cluster.published.get("", "n").and_then(|record| record.readable()).cloned();
    let published: Arc<Published> = record.expect("readable");
    assert_eq!(published.revision, None);
    assert!(matches!(planned(&cluster), Plan::Publish { .. }));
}

#[test]
fn what_pod_status_recorded_of_a_footprint_counts_alone_when_the_footprint_is_edited() {
    let mut cluster = ordinary();
    let mut bare = slice(&["one".to_owned()]);
    bare["spec"]["devices"][0].as_object_mut().expect("device").remove("nodeAllocatableResources");
    applied::<ResourceSlice>(&mut cluster, &bare);
    applied::<DeviceFootprint>(&mut cluster, &footprint("2"));
    let mut recorded = pod("p", "n", "1", &["a"]);
    recorded["status"] = json!({"nodeAllocatableResourceClaimStatuses":
        [{"resourceClaimName": "a", "containers": ["c"], "mapping": [{"name": "cpu", "quantity": "2"}]}]});
    applied::<Pod>(&mut cluster, &recorded);
    applied::<DeviceFootprint>(&mut cluster, &footprint("3"));
    let content = NodeReport::of(cluster.ledger(), "n").expect("account");
    assert_eq!(&*content.status.requested_by_claims.mapping["cpu"].0, "2", "not both");
    assert_eq!(content.findings[2].status, ConditionStatus::True, "{:?}", content.findings[2]);
}

#[test]
fn a_pod_that_waits_for_a_claim_makes_no_node_uncertain() {
    let mut cluster = ordinary();
    let before = NodeReport::of(cluster.ledger(), "n").expect("account");
    applied::<Pod>(&mut cluster, &pod("hostile", "n", "0", &["nope"]));
    let after = NodeReport::of(cluster.ledger(), "n").expect("account");
    assert_eq!(after, before);
}

#[test]
fn a_claim_of_which_only_a_record_is_known_is_summed_and_not_listed() {
    let mut cluster = ordinary();
    let mut recorded = pod("p", "n", "1", &["a"]);
    recorded["status"] = json!({"nodeAllocatableResourceClaimStatuses":
        [{"resourceClaimName": "a", "containers": ["c"], "mapping": [{"name": "cpu", "quantity": "2"}]}]});
    applied::<Pod>(&mut cluster, &recorded);
    deleted::<ResourceClaim>(&mut cluster, &claim("a", "one"));
    let content = NodeReport::of(cluster.ledger(), "n").expect("account");
    assert_eq!(content.status.claims, [], "its uid is not known");
    assert_eq!(content.status.other_claims.map(|of| of.count), Some(1));
    assert_eq!(&*content.status.requested_by_claims.mapping["cpu"].0, "2");
}

#[test]
fn an_unknown_fact_hides_no_overcommitment() {
    let mut cluster = ordinary();
    applied::<Pod>(&mut cluster, &pod("late", "n", "1500m", &[]));
    applied::<ResourceClaim>(&mut cluster, &claim("odd", "nowhere"));
    applied::<Pod>(&mut cluster, &pod("odd", "n", "0", &["odd"]));
    let content = NodeReport::of(cluster.ledger(), "n").expect("account");
    let status: Vec<_> = content.findings.iter().map(|finding| finding.status).collect();
    assert_eq!(status, [ConditionStatus::True, ConditionStatus::True, ConditionStatus::False]);
}

#[test]
fn a_claim_that_does_not_decode_is_named() {
    let of = |broken: Value| {
        let mut cluster = ordinary();
        applied::<ResourceClaim>(&mut cluster, &broken);
        let content = NodeReport::of(cluster.ledger(), "n").expect("account");
        content.findings[1].message.clone()
    };
    let mut allocation = claim("a", "one");
    allocation["status"]["allocation"]["devices"] = json!("none");
    let mut whole = claim("a", "one");
    whole["status"] = json!("none");
    for (broken, field) in [(allocation, "status.allocation"), (whole, "invalid type")] {
        let message = of(broken);
        assert!(message.contains("ResourceClaim ns/a") && message.contains(field), "{message}");
    }
}
