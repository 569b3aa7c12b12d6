//! The state of an attempt, and the checks for one more device (docs/allocator.md 1.5). `unplace`
//! is the exact inverse of `place`.

use std::sync::Arc;

use dragoman_objects::Name;
use dragoman_quantity::Decimal;
use rustc_hash::FxHashMap;

use super::best_fit::Loss;
use super::constraints::{Constrained, Values, values_of};
use super::counters::{Drawn, Groups};
use super::pace::Pace;
use crate::align::{self, Confined};
use crate::capacity::{Amounts, Short, consume};
use crate::cause::{Cause, Refusal};
use crate::claims::{Asked, Prepared, PreparedClaim, PreparedRequest};
use crate::error::{Object, PodError};
use crate::gates::Gates;
use crate::input::Node;
use crate::selectors::{Unsaid, Verdict};
use crate::snapshot::{Held, NodeView, PreparedSlice, Repels, Snapshot, ViewDevice};

/// The feature that a node declares if its kubelet accepts `skipNodeOperations`.
const OPTIONAL_NODE_OPERATIONS: &str = "DRAOptionalNodeOperations";

/// The indexes of a claim, of its request, and of the sub-request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ask {
    pub(crate) claim: usize,
    pub(crate) request: usize,
    pub(crate) sub: usize,
}

/// A request or sub-request at its place among the claims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestAt<'a> {
    pub(crate) ask: Ask,
    pub(crate) request: &'a PreparedRequest,
    pub(crate) asked: &'a Asked,
}

/// A placed device.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) ask: Ask,
    /// The index in the view.
    pub(crate) device: usize,
    /// The amounts consumed of a shared device.
    pub(crate) amounts: Option<Amounts>,
    done: Done,
}

/// The steps that `give_back` has to undo.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    marked: bool,
    charged: bool,
    grouped: bool,
    constraints: usize,
    aligned: bool,
}

/// The shares of one device that this attempt took.
#[derive(Debug, Clone, Default)]
struct Shares {
    count: u32,
    consumed: Vec<Decimal>,
}

/// The question of an attempt: the claims of a Pod, on one node, in one snapshot.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) view: Arc<NodeView>,
    pub(crate) node: Arc<Node>,
    pub(crate) snapshot: Snapshot,
}

impl Question {
    /// Whether the answer is no without a search: the Pod needs a device, and claims hold every
    /// device of the node exclusively. No selector would be evaluated either. On a full cluster
    /// this holds for most nodes.
    pub(crate) fn is_about_nothing(&self) -> bool {
        self.prepared.needs_a_device
            && self.view.error.is_none()
            && self.view.invalid().is_none()
            && self.view.slices.iter().all(|slice| self.snapshot.holds_all(slice))
    }
}

/// An attempt on one node.
pub(crate) struct Attempt {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) view: Arc<NodeView>,
    pub(crate) node: Arc<Node>,
    pub(crate) snapshot: Snapshot,
    /// By slice of the view.
    held: Vec<Arc<[Held]>>,
    pub(crate) placed: Vec<Placed>,
    /// The number of requests of this attempt that have the device as a whole, by device.
    marks: Vec<u16>,
    shares: FxHashMap<usize, Shares>,
    drawn: FxHashMap<usize, Drawn>,
    groups: FxHashMap<usize, Groups>,
    /// By claim, then by constraint.
    pub(crate) constrained: Vec<Vec<Constrained>>,
    /// The values that all devices of the Pod share, where it asks for that.
    aligned: Constrained,
    /// Weights by device, once a solution was refused for something that the search does not know. Devices of
    /// one weight are the same in that respect; a device without a weight is like no other.
    pub(crate) weights: Option<Vec<Option<u64>>>,
    /// By device: the reason for its place, where best fit has put the devices in order.
    pub(crate) losses: Vec<Loss>,
    /// Where the devices have to be, where that is tried.
    pub(crate) confined: Option<Confined>,
    pub(crate) pace: Pace,
}

