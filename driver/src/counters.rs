//! Counters that devices of a pool share: a whole device and a part of it cannot both be in use.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use dragoman_quantity::{Decimal, Quantity};

use crate::checkpoint::Record;
use crate::device::{Capacity, Pool};

/// Pool and name of a device.
type Key<'a> = (&'a str, &'a str);
/// Pool, counter set and counter.
type Counter<'a> = (&'a str, &'a str, &'a str);

/// Why a claim cannot have its devices beside those of `others`, if that is so: together they take more of a counter than there
/// is. A device of several claims takes its counters once, and one for administrators takes none.
///
/// # Errors
/// A quantity of the driver cannot be read or summed.
pub(crate) fn overdrawn(
    pools: &[Pool],
    wanted: &Record,
    others: &[&Record],
) -> anyhow::Result<Option<String>> {
    let mine: BTreeSet<Key<'_>> = keys(wanted).collect();
    let theirs: BTreeSet<Key<'_>> = others.iter().flat_map(|other| keys(other)).collect();
    let mut taken: BTreeMap<Counter<'_>, Decimal> = BTreeMap::new();
    for key in mine.union(&theirs) {
        for (counter, amount) in takes(pools, *key) {
            let sum = taken.entry(counter).or_default();
            *sum =
                sum.checked_add(decimal(amount)?).with_context(|| format!("device {}/{}", key.0, key.1))?;
        }
    }
    for key in &mine {
        for (counter, _) in takes(pools, *key) {
            let has = there_is(pools, counter)?;
            let sum = taken.get(&counter).copied().unwrap_or_default();
            if sum > has {
                let has_some =
                    |other: &&&Record| keys(other).any(|key| takes(pools, key).any(|(of, _)| of == counter));
                let why = others.iter().find(has_some).map_or_else(
                    || "which has less".to_owned(),
                    |other| format!("of which {} has too much", other.claim),
                );
                let (pool, device) = key;
                return Ok(Some(format!(
                    "device {pool}/{device} needs {} of counter set {}, {why}",
                    counter.2, counter.1
                )));
            }
        }
    }
    Ok(None)
}

/// The devices of a claim that take counters.
fn keys(record: &Record) -> impl Iterator<Item = Key<'_>> {
    let counted = record.devices.iter().filter(|held| !held.admin_access);
    counted.map(|held| (held.pool.as_str(), held.device.as_str()))
}

/// Returns the counters that a device takes, and the amounts; nothing for a device that the driver does not
/// publish any more.
fn takes<'a>(
    pools: &'a [Pool],
    (pool, device): Key<'_>,
) -> impl Iterator<Item = (Counter<'a>, &'a Capacity)> {
    let pools = pools.iter().filter(move |of| of.name == pool);
    let devices = pools.flat_map(|pool| pool.devices.iter().map(move |of| (pool, of)));
    let found = devices.filter(move |(_, of)| of.name == device);
    found.flat_map(|(pool, of)| {
        of.consumes_counters.iter().flat_map(move |consumed| {
            let set = consumed.counter_set.as_str();
            consumed.counters.iter().map(move |(name, amount)| ((&*pool.name, set, &**name), amount))
        })
    })
}

/// Returns the whole amount of a counter.
fn there_is(pools: &[Pool], (pool, set, counter): Counter<'_>) -> anyhow::Result<Decimal> {
    let pools = pools.iter().filter(|of| of.name == pool);
    let mut sets = pools.flat_map(|of| &of.shared_counters).filter(|of| of.name == set);
    let found = sets.find_map(|of| of.counters.get(counter));
    decimal(found.with_context(|| format!("pool {pool} has no counter {counter} in {set}"))?)
}

fn decimal(amount: &Capacity) -> anyhow::Result<Decimal> {
    let quantity = amount.value.parse::<Quantity>();
    Ok(quantity.with_context(|| format!("{:?} is no quantity", amount.value))?.amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Allocated, ClaimReference};
    use crate::device::{ConsumedCounters, CounterSet, Device};

    fn pool() -> Pool {
        let memory = |amount: &str| BTreeMap::from([("memory".to_owned(), Capacity::of(amount))]);
        let device = |name: &str, amount: &str| Device {
            name: name.to_owned(),
            consumes_counters: vec![ConsumedCounters {
                counter_set: "gpu-0".to_owned(),
                counters: memory(amount),
            }],
            ..Device::default()
        };
        Pool {
            name: "n".to_owned(),
            shared_counters: vec![CounterSet { name: "gpu-0".to_owned(), counters: memory("8Gi") }],
            devices: vec![device("whole", "8Gi"), device("a", "4Gi"), device("b", "4096Mi")],
        }
    }

    fn record(name: &str, device: &str, admin_access: bool) -> Record {
        let text = |text: &str| text.to_owned();
        let claim = ClaimReference { namespace: text("ns"), name: text(name), uid: text(name) };
        let allocated =
            Allocated { pool: text("n"), device: text(device), admin_access, ..Allocated::default() };
        Record::of(&claim, &[allocated], "boot")
    }

    #[test]
    fn a_whole_device_and_a_part_of_it_are_not_for_two_claims() {
        let pools = [pool()];
        let why =
            |wanted: &Record, others: &[&Record]| overdrawn(&pools, wanted, others).expect("quantities");
        let (whole, a, b) = (record("w", "whole", false), record("a", "a", false), record("b", "b", false));
        assert_eq!(why(&b, &[&a]), None);
        let said =
            "device n/whole needs memory of counter set gpu-0, of which ResourceClaim ns/a has too much";
        assert_eq!(why(&whole, &[&a]).as_deref(), Some(said));
        assert!(why(&a, &[&whole]).is_some());
        // Two shares of one device take its counters once; administrators take none.
        assert_eq!(why(&whole, &[&record("w2", "whole", false)]), None);
        assert_eq!(why(&whole, &[&record("admin", "a", true)]), None);
        assert_eq!(why(&record("admin", "whole", true), &[&a]), None);
        // What is not published any more takes nothing that is known.
        assert_eq!(why(&whole, &[&record("old", "gone", false)]), None);
    }

    #[test]
    fn what_the_driver_says_wrong_is_named() {
        let mut broken = pool();
        broken.shared_counters.clear();
        let error = overdrawn(&[broken], &record("a", "a", false), &[]).expect_err("no counter");
        assert_eq!(error.to_string(), "pool n has no counter memory in gpu-0");
        let mut broken = pool();
        broken.devices[1].consumes_counters[0].counters.insert("memory".to_owned(), Capacity::of("much"));
        let error = overdrawn(&[broken], &record("a", "a", false), &[]).expect_err("no quantity");
        assert!(error.to_string().contains("\"much\" is no quantity"), "{error:#}");
    }
}
