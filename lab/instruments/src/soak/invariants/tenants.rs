//! The invariants of runs with a hostile tenant: it costs a bounded number of requests, and the others
//! nothing.

use std::collections::{BTreeMap, VecDeque};

use dragoman_simcluster::HistoryStep;
use serde_json::Value;

use super::{PODS, TEMPLATES, claim_name, is_deleting, is_garbled, items, may_run, text};
use crate::soak::actor::TENANT;

/// The longest that a Pod of another namespace waits for its claims, in seconds.
const SERVED_WITHIN: f64 = 2.0;
/// The most writes about the tenant's objects in a minute, Events left out. Those that a fault refused
/// are left out, too: they are repeated with back-off. A place that is freed, or a
/// Pod that comes, costs two tries; a level timer and a probe of the quota cost some more.
const MOST_A_MINUTE: usize = 120;

/// Checks the lines of a history: `TIME NUMBER METHOD PATH …`.
pub(in crate::soak) fn stormy(history: &[String]) -> Option<String> {
    let mut minute: VecDeque<jiff::Timestamp> = VecDeque::new();
    for line in history {
        let mut words = line.split(' ');
        let (Some(at), Some(method), Some(path)) = (words.next(), words.nth(1), words.next()) else {
            continue;
        };
        let about = path.contains(&format!("/namespaces/{TENANT}/")) && !path.contains("/events");
        let is_refused = ["-> 500", "-> 0", "-> 429"].iter().any(|code| line.contains(code));
        if method == "GET" || !about || is_refused {
            continue;
        }
        let Ok(at) = at.parse::<jiff::Timestamp>() else { return Some(format!("stormy: no time in {line}")) };
        minute.push_back(at);
        while minute.front().is_some_and(|first| at.as_second() - first.as_second() >= 60) {
            minute.pop_front();
        }
        if minute.len() > MOST_A_MINUTE {
            return Some(format!(
                "stormy: more than {MOST_A_MINUTE} writes about the tenant in the minute before {at}"
            ));
        }
    }
    None
}

/// Checks in a run without faults that every Pod whose templates were there got its claims at once.
pub(super) fn starved(chronicle: &[HistoryStep]) -> Option<String> {
    let mut templates: Vec<String> = Vec::new();
    let mut waiting: BTreeMap<String, jiff::Timestamp> = BTreeMap::new();
    for step in chronicle {
        let Some(after) = &step.after else {
            waiting.remove(text(step.before.as_ref()?, "uid"));
            continue;
        };
        if step.resource == TEMPLATES && step.before.is_none() {
            templates.push(text(after, "name").to_owned());
        }
        let late =
            waiting.iter().find(|(_, since)| step.at.duration_since(**since).as_secs_f64() > SERVED_WITHIN);
        if let Some((uid, since)) = late {
            return Some(format!("starved: the Pod {uid} created at {since} has no claims at {}", step.at));
        }
        if step.resource != PODS {
            continue;
        }
        let uid = text(after, "uid").to_owned();
        if step.before.is_none() && can_be_served(after, &templates) {
            waiting.insert(uid.clone(), step.at);
        }
        let named = items(&after["spec"]["resourceClaims"]).all(|entry| claim_name(after, entry).is_some());
        if named || is_deleting(after) || is_garbled(after) || !may_run(after) {
            waiting.remove(&uid);
        }
    }
    None
}

/// Whether nothing but the controller stands in the way of a new Pod's claims.
fn can_be_served(pod: &Value, templates: &[String]) -> bool {
    let there = |entry: &Value| {
        entry["resourceClaimTemplateName"].as_str().is_none_or(|name| templates.iter().any(|one| one == name))
    };
    pod["spec"]["schedulingGroup"].is_null() && items(&pod["spec"]["resourceClaims"]).all(there)
}
