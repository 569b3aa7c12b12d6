//! Requests, and the rules for one device alone.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use dragoman_objects::{AllocationMode, Attribute, Class, DeviceId, Name, Selector, SubRequest};

use super::held::Held;
use super::pools::{Usable, reaches};
use super::rule::Rule;
use crate::capacity::capacities;
use crate::cel::{BoundDevice, CompileError, Compiler, Expression, Purpose};
use crate::gates::Gates;
use crate::input::{Claim, Cluster, Node};

/// A request or a sub-request.
#[derive(Debug, Clone)]
pub(super) struct Ask<'a> {
    /// `request` or `request/subrequest`.
    pub(super) name: Name,
    /// The index of the claim, and of the request in it.
    pub(super) claim: usize,
    pub(super) request: usize,
    pub(super) spec: &'a SubRequest,
    pub(super) admin: bool,
    /// `None` if the class does not exist: nothing can be allocated then.
    pub(super) class: Option<&'a Class>,
}

impl Ask<'_> {
    pub(super) fn wants_all(&self) -> bool {
        self.spec.allocation_mode == AllocationMode::All
    }

    /// Returns the requested amount of a capacity.
    pub(super) fn capacity(&self, name: &Name) -> Option<dragoman_quantity::Decimal> {
        let requests = &self.spec.capacity.as_ref()?.requests;
        requests.get(name).map(|amount| amount.amount)
    }
}

/// Returns the alternatives of every request: its sub-requests, or the request itself.
pub(super) fn asks<'a>(cluster: &'a Cluster, wanted: &[&'a Claim]) -> Vec<Vec<Ask<'a>>> {
    let class = |spec: &SubRequest| cluster.classes.iter().find(|class| class.name == spec.device_class_name);
    let mut asks = Vec::new();
    for (claim, spec) in wanted.iter().enumerate() {
        let is_read = spec.devices.unreadable.is_none();
        for (request, spec) in spec.devices.requests.iter().enumerate() {
            let ask = |name: Name, spec: &'a SubRequest, admin: bool| Ask {
                name,
                claim,
                request,
                spec,
                admin,
                class: class(spec),
            };
            let exactly = spec
                .exactly
                .iter()
                .map(|exactly| ask(spec.name.clone(), &exactly.asked, exactly.admin_access == Some(true)));
            // `firstAvailable` is ignored where `exactly` is set.
            let subs = spec.first_available.iter().filter(|_| spec.exactly.is_none());
            let subs = subs.map(|sub| ask(format!("{}/{}", spec.name, sub.name).into(), sub, false));
            let asked = exactly.chain(subs).filter(|_| is_read);
            asks.push(asked.collect());
        }
    }
    asks
}

/// The number of expressions above which `forget_many` drops all.
const MOST_COMPILED: usize = 1024;

/// A cache of compiled expressions. It grows until [`Expressions::forget_many`] is called.
#[derive(Debug, Default)]
pub struct Expressions {
    compiler: Compiler,
    /// The units that selectors may cost still, where there is a limit.
    left: Option<Cell<u64>>,
    known: RefCell<HashMap<(Name, Purpose), Rc<Result<Expression, CompileError>>>>,
}

/// Cost of compiling a character of a selector, in the units of its evaluation.
const COMPILED: u64 = 10;

impl Expressions {
    /// A cache for checks that must not call wrong what is not known. The selectors of requests cost so many units at most, and one
    /// that comes after that holds for every device. So does one that cannot be compiled or evaluated here: a newer API server may have
    /// functions and types that this version lacks.
    pub fn within(units: u64) -> Self {
        Self { left: Some(Cell::new(units)), ..Self::default() }
    }

    /// Whether the units are spent.
    fn is_spent(&self) -> bool {
        self.left.as_ref().is_some_and(|left| left.get() == 0)
    }

    fn spend(&self, units: u64) {
        self.left.iter().for_each(|left| left.set(left.get().saturating_sub(units)));
    }

    /// Clears the cache if it is large. For callers that check without end.
    pub fn forget_many(&mut self) {
        let known = self.known.get_mut();
        if known.len() > MOST_COMPILED {
            known.clear();
        }
    }

    fn get(&self, text: &str, purpose: Purpose) -> Rc<Result<Expression, CompileError>> {
        let mut known = self.known.borrow_mut();
        let compiled = known.entry((text.into(), purpose)).or_insert_with(|| {
            self.spend(COMPILED.saturating_mul(text.len() as u64));
            Rc::new(self.compiler.compile(text, purpose))
        });
        compiled.clone()
    }

    /// Whether all selectors hold. A selector that fails does not hold, unless the cache has a limit.
    fn hold(&self, selectors: &[Selector], device: &BoundDevice) -> bool {
        let is_lenient = self.left.is_some();
        selectors.iter().all(|selector| {
            if self.is_spent() {
                return true;
            }
            let compiled = self.get(selector.expression(), Purpose::Selector);
            let Ok(expression) = compiled.as_ref() else { return is_lenient };
            let (verdict, cost) = expression.matches_at_cost(device);
            self.spend(cost);
            verdict.unwrap_or(is_lenient)
        })
    }