impl Attempt {
    pub(crate) fn new(question: Question) -> Self {
        let Question { prepared, view, node, snapshot } = question;
        let constrained = |claim: &PreparedClaim| vec![Constrained::default(); claim.constraints.len()];
        let mut this = Self {
            held: view.slices.iter().map(|slice| snapshot.held(slice)).collect(),
            placed: Vec::new(),
            marks: vec![0; view.devices.len()],
            shares: FxHashMap::default(),
            drawn: FxHashMap::default(),
            groups: FxHashMap::default(),
            constrained: prepared.wanted.iter().map(constrained).collect(),
            prepared,
            view,
            node,
            snapshot,
            weights: None,
            losses: Vec::new(),
            confined: None,
            aligned: Constrained::default(),
            pace: Pace::default(),
        };
        this.aligned = this.prepared.aligned_by.as_ref().map(|by| align::had(&this, by)).unwrap_or_default();
        this
    }

    pub(crate) fn question(&self) -> Question {
        let (prepared, view) = (self.prepared.clone(), self.view.clone());
        Question { prepared, view, node: self.node.clone(), snapshot: self.snapshot.clone() }
    }

    pub(crate) fn into_question(self) -> Question {
        let Self { prepared, view, node, snapshot, .. } = self;
        Question { prepared, view, node, snapshot }
    }

    pub(crate) fn gates(&self) -> &Gates {
        &self.prepared.gates
    }

    /// Returns the sum of 8 − the index of the chosen sub-request, over all requests with `firstAvailable`.
    pub(crate) fn preference(&self) -> u64 {
        let mut sum = 0;
        for (claim, prepared) in self.prepared.wanted.iter().enumerate() {
            for (request, prepared) in prepared.requests.iter().enumerate() {
                let mut placed = self.placed.iter();
                let of_request =
                    |placed: &&Placed| placed.ask.claim == claim && placed.ask.request == request;
                let chosen = placed.find(of_request).filter(|_| prepared.first_available);
                sum += chosen.map_or(0, |placed| 8_u64.saturating_sub(placed.ask.sub as u64));
            }
        }
        sum
    }

    pub(crate) fn held(&self, device: &ViewDevice) -> Option<&Held> {
        self.held.get(device.slice)?.get(device.place)
    }

    /// Returns the number of devices that the claim has so far.
    pub(crate) fn results_of(&self, claim: usize) -> usize {
        self.placed.iter().rev().take_while(|placed| placed.ask.claim == claim).count()
    }

    fn has(&self, claim: usize, device: usize) -> bool {
        let of_claim = self.placed.iter().rev().take_while(|placed| placed.ask.claim == claim);
        of_claim.into_iter().any(|placed| placed.device == device)
    }

    /// Returns the cause if a claim or this attempt has the device exclusively. A request with
    /// admin access is refused only a dedicated device that its own claim has already.
    pub(crate) fn in_use(&self, ask: Ask, admin: bool, device: usize) -> Option<Cause> {
        if admin {
            // A claim with admin access may take another share of a shared device.
            let shared = self.view.devices.get(device).is_some_and(|device| self.is_shared(device));
            return (!shared && self.has(ask.claim, device)).then_some(Cause::TakenHere);
        }
        let held = self.view.devices.get(device).and_then(|device| self.held(device));
        if held.is_some_and(|held| held.exclusively(self.gates())) {
            return Some(Cause::Taken);
        }
        (self.marks.get(device).is_some_and(|marks| *marks > 0)).then_some(Cause::TakenHere)
    }

    /// Whether this attempt has left the device alone.
    pub(crate) fn is_fresh(&self, device: usize) -> bool {
        self.marks.get(device).is_none_or(|marks| *marks == 0) && !self.shares.contains_key(&device)
    }

    /// Returns how often this attempt has the device as a whole, how many shares it has, and the
    /// amounts that the shares consume.
    pub(crate) fn taken_of(&self, device: usize) -> (u64, u64, Option<&[Decimal]>) {
        let shares = self.shares.get(&device);
        let marks = self.marks.get(device).copied().unwrap_or_default();
        let consumed = shares.map(|shares| shares.consumed.as_slice());
        (marks.into(), shares.map_or(0, |shares| shares.count.into()), consumed)
    }

