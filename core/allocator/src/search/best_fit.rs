//! Best fit: of the devices that satisfy a request, the one whose allocation leaves most available is tried first
//! (docs/allocator.md 3.1). The search is the same as for first fit; the devices of the node are in another order.
//!
//! The order is made once for an attempt, of what claims hold before it. Amounts are millionths of what is declared: an
//! order needs no exact amounts, and comparing thousands of exact ones for each decision is slow.

use std::fmt;
use std::sync::Arc;

use dragoman_objects::own_name;
use dragoman_quantity::Decimal;
use rustc_hash::FxHashMap;

use super::attempt::Attempt;
use crate::claims::{AllWanted, Wanted};
use crate::ranking::Part;
use crate::snapshot::{Held, NodeView, ViewDevice};

/// An amount of a counter or a capacity, where a million is all that is declared.
type Millionths = i64;

/// A counter from which nothing is drawn.
const FULL: Millionths = 1_000_000;

/// The most pairs of devices with a common counter on a node. Eight GPUs with forty partitions each that all draw from eight counters
/// have 102 400. The devices of a node with more stay in the order of Kubernetes: a driver may publish thousands that draw from one
/// counter, and each decision would look at each pair.
const MOST_PAIRS: usize = 1 << 17;

/// The pairs that take as long as examining one device.
const PAIRS_OF_A_DEVICE: u64 = 64;

/// Returns an amount in millionths of another one.
fn millionths(amount: Decimal, of: Decimal) -> Millionths {
    // Nearly every counter is full or empty, and the division is slow.
    if amount == of {
        return if of.is_zero() { 0 } else { FULL };
    }
    if amount.is_zero() {
        return 0;
    }
    Millionths::try_from(Part { used: amount, of }.ratio()).unwrap_or_default()
}

/// The counters that a device draws from, and how much of each.
type Draws = Box<[(usize, Millionths)]>;

/// The loss by a device: the sizes of all devices that are free no more once it is taken, its own included, and the number of the
/// others.
type Lost = (Millionths, usize);

/// The facts about the devices of a view that do not depend on claims. They are computed once for a view.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// By device: the parts of the counters that it draws, or those that its capacities are of the largest on the node.
    by_device: Vec<Millionths>,
    /// By device. Counters are numbered over all pools.
    draws: Vec<Draws>,
    /// By device: the largest amount of each of its capacities on the node, if it is shared.
    scales: Vec<Box<[Decimal]>>,
    /// By device: whether a Pod without tolerations could have it if no claim held anything.
    is_attainable: Vec<bool>,
    /// By device: the loss by it while nothing is drawn from its component. Most GPUs are free or full, so most losses are looked up
    /// here.
    untouched: Vec<Lost>,
    /// By counter: the devices that draw from it.
    drawers: Vec<Vec<usize>>,
    /// By counter: the component that it is in, like a GPU. No device draws from two.
    components: Vec<usize>,
    /// By pool: the number of its first counter, and whether its devices wait for conditions.
    pools: Vec<(usize, bool)>,
}

impl Sizes {
    /// Measures the devices of a view. `None` if every order is as good, because they are alike, or if they are too many for this.
    pub(crate) fn of(view: &NodeView) -> Option<Self> {
        let (mut pools, mut counters) = (Vec::new(), 0);
        for pool in &view.pools {
            pools.push((counters, pool.binds()));
            counters += pool.counters.declared.len();
        }
        let draws: Vec<Draws> = view.devices.iter().map(|device| draws(view, &pools, device)).collect();
        let drawers = drawers(&draws, counters);
        if drawers.iter().map(|of| of.len() * of.len()).sum::<usize>() > MOST_PAIRS {
            return None;
        }
        let largest = largest_capacities(view);
        let size = |(device, draws): (&Arc<ViewDevice>, &Draws)| match &**draws {
            [] => scales(view, &largest, device).sum_of(device, |_| Decimal::ZERO),
            draws => draws.iter().map(|(_, part)| part).sum(),
        };
        let sizes: Vec<Millionths> = view.devices.iter().zip(&draws).map(size).collect();
        let is_shared = |device: &Arc<ViewDevice>| device.device.allow_multiple_allocations;
        let differ = sizes.windows(2).any(|pair| pair.first() != pair.last());
        if !differ && counters == 0 && !view.devices.iter().any(is_shared) {
            return None;
        }
        let scales_of = |device: &Arc<ViewDevice>| {
            if is_shared(device) { scales(view, &largest, device).0 } else { Box::default() }
        };
        let mut known = Self {
            scales: view.devices.iter().map(scales_of).collect(),
            is_attainable: view.devices.iter().map(|device| is_attainable(view, device)).collect(),
            components: components(&draws, counters),
            untouched: Vec::new(),
            by_device: sizes,
            draws,
            drawers,
            pools,
        };
        let mut nothing_is_held = Occupancy::new(&known, vec![FULL; counters]);
        nothing_is_held.is_free.clone_from(&known.is_attainable);
        known.untouched = (0..view.devices.len()).map(|device| nothing_is_held.lost_with(device)).collect();
        Some(known)
    }

