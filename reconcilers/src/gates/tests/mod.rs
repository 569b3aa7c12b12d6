//! Waits of gated Pods, and the writes about them.

mod configured;
mod given;
mod groups;
mod passes;
mod release;
mod released;
mod strangers;
mod stubborn;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dragoman_accounting::cluster::{ClusterLedger, Rules};
use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::write::{Action, Write};
use dragoman_objects::{Name, Node, Pod, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::facts::{ClaimFacts, PodFacts};
use super::index::{KnownClaim, NamedClaim};
use super::memory::Nominated;
use super::plan::{self, Claims, Opened, Reason, Wait};

use super::{attributes, writes};
use crate::cluster::Assumed;
use dragoman_cluster::placement::NodeView;
use dragoman_cluster::{Account, account};

const UID: &str = "pod-uid";

fn claim(metadata: &Value, status: &Value) -> NamedClaim {
    let mut claim = json!({"metadata": metadata, "status": status});
    claim["metadata"]["name"] = json!("c");
    let claim: ResourceClaim = serde_json::from_value(claim).expect("claim");
    let facts = ClaimFacts::of(&claim);
    NamedClaim::Known(KnownClaim {
        name: "c".into(),
        uid: "u".into(),
        reserved_for: facts.reserved_for(UID, None).cloned(),
        facts: Arc::new(facts),
    })
}

fn labelled() -> Value {
    json!({"labels": {"dragoman.dev/allocator": "ours"}})
}

/// An allocation on these nodes, reserved for the Pod.
fn ready(nodes: &[&str]) -> Value {
    // A field has one value only.
    let (part, key) =
        if nodes.len() == 1 { ("matchFields", "metadata.name") } else { ("matchExpressions", "host") };
    let term = json!({part: [{"key": key, "operator": "In", "values": nodes}]});
    json!({
        "allocation": {"devices": {"results": []}, "nodeSelector": {"nodeSelectorTerms": [term]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": UID}],
    })
}

fn judged(claims: &[NamedClaim], default: Option<&str>) -> (Option<Reason>, String) {
    match plan::claims(None, claims, default) {
        Claims::Wait(Wait { reason, message, .. }) => (Some(reason), message),
        Claims::Label(names) => (None, format!("label {}", names.len())),
        Claims::NoAllocator => (None, "no allocator".to_owned()),
        Claims::Ready(claims) => (None, format!("ready {}", claims.len())),
    }
}

#[test]
fn every_reason_to_wait_is_told_apart() {
    let gate = |prefix: &str| {
        let mut metadata = labelled();
        metadata["annotations"] = json!({format!("{prefix}.dragoman.dev/quota"): "no budget"});
        metadata
    };
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "labels": labelled()["labels"]});
    let mut stranger = ready(&["n"]);
    stranger["reservedFor"][0]["uid"] = json!("another");
    let cases = [
        (NamedClaim::Unnamed, Some(Reason::ClaimMissing)),
        (NamedClaim::Missing("c".into()), Some(Reason::ClaimMissing)),
        (NamedClaim::Unreadable("c".into(), "odd".into()), Some(Reason::ClaimUnreadable)),
        (claim(&deleted, &ready(&["n"])), Some(Reason::ClaimDeleted)),
        (claim(&gate("allocation-gates"), &json!({})), Some(Reason::AllocationGateClosed)),
        (claim(&labelled(), &json!({})), Some(Reason::NotAllocated)),
        (claim(&labelled(), &stranger), Some(Reason::NotReserved)),
        // A gate before the allocation is over once there is one.
        (claim(&gate("allocation-gates"), &ready(&["n"])), None),
        (claim(&gate("release-gates"), &ready(&["n"])), None),
        (claim(&labelled(), &ready(&["n"])), None),
    ];
    for (claim, reason) in cases {
        assert_eq!(judged(&[claim], None).0, reason);
    }
    let closed = claim(&gate("release-gates"), &ready(&["n"]));
    let Claims::Ready(claims) = plan::claims(None, std::slice::from_ref(&closed), None) else {
        panic!("ready")
    };
    let wait = plan::release_gates(&claims).expect_err("closed");
    assert_eq!(wait.reason, Reason::ReleaseGateClosed);
    assert_eq!(wait.message, "claim c: gate quota is closed: no budget");
}

#[test]
fn another_gate_of_the_pod_comes_first_unless_an_administrator_puts_it_later() {
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "schedulingGates": [{"name": "dragoman.dev/claims"}, {"name": "queue.example/wait"}],
        "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}});
    let pod: Pod = serde_json::from_value(pod).expect("a Pod");
    let waits = |claim: NamedClaim, later: &[&str]| {
        let later = later.iter().copied().map(Box::from).collect();
        let earlier = PodFacts::of(&pod, &later).expect("it waits").earlier_gate;
        match plan::claims(earlier.as_ref(), &[claim], None) {
            Claims::Wait(wait) => Some((wait.reason, wait.message)),
            _ => None,
        }
    };
    for status in [json!({}), ready(&["n"])] {
        let (reason, message) = waits(claim(&labelled(), &status), &[]).expect("it waits");
        assert_eq!(reason, Reason::OtherGateClosed);
        assert!(message.starts_with("gate queue.example/wait of the Pod is closed"), "{message}");
    }
    assert_eq!(waits(claim(&labelled(), &ready(&["n"])), &["queue.example/wait"]), None);
    // A claim that is missing is said first: no other controller makes it.
    let missing = NamedClaim::Missing("c".into());
    assert_eq!(waits(missing, &[]).map(|(reason, _)| reason), Some(Reason::ClaimMissing));
}

#[test]
fn claims_without_an_allocator_get_the_default_one_or_are_left_to_kube_scheduler() {
    let foreign = || claim(&json!({}), &json!({}));
    assert_eq!(judged(&[foreign()], None), (None, "no allocator".to_owned()));
    assert_eq!(judged(&[], None), (None, "no allocator".to_owned()), "it needs no claim");
    assert_eq!(judged(&[foreign()], Some("ours")), (None, "label 1".to_owned()));
    let ours = || claim(&labelled(), &ready(&["n"]));
    assert_eq!(judged(&[foreign(), ours()], Some("ours")), (None, "label 1".to_owned()));
    let (reason, message) = judged(&[foreign(), ours()], None);
    assert_eq!(reason, Some(Reason::NotAllocated));
    assert!(message.contains("claim c names no allocator"), "{message}");
    assert_eq!(judged(&[claim(&json!({}), &ready(&["n"])), ours()], None), (None, "ready 2".to_owned()));
}

#[test]
fn the_default_allocator_is_waited_for_longer_until_it_has_looked() {
    let patience = |metadata: &Value, default: &str| {
        let claim = claim(metadata, &json!({}));
        match plan::claims(None, std::slice::from_ref(&claim), Some(default)) {
            Claims::Wait(wait) => wait.patience,
            _ => panic!("it waits"),
        }
    };
    let mut metadata = labelled();
    assert_eq!(
        (patience(&metadata, "ours"), patience(&metadata, "another")),
        (Duration::from_mins(1), Duration::from_secs(2))
    );
    metadata["annotations"] =
        json!({"dragoman.dev/verdict": r#"{"reason":"NoNode","message":"full","nodes":1,"time":""}"#});
    assert_eq!(patience(&metadata, "ours"), Duration::from_secs(2));
}

#[test]
fn the_verdict_and_the_last_rejection_are_quoted() {
    let mut metadata = labelled();
    metadata["annotations"] = json!({
        "dragoman.dev/verdict": r#"{"reason":"NoNode","message":"n: all devices are taken","nodes":1,"time":""}"#,
        "dragoman.dev/rejections": r#"[{"node":"n","reason":"1 of cpu is missing","revision":3,"time":""}]"#,
    });
    let (_, message) = judged(&[claim(&metadata, &json!({}))], None);
    let expected = "allocator ours has not allocated claim c: n: all devices are taken (refused on node n: 1 of cpu is missing); gated Pods do not scale the cluster up";
    assert_eq!(message, expected);
}

#[test]
fn a_released_pod_says_what_it_has_lost() {
    let lost = |status: &Value| plan::lost(&[claim(&labelled(), status)]).map(|wait| wait.message);
    assert_eq!(lost(&ready(&["a"])), None);
    let gone = "the Pod was released, and claim c of allocator ours has lost its devices since";
    assert_eq!(lost(&json!({})).as_deref(), Some(gone));
    let mut unreserved = ready(&["a"]);
    unreserved["reservedFor"] = json!([]);
    assert!(lost(&unreserved).is_some_and(|why| why.contains("the reservation for the Pod")));
    let of_kube_scheduler = plan::lost(&[claim(&json!({"name": "c"}), &json!({}))]);
    assert_eq!(of_kube_scheduler, None, "it names no allocator");
}

#[test]
fn a_pod_goes_to_a_node_that_takes_it() {
    let node = |name: &str, spec: Value| {
        let node = json!({"metadata": {"name": name, "labels": {"host": name}}, "spec": spec});
        NodeView::from(&serde_json::from_value::<Node>(node).expect("a Node"))
    };
    let tainted = json!({"taints": [{"key": "drain", "effect": "NoSchedule"}]});
    let nodes = [node("a", tainted), node("b", json!({"unschedulable": true})), node("c", json!({}))];
    let pod = |spec: &Value| {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "dragoman.dev/claims"}],
            "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}});
        pod["spec"].as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
        PodFacts::of(&serde_json::from_value(pod).expect("a Pod"), &Vec::new()).expect("facts")
    };
    let goes = |pod: &PodFacts, on: &[&str]| {
        let claims = [claim(&labelled(), &ready(on))];
        let Claims::Ready(ready) = plan::claims(None, &claims, None) else { panic!("ready") };
        plan::nodes_for(pod, &ready, &nodes.iter().collect::<Vec<_>>(), &|_| false)
            .map(|nodes| nodes.concat())
            .ok()
    };
    let any = ["a", "b", "c"];
    assert_eq!(goes(&pod(&json!({})), &any).as_deref(), Some("c"));
    let tolerations = json!([{"operator": "Exists"}]);
    assert_eq!(goes(&pod(&json!({"tolerations": tolerations})), &any).as_deref(), Some("abc"));
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]});
    let affinity = json!({"nodeAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    let daemon = pod(&json!({"tolerations": tolerations, "affinity": affinity}));
    assert_eq!(goes(&daemon, &any).as_deref(), Some("b"));
    // Where no node of its devices takes the Pod, the refusal names one of them.
    assert_eq!(goes(&daemon, &["c"]).as_deref(), Some("c"));
    assert_eq!(
        plan::unsuitable(&daemon, nodes.get(2), &|_| false).as_deref(),
        Some("the required node affinity does not select the node")
    );
    let picky = pod(&json!({"nodeSelector": {"host": "b"}}));
    assert_eq!(
        plan::unsuitable(&picky, nodes.first(), &|_| false).as_deref(),
        Some(
            "the node does not have the label host=b (nodeSelector); taint drain:NoSchedule of the node is not tolerated"
        )
    );
    assert_eq!(plan::unsuitable(&picky, None, &|_| false), None, "a node that is not known");
}

#[test]
fn a_pod_goes_where_all_its_claims_can_be_used() {
    let node = |name: &str| {
        let node = json!({"metadata": {"name": name, "labels": {"host": name}}});
        NodeView::from(&serde_json::from_value::<Node>(node).expect("a Node"))
    };
    let nodes = ["a", "b", "c"].map(node);
    let common = |claims: &[NamedClaim]| {
        let Claims::Ready(ready) = plan::claims(None, claims, None) else { panic!("ready") };
        plan::common_nodes(&ready, nodes.iter()).map(|nodes| nodes.concat()).map_err(|wait| wait.reason)
    };
    let on = |nodes: &[&str]| claim(&labelled(), &ready(nodes));
    assert_eq!(common(&[on(&["a"]), on(&["a", "b"])]), Ok("a".to_owned()));
    assert_eq!(common(&[on(&["a", "b"]), on(&["b", "c"])]), Ok("b".to_owned()));
    assert_eq!(common(&[on(&["a"]), on(&["b"])]), Err(Reason::NoCommonNode));
    assert_eq!(common(&[on(&["gone"])]), Err(Reason::NoCommonNode));
    let mut anywhere = ready(&["a"]);
    anywhere["allocation"]["nodeSelector"] = Value::Null;
    assert_eq!(common(&[claim(&labelled(), &anywhere)]), Ok("abc".to_owned()));
    anywhere["allocation"]["nodeSelector"] = json!({"nodeSelectorTerms": 7});
    assert_eq!(common(&[claim(&labelled(), &anywhere)]), Err(Reason::ClaimUnreadable));
    let confines = |status: &Value| plan::confines(&facts(&claim(&labelled(), status)));
    assert!(confines(&ready(&["a"])));
    assert!(!confines(&ready(&["a", "b"])), "kube-scheduler could choose the other one");
    // After its release: where it is pinned, if its devices leave a choice.
    let goes = |nodes_of: &[&str], pin: Option<&str>| {
        let claims = [on(nodes_of)];
        let Claims::Ready(ready) = plan::claims(None, &claims, None) else { panic!("ready") };
        plan::goes_to(&ready, nodes.iter(), pin).map(|node| node.to_string())
    };
    assert_eq!(goes(&["a"], None).as_deref(), Some("a"));
    assert_eq!(goes(&["a", "b"], Some("b")).as_deref(), Some("b"));
    assert_eq!(goes(&["a", "b"], Some("c")), None, "its devices are not there");
    assert_eq!(goes(&["a", "b"], None), None);
}

fn facts(claim: &NamedClaim) -> Arc<ClaimFacts> {
    Arc::clone(&claim.known().expect("a claim").facts)
}

fn pod_of(spec: &Value) -> Pod {
    let mut pod = json!({"metadata": {"namespace": "ns", "name": "p", "uid": UID, "resourceVersion": "7"}, "spec": spec});
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    serde_json::from_value(pod).expect("Pod")
}

#[test]
fn an_allocation_is_given_back_only_with_its_last_consumer() {
    let operations = |consumers: Value| {
        let mut status = ready(&["n"]);
        status["reservedFor"] = consumers;
        let claim = claim(&labelled(), &status);
        let write = writes::give_back("ns", claim.known().expect("a claim"), "9")?;
        let Action::Patch { subresource: Some("status"), guard, operations } = write.action else {
            panic!("status")
        };
        assert_eq!(guard.resource_version, "9", "the version after the rejection was recorded");
        let of = |operation: &Value| format!("{} {}", operation["op"], operation["path"]).replace('"', "");
        Some(operations.iter().map(of).collect::<Vec<_>>().join(", "))
    };
    let of = |uid: &str| json!({"resource": "pods", "name": "p", "uid": uid});
    assert_eq!(
        operations(json!([of(UID)])).as_deref(),
        Some("test /status/reservedFor/0/uid, remove /status/reservedFor/0, remove /status/allocation")
    );
    assert_eq!(
        operations(json!([of("other"), of(UID)])).as_deref(),
        Some("test /status/reservedFor/1/uid, remove /status/reservedFor/1"),
        "another Pod may run"
    );
    assert_eq!(operations(json!([of("other")])), None);
}

/// A Pod that wants so many cpus.
fn wants(name: &str, cpu: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": name, "uid": name},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
    }))
    .expect("Pod")
}

