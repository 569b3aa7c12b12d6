//! Pods whose gate is open.

use super::passes::{Answers, World, merge, nominated, refused};
use super::release::patch;
use super::*;
use std::time::Duration;

use crate::gates::memory::Memory;
use crate::gates::pass::{Notice, Purpose};
use dragoman_machinery::controller::Outcome;
use dragoman_machinery::refusal::Refusal;

/// kube-scheduler has refused a released Pod for long: it is deleted if that is asked for and another one is made.
#[test]
fn a_pod_that_is_not_bound_is_deleted_once_that_was_said() {
    let mut world = World::with_node(None);
    let owner = json!({"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true});
    let says =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"});
    world.pod(
        "p",
        1,
        &json!({"metadata": {"ownerReferences": [owner]}, "spec": {"schedulingGates": []},
        "status": {"conditions": [says]}}),
    );
    world.claim("p", 1, &json!({}));
    assert_eq!(world.look("p", Answers::new()).then, Outcome::After(Duration::from_secs(30)));
    assert_eq!(
        world.assumed.node_of(&World::key("p")),
        Some(&Name::from("n")),
        "it may be bound at any time"
    );
    world.now += Duration::from_secs(30);
    let said = world.look("p", Answers::new());
    assert_eq!(said.purposes(), vec![Purpose::Condition], "it is not deleted unless that is asked for");
    world.options.delete_unbound_after = Some(Duration::from_secs(60));
    assert!(!world.look("p", Answers::new()).purposes().contains(&Purpose::Delete));
    world.now += Duration::from_secs(30);
    let deleted = world.look("p", Answers::new());
    assert_eq!(deleted.purposes().last(), Some(&Purpose::Delete));
    assert!(matches!(deleted.said.last(), Some(Notice::Deleted(why)) if why.contains("no room")));
    let conflict = world.look("p", refused(Refusal::Conflict));
    assert!(!conflict.said.iter().any(|said| matches!(said, Notice::Deleted(_))), "it was changed meanwhile");
}

#[test]
fn a_pod_that_is_bound_is_forgotten_and_its_condition_says_so() {
    let mut world = World::with_node(None);
    world.pod("p", 1, &json!({}));
    world.claim("p", 1, &json!({}));
    world.look("p", [Ok(nominated("n"))].into());
    assert_eq!(world.assumed.len(), 1);
    world.pod(
        "p",
        2,
        &json!({"spec": {"nodeName": "n", "schedulingGates": []}, "status": {"conditions":
        [{"type": "dragoman.dev/ClaimsReady", "status": "False", "reason": "NotReserved"}]}}),
    );
    assert_eq!(world.look("p", Answers::new()).purposes(), vec![Purpose::Condition]);
    assert_eq!(world.assumed.len(), 0);
    assert_eq!(world.memory.closed.all().count(), 0);
}

/// One leader has released the Pod, another one leads; then a write of the binding fails, and kube-scheduler takes its
/// reservation back. The condition tells the allocator to reserve again.
#[test]
fn a_released_pod_that_loses_its_reservation_says_so_also_if_another_leader_has_released_it() {
    let mut world = World::with_node(None);
    world.pod("p", 1, &nominated("n"));
    world.claim("p", 1, &json!({}));
    world.look("p", Answers::new());
    world.now += Duration::from_millis(250);
    let opened = world.look("p", Answers::new());
    let [(Purpose::Open(Opened::Released, None), write)] = &opened.sent[..] else {
        panic!("{:?}", opened.sent)
    };
    let mut released = World::pod_object("p", 1, &nominated("n"));
    patch(&mut released, write);
    merge(&mut released, &json!({"metadata": {"resourceVersion": "2"}}));
    world.memory = Memory::default();
    world.assumed = Assumed::default();
    world.applied::<Pod>(&released);
    world.claim("p", 2, &json!({"status": {"reservedFor": []}}));
    assert_eq!(world.look("p", Answers::new()).purposes(), vec![], "it may be for a moment");
    world.now += Duration::from_secs(2);
    let said = world.look("p", Answers::new());
    assert_eq!(said.purposes(), vec![Purpose::Condition]);
    assert!(matches!(&said.said[..], [Notice::Warning(Reason::NotBound, "Bind", why), ..]
        if why.contains("has lost the reservation")));
}

/// A Pod with more entries than are read keeps its gate, and says why.
#[test]
fn a_pod_with_too_many_entries_waits() {
    let mut world = World::with_node(None);
    let entry =
        |number: usize| json!({"name": format!("e{number}"), "resourceClaimName": format!("c{number}")});
    let own = json!({"name": "gpu", "resourceClaimName": "p-gpu"});
    let entries: Vec<_> = (0..256).map(entry).chain([own]).collect();
    world.pod("p", 1, &json!({"spec": {"resourceClaims": entries}}));
    world.claim("p", 1, &json!({}));
    assert_eq!(world.look("p", Answers::new()).purposes(), vec![]);
    world.now += Duration::from_mins(1);
    let said = world.look("p", Answers::new());
    assert_eq!(said.purposes().last(), Some(&Purpose::Condition));
    assert!(
        said.said.iter().any(|said| matches!(said, Notice::Condition(why) if why.contains("257 entries")))
    );
}

/// kube-scheduler has taken the reservation back because a write of the binding failed, and will try again. A process that leads
/// from this moment on gives the room of the Pod to no other.
#[test]
fn another_leader_charges_a_released_pod_whose_reservation_was_taken_back() {
    let mut world = World::with_node(None);
    let released = |uid: &str| json!({"metadata": {"annotations": {"dragoman.dev/released": uid}}, "spec": {"schedulingGates": []}});
    world.pod("p", 1, &released("p"));
    world.claim("p", 1, &json!({"status": {"reservedFor": []}}));
    world.look("p", Answers::new());
    assert_eq!(world.assumed.len(), 1, "it was released");
    world.claim("p", 2, &json!({"status": {"allocation": null, "reservedFor": []}}));
    world.look("p", Answers::new());
    assert_eq!(world.assumed.len(), 0, "its devices are gone");
    let mut large = released("p");
    large["spec"]["containers"] =
        json!([{"name": "main", "resources": {"requests": {"cpu": "11"}, "claims": [{"name": "gpu"}]}}]);
    world.pod("p", 2, &large);
    world.claim("p", 3, &json!({"status": {"reservedFor": []}}));
    world.look("p", Answers::new());
    assert_eq!(world.assumed.len(), 0, "it was not released with so much");
    world.pod("p", 3, &released("of another"));
    world.claim("p", 4, &json!({"status": {"reservedFor": []}}));
    world.look("p", Answers::new());
    assert_eq!(world.assumed.len(), 0, "a copy was not released");
}

/// A Pod without the gate that shares a claim of an allocator is not reported as released when its binding fails: the allocator
/// would reserve the claim for it.
#[test]
fn a_pod_that_never_had_the_gate_was_not_released() {
    let mut world = World::with_node(None);
    world.pod("p", 1, &json!({"spec": {"schedulingGates": []}}));
    world.claim("p", 1, &json!({}));
    world.look("p", Answers::new());
    assert_eq!(world.assumed.len(), 1, "kube-scheduler binds it");
    world.claim("p", 2, &json!({"status": {"reservedFor": []}}));
    world.look("p", Answers::new());
    world.now += Duration::from_mins(1);
    assert_eq!(world.look("p", Answers::new()).purposes(), vec![]);
}

/// `kubectl describe` prints the message of a Pod. A kubelet says there why it has refused one.
#[test]
fn the_message_of_a_pod_is_that_of_its_condition_and_no_other_is_overwritten() {
    let status_of = |status: Value| {
        let mut world = World::with_node(None);
        world.pod("p", 1, &json!({"status": status}));
        world.claim("p", 1, &json!({"status": {"reservedFor": []}}));
        world.look("p", Answers::new());
        world.now += Duration::from_secs(2);
        let sent = world.look("p", Answers::new()).sent;
        let [(Purpose::Condition, Write { action: Action::Apply { body, .. }, .. })] = &sent[..] else {
            panic!("not one condition: {sent:?}");
        };
        body["status"].clone()
    };
    let says = |message: &str| json!([{"type": "dragoman.dev/ClaimsReady", "status": "False", "reason": "ClaimMissing", "message": message}]);
    let free = [
        json!({}),
        json!({"conditions": says("an older one")}),
        json!({"message": "an older one", "conditions": says("an older one")}),
    ];
    for status in free {
        let status = status_of(status);
        assert_eq!(status["message"], status["conditions"][0]["message"]);
        assert_eq!(status["message"], "claim p-gpu is not reserved for the Pod");
    }
    for status in
        [json!({"message": "rejected"}), json!({"message": "rejected", "conditions": says("an older one")})]
    {
        assert_eq!(status_of(status)["message"], Value::Null);
    }
}

/// The policy of an earlier version refuses the message, and the condition with it.
#[test]
fn a_condition_is_written_without_the_message_where_that_is_refused() {
    let mut world = World::with_node(None);
    world.pod("p", 1, &json!({}));
    world.claim("p", 1, &json!({"status": {"reservedFor": []}}));
    world.look("p", Answers::new());
    world.now += Duration::from_secs(2);
    let refused = world.look("p", refused(Refusal::Invalid("nothing else of its status".to_owned())));
    assert_eq!(refused.purposes(), vec![Purpose::Condition]);
    assert_eq!(refused.said.last(), Some(&Notice::MessageRefused));
    world.now += Duration::from_secs(5);
    let sent = world.look("p", Answers::new()).sent;
    let [(Purpose::Condition, Write { action: Action::Apply { body, .. }, .. })] = &sent[..] else {
        panic!("not one condition: {sent:?}");
    };
    assert_eq!(body["status"]["message"], Value::Null);
    // Another Pod says it as before.
    world.pod("q", 1, &json!({}));
    world.claim("q", 1, &json!({"status": {"reservedFor": []}}));
    world.look("q", Answers::new());
    world.now += Duration::from_secs(2);
    let sent = world.look("q", Answers::new()).sent;
    let [(Purpose::Condition, Write { action: Action::Apply { body, .. }, .. })] = &sent[..] else {
        panic!("not one condition: {sent:?}");
    };
    assert_eq!(body["status"]["message"], "claim q-gpu is not reserved for the Pod");
}

/// A Pod that waited when a new version began to work gets its message.
#[test]
fn a_condition_of_an_earlier_version_gets_its_message() {
    let purposes = |message: &str| {
        let mut world = World::with_node(None);
        let said = json!({"type": "dragoman.dev/ClaimsReady", "status": "False", "reason": "NotReserved", "message": "waits"});
        world.pod("p", 1, &json!({"status": {"conditions": [said], "message": message}}));
        world.claim("p", 1, &json!({"status": {"reservedFor": []}}));
        world.look("p", Answers::new());
        world.now += Duration::from_secs(2);
        world.look("p", Answers::new()).purposes()
    };
    assert_eq!(purposes(""), vec![Purpose::Condition]);
    assert_eq!(purposes("waits"), vec![], "what another process wrote stays");
    assert_eq!(purposes("rejected"), vec![]);
}

/// The process that opened the gate died before it wrote the condition. The next one says why the gate is open, and no allocator takes
/// a Pod that was let go for one that was released.
#[test]
fn a_condition_that_is_older_than_the_opening_of_the_gate_is_corrected() {
    let opened = |annotations: &Value, labels: &Value, reason: &str| {
        let mut world = World::with_node(None);
        let said = json!({"type": "dragoman.dev/ClaimsReady", "status": "False", "reason": reason});
        let pod = json!({"metadata": {"annotations": annotations}, "spec": {"schedulingGates": []},
            "status": {"conditions": [said]}});
        world.pod("p", 1, &pod);
        world.claim("p", 1, &json!({"metadata": {"labels": labels}, "status": null}));
        let sent = world.look("p", Answers::new()).sent;
        let [(Purpose::Condition, Write { action: Action::Apply { body, .. }, .. })] = &sent[..] else {
            return (String::new(), sent.len());
        };
        let condition = &body["status"]["conditions"][0];
        assert_eq!((&condition["status"], &body["status"]["message"]), (&json!("True"), &Value::Null));
        (condition["reason"].as_str().unwrap_or_default().to_owned(), sent.len())
    };
    let marked = json!({"dragoman.dev/released": "p"});
    assert_eq!(opened(&Value::Null, &labelled()["labels"], "NotAllocated"), ("LetGo".to_owned(), 1));
    assert_eq!(opened(&marked, &labelled()["labels"], "NotReserved"), ("Released".to_owned(), 1));
    assert_eq!(opened(&Value::Null, &Value::Null, "ClaimMissing"), ("NoAllocator".to_owned(), 1));
    assert_eq!(opened(&marked, &labelled()["labels"], "NotBound"), (String::new(), 0), "it is the newest");
}
