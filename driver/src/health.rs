//! The health of devices.

use crate::wire;

/// The health of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub device: String,
    /// Whether it works.
    pub healthy: Healthy,
    /// Why, for people.
    pub message: String,
}

/// Whether a device works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Healthy {
    /// That is not known.
    #[default]
    Unknown,
    /// It does.
    Yes,
    /// It does not.
    No,
}

/// What kubelet is told at `now`, in seconds since the epoch.
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
