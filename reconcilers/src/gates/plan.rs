//! Reasons why a gated Pod waits: pure functions over its facts, its claims, and the ledgers of nodes.

use std::time::Duration;

use dragoman_machinery::times;
use dragoman_objects::{ClaimEntries, MAX_CONSUMERS, Name};
use jiff::Timestamp;
use tokio::time::Instant;

use super::facts::{Allocated, ClaimFacts, PodFacts};
use super::index::{KnownClaim, NamedClaim};
use dragoman_cluster::placement::{IsBacked, NodeView};
use dragoman_crds::protocol::{ALLOCATOR, ClosedGate, NOT_BOUND, SAYS_RELEASED, shown};

/// The reason why a Pod waits: reason of the condition, of Events and of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Reason {
    /// A claim does not exist yet, or the status of the Pod does not name it.
    ClaimMissing,
    /// A claim is being deleted.
    ClaimDeleted,
    /// A claim does not decode.
    ClaimUnreadable,
    /// A scheduling gate of another controller is closed.
    OtherGateClosed,
    /// A gate before allocation is closed.
    AllocationGateClosed,
    /// An allocator has not allocated a claim.
    NotAllocated,
    /// A claim is allocated, and not reserved for the Pod.
    NotReserved,
    /// No node can use the devices of all claims.
    NoCommonNode,
    /// A device of a claim is allocated to another claim, too.
    PromisedTwice,
    /// A claim has other devices than it asks for: the allocation is refused.
    WrongDevices,
    /// The amounts that the Pod takes do not fit on the node: the allocation is refused.
    DoesNotFit,
    /// Claims and containers take more than `spec.resources` of the Pod: the allocation is refused.
    OverBudget,
    /// The node does not take the Pod, by its labels, its taints, a cordon or its device plugins; or the requirements of the Pod on nodes are
    /// too long. The allocation is refused.
    NodeUnsuitable,
    /// The amounts that the Pod takes, or those that the node has left, are not known.
    Unaccounted,
    /// The amounts that the claims take are not visible to kube-scheduler: they could not be written into the
    /// status of the Pod, or the holder Pod of the node does not hold exactly what claims take there yet.
    NotPublished,
    /// A device has no attribute that the Pod asks for.
    AttributeMissing,
    /// A gate after allocation is closed.
    ReleaseGateClosed,
    /// The gate is open, and kube-scheduler cannot bind the Pod to the node of its claims.
    NotBound,
}

dragoman_machinery::words! {
    Reason, WORDS, word;
    Self::ClaimMissing => "ClaimMissing",
    Self::ClaimDeleted => "ClaimDeleted",
    Self::ClaimUnreadable => "ClaimUnreadable",
    Self::OtherGateClosed => "OtherGateClosed",
    Self::AllocationGateClosed => "AllocationGateClosed",
    Self::NotAllocated => "NotAllocated",
    Self::NotReserved => "NotReserved",
    Self::NoCommonNode => "NoCommonNode",
    Self::PromisedTwice => "PromisedTwice",
    Self::WrongDevices => "WrongDevices",
    Self::DoesNotFit => "DoesNotFit",
    Self::OverBudget => "OverBudget",
    Self::NodeUnsuitable => "NodeUnsuitable",
    Self::Unaccounted => "Unaccounted",
    Self::NotPublished => "NotPublished",
    Self::AttributeMissing => "AttributeMissing",
    Self::ReleaseGateClosed => "ReleaseGateClosed",
    Self::NotBound => NOT_BOUND,
}

impl Reason {
    /// The time after which a wait is worth a write: not in its first moment.
    pub(super) fn patience(self) -> Duration {
        // kube-scheduler tries again after ten seconds at most; holder Pods may be on their way.
        Duration::from_secs(if self == Self::NotBound { 30 } else { 2 })
    }
}

/// The reason why a gate was opened: reason of the condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opened {
    /// The Pod has everything that it waited for.
    Released,
    /// No claim names an allocator: kube-scheduler allocates.
    NoAllocator,
    /// No allocator has found a node in time: kube-scheduler and an autoscaler see the Pod.
    LetGo,
    /// The gate is open, and not every claim had devices: what opened it is not known here.
    Early,
    /// The Pod has a node.
    Bound,
}

impl Opened {
    /// The word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Released => SAYS_RELEASED,
            Self::NoAllocator => "NoAllocator",
            Self::LetGo | Self::Early => "LetGo",
            Self::Bound => "Bound",
        }
    }

    /// For people.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Released => "every claim is allocated, reserved and accounted for",
            Self::NoAllocator => "no claim names an allocator: kube-scheduler allocates",
            Self::Early => "the gate was opened before every claim had devices: kube-scheduler allocates",
            Self::Bound => "the Pod has a node",
            Self::LetGo => {
                "no allocator has found a node in time: kube-scheduler allocates, and an autoscaler can see the Pod"
            }
        }
    }
}

