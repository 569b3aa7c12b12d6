//! Figures from the history of a simulated cluster.

use std::collections::BTreeMap;

use dragoman_simcluster::{HistoryStep, Write};
use serde_json::Value;

use super::cluster::{CLAIMS, CPUS_OF_DEVICE, CPUS_OF_NEIGHBOUR, NAMESPACE};
use crate::simulated;

/// Pods that run on a node at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Pods with a device.
    pub(super) pods: usize,
    /// Pods of neighbours.
    pub(super) neighbours: usize,
}

impl Load {
    /// The cpus that it takes.
    pub(super) fn cpus(self) -> usize {
        self.pods * CPUS_OF_DEVICE + self.neighbours * CPUS_OF_NEIGHBOUR
    }

    /// Returns the number of Pods of each kind, in words.
    pub(super) fn words(self) -> String {
        let Self { pods, neighbours } = self;
        match neighbours {
            0 => format!("{pods} Pods"),
            1 => format!("{pods} Pods and a neighbour"),
            _ => format!("{pods} Pods and {neighbours} neighbours"),
        }
    }

    fn of_kind(&mut self, pod: &Value) -> &mut usize {
        if pod["spec"]["resourceClaims"].is_array() { &mut self.pods } else { &mut self.neighbours }
    }
}

/// Pods on each node when it was fullest, and the number of Pods with a device on all nodes when most ran.
#[derive(Debug, Default)]
pub(super) struct Fullest {
    now: BTreeMap<String, Load>,
    most: BTreeMap<String, Load>,
    at_once: usize,
}

impl Fullest {
    pub(super) fn of(history: &[HistoryStep]) -> Self {
        let mut fullest = Self::default();
        history.iter().for_each(|step| fullest.step(step));
        fullest
    }

    /// Goes on with the next step of the history.
    pub(super) fn step(&mut self, step: &HistoryStep) {
        if step.resource != "pods" {
            return;
        }
        if let Some((node, pod)) = step.before.as_deref().and_then(runs_on)
            && let Some(load) = self.now.get_mut(node)
        {
            let count = load.of_kind(pod);
            *count = count.saturating_sub(1);
        }
        if let Some((node, pod)) = step.after.as_deref().and_then(runs_on) {
            let load = self.now.entry(node.to_owned()).or_default();
            *load.of_kind(pod) += 1;
            let most = self.most.entry(node.to_owned()).or_default();
            if (load.cpus(), load.pods) > (most.cpus(), most.pods) {
                *most = *load;
            }
            self.at_once = self.at_once.max(self.now.values().map(|load| load.pods).sum());
        }
    }

    /// The most Pods with a device that ran at once, on all nodes together.
    pub(super) fn at_once(&self) -> usize {
        self.at_once
    }

    /// The nodes on which a Pod ran.
    pub(super) fn nodes(&self) -> usize {
        self.most.len()
    }

    /// The nodes on which Pods took more cpus than that at once.
    pub(super) fn nodes_with_more_than(&self, cpus: usize) -> usize {
        self.most.values().filter(|most| most.cpus() > cpus).count()
    }

    /// The node on which most Pods with a device run now, if there is one.
    pub(super) fn node_now(&self) -> Option<&str> {
        let fullest = self.now.iter().max_by_key(|(_, load)| (load.pods, load.neighbours));
        fullest.filter(|(_, load)| load.pods > 0).map(|(node, _)| node.as_str())
    }

    /// The fullest node, and what ran there at once.
    pub(super) fn node(&self) -> Option<(&str, Load)> {
        let fullest = self.most.iter().max_by_key(|(_, most)| (most.cpus(), most.pods));
        fullest.map(|(node, most)| (node.as_str(), *most))
    }
}

/// The node of a Pod that runs, and the Pod.
fn runs_on(pod: &Value) -> Option<(&str, &Value)> {
    let node = (pod["status"]["phase"] == "Running").then(|| pod["spec"]["nodeName"].as_str()).flatten();
    node.map(|node| (node, pod))
}