    /// The same for the selectors of a class. An administrator writes them: they cost what they cost.
    fn hold_of_class(&self, selectors: &[Selector], device: &BoundDevice) -> bool {
        let left = self.left.as_ref().map(|left| left.replace(u64::MAX));
        let holds = self.hold(selectors, device);
        self.left.iter().zip(left).for_each(|(of, left)| of.set(left));
        holds
    }

    /// Returns the attribute that an expression computes.
    pub(super) fn derive(
        &self,
        text: &str,
        driver: &Name,
        device: &Arc<dragoman_objects::Device>,
    ) -> Option<Attribute> {
        let compiled = self.get(text, Purpose::DerivedAttribute);
        let device = BoundDevice::new(driver.clone(), device.clone());
        compiled.as_ref().as_ref().ok()?.derive(&device).ok()
    }
}

/// The state that the rules for one device depend on.
pub(super) struct Alone<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) node: &'a Node,
    pub(super) gates: Gates,
    pub(super) held: &'a Held,
    pub(super) expressions: &'a Expressions,
}

impl Alone<'_> {
    /// Returns the rule that keeps the request from selecting the device. A request for all devices
    /// wants every device that it selects.
    pub(super) fn about(&self, ask: &Ask<'_>, usable: &Usable<'_>) -> Option<Rule> {
        let device = usable.device;
        let bound = BoundDevice::new(usable.slice.driver.clone(), Arc::new(device.clone()));
        // Of what cannot be read it is not known whether it belongs to the class.
        let is_read = |class: &Class| class.unreadable.is_none() && device.unreadable.is_none();
        let class = ask
            .class
            .is_some_and(|class| is_read(class) && self.expressions.hold_of_class(&class.selectors, &bound));
        let holds = [
            (Rule::BindingConditions, device.binding_conditions.is_empty() || self.gates.binding_conditions),
            (Rule::Class, class),
            (Rule::Selector, self.expressions.hold(&ask.spec.selectors, &bound)),
            (Rule::Node, reaches(usable.slice, device, self.node) == Ok(true)),
            (Rule::Capacity, self.has_capacity(ask, usable)),
        ];
        holds.iter().find(|(_, holds)| !holds).map(|(rule, _)| *rule)
    }

    /// Whether the device has the requested capacity, with nothing of it consumed.
    fn has_capacity(&self, ask: &Ask<'_>, usable: &Usable<'_>) -> bool {
        let known = capacities(usable.device);
        let requested = ask.spec.capacity.iter().flat_map(|capacity| capacity.requests.keys());
        let mut unknown = requested.filter(|name| known.iter().all(|(known, _)| known != *name));
        let mut amounts = known.iter().map(|(name, capacity)| {
            let amount = capacity.consumed(name, ask.capacity(name), crate::capacity::steps(&self.gates));
            amount.is_ok_and(|amount| amount <= capacity.value)
        });
        !self.gates.consumable_capacity || (unknown.next().is_none() && amounts.all(|fine| fine))
    }

    /// Returns every rule that the device breaks, apart from other devices of the result.
    pub(super) fn broken(&self, ask: &Ask<'_>, usable: &Usable<'_>) -> Vec<Rule> {
        let device = usable.device;
        let id = usable.id();
        let shares = self.gates.consumable_capacity && device.allow_multiple_allocations;
        let taken = self.held.whole.contains(&id) || (!shares && self.held.shared.contains(&id));
        let skips = !usable.slice.skip_node_operations.is_empty();
        let supported = self.gates.optional_node_operations
            && self.node.declared_features.iter().any(|name| &**name == "DRAOptionalNodeOperations");
        let rest = [
            (Rule::Taken, ask.admin || !taken),
            (Rule::NodeOperations, !skips || supported),
            (Rule::Counters, device.consumes_counters.is_empty() || self.gates.partitionable_devices),
            (Rule::Taint, !self.gates.device_taints || self.tolerates(ask, usable)),
        ];
        let rest = rest.iter().filter(|(_, holds)| !holds).map(|(rule, _)| *rule);
        self.about(ask, usable).into_iter().chain(rest).collect()
    }

    fn tolerates(&self, ask: &Ask<'_>, usable: &Usable<'_>) -> bool {
        let DeviceId { driver, pool, device } = usable.id();
        let rules = self.cluster.taint_rules.iter().filter(|_| self.gates.device_taint_rules);
        let rules = rules.filter(|rule| rule.selects(&driver, &pool, &device)).map(|rule| &rule.taint);
        let repel = usable.device.taints.iter().chain(rules).filter(|taint| taint.repels());
        repel
            .into_iter()
            .all(|taint| ask.spec.tolerations.iter().any(|toleration| toleration.tolerates(taint)))
    }
}
