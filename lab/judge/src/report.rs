//! The figures of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use dragoman_simcluster::HistoryStep;
use jiff::Timestamp;
use serde_json::Value;

use crate::holding::Holding;
use crate::promises::{Broken, CLAIMS, Cluster, PODS, Promise, is_bound, is_gated, items, key};
use crate::record::RULES;
use crate::told::Told;
use crate::waiting::Waiting;

/// Time after the creation of a DeviceTaintRule in which a device that it taints may be given: longer than
/// any watch of a process that runs is behind, and shorter than the rule of a run stands.
const BEHIND: Duration = Duration::from_secs(5);

/// Figures of a run.
#[derive(Default)]
pub struct Report {
    /// The promises that were broken.
    pub broken: Vec<Broken>,
    /// Number of Pods that were bound.
    pub bound: usize,
    /// Number of times that a released Pod lost its allocation before it was bound: kube-scheduler moves the
    /// Pod.
    pub moved: usize,
    /// From the release of a gated Pod until it was bound.
    pub waits: Vec<Duration>,
    /// Times between a DeviceTaintRule and the allocation of a device that it taints.
    tainted: Vec<Duration>,
    /// Since when each `DeviceTaintRule` is there, with driver and pool, by name.
    rules: BTreeMap<String, (Timestamp, [Value; 2])>,
    /// When gated Pods that are not bound yet were released, by uid.
    released: BTreeMap<String, Timestamp>,
    waiting: Waiting,
    told: Told,
    holding: Holding,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl Report {
    /// Takes in a step that the cluster has taken in.
    pub(crate) fn take(&mut self, step: &HistoryStep, cluster: &Cluster) {
        self.broken.extend(self.told.take(step));
        self.broken.extend(self.holding.take(step, cluster));
        if step.resource == RULES {
            self.take_rule(step);
        } else if step.resource == PODS {
            self.broken.extend(self.waiting.take(step));
        }
        let Some(after) = &step.after else { return };
        let before = step.before.as_deref();
        if step.resource == CLAIMS {
            if before.is_none_or(|claim| claim["status"]["allocation"].is_null()) {
                self.given(step.at, after);
            }
            let is_lost = before.is_some_and(|claim| !claim["status"]["allocation"].is_null())
                && after["status"]["allocation"].is_null();
            let waits = cluster.pods().any(|pod| {
                self.released.contains_key(&pod["metadata"]["uid"].to_string())
                    && !is_bound(pod)
                    && cluster.claims_of(pod).flatten().any(|claim| key(claim) == key(after))
            });
            self.moved += usize::from(is_lost && waits);
        }
        if step.resource != PODS {
            return;
        }
        let uid = after["metadata"]["uid"].to_string();
        if before.is_some_and(is_gated) && !is_gated(after) {
            self.released.insert(uid.clone(), step.at);
        }
        if before.is_some_and(|pod| !is_bound(pod)) && is_bound(after) {
            self.bound += 1;
            self.first.get_or_insert(step.at);
            self.last = Some(step.at);
            if let Some(at) = self.released.remove(&uid) {
                self.waits.push(step.at.duration_since(at).unsigned_abs());
            }
        }
    }

    /// Takes in the end of the record.
    pub(crate) fn end(&mut self, at: Timestamp) {
        self.broken.extend(self.waiting.end(at));
        self.broken.extend(self.told.end(at));
        self.broken.extend(self.holding.end(at));
    }

    fn take_rule(&mut self, step: &HistoryStep) {
        if let (None, Some(rule)) = (&step.before, &step.after) {
            let of = ["driver", "pool"].map(|field| rule["spec"]["deviceSelector"][field].clone());
            self.rules.insert(key(rule), (step.at, of));
        } else if let (Some(rule), None) = (&step.before, &step.after) {
            self.rules.remove(&key(rule));
        }
    }

    /// Takes in a claim that was allocated.
    fn given(&mut self, at: Timestamp, claim: &Value) {
        for result in items(&claim["status"]["allocation"]["devices"]["results"]) {
            let rules = self.rules.values();
            let known =
                rules.filter(|(_, [driver, pool])| result["driver"] == *driver && result["pool"] == *pool);
            let Some(behind) = known.map(|(since, _)| at.duration_since(*since).unsigned_abs()).max() else {
                continue;
            };
            self.tainted.push(behind);
            if behind > BEHIND {
                let why =
                    format!("{} is given to {} {behind:?} after its taint", result["device"], key(claim));
                self.broken.push((Promise::Untainted, why));
            }
        }
    }

    fn count(&self, promise: Promise) -> usize {
        self.broken.iter().filter(|(of, _)| *of == promise).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for promise in Promise::ALL {
            write!(f, "{} {}, ", promise.word(), self.count(promise))?;
        }
        let mut waits = self.waits.clone();
        waits.sort();
        let of = |part: usize| waits.get((waits.len() * part / 100).min(waits.len().saturating_sub(1)));
        let seconds = |wait: Option<&Duration>| wait.map_or(0.0, Duration::as_secs_f64);
        let lasted =
            self.first.zip(self.last).map_or(0.0, |(first, last)| last.duration_since(first).as_secs_f64());
        write!(
            f,
            "moved {}; tainted devices given {}, latest {:.2} s after the rule; {} Pods bound in {lasted:.0} s; bound after release: median {:.2} s, 99 of 100 {:.2} s, longest {:.2} s; {}; {}; {}",
            self.moved,
            self.tainted.len(),
            seconds(self.tainted.iter().max()),
            self.bound,
            seconds(of(50)),
            seconds(of(99)),
            seconds(waits.last()),
            self.waiting,
            self.told,
            self.holding,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;
    use crate::promises::Cpus;

    /// Returns the report of a claim that is given a device of a pool so many seconds after a rule for pool
    /// `p`.
    fn given(pool: &str, seconds: i64) -> Report {
        let rule =
            json!({"metadata": {"name": "r"}, "spec": {"deviceSelector": {"driver": "d", "pool": "p"}}});
        let results = json!([{"driver": "d", "pool": pool, "device": "gpu"}]);
        let claim = json!({"metadata": {"namespace": "ns", "name": "c"},
            "status": {"allocation": {"devices": {"results": results}}}});
        let cluster = Cluster::new(Cpus { node: 1, device: 1, driver: "d" });
        let mut report = Report::default();
        for (resource, object, after) in [(RULES, rule, 0), (CLAIMS, claim, seconds)] {
            let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(after);
            let resource = resource.to_owned();
            report.take(&HistoryStep { at, resource, before: None, after: Some(Arc::new(object)) }, &cluster);
        }
        report
    }

    #[test]
    fn a_tainted_device_that_is_given_is_found() {
        assert_eq!(given("p", 6).count(Promise::Untainted), 1);
        assert_eq!(given("p", 1).count(Promise::Untainted), 0);
        assert_eq!(given("p", 1).tainted, [Duration::from_secs(1)]);
        assert_eq!(given("other", 6).count(Promise::Untainted), 0);
    }
}