    pub(crate) fn is_shared(&self, device: &ViewDevice) -> bool {
        self.gates().consumable_capacity && device.device.allow_multiple_allocations
    }

    /// Whether the device is one of those that a request is about.
    pub(crate) fn selected(&self, ask: Ask, asked: &Asked, device: &ViewDevice) -> Result<(), Refusal> {
        if device.device.unreadable.is_some() {
            return Err(Cause::Unreadable.into());
        }
        if !device.device.binding_conditions.is_empty() && !self.gates().binding_conditions {
            return Err(Cause::BindingConditions.into());
        }
        let verdict = asked.selectors.say(&device.content, &self.pace).map_err(|unsaid| match unsaid {
            Unsaid::Stopped(stopped) => Refusal::from(stopped),
            Unsaid::TooExpensive => {
                let field = format!("{}.selectors", asked.path);
                PodError::too_expensive(self.claim_object(ask.claim), field).into()
            }
        })?;
        match verdict {
            Verdict::Selected => {}
            Verdict::NotOfClass(_) => return Err(Cause::NotOfClass.into()),
            Verdict::NotOfRequest(_) => return Err(Cause::Selector.into()),
            Verdict::ClassFailed(number, why) => {
                let class = &asked.class.name;
                let message = at_device(asked.selectors.is_broken(false, number), device, &why);
                let field = format!("spec.selectors[{number}].cel.expression");
                return Err(PodError::new(Object::Class(class.clone()), field, message).into());
            }
            Verdict::RequestFailed(number, why) => {
                let claim = self.claim_object(ask.claim);
                let message = at_device(asked.selectors.is_broken(true, number), device, &why);
                let field = format!("{}.selectors[{number}].cel.expression", asked.path);
                return Err(PodError::new(claim, field, message).into());
            }
        }
        match &device.reach {
            Ok(true) => Ok(()),
            Ok(false) => Err(Cause::OtherNode.into()),
            Err(error) => Err(error.clone().into()),
        }
    }

    /// Whether any of the Pod's requests selects the device.
    pub(crate) fn is_asked_for(&self, device: &ViewDevice) -> bool {
        let claims = self.prepared.wanted.iter().enumerate();
        let mut requests = claims.flat_map(|(number, claim)| {
            claim
                .requests
                .iter()
                .flat_map(move |request| request.asked.iter().map(move |asked| (number, asked)))
        });
        requests.any(|(claim, asked)| self.selected(Ask { claim, request: 0, sub: 0 }, asked, device).is_ok())
    }

    /// Whether a request asks for admin access.
    pub(crate) fn is_admin(&self, ask: Ask) -> bool {
        let request = self.prepared.wanted.get(ask.claim).and_then(|claim| claim.requests.get(ask.request));
        request.and_then(|request| request.asked.get(ask.sub)).is_some_and(|asked| asked.admin)
    }

    pub(crate) fn claim_object(&self, claim: usize) -> Object {
        let claim = self.prepared.wanted.get(claim).map(|prepared| &prepared.claim);
        claim.map_or_else(
            || Object::Claim("".into(), "".into()),
            |claim| Object::Claim(claim.namespace.clone(), claim.name.clone()),
        )
    }

    /// Returns the amounts that the request consumes of the device. For a dedicated device the
    /// amounts must suffice too, but they are not recorded.
    pub(crate) fn consumed(
        &self,
        ask: Ask,
        asked: &Asked,
        number: usize,
        device: &ViewDevice,
    ) -> Result<Amounts, Refusal> {
        self.consumption(ask, asked, device, self.held(device), self.shares.get(&number))
    }

