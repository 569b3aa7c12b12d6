//! Objects that are read as accounting does, and as the allocator does, at once.

use dragoman_allocator::input::{ClaimObject, ClassObject, NodeObject, SliceObject, TaintRuleObject};
use dragoman_crds::driver_owner::DriverOwnerSpec;
use dragoman_crds::wire::{self, Meta, Object};
use dragoman_machinery::kind::{
    DEVICE_CLASS, DEVICE_TAINT_RULES, DRIVER_OWNER, Kind, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICES,
    Watchable,
};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::placement::{Placement, Site};

/// An object in two readings.
#[derive(Debug, Clone)]
pub(crate) struct Whole<A, B> {
    /// As accounting reads it, with its metadata.
    pub(crate) wire: A,
    /// As a scheduler reads it.
    pub(crate) more: B,
}

/// A Pod and what it says about nodes.
pub(crate) type WholePod = Whole<wire::Pod, Placement>;
/// A Node: amounts, what it says about Pods, and the input of the allocator.
pub(crate) type WholeNode = Whole<wire::Node, Whole<Site, NodeObject>>;
/// A ResourceClaim.
pub(crate) type WholeClaim = Whole<wire::ResourceClaim, ClaimObject>;
/// A ResourceSlice.
pub(crate) type WholeSlice = Whole<wire::ResourceSlice, SliceObject>;
/// A DeviceClass.
pub(crate) type WholeClass = Whole<Bare, ClassObject>;
/// A DeviceTaintRule.
pub(crate) type WholeRule = Whole<Bare, TaintRuleObject>;

/// The metadata of an object of which nothing else is accounted for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Bare {
    metadata: Meta,
}

impl Object for Bare {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl<'de, A: DeserializeOwned, B: DeserializeOwned> Deserialize<'de> for Whole<A, B> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Borrowed: objects are always decoded from the text of a list or of a watch.
        let text = <&RawValue>::deserialize(deserializer)?;
        let wire = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        let more = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        Ok(Self { wire, more })
    }
}

impl<A: Object, B: DeserializeOwned> Object for Whole<A, B> {
    fn meta(&self) -> &Meta {
        self.wire.meta()
    }
}

/// A DriverOwner: its name is that of a driver.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Owned {
    metadata: Meta,
    /// The service accounts that may allocate the devices of the driver.
    pub(crate) spec: DriverOwnerSpec,
}

impl Object for Owned {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Watchable for Owned {
    const KINDS: &'static [Kind] = &[DRIVER_OWNER];
}

impl Watchable for WholePod {
    const KINDS: &'static [Kind] = &[POD];
}

impl Watchable for WholeNode {
    const KINDS: &'static [Kind] = &[NODE];
}

impl Watchable for WholeClaim {
    const KINDS: &'static [Kind] = &[RESOURCE_CLAIM];
}

impl Watchable for WholeSlice {
    const KINDS: &'static [Kind] = &RESOURCE_SLICES;
}

impl Watchable for WholeClass {
    const KINDS: &'static [Kind] = &[DEVICE_CLASS];
}

impl Watchable for WholeRule {
    const KINDS: &'static [Kind] = &DEVICE_TAINT_RULES;
}
