//! Identity of a device.

use std::fmt;

use crate::{DeviceResult, Name};

/// Identity of a device: unique in a cluster, because a driver names each device of a pool once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The driver.
    pub driver: Name,
    /// The pool.
    pub pool: Name,
    /// The name of the device.
    pub device: Name,
}

impl DeviceId {
    /// Identifies the device of this name in a pool of a driver.
    pub fn new(driver: &Name, pool: &Name, device: &Name) -> Self {
        Self { driver: driver.clone(), pool: pool.clone(), device: device.clone() }
    }
}

impl DeviceResult {
    /// Returns the identity of the device that was given.
    pub fn id(&self) -> DeviceId {
        DeviceId::new(&self.driver, &self.pool, &self.device)
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { driver, pool, device } = self;
        write!(f, "{driver}/{pool}/{device}")
    }
}