/// A gate that stays closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wait {
    /// The reason.
    pub(super) reason: Reason,
    /// For people.
    pub(super) message: String,
    /// The time after which the wait is worth a write.
    pub(super) patience: Duration,
}

impl Wait {
    pub(super) fn new(reason: Reason, message: String) -> Self {
        Self { reason, message, patience: reason.patience() }
    }

    /// A wait that resolves by itself: for an object that is being made, for a turn in a queue.
    pub(super) fn on_its_way(reason: Reason, message: String) -> Self {
        Self { reason, message, patience: ON_ITS_WAY }
    }
}

fn wait<T>(reason: Reason, message: String) -> Result<T, Wait> {
    Err(Wait::new(reason, message))
}

/// Next step of a gated Pod, judged by its claims.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claims<'a> {
    /// The gate stays closed.
    Wait(Wait),
    /// These claims name no allocator and get the default one.
    Label(Vec<&'a KnownClaim>),
    /// No claim names an allocator: kube-scheduler allocates, and the gate is opened.
    NoAllocator,
    /// Every claim is allocated and reserved.
    Ready(Vec<&'a KnownClaim>),
}

/// Judges the claims of a Pod. `earlier`: a gate of another controller that comes before ours.
pub(super) fn claims<'a>(
    earlier: Option<&Name>,
    claims: &'a [NamedClaim],
    default_allocator: Option<&str>,
) -> Claims<'a> {
    match judge(earlier, claims, default_allocator) {
        Ok(judged) => judged,
        Err(wait) => Claims::Wait(wait),
    }
}

fn judge<'a>(
    earlier: Option<&Name>,
    claims: &'a [NamedClaim],
    default_allocator: Option<&str>,
) -> Result<Claims<'a>, Wait> {
    let mut known: Vec<&KnownClaim> = Vec::new();
    for claim in claims {
        match claim {
            // What keeps a claim from being made is said by the controller that makes it.
            NamedClaim::Unnamed => {
                let message = "a claim is not created yet".to_owned();
                return Err(Wait::on_its_way(Reason::ClaimMissing, message));
            }
            NamedClaim::Missing(name) => {
                return wait(Reason::ClaimMissing, format!("claim {name} does not exist"));
            }
            NamedClaim::Unreadable(name, why) => {
                return wait(Reason::ClaimUnreadable, format!("claim {name} does not decode: {why}"));
            }
            NamedClaim::Known(claim) => known.push(claim),
        }
    }
    let foreign: Vec<&KnownClaim> =
        known.iter().copied().filter(|claim| claim.facts.allocator.is_none()).collect();
    if !foreign.is_empty() && default_allocator.is_some() {
        return Ok(Claims::Label(foreign));
    }
    if foreign.len() == known.len() {
        return Ok(Claims::NoAllocator);
    }
    if let Some(gate) = earlier {
        return wait(
            Reason::OtherGateClosed,
            format!(
                "gate {gate} of the Pod is closed: no devices are taken for the Pod until its controller opens it"
            ),
        );
    }
    for claim in known.iter().copied() {
        is_given(claim, default_allocator)?;
    }
    Ok(Claims::Ready(known))
}

/// Whether a claim that has an allocator is allocated, and reserved for the Pod.
///
/// # Errors
/// What it waits for.
fn is_given(
    KnownClaim { name, facts, reserved_for, .. }: &KnownClaim,
    default_allocator: Option<&str>,
) -> Result<(), Wait> {
    if facts.deleting {
        return wait(Reason::ClaimDeleted, format!("claim {name} is being deleted"));
    }
    if facts.allocation.is_none() {
        if let Some(gate) = facts.allocation_gates.first() {
            return wait(Reason::AllocationGateClosed, closed(name, gate));
        }
        let message = unallocated(name, facts);
        // Until the default allocator has looked, there is nothing to say but that it has not. Another name may be
        // a slip, and no allocator looks.
        let is_default = facts.allocator.is_some() && facts.allocator.as_deref() == default_allocator;
        let has_looked = facts.verdict.is_some() || !facts.rejections.is_empty();
        if is_default && !has_looked {
            return Err(Wait::on_its_way(Reason::NotAllocated, message));
        }
        return wait(Reason::NotAllocated, message);
    }
    if reserved_for.is_none() {
        let full = if facts.consumers.len() < MAX_CONSUMERS {
            String::new()
        } else {
            format!(": it has {MAX_CONSUMERS} consumers, and takes another one when one of them ends")
        };
        return wait(Reason::NotReserved, format!("claim {name} is not reserved for the Pod{full}"));
    }
    Ok(())
}

fn closed(claim: &str, ClosedGate { gate, reason }: &ClosedGate) -> String {
    format!("claim {claim}: gate {gate} is closed: {reason}")
}