    fn size(&self, device: usize) -> Millionths {
        self.by_device.get(device).copied().unwrap_or_default()
    }

    fn draws(&self, device: usize) -> &[(usize, Millionths)] {
        self.draws.get(device).map_or(&[], |draws| draws)
    }
}

/// The largest amounts on a node of the capacities of a device, in their order.
struct Scales(Box<[Decimal]>);

impl Scales {
    /// Sums up what is free of the capacities of a device, of which so much is consumed by name.
    fn sum_of(&self, device: &ViewDevice, consumed: impl Fn(&str) -> Decimal) -> Millionths {
        let capacities = device.device.capacity.iter().zip(&self.0);
        let free = capacities.map(|((name, capacity), largest)| {
            let left = capacity.value.amount.checked_sub(consumed(name)).unwrap_or_default();
            millionths(left, *largest)
        });
        free.sum()
    }
}

/// The largest value of each capacity among the devices of a driver.
type Largest<'a> = FxHashMap<(&'a str, &'a str), Decimal>;

fn largest_capacities(view: &NodeView) -> Largest<'_> {
    let mut largest = Largest::default();
    for device in &view.devices {
        let Some(pool) = view.pools.get(device.pool) else { continue };
        for (name, capacity) in &*device.device.capacity {
            let known = largest.entry((&*pool.key.driver, own_name(&pool.key.driver, name))).or_default();
            *known = capacity.value.amount.max(*known);
        }
    }
    largest
}

fn scales(view: &NodeView, largest: &Largest<'_>, device: &ViewDevice) -> Scales {
    let driver = view.pools.get(device.pool).map_or("", |pool| &*pool.key.driver);
    let of = |name: &str| largest.get(&(driver, own_name(driver, name))).copied().unwrap_or_default();
    Scales(device.device.capacity.keys().map(|name| of(name)).collect())
}

fn draws(view: &NodeView, pools: &[(usize, bool)], device: &ViewDevice) -> Draws {
    let (Some(pool), Some((first, _))) = (view.pools.get(device.pool), pools.get(device.pool)) else {
        return Box::default();
    };
    let of = |(counter, amount): &(usize, Decimal)| {
        let declared = pool.counters.declared.get(*counter).copied().unwrap_or_default();
        (first + counter, millionths(*amount, declared))
    };
    device.draws.iter().map(of).collect()
}

fn is_attainable(view: &NodeView, device: &ViewDevice) -> bool {
    let declared = |counter: usize| view.pools.get(device.pool)?.counters.declared.get(counter).copied();
    device.device.unreadable.is_none()
        && device.reach == Ok(true)
        && device.taints.is_empty()
        && device.draws.iter().all(|(counter, amount)| declared(*counter).is_some_and(|of| *amount <= of))
}

fn drawers(draws: &[Draws], counters: usize) -> Vec<Vec<usize>> {
    let mut drawers = vec![Vec::new(); counters];
    for (number, draws) in draws.iter().enumerate() {
        for (counter, _) in draws {
            drawers.get_mut(*counter).into_iter().for_each(|of: &mut Vec<usize>| of.push(number));
        }
    }
    drawers
}

/// Returns the component of each counter: counters from which one device draws are in one component.
fn components(draws: &[Draws], counters: usize) -> Vec<usize> {
    let mut components: Vec<usize> = (0..counters).collect();
    for draws in draws {
        let Some((first, _)) = draws.first() else { continue };
        let first = root(&mut components, *first);
        for (counter, _) in draws {
            let other = root(&mut components, *counter);
            components.get_mut(other).into_iter().for_each(|component| *component = first);
        }
    }
    (0..counters).map(|counter| root(&mut components, counter)).collect()
}