#[test]
fn what_is_assumed_counts_until_it_is_taken_back() {
    let mut cluster = ClusterLedger::new(Rules::default());
    let node: Node = serde_json::from_value(
        json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "pods": "10"}}}),
    )
    .expect("Node");
    cluster.put_node((&node).into());
    let mut assumed = Assumed::default();
    let key = |name: &str| ObjectKey { namespace: "ns".into(), name: name.into() };
    let fits = |assumed: &Assumed, name: &str, cpu: &str| {
        let candidate = cluster.candidate(&(&wants(name, cpu)).into(), "n");
        account(&assumed.over(cluster.node("n").expect("account"), "n", Some(&key(name))), &candidate)
    };
    let charge = |name: &str, cpu: &str| cluster.candidate(&(&wants(name, cpu)).into(), "n").pod;
    assumed.put(&key("a"), "n", charge("a", "5"));
    assert_eq!(fits(&assumed, "b", "3"), Account::Fits);
    assert_eq!(
        fits(&assumed, "b", "4"),
        Account::Refused("1 of cpu is missing (4 needed, 3 of 8 left)".to_owned())
    );
    assert_eq!(fits(&assumed, "a", "8"), Account::Fits, "its own charge does not stand in its way");
    assumed.put(&key("a"), "elsewhere", charge("a", "5"));
    assert_eq!(fits(&assumed, "b", "8"), Account::Fits, "it was moved");
    assert_eq!(
        fits(&assumed, "b", "9"),
        Account::Refused("the node is too small: cpu (it has 8)".to_owned())
    );
    assumed.put(&key("a"), "n", charge("a", "5"));
    assumed.remove(&key("a"));
    assert_eq!((fits(&assumed, "b", "8"), assumed.len()), (Account::Fits, 0));
}

