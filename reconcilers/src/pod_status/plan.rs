//! The next step about the status of a Pod: a pure function of what it records, what its claims bring
//! along, and what this process has written.

use std::time::Duration;

use dragoman_accounting::claim::contribution::Contribution;
use dragoman_accounting::claim::footprint::AccountingPolicy;
use dragoman_accounting::cluster::ClaimsOfPod;
use dragoman_machinery::times;
use tokio::time::Instant;

/// Wait before another look at an account that is incomplete. No request is made for it.
const INCOMPLETE: Duration = Duration::from_secs(15);
/// The waits before entries that another writer erased are put back. After the last one they stay erased.
const PUT_BACK: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(10), Duration::from_mins(1)];

/// Entries that this process has written into the status of a Pod, or tried to write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnWrites {
    /// Tells the entries apart.
    pub recorded: Option<u64>,
    /// Number of times that the entries were written, or refused because another manager owns the field.
    pub times: usize,
    /// When that was last.
    pub at: Option<Instant>,
    /// Whether another manager owned the field then.
    pub owned: bool,
    /// Whether nothing is written for this Pod any more.
    pub stopped: bool,
    /// Whether it was said what the API server does not take.
    pub told: bool,
}

/// Next step about a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Nothing, until something changes.
    Rest,
    /// Look again after this time.
    Wait(Duration),
    /// Write entries for what these claims take.
    Write(ClaimsOfPod),
    /// Write nothing for this Pod any more, and say why.
    Stop(Conflict),
}

/// Why nothing is written for a Pod any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// Another writer erased the entries each time they were put back.
    Erased,
    /// Another writer put other entries in place of these.
    Replaced,
    /// Another field manager owns the field and has no entries in it.
    Owned,
    /// The shape of the API has no place for the accounting policy of a DeviceFootprint.
    Unrepresentable,
}

impl Conflict {
    /// The reason of the Event.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Erased => "PodStatusErased",
            Self::Replaced => "PodStatusReplaced",
            Self::Owned => "PodStatusOwned",
            Self::Unrepresentable => "PodStatusUnrepresentable",
        }
    }

    /// The note of the Event.
    pub fn note(self) -> &'static str {
        match self {
            Self::Erased => {
                "another writer of the Pod's status erases what its claims take from the node; it is not put \
                 back any more, and a kube-scheduler that counts claims does not count these"
            }
            Self::Replaced => {
                "another writer of the Pod's status has put other amounts in place of what its claims take \
                 from the node; dragoman leaves them alone"
            }
            Self::Owned => {
                "another field manager owns status.nodeAllocatableResourceClaimStatuses of the Pod and has no \
                 entries in it: what its claims take is not written, and a kube-scheduler that counts claims \
                 does not count these (kubectl get --show-managed-fields names the manager)"
            }
            Self::Unrepresentable => {
                "what the Pod's claims take is added up by an accounting policy that the Pod's status has no \
                 place for: a kube-scheduler that counts claims does not count these"
            }
        }
    }
}

/// Decides the next step about a Pod at `now`. `recorded`: what its status records; `claims`: what the ledger
/// knows of its claims.
pub fn plan(
    recorded: Option<u64>,
    claims: Option<ClaimsOfPod>,
    mine: Option<&OwnWrites>,
    now: Instant,
) -> Plan {
    if mine.is_some_and(|mine| mine.stopped) {
        return Plan::Rest;
    }
    match (recorded, mine) {
        // What another writer wrote first is left alone.
        (Some(_), None | Some(OwnWrites { recorded: None, .. })) => return Plan::Rest,
        (Some(recorded), Some(mine)) if mine.recorded == Some(recorded) => return Plan::Rest,
        (Some(_), Some(_)) => return Plan::Stop(Conflict::Replaced),
        (None, Some(mine)) => match PUT_BACK.get(mine.times.saturating_sub(1)) {
            None if mine.owned => return Plan::Stop(Conflict::Owned),
            None => return Plan::Stop(Conflict::Erased),
            Some(wait) => {
                if let Some(left) = mine.at.and_then(|at| times::left(at + *wait, now)) {
                    return Plan::Wait(left);
                }
            }
        },
        (None, None) => {}
    }
    let Some(ClaimsOfPod { contributions, unaccounted, extended }) = claims else {
        return Plan::Wait(INCOMPLETE);
    };
    if !unaccounted.is_empty() {
        // Half of the entries would look like all of them.
        return Plan::Wait(INCOMPLETE);
    }
    let entries: Vec<Contribution> = contributions.into_iter().filter(|of| !of.lines.is_empty()).collect();
    let mut policies = entries.iter().flat_map(|of| &of.lines).filter_map(|line| line.policy);
    if policies.any(|policy| policy != AccountingPolicy::AddPerClaim) {
        return Plan::Stop(Conflict::Unrepresentable);
    }
    if entries.is_empty() {
        return Plan::Rest;
    }
    Plan::Write(ClaimsOfPod { contributions: entries, unaccounted, extended })
}
