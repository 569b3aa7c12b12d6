//! The invariants of single steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dragoman_simcluster::{HistoryStep, Promises};
use serde_json::Value;

use super::{
    CLAIMS, ENTRY, EXTENDED_CLAIM, GROUPS, PODS, TEMPLATES, consumers, is_allocated, is_deleting, is_foreign,
    items, may_run, owner_of, template_of, text,
};
use crate::soak::workload::{Kind, LINGERS};

const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

type Objects = BTreeMap<String, Arc<Value>>;

/// The objects after a step, by uid.
#[derive(Default)]
struct There<'a> {
    pods: Objects,
    groups: Objects,
    claims: Objects,
    templates: Objects,
    /// The times at which objects were first seen terminating.
    ending: BTreeMap<String, jiff::Timestamp>,
    /// Uids of claims that the controller deleted.
    deleted_by_us: BTreeSet<&'a str>,
}

/// The first invariant that a step broke.
pub(super) fn broken(
    chronicle: &[HistoryStep],
    kind: Kind,
    deleted_by_us: &BTreeSet<&str>,
) -> Option<String> {
    let mut there = There { deleted_by_us: deleted_by_us.clone(), ..There::default() };
    let mut promises = Promises::default();
    for step in chronicle {
        promises.step(step);
        if let Some(why) = promises.broken() {
            return Some(why);
        }
        let kept = match &*step.resource {
            PODS => &mut there.pods,
            CLAIMS => &mut there.claims,
            GROUPS => &mut there.groups,
            TEMPLATES => &mut there.templates,
            _ => continue,
        };
        let object = step.after.as_ref().or(step.before.as_ref())?;
        let uid = text(object, "uid").to_owned();
        if is_deleting(object) {
            there.ending.entry(uid.clone()).or_insert(step.at);
        }
        match &step.after {
            Some(after) => kept.insert(uid, after.clone()),
            None => kept.remove(&uid),
        };
        let found = match &*step.resource {
            CLAIMS => there.doubled(step).or_else(|| there.unlike(step)).or_else(|| {
                let before = step.before.as_deref()?;
                there
                    .released(before, step, kind)
                    .or_else(|| there.taken_away(before, step))
                    .or_else(|| unprotected(before, step))
            }),
            PODS => there.mistaken(step).or_else(|| there.adopted(step)),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

impl There<'_> {
    /// Checks that a new claim is the only one of its owner for its entry, except for terminating ones.
    fn doubled(&self, step: &HistoryStep) -> Option<String> {
        let (None, Some(claim)) = (&step.before, &step.after) else { return None };
        let owner = owner_of(claim)?;
        let entry = &claim["metadata"]["annotations"][ENTRY];
        let mut same = self.claims.values().filter(|other| {
            text(other, "uid") != text(claim, "uid")
                && owner_of(other) == Some(owner)
                && other["metadata"]["annotations"][ENTRY] == *entry
                && !is_deleting(other)
        });
        let (one, other) = (text(same.next()?, "name"), text(claim, "name"));
        Some(format!("doubled: {one} and {other} are both for {entry} of {owner}"))
    }

    /// Checks that a new claim has the spec, the labels and the annotations of its template.
    fn unlike(&self, step: &HistoryStep) -> Option<String> {
        let (None, Some(claim)) = (&step.before, &step.after) else { return None };
        let owner = owner_of(claim)?;
        let owner = self.pods.get(owner).or_else(|| self.groups.get(owner))?;
        let template = template_of(owner, &claim["metadata"]["annotations"][ENTRY])?;
        let template = &self.templates.values().find(|one| text(one, "name") == template)?["spec"];
        let carries = |field: &str| {
            let mut wanted = template["metadata"][field].as_object().into_iter().flatten();
            wanted.all(|(name, value)| claim["metadata"][field][name] == *value)
        };
        let same = template["spec"] == claim["spec"] && carries("labels") && carries("annotations");
        (!same).then(|| format!("unlike: {} is not what its template says", text(claim, "name")))
    }

    /// Checks that a Pod's status names no claim of another Pod with the same name.
    fn mistaken(&self, step: &HistoryStep) -> Option<String> {
        let pod = step.after.as_ref()?;
        let named = |claim: &&Arc<Value>| {
            let mut statuses = items(&pod["status"]["resourceClaimStatuses"]);
            statuses.any(|status| status["resourceClaimName"] == claim["metadata"]["name"])
        };
        let of_a_namesake = |claim: &&Arc<Value>| {
            let owner = &claim["metadata"]["ownerReferences"][0];
            owner["kind"] == "Pod"
                && owner["name"] == pod["metadata"]["name"]
                && owner["uid"] != pod["metadata"]["uid"]
        };
        let claim = self.claims.values().filter(named).find(of_a_namesake)?;
        Some(format!("mistaken: {} names {} of its predecessor", text(pod, "name"), text(claim, "name")))
    }

    /// Checks that a Pod's status adopts no claim that has been terminating for long.
    fn adopted(&self, step: &HistoryStep) -> Option<String> {
        let (before, after) = (step.before.as_ref()?, step.after.as_ref()?);
        let named = |pod: &Value, claim: &Value| {
            let mut statuses = items(&pod["status"]["resourceClaimStatuses"]);
            statuses.any(|status| status["resourceClaimName"] == claim["metadata"]["name"])
        };
        let lingers = |claim: &&Arc<Value>| {
            let since = self.ending.get(text(claim, "uid"));
            since.is_some_and(|since| step.at.duration_since(*since).unsigned_abs() > LINGERS * 3 / 4)
        };
        let mut own =
            self.claims.values().filter(|claim| owner_of(claim) == after["metadata"]["uid"].as_str());
        let claim = own.find(|claim| lingers(claim) && !named(before, claim) && named(after, claim))?;
        Some(format!("adopted: {} for {}, on its way out for long", text(claim, "name"), text(after, "name")))
    }

    /// Checks that no consumer loses its reservation while it may run, or while its state is unknown.
    fn released(&self, before: &Value, step: &HistoryStep, kind: Kind) -> Option<String> {
        let after = step.after.as_ref()?;
        let lost = consumers(before).filter(|one| consumers(after).all(|kept| kept["uid"] != one["uid"]));
        let mut wrongly = lost.filter(|consumer| {
            let uid = consumer["uid"].as_str().unwrap_or_default();
            is_foreign(consumer, kind)
                || self.groups.contains_key(uid)
                || self.pods.get(uid).is_some_and(|pod| may_run(pod))
        });
        Some(format!("released: {} from under {}", text(before, "name"), wrongly.next()?))
    }

    /// Checks that the controller deletes no claim that is reserved, or that the status of a running owner
    /// names.
    fn taken_away(&self, before: &Value, step: &HistoryStep) -> Option<String> {
        let ends = !is_deleting(before) && step.after.as_ref().is_none_or(|after| is_deleting(after));
        let name = text(before, "name");
        if !ends || !self.deleted_by_us.contains(text(before, "uid")) {
            return None;
        }
        if let Some(consumer) = consumers(before).next() {
            return Some(format!("taken away: {name} from {consumer}"));
        }
        let pod = self.pods.get(owner_of(before)?).filter(|pod| may_run(pod))?;
        let named = items(&pod["status"]["resourceClaimStatuses"])
            .any(|status| status["resourceClaimName"] == before["metadata"]["name"]);
        // kube-scheduler publishes a claim for extended resources only after it has reserved the claim.
        let schedulers = before["metadata"]["annotations"][EXTENDED_CLAIM] == "true";
        (named || schedulers).then(|| format!("taken away: {name} from the Pod {}", text(pod, "name")))
    }
}

/// Checks that an allocated claim keeps its finalizer. Without it the claim can be deleted, and its
/// devices can be allocated again.
fn unprotected(before: &Value, step: &HistoryStep) -> Option<String> {
    let protected = |claim: &Value| items(&claim["metadata"]["finalizers"]).any(|one| one == FINALIZER);
    let still = step.after.as_ref().is_some_and(|after| protected(after));
    (protected(before) && !still && is_allocated(before))
        .then(|| format!("unprotected: {} while it is allocated", text(before, "name")))
}
