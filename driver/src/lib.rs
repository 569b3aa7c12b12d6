//! A kit for drivers of Dynamic Resource Allocation: everything that kubelet and API server expect of one, around a
//! [`Driver`] that knows its devices.
//!
//! The kit registers at kubelet, answers its prepare and unprepare calls, keeps what it prepared in files that survive a
//! crash at any point, refuses to prepare a device for two claims, writes CDI files with what containers get, gives
//! containers the attributes of their devices (KEP-5304), streams health, and publishes the devices as ResourceSlices.
//! [`run`] does all of it until it is told to stop.

mod admin;
mod attributes;
mod cdi;
mod checkpoint;
mod claim;
mod counters;
mod device;
mod events;
mod frames;
mod health;
mod locks;
mod metrics;
mod prepare;
mod publish;
mod registration;
mod run;
mod service;
mod slices;
mod wire;

use std::future::Future;

use tokio::sync::watch;

pub use self::cdi::{ContainerEdits, DeviceNode, Mount};
pub use self::claim::{Allocated, Claim, ClaimReference, Config};
pub use self::device::{
    Attribute, Capacity, ConsumedCounters, CounterSet, Device, NodeAllocatable, Pool, Taint,
};
pub use self::health::{Health, Healthy};
pub use self::run::{Options, run};

/// The part that only the driver knows: its devices, and their preparation.
///
/// Calls about one device never overlap. [`Driver::prepare`] and [`Driver::unprepare`] are called again after a crash, a
/// lost answer or an error: each has to come to the same end if it is repeated.
pub trait Driver: Send + Sync + 'static {
    /// The devices of this node, by pool. A change is published.
    fn devices(&self) -> watch::Receiver<Vec<Pool>>;

    /// Makes devices ready for a claim. Returns what containers get with each of `results`, in the same order.
    ///
    /// # Errors
    /// The text goes to kubelet, which shows it in the Events of the Pod, and asks again.
    fn prepare(
        &self,
        claim: &Claim,
        results: &[Allocated],
    ) -> impl Future<Output = anyhow::Result<Vec<ContainerEdits>>> + Send;

    /// Undoes what was done for a claim, as far as it was done. Nothing else is known of a claim whose record was lost.
    ///
    /// # Errors
    /// As those of [`Driver::prepare`].
    fn unprepare(&self, claim: &ClaimReference) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// The health of devices; those that are not listed are unknown. A change goes to kubelet, and from there into the
    /// status of Pods. The default says nothing.
    fn health(&self) -> watch::Receiver<Vec<Health>> {
        watch::channel(Vec::new()).1
    }
}
