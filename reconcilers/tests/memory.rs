//! The memory budget of the index: bytes of live heap per Pod.
//!
//! A process of its own, because it counts every allocation there is.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test: clippy knows only functions marked as such"
)]

use dragoman_cluster::placement::Neighbours;
use dragoman_machinery::controller::{Fed, Keeps};
use dragoman_machinery::queue::Queue;
use dragoman_machinery::watch::decode_item;
use dragoman_objects::{Node, Pod, ResourceClaim};
use dragoman_reconcilers::claim_lifecycle::{Key, State};
use dragoman_reconcilers::cluster::Cluster;
use dragoman_reconcilers::gates::Gates;
use dragoman_reconcilers::holders::Holders;
use dragoman_reconcilers::pod_status::PodStatuses;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const PODS: usize = 2_500;
/// A Pod with a claim, its claim, and every map, key and link between them.
const WITH_CLAIM: usize = 2048;
/// A Pod without claims, however large its JSON.
const WITHOUT_CLAIM: usize = 256;
/// The indexes of all controllers of the operator together: a bound Pod without claims, and one with a claim. Most of it is
/// the account of the node: the Pod's names and amounts.
const OF_ALL: [usize; 2] = [1_100, 3_100];
/// The indexes of all controllers of the operator in a cluster of 100 000 Pods on 1 000 nodes, 10 000 of them with a claim: MiB. A
/// tenth of it is built.
const OF_A_CLUSTER: f64 = 106.0;
/// A bound Pod as the allocator keeps it for Pods that ask for Pods near them: one of a Deployment, and one of an indexed Job,
/// whose labels no other Pod has.
const NEIGHBOURS: [usize; 2] = [32, 520];
/// Peak during a complete relist against the steady state before.
const RELIST: f64 = 1.5;

fn uid(kind: &str, i: usize) -> String {
    format!("{kind:0>8}-0000-4000-8000-{i:012}")
}

/// A Pod as an API server sends it: 3 kB, or 20 kB with managed fields.
fn pod(i: usize, claim: bool, managed_fields: usize) -> Value {
    let fields = json!({"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:conditions": "x".repeat(400)}}});
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("workload-7d4b9c6f5-{i:05}"), "namespace": format!("team-{}", i % 50),
            "uid": uid("b0d", i), "resourceVersion": (1000 + i).to_string(),
            "creationTimestamp": "2026-11-01T00:00:00Z",
            "labels": {"app": "workload", "pod-template-hash": "7d4b9c6f5"},
            "managedFields": vec![fields; managed_fields],
        },
        "spec": {
            "nodeName": format!("node-{}", i % 500),
            "containers": [{"name": "main", "image": "registry.example.com/team/workload:v1.2.3",
                "env": vec![json!({"name": "VARIABLE", "value": "value"}); 20]}],
        },
        "status": {"phase": "Running", "conditions": vec![json!({"type": "Ready", "status": "True",
            "lastTransitionTime": "2026-11-01T00:00:00Z"}); 5]},
    });
    if claim {
        pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "single-gpu"}]);
        pod["status"]["resourceClaimStatuses"] = json!([{"name": "gpu", "resourceClaimName": claim_name(i)}]);
    }
    pod
}

fn claim_name(i: usize) -> String {
    format!("workload-7d4b9c6f5-{i:05}-gpu-{:05}", i % 99_991)
}

fn claim(i: usize) -> Value {
    json!({
        "metadata": {
            "name": claim_name(i), "namespace": format!("team-{}", i % 50), "uid": uid("c1a1", i),
            "resourceVersion": (1000 + i).to_string(), "creationTimestamp": "2026-11-01T00:00:00Z",
            "finalizers": ["resource.kubernetes.io/delete-protection"],
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "controller": true,
                "name": format!("workload-7d4b9c6f5-{i:05}"), "uid": uid("b0d", i)}],
        },
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
        "status": {
            "allocation": {"devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "d"}]}},
            "reservedFor": [{"resource": "pods", "name": format!("workload-7d4b9c6f5-{i:05}"), "uid": uid("b0d", i)}],
        },
    })
}

