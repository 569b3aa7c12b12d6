//! Allocations that are refused, and what is taken back from gated Pods.

use std::collections::{HashMap, HashSet};

use dragoman_crds::wire::Name;
use dragoman_machinery::clock;
use dragoman_machinery::controller::{ObjectKey, Verdict, regarding};
use dragoman_machinery::kind::POD;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::Write;

use super::controller::{Blocked, GateKeeper, Work, locked};
use super::index::NamedClaim;
use super::plan::{Ready, Reason};
use super::writes;
use crate::protocol::{Rejection, with_rejection};

/// Claims that gated Pods are taken out of. The answer to such a write may be lost, and the index may not show
/// it yet: the Pod is not released with them meanwhile.
#[derive(Debug, Default)]
pub(super) struct Taking {
    claims: HashMap<ObjectKey, HashMap<Name, Name>>,
    /// Pods of which what was published was taken back.
    withdrawn: HashSet<ObjectKey>,
}

impl Taking {
    /// A Pod is of no concern any more.
    pub(super) fn forget(&mut self, pod: &ObjectKey) {
        self.claims.remove(pod);
        self.withdrawn.remove(pod);
    }

    /// Whether what was published of a Pod has been taken back since.
    pub(super) fn is_withdrawn(&self, pod: &ObjectKey) -> bool {
        self.withdrawn.contains(pod)
    }

    /// What was published of a Pod is taken back. What is left is of others.
    pub(super) fn withdrew(&mut self, pod: &ObjectKey) {
        self.withdrawn.insert(pod.clone());
    }

    /// What the claims of a Pod take is published.
    pub(super) fn published(&mut self, pod: &ObjectKey) {
        self.withdrawn.remove(pod);
    }

    /// A Pod is about to be taken out of a claim of this version.
    fn put(&mut self, pod: &ObjectKey, claim: &Name, version: &Name) {
        self.claims.entry(pod.clone()).or_default().insert(claim.clone(), version.clone());
    }

    /// The write was refused.
    fn refused(&mut self, pod: &ObjectKey, claim: &str) {
        self.claims.get_mut(pod).and_then(|claims| claims.remove(claim));
    }

    /// Whether the index may not show yet what became of it. `version`: that of the claim there.
    fn stands(&mut self, pod: &ObjectKey, claim: &str, version: &str) -> bool {
        let number = |version: &str| version.parse::<u64>().unwrap_or_default();
        let Some(claims) = self.claims.get_mut(pod) else { return false };
        let stands = claims.get(claim).is_some_and(|on| number(version) <= number(on));
        if !stands {
            claims.remove(claim);
        }
        stands
    }
}

impl GateKeeper {
    /// Why a device, share or counter of one of the claims is promised beyond what there is, if the Pod is not one that keeps it.
    /// The oldest gated Pods keep it; a consumer without a gate of ours may run already.
    pub(super) fn promised_twice(&self, work: &Work<'_>, claims: &[Ready<'_>]) -> Option<String> {
        let (cluster, namespace) = (self.cluster.get()?, &*work.key.namespace);
        let own = (&*work.pod.created, &*work.uid);
        for (name, _, _) in claims {
            let mut younger = cluster.read(|cluster| cluster.ledger().rivals(namespace, name));
            younger.retain(|rival| self.kit.read(|index| index.is_held_by_younger(rival, own)));
            let found = cluster.read(|cluster| cluster.ledger().overdrawn_by(namespace, name, &younger));
            if let Some(overdrawn) = found {
                // The owner of another claim is no business of this tenant; the log of the operator says it.
                let claims: Vec<&str> = overdrawn.claims.iter().map(|claim| &**claim).collect();
                let claims = claims.join(",");
                tracing::warn!(namespace, claim = %name, %claims, "promised twice");
                return Some(format!("claim {name}: {overdrawn}"));
            }
        }
        None
    }

    /// Gives back what is reserved of claims that are being deleted: they stay until then, and the Pod
    /// waits for those that are made in their place.
    pub(super) async fn give_back(&self, work: &Work<'_>, claims: &[NamedClaim]) -> Result<(), Refusal> {
        for claim in claims {
            let (Some(name), Some(Ok((uid, facts)))) = (&claim.name, &claim.found) else { continue };
            let back = writes::give_back(&work.key.namespace, name, uid, facts, &work.uid, &facts.version);
            if let Some(back) = back.filter(|_| facts.deleting) {
                self.take(work, uid, &facts.version, &back).await?;
            }
        }
        Ok(())
    }

    /// Takes a Pod out of a claim of this version, if its gate is closed still: another leader may see it
    /// otherwise, and release the Pod in this moment.
    async fn take(&self, work: &Work<'_>, claim: &Name, version: &Name, back: &Write) -> Result<(), Refusal> {
        self.kit.send(work.key, &writes::is_gated(work.key, &work.uid, &work.pod)).await?;
        locked(&self.taking).put(work.key, claim, version);
        let outcome = self.kit.send(work.key, back).await;
        if outcome.as_ref().is_err_and(Refusal::is_without_effect) {
            locked(&self.taking).refused(work.key, claim);
        }
        outcome.map(drop)
    }

    /// Takes the Pod out of claims again that it was taken out of, as far as the index does not show what
    /// became of that. Returns whether there are any.
    pub(super) async fn takes_again(&self, work: &Work<'_>, claims: &[Ready<'_>]) -> Result<bool, Refusal> {
        let mut takes = false;
        for (name, uid, facts) in claims {
            if !locked(&self.taking).stands(work.key, uid, &facts.version) {
                continue;
            }
            takes = true;
            let back = writes::give_back(&work.key.namespace, name, uid, facts, &work.uid, &facts.version);
            if let Some(back) = back {
                self.take(work, uid, &facts.version, &back).await?;
            }
        }
        Ok(takes)
    }

    /// Refuses the allocations of a Pod that cannot run where they are: says so on each claim, and gives
    /// back what is reserved for this Pod.
    pub(super) async fn reject(
        &self,
        work: &Work<'_>,
        claims: &[Ready<'_>],
        node: &str,
        reason: Reason,
        why: &str,
    ) -> Result<Verdict, Blocked> {
        let Work { key, uid, .. } = work;
        let revision = self.cluster.get().and_then(|cluster| {
            cluster.read(|cluster| cluster.published.get("", node)?.readable()?.revision)
        });
        let mut versions = Vec::new();
        for (name, claim_uid, facts) in claims {
            let rejection = Rejection {
                node: node.to_owned(),
                reason: why.to_owned(),
                revision: revision.unwrap_or_default(),
                time: clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            };
            let text = with_rejection(facts.rejections.clone(), rejection);
            let said = writes::rejection(&key.namespace, name, claim_uid, facts, text);
            versions.push(self.kit.send(key, &said).await?.meta.resource_version);
        }
        for ((name, claim_uid, facts), version) in claims.iter().zip(&versions) {
            let back = writes::give_back(&key.namespace, name, claim_uid, facts, uid, version);
            if let Some(back) = back {
                self.take(work, claim_uid, version, &back).await?;
            }
            tracing::info!(namespace = %key.namespace, pod = %key.name, claim = %name, node, why, "allocation refused");
        }
        self.metrics.rejected.inc();
        let about = regarding(POD, &key.namespace, &key.name, uid);
        let place = if node.is_empty() { String::new() } else { format!(" on node {node}") };
        let text = format!("the allocation of its claims{place} is refused: {why}");
        self.kit.warn(about, reason.word(), "Reject", text);
        Ok(Verdict::Done)
    }
}
