//! Lists of which one element may be unreadable. The API server stores quantities that no integer
//! holds (39 digits, `1e1001`), so one device, counter set or request of a cluster may have one; a newer API server stores
//! fields that this version does not know. The element is then known by name only, and a reader of the rest of it gets
//! the reason.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::known::{self, Shape};
use super::{CounterConsumption, CounterSet, Device, DeviceResult, Name, NodeSelector, Request};

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
    let elements = Option::<Vec<Value>>::deserialize(deserializer)?.unwrap_or_default();
    let read = |mut element: Value| {
        T::newest(&mut element);
        if let Some(path) = known::unknown(T::SHAPE, &element) {
            return T::unreadable(&element, known::why(&path));
        }
        T::deserialize(&element).unwrap_or_else(|why| T::unreadable(&element, why.to_string().into()))
    };
    Ok(elements.into_iter().map(read).collect())
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

    /// What the device draws from counters is kept: it counts while a claim holds the device. If that
    /// is what cannot be read, the device draws from an unknown set, which makes its pool invalid. The nodes that can use it
    /// are kept, too: a request for all devices is for this one as well. If they cannot be read, they are all nodes.
    fn unreadable(element: &Value, why: Name) -> Self {
        let unknown =
            || vec![CounterConsumption { counter_set: "?".into(), ..CounterConsumption::default() }];
        let consumes_counters = match element.get("consumesCounters") {
            None | Some(Value::Null) => Vec::new(),
            Some(consumed) if known::unknown(&known::CONSUMED, consumed).is_some() => unknown(),
            Some(consumed) => Vec::deserialize(consumed).unwrap_or_else(|_| unknown()),
        };
        let selector = element.get("nodeSelector").map(Option::<NodeSelector>::deserialize);
        let flag = |field: &str| element.get(field).and_then(Value::as_bool) == Some(true);
        Self {
            name: text(element, "name"),
            node_name: Some(text(element, "nodeName")).filter(|name| !name.is_empty()),
            all_nodes: flag("allNodes") || matches!(selector, Some(Err(_))),
            node_selector: selector.and_then(Result::ok).flatten(),
            consumes_counters,
            unreadable: Some(why),
            ..Self::default()
        }
    }
}

impl Unreadable for CounterSet {
    const SHAPE: &'static Shape = &known::COUNTER_SET;

    fn unreadable(element: &Value, why: Name) -> Self {
        Self { name: text(element, "name"), unreadable: Some(why), ..Self::default() }
    }
}

impl Unreadable for Request {
    const SHAPE: &'static Shape = &known::REQUEST;

    fn unreadable(element: &Value, why: Name) -> Self {
        Self { name: text(element, "name"), unreadable: Some(why), ..Self::default() }
    }
}

impl Unreadable for DeviceResult {
    const SHAPE: &'static Shape = &known::RESULT;

    /// The device is held. What is consumed of it is unknown, so nothing counts as left.
    fn unreadable(element: &Value, _: Name) -> Self {
        Self {
            request: text(element, "request"),
            driver: text(element, "driver"),
            pool: text(element, "pool"),
            device: text(element, "device"),
            admin_access: element.get("adminAccess").and_then(Value::as_bool),
            ..Self::default()
        }
    }
}