/// The index with the queue of the keys that its changes made dirty.
struct Loaded {
    state: State,
    queue: Queue<Key>,
}

impl Default for Loaded {
    fn default() -> Self {
        Self { state: State::default(), queue: Queue::new(50) }
    }
}

impl Loaded {
    fn add(&mut self, keys: Vec<Key>) {
        let now = tokio::time::Instant::now();
        for key in keys {
            self.queue.add(key, now);
        }
    }

    fn list_pods(&mut self, claim: bool, managed_fields: usize) {
        Fed::<Pod>::began(&mut self.state);
        for i in 0..PODS {
            let item =
                decode_item::<Pod>(pod(i, claim, managed_fields).to_string().as_bytes()).expect("metadata");
            let dirty = Fed::<Pod>::applied(&mut self.state, &item);
            self.add(dirty);
        }
        let dirty = Fed::<Pod>::completed(&mut self.state, "20000");
        self.add(dirty);
    }

    fn list_claims(&mut self) {
        Fed::<ResourceClaim>::began(&mut self.state);
        for i in 0..PODS {
            let item = decode_item::<ResourceClaim>(claim(i).to_string().as_bytes()).expect("metadata");
            let dirty = Fed::<ResourceClaim>::applied(&mut self.state, &item);
            self.add(dirty);
        }
        let dirty = Fed::<ResourceClaim>::completed(&mut self.state, "20000");
        self.add(dirty);
    }
}

/// Returns the bytes for each Pod that an index keeps of Pods alone.
fn of_pods<I: Keeps<Pod>>(claim: bool) -> usize {
    let mut index = I::default();
    let start = live();
    index.began();
    for i in 0..PODS {
        let item = decode_item::<Pod>(pod(i, claim, 0).to_string().as_bytes()).expect("metadata");
        index.applied(&item);
    }
    index.completed("20000");
    (live() - start) / PODS
}

/// Returns the bytes for each Pod that the indexes of all controllers of the operator keep of Pods, in all and in words.
fn of_all_controllers(claim: bool) -> (usize, String) {
    let each = [
        ("claim_lifecycle", of_pods::<State>(claim)),
        ("the cluster", of_pods::<Cluster>(claim)),
        ("pod_status", of_pods::<PodStatuses>(claim)),
        ("holders", of_pods::<Holders>(claim)),
        ("gates", of_pods::<Gates>(claim)),
    ];
    let words: Vec<String> = each.iter().map(|(name, bytes)| format!("{name} {bytes} B")).collect();
    (each.iter().map(|(_, bytes)| bytes).sum(), words.join(", "))
}

/// Feeds indexes with the objects of a kind, each decoded once, as a watch does.
macro_rules! feed {
    ($kind:ty, $objects:expr, $($index:ident),*) => {
        $(Fed::<$kind>::began(&mut $index);)*
        for object in $objects {
            let item = decode_item::<$kind>(object.to_string().as_bytes()).expect("metadata");
            $(Fed::<$kind>::applied(&mut $index, &item);)*
        }
        $(Fed::<$kind>::completed(&mut $index, "20000");)*
    };
}

/// Returns the MiB that the indexes of all controllers take in a cluster of 100 000 Pods, as far as a tenth of it tells.
fn of_a_cluster() -> f64 {
    let on_node = |i: usize| {
        let mut pod = pod(i, i.is_multiple_of(10), 0);
        pod["spec"]["nodeName"] = json!(format!("node-{}", i % 100));
        pod
    };
    let node = |i: usize| {
        json!({"metadata": {"name": format!("node-{i}"), "uid": uid("40de", i), "resourceVersion": "1"},
            "status": {"allocatable": {"cpu": "128", "memory": "512Gi", "pods": "110"}}})
    };
    let (pods, claims) = (|| (0..10_000).map(on_node), || (0..10_000).step_by(10).map(claim));
    let (mut lifecycle, mut cluster, mut statuses, mut holders, mut gates) =
        (State::default(), Cluster::default(), PodStatuses::default(), Holders::default(), Gates::default());
    let start = live();
    feed!(Node, (0..100).map(node), cluster, holders, gates);
    feed!(Pod, pods(), lifecycle, cluster, statuses, holders, gates);
    feed!(ResourceClaim, claims(), lifecycle, cluster, gates);
    #[expect(clippy::cast_precision_loss, reason = "MiB to one place")]
    let mib = (live() - start) as f64 * 10.0 / f64::from(1 << 20);
    mib
}

