//! The memory budget of the index of the cluster, the ledger included, and what it takes to rebuild it:
//! bytes of live heap per Pod.
//!
//! A process of its own, because it counts every allocation there is. `--nocapture` prints the figures,
//! and the environment variable `NODES` sets the number of nodes: times with `--release` or the profile
//! `soak` only.

#![expect(clippy::expect_used, reason = "a test: clippy knows only functions marked as such")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use dragoman_crds::node_allocatable_dra_claim_state::NodeAllocatableDRAClaimState;
use dragoman_machinery::controller::Fed;
use dragoman_machinery::kind::Watchable;
use dragoman_machinery::watch::decode_item;
use dragoman_machinery::write::Action;
use dragoman_objects::{Node, Pod, ResourceClaim, ResourceSlice};
use dragoman_reconcilers::cluster::Cluster;
use dragoman_reconcilers::ledger::NodeReport;
use dragoman_reconcilers::ledger::plan::{COALESCED, Plan, Snapshot, Written, plan};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Pods of a node, of which one in ten has a claim.
const PODS: usize = 100;
/// A Pod without claims that has a node.
const WITHOUT_CLAIM: usize = 700;
/// A Pod with a claim, and its claim.
const WITH_CLAIM: usize = 2600;

fn uid(kind: &str, i: usize) -> String {
    format!("{kind:0>8}-0000-4000-8000-{i:012}")
}

fn node(n: usize) -> Value {
    json!({
        "metadata": {"name": format!("node-{n:05}"), "uid": uid("40de", n), "resourceVersion": "1"},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "100Gi", "pods": "110"}},
    })
}

fn slice(n: usize) -> Value {
    let cost = json!({"cpu": {"mapping": {"deviceMultiplier": "2"}}});
    let devices: Vec<Value> =
        (0..10).map(|i| json!({"name": format!("gpu-{i}"), "nodeAllocatableResources": cost})).collect();
    json!({
        "metadata": {"name": format!("node-{n:05}-gpu"), "uid": uid("511ce", n), "resourceVersion": "1"},
        "spec": {"driver": "gpu.example.com", "nodeName": format!("node-{n:05}"),
            "pool": {"name": format!("node-{n:05}"), "generation": 1, "resourceSliceCount": 1}, "devices": devices},
    })
}

fn claim(n: usize, i: usize) -> Value {
    json!({
        "metadata": {"name": format!("workload-7d4b9c6f5-{n:05}-{i:03}-gpu"), "namespace": format!("team-{}", n % 50),
            "uid": uid("c1a1", n * PODS + i), "resourceVersion": "1"},
        "status": {"allocation": {"devices": {"results": [{"request": "gpu", "driver": "gpu.example.com",
            "pool": format!("node-{n:05}"), "device": format!("gpu-{}", i / 10)}]}}},
    })
}

fn pod(n: usize, i: usize, cpu: &str, with_claims: bool) -> Value {
    let claims = if with_claims && i.is_multiple_of(10) {
        json!([{"name": "gpu", "resourceClaimName": format!("workload-7d4b9c6f5-{n:05}-{i:03}-gpu")}])
    } else {
        json!([])
    };
    json!({
        "metadata": {"name": format!("workload-7d4b9c6f5-{n:05}-{i:03}"), "namespace": format!("team-{}", n % 50),
            "uid": uid("b0d", n * PODS + i), "resourceVersion": "1"},
        "spec": {"nodeName": format!("node-{n:05}"), "resourceClaims": claims, "containers": [
            {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "512Mi"}, "limits": {"memory": "512Mi"}}},
        ]},
        "status": {"phase": "Running"},
    })
}

/// The time that an object takes from its text into the index, without and with decoding.
#[derive(Default)]
struct Spent {
    taken_in: Duration,
    decoded: Duration,
}

fn applied<T: Watchable>(cluster: &mut Cluster, object: &Value, spent: &mut Spent) -> usize
where
    Cluster: Fed<T>,
{
    let text = object.to_string();
    let began = Instant::now();
    let item = decode_item::<T>(text.as_bytes()).expect("metadata");
    let decoded = Instant::now();
    let dirty = Fed::<T>::applied(cluster, &item).len();
    spent.taken_in += decoded.elapsed();
    spent.decoded += decoded - began;
    dirty
}

fn live() -> usize {
    ALLOCATOR.current_usage()
}

/// Lists a cluster; returns the bytes that its Pods and claims take.
fn listed(cluster: &mut Cluster, nodes: usize, with_claims: bool, spent: &mut Spent) -> usize {
    for n in 0..nodes {
        applied::<Node>(cluster, &node(n), spent);
        applied::<ResourceSlice>(cluster, &slice(n), spent);
    }
    let before = live();
    for n in 0..nodes {
        for i in 0..PODS {
            if with_claims && i.is_multiple_of(10) {
                applied::<ResourceClaim>(cluster, &claim(n, i), spent);
            }
            applied::<Pod>(cluster, &pod(n, i, "250m", with_claims), spent);
        }
    }
    live() - before
}

/// The ledgers of nodes as the controller publishes them.
#[derive(Default)]
struct Publisher {
    written: HashMap<String, Written>,
    /// Nodes that are looked at again at a time.
    later: BTreeMap<tokio::time::Instant, BTreeSet<String>>,
    statuses: usize,
}