    /// Whether the capacity of the device suffices for the request, given its held state and no
    /// share of this attempt.
    pub(crate) fn suffices(
        &self,
        ask: Ask,
        asked: &Asked,
        device: &ViewDevice,
        held: Option<&Held>,
    ) -> Result<(), Refusal> {
        self.consumption(ask, asked, device, held, None).map(|_| ())
    }

    /// The driver of a device.
    fn driver(&self, device: &ViewDevice) -> &str {
        self.view.pools.get(device.pool).map_or("", |pool| &pool.key.driver)
    }

    /// Returns the consumed amount of a capacity: by claims and by this attempt.
    pub(super) fn taken(&self, number: usize, name: &Name, place: usize) -> Decimal {
        let device = self.view.devices.get(number);
        let held = device.and_then(|device| Some((self.driver(device), self.held(device)?)));
        taken(held, self.shares.get(&number), name, place)
    }

    fn consumption(
        &self,
        ask: Ask,
        asked: &Asked,
        device: &ViewDevice,
        held: Option<&Held>,
        ours: Option<&Shares>,
    ) -> Result<Amounts, Refusal> {
        if !self.gates().consumable_capacity {
            return Ok(Amounts::default());
        }
        let held = held.map(|held| (self.driver(device), held));
        let taken = |name: &Name, place: usize| taken(held, ours, name, place);
        consume(&device.content.capacities, &asked.capacity, taken, self.gates()).map_err(|short| match short
        {
            Short::Device => Cause::Capacity.into(),
            Short::Request(why) => {
                let field = format!("{}.capacity.requests", asked.path);
                let message = format!("on device {}: {why}", device.device.name);
                PodError::new(self.claim_object(ask.claim), field, message).into()
            }
        })
    }

    /// Places a device. A refusal leaves the attempt unchanged.
    pub(crate) fn place(
        &mut self,
        ask: Ask,
        request: &PreparedRequest,
        asked: &Asked,
        number: usize,
    ) -> Result<(), Refusal> {
        let view = self.view.clone();
        let Some(device) = view.devices.get(number) else { return Err(Cause::OtherNode.into()) };
        let slice = view.slices.get(device.slice);
        self.may_have(ask, asked, number, device, slice)?;
        let mut placed = Placed { ask, device: number, amounts: None, done: Done::default() };
        let prepared = self.prepared.clone();
        let claim = prepared.wanted.get(ask.claim);
        let result = self.take(&mut placed, claim, request, asked, device);
        match result {
            Ok(()) => {
                self.placed.push(placed);
                Ok(())
            }
            Err(refusal) => {
                self.give_back(&placed, device);
                Err(refusal)
            }
        }
    }

    /// Makes the checks that change nothing.
    fn may_have(
        &self,
        ask: Ask,
        asked: &Asked,
        number: usize,
        device: &ViewDevice,
        slice: Option<&Arc<PreparedSlice>>,
    ) -> Result<(), Refusal> {
        if let Some(cause) = self.in_use(ask, asked.admin, number) {
            return Err(cause.into());
        }
        let confined = self.confined.as_ref().filter(|_| !asked.admin);
        if confined.is_some_and(|place| !place.admits(self.driver(device), device, self.gates())) {
            return Err(Cause::Constraint.into());
        }
        if !asked.admin && !self.is_shared(device) && self.has_shares(device, number) {
            return Err(Cause::DedicatedOrShared.into());
        }
        self.node_has(device, slice)
    }

    /// Whether the device could be given to the request at some point, whatever this attempt has
    /// placed.
    pub(crate) fn may_ever(&self, ask: Ask, asked: &Asked, number: usize) -> Result<(), Refusal> {
        let Some(device) = self.view.devices.get(number) else { return Err(Cause::OtherNode.into()) };
        let held = self.held(device).filter(|_| !asked.admin);
        if held.is_some_and(|held| held.exclusively(self.gates())) {
            return Err(Cause::Taken.into());
        }
        self.selected(ask, asked, device)?;
        self.suffices(ask, asked, device, self.held(device))?;
        if held.is_some_and(|held| held.shared(self.gates()) && !self.is_shared(device)) {
            return Err(Cause::DedicatedOrShared.into());
        }
        self.node_has(device, self.view.slices.get(device.slice))?;
        self.tolerated(asked, device)
    }

