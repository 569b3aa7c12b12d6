//! Which Pods may share a claim (docs/accounting.md 2.7).

use crate::claim::contribution::Contribution;

/// Whether several Pods may use a claim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Several Pods may use the claim: it has no mapping, or each mapping has an accounting policy.
    #[default]
    Allowed,
    /// One Pod only: the devices of the claim are node resources, and Kubernetes has no rule for
    /// how several Pods would share them.
    OnePod,
}

/// Returns the rule of kube-scheduler 1.37: a claim with any mapping is for one Pod, also within a
/// PodGroup and also if the claim has overhead besides. A mapping under an accounting policy may be
/// shared; Kubernetes has no such policies.
pub fn sharing(contribution: &Contribution) -> Sharing {
    let one = contribution.lines.iter().any(|line| line.mapping.is_some() && line.policy.is_none());
    if one { Sharing::OnePod } else { Sharing::Allowed }
}
