//! Obstacles between an entry of a Pod and its claim: the template, the claim, a quota, a reservation.

use dragoman_crds::protocol::shown;
use dragoman_objects::{ClaimEntry, ClaimSpec, MAX_CONSUMERS};

use super::super::{Verdict, age, claim, template};
use super::{View, is_for};
use crate::quota::{Limit, charges};

impl View<'_> {
    /// Returns the obstacle of an entry: its template, its claim, its reservation.
    pub(super) fn entry(&self, entry: &ClaimEntry) -> Option<Verdict> {
        let (namespace, name) = (&self.key.0, self.name());
        let Some(claim) = self.claim_name(entry) else { return self.unpublished(entry) };
        let Some(claim) = self.facts.claims.get(&(namespace.clone(), claim.to_owned())) else {
            return Some(claim::unreadable(self.facts, namespace, claim));
        };
        let uid = &self.pod.metadata.uid;
        let is_foreign = entry.resource_claim_template_name.is_some()
            && claim
                .metadata
                .controller
                .as_ref()
                .is_none_or(|owner| owner.uid != *uid && !self.is_group(&owner.kind, &owner.name));
        if is_foreign {
            return Some(Verdict::blocked(
                "ClaimOfAnother",
                format!(
                    "claim {} was made from a template for another owner than Pod {name}",
                    claim.metadata.name
                ),
                "delete the Pod: its controller makes another one with a claim of its own",
            ));
        }
        let consumers = &claim.status.reserved_for;
        let is_reserved = consumers.iter().any(|consumer| is_for(consumer, self.pod));
        (claim.status.allocation.is_some() && !is_reserved && consumers.len() >= MAX_CONSUMERS).then(|| {
            Verdict::blocked(
                "TooManyConsumers",
                format!(
                    "claim {} is reserved for {MAX_CONSUMERS} consumers, as many as the API allows",
                    claim.metadata.name
                ),
                "use a second claim, or wait until a consumer ends",
            )
        })
    }

    /// An entry with a template whose claim the Pod's status does not name.
    fn unpublished(&self, entry: &ClaimEntry) -> Option<Verdict> {
        let Some(wanted) = entry.resource_claim_template_name.as_deref() else {
            return Some(Verdict::blocked(
                "EntryUnknown",
                format!("entry {} of Pod {} names neither a claim nor a template", entry.name, self.name()),
                "a newer API wrote it, or a field is misspelt",
            ));
        };
        let is_unneeded =
            self.pod.status.resource_claim_statuses.iter().any(|status| status.name == entry.name);
        if is_unneeded {
            return None;
        }
        let (namespace, name) = (&self.key.0, self.name());
        if let Some(verdict) = template::absent(self.facts, namespace, wanted) {
            return Some(verdict);
        }
        if let Some((quota, Limit { resource, used, hard }, more)) = self.full_quota(wanted) {
            let more = if used < hard { format!(", and the claim needs {more}") } else { String::new() };
            return Some(Verdict::blocked(
                "QuotaExceeded",
                format!(
                    "Pod {name} waits for a claim, and quota {quota} admits no more: {used} of {hard} {resource} are used{more}"
                ),
                format!(
                    "delete Pods or claims of namespace {namespace}, or let its administrator raise the quota"
                ),
            ));
        }
        let waits = age(self.pod.metadata.creation_timestamp.as_deref(), self.now);
        if let Some(event) = self.warning().filter(|event| event.reason == "FailedResourceClaimCreation") {
            return Some(Verdict::blocked(
                "ClaimRefused",
                format!(
                    "the claim of entry {} from template {wanted:?} was refused: {}",
                    entry.name,
                    shown(&event.message)
                ),
                "correct what the message names in the template or in its namespace",
            ));
        }
        Some(Verdict::blocked(
            "ClaimNotCreated",
            format!(
                "no controller has made the claim of entry {} from template {wanted:?} for {waits}",
                entry.name
            ),
            "does kube-controller-manager with its resourceclaim-controller run, or Dragoman in mode own?",
        ))
    }

    /// The quota that does not admit the claim of a template: its name, the limit, and what the claim adds.
    fn full_quota(&self, template: &str) -> Option<(&str, Limit, i64)> {
        let template = self.facts.templates.get(&(self.key.0.clone(), template.to_owned()));
        let spec = template.and_then(|template| template.spec.spec.as_ref());
        let spec = spec.and_then(|spec| serde_json::from_str::<ClaimSpec>(spec.get()).ok());
        // A template that cannot be read makes a claim all the same.
        let wanted = charges(&spec.unwrap_or_default().devices);
        let of_namespace = self.facts.quotas.iter().filter(|((namespace, _), _)| *namespace == self.key.0);
        of_namespace.into_iter().find_map(|((_, name), quota)| {
            let (limit, more) = quota.refuses(&wanted)?;
            Some((name.as_str(), limit, more))
        })
    }
}
