//! What a device in a ResourceSlice says of its costs, from the draft of KEP-5517 to
//! Kubernetes 1.38, to the canonical model and back.
//!
//! These are definitions: one that does not make sense is refused whole, with the field,
//! because half a definition would count half.

use std::collections::BTreeMap;

use dragoman_quantity::{Decimal, Quantity};
use serde::{Deserialize, Serialize};

use crate::amounts::{Text, non_negative};
use crate::footprint::{Basis, DeviceFootprint, Mapping, Overhead, ResourceFootprint};
use crate::resource::{NotNodeAllocatable, Resource};

/// The draft, never shipped: `nativeResourceMappings`.
pub type NativeResourceMappings = BTreeMap<Box<str>, NativeResourceMapping>;
/// Kubernetes 1.36: `nodeAllocatableResourceMappings`.
pub type NodeAllocatableResourceMappings = BTreeMap<Box<str>, NodeAllocatableResourceMapping>;
/// Kubernetes 1.37 and later: `nodeAllocatableResources`.
pub type NodeAllocatableResources = BTreeMap<Box<str>, NodeAllocatableResource>;

/// A resource in the draft.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NativeResourceMapping {
    /// Exactly one of its fields.
    pub quantity_from: QuantityFrom,
}

/// Where the draft takes an amount from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuantityFrom {
    /// For each allocated device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_instance_quantity: Option<Text>,
    /// The consumption of this capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Box<str>>,
}

/// A resource in 1.36.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableResourceMapping {
    /// The consumption of this capacity is counted; devices where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_key: Option<Box<str>>,
    /// Units of the resource for each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_multiplier: Option<Text>,
}

/// A resource in 1.37 and later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableResource {
    /// What the device is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapping: Option<ResourceMapping>,
    /// What using it costs besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<ResourceOverhead>,
    /// KEP-6352: what its driver holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ResourceReservation>,
}

/// `mapping` in 1.37 and later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceMapping {
    /// The consumption of this capacity is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_key: Option<Box<str>>,
    /// Units of the resource for each unit of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_multiplier: Option<Text>,
    /// Units of the resource for each allocated device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_multiplier: Option<Text>,
}

/// `overhead` in 1.37 and later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceOverhead {
    /// Once for each Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_pod: Option<Text>,
    /// Once for each container that names the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_container: Option<Text>,
}

/// `reservation` of KEP-6352.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceReservation {
    /// Once for each device in use.
    pub per_device: Option<Text>,
}

/// Why a definition is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Refused {
    /// The field, as a path below the device.
    pub field: String,
    /// What is wrong.
    pub why: String,
}

/// Something that was read, but that its author should look at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// kube-scheduler 1.36 counts nothing then, against its own documentation.
    #[error("{0}: neither capacityKey nor allocationMultiplier is set: one unit for each device is counted")]
    MultiplierMissing(Resource),
}

/// What a generation cannot say.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Loss {
    /// The draft counts a capacity one to one.
    #[error("{0}: the multiplier of the capacity")]
    Multiplier(Resource),
    /// 1.36 has one amount for each device.
    #[error("{0}: the overhead of each Pod became part of the device, and counts once for each claim")]
    OverheadPerPodMapped(Resource),
    /// No place for it.
    #[error("{0}: the overhead of each Pod")]
    OverheadPerPod(Resource),
    /// No place for it.
    #[error("{0}: the overhead of each container")]
    OverheadPerContainer(Resource),
    /// No place for it.
    #[error("{0}: the reservation of the driver")]
    Reservation(Resource),
    /// No generation of the API has one.
    #[error("{0}: the accounting policy")]
    Policy(Resource),
}

fn resource(name: &str) -> Result<Resource, Refused> {
    let unknown =
        || Refused { field: format!("[{name}]"), why: NotNodeAllocatable(name.to_owned()).to_string() };
    Resource::of(name).ok_or_else(unknown)
}

fn amount(name: &str, part: &str, text: &Text) -> Result<Decimal, Refused> {
    non_negative(&text.0).map_err(|why| Refused { field: format!("[{name}].{part}"), why })
}

fn multiplier(name: &str, part: &str, text: &Text) -> Result<Decimal, Refused> {
    let refused = |why: &str| Refused { field: format!("[{name}].{part}"), why: why.to_owned() };
    Some(amount(name, part, text)?)
        .filter(|m| !m.is_zero())
        .ok_or_else(|| refused("must be greater than zero"))
}