/// Returns the history in numbers.
pub(super) fn summary(history: &[HistoryStep], writes: &[Write]) -> String {
    let of_claims = || history.iter().filter(|step| step.resource == CLAIMS);
    let created = of_claims().filter(|step| step.before.is_none()).count();
    let deleted = of_claims().filter(|step| step.after.is_none()).count();
    let held = |claim: &Value| !claim["status"]["allocation"].is_null();
    let released = of_claims().filter(|step| match (&step.before, &step.after) {
        (Some(before), Some(after)) => held(before) && !held(after),
        _ => false,
    });
    [
        format!(
            "claims: {created} made from the template, {} released, {deleted} removed, {} left over",
            released.count(),
            created.saturating_sub(deleted)
        ),
        written(history, writes),
        latency("Pod created until its status names the claim", until_named(history)),
        latency("Pod done until its claim is gone", until_gone(history)),
    ]
    .join("\n   ")
}

/// The writes for a Pod's life, and apart from them those that tell people why a Pod waits: a Pod that finds room at once
/// has none of these.
fn written(history: &[HistoryStep], writes: &[Write]) -> String {
    let is_pod = |step: &&HistoryStep| {
        let new = step.after.as_deref().filter(|_| step.resource == "pods" && step.before.is_none());
        new.is_some_and(|pod| pod["metadata"]["namespace"] == NAMESPACE)
    };
    let pods = history.iter().filter(is_pod).count();
    let by = |user: &str, is: fn(&Write) -> bool| {
        writes.iter().filter(|write| write.user == user && is(write)).count()
    };
    let is_life = |write: &Write| write.namespace == NAMESPACE && write.resource != "events";
    let waits = history.iter().filter(|step| says_why_it_waits(step)).count();
    let operator = by(simulated::USER, is_life).saturating_sub(waits);
    let (allocator, scheduler) = (by(simulated::ALLOCATOR, is_life), by("system:kube-scheduler", is_life));
    let told = waits + writes.iter().filter(|write| write.resource == "events").count();
    // Tenths are enough, and whole numbers hold them.
    let per = |count: usize| {
        let tenths = count * 10 / pods.max(1);
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    format!(
        "API writes for a Pod's life: {} ({} by the operator, {} by the allocator, {} by kube-scheduler);\n   \
         besides {} to say why it waits, {} for the ledgers of nodes, and {} for the Pods that hold their room",
        per(operator + allocator + scheduler),
        per(operator),
        per(allocator),
        per(scheduler),
        per(told),
        per(by(simulated::USER, is_about_nodes)),
        per(by(simulated::USER, is_about_holders))
    )
}

fn is_about_nodes(write: &Write) -> bool {
    write.resource.starts_with("nodeallocatabledraclaimstates")
}

/// Dragoman's own namespace has nothing else that is written for a Pod.
fn is_about_holders(write: &Write) -> bool {
    write.namespace == "kube-system" && write.resource.starts_with("pods")
}

/// Whether a step changes what the condition of a Pod says about its wait.
fn says_why_it_waits(step: &HistoryStep) -> bool {
    let (Some(before), Some(after)) = (step.before.as_deref(), step.after.as_deref()) else { return false };
    let condition = |pod: &Value| {
        let all = pod["status"]["conditions"].as_array().into_iter().flatten();
        all.clone().find(|condition| condition["type"] == "dragoman.dev/ClaimsReady").cloned()
    };
    let says = condition(after);
    step.resource == "pods"
        && says.as_ref().is_some_and(|says| says["status"] == "False")
        && says != condition(before)
        && before["status"]["resourceClaimStatuses"] == after["status"]["resourceClaimStatuses"]
}

fn latency(what: &str, mut times: Vec<i128>) -> String {
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
    format!("{what}: p50 {} ms, p99 {} ms", at(50), at(99))
}

/// Milliseconds from the creation of each Pod until its status names a claim.
fn until_named(history: &[HistoryStep]) -> Vec<i128> {
    let is_named = |pod: &Value| pod["status"]["resourceClaimStatuses"].is_array();
    between(
        history,
        |step| step.resource == "pods" && step.before.is_none(),
        move |step| step.resource == "pods" && step.after.as_deref().is_some_and(is_named),
        |pod| pod["metadata"]["uid"].clone(),
        |pod| pod["metadata"]["uid"].clone(),
    )
}

/// Milliseconds from the end of each Pod until its claim is gone.
fn until_gone(history: &[HistoryStep]) -> Vec<i128> {
    let is_done = |pod: &Value| pod["status"]["phase"] == "Succeeded";
    between(
        history,
        move |step| step.resource == "pods" && step.after.as_deref().is_some_and(is_done),
        |step| step.resource == CLAIMS && step.after.is_none(),
        |pod| pod["metadata"]["uid"].clone(),
        |claim| claim["metadata"]["ownerReferences"][0]["uid"].clone(),
    )
}

/// Milliseconds from the first step of a kind to the first of another about the same thing.
fn between(
    history: &[HistoryStep],
    begins: impl Fn(&HistoryStep) -> bool,
    ends: impl Fn(&HistoryStep) -> bool,
    begun: impl Fn(&Value) -> Value,
    ended: impl Fn(&Value) -> Value,
) -> Vec<i128> {
    let mut since = BTreeMap::new();
    let mut times = Vec::new();
    for step in history {
        let Some(object) = step.after.as_deref().or(step.before.as_deref()) else { continue };
        if begins(step) {
            since.entry(begun(object).to_string()).or_insert(step.at);
        }
        if ends(step)
            && let Some(from) = since.remove(&ended(object).to_string())
        {
            times.push(step.at.duration_since(from).as_millis());
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn step(before: Option<Value>, after: Option<Value>) -> HistoryStep {
        let (before, after) = (before.map(Arc::new), after.map(Arc::new));
        HistoryStep { at: jiff::Timestamp::UNIX_EPOCH, resource: "pods".to_owned(), before, after }
    }

    fn pod(phase: &str, node: &str) -> Value {
        json!({"spec": {"nodeName": node, "resourceClaims": []}, "status": {"phase": phase}})
    }

    fn neighbour(phase: &str, node: &str) -> Value {
        json!({"spec": {"nodeName": node}, "status": {"phase": phase}})
    }

    #[test]
    fn the_fullest_moment_of_each_node_counts_and_not_the_sum_of_all() {
        let starts = |node| step(Some(pod("Pending", node)), Some(pod("Running", node)));
        let ends = |node| step(Some(pod("Running", node)), Some(pod("Succeeded", node)));
        let history = [starts("a"), starts("a"), ends("a"), starts("b"), ends("a"), ends("b"), starts("a")];
        let beside = step(Some(neighbour("Pending", "b")), Some(neighbour("Running", "b")));
        let mut fullest = Fullest::of(&history);
        assert_eq!(fullest.node(), Some(("a", Load { pods: 2, neighbours: 0 })));
        assert_eq!((fullest.at_once(), fullest.nodes()), (2, 2));
        let two = 2 * CPUS_OF_DEVICE;
        assert_eq!((fullest.nodes_with_more_than(two - 1), fullest.nodes_with_more_than(two)), (1, 0));
        [beside.clone(), starts("b"), beside].iter().for_each(|step| fullest.step(step));
        let both = Load { pods: 1, neighbours: 2 };
        assert_eq!(
            (fullest.node(), both.cpus()),
            (Some(("b", both)), CPUS_OF_DEVICE + 2 * CPUS_OF_NEIGHBOUR)
        );
        assert_eq!(fullest.at_once(), 2, "neighbours have no device");
    }

    #[test]
    fn a_write_that_says_why_a_pod_waits_is_told_from_one_that_its_life_needs() {
        let said = |names: Value, status: &str, message: &str| {
            json!({"status": {"resourceClaimStatuses": names, "conditions": [
                {"type": "dragoman.dev/ClaimsReady", "status": status, "message": message}]}})
        };
        let (none, named) = (Value::Null, json!([{"name": "gpu"}]));
        let (new, waits) = (json!({"status": {}}), said(named.clone(), "False", "no room"));
        assert!(says_why_it_waits(&step(Some(new.clone()), Some(said(none, "False", "no claim")))));
        assert!(!says_why_it_waits(&step(Some(new), Some(waits.clone()))));
        assert!(!says_why_it_waits(&step(Some(waits.clone()), Some(said(named.clone(), "True", "")))));
        assert!(!says_why_it_waits(&step(Some(waits.clone()), Some(waits.clone()))));
        assert!(says_why_it_waits(&step(Some(waits), Some(said(named, "False", "still none")))));
    }
}
