//! The first solution, found by trying everything in order, without look-ahead and without memory.
//! It suits small clusters only, where its result is beyond doubt. For larger clusters it can count
//! first: requests that want more devices than exist have no solution.

use std::collections::BTreeSet;

use dragoman_objects::Name;

use super::Checker;
use super::ask::Ask;
use super::pools::Usable;
use super::rule::Rule;
use super::together::{self, Given};

/// A device for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The claim, by uid.
    pub claim: Name,
    /// `request` or `request/subrequest`.
    pub request: Name,
    /// The driver of the device.
    pub driver: Name,
    /// The pool of the device.
    pub pool: Name,
    /// The name of the device.
    pub device: Name,
}

/// The result of trying everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// The first solution.
    First(Vec<Choice>),
    /// No solution exists.
    None,
    /// The limit was reached first.
    TooMuch,
}

struct Trying<'a, 'b> {
    checker: &'b Checker<'a>,
    /// By request and sub-request: the indexes of the devices that break no rule alone. For a
    /// request that wants all, the devices that it selects.
    places: Vec<Vec<Vec<usize>>>,
    left: u64,
    counting: Counting,
    accept: &'b dyn Fn(&[Choice]) -> bool,
}

/// Whether to count the devices before they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    Off,
    On,
}

/// The reason to stop: a solution, or the limit.
enum Stop {
    Found(Vec<Choice>),
    TooMuch,
}

pub(super) fn first(
    checker: &Checker<'_>,
    limit: u64,
    counting: Counting,
    accept: &dyn Fn(&[Choice]) -> bool,
) -> Tried {
    let places = checker.asks.iter().map(|subs| {
        let of_sub = |ask: &Ask<'_>| {
            let fits = |(_, usable): &(usize, &Usable<'_>)| {
                if ask.wants_all() {
                    checker.alone().about(ask, usable).is_none()
                } else {
                    checker.alone().broken(ask, usable).is_empty()
                }
            };
            checker.devices.iter().enumerate().filter(fits).map(|(place, _)| place).collect()
        };
        subs.iter().map(of_sub).collect()
    });
    let mut trying = Trying { checker, places: places.collect(), left: limit, counting, accept };
    match trying.request(0, &mut Vec::new()) {
        Ok(()) => Tried::None,
        Err(Stop::Found(choices)) => Tried::First(choices),
        Err(Stop::TooMuch) => Tried::TooMuch,
    }
}

impl<'a, 'b> Trying<'a, 'b> {
    /// Decides a request and all requests after it. A claim has at most 32 requests and 32 devices
    /// (limits of the API), so the recursion is at most 64 levels deep for each claim of the Pod.
    fn request(&mut self, number: usize, given: &mut Vec<Given<'a, 'b>>) -> Result<(), Stop> {
        let checker = self.checker;
        let Some(subs) = checker.asks.get(number) else {
            let choices: Vec<Choice> = given.iter().map(|one| checker.choice(one)).collect();
            return if (self.accept)(&choices) { Err(Stop::Found(choices)) } else { Ok(()) };
        };
        if self.counting == Counting::On && self.are_too_few(number, given) {
            return Ok(());
        }
        for (sub, ask) in subs.iter().enumerate() {
            let all = self.places.get(number).and_then(|subs| subs.get(sub)).map_or(0, Vec::len);
            let count =
                if ask.wants_all() { all } else { usize::try_from(ask.spec.count).unwrap_or_default() };
            if !ask.wants_all() || all > 0 {
                self.devices(number, sub, count, 0, given)?;
            }
        }
        Ok(())
    }

    /// Whether the requests from `number` on want more devices, whichever alternatives they choose,
    /// than are left for them. Always false if a shareable device is left.
    fn are_too_few(&self, number: usize, given: &[Given<'a, 'b>]) -> bool {
        let (mut wanted, mut left) = (0, BTreeSet::new());
        for (subs, places) in self.checker.asks.iter().zip(&self.places).skip(number) {
            let of_sub = |(ask, places): (&Ask<'_>, &Vec<usize>)| {
                if ask.wants_all() {
                    places.len()
                } else {
                    usize::try_from(ask.spec.count).unwrap_or_default()
                }
            };
            if subs.iter().any(|ask| ask.admin) {
                continue;
            }
            wanted += subs.iter().zip(places).map(of_sub).min().unwrap_or_default();
            left.extend(places.iter().flatten().copied());
        }
        let shared = |place: &usize| {
            self.checker.devices.get(*place).is_some_and(|usable| self.checker.shares(usable))
        };
        for one in given.iter().filter(|one| !one.ask.admin) {
            left.remove(&one.place);
        }
        wanted > left.len() && !left.iter().any(shared)
    }

    /// Gives `missing` more devices to a request, from index `from` of its list on.
    fn devices(
        &mut self,
        number: usize,
        sub: usize,
        missing: usize,
        from: usize,
        given: &mut Vec<Given<'a, 'b>>,
    ) -> Result<(), Stop> {
        if missing == 0 {
            return self.request(number + 1, given);
        }
        let checker = self.checker;
        let Some(ask) = checker.asks.get(number).and_then(|subs| subs.get(sub)) else { return Ok(()) };
        let mut next = from;
        while let Some(place) = self
            .places
            .get(number)
            .and_then(|subs| subs.get(sub))
            .and_then(|places| places.get(next))
            .copied()
        {
            self.left = self.left.checked_sub(1).ok_or(Stop::TooMuch)?;
            next += 1;
            let Some(usable) = checker.devices.get(place).copied() else { continue };
            given.push(Given { ask, place, usable });
            let alone = !ask.wants_all() || checker.alone().broken(ask, &usable).is_empty();
            if alone && together::broken(checker, given).is_empty() {
                self.devices(number, sub, missing - 1, next, given)?;
            }
            given.pop();
            if ask.wants_all() {
                break;
            }
        }
        Ok(())
    }
}

/// Returns [`Rule::First`] if the devices are not those of the first solution. Nothing if the limit
/// is reached first.
pub(super) fn is_first(checker: &Checker<'_>, given: &[Given<'_, '_>], limit: u64) -> Option<Rule> {
    let given: Vec<Choice> = given.iter().map(|one| checker.choice(one)).collect();
    match first(checker, limit, Counting::Off, &|_| true) {
        Tried::First(first) if first != given => Some(Rule::First),
        _ => None,
    }
}