/// Returns the bytes for each Pod that the allocator keeps of bound Pods for those that ask for Pods near them.
fn of_neighbours(labels: impl Fn(usize) -> Value) -> usize {
    let mut neighbours = Neighbours::default();
    let start = live();
    for i in 0..PODS {
        let mut pod = pod(i, false, 0);
        pod["metadata"]["labels"] = labels(i);
        let pod: Pod = serde_json::from_str(&pod.to_string()).expect("a Pod");
        let kind = neighbours.kind(&pod);
        neighbours.add(&pod.spec.node_name, &kind);
    }
    (live() - start) / PODS
}

fn live() -> usize {
    ALLOCATOR.current_usage()
}

/// One test: the counter is one for the whole process.
#[test]
fn the_index_stays_within_its_budget() {
    let start = live();
    let mut kept = Loaded::default();
    kept.list_pods(false, 0);
    let without = (live() - start) / PODS;
    kept.list_pods(false, 30);
    let large = (live() - start) / PODS;
    assert!(pod(0, false, 30).to_string().len() > 15_000);
    drop(kept);

    let start = live();
    let mut kept = Loaded::default();
    kept.list_pods(true, 5);
    kept.list_claims();
    let steady = live() - start;
    let with = steady / PODS;

    // A complete list of everything once more, while the first is still there.
    ALLOCATOR.reset_peak_usage();
    kept.list_pods(true, 5);
    kept.list_claims();
    let peak = ALLOCATOR.peak_usage() - start;
    drop(kept);

    println!(
        "per Pod without claims {without} B (20 kB of JSON: {large} B), with a claim and everything queued {with} B"
    );
    let [(without_claim, words), (with_claim, words_with)] =
        [of_all_controllers(false), of_all_controllers(true)];
    println!("a bound Pod without a claim: {words}\na bound Pod with a claim: {words_with}");
    let of_all = [without_claim, with_claim];
    assert!(of_all.iter().zip(OF_ALL).all(|(bytes, budget)| *bytes <= budget), "{of_all:?} B");
    let of_a_cluster = of_a_cluster();
    println!("100 000 Pods on 1 000 nodes, 10 000 of them with a claim: {of_a_cluster:.1} MiB");
    assert!(of_a_cluster <= OF_A_CLUSTER, "{of_a_cluster}");
    let of_job = |i: usize| {
        json!({"app": "train", "batch.kubernetes.io/controller-uid": uid("70b", i / 4),
            "batch.kubernetes.io/job-completion-index": (i % 4).to_string(),
            "batch.kubernetes.io/job-name": format!("train-{}", i / 4), "controller-uid": uid("70b", i / 4),
            "job-name": format!("train-{}", i / 4)})
    };
    let near = [of_neighbours(|i| pod(i, false, 0)["metadata"]["labels"].clone()), of_neighbours(of_job)];
    println!("a bound Pod as a neighbour: of a Deployment {} B, of an indexed Job {} B", near[0], near[1]);
    assert!(near.iter().zip(NEIGHBOURS).all(|(bytes, budget)| *bytes <= budget), "{near:?} B");
    println!("steady {steady} B, peak during a complete list {peak} B");
    assert!(without <= WITHOUT_CLAIM && large <= WITHOUT_CLAIM, "{without} B, {large} B");
    assert!(with <= WITH_CLAIM, "{with} B");
    #[expect(clippy::cast_precision_loss, reason = "a ratio of bytes")]
    let ratio = peak as f64 / steady as f64;
    assert!(ratio <= RELIST, "{ratio}");
}
