//! PodGroups with a gang policy: so many of their Pods get devices at once, or none does.

use std::collections::HashMap;
use std::sync::Arc;

use dragoman_allocator::{Policy, ShareIds};
use dragoman_machinery::controller::ObjectKey;
use dragoman_machinery::watch::Record;
use dragoman_objects::{ClaimEntries, Name};
use jiff::Timestamp;

use super::aside::Long;
use super::decide::{self, Question, Tried, decide, left_out};
use super::groups::{MOST, PodGroupFacts};
use super::in_flight::InFlightAllocations;
use super::index::{Allocation, NamedClaim, PodFacts};
use super::pod_state::{PodState, pod_state};
use super::shapes::{PORTION, QueuePosition};

/// A Pod that is decided on together with others.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) turn: QueuePosition,
    pub(super) uid: Name,
    pub(super) pod: Arc<PodFacts>,
    pub(super) claims: Vec<NamedClaim>,
}

/// Next step of a Pod whose gang has not reached its minimum.
#[derive(Debug)]
pub(super) enum Gang {
    /// Something that is for people.
    Waits(String),
    /// The first Pod of the gang decides for all.
    Behind(ObjectKey),
    /// So many of these Pods need devices at once.
    Decide(Vec<Member>, usize),
}

/// The PodGroup of this name, or why a Pod waits for it; nothing where the API server knows none.
fn known<'a>(index: &'a Allocation, group: &ObjectKey) -> Option<Result<&'a Record<PodGroupFacts>, String>> {
    if index.may_not_see_groups() {
        return Some(Err(format!("PodGroup {} may not be read: the allocator lacks a right", group.name)));
    }
    if index.is_without_groups() {
        return None;
    }
    let Some(known) = index.pod_groups.get(&group.namespace, &group.name) else {
        return Some(Err(format!("PodGroup {} does not exist", group.name)));
    };
    let most = ClaimEntries::MOST;
    if known.readable().is_some_and(|facts| facts.left_out > 0) {
        return Some(Err(format!(
            "PodGroup {} has more entries for claims than the {most} that are read",
            group.name
        )));
    }
    Some(Ok(known))
}

/// Returns what a Pod has to do with its gang; `None` for a Pod that is decided on alone. `name` is that of
/// the allocator.
pub(super) fn gang(
    index: &Allocation,
    decided: &InFlightAllocations,
    name: &str,
    key: &ObjectKey,
    pod: &PodFacts,
) -> Option<Gang> {
    // A Pod that was released was one of enough, and the others may have ended.
    let name_of_group = pod.group.as_deref().filter(|_| pod.is_gated)?;
    let group = ObjectKey { namespace: Arc::clone(&key.namespace), name: name_of_group.into() };
    let known = match known(index, &group)? {
        Ok(known) => known,
        Err(why) => return Some(Gang::Waits(why)),
    };
    let min = known.readable().map(|of| of.min).filter(|min| *min > 0)?;
    let members = index.groups.size(&group);
    if members > MOST {
        let why = format!(
            "PodGroup {name_of_group} has {members} Pods, and more than {MOST} are not placed at once"
        );
        return Some(Gang::Waits(why));
    }
    let (mut placed, mut open) = (0, Vec::new());
    for (member, standing) in index.groups.members(&group) {
        let Some((uid, pod)) = index.pod(member).filter(|_| standing.waits) else {
            placed += 1;
            continue;
        };
        if pod.deleting {
            continue;
        }
        if decided.is_decided(member) {
            placed += 1;
            continue;
        }
        match pod_state(name, &uid, &pod, index.claims_of(&member.namespace, &pod)) {
            PodState::Allocated(_) => placed += 1,
            PodState::NeedsDevices(pod, claims) => {
                open.push(Member { turn: pod.queue_position(member), uid, pod, claims });
            }
            PodState::Incomplete | PodState::Unrelated => {}
        }
    }
    let needed = min.checked_sub(placed).filter(|needed| *needed > 0)?;
    open.sort_by(|a, b| a.turn.cmp(&b.turn));
    let is_first = open.first().is_none_or(|first| first.turn.key == *key);
    if open.len() < needed && (is_first || index.groups.is_small(key)) {
        // Without the number of those that have: it is another one with the next Pod, and each Pod says it once.
        let why = format!(
            "PodGroup {name_of_group} needs {min} Pods at once, and fewer than {min} Pods have all their claims"
        );
        return Some(Gang::Waits(why));
    }
    match open.first() {
        Some(first) if first.turn.key != *key => Some(Gang::Behind(first.turn.key.clone())),
        _ => Some(Gang::Decide(open, needed)),
    }
}

