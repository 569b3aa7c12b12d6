//! Explains a device: the claims that hold it, or the reason why no claim gets it.

use std::collections::BTreeSet;

use dragoman_objects::{ResourceClaim, Slice, Taint, Tolerated};
use jiff::Timestamp;

use super::{Answer, Link, Verdict, claim, devices, link, unknown};
use crate::availability::{Availability, Claimed, is_known};
use crate::facts::Facts;
use crate::supply::{newest, places};

/// Explains a device, as `DRIVER/POOL/DEVICE`, `POOL/DEVICE` or its name alone.
///
/// # Errors
/// No device has that name, or several have.
pub fn explain(facts: Facts, wanted: &str, now: Timestamp) -> anyhow::Result<Answer> {
    let found = named(&facts, wanted);
    let device = match found.iter().collect::<Vec<_>>().as_slice() {
        [] => anyhow::bail!("no ResourceSlice and no claim names a device {wanted}"),
        [only] => (*only).clone(),
        several => {
            let names: Vec<String> = several.iter().take(5).map(|(d, p, n)| format!("{d}/{p}/{n}")).collect();
            anyhow::bail!(
                "{} devices are called {wanted}; name one in full: {}",
                several.len(),
                names.join(", ")
            )
        }
    };
    let (driver, pool, name) = (&device.0, &device.1, &device.2);
    let wanted = [(driver.as_str(), pool.as_str(), name.as_str())].into();
    let place = places(&facts.cluster.slices, &wanted).into_values().next();
    let taints = taints(&facts, driver, pool, name);
    let available = availability(&facts, driver, pool, name);
    let facts = &facts.settled();
    let holders: Vec<&ResourceClaim> =
        facts.claims.values().filter(|claim| holds(claim, driver, pool, name)).collect();
    let place = place.as_ref().map(|(slice, node)| (slice.as_str(), node.as_deref()));
    let mut chain: Vec<Link> =
        vec![link(0, format!("device {driver}/{pool}/{name}"), devices::in_words(place))];
    for holder in &holders {
        chain.extend(claim::links(facts, holder, 1, now));
    }
    let is_read = !facts.lacks("resourceslices") && !facts.lacks("resourceclaims");
    // A rule that could not be read may taint it.
    let is_read = is_read && (is_known(facts) || !available.as_ref().is_some_and(Availability::can_be_had));
    let verdict = if is_read {
        verdict(facts, &device, place.is_some(), &taints, available.as_ref(), &holders)
    } else {
        unknown(&format!("what holds device {name}"))
    };
    let object = format!("device {driver}/{pool}/{name}");
    Ok(Answer { object, verdict, chain, is_missing: false, lacks: facts.partial() })
}

fn verdict(
    facts: &Facts,
    (_, pool, name): &Device,
    is_published: bool,
    taints: &[String],
    available: Option<&Availability>,
    holders: &[&ResourceClaim],
) -> Verdict {
    let words: Vec<String> = holders
        .iter()
        .map(|claim| {
            let by = claim::consumers_of(facts, claim);
            format!("claim {}/{} for {by}", claim.metadata.namespace, claim.metadata.name)
        })
        .collect();
    let held = words.join("; ");
    match (is_published, holders) {
        (true, []) => {
            unheld(&format!("device {name} of pool {pool} is held by no claim"), pool, taints, available)
        }
        (true, _) => match available {
            Some(
                Availability::Unreadable(_)
                | Availability::Invalid(_)
                | Availability::Incomplete
                | Availability::Tainted(_),
            ) => {
                unheld(&format!("device {name} of pool {pool} is shared by {held}"), pool, taints, available)
            }
            Some(of @ (Availability::Shared(_) | Availability::Full(_))) => {
                let left = match of.details() {
                    left if left.is_empty() => "more can be had".to_owned(),
                    left => format!("left of it: {left}"),
                };
                Verdict::fine(
                    of.word(),
                    format!("device {name} of pool {pool} is shared; {left}; shares of {held}"),
                )
            }
            _ => {
                let tainted = if taints.is_empty() {
                    String::new()
                } else {
                    format!("; tainted: {}", taints.join(", "))
                };
                Verdict::fine("Taken", format!("device {name} of pool {pool} is held by {held}{tainted}"))
            }
        },
        (false, _) => gone(name, pool, &held),
    }
}

/// A device that no slice of the newest generation lists. `held`: the claims that hold it, in words.
fn gone(name: &str, pool: &str, held: &str) -> Verdict {
    let device = format!("device {name} of pool {pool} is in no ResourceSlice of the newest generation");
    if held.is_empty() {
        return Verdict::blocked(
            "DeviceGone",
            format!("{device}, and no claim holds it"),
            "its driver withdrew it",
        );
    }
    Verdict::blocked(
        "DeviceGone",
        format!("{device}, and is held by {held}"),
        "its driver withdrew it: delete the Pods that use it",
    )
}

