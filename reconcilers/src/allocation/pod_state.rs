//! The state of a Pod for an allocator, judged by the claims of the Pod: a pure function.

use std::sync::Arc;

use super::groups::holds_something;
use super::index::{NamedClaim, PodFacts};

/// The state of a Pod for an allocator.
#[derive(Debug)]
pub(super) enum PodState {
    /// A claim is not there yet: an event comes once it is.
    Incomplete,
    /// There is nothing to allocate, not yet or not any more.
    Unrelated,
    /// All its claims that are for this allocator have their devices: the claims.
    Allocated(Vec<NamedClaim>),
    /// The Pod needs devices. Its facts lack the claims that other allocators have still to allocate; the
    /// claims are the remaining ones.
    NeedsDevices(Arc<PodFacts>, Vec<NamedClaim>),
}

/// Whether a claim is for the allocator of this name.
pub(super) fn is_for(name: &str, NamedClaim { facts, .. }: &NamedClaim) -> bool {
    facts.allocator.as_deref() == Some(name)
}

/// Judges a Pod with this uid for the allocator called `name`.
pub(super) fn pod_state(
    name: &str,
    uid: &str,
    pod: &Arc<PodFacts>,
    claims: Option<Vec<NamedClaim>>,
) -> PodState {
    let Some(claims) = claims else { return PodState::Incomplete };
    let is_settled = |claim: &NamedClaim| claim.facts.is_allocated && claim.is_reserved_for(uid);
    let is_ours = |claim: &NamedClaim| is_for(name, claim);
    let ours: Vec<&NamedClaim> = claims.iter().filter(|claim| is_ours(claim)).collect();
    if claims.iter().all(is_settled) || (!ours.is_empty() && ours.iter().all(|claim| is_settled(claim))) {
        return PodState::Allocated(claims);
    }
    // A Pod that was released and has lost a claim since, and no other Pod without the gate.
    let is_released = !pod.is_gated && (pod.was_released || holds_something(uid, &claims));
    if ours.is_empty() || !(pod.is_gated || is_released) {
        return PodState::Unrelated;
    }
    // An event comes when that gate opens.
    if pod.is_gated && pod.is_behind_another {
        return PodState::Unrelated;
    }
    // Claims of other allocators come in the order of the Pod, so that no two wait for each other.
    let first = claims.iter().position(is_ours).unwrap_or_default();
    if claims.iter().take(first).any(|NamedClaim { facts, .. }| !facts.is_allocated) {
        return PodState::Unrelated;
    }
    // An event comes when a gate opens.
    if ours.iter().any(|NamedClaim { facts, .. }| facts.is_held_back && !facts.is_allocated || facts.deleting)
    {
        return PodState::Unrelated;
    }
    // The devices of others confine the Pod; what others allocate later is not known yet.
    let (known, later): (Vec<NamedClaim>, Vec<NamedClaim>) =
        claims.into_iter().partition(|claim| is_ours(claim) || claim.facts.is_allocated);
    let pod = if later.is_empty() { Arc::clone(pod) } else { Arc::new(pod.without(&later)) };
    PodState::NeedsDevices(pod, known)
}

#[cfg(test)]
mod tests {
    use dragoman_objects::{Pod, ResourceClaim};
    use serde_json::json;

    use super::super::tests::{applied, claim, cluster, key, pod};
    use super::*;

    #[test]
    fn a_pod_behind_another_gate_has_nothing_to_be_allocated() {
        let is_open = |gates: &[&str], later: &[&str]| {
            let mut index = cluster(1, 3);
            index.later = later.iter().copied().map(Box::from).collect();
            applied::<ResourceClaim>(&mut index, &claim(0, &json!({})));
            let mut behind = pod(0, "1");
            behind["spec"]["schedulingGates"] = gates.iter().map(|name| json!({"name": name})).collect();
            applied::<Pod>(&mut index, &behind);
            let (uid, pod) = index.pod(&key(0)).expect("a Pod");
            let claims = index.claims_of(&key(0).namespace, &pod);
            matches!(pod_state("dragoman", &uid, &pod, claims), PodState::NeedsDevices(..))
        };
        let ours = "dragoman.dev/claims";
        assert!(is_open(&[ours], &[]));
        assert!(!is_open(&[ours, "queue.example/wait"], &[]));
        assert!(!is_open(&["queue.example/wait"], &[]), "it has not the gate of the protocol");
        assert!(is_open(&["queue.example/wait", ours], &["queue.example/wait"]), "it is opened later");
        assert!(!is_open(&["a/b", ours, "queue.example/wait"], &["queue.example/wait"]));
    }
}
