//! The conversion from placed devices to `status.allocation` of claims (docs/allocator.md 1.12).

use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_objects::{
    Allocation, AllocationConfiguration, ConfigSource, DeviceAllocation, DeviceResult, Name, NodeSelector,
    NodeSelectorRequirement, NodeSelectorTerm,
};
use dragoman_quantity::Quantity;

use crate::capacity::notation;
use crate::claims::{Asked, PreparedClaim};
use crate::error::{Object, PodError};
use crate::gates::Gates;
use crate::search::{Attempt, Placed};
use crate::snapshot::{PreparedSlice, ViewDevice};

/// A source of share ids. It is asked for final results only.
pub trait ShareIds {
    /// Returns an id that was never used, by convention a UUID.
    fn next(&mut self) -> Name;
}

impl<F: FnMut() -> Name> ShareIds for F {
    fn next(&mut self) -> Name {
        self()
    }
}

/// Returns the allocation of every claim, in the order of claims.
///
/// # Errors
/// A node selector does not have exactly one term, so it cannot be merged with others.
pub(crate) fn allocations(attempt: &Attempt, ids: &mut dyn ShareIds) -> Result<Vec<Allocation>, PodError> {
    let claims = attempt.prepared.wanted.iter().enumerate();
    claims.map(|(number, claim)| allocation(attempt, number, claim, ids)).collect()
}

/// Checks whether the allocations can be assembled.
///
/// # Errors
/// A node selector does not have exactly one term, so it cannot be merged with others.
pub(crate) fn check(attempt: &Attempt) -> Result<(), PodError> {
    let claims = 0..attempt.prepared.wanted.len();
    claims.into_iter().try_for_each(|number| node_selector(attempt, &chosen(attempt, number)).map(|_| ()))
}

struct Chosen<'a> {
    placed: &'a Placed,
    asked: &'a Asked,
    device: &'a ViewDevice,
    slice: &'a Arc<PreparedSlice>,
}

fn chosen(attempt: &Attempt, claim: usize) -> Vec<Chosen<'_>> {
    let of_claim = attempt.placed.iter().filter(|placed| placed.ask.claim == claim);
    let chosen = of_claim.filter_map(|placed| {
        let device = attempt.view.devices.get(placed.device)?;
        let request = attempt.prepared.wanted.get(claim)?.requests.get(placed.ask.request)?;
        let slice = attempt.view.slices.get(device.slice)?;
        Some(Chosen { placed, asked: request.asked.get(placed.ask.sub)?, device, slice })
    });
    let mut chosen: Vec<Chosen<'_>> = chosen.collect();
    // The devices of a request stand in the order of Kubernetes, in whichever order they were tried.
    chosen.sort_by_key(|chosen| (chosen.placed.ask.request, chosen.device.slice, chosen.device.place));
    chosen
}

fn allocation(
    attempt: &Attempt,
    number: usize,
    claim: &PreparedClaim,
    ids: &mut dyn ShareIds,
) -> Result<Allocation, PodError> {
    let chosen = chosen(attempt, number);
    let gates = attempt.gates();
    let results = chosen.iter().map(|chosen| result(chosen, gates, ids)).collect();
    Ok(Allocation {
        devices: DeviceAllocation { results, config: config(claim, &chosen) },
        node_selector: node_selector(attempt, &chosen)?.map(Arc::new),
    })
}

fn result(chosen: &Chosen<'_>, gates: &Gates, ids: &mut dyn ShareIds) -> DeviceResult {
    let Chosen { placed, asked, device, slice } = chosen;
    let conditions =
        |conditions: &Vec<Name>| if gates.binding_conditions { conditions.clone() } else { vec![] };
    let shared = placed.amounts.as_ref();
    let consumed = device.device.capacity.iter().zip(shared.into_iter().flatten());
    let consumed_capacity: BTreeMap<Name, Quantity> = consumed
        .map(|((name, capacity), amount)| {
            let request = asked.capacity.iter().find(|(requested, _)| requested == name);
            let notation = notation(capacity, request.map(|(_, amount)| amount));
            (name.clone(), Quantity { amount: *amount, notation })
        })
        .collect();
    DeviceResult {
        request: asked.name.clone(),
        driver: slice.key.driver.clone(),
        pool: slice.key.pool.clone(),
        device: device.device.name.clone(),
        admin_access: asked.admin.then_some(true),
        tolerations: asked.tolerations.clone(),
        binding_conditions: conditions(&device.device.binding_conditions),
        binding_failure_conditions: conditions(&device.device.binding_failure_conditions),
        share_id: shared.map(|_| ids.next()),
        consumed_capacity,
        skip_node_operations: slice.slice.skip_node_operations.clone(),
        unreadable: None,
    }
}

