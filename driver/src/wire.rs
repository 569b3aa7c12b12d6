//! The messages between kubelet and a driver: `pluginregistration` v1, `dra` v1, `dra-health` v1 and v1alpha1, which
//! differ in their name only.

use std::collections::HashMap;

/// The kind of plugin that a DRA driver is.
pub(crate) const PLUGIN_TYPE: &str = "DRAPlugin";
/// The gRPC services, as a registration names them.
pub(crate) const SERVICES: [&str; 3] = ["v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

pub(crate) const PREPARE: &str = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources";
pub(crate) const UNPREPARE: &str = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources";

/// The end of the path of a call for health, in both of its services.
pub(crate) const WATCH: &str = ".DRAResourceHealth/NodeWatchResources";

/// The answer of `GetInfo`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct PluginInfo {
    #[prost(string, tag = "1")]
    pub(crate) r#type: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) endpoint: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) supported_versions: Vec<String>,
}

/// Message of kubelet in `NotifyRegistrationStatus`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    pub(crate) registered: bool,
    #[prost(string, tag = "2")]
    pub(crate) error: String,
}

/// A claim.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Claim {
    #[prost(string, tag = "1")]
    pub(crate) namespace: String,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

/// The question of both calls.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Claims {
    #[prost(message, repeated, tag = "1")]
    pub(crate) claims: Vec<Claim>,
}

/// The answer to a prepare: one for each claim, by uid.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Prepared {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) claims: HashMap<String, PreparedClaim>,
}

/// The devices of a claim, or why there are none.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct PreparedClaim {
    #[prost(message, repeated, tag = "1")]
    pub(crate) devices: Vec<PreparedDevice>,
    #[prost(string, tag = "2")]
    pub(crate) error: String,
}

/// A device, with the CDI devices by which containers get it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct PreparedDevice {
    #[prost(string, repeated, tag = "1")]
    pub(crate) request_names: Vec<String>,
    #[prost(string, tag = "2")]
    pub(crate) pool_name: String,
    #[prost(string, tag = "3")]
    pub(crate) device_name: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) cdi_device_ids: Vec<String>,
    #[prost(string, optional, tag = "5")]
    pub(crate) share_id: Option<String>,
}

/// The answer to an unprepare: one for each claim, by uid.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Unprepared {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) claims: HashMap<String, UnpreparedClaim>,
}

/// Why a claim is still prepared; empty if it is not.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct UnpreparedClaim {
    #[prost(string, tag = "1")]
    pub(crate) error: String,
}

/// Nothing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Empty {}

/// The health of all devices that are known.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Devices {
    #[prost(message, repeated, tag = "1")]
    pub(crate) devices: Vec<DeviceHealth>,
}

/// The health of a device.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct DeviceHealth {
    #[prost(message, optional, tag = "1")]
    pub(crate) device: Option<DeviceIdentifier>,
    /// 0 unknown, 1 healthy, 2 not.
    #[prost(int32, tag = "2")]
    pub(crate) health: i32,
    /// In seconds since the epoch.
    #[prost(int64, tag = "3")]
    pub(crate) last_updated_time: i64,
    /// After so many seconds without an update the health is unknown; 0: kubelet's own time.
    #[prost(int64, tag = "4")]
    pub(crate) health_check_timeout_seconds: i64,
    #[prost(string, tag = "5")]
    pub(crate) message: String,
}

/// Pool and name of a device.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct DeviceIdentifier {
    #[prost(string, tag = "1")]
    pub(crate) pool_name: String,
    #[prost(string, tag = "2")]
    pub(crate) device_name: String,
}
