//! Pools: claims from which containers draw their requests (policy `ConsumeFrom`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use super::NodeLedger;
use super::charge::{Draw, PodCharge};
use super::words::quantity;
use crate::object::ObjectRef;
use crate::resource::Resource;

/// Claims that containers draw from together: one claim, or several that are connected by
/// containers that name more than one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// The resource.
    pub resource: Resource,
    /// The claims.
    pub claims: BTreeSet<ObjectRef>,
    /// Amount that the claims have. All of it is held on the node as long as one of the claims is used.
    pub allocated: i128,
    /// The sum of the draws.
    pub drawn: i128,
    /// The Pods that draw.
    pub consumers: BTreeSet<ObjectRef>,
    /// Amount that is drawn and cannot be had. It may exceed `drawn` less `allocated`, because not every
    /// container may draw from every claim.
    pub short: i128,
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claims: Vec<String> = self.claims.iter().map(ToString::to_string).collect();
        let words = |amount| quantity(self.resource, amount).0;
        let (allocated, drawn, short) = (words(self.allocated), words(self.drawn), words(self.short));
        write!(
            f,
            "{}: of {allocated} {}, {drawn} are drawn, {short} too many",
            claims.join(", "),
            self.resource
        )
    }
}

impl NodeLedger {
    /// The pools of the node.
    pub fn pools(&self) -> Vec<Pool> {
        pools(self.pods())
    }
}

/// The pools that `pods` use.
pub(super) fn pools<'a>(pods: impl Iterator<Item = &'a PodCharge>) -> Vec<Pool> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (pod, draw) in pods.flat_map(|pod| pod.draws().iter().map(move |draw| (&pod.object, draw))) {
        let mut group = Group { resource: draw.resource, capacity: BTreeMap::new(), draws: Vec::new() };
        group.add(pod, draw);
        // A draw joins all groups that share a claim with it.
        let (joined, apart) = groups.into_iter().partition(|other| other.shares(&group));
        groups = apart;
        let joined: Vec<Group<'_>> = joined;
        joined.iter().flat_map(|other| &other.draws).for_each(|(pod, draw)| group.add(pod, draw));
        groups.push(group);
    }
    groups
        .sort_by(|a, b| (a.resource, a.capacity.keys().next()).cmp(&(b.resource, b.capacity.keys().next())));
    groups.iter().map(Group::pool).collect()
}

struct Group<'a> {
    resource: Resource,
    capacity: BTreeMap<&'a ObjectRef, i64>,
    draws: Vec<(&'a ObjectRef, &'a Draw)>,
}

impl<'a> Group<'a> {
    fn add(&mut self, pod: &'a ObjectRef, draw: &'a Draw) {
        for (claim, amount) in &draw.pools {
            // If two draws disagree about a claim, the larger amount counts.
            let known = self.capacity.entry(claim).or_default();
            *known = (*known).max(*amount);
        }
        self.draws.push((pod, draw));
    }

    fn shares(&self, other: &Self) -> bool {
        self.resource == other.resource
            && self.capacity.keys().any(|claim| other.capacity.contains_key(claim))
    }

    fn pool(&self) -> Pool {
        let drawn = self.draws.iter().map(|(_, draw)| i128::from(draw.amount)).sum();
        Pool {
            resource: self.resource,
            claims: self.capacity.keys().map(|claim| (*claim).clone()).collect(),
            allocated: self.capacity.values().copied().map(i128::from).sum(),
            drawn,
            consumers: self.draws.iter().map(|(pod, _)| (*pod).clone()).collect(),
            short: drawn - self.served(),
        }
    }

    /// The most that the claims can serve: the maximum flow from draws to claims.
    fn served(&self) -> i128 {
        let mut spare = self.capacity.clone();
        let mut flow: BTreeMap<(usize, &ObjectRef), i64> = BTreeMap::new();
        let mut served = 0;
        for (at, (_, draw)) in self.draws.iter().enumerate() {
            let mut left = draw.amount;
            while left > 0 {
                let Some(path) = self.path(at, &spare, &flow) else { break };
                // An amount that moves from one claim to another is at most the flow there.
                let moved =
                    path.iter().skip(1).filter_map(|(draw, _, from)| flow.get(&(*draw, (*from)?)).copied());
                let end = path.last().and_then(|(_, to, _)| spare.get(to).copied());
                let Some(amount) = moved.chain(end).chain([left]).min() else { break };
                for (draw, to, from) in &path {
                    *flow.entry((*draw, to)).or_default() += amount;
                    if let Some(from) = from {
                        *flow.entry((*draw, from)).or_default() -= amount;
                    }
                }
                if let Some(known) = path.last().and_then(|(_, to, _)| spare.get_mut(to)) {
                    *known -= amount;
                }
                left -= amount;
                served += i128::from(amount);
            }
        }
        served
    }

    /// The shortest augmenting path from the draw `start` to a claim with capacity to spare. A step
    /// is a draw, the claim that it gets more of, and the claim that it gets less of.
    fn path(
        &self,
        start: usize,
        spare: &BTreeMap<&'a ObjectRef, i64>,
        flow: &BTreeMap<(usize, &'a ObjectRef), i64>,
    ) -> Option<Vec<(usize, &'a ObjectRef, Option<&'a ObjectRef>)>> {
        let mut queue: VecDeque<Vec<(usize, &'a ObjectRef, Option<&'a ObjectRef>)>> = VecDeque::new();
        let mut seen: BTreeSet<&ObjectRef> = BTreeSet::new();
        let mut next = |queue: &mut VecDeque<_>,
                        so_far: &[(usize, &'a ObjectRef, Option<&'a ObjectRef>)],
                        draw: usize,
                        less| {
            for (claim, _) in self.draws.get(draw).into_iter().flat_map(|(_, draw)| &draw.pools) {
                if seen.insert(claim) {
                    queue.push_back([so_far, &[(draw, claim, less)]].concat());
                }
            }
        };
        next(&mut queue, &[], start, None);
        while let Some(path) = queue.pop_front() {
            let (_, claim, _) = path.last()?;
            if spare.get(claim).is_some_and(|spare| *spare > 0) {
                return Some(path);
            }
            let holders = flow.iter().filter(|((_, from), amount)| from == claim && **amount > 0);
            for ((draw, _), _) in holders {
                next(&mut queue, &path, *draw, Some(claim));
            }
        }
        None
    }
}
