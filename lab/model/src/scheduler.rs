//! kube-scheduler: it binds Pods without a gate, allocates for them, and takes allocations back.

use std::collections::BTreeSet;

use crate::{Claim, Device, Objects, Pod, Protocol, State, Step};

impl State {
    /// Returns the objects that kube-scheduler has seen.
    pub(crate) fn seen(&self) -> &Objects {
        self.scheduler.as_ref().unwrap_or(&self.api)
    }

    /// kube-scheduler learns something.
    pub(crate) fn learn(&mut self, learn: impl Fn(&mut Objects, &Objects)) {
        if let Some(seen) = &mut self.scheduler {
            learn(seen, &self.api);
        }
    }
}

impl Protocol {
    pub(crate) fn scheduler(&self, state: &State, steps: &mut Vec<Step>) {
        let (seen, api) = (state.seen(), &state.api);
        if (&seen.pods, &seen.nominated) != (&api.pods, &api.nominated) {
            steps.push(Step::SchedulerSeesPods);
        }
        if seen.claims != api.claims {
            steps.push(Step::SchedulerSeesClaims);
        }
        for number in 0..api.pods.len() {
            match api.pod(number) {
                Pod::Bound => steps.push(Step::End(number)),
                Pod::Released if seen.pod(number) == Pod::Released => self.schedules(state, number, steps),
                Pod::Gated | Pod::Released | Pod::Done => {}
            }
        }
    }

    /// Adds the steps of kube-scheduler for a Pod that waits for its node.
    fn schedules(&self, state: &State, pod: usize, steps: &mut Vec<Step>) {
        let has_room = self.has_room(state, pod);
        if self.is_ready(state.seen(), pod) {
            // The binding is refused if a claim is not reserved for the Pod any more.
            if has_room && self.is_ready(&state.api, pod) {
                steps.push(Step::Bind(pod));
            } else if !has_room && self.may_take_back(state, pod) {
                steps.push(Step::TakeBack(pod));
            }
        } else if has_room && self.in_tree(state, pod).is_some() {
            steps.push(Step::Schedule(pod));
        }
    }

    /// Whether the node has room for a Pod beside what is bound and what is nominated, as far as kube-scheduler has seen it.
    fn has_room(&self, state: &State, pod: usize) -> bool {
        let seen = state.seen();
        let is_bound = |other: &usize| state.api.pod(*other) == Pod::Bound;
        let waits =
            |other: &usize| matches!(seen.pod(*other), Pod::Gated | Pod::Released) && !is_bound(other);
        let nominated = seen.nominated.iter().copied().filter(waits);
        let all: BTreeSet<usize> =
            (0..state.api.pods.len()).filter(is_bound).chain(nominated).chain([pod]).collect();
        let taken = if self.guards.holds {
            self.taken(&state.api, &all)
        } else {
            all.iter().filter(|pod| self.claims_of(**pod).is_empty()).count()
        };
        taken <= self.workload.cpus
    }

    /// The claims of a Pod without the gate as kube-scheduler allocates them, where none is reserved for it.
    fn in_tree(&self, state: &State, pod: usize) -> Option<Vec<(usize, Device)>> {
        let seen = state.seen();
        let mut taken: BTreeSet<Device> = seen.claims.iter().filter_map(|claim| claim.device).collect();
        let mut chosen = Vec::new();
        for claim in self.claims_of(pod) {
            let pool = self.workload.pools.get(*self.workload.owner.get(*claim)?)?;
            let free = pool.iter().find(|device| !taken.contains(device));
            let is_refused = self.guards.owned || seen.claim(*claim) != state.api.claim(*claim);
            if is_refused || !seen.claim(*claim).reserved.is_empty() {
                return None;
            }
            taken.insert(*free?);
            chosen.push((*claim, *free?));
        }
        Some(chosen)
    }

    /// Whether the claims of a Pod are as kube-scheduler sees them, are reserved for no other, and may lose their devices.
    fn may_take_back(&self, state: &State, pod: usize) -> bool {
        let mut claims = self.claims_of(pod).iter();
        let is_alone = |claim: &usize| state.api.claim(*claim).reserved == BTreeSet::from([pod]);
        !self.guards.owned
            && claims.all(|claim| is_alone(claim) && state.seen().claim(*claim) == state.api.claim(*claim))
    }

    pub(crate) fn schedule(&self, next: &mut State, pod: usize) {
        for (claim, device) in self.in_tree(next, pod).unwrap_or_default() {
            write(next, claim, |claim| {
                claim.device = Some(device);
                claim.reserved = BTreeSet::from([pod]);
            });
        }
    }

    pub(crate) fn scheduler_takes_back(&self, next: &mut State, pod: usize) {
        next.robbed.insert(pod);
        for claim in self.claims_of(pod) {
            write(next, *claim, |claim| *claim = Claim { version: claim.version, ..Claim::default() });
        }
    }
}

fn write(state: &mut State, number: usize, change: impl Fn(&mut Claim)) {
    if let Some(claim) = state.api.claims.get_mut(number) {
        change(claim);
        claim.version += 1;
    }
}