/// The outcome of an attempt to place a gang.
#[derive(Debug)]
pub(super) enum Attempt {
    /// The attempt was too expensive for one turn. The nodes that refused are remembered, and the next
    /// attempt follows once others have had a turn.
    Again,
    /// A Pod has selectors that are evaluated aside; then it begins anew.
    Aside(Box<Long>),
    /// These Pods are decided on.
    Placed(Vec<ObjectKey>),
    /// There is no room for the minimum: how many found a node, and why the first did not.
    Failed(usize, Vec<String>),
    /// Requests of a claim have to be read again.
    Waits,
}

/// The portions of nodes that refuse, in one attempt, beside one for each Pod: some tens of milliseconds.
const PORTIONS: usize = 8;

/// Pods that are decided on together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Together<'a> {
    pub(super) members: &'a [Member],
    /// The number of them that must find a node.
    pub(super) needed: usize,
    /// The order of nodes.
    pub(super) policy: Policy,
    pub(super) time: Timestamp,
}

/// Decides about the Pods of a gang, one after the other, each with what the others take. If fewer than
/// are needed find a node, nothing is decided. No other decision sees a part of it: the caller holds the lock.
pub(super) fn place(
    &Together { members, needed, policy, time }: &Together<'_>,
    tried: &mut HashMap<ObjectKey, Tried>,
    index: &mut Allocation,
    decided: &mut InFlightAllocations,
    ids: &mut dyn ShareIds,
) -> Attempt {
    let mut portions = members.len() / PORTION + PORTIONS;
    let (mut placed, mut why) = (Vec::new(), None);
    // A Pod that was to go where the claim is that it shares: the decision about that claim may be another one this time.
    let keys = members.iter().map(|member| &member.turn.key);
    let sharing: Vec<ObjectKey> = keys.filter(|key| !decided.is_decided(key)).cloned().collect();
    undo(&sharing, index, decided);
    for (number, Member { turn, uid, pod, claims }) in members.iter().enumerate() {
        let key = &turn.key;
        let (refused, _) = left_out(claims, time);
        let tried = tried.entry(key.clone()).or_default();
        let outcome = loop {
            let of = claims.iter().filter_map(|NamedClaim { uid, .. }| decided.claim(&index.snapshot, uid));
            let question =
                Question { in_gang: true, ..Question::new(key, pod, of.collect(), index, decided) };
            match decide(&question, index, decided, &refused, policy, tried, ids) {
                decide::Attempted::Decided(decision) => break Ok(decision),
                decide::Attempted::Refused(why) => break Err(why),
                decide::Attempted::Aside(long) => {
                    undo(&placed, index, decided);
                    return Attempt::Aside(long);
                }
                decide::Attempted::More if portions == 0 => {
                    undo(&placed, index, decided);
                    return Attempt::Again;
                }
                decide::Attempted::More => portions -= 1,
            }
        };
        match outcome {
            Ok(decision) => {
                decided.put(key, uid, claims, &decision);
                index.reranked.node(&decision.node);
                placed.push(key.clone());
            }
            Err(told) => {
                why.get_or_insert(told);
            }
        }
        let found = placed.len();
        if found + members.len() - number - 1 < needed {
            undo(&placed, index, decided);
            return Attempt::Failed(found, why.unwrap_or_default());
        }
    }
    // The others share the claims of these, and have nothing to be written.
    placed.retain(|key| decided.is_decided(key));
    Attempt::Placed(placed)
}

