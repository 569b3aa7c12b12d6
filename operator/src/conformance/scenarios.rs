//! The scenarios: each plays operator and workload, and judges what the allocator writes.

#![expect(clippy::indexing_slicing, reason = "what a JSON value does not have is null")]

use std::collections::BTreeSet;

use dragoman_crds::protocol::{GATE, REJECTIONS, VERDICT};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::bench::{Bench, DEVICES, DOMAIN, KEEP, NODES, items, text};

/// A scheduling gate of another controller.
const HOLD: &str = "conformance.dragoman.dev/hold";

/// Why a scenario is not passed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The allocator has broken a rule of the protocol: the place in docs/protocol.md, and what it did.
    Broken(&'static str, String),
    /// The cluster lacks what the scenario needs.
    NotPlayed(&'static str),
    /// The kit could not go on.
    Error(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Error(error)
    }
}

type Outcome = Result<(), Failure>;

fn broken<T>(rule: &'static str, what: String) -> Result<T, Failure> {
    Err(Failure::Broken(rule, what))
}

/// The names of all scenarios.
pub(super) const NAMES: [&str; 15] = [
    "simple",
    "several",
    "shared",
    "foreign",
    "ungated",
    "gates",
    "behind",
    "rejection",
    "full",
    "order",
    "protected",
    "conflict",
    "deleted",
    "whole",
    "owned",
];

/// Plays a scenario.
pub(super) async fn play(bench: &Bench, name: &str) -> Outcome {
    match name {
        "simple" => simple(bench).await,
        "several" => several(bench).await,
        "shared" => shared(bench).await,
        "foreign" => foreign(bench).await,
        "ungated" => ungated(bench).await,
        "gates" => gates(bench).await,
        "behind" => behind(bench).await,
        "rejection" => rejection(bench).await,
        "full" => full(bench).await,
        "order" => order(bench).await,
        "protected" => protected(bench).await,
        "conflict" => conflict(bench).await,
        "deleted" => deleted(bench).await,
        "whole" => whole(bench).await,
        _ => owned(bench).await,
    }
}

fn is_allocated(claim: &Value) -> bool {
    !claim["status"]["allocation"].is_null()
}

fn is_reserved_for(claim: &Value, pod: &Value) -> bool {
    items(&claim["status"]["reservedFor"]).any(|consumer| consumer["uid"] == pod["metadata"]["uid"])
}

/// The node that an allocation names, as kube-scheduler would have written it.
fn node_of(claim: &Value) -> &str {
    let terms = &claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"];
    text(&terms[0]["matchFields"][0]["values"][0])
}

fn devices_of(claim: &Value) -> Vec<String> {
    let results = items(&claim["status"]["allocation"]["devices"]["results"]);
    results.map(|result| format!("{}/{}", text(&result["pool"]), text(&result["device"]))).collect()
}

/// The times that an allocator is refused a node until it answers in time.
const REFUSALS: u8 = 3;
/// Time in which a node that was refused is left out for certain: ten seconds from a time in whole seconds. An allocator that
/// takes longer may choose the node again.
const FRESH: SignedDuration = SignedDuration::from_secs(8);

/// Waits until a claim has an allocation, and judges it as one that kube-scheduler could have written.
async fn allocated(bench: &Bench, name: &str, count: usize, pod: &Value) -> Result<Value, Failure> {
    let found = bench.until("", async || Ok(Some(bench.read(name).await?).filter(is_allocated))).await;
    let Ok(claim) = found else {
        return broken(
            "3.2",
            format!("claim {name} may be allocated, and is not after {} s", bench.patience.as_secs()),
        );
    };
    let metadata = &claim["metadata"];
    if !items(&metadata["finalizers"]).any(|of| *of == "resource.kubernetes.io/delete-protection") {
        return broken("3.3", format!("claim {name} is allocated without the finalizer"));
    }
    if !is_reserved_for(&claim, pod) {
        return broken(
            "3.3",
            format!("claim {name} is allocated and not reserved for its Pod in the same write"),
        );
    }
    let node = node_of(&claim);
    if !NODES.contains(&node) {
        return broken("2", format!("the allocation of claim {name} names no node of the pool: {node:?}"));
    }
    let results: Vec<&Value> = items(&claim["status"]["allocation"]["devices"]["results"]).collect();
    let is_right =
        |of: &&Value| of["request"] == "device" && of["driver"] == DOMAIN && text(&of["pool"]) == node;
    let devices: BTreeSet<String> = devices_of(&claim).into_iter().collect();
    if results.len() != count || devices.len() != count || !results.iter().all(is_right) {
        return broken("2", format!("claim {name} asks for {count} devices of one node and has {results:?}"));
    }
    if claim["status"]["allocation"]["allocationTimestamp"].is_null() && bench.keeps_times().await? {
        return broken(
            "2",
            format!(
                "the allocation of claim {name} has no allocationTimestamp: kube-scheduler can add no Pod to the claim"
            ),
        );
    }
    promised_once(bench).await?;
    Ok(claim)
}

/// No device has two claims.
async fn promised_once(bench: &Bench) -> Outcome {
    let mut seen = BTreeSet::new();
    for claim in bench.claims().await? {
        for device in devices_of(&claim) {
            if !seen.insert(device.clone()) {
                return broken("P1", format!("device {device} is promised to two claims"));
            }
        }
    }
    Ok(())
}

/// A claim that the allocator has to allocate after all that it has seen before.
async fn sentinel(bench: &Bench, name: &str) -> Outcome {
    bench.claim(name, 1, &json!({})).await?;
    let pod = bench.pod(name, &[name], true).await?;
    allocated(bench, name, 1, &pod).await?;
    Ok(())
}

/// A claim stays without an allocation while two others, which came later, get theirs.
async fn untouched(bench: &Bench, claim: &str, rule: &'static str, why: &str) -> Outcome {
    for name in ["sentinel-a", "sentinel-b"] {
        sentinel(bench, name).await?;
        if is_allocated(&bench.read(claim).await?) {
            return broken(rule, format!("claim {claim} is allocated, and {why}"));
        }
        bench.end(name).await?;
        bench.free(name).await?;
    }
    Ok(())
}

/// One Pod, one claim.
async fn simple(bench: &Bench) -> Outcome {
    bench.claim("simple", 1, &json!({})).await?;
    let pod = bench.pod("simple", &["simple"], true).await?;
    allocated(bench, "simple", 1, &pod).await?;
    Ok(())
}

/// Two claims of one Pod are on one node.
async fn several(bench: &Bench) -> Outcome {
    // The node that comes first by name has one device left: both have to go to the other one.
    bench.claim("taken", 1, &json!({"labels": {}})).await?;
    let other = bench.pod("other", &["taken"], false).await?;
    bench.allocate("taken", NODES[0], 0, &other).await?;
    // Created later: a watch keeps the order of one kind alone. An allocator that knows these claims knows that allocation.
    for name in ["first", "second"] {
        bench.claim(name, 1, &json!({})).await?;
    }
    let pod = bench.pod("several", &["first", "second"], true).await?;
    let first = allocated(bench, "first", 1, &pod).await?;
    let second = allocated(bench, "second", 1, &pod).await?;
    if node_of(&first) != node_of(&second) {
        let nodes = (node_of(&first), node_of(&second));
        return broken("3.3", format!("the claims of one Pod are on two nodes: {nodes:?}"));
    }
    Ok(())
}

/// A claim that two Pods share.
async fn shared(bench: &Bench) -> Outcome {
    bench.claim("shared", 1, &json!({})).await?;
    let one = bench.pod("one", &["shared"], true).await?;
    allocated(bench, "shared", 1, &one).await?;
    let two = bench.pod("two", &["shared"], true).await?;
    let both = bench
        .until("", async || Ok(Some(bench.read("shared").await?).filter(|of| is_reserved_for(of, &two))))
        .await;
    let Ok(claim) = both else {
        return broken(
            "3",
            "an allocated claim is not reserved for the second Pod that shares it".to_owned(),
        );
    };
    if !is_reserved_for(&claim, &one) {
        return broken(
            "P4",
            "the reservation of the first Pod is gone after that for the second one".to_owned(),
        );
    }
    Ok(())
}

/// Claims of another allocator and of none.
async fn foreign(bench: &Bench) -> Outcome {
    bench.claim("nobodys", 1, &json!({"labels": {}})).await?;
    bench.claim("anothers", 1, &json!({"labels": {"dragoman.dev/allocator": "another"}})).await?;
    bench.pod("nobodys", &["nobodys"], true).await?;
    bench.pod("anothers", &["anothers"], true).await?;
    untouched(bench, "nobodys", "3.2", "names no allocator").await?;
    for name in ["sentinel-a", "sentinel-b"] {
        bench.delete_claim(name).await?;
        bench.let_go(name).await?;
    }
    untouched(bench, "anothers", "3.2", "names another allocator").await
}

/// A Pod without the gate of the protocol.
async fn ungated(bench: &Bench) -> Outcome {
    bench.claim("ungated", 1, &json!({})).await?;
    bench.pod("ungated", &["ungated"], false).await?;
    untouched(bench, "ungated", "3.2", "no Pod with the gate refers to it").await
}

/// A closed gate before the allocation, and one after it.
async fn gates(bench: &Bench) -> Outcome {
    let gate = "allocation-gates.dragoman.dev/conformance";
    bench.claim("closed", 1, &json!({"annotations": {gate: "closed"}})).await?;
    let pod = bench.pod("closed", &["closed"], true).await?;
    untouched(bench, "closed", "3.2", "has a closed allocation gate").await?;
    bench.annotate("closed", &json!({gate: null})).await?;
    allocated(bench, "closed", 1, &pod).await?;
    let gate = "release-gates.dragoman.dev/conformance";
    bench.claim("later", 1, &json!({"annotations": {gate: "closed"}})).await?;
    let pod = bench.pod("later", &["later"], true).await?;
    allocated(bench, "later", 1, &pod).await?;
    Ok(())
}

/// A Pod that a scheduling gate of another controller holds, until it is opened.
async fn behind(bench: &Bench) -> Outcome {
    bench.claim("behind", 1, &json!({})).await?;
    let pod = bench.pod_behind("behind", &["behind"], &[HOLD, GATE]).await?;
    untouched(bench, "behind", "3.2", "another scheduling gate of its Pod is closed").await?;
    bench.open_others("behind").await?;
    allocated(bench, "behind", 1, &pod).await?;
    Ok(())
}

/// The operator refuses an allocation: the next one is on another node.
async fn rejection(bench: &Bench) -> Outcome {
    bench.claim("refused", 1, &json!({})).await?;
    let pod = bench.pod("refused", &["refused"], true).await?;
    let mut node = node_of(&allocated(bench, "refused", 1, &pod).await?).to_owned();
    let mut is_judged = false;
    for revision in 1..=REFUSALS {
        let at = dragoman_machinery::clock::now();
        let time = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let said =
            json!([{"node": node, "reason": "1 of cpu is missing", "revision": revision, "time": time}]);
        bench.annotate("refused", &json!({REJECTIONS: said.to_string()})).await?;
        bench.free("refused").await?;
        let claim = allocated(bench, "refused", 1, &pod).await?;
        let took = dragoman_machinery::clock::now().duration_since(at);
        if node_of(&claim) != node {
            is_judged = true;
            break;
        }
        if took < FRESH {
            return broken(
                "3.3",
                format!("the allocation is on node {node} again, which was refused just now"),
            );
        }
        node_of(&claim).clone_into(&mut node);
    }
    if !is_judged {
        return Err(Failure::NotPlayed("the allocator takes more than eight seconds for a decision"));
    }
    // What does not parse says nothing.
    bench
        .claim("scribbled", 1, &json!({"annotations": {REJECTIONS: "{", VERDICT: "x".repeat(20_000)}}))
        .await?;
    let pod = bench.pod("scribbled", &["scribbled"], true).await?;
    allocated(bench, "scribbled", 1, &pod).await?;
    Ok(())
}

/// A verdict of the form of the protocol says why a claim has no devices.
async fn says_why(bench: &Bench, claim: &str) -> Outcome {
    let said = async || {
        let read = bench.read(claim).await?;
        Ok(read["metadata"]["annotations"][VERDICT].as_str().map(str::to_owned))
    };
    let Ok(verdict) = bench.until("", said).await else {
        return broken("2", format!("claim {claim} has no devices, and no verdict says why"));
    };
    let parsed: Value = serde_json::from_str(&verdict).unwrap_or_default();
    let is_text = |field: &str| parsed[field].as_str().is_some_and(|text| !text.is_empty());
    if verdict.len() > 8 << 10 || !["reason", "message", "time"].into_iter().all(is_text) {
        let why = format!("the verdict of claim {claim} is not of the form of the protocol: {verdict:.200}");
        return broken("2", why);
    }
    Ok(())
}

/// One more Pod than there are devices: it is told why it waits, and has its turn.
async fn full(bench: &Bench) -> Outcome {
    let all = NODES.len() * DEVICES;
    let name = |number: usize| format!("full-{number}");
    for number in 0..=all {
        bench.claim(&name(number), 1, &json!({})).await?;
        bench.pod(&name(number), &[&name(number)], true).await?;
    }
    let count = async || anyhow::Ok(bench.claims().await?.iter().filter(|of| is_allocated(of)).count());
    if bench.until("", async || Ok((count().await? >= all).then_some(()))).await.is_err() {
        return broken(
            "3.2",
            format!("there are {all} devices, and only {} claims have one", count().await?),
        );
    }
    promised_once(bench).await?;
    let waiting = bench.claims().await?.into_iter().find(|claim| !is_allocated(claim));
    let Some(waiting) = waiting else {
        return broken("P1", format!("{} claims are allocated, and there are {all} devices", all + 1));
    };
    let waiting = text(&waiting["metadata"]["name"]).to_owned();
    says_why(bench, &waiting).await?;
    let ended = (0..=all).map(name).find(|name| *name != waiting).unwrap_or_default();
    bench.end(&ended).await?;
    bench.free(&ended).await?;
    let freed = bench.until("", async || {
        // An allocator that knew the Pod may have allocated for it once more. A controller of claims takes that back.
        if is_allocated(&bench.read(&ended).await?) {
            bench.free(&ended).await?;
        }
        Ok(Some(bench.read(&waiting).await?).filter(is_allocated))
    });
    if freed.await.is_err() {
        return broken("P5", format!("a device is free, and claim {waiting} does not get it"));
    }
    promised_once(bench).await
}

/// Claims of another allocator come first where the Pod names them first, and confine the Pod.
async fn order(bench: &Bench) -> Outcome {
    bench.claim("theirs", 1, &json!({"labels": {"dragoman.dev/allocator": "another"}})).await?;
    bench.claim("ours", 1, &json!({})).await?;
    let pod = bench.pod("order", &["theirs", "ours"], true).await?;
    untouched(bench, "ours", "3.3", "the claim before it, of another allocator, is not").await?;
    bench.allocate("theirs", NODES[1], 1, &pod).await?;
    let claim = allocated(bench, "ours", 1, &pod).await?;
    if node_of(&claim) != NODES[1] {
        return broken(
            "3.3",
            format!(
                "the other claim of the Pod confines it to {}, and this one is on {}",
                NODES[1],
                node_of(&claim)
            ),
        );
    }
    Ok(())
}

/// A claim whose finalizer was written before the allocator was killed.
async fn protected(bench: &Bench) -> Outcome {
    let finalizers = json!({"finalizers": ["resource.kubernetes.io/delete-protection"]});
    bench.claim("protected", 1, &finalizers).await?;
    let pod = bench.pod("protected", &["protected"], true).await?;
    allocated(bench, "protected", 1, &pod).await?;
    Ok(())
}

/// Others write the same claim all the time: nothing of theirs is lost.
async fn conflict(bench: &Bench) -> Outcome {
    bench.claim("busy", 1, &json!({"finalizers": [KEEP]})).await?;
    let pod = bench.pod("busy", &["busy"], true).await?;
    for number in 0..40 {
        bench.annotate("busy", &json!({(format!("{DOMAIN}/{number}")): "kept"})).await?;
    }
    let claim = allocated(bench, "busy", 1, &pod).await?;
    let annotations = &claim["metadata"]["annotations"];
    let is_kept = |number: usize| annotations[format!("{DOMAIN}/{number}")] == "kept";
    if !(0..40).all(is_kept) {
        return broken(
            "3.3",
            "annotations that others wrote meanwhile are lost: a write was not guarded".to_owned(),
        );
    }
    if !items(&claim["metadata"]["finalizers"]).any(|of| *of == KEEP) {
        return broken("3.3", "the finalizer of another owner is lost".to_owned());
    }
    Ok(())
}

/// A claim that is being deleted gets no devices.
async fn deleted(bench: &Bench) -> Outcome {
    // The API server takes no new finalizer for it: it has both.
    let finalizers = json!({"finalizers": [KEEP, "resource.kubernetes.io/delete-protection"]});
    bench.claim("deleted", 1, &finalizers).await?;
    bench.delete_claim("deleted").await?;
    bench.pod("deleted", &["deleted"], true).await?;
    untouched(bench, "deleted", "3.2", "it is being deleted").await
}

/// A Pod whose second claim no node can satisfy keeps nothing for the first.
async fn whole(bench: &Bench) -> Outcome {
    bench.claim("small", 1, &json!({})).await?;
    bench.claim("large", DEVICES + 1, &json!({})).await?;
    bench.pod("whole", &["small", "large"], true).await?;
    sentinel(bench, "sentinel").await?;
    // Longer than an allocator may keep a part.
    let free =
        bench.until("", async || Ok(Some(bench.read("small").await?).filter(|of| !is_allocated(of)))).await;
    if free.is_err() {
        return broken(
            "P7",
            "claim small keeps its devices, and no node has devices for all claims of its Pod".to_owned(),
        );
    }
    untouched(bench, "small", "3.3", "no node has devices for all claims of its Pod").await
}

/// Devices of a driver that others own, until it has no owner any more.
async fn owned(bench: &Bench) -> Outcome {
    if !bench.own().await? {
        return Err(Failure::NotPlayed("the cluster does not know DriverOwners: see `dragoman crdgen`"));
    }
    let outcome = left_alone(bench).await;
    // While the driver has an owner, the kit itself may take no allocation away.
    bench.disown().await?;
    let (claim, pod) = outcome?;
    allocated(bench, claim, 1, &pod).await?;
    Ok(())
}

/// A claim for devices of others has a verdict, and no devices. Returns its name and its Pod.
async fn left_alone(bench: &Bench) -> Result<(&'static str, Value), Failure> {
    // The watch of DriverOwners may be later than that of claims: the first claim may be allocated without knowledge of the owner.
    for name in ["owned-1", "owned-2"] {
        bench.claim(name, 1, &json!({})).await?;
        let pod = bench.pod(name, &[name], true).await?;
        let is_decided = |of: &Value| is_allocated(of) || of["metadata"]["annotations"][VERDICT].is_string();
        let decided = bench.until("", async || Ok(Some(bench.read(name).await?).filter(is_decided))).await;
        if !decided.is_ok_and(|claim| is_allocated(&claim)) {
            says_why(bench, name).await?;
            if !is_allocated(&bench.read(name).await?) {
                return Ok((name, pod));
            }
        }
    }
    broken("5", format!("claim owned-2 is allocated, and the DriverOwner {DOMAIN} names others"))
}
