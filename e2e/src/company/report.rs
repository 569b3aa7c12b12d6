//! The figures of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use dragoman_simcluster::HistoryStep;
use jiff::Timestamp;

use crate::promises::gated::{Broken, CLAIMS, Cluster, PODS, Promise, is_bound, is_gated, key};

/// What a run has shown.
#[derive(Default)]
pub(crate) struct Report {
    /// The promises that were broken.
    pub(crate) broken: Vec<Broken>,
    /// How many Pods were bound.
    pub(crate) bound: usize,
    /// How often a Pod that was released and not bound lost its allocation: kube-scheduler moves it.
    pub(crate) moved: usize,
    /// From the release of a gated Pod until it was bound.
    pub(crate) waits: Vec<Duration>,
    /// When gated Pods that are not bound yet were released, by uid.
    released: BTreeMap<String, Timestamp>,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl Report {
    /// Takes in a step that the cluster has taken in.
    pub(super) fn take(&mut self, step: &HistoryStep, cluster: &Cluster) {
        let Some(after) = &step.after else { return };
        let before = step.before.as_deref();
        if step.resource == CLAIMS {
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
            "moved {}; {} Pods bound in {lasted:.0} s; bound after release: median {:.2} s, 99 of 100 {:.2} s, longest {:.2} s",
            self.moved,
            self.bound,
            seconds(of(50)),
            seconds(of(99)),
            seconds(waits.last()),
        )
    }
}