impl Publisher {
    /// Works on a node until nothing more is to be written now.
    fn work(&mut self, cluster: &mut Cluster, node: &str, now: tokio::time::Instant) {
        loop {
            let written = self.written.get(node).copied();
            let snapshot = Snapshot {
                node,
                uid: cluster.nodes.get("", node).map(|record| &*record.uid),
                content: NodeReport::of(cluster.ledger(), node),
                published: cluster.published.get("", node).and_then(|record| record.readable()).map(|p| &**p),
                all: false,
                written,
                created: None,
                claimless: None,
                time: jiff::Timestamp::UNIX_EPOCH,
            };
            let (write, content) = match plan(snapshot, now) {
                Plan::Create(write) => (write, None),
                Plan::Publish { write, content, .. } => (write, Some(content)),
                Plan::Later(wait) => {
                    self.later.entry(now + wait).or_default().insert(node.to_owned());
                    return;
                }
                _ => return,
            };
            if let Some(content) = content {
                assert!(written.is_none_or(|last| now - last.at >= COALESCED), "two within a second");
                self.written.insert(node.to_owned(), Written::next(written, content, now));
                self.statuses += 1;
            }
            let mut object: Value = match &write.action {
                Action::Create { body } => serde_json::from_str(body).expect("json"),
                Action::Apply { body, .. } => body.clone(),
                other => unreachable!("{other:?}"),
            };
            let owner = cluster.nodes.get("", node).expect("Node").uid.to_string();
            let owner =
                json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner, "controller": true});
            let metadata = json!({"name": node, "uid": format!("state-{node}"), "resourceVersion": "1",
                "ownerReferences": [owner]});
            object.as_object_mut().expect("object").insert("metadata".to_owned(), metadata);
            applied::<NodeAllocatableDRAClaimState>(cluster, &object, &mut Spent::default());
        }
    }

    /// Works on the nodes whose time has come.
    fn due(&mut self, cluster: &mut Cluster, now: tokio::time::Instant) {
        while let Some(first) = self.later.first_entry().filter(|first| *first.key() <= now) {
            first.remove().iter().for_each(|node| self.work(cluster, node, now));
        }
    }
}

/// Publishes everything, then changes 500 Pods a second on nodes at random for so many seconds. Returns
/// the statuses written a second.
fn published_a_second(cluster: &mut Cluster, nodes: usize, seconds: u64) -> usize {
    let (mut publisher, mut rng, began) = (Publisher::default(), 1_u64, tokio::time::Instant::now());
    for n in 0..nodes {
        publisher.work(cluster, &format!("node-{n:05}"), began);
    }
    publisher.statuses = 0;
    for change in 0..500 * seconds {
        let now = began + Duration::from_millis(10_000 + change * 2);
        publisher.due(cluster, now);
        // A generator of the test's own, so that no library decides what is measured.
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let n = usize::try_from(rng >> 33).expect("a small number") % nodes;
        let cpu = format!("{}m", 100 + change % 100);
        applied::<Pod>(cluster, &pod(n, 1, &cpu, true), &mut Spent::default());
        publisher.work(cluster, &format!("node-{n:05}"), now);
    }
    publisher.statuses / usize::try_from(seconds).expect("a small number")
}

/// One test: the counter is one for the whole process.
#[test]
fn the_index_of_the_cluster_stays_within_its_budget() {
    let nodes = std::env::var("NODES").ok().and_then(|nodes| nodes.parse().ok()).unwrap_or(20);
    let pods = nodes * PODS;
    let mut spent = Spent::default();
    let mut cluster = Cluster::default();
    let without = listed(&mut cluster, nodes, false, &mut spent) / pods;
    drop(cluster);
    let (mut spent, mut cluster) = (Spent::default(), Cluster::default());
    let all = listed(&mut cluster, nodes, true, &mut spent);
    let with = (all - without * pods * 9 / 10) / (pods / 10);
    println!("{nodes} nodes of {PODS} Pods: {without} B for a Pod, {with} B for a Pod with a claim");
    println!(
        "rebuilt in {:.2} s, of which decoding {:.2} s",
        (spent.taken_in + spent.decoded).as_secs_f64(),
        spent.decoded.as_secs_f64()
    );
    // Each Pod asks for more: every event changes one node.
    let mut changes = Spent::default();
    for n in 0..nodes {
        for i in 0..PODS {
            assert_eq!(applied::<Pod>(&mut cluster, &pod(n, i, "300m", true), &mut changes), 1);
        }
    }
    let began = Instant::now();
    for n in 0..nodes {
        let content = NodeReport::of(cluster.ledger(), &format!("node-{n:05}")).expect("account");
        assert_eq!(content.status.claims.len(), 10);
        assert_eq!(&*content.status.requested_by_claims.mapping["cpu"].0, "20");
        assert_eq!(&*content.status.requested_by_pods["cpu"].0, "30");
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = |count: usize, time: Duration| count as f64 / time.as_secs_f64().max(f64::EPSILON);
    println!(
        "{:.0} changes a second ({:.0} with decoding), {:.0} statuses a second",
        rate(pods, changes.taken_in),
        rate(pods, changes.taken_in + changes.decoded),
        rate(nodes, began.elapsed())
    );
    let published = published_a_second(&mut cluster, nodes, 20);
    println!("{published} statuses written a second at 500 changes of Pods a second");
    assert!(published <= nodes.min(500), "{published} writes a second about {nodes} nodes");
    assert!(without <= WITHOUT_CLAIM, "{without} B for a Pod");
    assert!(with <= WITH_CLAIM, "{with} B for a Pod with a claim");
}
