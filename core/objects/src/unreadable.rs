//! Lists of which one element may be unreadable. The API server stores quantities that no integer
//! holds (39 digits, `1e1001`), so one device, counter set or request of a cluster may have one; a newer API server stores
//! fields that this version does not know. Of such an element its name is known, and what others must not take for free or for
//! absent: nodes, costs, counters, classes, shares. A reader of the rest gets the reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

use super::known::{self, Known, Shape};
use super::{
    Costs, CounterConsumption, CounterSet, Definitions, Device, DeviceResult, ExactRequest, Name,
    NodeSelector, Request, SubRequest,
};

/// An element that is known although it cannot be read.
pub(super) trait Unreadable: for<'de> Deserialize<'de> {
    /// The fields that are known.
    const SHAPE: &'static Shape;

    /// Brings an element of an older version of the API into the form of the newest one.
    fn newest(_element: &mut Value) {}

    /// Returns what is known of it.
    fn unreadable(element: &Value, why: Name) -> Self;
}

/// Reads a list element by element. The list may be missing or `null`.
pub(super) fn each<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Unreadable,
{
    let elements = Option::<Vec<Box<RawValue>>>::deserialize(deserializer)?.unwrap_or_default();
    elements.iter().map(|element| read(element.get())).collect()
}

/// Reads an element. Nearly all are of the newest version of the API and readable: they take no detour.
fn read<T: Unreadable, E: de::Error>(text: &str) -> Result<T, E> {
    if known::unknown(T::SHAPE, &mut serde_json::Deserializer::from_str(text)).is_none()
        && let Ok(element) = serde_json::from_str(text)
    {
        return Ok(element);
    }
    let mut element: Value = serde_json::from_str(text).map_err(E::custom)?;
    T::newest(&mut element);
    if let Some(path) = known::unknown(T::SHAPE, &element) {
        return Ok(T::unreadable(&element, known::why(&path)));
    }
    Ok(T::deserialize(&element).unwrap_or_else(|why| T::unreadable(&element, why.to_string().into())))
}

fn text(element: &Value, field: &str) -> Name {
    element.get(field).and_then(Value::as_str).unwrap_or_default().into()
}

impl Unreadable for Device {
    const SHAPE: &'static Shape = &known::DEVICE;

    /// Up to `v1beta1` all but the name is under `basic`.
    fn newest(element: &mut Value) {
        let Value::Object(fields) = element else { return };
        if fields.get("basic").is_some_and(Value::is_object)
            && let Some(Value::Object(basic)) = fields.remove("basic")
        {
            fields.extend(basic);
        }
    }

    /// Keeps what counts while a claim holds the device, as far as it can be read: costs, capacities, and
    /// draws on counters. The nodes that can use the device are kept, too, because a request for
    /// all devices includes this one. If its node selector cannot be read, the
    /// device counts for all nodes.
    fn unreadable(element: &Value, why: Name) -> Self {
        let (consumes_counters, draws_unknown) = match element.get("consumesCounters") {
            None | Some(Value::Null) => (Vec::new(), false),
            Some(consumed) => match Vec::deserialize(consumed) {
                Ok(all) if known::unknown(&known::CONSUMED, consumed).is_none() => (all, false),
                _ => (drawn(consumed).collect(), true),
            },
        };
        let selector = element.get("nodeSelector").map(|selector| {
            let unknown = known::unknown(&known::NODE_SELECTOR, selector);
            let read = Option::<NodeSelector>::deserialize(selector);
            read.ok().filter(|_| unknown.is_none())
        });
        let flag = |field: &str| element.get(field).and_then(Value::as_bool) == Some(true);
        let (attributes, capacity) = (entries(element, "attributes"), entries(element, "capacity"));
        let is_whole =
            attributes.len() == count(element, "attributes") && capacity.len() == count(element, "capacity");
        Self {
            name: text(element, "name"),
            node_name: Some(text(element, "nodeName")).filter(|name| !name.is_empty()),
            all_nodes: flag("allNodes") || matches!(selector, Some(None)),
            node_selector: selector.flatten().flatten(),
            consumes_counters,
            draws_unknown,
            attributes: Arc::new(attributes),
            capacity: Arc::new(capacity),
            allow_multiple_allocations: flag("allowMultipleAllocations"),
            native_resource_mappings: costs(element, "nativeResourceMappings"),
            node_allocatable_resource_mappings: costs(element, "nodeAllocatableResourceMappings"),
            node_allocatable_resources: costs(element, "nodeAllocatableResources"),
            incomplete: (!is_whole).then(|| why.clone()),
            unreadable: Some(why),
            ..Self::default()
        }
    }
}

/// Returns the draws of a device on counters, as far as they can be read.
fn drawn(consumed: &Value) -> impl Iterator<Item = CounterConsumption> {
    let draws = consumed.as_array().into_iter().flatten().map(|of| CounterConsumption {
        counter_set: text(of, "counterSet"),
        counters: entries(of, "counters"),
        ..CounterConsumption::default()
    });
    draws.filter(|of| !of.counter_set.is_empty())
}

/// The number of entries of a map.
fn count(element: &Value, field: &str) -> usize {
    element.get(field).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

/// The entries of a map that can be read.
fn entries<T: de::DeserializeOwned>(element: &Value, field: &str) -> BTreeMap<Name, T> {
    let entries = element.get(field).and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.as_str().into(), T::deserialize(value).ok()?))).collect()
}

fn costs<T>(element: &Value, field: &str) -> Costs<T>
where
    Definitions<T>: Known,
{
    known::costs(element.get(field)?).ok().flatten()
}

impl Unreadable for CounterSet {
    const SHAPE: &'static Shape = &known::COUNTER_SET;

    fn unreadable(element: &Value, why: Name) -> Self {
        Self { name: text(element, "name"), counters: entries(element, "counters"), unreadable: Some(why) }
    }
}

impl Unreadable for Request {
    const SHAPE: &'static Shape = &known::REQUEST;

    /// Keeps the classes of the request and whether it asks for admin access: quotas and admission ask for
    /// them.
    fn unreadable(element: &Value, why: Name) -> Self {
        let asked = |of: &Value| SubRequest {
            name: text(of, "name"),
            device_class_name: text(of, "deviceClassName"),
            ..SubRequest::default()
        };
        let exactly = element.get("exactly").filter(|exactly| exactly.is_object());
        let exactly = exactly.map(|exactly| ExactRequest {
            admin_access: exactly.get("adminAccess").and_then(Value::as_bool),
            asked: asked(exactly),
        });
        let subrequests = element.get("firstAvailable").and_then(Value::as_array);
        let first_available = subrequests.into_iter().flatten().map(asked).collect();
        Self { name: text(element, "name"), exactly, first_available, unreadable: Some(why) }
    }
}

impl Unreadable for DeviceResult {
    const SHAPE: &'static Shape = &known::RESULT;

    /// The device is held, or a share of it. What is consumed is known as far as it can be read.
    fn unreadable(element: &Value, why: Name) -> Self {
        Self {
            share_id: element.get("shareID").filter(|id| !id.is_null()).map(|_| text(element, "shareID")),
            consumed_capacity: entries(element, "consumedCapacity"),
            request: text(element, "request"),
            driver: text(element, "driver"),
            pool: text(element, "pool"),
            device: text(element, "device"),
            admin_access: element.get("adminAccess").and_then(Value::as_bool),
            unreadable: Some(why),
            ..Self::default()
        }
    }
}