fn unallocated(name: &str, facts: &ClaimFacts) -> String {
    let Some(allocator) = facts.allocator.as_deref() else {
        return format!(
            "claim {name} names no allocator, and kube-scheduler allocates nothing for a Pod with a gate: give it the \
             label {ALLOCATOR} as the other claims of the Pod, or allocate it first"
        );
    };
    let verdict = facts.verdict.as_ref().map(|verdict| format!(": {}", verdict.message));
    let rejected = facts.rejections.last().map(|last| {
        let place =
            if last.node.is_empty() { String::new() } else { format!(" on node {}", shown(&last.node)) };
        format!(" (refused{place}: {})", shown(&last.reason))
    });
    // An autoscaler looks at Pods that kube-scheduler has refused.
    let no_node = if verdict.is_some() { "; gated Pods do not scale the cluster up" } else { "" };
    format!(
        "allocator {allocator} has not allocated claim {name}{}{}{no_node}",
        verdict.unwrap_or_default(),
        rejected.unwrap_or_default()
    )
}

/// The gates of its claims that hold an accounted Pod back.
///
/// # Errors
/// The first gate that is closed.
pub(super) fn release_gates(claims: &[&KnownClaim]) -> Result<(), Wait> {
    for KnownClaim { name, facts, .. } in claims {
        if let Some(gate) = facts.release_gates.first() {
            return wait(Reason::ReleaseGateClosed, closed(name, gate));
        }
    }
    Ok(())
}

/// The nodes that can use the devices of all claims, in the order of `nodes`.
///
/// # Errors
/// There is none, or an allocation does not decode.
pub(super) fn common_nodes<'a>(
    claims: &[&KnownClaim],
    nodes: impl Iterator<Item = &'a NodeView>,
) -> Result<Vec<Name>, Wait> {
    let mut selectors = Vec::new();
    for KnownClaim { name, facts, .. } in claims {
        match &facts.allocation {
            Some(Allocated::Nodes(selector)) => selectors.push(selector),
            Some(Allocated::Unreadable(why)) => {
                return wait(Reason::ClaimUnreadable, format!("claim {name}: its allocation: {why}"));
            }
            Some(Allocated::Anywhere | Allocated::Nothing) | None => {}
        }
    }
    let selected = nodes.filter(|node| selectors.iter().all(|selector| node.is_selected(selector)));
    let selected: Vec<Name> = selected.map(|node| node.name().clone()).collect();
    if selected.is_empty() {
        let claims: Vec<&str> = claims.iter().map(|claim| &*claim.name).collect();
        let message = format!("no node can use the devices of {}", claims.join(", "));
        return wait(Reason::NoCommonNode, message);
    }
    Ok(selected)
}

/// The nodes that can use the devices of all claims; of these the ones that take the Pod, if there are any.
///
/// # Errors
/// As [`common_nodes`].
pub(super) fn nodes_for(
    pod: &PodFacts,
    claims: &[&KnownClaim],
    nodes: &[&NodeView],
    is_backed: IsBacked<'_>,
) -> Result<Vec<Name>, Wait> {
    let takes = |node: &&NodeView| unsuitable(pod, Some(node), is_backed).is_none();
    let taking = common_nodes(claims, nodes.iter().copied().filter(takes));
    match taking {
        Err(Wait { reason: Reason::NoCommonNode, .. }) => common_nodes(claims, nodes.iter().copied()),
        found => found,
    }
}

/// Nothing is decided about a Pod with more entries than are read: `left_out` are not.
pub(super) fn too_many(left_out: usize) -> Option<Wait> {
    let most = ClaimEntries::MOST;
    let message = format!("the Pod has {} entries for claims; no more than {most} are read", most + left_out);
    (left_out > 0).then(|| Wait::new(Reason::ClaimUnreadable, message))
}

/// Why kube-scheduler would not bind a gated Pod to a node, amounts and devices aside; nothing of a node that is not known.
pub(super) fn unsuitable(pod: &PodFacts, node: Option<&NodeView>, is_backed: IsBacked<'_>) -> Option<String> {
    let (placement, any) = (pod.placement.as_ref()?, NodeView::default());
    let node = node.or_else(|| placement.is_too_long().then_some(&any))?;
    let obstacles = node.obstacles(placement, is_backed);
    let said: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// Whether a claim is one that a Pod without the gate goes to its node with: it is reserved for the Pod, or the Pod was released or
/// is assumed on a node (`is_known`) and the claim is allocated and free for it.
pub(super) fn keeps(claim: &KnownClaim, is_known: bool) -> bool {
    claim.reserved_for.is_some() || (is_known && claim.facts.allocation.is_some())
}

/// The node to which a released Pod goes: the only one that can use its devices, or the one that its affinity names.
pub(super) fn goes_to<'a>(
    claims: &[&KnownClaim],
    nodes: impl Iterator<Item = &'a NodeView>,
    pin: Option<&str>,
) -> Option<Name> {
    let mut nodes = common_nodes(claims, nodes).ok()?;
    // Without a single node it is not known where the Pod goes.
    let is_it = |node: &Name| nodes.len() == 1 || pin == Some(&**node);
    let found = nodes.iter().position(is_it)?;
    Some(nodes.swap_remove(found))
}

