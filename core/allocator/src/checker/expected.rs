//! The parts of an allocation that follow from its devices (docs/allocator.md 1.12).

use std::collections::{BTreeMap, BTreeSet};

use dragoman_objects::{
    Allocation, AllocationConfiguration, ConfigSource, DeviceResult, Name, NodeSelector,
    NodeSelectorRequirement,
};
use dragoman_quantity::Decimal;

use super::Checker;
use super::ask::Ask;
use super::rule::Rule;
use super::together::Given;
use crate::capacity::{capacities, steps};
use crate::input::Claim;

/// Returns the rules that one result breaks by itself.
pub(super) fn of_result(checker: &Checker<'_>, given: &Given<'_, '_>, result: &DeviceResult) -> Vec<Rule> {
    let (device, ask) = (given.usable.device, given.ask);
    let shares = checker.shares(&given.usable);
    let conditions = |conditions: &[Name]| -> Vec<Name> {
        if checker.gates.binding_conditions { conditions.to_vec() } else { Vec::new() }
    };
    let same_conditions = result.binding_conditions == conditions(&device.binding_conditions)
        && result.binding_failure_conditions == conditions(&device.binding_failure_conditions);
    let rules = [
        (Rule::AdminAccess, result.admin_access == ask.admin.then_some(true)),
        (Rule::Tolerations, result.tolerations == ask.spec.tolerations),
        (Rule::ResultConditions, same_conditions),
        (Rule::ResultNodeOperations, result.skip_node_operations == given.usable.slice.skip_node_operations),
        (Rule::ShareId, result.share_id.is_some() == shares),
        (Rule::ConsumedCapacity, is_consumed(checker, given, result, shares)),
    ];
    rules.iter().filter(|(_, holds)| !holds).map(|(rule, _)| *rule).collect()
}

/// Whether a share consumes the amounts that the request policies yield, and at least the requested
/// ones.
fn is_consumed(checker: &Checker<'_>, given: &Given<'_, '_>, result: &DeviceResult, shares: bool) -> bool {
    let consumed: BTreeMap<&Name, Decimal> =
        result.consumed_capacity.iter().map(|(name, amount)| (name, amount.amount)).collect();
    let known = capacities(given.usable.device);
    let of_policy = known.iter().filter(|_| shares).map(|(name, capacity)| {
        let requested = given.ask.capacity(name);
        let amount = capacity.consumed(name, requested, steps(&checker.gates)).ok();
        let enough = amount.zip(requested).is_none_or(|(amount, requested)| amount >= requested);
        Some((name, amount.filter(|_| enough)?))
    });
    of_policy.collect::<Option<BTreeMap<_, _>>>() == Some(consumed)
}

/// Returns the expected configuration: that of every class in use, once, with the requests that use
/// the class, then the entries of the claim for the chosen requests. An entry for all requests has
/// an empty `requests`.
pub(super) fn configuration(claim: &Claim, chosen: &[&Ask<'_>]) -> Vec<AllocationConfiguration> {
    let mains: Vec<&Name> = chosen
        .iter()
        .filter_map(|ask| claim.devices.requests.get(ask.request).map(|request| &request.name))
        .collect();
    let names = |named: &[Name], number: usize| {
        let ask = chosen.get(number).map(|ask| &ask.name);
        let main = mains.get(number).copied();
        named.iter().any(|name| Some(name) == ask || Some(name) == main)
    };
    let mut config = Vec::new();
    let mut classes = BTreeSet::new();
    for class in chosen.iter().filter_map(|ask| ask.class) {
        if !classes.insert(&class.name) {
            continue;
        }
        let users = chosen.iter().filter(|ask| ask.class.is_some_and(|other| other.name == class.name));
        let users: Vec<Name> = users.map(|ask| ask.name.clone()).collect();
        config.extend(class.config.iter().map(|entry| AllocationConfiguration {
            source: ConfigSource::FromClass,
            requests: users.clone(),
            opaque: entry.opaque.clone(),
        }));
    }
    let own = claim.devices.config.iter().filter(|entry| {
        entry.requests.is_empty() || (0..chosen.len()).any(|number| names(&entry.requests, number))
    });
    config.extend(own.map(|entry| AllocationConfiguration {
        source: ConfigSource::FromClaim,
        requests: entry.requests.clone(),
        opaque: entry.opaque.clone(),
    }));
    for entry in &mut config {
        if (0..chosen.len()).all(|number| names(&entry.requests, number)) {
            entry.requests.clear();
        }
    }
    config
}

/// Requirements as a set: terms and order do not matter.
type Requirements = BTreeSet<(&'static str, Name, Name, BTreeSet<Name>)>;

fn requirements(part: &'static str, of: &[NodeSelectorRequirement]) -> Requirements {
    let of = of.iter();
    of.map(|of| (part, of.key.clone(), of.operator.clone(), of.values.iter().cloned().collect())).collect()
}

fn of_selector(selector: &NodeSelector) -> Requirements {
    let terms = selector.node_selector_terms.iter();
    terms
        .flat_map(|term| {
            let expressions = requirements("labels", &term.match_expressions);
            expressions.into_iter().chain(requirements("fields", &term.match_fields))
        })
        .collect()
}

/// Whether the node selector of the allocation is the one that its devices imply.
pub(super) fn is_where_devices_are(
    checker: &Checker<'_>,
    of_claim: &[Given<'_, '_>],
    allocation: &Allocation,
) -> bool {
    let is_named = |name: &Option<Name>| name.as_ref().is_some_and(|name| !name.is_empty());
    let bound = of_claim.iter().any(|given| {
        let (slice, device) = (given.usable.slice, given.usable.device);
        is_named(&slice.node_name)
            || device.binds_to_node
            || (slice.per_device_node_selection && is_named(&device.node_name))
    });
    let expected: Requirements = if bound {
        let values = BTreeSet::from([checker.node.name.clone()]);
        Requirements::from([("fields", "metadata.name".into(), "In".into(), values)])
    } else {
        let selectors = of_claim.iter().filter_map(|given| {
            let (slice, device) = (given.usable.slice, given.usable.device);
            let (everywhere, selector) = if slice.per_device_node_selection {
                (device.all_nodes, &device.node_selector)
            } else {
                (slice.all_nodes, &slice.node_selector)
            };
            selector.as_ref().filter(|_| !everywhere)
        });
        selectors.flat_map(of_selector).collect()
    };
    match &allocation.node_selector {
        None => expected.is_empty(),
        Some(selector) => {
            !expected.is_empty()
                && selector.node_selector_terms.len() == 1
                && of_selector(selector) == expected
        }
    }
}
