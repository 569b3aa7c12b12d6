//! The health of devices.

use crate::wire;

/// The health of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Pool of the device.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// State of the device.
    pub healthy: Healthy,
    /// Reason of the state, for people.
    pub message: String,
}

/// Whether a device works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Healthy {
    /// The state is not known.
    #[default]
    Unknown,
    /// The device works.
    Yes,
    /// The device does not work.
    No,
}

/// Returns the report for kubelet at `now`, in seconds since the epoch.
pub(crate) fn told(all: &[Health], now: i64) -> wire::Devices {
    let device = |of: &Health| wire::DeviceHealth {
        device: Some(wire::DeviceIdentifier { pool_name: of.pool.clone(), device_name: of.device.clone() }),
        health: match of.healthy {
            Healthy::Unknown => 0,
            Healthy::Yes => 1,
            Healthy::No => 2,
        },
        last_updated_time: now,
        health_check_timeout_seconds: 0,
        message: of.message.clone(),
    };
    wire::Devices { devices: all.iter().map(device).collect() }
}