/// Takes back what was decided for a part of a gang. A node that refused a Pod because of that part may take
/// it now.
fn undo(placed: &[ObjectKey], index: &mut Allocation, decided: &mut InFlightAllocations) {
    for key in placed {
        if decided.is_anywhere(key) {
            index.changes.everything();
        }
        if let Some(node) = decided.forget(key) {
            index.changes.node(&node);
        }
    }
}

#[cfg(test)]
mod tests {
    use dragoman_objects::{Pod, PodGroup, ResourceClaim};
    use serde_json::{Value, json};

    use super::super::tests::{applied, claim, cluster, key, name, pod};
    use super::*;

    /// Lets a group come that needs `min` Pods of the `pods` that there are.
    fn group(index: &mut Allocation, min: usize, pods: std::ops::Range<usize>) {
        let group = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "g", "resourceVersion": "1"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": min}}}});
        applied::<PodGroup>(index, &group);
        for number in pods {
            applied::<ResourceClaim>(index, &claim(number, &json!({})));
            applied::<Pod>(index, &member(number));
        }
    }

    fn member(number: usize) -> Value {
        let mut pod = pod(number, "250m");
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
        pod
    }

    fn looked(index: &Allocation, decided: &InFlightAllocations, number: usize) -> Option<Gang> {
        let (_, pod) = index.pod(&key(number)).expect("it waits");
        gang(index, decided, "dragoman", &key(number), &pod)
    }

    /// The Pods that are decided on together.
    fn placed(
        index: &mut Allocation,
        decided: &mut InFlightAllocations,
        number: usize,
    ) -> Result<usize, usize> {
        let (members, needed) = match looked(index, decided, number) {
            Some(Gang::Decide(members, needed)) => (members, needed),
            Some(Gang::Behind(first)) => {
                let first = first.name.trim_start_matches("p-").parse().expect("a number");
                return placed(index, decided, first);
            }
            other => panic!("{other:?}"),
        };
        let mut tried = HashMap::new();
        loop {
            let mut ids = || "share".into();
            let together =
                Together { members: &members, needed, policy: Policy::Pack, time: Timestamp::UNIX_EPOCH };
            match place(&together, &mut tried, index, decided, &mut ids) {
                Attempt::Again => {}
                other @ (Attempt::Aside(_) | Attempt::Waits) => panic!("{other:?}"),
                Attempt::Placed(keys) => return Ok(keys.len()),
                Attempt::Failed(found, _) => return Err(found),
            }
        }
    }

    #[test]
    fn a_gang_is_placed_as_a_whole_or_not_at_all() {
        // Two nodes with room for eight Pods each.
        let mut index = cluster(2, 3);
        let mut decided = InFlightAllocations::default();
        group(&mut index, 17, 0..20);
        assert_eq!(placed(&mut index, &mut decided, 0), Err(16));
        assert_eq!(
            decided.flying.of(&name(0), None) + decided.flying.of(&name(1), None),
            0,
            "nothing is kept"
        );
        // The nodes that were full for a part of the gang are tried again for a smaller one.
        group(&mut index, 16, 0..20);
        assert_eq!(placed(&mut index, &mut decided, 0), Ok(16));
        assert!(looked(&index, &decided, 17).is_none(), "those beyond the minimum are decided on alone");
    }

