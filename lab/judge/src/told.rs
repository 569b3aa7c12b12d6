//! P6: Events about Pods that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dragoman_simcluster::HistoryStep;
use jiff::Timestamp;

use crate::promises::{Broken, EVENTS, PODS, Promise, is_bound, is_over, key};
use crate::waiting::{SILENT, reason};

/// The reasons of the condition that an Event says, too.
const SAID: [&str; 2] = ["AttributeMissing", "NotBound"];

/// A Pod, and a reason.
type Wait = (String, String);

/// Which waits an Event tells of.
#[derive(Default)]
pub(crate) struct Told {
    /// The Pods that wait now, with their names: since when.
    waits: BTreeMap<Wait, (String, Timestamp)>,
    events: BTreeSet<Wait>,
    /// The waits that are over, and those of them that an Event told of.
    over: usize,
    with_event: usize,
}

impl Told {
    /// Takes in a change of a Pod or an Event.
    pub(crate) fn take(&mut self, step: &HistoryStep) -> Vec<Broken> {
        let Some(object) = step.after.as_deref().or(step.before.as_deref()) else { return Vec::new() };
        if step.resource == EVENTS {
            let reason = object["reason"].as_str().unwrap_or_default().to_owned();
            self.events.insert((object["regarding"]["uid"].to_string(), reason));
        }
        if step.resource != PODS {
            return Vec::new();
        }
        let uid = object["metadata"]["uid"].to_string();
        let waits = step.after.is_some() && !is_over(object) && !is_bound(object);
        let now = reason(object).filter(|reason| waits && SAID.contains(reason));
        let others: Vec<Wait> =
            self.waits.keys().filter(|(of, why)| *of == uid && Some(&**why) != now).cloned().collect();
        let broken = others.into_iter().filter_map(|wait| self.settle(&wait, step.at)).collect();
        if let Some(now) = now {
            self.waits.entry((uid, now.to_owned())).or_insert_with(|| (key(object), step.at));
        }
        broken
    }

    fn settle(&mut self, wait: &Wait, at: Timestamp) -> Option<Broken> {
        let (name, since) = self.waits.remove(wait)?;
        let (waited, is_told) = (at.duration_since(since).unsigned_abs(), self.events.contains(wait));
        self.over += 1;
        self.with_event += usize::from(is_told);
        let why = || format!("{name} says {} for {waited:?}, and no Event does", wait.1);
        (waited > SILENT && !is_told).then(|| (Promise::Visible, why()))
    }

    /// The Pods of which no Event has told at the end of a record.
    pub(crate) fn end(&mut self, at: Timestamp) -> Vec<Broken> {
        let waits: Vec<Wait> = self.waits.keys().cloned().collect();
        waits.into_iter().filter_map(|wait| self.settle(&wait, at)).collect()
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Events of {} of {} waits that have one", self.with_event, self.over)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dragoman_crds::protocol::CLAIMS_READY;
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;

    /// Plays a Pod that says a reason, an Event with another one, and the end; returns the number of breaches.
    fn played(says: &str, event: Option<&str>, end: i64) -> usize {
        let at = |second| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second);
        let pod = json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u"},
            "status": {"conditions": [{"type": CLAIMS_READY, "reason": says}]}});
        let event = event.map(|reason| json!({"regarding": {"uid": "u"}, "reason": reason}));
        let (mut told, mut broken) = (Told::default(), Vec::new());
        for (resource, object) in [(PODS, Some(pod)), (EVENTS, event)] {
            let step = HistoryStep {
                at: at(0),
                resource: resource.to_owned(),
                before: None,
                after: object.map(Arc::new),
            };
            broken.extend(told.take(&step));
        }
        broken.extend(told.end(at(end)));
        broken.len()
    }

    #[test]
    fn a_wait_of_which_no_event_tells_is_found() {
        assert_eq!(played("NotBound", None, 211), 1);
        assert_eq!(played("NotBound", Some("NoNode"), 211), 1);
        assert_eq!(played("NotBound", Some("NotBound"), 211), 0);
        assert_eq!(played("NotBound", None, 200), 0);
        assert_eq!(played("NotAllocated", None, 211), 0);
    }
}
