//! Steps of the parties, and their effects.

use std::collections::BTreeSet;

use crate::{Claim, Device, Mind, Objects, Party, Pod, Protocol, State, Step, Thought, Write};

impl Objects {
    pub(crate) fn pod(&self, number: usize) -> Pod {
        self.pods.get(number).copied().unwrap_or(Pod::Done)
    }

    pub(crate) fn claim(&self, number: usize) -> Claim {
        self.claims.get(number).cloned().unwrap_or_default()
    }
}

impl Protocol {
    pub(crate) fn claims_of(&self, pod: usize) -> &[usize] {
        self.workload.pods.get(pod).map_or(&[], Vec::as_slice)
    }

    /// Whether a Pod has everything that it waits for.
    pub(crate) fn is_ready(&self, objects: &Objects, pod: usize) -> bool {
        self.claims_of(pod).iter().all(|claim| {
            let claim = objects.claim(*claim);
            claim.device.is_some() && claim.reserved.contains(&pod)
        })
    }

    /// The devices of Pods.
    pub(crate) fn devices(&self, objects: &Objects, pods: impl Iterator<Item = usize>) -> BTreeSet<Device> {
        let claims = pods.flat_map(|pod| self.claims_of(pod).iter().map(move |claim| (pod, *claim)));
        let held = claims.map(|(pod, claim)| (pod, objects.claim(claim)));
        held.filter(|(pod, claim)| claim.reserved.contains(pod))
            .filter_map(|(_, claim)| claim.device)
            .collect()
    }

    /// Whether a Pod takes what it needs of the node: it is bound, or was released by the operator.
    pub(crate) fn is_out(&self, objects: &Objects, pod: usize) -> bool {
        let is_released = objects.pod(pod) == Pod::Released && pod < self.workload.gated;
        is_released || objects.pod(pod) == Pod::Bound
    }

    /// The cpus that Pods take: one for each device, and one for each neighbour without claims.
    pub(crate) fn taken(&self, objects: &Objects, pods: &BTreeSet<usize>) -> usize {
        let plain = pods.iter().filter(|pod| self.claims_of(**pod).is_empty()).count();
        plain + self.devices(objects, pods.iter().copied()).len()
    }