#[test]
fn a_pod_whose_binding_failed_keeps_its_allocations() {
    let mut unreserved = ready(&["n"]);
    unreserved["reservedFor"] = json!([]);
    let keeps = |status: &Value, is_known: bool| {
        claim(&labelled(), status).known().is_some_and(|claim| plan::keeps(claim, is_known))
    };
    assert!(keeps(&ready(&["n"]), false), "it was released by an earlier process");
    assert!(keeps(&unreserved, true));
    assert!(!keeps(&unreserved, false), "a Pod that was never released holds no room");
    assert!(!keeps(&json!({}), true), "the devices are gone");
}

#[test]
fn a_pod_that_cannot_be_bound_says_where_and_why() {
    let term =
        |node: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let facts = |terms: &[Value], node: &str, ready: &str| {
        let pod = json!({
            "metadata": {"name": "p", "ownerReferences": [{"kind": "ReplicaSet", "controller": true}]},
            "spec": {
                "nodeName": node, "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    {"nodeSelectorTerms": terms}}},
            },
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"},
                {"type": "dragoman.dev/ClaimsReady", "status": ready, "reason": "NotBound"},
            ]},
        });
        PodFacts::of(&serde_json::from_value::<Pod>(pod).expect("Pod"), &Vec::new())
    };
    let pin = |terms: &[Value]| facts(terms, "", "True").and_then(|pod| pod.affinity.node().cloned());
    assert_eq!(pin(&[term("n")]).as_deref(), Some("n"));
    assert_eq!(pin(&[term("n"), term("n")]).as_deref(), Some("n"));
    assert_eq!(pin(&[term("n"), term("m")]), None, "terms are alternatives");
    assert_eq!(pin(&[term("n"), json!({})]), None);
    let pod = facts(&[term("n")], "", "True").expect("not bound");
    assert_eq!((pod.unschedulable.as_deref(), pod.is_replaced), (Some("no room"), true));
    assert!(facts(&[], "n", "True").is_none(), "a bound Pod is of no concern");
    assert!(facts(&[], "n", "False").is_some_and(|pod| pod.is_bound), "unless its condition is late");
    let said = |is_there, is_pinned| plan::not_bound("n", is_there, is_pinned, "no room").message;
    assert!(said(true, false).ends_with("node n, where its claims are: no room"), "{}", said(true, false));
    assert!(said(false, false).ends_with("there is no such node any more"));
    assert!(said(true, true).contains("delete the Pod"));
    assert_eq!(Reason::NotBound.patience(), Duration::from_secs(30));
    let here = || claim(&labelled(), &ready(&["n"]));
    assert!(plan::is_allocated_for(&[here(), claim(&json!({}), &ready(&["n"]))]));
    for unallocated in [claim(&labelled(), &json!({})), NamedClaim::Missing("c".into())] {
        assert!(!plan::is_allocated_for(&[here(), unallocated]), "kube-scheduler may allocate it");
    }
    assert!(!plan::is_allocated_for(&[claim(&json!({}), &ready(&["n"]))]), "no allocator has part in it");
}

