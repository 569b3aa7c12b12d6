//! The claim gate protocol (docs/protocol.md) as a model that a checker explores exhaustively: operator,
//! allocators, kube-scheduler and kubelet over the semantics of the API server.
//!
//! Every party acts on its view. A view learns of Pods and of claims apart, as two watches do, and may be late
//! in either. A write is sent, and reaches the API server later, or never; its sender learns of it from its
//! view only. A write carries
//! the version that it was decided on and is refused if the object has changed. Parties crash, and others take
//! their place.
//!
//! `Guards` are what the protocol asks of its parties. With all of them the promises hold in every state;
//! without any single one some promise is broken (see the tests).

mod act;
mod judge;
mod scheduler;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Model, Property};

/// A device of the one node. Each takes one cpu of it.
pub type Device = u8;

/// Pods, claims and devices of a run, and the limits of its changes and faults.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The claims of each Pod, by number. A lower number is an older Pod.
    pub pods: Vec<Vec<usize>>,
    /// Number of Pods that have the gate; those behind them are neighbours. A neighbour without claims takes
    /// a cpu.
    pub gated: usize,
    /// Whether kube-scheduler may be late in what it sees of others. It knows at once what it has bound itself.
    pub late_scheduler: bool,
    /// The allocator of each claim.
    pub owner: Vec<usize>,
    /// The devices of each allocator.
    pub pools: Vec<Vec<Device>>,
    /// The cpus of the node.
    pub cpus: usize,
    /// Largest number of changes of a claim.
    pub changes: u8,
    /// Largest number of crashes and lost writes, in all.
    pub faults: u8,
}

/// Rules that the protocol sets for its parties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guards {
    /// A write is refused if its object has changed (section 3).
    pub versions: bool,
    /// A decision stands until the view shows what became of it (P5).
    pub decisions_stand: bool,
    /// A decision counts on the node before the API shows it (section 3, accounting).
    pub assumed: bool,
    /// A device that an older Pod has is not released to another one (P1).
    pub promised_twice: bool,
    /// Devices are taken from a Pod only while its gate is closed (P4).
    pub gate_tested: bool,
    /// Devices that do not lead to a release are given back (P7).
    pub gives_back: bool,
    /// A new leader waits until what the last one sent has arrived, and lists everything.
    pub leader_waits: bool,
    /// The amounts that claims take stand where kube-scheduler counts them: in the status of Pods, or in a
    /// holder (section 3, publication).
    pub holds: bool,
    /// A Pod is nominated for its node before it is released (section 3, nomination).
    pub nominates: bool,
    /// A Pod is released only when kube-scheduler has seen its nomination, and the operator what was bound before that.
    pub settles: bool,
    /// The API server refuses allocations by others than the owner of a driver (section 5).
    pub owned: bool,
    /// The allocator of an owned driver allocates also for a Pod that was released and has lost everything (P3).
    pub takes_up: bool,
}

impl Guards {
    /// Everything that the protocol asks.
    pub const ALL: Self = Self {
        versions: true,
        decisions_stand: true,
        assumed: true,
        promised_twice: true,
        gate_tested: true,
        gives_back: true,
        leader_waits: true,
        holds: true,
        nominates: true,
        settles: true,
        owned: true,
        takes_up: true,
    };
}

/// A Pod: its gate is closed, it has none, it runs, it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pod {
    /// The gate of the Pod is closed.
    Gated,
    /// The gate of the Pod is open, or the Pod never had one.
    Released,
    /// The Pod is on the node.
    Bound,
    /// The Pod has ended.
    Done,
}

/// A claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// Version of the claim, which rises with each write.
    pub version: u8,
    /// Device of the claim.
    pub device: Option<Device>,
    /// The Pods that it is reserved for.
    pub reserved: BTreeSet<usize>,
}

/// All objects: the API, or the view of a party.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Objects {
    /// The Pods.
    pub pods: Vec<Pod>,
    /// The claims.
    pub claims: Vec<Claim>,
    /// The Pods that are nominated for the node.
    pub nominated: BTreeSet<usize>,
}