/// Returns the counter that stands for the component of another one. Halves the way there.
fn root(components: &mut [usize], mut counter: usize) -> usize {
    while let Some(next) = components.get(counter).copied().filter(|next| *next != counter) {
        let after = components.get(next).copied().unwrap_or(next);
        components.get_mut(counter).into_iter().for_each(|component| *component = after);
        counter = after;
    }
    counter
}

/// The reason for which best fit has put a device first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// So many other free devices become unavailable: they draw from the same counters.
    Devices(usize),
    /// The device is shared already.
    Share,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Devices(0) => f.write_str("takes no other free device away"),
            Self::Devices(1) => f.write_str("takes 1 other free device away"),
            Self::Devices(count) => write!(f, "takes {count} other free devices away"),
            Self::Share => f.write_str("is shared already"),
        }
    }
}

/// The position of a device: the least comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    /// Devices of pools that wait for conditions come last, as they do in Kubernetes.
    binds: bool,
    lost: Millionths,
    /// The amounts that are left of the counters that it draws from, or of its capacities if it is shared.
    left: Millionths,
}

/// The part of a node that claims leave.
struct Occupancy<'a> {
    sizes: &'a Sizes,
    /// By counter: the part that claims leave.
    available: Vec<Millionths>,
    /// By device: whether no claim holds it and its counters have enough for it.
    is_free: Vec<bool>,
    /// By component: whether something is drawn from it. Empty while losses are computed to be looked up later.
    is_touched: Vec<bool>,
    /// By device: the last one for which it was looked at.
    looked_at_for: Vec<usize>,
    /// The pairs of devices that were looked at.
    pairs: u64,
}

impl<'a> Occupancy<'a> {
    fn new(sizes: &'a Sizes, available: Vec<Millionths>) -> Self {
        let looked_at_for = vec![usize::MAX; sizes.by_device.len()];
        Self { sizes, available, is_free: Vec::new(), is_touched: Vec::new(), looked_at_for, pairs: 0 }
    }

    fn left(&self, counter: usize) -> Millionths {
        self.available.get(counter).copied().unwrap_or_default()
    }

    fn fits(&self, device: usize) -> bool {
        self.sizes.draws(device).iter().all(|(counter, part)| *part <= self.left(*counter))
    }

    fn charge(&mut self, draws: &[(usize, Millionths)], sign: Millionths) {
        for (counter, part) in draws {
            if let Some(left) = self.available.get_mut(*counter) {
                *left += sign * part;
            }
        }
    }

    fn lost_with(&mut self, device: usize) -> Lost {
        let sizes = self.sizes;
        let draws = sizes.draws(device);
        let component = draws.first().and_then(|(counter, _)| sizes.components.get(*counter));
        let is_touched = component.and_then(|component| self.is_touched.get(*component));
        if let (Some(known), Some(false)) = (sizes.untouched.get(device), is_touched) {
            return *known;
        }
        self.charge(draws, -1);
        let mut lost = (sizes.size(device), 0);
        let drawers = draws.iter().filter_map(|(counter, _)| sizes.drawers.get(*counter)).flatten().copied();
        for other in drawers.filter(|other| *other != device) {
            self.pairs += 1;
            let looked = self.looked_at_for.get_mut(other).map(|last| std::mem::replace(last, device));
            if looked != Some(device) && self.is_free.get(other) == Some(&true) && !self.fits(other) {
                lost = (lost.0 + sizes.size(other), lost.1 + 1);
            }
        }
        self.charge(draws, 1);
        lost
    }

    fn left_by(&self, device: usize) -> Millionths {
        let left = |(counter, part): &(usize, Millionths)| (self.left(*counter) - part).max(0);
        self.sizes.draws(device).iter().map(left).sum()
    }
}

/// Returns what is wanted with the new numbers of devices, which requests for all devices list.
fn renumbered(wanted: &AllWanted, numbers: &[usize]) -> AllWanted {
    let renumber =
        |devices: &Vec<usize>| devices.iter().filter_map(|old| numbers.get(*old).copied()).collect();
    let of_sub = |sub: &Wanted| Wanted { count: sub.count, all: sub.all.as_ref().map(renumber) };
    let of_request = |request: &Vec<Wanted>| request.iter().map(of_sub).collect();
    wanted.iter().map(|claim| claim.iter().map(of_request).collect()).collect()
}

