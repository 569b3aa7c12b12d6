//! PodGroups with a gang policy: so many of their Pods get devices at once, or none does.

use std::collections::{BTreeSet, HashMap};
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
    if let Some(Err(why)) = known.readable().map(|facts| &facts.topology) {
        return Some(Err(format!("PodGroup {}: {why}", group.name)));
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

/// The findings of the attempts to place a gang.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Those about each Pod.
    tried: HashMap<ObjectKey, Tried>,
    /// The domains without room for all of it.
    without: BTreeSet<Name>,
}

/// Decides about the Pods of a gang, one after the other, each with what the others take. If fewer than
/// are needed find a node, nothing is decided. No other decision sees a part of it: the caller holds the lock.
///
/// Where its Pods have to run in one domain, the first of them goes to the first node in the order of ranks. If the others find no room
/// there, that domain is ruled out, and the next one is tried.
pub(super) fn place(
    together: &Together<'_>,
    findings: &mut Findings,
    index: &mut Allocation,
    decided: &mut InFlightAllocations,
    ids: &mut dyn ShareIds,
) -> Attempt {
    let mut portions = together.members.len() / PORTION + PORTIONS;
    let mut most: Option<(usize, Vec<String>)> = None;
    loop {
        let (attempt, domain) = place_in_one(together, &mut portions, findings, index, decided, ids);
        let (found, why) = match attempt {
            Attempt::Failed(found, why) => (found, why),
            other => return other,
        };
        if most.as_ref().is_none_or(|(known, _)| found > *known) {
            most = Some((found, why));
        }
        let Some(domain) = domain else {
            let (found, why) = most.unwrap_or_default();
            return Attempt::Failed(found, why);
        };
        findings.without.insert(domain);
        findings.tried.clear();
        // A tenant may name a label that each node has for itself.
        if portions == 0 {
            return Attempt::Again;
        }
        portions -= 1;
    }
}

