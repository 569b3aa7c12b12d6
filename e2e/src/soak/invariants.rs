//! What must be true of every step of a run, and of its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dragoman_simcluster::{ApiServer, Chronicled, Write};
use serde_json::Value;

const PODS: &str = "pods";
const CLAIMS: &str = "resourceclaims.resource.k8s.io";
const ENTRY: &str = "resource.kubernetes.io/pod-claim-name";
const EXTENDED_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

/// What the run costs at most: the writes of a life, and of a fault.
const WRITES_OF_A_LIFE: usize = 10;
const WRITES_OF_A_FAULT: usize = 2;

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A Pod that may still use its claims: not at its end, and not on its way out without ever
/// having had a node.
fn may_run(pod: &Value) -> bool {
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let never = !pod["metadata"]["deletionTimestamp"].is_null() && pod["spec"]["nodeName"].is_null();
    !ended && !never
}

/// The first broken invariant of a run, in which the controller asked for so many changes.
pub(super) fn broken(server: &ApiServer, changes: usize, faults: usize) -> Option<String> {
    let (chronicle, writes) = (server.chronicled(), server.writes(0));
    let by_us = writes.iter().filter(|write| write.user == "dragoman" && write.verb == "delete");
    let by_us: BTreeSet<&str> = by_us.map(|write| &*write.uid).collect();
    at_every_step(&chronicle, &by_us)
        .or_else(|| at_the_end(server))
        .or_else(|| costs(&chronicle, &writes, changes, faults))
}

