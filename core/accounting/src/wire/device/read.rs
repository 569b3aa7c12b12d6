//! Conversion of each generation into the canonical model.

use std::collections::BTreeMap;

use dragoman_objects::{
    NativeResourceMapping, NativeResourceMappings, NodeAllocatableResourceMappings, NodeAllocatableResources,
    ResourceMapping, ResourceOverhead, ResourceReservation,
};
use dragoman_quantity::{Decimal, QuantityText};

use super::DeviceFields;
use crate::amounts::non_negative;
use crate::claim::footprint::{Basis, DeviceCost, Mapping, Overhead, ResourceFootprint};
use crate::resource::{NotNodeAllocatable, Resource};

/// The error for a definition that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Refused {
    /// The path of the field below the device.
    pub field: String,
    /// The reason.
    pub why: String,
}

/// A finding about a definition that was read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// kube-scheduler 1.36 counts nothing in this case, against its own documentation.
    #[error("{0}: neither capacityKey nor allocationMultiplier is set: one unit for each device is counted")]
    MultiplierMissing(Resource),
    /// Two generations of one device disagree. The newer counts.
    #[error("{0}: {newer} and {older} say different things, and {newer} counts", newer = .1, older = .2)]
    Superseded(Resource, &'static str, &'static str),
}

fn resource(name: &str) -> Result<Resource, Refused> {
    let unknown =
        || Refused { field: format!("[{name}]"), why: NotNodeAllocatable(name.to_owned()).to_string() };
    Resource::of(name).ok_or_else(unknown)
}

fn amount(name: &str, part: &str, text: &QuantityText) -> Result<Decimal, Refused> {
    non_negative(&text.0).map_err(|why| Refused { field: format!("[{name}].{part}"), why })
}

fn multiplier(name: &str, part: &str, text: &QuantityText) -> Result<Decimal, Refused> {
    let refused = |why: &str| Refused { field: format!("[{name}].{part}"), why: why.to_owned() };
    Some(amount(name, part, text)?)
        .filter(|m| !m.is_zero())
        .ok_or_else(|| refused("must be greater than zero"))
}

/// Reads all generations that a device has. If several name a resource, the newest counts.
///
/// # Errors
/// [`Refused`], whichever generation it is in.
pub fn read(fields: &DeviceFields) -> Result<(DeviceCost, Vec<Warning>), Refused> {
    let below = |field: &'static str| {
        move |refused: Refused| Refused { field: format!("{field}{}", refused.field), ..refused }
    };
    let mut generations = Vec::new();
    let mut warnings = Vec::new();
    if let Some(resources) = &fields.node_allocatable_resources {
        const NAME: &str = "nodeAllocatableResources";
        generations.push((NAME, from_1_37(resources).map_err(below(NAME))?));
    }
    if let Some(mappings) = &fields.node_allocatable_resource_mappings {
        const NAME: &str = "nodeAllocatableResourceMappings";
        let (footprint, missing) = from_1_36(mappings).map_err(below(NAME))?;
        warnings.extend(missing);
        generations.push((NAME, footprint));
    }
    if let Some(mappings) = &fields.native_resource_mappings {
        const NAME: &str = "nativeResourceMappings";
        generations.push((NAME, from_draft(mappings).map_err(below(NAME))?));
    }
    let mut newest: BTreeMap<Resource, (&'static str, ResourceFootprint)> = BTreeMap::new();
    for (name, footprint) in generations {
        for (resource, older) in footprint.resources {
            match newest.get(&resource) {
                Some((newer, known)) if *known != older => {
                    warnings.push(Warning::Superseded(resource, newer, name));
                }
                Some(_) => {}
                None => {
                    newest.insert(resource, (name, older));
                }
            }
        }
    }
    let resources = newest.into_iter().map(|(resource, (_, footprint))| (resource, footprint)).collect();
    Ok((DeviceCost { resources }, warnings))
}

/// Reads the draft.
///
/// # Errors
/// [`Refused`].
pub fn from_draft(mappings: &NativeResourceMappings) -> Result<DeviceCost, Refused> {
    let mut footprint = DeviceCost::default();
    for (name, NativeResourceMapping { quantity_from }) in &mappings.0 {
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

/// Reads the shape of Kubernetes 1.36.
///
/// # Errors
/// [`Refused`].
pub fn from_1_36(mappings: &NodeAllocatableResourceMappings) -> Result<(DeviceCost, Vec<Warning>), Refused> {
    let (mut footprint, mut warnings) = (DeviceCost::default(), Vec::new());
    for (name, entry) in &mappings.0 {
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
            warnings.push(Warning::MultiplierMissing(resource));
        }
        footprint.resources.insert(resource, mapped(Mapping { basis, multiplier: factor }));
    }
    Ok((footprint, warnings))
}

/// Reads the shape of Kubernetes 1.37 and later.
///
/// # Errors
/// [`Refused`].
pub fn from_1_37(resources: &NodeAllocatableResources) -> Result<DeviceCost, Refused> {
    let mut footprint = DeviceCost::default();
    for (name, entry) in &resources.0 {
        let refused =
            |part: &str, why: &str| Refused { field: format!("[{name}]{part}"), why: why.to_owned() };
        let mapping = entry.mapping.as_ref().map(|mapping| mapping_1_37(name, mapping)).transpose()?;
        let overhead = match &entry.overhead {
            None => None,
            Some(ResourceOverhead { per_pod: None, per_container: None }) => {
                return Err(refused(".overhead", "one of perPod and perContainer is required"));
            }
            Some(ResourceOverhead { per_pod, per_container }) => {
                let read = |part, text: &Option<QuantityText>| {
                    text.as_ref().map(|t| amount(name, part, t)).transpose()
                };
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
        let read = ResourceFootprint { mapping, overhead, reservation, policy: None, local: false };
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