#[test]
fn a_short_wait_costs_no_write_and_a_long_one_few() {
    let began = Instant::now();
    let at = |seconds| began + Duration::from_secs(seconds);
    assert_eq!(plan::condition_due(at(1), None), at(1));
    assert_eq!(plan::condition_due(at(1), Some(at(3))), at(8));
}

/// A tenant can write 256 KiB of annotations on each Pod.
#[test]
fn of_a_long_question_and_of_answers_to_none_nothing_is_kept() {
    let asked = |question: &str| {
        let mut pod = json!({"metadata": {"namespace": "ns", "name": "p", "uid": UID, "resourceVersion": "7",
                "annotations": {"attributes.dragoman.dev/bus": "x".repeat(50_000), "attributes.dragoman.dev/free": "y"}},
            "spec": {"schedulingGates": [{"name": "dragoman.dev/claims"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}});
        pod["metadata"]["annotations"]["dragoman.dev/attributes"] = json!(question);
        let pod: Pod = serde_json::from_value(pod).expect("Pod");
        let facts = PodFacts::of(&pod, &Vec::new()).expect("it waits");
        let why =
            attributes::of(&facts, &ClusterLedger::new(Rules::default())).expect_err("no claim").message;
        (facts.asked.expect("it asks").given.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>(), why)
    };
    let (given, why) = asked("bus: gpu/r/bus");
    assert_eq!(given, ["attributes.dragoman.dev/bus"]);
    assert!(why.contains("claim c has no device"), "{why}");
    let (given, why) = asked(&"bus: gpu/r/bus\n".repeat(600));
    assert_eq!(given, Vec::<String>::new());
    assert!(why.contains("more than 8192 bytes"), "{why}");
}

/// The answer comes with the opening of the gate, from the newest ResourceSlice and the claim as it is.
#[test]
fn a_pod_is_told_about_its_devices_in_the_write_that_opens_its_gate() {
    let object = json!({
        "metadata": {"namespace": "ns", "name": "p", "uid": UID, "resourceVersion": "7",
            "annotations": {"dragoman.dev/attributes": "bus: gpu/r/bus"}},
        "spec": {"schedulingGates": [{"name": "dragoman.dev/claims"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}});
    let told = |pod: &Value, attribute: &str| {
        let mut pod = pod.clone();
        pod["metadata"]["annotations"]["dragoman.dev/attributes"] = json!(format!("bus: gpu/r/{attribute}"));
        let pod: Pod = serde_json::from_value(pod).expect("Pod");
        let facts = PodFacts::of(&pod, &Vec::new()).expect("it waits");
        let mut ledger = ClusterLedger::new(Rules::default());
        let result = |device: &str| json!({"request": "r/any", "driver": "d", "pool": "n", "device": device});
        let claim: ResourceClaim = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "c", "uid": "c"},
            "status": {"allocation": {"devices": {"results": [result("2"), result("1")]}}}}))
        .expect("claim");
        ledger.put_claim((&claim).into());
        for (generation, bus) in [(1, "old"), (2, "new")] {
            let device = |name: &str| {
                json!({"name": name, "attributes": {
                "bus": {"string": format!("{bus}-{name}")}, "long": {"string": "x".repeat(20_000)}}})
            };
            let slice: ResourceSlice = serde_json::from_value(json!({
                "metadata": {"name": format!("s{generation}")},
                "spec": {"driver": "d", "nodeName": "n", "pool": {"name": "n", "generation": generation},
                    "devices": [device("1"), device("2")]}}))
            .expect("slice");
            ledger.put_slice((&slice).into());
        }
        attributes::of(&facts, &ledger).map(|answers| (facts, answers))
    };
    let (facts, answers) = told(&object, "bus").expect("answers");
    assert_eq!(answers["attributes.dragoman.dev/bus"], "new-2,new-1", "in the order of the allocation");
    let key = ObjectKey { namespace: "ns".into(), name: "p".into() };
    let write =
        writes::release(&key, UID, &facts, Opened::Released, None, &answers).expect("it has the gate");
    let Action::Patch { operations, .. } = write.action else { panic!("no patch") };
    assert_eq!(operations.last().expect("an operation")["value"], "new-2,new-1");
    assert!(!attributes::are_given(&facts, &answers));
    let mut later = object.clone();
    later["metadata"]["annotations"]["attributes.dragoman.dev/bus"] = json!("new-2,new-1");
    let (facts, answers) = told(&later, "bus").expect("answers");
    assert!(attributes::are_given(&facts, &answers), "it is not told twice");
    let wait = told(&object, "long").expect_err("more than an annotation may have");
    assert_eq!(&*wait.message, "dragoman.dev/attributes: the values have more than 32768 bytes");
    let wait = told(&object, "speed").expect_err("no such attribute");
    assert_eq!(
        (wait.reason, &*wait.message),
        (Reason::AttributeMissing, "device d/n/2 has no attribute speed")
    );
}

