//! A ResourceSlice as accounting reads it: what its devices cost their node.

use std::collections::BTreeMap;

use dragoman_objects::{Attribute, Counter, Device, Name, ResourceSlice};
use dragoman_quantity::QuantityText;

use super::device::{DeviceFields, read};
use crate::claim::allocation;
use crate::cluster::{self, Slice, SliceDevice};

impl From<&ResourceSlice> for Slice {
    fn from(slice: &ResourceSlice) -> Self {
        let spec = &slice.spec;
        let sets = spec.shared_counters.iter();
        Self {
            name: slice.metadata.name.clone(),
            driver: spec.driver.clone(),
            pool: spec.pool.name.clone(),
            generation: spec.pool.generation,
            node: spec.node_name.clone(),
            devices: spec.devices.iter().map(SliceDevice::from).collect(),
            counters: sets.flat_map(|set| counters(&set.name, &set.counters)).collect(),
        }
    }
}

fn counters<'a>(
    set: &'a Name,
    counters: &'a BTreeMap<Name, Counter>,
) -> impl Iterator<Item = cluster::Counter> + 'a {
    counters.iter().filter(|(_, counter)| !counter.value.amount.is_negative()).map(|(name, counter)| {
        cluster::Counter { set: set.clone(), name: name.clone(), amount: counter.value.amount }
    })
}

impl From<&Device> for SliceDevice {
    fn from(device: &Device) -> Self {
        let capacity = device.capacity.iter();
        let capacity = capacity.map(|(key, of)| (key.clone(), QuantityText(of.value.to_string().into())));
        let mut content = allocation::Device {
            capacity: capacity.collect(),
            unread: device.incomplete.clone(),
            ..allocation::Device::default()
        };
        let costs = DeviceFields::of(device).map_err(|why| why.to_string());
        let costs = costs.and_then(|fields| read(&fields).map_err(|why| why.to_string()));
        let (notices, refused) = match costs {
            Ok((cost, warnings)) => {
                content.cost = cost;
                (warnings.iter().map(|warning| warning.to_string().into()).collect(), false)
            }
            Err(why) => (vec![format!("device {}: {why}", device.name).into()], true),
        };
        let consumed = device.consumes_counters.iter();
        Self {
            name: device.name.clone(),
            node: device.node_name.clone(),
            device: content,
            attributes: written(&device.attributes),
            allow_multiple_allocations: device.allow_multiple_allocations,
            notices,
            refused,
            counters: consumed.flat_map(|of| counters(&of.counter_set, &of.counters)).collect(),
        }
    }
}

/// Attributes as JSON; nothing for none.
fn written(attributes: &BTreeMap<Name, Attribute>) -> Name {
    let text = (!attributes.is_empty()).then(|| serde_json::to_string(attributes));
    text.and_then(Result::ok).unwrap_or_default().into()
}
