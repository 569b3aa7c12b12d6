//! The condition `dragoman.dev/ClaimsReady` of Pods that wait, and for how long it stands.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use dragoman_crds::protocol::CLAIMS_READY;
use dragoman_simcluster::HistoryStep;
use jiff::Timestamp;
use serde_json::Value;

use crate::promises::{Broken, Promise, is_bound, is_gated, is_over, items, key};

/// Longest time that a gate may be closed without a reason: the minute after which the operator writes a
/// reason where another party is at work, and ten times the fifteen seconds that another process takes after a kill, with its
/// lists and a crowd of Pods before this one. With a load of thirty on two cores it was 20 s.
pub(crate) const SILENT: Duration = Duration::from_secs(210);

/// Pods that wait.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Pods behind a gate that have not said why, by uid, with their names: since when.
    silent: BTreeMap<String, (String, Timestamp)>,
    /// Released Pods that say `NotBound`, by uid: since when.
    not_bound: BTreeMap<String, Timestamp>,
    /// Durations for which gates were closed without a reason; gates that were opened meanwhile count.
    silences: Vec<Duration>,
    /// Durations for which Pods said `NotBound`.
    unbound: Vec<Duration>,
}

impl Waiting {
    /// Takes in a change of a Pod.
    pub(crate) fn take(&mut self, step: &HistoryStep) -> Option<Broken> {
        let pod = step.after.as_deref().or(step.before.as_deref())?;
        let uid = pod["metadata"]["uid"].to_string();
        let (is_there, reason) = (step.after.is_some() && !is_over(pod), reason(pod));
        let behind = |since: Timestamp| step.at.duration_since(since).unsigned_abs();
        if is_there && !is_bound(pod) && reason == Some("NotBound") {
            self.not_bound.entry(uid.clone()).or_insert(step.at);
        } else if let Some(since) = self.not_bound.remove(&uid) {
            self.unbound.push(behind(since));
        }
        if step.before.is_none() && is_gated(pod) {
            self.silent.insert(uid.clone(), (key(pod), step.at));
        }
        if is_there && is_gated(pod) && reason.is_none() {
            return None;
        }
        let (name, since) = self.silent.remove(&uid)?;
        self.silences.push(behind(since));
        too_long(&name, behind(since))
    }

    /// The Pods that still have not said why they wait, at the end of a record.
    pub(crate) fn end(&mut self, at: Timestamp) -> Vec<Broken> {
        let silent = std::mem::take(&mut self.silent).into_values();
        silent.filter_map(|(name, since)| too_long(&name, at.duration_since(since).unsigned_abs())).collect()
    }
}

fn too_long(name: &str, silence: Duration) -> Option<Broken> {
    let why = || format!("the gate of {name} was closed for {silence:?} without a reason");
    (silence > SILENT).then(|| (Promise::Visible, why()))
}

/// The reason of the condition of the gate.
pub(crate) fn reason(pod: &Value) -> Option<&str> {
    let mut conditions = items(&pod["status"]["conditions"]);
    conditions.find(|condition| condition["type"] == CLAIMS_READY)?["reason"].as_str()
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = |of: &[Duration]| of.iter().max().map_or(0.0, Duration::as_secs_f64);
        let mut unbound = self.unbound.clone();
        unbound.sort();
        let median = unbound.get(unbound.len() / 2).map_or(0.0, Duration::as_secs_f64);
        write!(
            f,
            "a gate without a reason: longest {:.1} s; NotBound: {} Pods, median {median:.1} s, longest {:.1} s",
            longest(&self.silences),
            unbound.len(),
            longest(&unbound),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dragoman_crds::protocol::GATE;
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;

    fn pod(gated: bool, reason: Option<&str>, node: Option<&str>) -> Value {
        let gates = if gated { json!([{"name": GATE}]) } else { json!([]) };
        let conditions: Vec<Value> =
            reason.map(|reason| json!({"type": CLAIMS_READY, "reason": reason})).into_iter().collect();
        json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u"},
            "spec": {"schedulingGates": gates, "nodeName": node}, "status": {"conditions": conditions}})
    }

    /// Plays the states of a Pod, each with its second.
    fn played(states: &[(i64, Value)]) -> (Waiting, Vec<Broken>) {
        let (mut waiting, mut broken, mut before) = (Waiting::default(), Vec::new(), None);
        for (second, state) in states {
            let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(*second);
            let after = Arc::new(state.clone());
            let resource = crate::promises::PODS.to_owned();
            let step = HistoryStep { at, resource, before: before.take(), after: Some(Arc::clone(&after)) };
            broken.extend(waiting.take(&step));
            before = Some(after);
        }
        (waiting, broken)
    }

    #[test]
    fn a_gate_that_is_closed_without_a_reason_is_found() {
        let gated = || pod(true, None, None);
        let late = played(&[(0, gated()), (211, pod(true, Some("NotAllocated"), None))]).1;
        assert_eq!(late.iter().map(|(promise, _)| *promise).collect::<Vec<_>>(), [Promise::Visible]);
        assert!(
            played(&[(0, gated()), (2, pod(true, Some("NotAllocated"), None)), (300, gated())]).1.is_empty()
        );
        assert!(
            played(&[(0, gated()), (1, pod(false, None, None)), (300, pod(false, None, Some("n")))])
                .1
                .is_empty()
        );
        let (mut waiting, broken) = played(&[(0, gated())]);
        assert!(broken.is_empty());
        let at = |second| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second);
        assert_eq!(waiting.end(at(220)).len(), 1);
    }

    #[test]
    fn the_time_of_a_pod_that_is_not_bound_is_counted() {
        let not_bound = || pod(false, Some("NotBound"), None);
        let (waiting, _) =
            played(&[(0, not_bound()), (5, not_bound()), (7, pod(false, Some("Bound"), Some("n")))]);
        assert_eq!(waiting.unbound, [Duration::from_secs(7)]);
    }
}