/// Reads the draft.
///
/// # Errors
/// [`Refused`].
pub fn from_draft(mappings: &NativeResourceMappings) -> Result<DeviceFootprint, Refused> {
    let mut footprint = DeviceFootprint::default();
    for (name, NativeResourceMapping { quantity_from }) in mappings {
        let mapping = match (&quantity_from.per_instance_quantity, &quantity_from.capacity) {
            (Some(text), None) => {
                let multiplier = amount(name, "quantityFrom.perInstanceQuantity", text)?;
                Mapping { basis: Basis::PerDevice, multiplier }
            }
            (None, Some(key)) => {
                Mapping { basis: Basis::Capacity(key.clone()), multiplier: Decimal::from(1) }
            }
            (Some(_), Some(_)) | (None, None) => {
                let why = "exactly one of perInstanceQuantity and capacity is required".to_owned();
                return Err(Refused { field: format!("[{name}].quantityFrom"), why });
            }
        };
        footprint.resources.insert(resource(name)?, mapped(mapping));
    }
    Ok(footprint)
}

fn mapped(mapping: Mapping) -> ResourceFootprint {
    ResourceFootprint { mapping: Some(mapping), ..ResourceFootprint::default() }
}

/// Reads 1.36.
///
/// # Errors
/// [`Refused`].
pub fn from_1_36(
    mappings: &NodeAllocatableResourceMappings,
) -> Result<(DeviceFootprint, Vec<Warning>), Refused> {
    let (mut footprint, mut warnings) = (DeviceFootprint::default(), Vec::new());
    for (name, entry) in mappings {
        let resource = resource(name)?;
        let factor = match &entry.allocation_multiplier {
            Some(text) => amount(name, "allocationMultiplier", text)?,
            None => Decimal::from(1),
        };
        let basis = match &entry.capacity_key {
            Some(key) => Basis::Capacity(key.clone()),
            None => Basis::PerDevice,
        };
        if entry.capacity_key.is_none() && entry.allocation_multiplier.is_none() {
            warnings.push(Warning::MultiplierMissing(resource.clone()));
        }
        footprint.resources.insert(resource, mapped(Mapping { basis, multiplier: factor }));
    }
    Ok((footprint, warnings))
}

/// Reads 1.37 and later.
///
/// # Errors
/// [`Refused`].
pub fn from_1_37(resources: &NodeAllocatableResources) -> Result<DeviceFootprint, Refused> {
    let mut footprint = DeviceFootprint::default();
    for (name, entry) in resources {
        let refused =
            |part: &str, why: &str| Refused { field: format!("[{name}]{part}"), why: why.to_owned() };
        let mapping = entry.mapping.as_ref().map(|mapping| mapping_1_37(name, mapping)).transpose()?;
        let overhead = match &entry.overhead {
            None => None,
            Some(ResourceOverhead { per_pod: None, per_container: None }) => {
                return Err(refused(".overhead", "one of perPod and perContainer is required"));
            }
            Some(ResourceOverhead { per_pod, per_container }) => {
                let read =
                    |part, text: &Option<Text>| text.as_ref().map(|t| amount(name, part, t)).transpose();
                Some(Overhead {
                    per_pod: read("overhead.perPod", per_pod)?,
                    per_container: read("overhead.perContainer", per_container)?,
                })
            }
        };
        let reservation = match &entry.reservation {
            None => None,
            Some(ResourceReservation { per_device: Some(text) }) => {
                Some(amount(name, "reservation.perDevice", text)?)
            }
            Some(_) => return Err(refused(".reservation", "perDevice is required")),
        };
        if mapping.is_none() && overhead.is_none() && reservation.is_none() {
            return Err(refused("", "one of mapping, overhead and reservation is required"));
        }
        let read = ResourceFootprint { mapping, overhead, reservation, policy: None };
        footprint.resources.insert(resource(name)?, read);
    }
    Ok(footprint)
}

fn mapping_1_37(name: &str, mapping: &ResourceMapping) -> Result<Mapping, Refused> {
    let ResourceMapping { capacity_key, capacity_multiplier, device_multiplier } = mapping;
    match (capacity_key, capacity_multiplier, device_multiplier) {
        (None, None, Some(text)) => {
            let multiplier = multiplier(name, "mapping.deviceMultiplier", text)?;
            Ok(Mapping { basis: Basis::PerDevice, multiplier })
        }
        (Some(key), Some(text), None) => {
            let multiplier = multiplier(name, "mapping.capacityMultiplier", text)?;
            Ok(Mapping { basis: Basis::Capacity(key.clone()), multiplier })
        }
        _ => {
            let why =
                "either deviceMultiplier, or capacityKey and capacityMultiplier, is required".to_owned();
            Err(Refused { field: format!("[{name}].mapping"), why })
        }
    }
}

fn text(amount: Decimal) -> Text {
    Text(Quantity::new(amount).to_string().into())
}