/// The condition under which a device that cannot be read is given.
pub(super) const UNREADABLE: &str =
    "its driver publishes what this version reads, or a newer version of Dragoman reads it";

/// Whether a claim can have a device that none holds, or more of one that is shared. `device`: what is known of it, in words.
fn unheld(device: &str, pool: &str, taints: &[String], available: Option<&Availability>) -> Verdict {
    match available {
        Some(Availability::Unreadable(why)) => {
            Verdict::blocked("Unreadable", format!("{device}, and none gets it: {why}"), UNREADABLE)
        }
        Some(Availability::Invalid(why)) => Verdict::blocked(
            "Invalid",
            format!(
                "{device}, and nothing is allocated from its pool, whose slices contradict each other: {why}"
            ),
            "its driver publishes slices that agree; look at its log",
        ),
        Some(Availability::Incomplete) => Verdict::blocked(
            "Incomplete",
            format!("{device}, and its pool lacks slices: nothing is allocated from it"),
            "its driver publishes the rest; look at its log",
        ),
        Some(Availability::Excluded(by)) => Verdict::blocked(
            "Excluded",
            format!("{device}, and devices of its pool that claims hold exclude it: {by}"),
            format!("a claim that holds one of them ends (`kubectl dra devices` lists those of pool {pool})"),
        ),
        Some(Availability::Tainted(repelling)) => Verdict::blocked(
            "Tainted",
            format!("{device} and tainted: {}", taints.join(", ")),
            if repelling.iter().any(Taint::is_unreadable) {
                "the DeviceTaintRule is corrected, or a newer version of Dragoman reads it: nothing tolerates what cannot be read"
            } else {
                "a claim that tolerates the taint gets it; the driver or a DeviceTaintRule takes the taint away"
            },
        ),
        _ => Verdict::fine("Free", device.to_owned()),
    }
}

/// Returns the availability of a device, if a slice of the newest generation lists it.
fn availability(facts: &Facts, driver: &str, pool: &str, name: &str) -> Option<Availability> {
    let slices = &facts.cluster.slices;
    let newest = *newest(slices).get(&(driver, pool))?;
    let is_of_pool = |slice: &&Slice| {
        &*slice.driver == driver && &*slice.pool.name == pool && slice.pool.generation == newest
    };
    let mut slices = slices.iter().filter(is_of_pool);
    let (slice, device) = slices.find_map(|slice| {
        let device = slice.devices.iter().find(|device| &*device.name == name)?;
        Some((slice, device))
    })?;
    Some(Claimed::of(facts).availability(&slice.driver, &slice.pool.name, device))
}

/// Driver, pool and name.
type Device = (String, String, String);

/// The devices that a person may mean.
fn named(facts: &Facts, wanted: &str) -> BTreeSet<Device> {
    let published = facts.cluster.slices.iter().flat_map(|slice| {
        slice
            .devices
            .iter()
            .map(|device| (slice.driver.to_string(), slice.pool.name.to_string(), device.name.to_string()))
    });
    let held = facts.claims.values().filter_map(|claim| match &claim.status.allocation {
        Some(Tolerated::Read(allocation)) => Some(allocation.devices.results.iter()),
        _ => None,
    });
    let held = held.flatten().map(|of| (of.driver.to_string(), of.pool.to_string(), of.device.to_string()));
    let is_it = |(driver, pool, name): &Device| is_meant(wanted, driver, pool, name);
    published.chain(held).filter(is_it).collect()
}

/// Whether a person may mean this device.
pub fn is_meant(wanted: &str, driver: &str, pool: &str, name: &str) -> bool {
    let full = format!("{driver}/{pool}/{name}");
    full == wanted || full.strip_suffix(wanted).is_some_and(|start| start.ends_with('/'))
}

fn holds(claim: &ResourceClaim, driver: &str, pool: &str, name: &str) -> bool {
    let Some(Tolerated::Read(allocation)) = &claim.status.allocation else { return false };
    let mut held = allocation.devices.results.iter().filter(|of| !of.is_admin());
    held.any(|of| (&*of.driver, &*of.pool, &*of.device) == (driver, pool, name))
}

/// The taints that a device has by its slice, and those that rules give it.
fn taints(facts: &Facts, driver: &str, pool: &str, name: &str) -> Vec<String> {
    let newest = newest(&facts.cluster.slices).get(&(driver, pool)).copied();
    let slices = facts.cluster.slices.iter().filter(|slice| {
        *slice.driver == *driver && *slice.pool.name == *pool && Some(slice.pool.generation) == newest
    });
    let devices = slices.flat_map(|slice| &slice.devices).filter(|device| *device.name == *name);
    let own = devices.flat_map(|device| &device.taints).map(ToString::to_string);
    let rules = facts.cluster.taint_rules.iter().filter(|rule| rule.selects(driver, pool, name));
    let by_rules = rules.map(|rule| format!("{} by DeviceTaintRule {}", rule.taint, rule.name));
    own.chain(by_rules).collect()
}
