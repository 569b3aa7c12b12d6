//! P7: Pods that have a part of their devices and wait for the rest.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dragoman_crds::protocol::{ALLOCATION_GATES, ALLOCATOR};
use dragoman_simcluster::HistoryStep;
use jiff::Timestamp;
use serde_json::Value;

use crate::promises::{
    Broken, CLAIMS, Cluster, PODS, Promise, claim_name, is_gated, is_over, is_reserved_for, items, key,
};

/// Longest time for which a gated Pod may keep devices while it waits for others of the same allocator: the two seconds of the
/// protocol, and a hundred times that for a restart of the allocator in between and a machine that is busy.
const HELD: Duration = Duration::from_secs(202);

/// Pods that keep devices from others.
#[derive(Default)]
pub(crate) struct Holding {
    /// The Pods that do now, by uid, with their names: since when.
    partial: BTreeMap<String, (String, Timestamp)>,
    /// The durations of those that no longer do.
    held: Vec<Duration>,
}

impl Holding {
    /// Takes in a step that the cluster has taken in.
    pub(crate) fn take(&mut self, step: &HistoryStep, cluster: &Cluster) -> Vec<Broken> {
        let Some(object) = step.after.as_ref().or(step.before.as_ref()) else { return Vec::new() };
        let pods: Vec<(&Arc<Value>, bool)> = match &*step.resource {
            PODS => vec![(object, step.after.is_some())],
            CLAIMS => {
                let (namespace, name) =
                    (&object["metadata"]["namespace"], object["metadata"]["name"].as_str());
                let names = |pod: &Value| {
                    pod["metadata"]["namespace"] == *namespace
                        && items(&pod["spec"]["resourceClaims"]).any(|entry| claim_name(pod, entry) == name)
                };
                cluster.pods().filter(|pod| is_gated(pod) && names(pod)).map(|pod| (pod, true)).collect()
            }
            _ => Vec::new(),
        };
        pods.into_iter().filter_map(|(pod, is_there)| self.look(step.at, pod, is_there, cluster)).collect()
    }

    fn look(&mut self, at: Timestamp, pod: &Value, is_there: bool, cluster: &Cluster) -> Option<Broken> {
        let uid = pod["metadata"]["uid"].to_string();
        if is_there && is_gated(pod) && !is_over(pod) && has_a_part(pod, cluster) {
            self.partial.entry(uid).or_insert_with(|| (key(pod), at));
            return None;
        }
        let (name, since) = self.partial.remove(&uid)?;
        let held = at.duration_since(since).unsigned_abs();
        self.held.push(held);
        too_long(&name, held)
    }

    /// The Pods that keep devices for too long at the end of a record.
    pub(crate) fn end(&mut self, at: Timestamp) -> Vec<Broken> {
        let partial = std::mem::take(&mut self.partial).into_values();
        partial.filter_map(|(name, since)| too_long(&name, at.duration_since(since).unsigned_abs())).collect()
    }
}

/// Whether a claim has devices for this Pod alone while another claim of the same allocator has none.
fn has_a_part(pod: &Value, cluster: &Cluster) -> bool {
    let claims: Vec<_> = cluster.claims_of(pod).flatten().collect();
    let allocator = |claim: &Value| claim["metadata"]["labels"][ALLOCATOR].clone();
    let has_devices = |claim: &Value| !claim["status"]["allocation"].is_null();
    let is_kept = |claim: &Value| {
        has_devices(claim)
            && is_reserved_for(claim, pod)
            && items(&claim["status"]["reservedFor"]).count() == 1
    };
    let is_held_back = |claim: &Value| {
        let annotations = claim["metadata"]["annotations"].as_object().into_iter().flatten();
        annotations.map(|(key, _)| key).any(|key| key.starts_with(ALLOCATION_GATES))
    };
    let lacking = claims.iter().filter(|claim| !has_devices(claim) && !is_held_back(claim));
    let lacking: Vec<_> = lacking.map(|claim| allocator(claim)).collect();
    claims.iter().any(|claim| is_kept(claim) && lacking.contains(&allocator(claim)))
}

fn too_long(name: &str, held: Duration) -> Option<Broken> {
    let why = || format!("{name} kept a part of its devices for {held:?} behind its gate");
    (held > HELD).then(|| (Promise::Yielded, why()))
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self.held.iter().max().map_or(0.0, Duration::as_secs_f64);
        write!(f, "a part of the devices: {} Pods, longest {longest:.1} s", self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use dragoman_crds::protocol::GATE;
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;
    use crate::promises::Cpus;

    fn pod(gated: bool) -> Value {
        let gates = if gated { json!([{"name": GATE}]) } else { json!([]) };
        let entry = |claim: &str| json!({"name": claim, "resourceClaimName": claim});
        json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u"},
            "spec": {"schedulingGates": gates, "resourceClaims": [entry("a"), entry("b")]}})
    }

    fn claim(name: &str, allocator: &str, consumers: &[&str]) -> Value {
        let allocation = if consumers.is_empty() { Value::Null } else { json!({"devices": {}}) };
        let consumers: Vec<_> = consumers.iter().map(|uid| json!({"uid": uid})).collect();
        json!({"metadata": {"namespace": "ns", "name": name, "labels": {ALLOCATOR: allocator}},
            "status": {"allocation": allocation, "reservedFor": consumers}})
    }

    /// Plays states of objects, each with its second; the end comes 300 seconds after the start.
    fn played(states: &[(i64, Value)]) -> (usize, Vec<Duration>) {
        let at = |second| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second);
        let (mut holding, mut broken) = (Holding::default(), Vec::new());
        let mut cluster = Cluster::new(Cpus { node: 1, device: 1, driver: "d" });
        for (second, state) in states {
            let resource = if state["spec"].is_null() { CLAIMS } else { PODS }.to_owned();
            let step =
                HistoryStep { at: at(*second), resource, before: None, after: Some(Arc::new(state.clone())) };
            cluster.take(&step);
            broken.extend(holding.take(&step, &cluster));
        }
        broken.extend(holding.end(at(300)));
        (broken.len(), holding.held)
    }

    #[test]
    fn a_pod_that_keeps_a_part_of_its_devices_is_found() {
        let (has, lacks) = (claim("a", "x", &["u"]), claim("b", "x", &[]));
        let start = |has: Value, lacks: Value| vec![(0, pod(true)), (0, has), (0, lacks)];
        let with = |mut before: Vec<(i64, Value)>, second: i64, state: Value| {
            before.push((second, state));
            played(&before)
        };
        assert_eq!(played(&start(has.clone(), lacks.clone())), (1, vec![]), "to the end");
        let both = claim("b", "x", &["u"]);
        let late = Duration::from_secs(210);
        assert_eq!(with(start(has.clone(), lacks.clone()), 210, both.clone()), (1, vec![late]));
        assert_eq!(with(start(has.clone(), lacks.clone()), 2, both), (0, vec![Duration::from_secs(2)]));
        let given_back = claim("a", "x", &[]);
        assert_eq!(with(start(has.clone(), lacks.clone()), 2, given_back), (0, vec![Duration::from_secs(2)]));
        assert_eq!(
            played(&start(claim("a", "x", &["u", "v"]), lacks.clone())),
            (0, vec![]),
            "for others, too"
        );
        assert_eq!(played(&start(has, claim("b", "y", &[]))), (0, vec![]), "of another allocator");
    }
}
