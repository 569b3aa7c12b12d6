//! Which of the nodes that take a Pod comes first: facts about nodes for the ranking of the allocator.

use std::collections::{BTreeSet, HashMap};

use dragoman_accounting::ledger::NodeLedger;
use dragoman_accounting::resource::Resource;
use dragoman_allocator::Policy;
use dragoman_objects::{Allocation, Name};

use dragoman_cluster::placement::SchedulingConstraints;

/// Numbers of devices by their driver.
pub(super) type ByDriver = Box<[(Name, i64)]>;

/// The devices of an allocation. A device with admin access is not taken.
pub(super) fn devices_of(allocation: &Allocation) -> ByDriver {
    let mut devices: Vec<(Name, i64)> = Vec::new();
    for result in allocation.devices.results.iter().filter(|result| !result.is_admin()) {
        match devices.iter_mut().find(|(driver, _)| *driver == result.driver) {
            Some((_, count)) => *count += 1,
            None => devices.push((result.driver.clone(), 1)),
        }
    }
    devices.into()
}

/// The Pod whose nodes are ranked, and what counts for it.
#[derive(Clone, Copy)]
pub(super) struct Ranking<'a> {
    pub(super) pod: &'a SchedulingConstraints,
    /// The drivers whose devices it asks for; absent: any.
    pub(super) drivers: Option<&'a BTreeSet<Name>>,
    /// The devices that are decided on and not shown.
    pub(super) flying: &'a Tally,
    pub(super) policy: Policy,
}

impl Ranking<'_> {
    /// The free devices of a node among those that the Pod asks for.
    pub(super) fn free(&self, node: &str, [published, given]: [&Tally; 2]) -> i64 {
        // Two leaders of a moment decide alike as long as only what the API shows has a say. Packing can do
        // without the decisions of this moment; spreading would give a node to all Pods of that moment.
        let flying = if self.policy == Policy::Spread { self.flying.of(node, self.drivers) } else { 0 };
        published.of(node, self.drivers) - given.of(node, self.drivers) - flying
    }
}

/// The share of cpu and memory that is taken from a node, in thousandths.
pub(super) fn taken(ledger: &NodeLedger) -> i64 {
    let share = |resource: Resource| {
        let all = i128::from(ledger.allocatable(resource)).max(1);
        ledger.requested(resource).clamp(0, all) * 1000 / all
    };
    let mean = i128::midpoint(share(Resource::Cpu), share(Resource::Memory));
    i64::try_from(mean).unwrap_or_default()
}

/// Counts of devices by node and driver. A shared device counts as often as it is given.
#[derive(Debug, Default)]
pub(super) struct Tally(HashMap<Name, Vec<(Name, i64)>>);

impl Tally {
    /// Adds these devices to those of a node, or takes them off (`sign`).
    pub(super) fn add(&mut self, node: &str, devices: &[(Name, i64)], sign: i64) {
        let counts = self.0.entry(node.into()).or_default();
        for (driver, devices) in devices {
            match counts.iter_mut().find(|(known, _)| known == driver) {
                Some((_, count)) => *count += sign * devices,
                None => counts.push((driver.clone(), sign * devices)),
            }
        }
        counts.retain(|(_, count)| *count != 0);
        if counts.is_empty() {
            self.0.remove(node);
        }
    }

    /// The devices of a node, of these drivers or of any.
    pub(super) fn of(&self, node: &str, drivers: Option<&BTreeSet<Name>>) -> i64 {
        let counts = self.0.get(node).into_iter().flatten();
        let asked = counts.filter(|(driver, _)| drivers.is_none_or(|drivers| drivers.contains(driver)));
        asked.map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_drivers_that_a_pod_does_not_ask_for_do_not_count() {
        let of = |driver: &str, count| vec![(Name::from(driver), count)];
        let mut tally = Tally::default();
        tally.add("n", &of("gpu", 4), 1);
        tally.add("n", &of("nic", 16), 1);
        tally.add("n", &of("gpu", 1), -1);
        let gpus = BTreeSet::from(["gpu".into()]);
        let both = BTreeSet::from(["gpu".into(), "nic".into(), "other".into()]);
        let counts = [
            tally.of("n", Some(&gpus)),
            tally.of("n", Some(&both)),
            tally.of("n", None),
            tally.of("m", None),
        ];
        assert_eq!(counts, [3, 19, 19, 0]);
        tally.add("n", &of("gpu", 3), -1);
        tally.add("n", &of("nic", 16), -1);
        assert!(tally.0.is_empty(), "no empty entry stays");
    }
}