/// Decides about the Pods of a gang in one domain. Returns the domain, if they were free to choose another one.
fn place_in_one(
    &Together { members, needed, policy, time }: &Together<'_>,
    portions: &mut usize,
    Findings { tried, without }: &mut Findings,
    index: &mut Allocation,
    decided: &mut InFlightAllocations,
    ids: &mut dyn ShareIds,
) -> (Attempt, Option<Name>) {
    let (mut placed, mut why) = (Vec::new(), None);
    // A Pod that was to go where the claim is that it shares: the decision about that claim may be another one this time.
    let keys = members.iter().map(|member| &member.turn.key);
    let sharing: Vec<ObjectKey> = keys.filter(|key| !decided.is_decided(key)).cloned().collect();
    undo(&sharing, index, decided);
    let first = members.first();
    let domain = first.and_then(|first| index.domain(&first.turn.key, &first.pod, decided, without));
    let chooses = domain.filter(|domain| domain.value().is_none());
    for (number, Member { turn, uid, pod, claims }) in members.iter().enumerate() {
        let key = &turn.key;
        let (refused, _) = left_out(claims, time);
        let tried = tried.entry(key.clone()).or_default();
        let outcome = loop {
            let of = claims.iter().filter_map(|NamedClaim { uid, .. }| decided.claim(&index.snapshot, uid));
            let question = Question {
                in_gang: true,
                without: without.clone(),
                ..Question::new(key, pod, of.collect(), index, decided)
            };
            match decide(&question, index, decided, &refused, policy, tried, ids) {
                decide::Attempted::Decided(decision) => break Ok(decision),
                decide::Attempted::Refused(why) => break Err(why),
                decide::Attempted::Aside(long) => {
                    undo(&placed, index, decided);
                    return (Attempt::Aside(long), None);
                }
                decide::Attempted::More if *portions == 0 => {
                    undo(&placed, index, decided);
                    return (Attempt::Again, None);
                }
                decide::Attempted::More => *portions -= 1,
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
            let domain = chooses.and_then(|of| index.domain_of(placed.first()?, of.key(), decided));
            undo(&placed, index, decided);
            return (Attempt::Failed(found, why.unwrap_or_default()), domain);
        }
    }
    // The others share the claims of these, and have nothing to be written.
    placed.retain(|key| decided.is_decided(key));
    (Attempt::Placed(placed), None)
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
    use dragoman_objects::{Node, Pod, PodGroup, ResourceClaim};
    use serde_json::{Value, json};

    use super::super::tests::{applied, claim, cluster, key, name, node, pod};
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
        let mut findings = Findings::default();
        loop {
            let mut ids = || "share".into();
            let together =
                Together { members: &members, needed, policy: Policy::Pack, time: Timestamp::UNIX_EPOCH };
            match place(&together, &mut findings, index, decided, &mut ids) {
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

    /// Four nodes in two racks, with room for eight Pods each: rack `b` has one of them, and one has no rack.
    fn racks(index: &mut Allocation) {
        for (number, rack) in [(0, Some("b")), (1, Some("a")), (2, Some("a")), (3, None)] {
            let mut node = node(number, "26");
            node["metadata"]["labels"] = rack.map_or_else(|| json!({}), |rack| json!({"rack": rack}));
            node["metadata"]["resourceVersion"] = json!("2");
            applied::<Node>(index, &node);
        }
    }

    fn in_one_rack(index: &mut Allocation, min: usize, constraints: &Value) {
        let group = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "g", "resourceVersion": "2"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": min}}, "schedulingConstraints": constraints}});
        applied::<PodGroup>(index, &group);
    }

    #[test]
    fn a_gang_runs_in_one_domain() {
        let topology = json!({"topology": [{"key": "rack"}]});
        let nodes = |decided: &InFlightAllocations, pods: usize| -> BTreeSet<String> {
            (0..pods).filter_map(|pod| decided.assumed.node_of(&key(pod)).map(ToString::to_string)).collect()
        };
        let (mut index, mut decided) = (cluster(4, 3), InFlightAllocations::default());
        racks(&mut index);
        group(&mut index, 12, 0..12);
        in_one_rack(&mut index, 12, &topology);
        assert_eq!(
            placed(&mut index, &mut decided, 0),
            Ok(12),
            "the rack of the first node has room for eight"
        );
        assert_eq!(nodes(&decided, 12), [name(1), name(2)].into());
        // One beyond the minimum goes where the others are, and is refused where these have no room.
        group(&mut index, 12, 12..13);
        in_one_rack(&mut index, 12, &topology);
        let more = super::super::tests::decided(&mut index, &decided, 12).expect("there is room");
        assert!([name(1), name(2)].contains(&more.node.to_string()), "{}", more.node);
        // No rack has room for seventeen.
        let (mut index, mut decided) = (cluster(4, 3), InFlightAllocations::default());
        racks(&mut index);
        group(&mut index, 17, 0..17);
        in_one_rack(&mut index, 17, &topology);
        assert_eq!(placed(&mut index, &mut decided, 0), Err(16));
        assert_eq!(nodes(&decided, 17), BTreeSet::new(), "nothing is kept");
        // Its rack is that of a Pod that runs, whichever comes first otherwise.
        let mut bound = member(0);
        bound["spec"]["nodeName"] = json!(name(2));
        bound["metadata"]["resourceVersion"] = json!("2");
        applied::<Pod>(&mut index, &bound);
        let mut other = pod(20, "1");
        other["spec"]["nodeName"] = json!(name(0));
        applied::<Pod>(&mut index, &other);
        in_one_rack(&mut index, 8, &topology);
        assert_eq!(placed(&mut index, &mut decided, 1), Ok(15), "beside it there is room for fifteen");
        assert_eq!(nodes(&decided, 17), [name(1), name(2)].into());
    }

    #[test]
    fn a_gang_with_constraints_of_a_newer_api_waits_and_says_so() {
        for constraints in [
            json!({"topology": [{"key": "rack", "level": "preferred"}]}),
            json!({"topology": [{"key": "rack"}, {"key": "zone"}]}),
            json!({"topology": 1}),
        ] {
            let (mut index, decided) = (cluster(2, 3), InFlightAllocations::default());
            group(&mut index, 2, 0..2);
            in_one_rack(&mut index, 2, &constraints);
            let Some(Gang::Waits(why)) = looked(&index, &decided, 0) else { panic!("{constraints}") };
            assert!(why.starts_with("PodGroup g: spec.schedulingConstraints"), "{why}");
        }
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
