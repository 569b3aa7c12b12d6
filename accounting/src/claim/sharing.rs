//! Which Pods may use a claim together (docs/accounting.md 2.7).

use crate::claim::contribution::Contribution;

/// Whether several Pods may use a claim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sharing {
    /// They may: nothing counts for the claim itself, or a policy says how.
    #[default]
    Allowed,
    /// They may not: its devices are node resources, and Kubernetes has no rule for how
    /// several Pods would share them.
    OnePod,
}

/// The rule of kube-scheduler 1.37: a claim with any mapping is for one Pod, also within
/// a group of Pods and also if it has overhead besides. A mapping under an accounting
/// policy may be shared, which Kubernetes knows nothing of.
pub fn sharing(contribution: &Contribution) -> Sharing {
    let one = contribution.lines.iter().any(|line| line.mapping.is_some() && line.policy.is_none());
    if one { Sharing::OnePod } else { Sharing::Allowed }
}