fn at_every_step(chronicle: &[Chronicled], deleted_by_us: &BTreeSet<&str>) -> Option<String> {
    let mut pods: BTreeMap<String, Arc<Value>> = BTreeMap::new();
    let mut claims: BTreeMap<String, Arc<Value>> = BTreeMap::new();
    for step in chronicle {
        let kept = match &*step.resource {
            PODS => &mut pods,
            CLAIMS => &mut claims,
            _ => continue,
        };
        let object = step.after.as_ref().or(step.before.as_ref())?;
        let uid = text(object, "uid").to_owned();
        match &step.after {
            Some(after) => kept.insert(uid, after.clone()),
            None => kept.remove(&uid),
        };
        let found = if step.resource == CLAIMS {
            doubled(step, &claims)
                .or_else(|| released(step, &pods))
                .or_else(|| taken_away(step, &pods, deleted_by_us))
        } else {
            mistaken(step, &claims)
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// A claim of the same Pod for the same entry is there already, and not on its way out.
fn doubled(step: &Chronicled, claims: &BTreeMap<String, Arc<Value>>) -> Option<String> {
    let (None, Some(claim)) = (&step.before, &step.after) else { return None };
    let owner = &claim["metadata"]["ownerReferences"][0]["uid"];
    let entry = &claim["metadata"]["annotations"][ENTRY];
    let mut same = claims.values().filter(|other| {
        text(other, "uid") != text(claim, "uid")
            && owner.is_string()
            && other["metadata"]["ownerReferences"][0]["uid"] == *owner
            && other["metadata"]["annotations"][ENTRY] == *entry
            && other["metadata"]["deletionTimestamp"].is_null()
    });
    let other = same.next()?;
    Some(format!(
        "doubled: {} and {} are both for {entry} of the Pod {owner}",
        text(other, "name"),
        text(claim, "name")
    ))
}

/// A Pod's status names a claim of another Pod of its name.
fn mistaken(step: &Chronicled, claims: &BTreeMap<String, Arc<Value>>) -> Option<String> {
    let pod = step.after.as_ref()?;
    let named = |claim: &&Arc<Value>| {
        let mut statuses = items(&pod["status"]["resourceClaimStatuses"]);
        statuses.any(|status| status["resourceClaimName"] == claim["metadata"]["name"])
    };
    let of_a_namesake = |claim: &&Arc<Value>| {
        let owner = &claim["metadata"]["ownerReferences"][0];
        owner["name"] == pod["metadata"]["name"] && owner["uid"] != pod["metadata"]["uid"]
    };
    let claim = claims.values().filter(named).find(of_a_namesake)?;
    Some(format!("mistaken: {} names {} of its predecessor", text(pod, "name"), text(claim, "name")))
}

/// A consumer lost its reservation while it may still run, or while nobody can know.
fn released(step: &Chronicled, pods: &BTreeMap<String, Arc<Value>>) -> Option<String> {
    let before = step.before.as_ref()?;
    let empty = Arc::new(Value::Null);
    let after = step.after.as_ref().unwrap_or(&empty);
    let consumers = |claim: &Value| -> BTreeSet<String> {
        items(&claim["status"]["reservedFor"])
            .filter_map(|consumer| consumer["uid"].as_str().map(str::to_owned))
            .collect()
    };
    let lost = consumers(before).difference(&consumers(after)).cloned().collect::<Vec<_>>();
    let foreign = items(&before["status"]["reservedFor"]).find(|consumer| {
        let lost = consumer["uid"].as_str().is_some_and(|uid| lost.iter().any(|one| one == uid));
        lost && consumer["resource"] != "pods"
    });
    if let Some(consumer) = foreign.filter(|_| step.after.is_some()) {
        return Some(format!("released: {} from under {consumer}", text(before, "name")));
    }
    let running = lost.iter().find(|uid| pods.get(*uid).is_some_and(|pod| may_run(pod)))?;
    Some(format!("released: {} from under the Pod {running}", text(before, "name")))
}

/// The controller deleted a claim that a Pod's status names and that may still run.
fn taken_away(
    step: &Chronicled,
    pods: &BTreeMap<String, Arc<Value>>,
    deleted_by_us: &BTreeSet<&str>,
) -> Option<String> {
    let before = step.before.as_ref()?;
    let marked = |claim: &Value| !claim["metadata"]["deletionTimestamp"].is_null();
    let ends = !marked(before) && step.after.as_ref().is_none_or(|after| marked(after));
    let name = text(before, "name");
    if !ends || !deleted_by_us.contains(text(before, "uid")) {
        return None;
    }
    let pod =
        pods.get(before["metadata"]["ownerReferences"][0]["uid"].as_str()?).filter(|pod| may_run(pod))?;
    let named = items(&pod["status"]["resourceClaimStatuses"])
        .any(|status| status["resourceClaimName"] == before["metadata"]["name"]);
    // The scheduler names its own only when it has reserved it.
    let schedulers = before["metadata"]["annotations"][EXTENDED_CLAIM] == "true";
    (named || schedulers).then(|| format!("taken away: {name} from the Pod {}", text(pod, "name")))
}

/// What is not as it should be once nothing happens any more.
pub(super) fn at_the_end(server: &ApiServer) -> Option<String> {
    let (pods, claims) = (server.all(PODS), server.all(CLAIMS));
    let pod = |uid: &str| pods.iter().find(|pod| text(pod, "uid") == uid);
    for claim in &claims {
        let (name, owner) = (text(claim, "name"), claim["metadata"]["ownerReferences"][0]["uid"].as_str());
        // What people make themselves has no owner.
        let theirs = owner.is_none() && name.starts_with("shared-");
        let needed = theirs || owner.and_then(pod).is_some_and(|pod| may_run(pod));
        if !needed {
            return Some(format!("leaked: {name} of a Pod that is gone or has ended"));
        }
        for consumer in items(&claim["status"]["reservedFor"]) {
            let uid = consumer["uid"].as_str().unwrap_or_default();
            if consumer["resource"] == "pods" && pod(uid).is_none_or(|pod| !may_run(pod)) {
                return Some(format!("leaked: {name} is reserved for {}, who has ended", consumer["name"]));
            }
        }
        let held = items(&claim["status"]["reservedFor"]).next().is_some();
        if !held && !claim["status"]["allocation"].is_null() {
            return Some(format!("leaked: {name} is allocated for nobody"));
        }
        if !claim["metadata"]["deletionTimestamp"].is_null() && !held {
            return Some(format!("stuck: {name} is on its way out and held by nobody"));
        }
    }
    let templates: Vec<_> = server.all("resourceclaimtemplates.resource.k8s.io");
    let by_name = |name: &str| claims.iter().any(|claim| text(claim, "name") == name);
    let own = |name: &str, pod: &Value| {
        claims.iter().any(|claim| {
            text(claim, "name") == name
                && claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
        })
    };
    for pod in pods.iter().filter(|pod| may_run(pod) && pod["metadata"]["deletionTimestamp"].is_null()) {
        let (mut complete, mut possible) = (true, pod["spec"]["schedulingGates"].is_null());
        let mut nodes = BTreeSet::new();
        for entry in items(&pod["spec"]["resourceClaims"]) {
            if let Some(name) = entry["resourceClaimName"].as_str() {
                possible &= by_name(name);
                // What others hold on two nodes cannot be had on one.
                nodes.extend(claims.iter().filter(|claim| text(claim, "name") == name).filter_map(node_of));
                possible &= nodes.len() < 2;
                continue;
            }
            let template = &entry["resourceClaimTemplateName"];
            if !templates.iter().any(|known| *template == *text(known, "name")) {
                possible = false;
                continue;
            }
            let mut statuses = items(&pod["status"]["resourceClaimStatuses"]);
            let named = statuses.find(|status| status["name"] == entry["name"]);
            complete &= named
                .is_some_and(|status| own(status["resourceClaimName"].as_str().unwrap_or_default(), pod));
        }
        if !complete {
            return Some(format!("incomplete: the status of {} does not name its claims", text(pod, "name")));
        }
        // Who was put on a node by hand gets reservations, but nobody allocates for him.
        let by_hand = pod["status"]["conditions"]
            .as_array()
            .is_none_or(|conditions| conditions.iter().all(|condition| condition["type"] != "PodScheduled"));
        let needs = items(&pod["spec"]["resourceClaims"]).next().is_some();
        let runs = pod["status"]["phase"] == "Running";
        if possible && !runs && !(by_hand && needs && pod["spec"]["nodeName"].is_string()) {
            return Some(format!("waits: {} could run and does not", text(pod, "name")));
        }
    }
    None
}

/// The node on which a claim is allocated.
fn node_of(claim: &Arc<Value>) -> Option<String> {
    let node = "/status/allocation/nodeSelector/nodeSelectorTerms/0/matchFields/0/values/0";
    claim.pointer(node)?.as_str().map(str::to_owned)
}

/// Writes about claims, of all parties, against what lives and faults may cost. What the
/// controller asks for counts also where it is refused or changes nothing.
fn costs(chronicle: &[Chronicled], writes: &[Write], ours: usize, faults: usize) -> Option<String> {
    let created = chronicle.iter().filter(|step| step.before.is_none() && step.resource == PODS);
    let extended = |pod: &Value| usize::from(pod["spec"]["containers"][0]["resources"]["limits"].is_object());
    let entries = |pod: &Value| items(&pod["spec"]["resourceClaims"]).count() + extended(pod);
    let pods: Vec<usize> = created.filter_map(|step| step.after.as_ref()).map(|pod| entries(pod)).collect();
    // A Pod without claims costs nothing but being bound.
    let (lives, without) = (pods.iter().sum::<usize>(), pods.iter().filter(|entries| **entries == 0).count());
    let theirs = writes.iter().filter(|write| {
        write.user == "system:kube-scheduler"
            && (write.resource.starts_with("resourceclaims") || write.resource == "pods/binding")
    });
    let theirs = theirs.count();
    let most = WRITES_OF_A_LIFE * lives + without + WRITES_OF_A_FAULT * faults;
    (ours + theirs > most)
        .then(|| format!("costs: {ours} + {theirs} writes for {lives} lives and {faults} faults"))
}

/// Pods that have come to a good end: without any a run says nothing.
pub(super) fn succeeded(server: &ApiServer) -> usize {
    let done = |pod: &Value| pod["status"]["phase"] == "Succeeded";
    let ends = |step: &&Chronicled| {
        step.resource == PODS
            && step.after.as_ref().is_some_and(|pod| done(pod))
            && step
                .before
                .as_ref()
                .is_some_and(|pod| !done(pod) && items(&pod["spec"]["resourceClaims"]).next().is_some())
    };
    server.chronicled().iter().filter(ends).count()
}