/// Returns the configuration of an allocation: first that of the classes, each class once for all
/// requests that use it, then that of the claim. An entry that applies to all requests has an empty
/// `requests`.
fn config(claim: &PreparedClaim, chosen: &[Chosen<'_>]) -> Vec<AllocationConfiguration> {
    // The chosen sub-request of each request, in the order of requests.
    let selected: Vec<(&Name, &Asked)> = claim
        .requests
        .iter()
        .enumerate()
        .filter_map(|(number, request)| {
            let placed = chosen.iter().find(|chosen| chosen.placed.ask.request == number);
            let sub = placed.map_or(0, |chosen| chosen.placed.ask.sub);
            Some((&request.name, request.asked.get(sub)?))
        })
        .collect();
    let mut config = Vec::new();
    let mut done: Vec<&Name> = Vec::new();
    for (_, asked) in &selected {
        if done.contains(&&asked.class.name) {
            continue;
        }
        done.push(&asked.class.name);
        let using = selected.iter().filter(|(_, other)| other.class.name == asked.class.name);
        let requests: Vec<Name> = using.map(|(_, other)| other.name.clone()).collect();
        config.extend(asked.class.config.iter().map(|entry| AllocationConfiguration {
            source: ConfigSource::FromClass,
            requests: requests.clone(),
            opaque: entry.opaque.clone(),
        }));
    }
    for entry in &claim.claim.devices.config {
        let named = |(request, asked): &(&Name, &Asked)| {
            entry.requests.iter().any(|name| name == *request || *name == asked.name)
        };
        if entry.requests.is_empty() || selected.iter().any(named) {
            config.push(AllocationConfiguration {
                source: ConfigSource::FromClaim,
                requests: entry.requests.clone(),
                opaque: entry.opaque.clone(),
            });
        }
    }
    for entry in &mut config {
        let covered = |(request, asked): &(&Name, &Asked)| {
            entry.requests.iter().any(|name| name == *request || *name == asked.name)
        };
        if selected.iter().all(covered) {
            entry.requests.clear();
        }
    }
    config
}

/// Where all devices can be used: on this node alone, or where all their selectors hold.
fn node_selector(attempt: &Attempt, chosen: &[Chosen<'_>]) -> Result<Option<NodeSelector>, PodError> {
    let mut merged = NodeSelectorTerm::default();
    for chosen in chosen {
        let (slice, device) = (&chosen.slice.slice, &chosen.device.device);
        let named = |name: &Option<Name>| name.as_ref().is_some_and(|name| !name.is_empty());
        let by_device = slice.per_device_node_selection;
        if named(&slice.node_name) || (by_device && named(&device.node_name)) || device.binds_to_node {
            return Ok(Some(only(&attempt.node.name)));
        }
        let selector = if by_device {
            device.node_selector.as_ref().filter(|_| !device.all_nodes)
        } else {
            slice.node_selector.as_ref().filter(|_| !slice.all_nodes)
        };
        let Some(selector) = selector else { continue };
        let [term] = selector.node_selector_terms.as_slice() else {
            let object = Object::Slice(slice.name.clone());
            let message = "a node selector must have exactly one term";
            return Err(PodError::new(object, "spec.nodeSelector", message));
        };
        merge(&mut merged.match_expressions, &term.match_expressions);
        merge(&mut merged.match_fields, &term.match_fields);
    }
    let empty = merged.match_expressions.is_empty() && merged.match_fields.is_empty();
    Ok((!empty).then(|| NodeSelector { node_selector_terms: vec![merged] }))
}

/// Returns a selector for this node only.
fn only(node: &Name) -> NodeSelector {
    let requirement = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: vec![node.clone()],
    };
    let term = NodeSelectorTerm { match_fields: vec![requirement], ..NodeSelectorTerm::default() };
    NodeSelector { node_selector_terms: vec![term] }
}

/// Adds requirements that are missing. The values of a requirement compare as a set.
fn merge(into: &mut Vec<NodeSelectorRequirement>, from: &[NodeSelectorRequirement]) {
    let same = |a: &NodeSelectorRequirement, b: &NodeSelectorRequirement| {
        let within = |a: &[Name], b: &[Name]| a.iter().all(|value| b.contains(value));
        let values = within(&a.values, &b.values) && within(&b.values, &a.values);
        a.key == b.key && a.operator == b.operator && values
    };
    for requirement in from {
        if !into.iter().any(|known| same(known, requirement)) {
            into.push(requirement.clone());
        }
    }
}