#[test]
fn a_nominated_pod_is_released_once_kube_scheduler_and_the_index_have_seen_the_other() {
    let (mut nominated, pod) = (Nominated::default(), ObjectKey { namespace: "ns".into(), name: "p".into() });
    let began = Instant::now();
    let mut left = |node: &str, passed| {
        let now = began + Duration::from_millis(passed);
        nominated.settles(&pod, &node.into(), now).map(|left| left.as_millis())
    };
    assert_eq!(left("a", 1_000), Some(250));
    assert_eq!(left("a", 1_200), Some(50));
    assert_eq!(left("a", 1_250), None);
    assert_eq!(left("b", 1_300), Some(250), "it is another node");
    assert_eq!(left("b", 1_550), None);
}

#[test]
fn a_nomination_that_another_party_has_changed_is_left_for_a_moment() {
    let (mut nominated, pod) = (Nominated::default(), ObjectKey { namespace: "ns".into(), name: "p".into() });
    let (node, other): (Name, Name) = ("n".into(), "other".into());
    let written = Instant::now();
    let left = |nominated: &Nominated, seen: Option<&Name>, passed| {
        let now = written + Duration::from_millis(passed);
        nominated.is_left(&pod, seen, now).map(|left| left.as_millis())
    };
    assert_eq!(left(&nominated, Some(&node), 0), None, "it was never written");
    nominated.wrote(&pod, Some(&node), written);
    assert_eq!(left(&nominated, Some(&node), 100), None, "it is as it was written");
    assert_eq!(left(&nominated, None, 100), Some(900));
    assert_eq!(left(&nominated, Some(&other), 1_000), None);
    nominated.end(&pod);
    assert_eq!(left(&nominated, None, 100), Some(900), "the other party is still at work");
    nominated.forget(&pod);
    assert_eq!(left(&nominated, None, 100), None);
}

#[test]
fn the_257th_consumer_says_what_it_waits_for() {
    let consumers = |count: usize| {
        let of =
            |number| json!({"resource": "pods", "name": format!("x-{number}"), "uid": format!("x-{number}")});
        let mut status = ready(&["n"]);
        status["reservedFor"] = (0..count).map(of).collect();
        judged(&[claim(&labelled(), &status)], None).1
    };
    assert_eq!(consumers(255), "claim c is not reserved for the Pod");
    assert!(consumers(256).ends_with("it has 256 consumers, and takes another one when one of them ends"));
}
