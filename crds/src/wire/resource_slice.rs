//! `resource.k8s.io` ResourceSlice, as far as it defines the costs of devices: `v1`, and `v1beta1`,
//! which has the same fields under `basic`.

use std::collections::BTreeMap;

use dragoman_quantity::QuantityText;

use dragoman_accounting::amounts::non_negative;
use dragoman_accounting::claim::allocation::Device;
use dragoman_accounting::cluster::{Counter, Slice, SliceDevice};
use dragoman_accounting::wire::device::{DeviceFields, read};
use serde::Deserialize;

use super::{Meta, or_default};

/// A ResourceSlice.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ResourceSlice {
    /// `metadata`.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    driver: Box<str>,
    #[serde(deserialize_with = "or_default")]
    pool: Pool,
    node_name: Option<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    devices: Vec<ListedDevice>,
    #[serde(deserialize_with = "or_default")]
    shared_counters: Vec<CounterSet>,
}

/// `sharedCounters[]`, and `consumesCounters[]` of a device.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CounterSet {
    #[serde(alias = "counterSet")]
    name: Box<str>,
    #[serde(deserialize_with = "or_default")]
    counters: BTreeMap<Box<str>, Capacity>,
}

impl CounterSet {
    fn counters(&self) -> impl Iterator<Item = Counter> {
        self.counters.iter().filter_map(|(name, counter)| {
            let amount = non_negative(&counter.value.0).ok()?;
            Some(Counter { set: self.name.clone(), name: name.clone(), amount })
        })
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Pool {
    name: Box<str>,
    generation: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ListedDevice {
    name: Box<str>,
    basic: Option<Content>,
    #[serde(flatten)]
    content: Content,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Content {
    node_name: Option<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    capacity: BTreeMap<Box<str>, Capacity>,
    #[serde(deserialize_with = "or_default")]
    attributes: BTreeMap<Box<str>, serde_json::Value>,
    #[serde(deserialize_with = "or_default")]
    allow_multiple_allocations: bool,
    #[serde(deserialize_with = "or_default")]
    consumes_counters: Vec<CounterSet>,
    #[serde(flatten)]
    fields: DeviceFields,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Capacity {
    value: QuantityText,
}

impl ResourceSlice {
    /// Returns the slice as accounting reads it.
    pub fn accounted(&self) -> Slice {
        Slice {
            name: self.metadata.name.as_ref().into(),
            driver: self.spec.driver.clone(),
            pool: self.spec.pool.name.clone(),
            generation: self.spec.pool.generation,
            node: self.spec.node_name.clone(),
            devices: self.spec.devices.iter().map(ListedDevice::device).collect(),
            counters: self.spec.shared_counters.iter().flat_map(CounterSet::counters).collect(),
        }
    }
}

impl ListedDevice {
    fn device(&self) -> SliceDevice {
        let content = self.basic.as_ref().unwrap_or(&self.content);
        let capacity = content.capacity.iter().map(|(key, capacity)| (key.clone(), capacity.value.clone()));
        let mut device = Device { capacity: capacity.collect(), ..Device::default() };
        let (notices, refused) = match read(&content.fields) {
            Ok((cost, warnings)) => {
                device.cost = cost;
                (warnings.iter().map(|warning| warning.to_string().into()).collect(), false)
            }
            Err(why) => (vec![format!("device {}: {why}", self.name).into()], true),
        };
        SliceDevice {
            name: self.name.clone(),
            node: content.node_name.clone(),
            device,
            attributes: written(&content.attributes),
            allow_multiple_allocations: content.allow_multiple_allocations,
            notices,
            refused,
            counters: content.consumes_counters.iter().flat_map(CounterSet::counters).collect(),
        }
    }
}

/// Attributes as JSON; nothing for none.
fn written(attributes: &BTreeMap<Box<str>, serde_json::Value>) -> Box<str> {
    let text = (!attributes.is_empty()).then(|| serde_json::to_string(attributes));
    text.and_then(Result::ok).unwrap_or_default().into()
}