    fn node_has(&self, device: &ViewDevice, slice: Option<&Arc<PreparedSlice>>) -> Result<(), Refusal> {
        let gates = self.gates();
        let skips = slice.is_some_and(|slice| !slice.slice.skip_node_operations.is_empty());
        let supported = || self.node.declared_features.iter().any(|name| &**name == OPTIONAL_NODE_OPERATIONS);
        if skips && !(gates.optional_node_operations && supported()) {
            return Err(Cause::NodeOperation.into());
        }
        if !device.device.consumes_counters.is_empty() && !gates.partitionable_devices {
            return Err(Cause::Counters.into());
        }
        Ok(())
    }

    fn has_shares(&self, device: &ViewDevice, number: usize) -> bool {
        self.held(device).is_some_and(|held| held.shared(self.gates()))
            || self.shares.get(&number).is_some_and(|shares| shares.count > 0)
    }

    fn take(
        &mut self,
        placed: &mut Placed,
        claim: Option<&PreparedClaim>,
        request: &PreparedRequest,
        asked: &Asked,
        device: &ViewDevice,
    ) -> Result<(), Refusal> {
        let (gates, number) = (*self.gates(), placed.device);
        let shared = self.is_shared(device);
        // A further share of a device draws nothing more.
        let further = shared && self.has_shares(device, number);
        let draws = !further && !device.device.consumes_counters.is_empty();
        if draws && gates.compatibility_groups {
            placed.done.grouped = self.groups(device.pool).is_some_and(|groups| groups.add(&device.device));
            if !placed.done.grouped {
                return Err(Cause::CompatibilityGroup.into());
            }
        }
        if draws {
            placed.done.charged = self.drawn(device.pool).is_some_and(|drawn| drawn.charge(device));
            if !placed.done.charged {
                return Err(Cause::Counters.into());
            }
        }
        self.tolerated(asked, device)?;
        if let Some(claim) = claim {
            self.constrain(placed, claim, request, asked, device)?;
        }
        if !shared && let Some(marks) = self.marks.get_mut(number) {
            *marks += 1;
            placed.done.marked = true;
        }
        let amounts = self.consumed(placed.ask, asked, number, device)?;
        if shared {
            let ours = self.shares.entry(number).or_default();
            ours.consumed.resize(amounts.len(), Decimal::ZERO);
            ours.count += 1;
            for (sum, amount) in ours.consumed.iter_mut().zip(&amounts) {
                *sum = sum.checked_add(*amount).unwrap_or(*sum);
            }
            placed.amounts = Some(amounts);
        }
        Ok(())
    }

    fn tolerated(&self, asked: &Asked, device: &ViewDevice) -> Result<(), Refusal> {
        let tolerated =
            |repels: &Repels| asked.tolerations.iter().any(|known| known.tolerates(&repels.taint));
        if self.gates().device_taints && !device.taints.iter().all(tolerated) {
            return Err(Cause::Tainted.into());
        }
        Ok(())
    }

    fn constrain(
        &mut self,
        placed: &mut Placed,
        claim: &PreparedClaim,
        request: &PreparedRequest,
        asked: &Asked,
        device: &ViewDevice,
    ) -> Result<(), Refusal> {
        let (gates, object) = (*self.gates(), self.claim_object(placed.ask.claim));
        let driver = self.view.pools.get(device.pool).map(|pool| pool.key.driver.clone()).unwrap_or_default();
        let Some(constrained) = self.constrained.get_mut(placed.ask.claim) else { return Ok(()) };
        for (constraint, known) in claim.constraints.iter().zip(constrained) {
            if constraint.covers(request, asked) {
                let values = values_of(constraint, asked, device, &driver, &object, &gates, &self.pace)?;
                if !known.add(constraint.distinct, values) {
                    return Err(Cause::Constraint.into());
                }
            }
            placed.done.constraints += 1;
        }
        if self.prepared.aligned_by.is_some() && !asked.admin {
            let values = self.aligned_values(placed.device);
            if !self.aligned.add(false, values) {
                return Err(Cause::Alignment.into());
            }
            placed.done.aligned = true;
        }
        Ok(())
    }