    pub(crate) fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (party, write) in &state.flight {
            steps.push(Step::Arrive(*party, write.clone()));
            if state.faults > 0 {
                steps.push(Step::Lose(*party, write.clone()));
            }
        }
        for (party, mind) in &state.minds {
            if !mind.listed {
                let waits = self.guards.leader_waits && state.flight.iter().any(|(of, _)| of == party);
                if !waits {
                    steps.push(Step::List(*party));
                }
                continue;
            }
            if mind.view.pods != state.api.pods || mind.view.nominated != state.api.nominated {
                steps.push(Step::SeePods(*party));
            }
            if mind.view.claims != state.api.claims {
                steps.push(Step::SeeClaims(*party));
            }
            // A party sends one thing after the other.
            if state.flight.iter().all(|(of, _)| of != party) {
                match party {
                    Party::Operator => self.operator(state, mind, steps),
                    Party::Allocator(number) => self.allocator(*number, mind, steps),
                }
            }
            if state.faults > 0 {
                steps.push(Step::Crash(*party));
            }
        }
        self.scheduler(state, steps);
    }

    fn operator(&self, state: &State, mind: &Mind, steps: &mut Vec<Step>) {
        let view = &mind.view;
        // What became of a write is not known: it is sent again as it was.
        for write in mind.taking.values() {
            steps.push(Step::Send(Party::Operator, vec![write.clone()], Thought::Nothing));
        }
        let mut send = |writes: Vec<Write>, thought| {
            if !writes.is_empty() {
                steps.push(Step::Send(Party::Operator, writes, thought));
            }
        };
        for (number, pod) in view.pods.iter().enumerate() {
            let take_back =
                |tests: Option<usize>| self.take_back(view, number, self.claims_of(number), tests);
            if self.claims_of(number).iter().any(|claim| mind.taking.contains_key(claim)) {
                continue;
            }
            match pod {
                Pod::Done => send(take_back(None), Thought::Taking),
                Pod::Gated if self.is_ready(view, number) => {
                    if self.fits(mind, number) && !self.is_promised_twice(mind, number) {
                        send(self.opening(state, view, number), Thought::Assumed(number));
                    } else {
                        send(take_back(Some(number)), Thought::Taking);
                    }
                }
                Pod::Gated | Pod::Released | Pod::Bound => {}
            }
        }
    }

    /// The next write towards an open gate, if it is due.
    fn opening(&self, state: &State, view: &Objects, pod: usize) -> Vec<Write> {
        // Without neighbours a nomination means nothing.
        let has_neighbours = self.workload.gated < self.workload.pods.len();
        if has_neighbours && self.guards.nominates {
            if !view.nominated.contains(&pod) {
                return vec![Write::Nominate(pod)];
            }
            let is_seen = state.seen().nominated.contains(&pod) && view.pods == state.api.pods;
            if self.guards.settles && !is_seen {
                return Vec::new();
            }
        }
        vec![Write::Release(pod)]
    }

    /// The Pods that the operator counts on the node, this one apart.
    fn counted(&self, mind: &Mind, pod: usize) -> BTreeSet<usize> {
        let is_out = |number: &usize| self.is_out(&mind.view, *number);
        let seen = (0..mind.view.pods.len()).filter(is_out);
        let assumed = mind.assumed.iter().copied().filter(|_| self.guards.assumed);
        let not_done = |number: &usize| mind.view.pod(*number) != Pod::Done && *number != pod;
        seen.chain(assumed).filter(not_done).collect()
    }

    fn fits(&self, mind: &Mind, pod: usize) -> bool {
        let all = self.counted(mind, pod).into_iter().chain([pod]);
        self.taken(&mind.view, &all.collect()) <= self.workload.cpus
    }

    /// Whether a Pod that comes first has a device of this one by another claim.
    fn is_promised_twice(&self, mind: &Mind, pod: usize) -> bool {
        if !self.guards.promised_twice {
            return false;
        }
        let counted = self.counted(mind, pod);
        let own = self.claims_of(pod);
        let devices: BTreeSet<Device> =
            own.iter().filter_map(|claim| mind.view.claim(*claim).device).collect();
        let is_first = |other: &usize| counted.contains(other) || *other < pod;
        let others = mind.view.claims.iter().enumerate().filter(|(number, _)| !own.contains(number));
        let mut taken =
            others.filter(|(_, claim)| claim.device.is_some_and(|device| devices.contains(&device)));
        taken.any(|(_, claim)| claim.reserved.iter().any(&is_first))
    }

    fn allocator(&self, allocator: usize, mind: &Mind, steps: &mut Vec<Step>) {
        let view = &mind.view;
        let party = Party::Allocator(allocator);
        // A decision that stands is sent again as it was.
        for (claim, (before, device, pod)) in &mind.decided {
            if view.claim(*claim) == *before {
                let write = Self::allocation(*claim, before, *device, *pod);
                steps.push(Step::Send(party, vec![write], Thought::Nothing));
            }
        }
        // A Pod that was released while something of it was given back gets that again.
        let is_held = |pod: usize| {
            let mut claims = self.claims_of(pod).iter();
            claims.any(|claim| view.claim(*claim).reserved.contains(&pod))
        };
        let waits = |pod: &usize| match view.pod(*pod) {
            Pod::Gated => true,
            // Where no driver is owned, kube-scheduler allocates for a Pod that has nothing left.
            Pod::Released => is_held(*pod) || (self.guards.takes_up && *pod < self.workload.gated),
            Pod::Bound | Pod::Done => false,
        };
        let waiting = (0..view.pods.len()).filter(waits);
        for pod in waiting.filter(|pod| !self.is_ready(view, *pod)) {
            match self.choose(allocator, mind, pod) {
                Some(chosen) if chosen.is_empty() => {}
                Some(chosen) => {
                    let write = |(claim, device): &(usize, Device)| {
                        Self::allocation(*claim, &view.claim(*claim), *device, pod)
                    };
                    let writes = chosen.iter().map(write).collect();
                    let thought = chosen.iter().map(|(claim, device)| (*claim, *device, pod)).collect();
                    steps.push(Step::Send(party, writes, Thought::Decided(thought)));
                }
                None if self.guards.gives_back && view.pod(pod) == Pod::Gated => {
                    let is_own = |claim: &&usize| self.workload.owner.get(**claim) == Some(&allocator);
                    let own: Vec<usize> = self.claims_of(pod).iter().filter(is_own).copied().collect();
                    let alone = |claim: &usize| view.claim(*claim).reserved == BTreeSet::from([pod]);
                    let own: Vec<usize> = own.into_iter().filter(|claim| alone(claim)).collect();
                    let writes = self.take_back(view, pod, &own, Some(pod));
                    if !writes.is_empty() {
                        steps.push(Step::Send(party, writes, Thought::Nothing));
                    }
                }
                None => {}
            }
        }
    }

    /// The claims that an allocator allocates or reserves for a Pod now; `None`: the Pod cannot go on.
    fn choose(&self, allocator: usize, mind: &Mind, pod: usize) -> Option<Vec<(usize, Device)>> {
        let view = &mind.view;
        let decided = |claim: &usize| mind.decided.contains_key(claim);
        let mut taken: BTreeSet<Device> = view.claims.iter().filter_map(|claim| claim.device).collect();
        taken.extend(mind.decided.values().map(|(_, device, _)| *device));
        let mut chosen = Vec::new();
        for claim in self.claims_of(pod) {
            let is_own = self.workload.owner.get(*claim) == Some(&allocator);
            let of = view.claim(*claim);
            match of.device {
                _ if decided(claim) => return Some(Vec::new()),
                Some(_) if of.reserved.contains(&pod) => {}
                Some(device) if is_own => chosen.push((*claim, device)),
                None if is_own => {
                    let mut pool = self.workload.pools.get(allocator)?.iter();
                    let device = *pool.find(|device| !taken.contains(device))?;
                    taken.insert(device);
                    chosen.push((*claim, device));
                }
                // What comes behind a claim of another allocator waits for it; what it has may be in the way.
                Some(_) | None => return if chosen.is_empty() { None } else { Some(chosen) },
            }
        }
        Some(chosen)
    }

    fn allocation(number: usize, before: &Claim, device: Device, pod: usize) -> Write {
        let mut after = Claim { device: Some(before.device.unwrap_or(device)), ..before.clone() };
        after.reserved.insert(pod);
        Write::Claim { number, before: before.clone(), after, tests: None }
    }

    /// Takes a Pod out of claims, and the devices away where no other Pod is left.
    fn take_back(&self, view: &Objects, pod: usize, claims: &[usize], tests: Option<usize>) -> Vec<Write> {
        let held = claims.iter().map(|number| (*number, view.claim(*number)));
        let held = held.filter(|(_, claim)| claim.reserved.contains(&pod));
        held.map(|(number, before)| {
            let mut after = before.clone();
            after.reserved.remove(&pod);
            after.device = after.device.filter(|_| !after.reserved.is_empty());
            Write::Claim { number, before, after, tests: tests.filter(|_| self.guards.gate_tested) }
        })
        .collect()
    }

    pub(crate) fn after(&self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        match step {
            Step::SeePods(party) => see(&mut next, party, |view, api| {
                view.pods.clone_from(&api.pods);
                view.nominated.clone_from(&api.nominated);
            }),
            Step::SeeClaims(party) => see(&mut next, party, |view, api| view.claims.clone_from(&api.claims)),
            Step::List(party) => {
                see(&mut next, party, |view, api| *view = api.clone());
                if let Some(mind) = next.minds.get_mut(&party) {
                    mind.listed = true;
                    // What was released is charged before the first decision.
                    let is_out = |pod: &usize| self.is_out(&mind.view, *pod);
                    mind.assumed = (0..mind.view.pods.len()).filter(is_out).collect();
                }
            }
            Step::Send(party, writes, thought) => {
                self.remember(&mut next, party, thought, &writes);
                next.flight.extend(writes.into_iter().map(|write| (party, write)));
            }
            Step::Arrive(party, write) => {
                self.arrive(&mut next, party, &write);
                next.flight.remove(&(party, write));
            }
            Step::Lose(party, write) => {
                next.faults -= 1;
                next.flight.remove(&(party, write));
            }
            Step::Crash(party) => {
                next.faults -= 1;
                if let Some(mind) = next.minds.get_mut(&party) {
                    mind.listed = false;
                    mind.decided.clear();
                    mind.assumed.clear();
                    mind.taking.clear();
                }
            }
            Step::SchedulerSeesPods => next.learn(|seen, api| {
                seen.pods.clone_from(&api.pods);
                seen.nominated.clone_from(&api.nominated);
            }),
            Step::SchedulerSeesClaims => next.learn(|seen, api| seen.claims.clone_from(&api.claims)),
            Step::Schedule(number) => self.schedule(&mut next, number),
            Step::TakeBack(number) => self.scheduler_takes_back(&mut next, number),
            Step::Bind(number) => set(&mut next, number, Pod::Bound),
            Step::End(number) => set(&mut next, number, Pod::Done),
        }
        next
    }

    fn remember(&self, state: &mut State, party: Party, thought: Thought, writes: &[Write]) {
        let Some(mind) = state.minds.get_mut(&party) else { return };
        match thought {
            Thought::Decided(claims) if self.guards.decisions_stand => {
                for (claim, device, pod) in claims {
                    mind.decided.insert(claim, (mind.view.claim(claim), device, pod));
                }
            }
            Thought::Assumed(pod) => drop(mind.assumed.insert(pod)),
            Thought::Taking if self.guards.decisions_stand => {
                for write in writes {
                    if let Write::Claim { number, .. } = write {
                        mind.taking.insert(*number, write.clone());
                    }
                }
            }
            Thought::Decided(_) | Thought::Taking | Thought::Nothing => {}
        }
    }

    fn arrive(&self, state: &mut State, party: Party, write: &Write) {
        match write {
            Write::Nominate(pod) => drop(state.api.nominated.insert(*pod)),
            Write::Release(pod) => {
                if state.api.pod(*pod) == Pod::Gated {
                    set(state, *pod, Pod::Released);
                }
            }
            Write::Claim { number, before, after, tests } => {
                let is_gated = tests.is_none_or(|pod| state.api.pod(pod) == Pod::Gated);
                let Some(claim) = state.api.claims.get_mut(*number).filter(|_| is_gated) else { return };
                if *claim == *before || !self.guards.versions {
                    if matches!(party, Party::Allocator(_)) {
                        state.robbed.extend(claim.reserved.difference(&after.reserved));
                    }
                    *claim = Claim { version: claim.version + 1, ..after.clone() };
                }
            }
        }
    }
}

fn see(state: &mut State, party: Party, learn: impl Fn(&mut Objects, &Objects)) {
    let Some(mind) = state.minds.get_mut(&party) else { return };
    learn(&mut mind.view, &state.api);
    let view = &mind.view;
    mind.decided.retain(|claim, (before, _, _)| view.claim(*claim) == *before);
    mind.assumed.retain(|pod| view.pod(*pod) != Pod::Done);
    mind.taking
        .retain(|claim, write| matches!(write, Write::Claim { before, .. } if view.claim(*claim) == *before));
}

pub(crate) fn set(state: &mut State, number: usize, to: Pod) {
    if let Some(pod) = state.api.pods.get_mut(number) {
        *pod = to;
    }
}
