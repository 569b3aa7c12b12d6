//! A slice whose devices share equal content.

use std::sync::Arc;

use dragoman_objects::{Device, Name, Slice};

use crate::gates::Gates;
use crate::selectors::{Content, Interned};

/// A driver and the name of one of its pools. Pools of different drivers may have the same name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PoolKey {
    pub(crate) driver: Name,
    pub(crate) pool: Name,
}

#[derive(Debug)]
pub(crate) struct PreparedSlice {
    /// The id of this version of the slice.
    pub(crate) id: u64,
    /// The slice as published, without its devices.
    pub(crate) slice: Slice,
    pub(crate) key: PoolKey,
    pub(crate) devices: Box<[PreparedDevice]>,
    /// Whether a device names compatibility groups.
    pub(crate) has_groups: bool,
}

#[derive(Debug)]
pub(crate) struct PreparedDevice {
    pub(crate) device: Arc<Device>,
    pub(crate) content: Arc<Content>,
}

impl PreparedSlice {
    pub(crate) fn new(id: u64, mut slice: Slice, interned: &Interned) -> Self {
        let key = PoolKey { driver: slice.driver.clone(), pool: slice.pool.name.clone() };
        let devices = std::mem::take(&mut slice.devices).into_iter().map(|device| {
            let (content, device) = interned.content(&key.driver, device);
            PreparedDevice { device, content }
        });
        // Collected into a list, they would keep the room of the devices, fourteen times what they need.
        let devices: Box<[PreparedDevice]> = devices.collect();
        let has_groups = devices.iter().any(|prepared| {
            let mut consumptions = prepared.device.consumes_counters.iter();
            consumptions.any(|consumption| !consumption.compatibility_groups.is_empty())
        });
        Self { id, slice, key, devices, has_groups }
    }

    /// Whether a slice is treated as absent.
    pub(crate) fn is_ignored(&self, gates: &Gates) -> bool {
        self.has_groups && !gates.compatibility_groups
    }

    /// Returns the index of a device.
    pub(crate) fn place(&self, device: &str) -> Option<usize> {
        self.devices.iter().position(|prepared| *prepared.device.name == *device)
    }

    /// Returns the `nodeName` of the slice, if it is set.
    pub(crate) fn node_name(&self) -> Option<&Name> {
        self.slice.node_name.as_ref().filter(|name| !name.is_empty())
    }
}