impl Attempt {
    /// Puts the devices first whose allocation leaves most available, before anything is placed. Returns what is wanted, with the new
    /// numbers of devices, or nothing if the devices stay in the order of Kubernetes.
    pub(super) fn prefer_best_fit(&mut self, wanted: &AllWanted) -> Option<AllWanted> {
        let view = self.view.clone();
        let positions = self.positions(&view, view.sizes()?);
        // Devices of one position stay in the order of Kubernetes.
        let numbered = positions.iter().enumerate();
        let mut sorted: Vec<(Position, usize)> =
            numbered.map(|(number, (position, _))| (*position, number)).collect();
        sorted.sort_unstable();
        let order: Vec<usize> = sorted.into_iter().map(|(_, number)| number).collect();
        self.losses =
            order.iter().filter_map(|number| positions.get(*number)).map(|(_, loss)| *loss).collect();
        if order.is_sorted() {
            return None;
        }
        self.view = Arc::new(view.in_order(&order));
        let mut numbers = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            numbers.get_mut(*old).into_iter().for_each(|number| *number = new);
        }
        Some(renumbered(wanted, &numbers))
    }

    fn positions(&mut self, view: &NodeView, sizes: &Sizes) -> Vec<(Position, Loss)> {
        let mut now = Occupancy::new(sizes, self.available(view, sizes));
        now.is_touched = vec![false; sizes.components.len()];
        for (component, left) in sizes.components.iter().zip(&now.available) {
            now.is_touched.get_mut(*component).into_iter().for_each(|touched| *touched |= *left < FULL);
        }
        let is_held = |device: &ViewDevice| self.held(device).is_some_and(Held::at_all);
        let attainable = view.devices.iter().zip(&sizes.is_attainable).enumerate();
        let is_free = |(number, (device, attainable)): (usize, (&Arc<ViewDevice>, &bool))| {
            *attainable && !is_held(device) && now.fits(number)
        };
        now.is_free = attainable.map(is_free).collect();
        let position = |(number, device): (usize, &Arc<ViewDevice>)| {
            let binds = sizes.pools.get(device.pool).is_some_and(|(_, binds)| *binds);
            let place = |lost, left| Position { binds, lost, left };
            if self.is_shared(device) && is_held(device) {
                return (place(0, self.free_capacity(number, device, sizes)), Loss::Share);
            }
            if is_held(device) || !now.fits(number) {
                // It can be given with admin access alone.
                return (place(Millionths::MAX, 0), Loss::Devices(0));
            }
            if !sizes.draws(number).is_empty() {
                let (lost, others) = now.lost_with(number);
                return (place(lost, now.left_by(number)), Loss::Devices(others));
            }
            let (size, is_shared) = (sizes.size(number), self.is_shared(device));
            (if is_shared { place(0, size) } else { place(size, 0) }, Loss::Devices(0))
        };
        let positions = view.devices.iter().enumerate().map(position).collect();
        self.pace.did(view.devices.len() as u64 + now.pairs / PAIRS_OF_A_DEVICE);
        positions
    }

    /// Returns the part of each counter that claims leave.
    fn available(&mut self, view: &NodeView, sizes: &Sizes) -> Vec<Millionths> {
        let mut available = vec![0; sizes.components.len()];
        for (number, (pool, (first, _))) in view.pools.iter().zip(&sizes.pools).enumerate() {
            let declared = &pool.counters.declared;
            let Some(drawn) = (!declared.is_empty()).then(|| self.drawn(number)).flatten() else { continue };
            let parts = drawn.available().zip(declared).map(|(left, of)| millionths(left, *of));
            available.iter_mut().skip(*first).zip(parts).for_each(|(known, part)| *known = part);
        }
        available
    }

    /// Sums up what is free of the capacities of a shared device.
    fn free_capacity(&self, number: usize, device: &ViewDevice, sizes: &Sizes) -> Millionths {
        let (Some(scales), Some(held)) = (sizes.scales.get(number), self.held(device)) else { return 0 };
        let driver = self.view.pools.get(device.pool).map_or("", |pool| &*pool.key.driver);
        Scales(scales.clone()).sum_of(device, |name| held.consumed(driver, own_name(driver, name)))
    }
}
