//! The work of a search, and the two limits that end it early: the budget and the interrupt.
//!
//! The unit of work is one examined device. Selectors are charged in the same unit when they are
//! evaluated; a remembered verdict costs nothing. What selectors cost together for the claims of a
//! Pod on one node has a limit of its own, which does not depend on what is remembered.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::FxHashSet;

use crate::cel::COST_LIMIT;

/// The cost of CEL that takes as long as examining one device. A microsecond pays for about twenty
/// units of cost, and a device is examined in some microseconds.
const COST_OF_A_DEVICE: u64 = 64;

/// The cost from which a verdict counts towards [`MOST_COST`]. A selector without loops costs less
/// than a hundred.
const EXPENSIVE: u64 = 1_000;

/// The largest cost of all selectors and derived attributes of a Pod on one node: ten times what
/// Kubernetes allows for one selector and one device. It is about half a second of evaluation.
pub(crate) const MOST_COST: u64 = 10 * COST_LIMIT;

/// The search has to stop here. It can go on from the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The budget is spent.
    Budget,
    /// The next expression may be costly, and the options leave those out.
    Costly,
    /// The interrupt flag is set.
    Interrupt,
}

/// The work done, and what ends the search.
#[derive(Debug)]
pub(crate) struct Pace {
    work: Cell<u64>,
    /// The cost of CEL in it.
    evaluated: Cell<u64>,
    stop_at: Cell<u64>,
    interrupt: RefCell<Option<Arc<AtomicBool>>>,
    /// Whether expressions that may be costly are not evaluated.
    spares: Cell<bool>,
    /// Whether such an expression comes next.
    is_before_costly: Cell<bool>,
    /// The cost of expensive verdicts, and which they are: the identities of the evaluated
    /// expressions and of the content.
    expensive: RefCell<(u64, FxHashSet<(usize, u64)>)>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            work: Cell::default(),
            evaluated: Cell::default(),
            stop_at: Cell::new(u64::MAX),
            interrupt: RefCell::default(),
            spares: Cell::default(),
            is_before_costly: Cell::default(),
            expensive: RefCell::default(),
        }
    }
}

impl Pace {
    /// Sets the limits. The budget is additional to the work done so far.
    pub(crate) fn limit(&self, budget: u64, interrupt: Option<&Arc<AtomicBool>>) {
        self.stop_at.set(self.work.get().saturating_add(budget));
        self.interrupt.replace(interrupt.cloned());
        self.is_before_costly.set(false);
    }

    /// Sets whether expressions that may be costly are left out. What is remembered of them counts.
    pub(crate) fn spare(&self, costly: bool) {
        self.spares.set(costly);
    }

    /// Passes over what is costly: what comes next may not be.
    pub(crate) fn passes_over(&self) {
        self.is_before_costly.set(false);
    }

    /// Returns the reason to stop, if there is one.
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        self.reason(self.work.get() >= self.stop_at.get())
    }

    /// Whether a verdict may be evaluated. The last device of the budget gets one verdict, so that
    /// every budget gets a search further.
    pub(crate) fn may_evaluate(&self, is_costly: impl FnOnce() -> bool) -> Result<(), Stopped> {
        if self.spares.get() && is_costly() {
            self.is_before_costly.set(true);
        }
        self.reason(self.work.get() > self.stop_at.get()).map_or(Ok(()), Err)
    }

    /// Whether the interrupt flag is set.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupt.borrow().as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    fn reason(&self, is_spent: bool) -> Option<Stopped> {
        if self.is_interrupted() {
            return Some(Stopped::Interrupt);
        }
        if self.is_before_costly.get() {
            return Some(Stopped::Costly);
        }
        is_spent.then_some(Stopped::Budget)
    }

    /// Begins a piece of work of this size, unless the search has to stop.
    pub(crate) fn begin(&self, devices: u64) -> Result<(), Stopped> {
        if let Some(stopped) = self.stopped() {
            return Err(stopped);
        }
        self.did(devices);
        Ok(())
    }

    /// The work so far, in examined devices.
    pub(crate) fn work(&self) -> u64 {
        self.work.get()
    }

    /// Adds work that was done.
    pub(crate) fn did(&self, devices: u64) {
        self.work.set(self.work.get().saturating_add(devices));
    }

    /// Adds an evaluation of this cost to the work.
    pub(crate) fn evaluated(&self, cost: u64) {
        self.evaluated.set(self.evaluated.get().saturating_add(cost));
        self.did(cost / COST_OF_A_DEVICE);
    }

    /// The cost of all evaluations so far.
    pub(crate) fn cost(&self) -> u64 {
        self.evaluated.get()
    }

    /// The flag that evaluations look at.
    pub(crate) fn interrupt(&self) -> Option<Arc<AtomicBool>> {
        self.interrupt.borrow().clone()
    }

    /// Counts the cost of a verdict on a content, once. Returns whether all verdicts so far stay
    /// within the limit.
    pub(crate) fn affords(&self, expressions: usize, content: u64, cost: u64) -> bool {
        if cost < EXPENSIVE {
            return true;
        }
        let (sum, known) = &mut *self.expensive.borrow_mut();
        if known.insert((expressions, content)) {
            *sum = sum.saturating_add(cost);
        }
        *sum <= MOST_COST
    }
}