/// Whether an allocation confines its Pod to one node by name.
pub(super) fn confines(facts: &ClaimFacts) -> bool {
    facts.node().is_some()
}

/// Whether every claim is reserved for the Pod, and one of them names an allocator.
pub(super) fn is_allocated_for(claims: &[NamedClaim]) -> bool {
    let reserved = |claim: &NamedClaim| {
        let KnownClaim { facts, reserved_for, .. } = claim.known()?;
        reserved_for.as_ref().map(|_| facts.allocator.is_some())
    };
    let named: Option<Vec<bool>> = claims.iter().map(reserved).collect();
    named.is_some_and(|named| named.contains(&true))
}

/// Returns the reason why a Pod whose gate is open is not bound to the node of its claims. `says`:
/// kube-scheduler's words.
pub(super) fn not_bound(node: &str, is_there: bool, is_pinned: bool, says: &str) -> Wait {
    let why = if is_there { says.to_owned() } else { "there is no such node any more".to_owned() };
    let pinned = if is_pinned {
        "; the affinity of the Pod names the node: delete the Pod, and one in its place may go elsewhere"
    } else {
        ""
    };
    let message =
        format!("kube-scheduler cannot bind the Pod to node {node}, where its claims are: {why}{pinned}");
    Wait::new(Reason::NotBound, message)
}

/// Returns the wait of a Pod whose gate was opened and that has lost a claim of an allocator since. The
/// condition tells the allocator that the Pod was gated.
pub(super) fn lost(claims: &[NamedClaim]) -> Option<Wait> {
    let known = claims.iter().filter_map(NamedClaim::known);
    let mut ours = known.filter_map(|claim| Some((claim, claim.facts.allocator.as_deref()?)));
    let (KnownClaim { name, facts, .. }, allocator) =
        ours.find(|(claim, _)| claim.facts.allocation.is_none() || claim.reserved_for.is_none())?;
    let what = if facts.allocation.is_none() { "its devices" } else { "the reservation for the Pod" };
    let message =
        format!("the Pod was released, and claim {name} of allocator {allocator} has lost {what} since");
    // kube-scheduler reserves again within moments what it has given up for a moment.
    Some(Wait { patience: LOST, ..Wait::new(Reason::NotBound, message) })
}

/// Whether a Pod without allocation may be let go: its allocator has had a turn and found nothing, and no gate
/// of any owner is closed.
pub(super) fn may_be_let_go(claims: &[NamedClaim]) -> bool {
    let known = || claims.iter().filter_map(|claim| Some(&*claim.known()?.facts));
    let is_open = |facts: &ClaimFacts| facts.allocation_gates.is_empty() && facts.release_gates.is_empty();
    known().all(is_open) && known().any(|facts| facts.allocation.is_none() && facts.verdict.is_some())
}

/// Returns the time that is left at `now` until a Pod that was created then (RFC 3339) and is not allocated is let go: none for a
/// Pod whose age cannot be read.
pub(super) fn let_go_after(created: &str, after: Duration, now: Timestamp) -> Option<Duration> {
    let created = created.parse().ok()?;
    Some(after.saturating_sub(times::passed(created, now)))
}

/// When the condition of a Pod whose reason has changed is written: at the end of its patience, `worth`, and not soon after the
/// last time, `said`.
pub(super) fn condition_due(worth: Instant, said: Option<Instant>) -> Instant {
    said.map_or(worth, |said| worth.max(said + PACE))
}

/// Time for which a Pod of a PodGroup waits before it takes a claim of the group back: the other Pods have been looked at by then.
pub(super) const OTHERS: Duration = Duration::from_secs(2);
/// Time for which a Pod keeps devices without an attribute that it asks for.
pub(super) const WITHOUT_ATTRIBUTE: Duration = Duration::from_mins(5);
/// The patience with a released Pod that has lost a claim.
const LOST: Duration = Duration::from_secs(2);
/// The patience with a wait that resolves by itself. A thousand Pods that are created at once pass
/// in less; two conditions for each would be a fifth of all writes, and hold up the others.
const ON_ITS_WAY: Duration = Duration::from_mins(1);
/// Time after which a condition whose reason is the same gets another message.
pub(super) const REWORDED: Duration = Duration::from_secs(30);
/// Two leaders that see different things would write against each other without end.
const PACE: Duration = Duration::from_secs(5);