/// A party that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Party {
    /// The operator.
    Operator,
    /// An allocator.
    Allocator(usize),
}

/// A write on its way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Write {
    /// A claim in place of what it was. `tests`: only while this Pod has its gate.
    Claim {
        /// Number of the claim.
        number: usize,
        /// The claim that was decided on.
        before: Claim,
        /// The claim as it shall be.
        after: Claim,
        /// The Pod whose gate is tested.
        tests: Option<usize>,
    },
    /// A Pod is nominated.
    Nominate(usize),
    /// The gate of a Pod is opened.
    Release(usize),
}

/// The memory of a party.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mind {
    /// Objects that the party has seen.
    pub view: Objects,
    /// Whether it has listed everything since it began.
    pub listed: bool,
    /// Allocator: claims that were decided on, with the claim as it was.
    pub decided: BTreeMap<usize, (Claim, Device, usize)>,
    /// Operator: Pods that are charged to the node.
    pub assumed: BTreeSet<usize>,
    /// Operator: claims that it takes a Pod out of, with the write.
    pub taking: BTreeMap<usize, Write>,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The API server.
    pub api: Objects,
    /// The parties.
    pub minds: BTreeMap<Party, Mind>,
    /// Writes on their way.
    pub flight: BTreeSet<(Party, Write)>,
    /// Objects that kube-scheduler has seen, where it may be late.
    pub scheduler: Option<Objects>,
    /// Pods that were given back while they may have been released.
    pub robbed: BTreeSet<usize>,
    /// The faults that are left.
    pub faults: u8,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A party learns of all Pods.
    SeePods(Party),
    /// A party learns of all claims.
    SeeClaims(Party),
    /// A party lists everything.
    List(Party),
    /// A party decides something, and sends it.
    Send(Party, Vec<Write>, Thought),
    /// A write arrives.
    Arrive(Party, Write),
    /// A write is lost.
    Lose(Party, Write),
    /// A party crashes, and another takes its place.
    Crash(Party),
    /// kube-scheduler learns of all Pods.
    SchedulerSeesPods,
    /// kube-scheduler learns of all claims.
    SchedulerSeesClaims,
    /// kube-scheduler allocates the claims of a Pod without the gate, if none is reserved for it.
    Schedule(usize),
    /// kube-scheduler takes the claims of a Pod back that the node has no room for.
    TakeBack(usize),
    /// kube-scheduler binds a Pod.
    Bind(usize),
    /// A Pod ends.
    End(usize),
}

/// Facts that a party remembers of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thought {
    /// Nothing.
    Nothing,
    /// Claims with their devices, for a Pod.
    Decided(Vec<(usize, Device, usize)>),
    /// A Pod is charged.
    Assumed(usize),
    /// The writes are about claims that Pods are taken out of.
    Taking,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Protocol {
    /// The workload.
    pub workload: Workload,
    /// The guards.
    pub guards: Guards,
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let Workload { pods, gated, late_scheduler, owner, pools, faults, .. } = &self.workload;
        let first = |number| if number < *gated { Pod::Gated } else { Pod::Released };
        let api = Objects {
            pods: (0..pods.len()).map(first).collect(),
            claims: vec![Claim::default(); owner.len()],
            nominated: BTreeSet::new(),
        };
        let mind = Mind {
            view: api.clone(),
            listed: true,
            decided: BTreeMap::new(),
            assumed: BTreeSet::new(),
            taking: BTreeMap::new(),
        };
        let allocators = (0..pools.len()).map(Party::Allocator);
        let minds = allocators.chain([Party::Operator]).map(|party| (party, mind.clone())).collect();
        let scheduler = late_scheduler.then(|| api.clone());
        vec![State {
            api,
            minds,
            flight: BTreeSet::new(),
            scheduler,
            robbed: BTreeSet::new(),
            faults: *faults,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.steps(state, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        Some(self.after(state, step))
    }

    /// Claims change so often, and no more is looked at.
    fn within_boundary(&self, state: &State) -> bool {
        state.api.claims.iter().all(|claim| claim.version <= self.workload.changes)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        judge::properties()
    }
}