    /// All of them have to fit where the devices are.
    #[test]
    fn the_pods_that_share_a_claim_are_placed_with_it() {
        let sharing = |index: &mut Allocation, pods: std::ops::Range<usize>, cpu: &str| {
            for number in pods {
                let mut sharer = pod(number, cpu);
                sharer["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
                sharer["spec"]["resourceClaims"][0]["resourceClaimName"] = json!("c-0");
                applied::<Pod>(index, &sharer);
            }
        };
        let (mut index, mut decided) = (cluster(2, 0), InFlightAllocations::default());
        group(&mut index, 3, 0..0);
        applied::<ResourceClaim>(&mut index, &claim(0, &json!({})));
        sharing(&mut index, 0..3, "10");
        assert_eq!(placed(&mut index, &mut decided, 0), Err(2), "a node has room for two of them");
        assert!(decided.assumed.node_of(&key(0)).is_none() && decided.assumed.node_of(&key(1)).is_none());
        group(&mut index, 2, 0..0);
        // What was to be charged for a sharer before counts no more.
        for _ in 0..3 {
            assert_eq!(placed(&mut index, &mut decided, 0), Ok(1), "one claim is allocated");
            let nodes = [0, 1].map(|number| decided.assumed.node_of(&key(number)).cloned());
            assert!(nodes[0].is_some() && nodes[0] == nodes[1], "{nodes:?}");
            decided.forget(&key(0));
        }
    }

    #[test]
    fn a_gang_waits_until_its_pods_are_there() {
        let (mut index, decided) = (cluster(1, 3), InFlightAllocations::default());
        group(&mut index, 4, 0..3);
        let Some(Gang::Waits(why)) = looked(&index, &decided, 0) else { panic!("it waits") };
        assert_eq!(why, "PodGroup g needs 4 Pods at once, and fewer than 4 Pods have all their claims");
        assert!(
            matches!(looked(&index, &decided, 1), Some(Gang::Waits(of)) if of == why),
            "each of them says it"
        );
        // A Pod without claims needs no device, and counts.
        let mut bare = member(9);
        bare["spec"]["resourceClaims"] = Value::Null;
        applied::<Pod>(&mut index, &bare);
        assert!(matches!(looked(&index, &decided, 0), Some(Gang::Decide(pods, 3)) if pods.len() == 3));
        assert!(matches!(looked(&index, &decided, 1), Some(Gang::Behind(first)) if first == key(0)));
        // So does one that runs.
        let mut bound = member(0);
        bound["spec"]["nodeName"] = json!(name(0));
        bound["metadata"]["resourceVersion"] = json!("2");
        applied::<Pod>(&mut index, &bound);
        assert!(matches!(looked(&index, &decided, 1), Some(Gang::Decide(pods, 2)) if pods.len() == 2));
    }

    /// A tenant can make any number of Pods in a group: each of them would wake all others.
    #[test]
    fn a_group_without_bounds_wakes_no_pods() {
        let (mut index, decided) = (cluster(1, 3), InFlightAllocations::default());
        group(&mut index, 2, 0..MOST);
        assert_eq!(index.groups.beside(&key(0)).len(), MOST);
        group(&mut index, 2, MOST..MOST + 1);
        assert_eq!(index.groups.beside(&key(0)), []);
        let Some(Gang::Waits(why)) = looked(&index, &decided, 0) else { panic!("it waits") };
        assert_eq!(why, "PodGroup g has 1025 Pods, and more than 1024 are not placed at once");
    }

    /// Gangs of 8 to 512 Pods in a cluster that is large enough, one after the other.
    #[test]
    fn gangs_of_many_pods_are_placed() {
        let mut index = cluster(130, 3);
        let (mut decided, mut first) = (InFlightAllocations::default(), 0);
        for size in [8, 64, 512] {
            group(&mut index, size, first..first + size);
            let began = std::time::Instant::now();
            assert_eq!(placed(&mut index, &mut decided, first), Ok(size));
            println!("a gang of {size}: {:?}", began.elapsed());
            for number in first..first + size {
                let mut done = member(number);
                done["status"] = json!({"phase": "Succeeded"});
                done["metadata"]["resourceVersion"] = json!("2");
                applied::<Pod>(&mut index, &done);
            }
            first += size;
        }
    }
}
