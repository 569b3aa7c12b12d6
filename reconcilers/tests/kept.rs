//! Objects that an index keeps: those that a decision needs, and no others.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test: clippy knows only functions marked as such"
)]

use std::fmt::Debug;

use dragoman_machinery::controller::{Fed, Index, Keeps, ObjectKey};
use dragoman_machinery::kind::POD;
use dragoman_machinery::watch::decode_item;
use dragoman_objects::Pod;
use dragoman_reconcilers::cluster::Cluster;
use dragoman_reconcilers::gates::Gates;
use dragoman_reconcilers::holders::Holders;
use dragoman_reconcilers::pod_status::PodStatuses;
use serde_json::{Value, json};

/// Takes in a Pod. Returns the names of the keys that this makes dirty, and the number of Pods that are kept.
fn sees<I: Keeps<Pod> + Index<Key = ObjectKey> + Debug>(index: &mut I, pod: &Value) -> (Vec<String>, usize) {
    let dirty = index.applied(&decode_item(pod.to_string().as_bytes()).expect("metadata"));
    let (_, store) = index.store_of(POD).expect("it keeps Pods");
    (dirty.iter().map(|key| format!("{}/{}", key.namespace, key.name)).collect(), store.count().0)
}

/// A Pod with a claim from a template.
fn pod(uid: &str, spec: &Value, status: &Value) -> Value {
    let mut pod = json!({
        "metadata": {"namespace": "ns", "name": "p", "uid": uid, "resourceVersion": "1"},
        "spec": {"containers": [{"name": "main"}], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
        "status": status,
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn named() -> Value {
    json!({"phase": "Running", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]})
}

fn dirty() -> Vec<String> {
    vec!["ns/p".to_owned()]
}

#[test]
fn gates_keep_a_pod_until_it_has_a_node() {
    let mut index = Gates::default();
    let gated = pod("a", &json!({"schedulingGates": [{"name": "dragoman.dev/claims"}]}), &json!({}));
    assert_eq!(sees(&mut index, &gated), (dirty(), 1));
    let nameless = pod("a", &json!({"nodeName": "n"}), &json!({}));
    assert_eq!(sees(&mut index, &nameless), (dirty(), 0), "the ledger counts what is reserved for it");
    let bound = pod("a", &json!({"nodeName": "n"}), &named());
    assert_eq!(sees(&mut index, &bound), (Vec::new(), 0));
    let member = json!({"nodeName": "n", "schedulingGroup": {"podGroupName": "g"}});
    assert_eq!(sees(&mut index, &pod("a", &member, &named())).1, 1, "its group asks for it");
    assert_eq!(sees(&mut index, &pod("a", &member, &json!({"phase": "Failed"}))).1, 0);
}

#[test]
fn a_pod_that_is_replaced_by_one_of_no_use_is_told() {
    let mut index = Gates::default();
    assert_eq!(sees(&mut index, &pod("a", &json!({}), &json!({}))), (dirty(), 1));
    let plain = pod("b", &json!({"resourceClaims": []}), &json!({}));
    assert_eq!(sees(&mut index, &plain), (dirty(), 0), "what was assumed for it is taken back");
}

#[test]
fn the_status_of_a_pod_is_kept_while_it_runs() {
    let mut index = PodStatuses::default();
    assert_eq!(sees(&mut index, &pod("a", &json!({}), &json!({}))), (Vec::new(), 0));
    let bound = json!({"nodeName": "n"});
    assert_eq!(sees(&mut index, &pod("a", &bound, &named())), (dirty(), 1));
    assert_eq!(sees(&mut index, &pod("a", &bound, &json!({"phase": "Succeeded"}))), (Vec::new(), 0));
}

#[test]
fn the_cluster_keeps_pods_that_take_something_from_a_node() {
    let mut index = Cluster::default();
    let kept = |index: &mut Cluster, pod: &Value| sees(index, pod).1;
    assert_eq!(kept(&mut index, &pod("a", &json!({}), &json!({}))), 0);
    assert_eq!(kept(&mut index, &pod("a", &json!({"nodeName": "n"}), &named())), 1);
    assert_eq!(kept(&mut index, &pod("a", &json!({"nodeName": "n"}), &json!({"phase": "Failed"}))), 0);
    assert!(index.ledger().node("n").is_none(), "nothing keeps its account");
    assert_eq!(kept(&mut index, &pod("a", &json!({"nodeName": "n"}), &named())), 1);
    assert_eq!(kept(&mut index, &pod("b", &json!({}), &json!({}))), 0);
    assert!(index.ledger().node("n").is_none(), "another Pod of the name waits: the one before is gone");
}

#[test]
fn a_pod_that_cannot_be_read_is_kept_by_every_index() {
    let unreadable = pod("a", &json!({"containers": 7}), &json!({"phase": 7}));
    assert_eq!(sees(&mut Gates::default(), &unreadable).1, 1);
    assert_eq!(sees(&mut PodStatuses::default(), &unreadable).1, 1);
    let mut holders = Holders::default();
    assert_eq!(sees(&mut holders, &unreadable).1, 1);
    let ordinary = pod("a", &json!({"nodeName": "n"}), &named());
    assert_eq!(sees(&mut holders, &ordinary), (Vec::new(), 0));
}