/// Whatever no generation but the newest can say.
fn lost(resource: &Resource, footprint: &ResourceFootprint) -> Vec<Loss> {
    let per_container = footprint.overhead.and_then(|o| o.per_container);
    let lost = [
        per_container.map(|_| Loss::OverheadPerContainer(resource.clone())),
        footprint.reservation.map(|_| Loss::Reservation(resource.clone())),
        footprint.policy.map(|_| Loss::Policy(resource.clone())),
    ];
    lost.into_iter().flatten().collect()
}

/// Writes the draft, and what it cannot say.
pub fn to_draft(footprint: &DeviceFootprint) -> (NativeResourceMappings, Vec<Loss>) {
    let (mut mappings, mut losses) = (NativeResourceMappings::new(), Vec::new());
    for (resource, footprint) in &footprint.resources {
        losses.extend(lost(resource, footprint));
        losses.extend(
            footprint.overhead.and_then(|o| o.per_pod).map(|_| Loss::OverheadPerPod(resource.clone())),
        );
        let Some(mapping) = &footprint.mapping else { continue };
        let quantity_from = match &mapping.basis {
            Basis::PerDevice => {
                QuantityFrom { per_instance_quantity: Some(text(mapping.multiplier)), capacity: None }
            }
            Basis::Capacity(key) => {
                if mapping.multiplier != Decimal::from(1) {
                    // Counting it one to one would be wrong, not less exact.
                    losses.push(Loss::Multiplier(resource.clone()));
                    continue;
                }
                QuantityFrom { per_instance_quantity: None, capacity: Some(key.clone()) }
            }
        };
        mappings.insert(resource.to_string().into(), NativeResourceMapping { quantity_from });
    }
    (mappings, losses)
}

/// Writes 1.36, and what it cannot say.
pub fn to_1_36(footprint: &DeviceFootprint) -> (NodeAllocatableResourceMappings, Vec<Loss>) {
    let (mut mappings, mut losses) = (NodeAllocatableResourceMappings::new(), Vec::new());
    for (resource, footprint) in &footprint.resources {
        losses.extend(lost(resource, footprint));
        let per_pod = footprint.overhead.and_then(|o| o.per_pod);
        let entry = match (&footprint.mapping, per_pod) {
            (Some(mapping), per_pod) => {
                losses.extend(per_pod.map(|_| Loss::OverheadPerPod(resource.clone())));
                let capacity_key = match &mapping.basis {
                    Basis::PerDevice => None,
                    Basis::Capacity(key) => Some(key.clone()),
                };
                NodeAllocatableResourceMapping {
                    capacity_key,
                    allocation_multiplier: Some(text(mapping.multiplier)),
                }
            }
            (None, Some(per_pod)) => {
                losses.push(Loss::OverheadPerPodMapped(resource.clone()));
                NodeAllocatableResourceMapping {
                    capacity_key: None,
                    allocation_multiplier: Some(text(per_pod)),
                }
            }
            (None, None) => continue,
        };
        mappings.insert(resource.to_string().into(), entry);
    }
    (mappings, losses)
}

/// Writes 1.37 and later, and what it cannot say. `reservations`: whether the API server
/// knows KEP-6352.
pub fn to_1_37(footprint: &DeviceFootprint, reservations: bool) -> (NodeAllocatableResources, Vec<Loss>) {
    let (mut resources, mut losses) = (NodeAllocatableResources::new(), Vec::new());
    for (resource, footprint) in &footprint.resources {
        losses.extend(footprint.policy.map(|_| Loss::Policy(resource.clone())));
        let mapping = footprint.mapping.as_ref().map(|mapping| match &mapping.basis {
            Basis::PerDevice => ResourceMapping {
                device_multiplier: Some(text(mapping.multiplier)),
                ..ResourceMapping::default()
            },
            Basis::Capacity(key) => ResourceMapping {
                capacity_key: Some(key.clone()),
                capacity_multiplier: Some(text(mapping.multiplier)),
                device_multiplier: None,
            },
        });
        let overhead = footprint.overhead.map(|overhead| ResourceOverhead {
            per_pod: overhead.per_pod.map(text),
            per_container: overhead.per_container.map(text),
        });
        let reservation =
            footprint.reservation.map(|amount| ResourceReservation { per_device: Some(text(amount)) });
        let reservation = if reservations {
            reservation
        } else {
            losses.extend(reservation.map(|_| Loss::Reservation(resource.clone())));
            None
        };
        if mapping.is_some() || overhead.is_some() || reservation.is_some() {
            let entry = NodeAllocatableResource { mapping, overhead, reservation };
            resources.insert(resource.to_string().into(), entry);
        }
    }
    (resources, losses)
}