    /// The values that a device has of the attribute which all devices of the Pod have to share, if they have to.
    pub(crate) fn aligned_values(&self, number: usize) -> Option<Values> {
        let attribute = self.prepared.aligned_by.as_ref()?;
        let device = self.view.devices.get(number)?;
        let driver = &self.view.pools.get(device.pool)?.key.driver;
        Values::of(device.device.attribute(driver, attribute)?, self.gates())
    }

    /// The values that the devices of the Pod share by now.
    pub(crate) fn aligned(&self) -> Option<&Values> {
        self.aligned.values.last()
    }

    /// Removes the last device.
    pub(crate) fn unplace(&mut self) {
        let Some(placed) = self.placed.pop() else { return };
        let view = self.view.clone();
        if let Some(device) = view.devices.get(placed.device) {
            self.give_back(&placed, device);
        }
    }

    fn give_back(&mut self, placed: &Placed, device: &ViewDevice) {
        let Done { marked, charged, grouped, constraints, aligned } = placed.done;
        if aligned {
            self.aligned.remove();
        }
        if let Some(amounts) = &placed.amounts {
            self.unshare(placed.device, amounts);
        }
        if marked && let Some(marks) = self.marks.get_mut(placed.device) {
            *marks -= 1;
        }
        let prepared = self.prepared.clone();
        if let Some(claim) = prepared.wanted.get(placed.ask.claim)
            && let Some(request) = claim.requests.get(placed.ask.request)
            && let Some(asked) = request.asked.get(placed.ask.sub)
            && let Some(constrained) = self.constrained.get_mut(placed.ask.claim)
        {
            let added = claim.constraints.iter().zip(constrained).take(constraints);
            let covering = added.filter(|(constraint, _)| constraint.covers(request, asked));
            covering.for_each(|(_, known)| known.remove());
        }
        if charged && let Some(drawn) = self.drawn(device.pool) {
            drawn.give_back(device);
        }
        if grouped && let Some(groups) = self.groups(device.pool) {
            groups.remove(&device.device);
        }
    }

    fn unshare(&mut self, device: usize, amounts: &Amounts) {
        let Some(shares) = self.shares.get_mut(&device) else { return };
        shares.count -= 1;
        for (sum, amount) in shares.consumed.iter_mut().zip(amounts) {
            *sum = sum.checked_sub(*amount).unwrap_or(*sum);
        }
        if shares.count == 0 {
            self.shares.remove(&device);
        }
    }

    pub(super) fn drawn(&mut self, pool: usize) -> Option<&mut Drawn> {
        let known = self.view.pools.get(pool)?;
        Some(self.drawn.entry(pool).or_insert_with(|| Drawn::new(known, &self.snapshot)))
    }

    pub(super) fn groups(&mut self, pool: usize) -> Option<&mut Groups> {
        let known = self.view.pools.get(pool)?;
        Some(self.groups.entry(pool).or_insert_with(|| Groups::new(known, &self.snapshot)))
    }
}

/// Returns the message of a failed selector. A fault of the expression is not one of the device that
/// happened to be first.
fn at_device(is_broken: bool, device: &ViewDevice, why: &str) -> String {
    if is_broken { why.to_owned() } else { format!("on device {}: {why}", device.device.name) }
}

/// `held`: what claims hold of the device, and its driver.
fn taken(held: Option<(&str, &Held)>, ours: Option<&Shares>, name: &Name, place: usize) -> Decimal {
    let held = held.map(|(driver, held)| held.consumed(driver, name)).unwrap_or_default();
    let ours = ours.and_then(|ours| ours.consumed.get(place).copied()).unwrap_or_default();
    held.checked_add(ours).unwrap_or(held)
}
