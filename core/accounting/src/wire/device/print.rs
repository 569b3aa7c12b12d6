//! Conversion of the canonical model into each generation, with the losses.

use dragoman_objects::{
    NativeResourceMapping, NativeResourceMappings, NodeAllocatableResource, NodeAllocatableResourceMapping,
    NodeAllocatableResourceMappings, NodeAllocatableResources, QuantityFrom, ResourceMapping,
    ResourceOverhead, ResourceReservation,
};
use dragoman_quantity::Decimal;

use crate::amounts::written;
use crate::claim::footprint::{Basis, DeviceCost, ResourceFootprint};
use crate::resource::Resource;

/// A part of the canonical model that a generation has no field for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Loss {
    /// The draft counts a capacity one to one.
    #[error("{0}: the multiplier of the capacity")]
    Multiplier(Resource),
    /// Kubernetes 1.36 has one amount for each device.
    #[error("{0}: the overhead of each Pod became part of the device, and counts once for each claim")]
    OverheadPerPodMapped(Resource),
    /// The generation has no field for overhead per Pod.
    #[error("{0}: the overhead of each Pod")]
    OverheadPerPod(Resource),
    /// The generation has no field for overhead per container.
    #[error("{0}: the overhead of each container")]
    OverheadPerContainer(Resource),
    /// The generation has no field for reservations.
    #[error("{0}: the reservation of the driver")]
    Reservation(Resource),
    /// From 1.37 on, a multiplier is greater than zero.
    #[error("{0}: that the device is mapped, to nothing")]
    MappingOfNothing(Resource),
    /// No generation of the API has accounting policies.
    #[error("{0}: the accounting policy")]
    Policy(Resource),
}

/// The losses that the draft and 1.36 have in common.
fn lost(resource: Resource, footprint: &ResourceFootprint) -> Vec<Loss> {
    let per_container = footprint.overhead.and_then(|o| o.per_container);
    let lost = [
        per_container.map(|_| Loss::OverheadPerContainer(resource)),
        footprint.reservation.map(|_| Loss::Reservation(resource)),
        footprint.policy.map(|_| Loss::Policy(resource)),
    ];
    lost.into_iter().flatten().collect()
}

/// Writes the draft, and what it cannot say.
pub fn to_draft(footprint: &DeviceCost) -> (NativeResourceMappings, Vec<Loss>) {
    let (mut mappings, mut losses) = (NativeResourceMappings::default(), Vec::new());
    for (&resource, footprint) in &footprint.resources {
        losses.extend(lost(resource, footprint));
        losses.extend(footprint.overhead.and_then(|o| o.per_pod).map(|_| Loss::OverheadPerPod(resource)));
        let Some(mapping) = &footprint.mapping else { continue };
        let quantity_from = match &mapping.basis {
            Basis::PerDevice => QuantityFrom {
                per_instance_quantity: Some(written(resource, mapping.multiplier)),
                capacity: None,
            },
            Basis::Capacity(key) => {
                if mapping.multiplier != Decimal::from(1) {
                    // Leaving it out is a loss; a count one to one would be wrong.
                    losses.push(Loss::Multiplier(resource));
                    continue;
                }
                QuantityFrom { per_instance_quantity: None, capacity: Some(key.clone()) }
            }
        };
        mappings.0.insert(resource.to_string().into(), NativeResourceMapping { quantity_from });
    }
    (mappings, losses)
}

/// Writes 1.36, and what it cannot say.
pub fn to_1_36(footprint: &DeviceCost) -> (NodeAllocatableResourceMappings, Vec<Loss>) {
    let (mut mappings, mut losses) = (NodeAllocatableResourceMappings::default(), Vec::new());
    for (&resource, footprint) in &footprint.resources {
        losses.extend(lost(resource, footprint));
        let per_pod = footprint.overhead.and_then(|o| o.per_pod);
        let entry = match (&footprint.mapping, per_pod) {
            (Some(mapping), per_pod) => {
                losses.extend(per_pod.map(|_| Loss::OverheadPerPod(resource)));
                let capacity_key = match &mapping.basis {
                    Basis::PerDevice => None,
                    Basis::Capacity(key) => Some(key.clone()),
                };
                NodeAllocatableResourceMapping {
                    capacity_key,
                    allocation_multiplier: Some(written(resource, mapping.multiplier)),
                }
            }
            (None, Some(per_pod)) => {
                losses.push(Loss::OverheadPerPodMapped(resource));
                NodeAllocatableResourceMapping {
                    capacity_key: None,
                    allocation_multiplier: Some(written(resource, per_pod)),
                }
            }
            (None, None) => continue,
        };
        mappings.0.insert(resource.to_string().into(), entry);
    }
    (mappings, losses)
}

/// Writes 1.37 and later, and what it cannot say. `reservations`: whether the API server
/// knows KEP-6352.
pub fn to_1_37(footprint: &DeviceCost, reservations: bool) -> (NodeAllocatableResources, Vec<Loss>) {
    let (mut resources, mut losses) = (NodeAllocatableResources::default(), Vec::new());
    for (&resource, footprint) in &footprint.resources {
        losses.extend(footprint.policy.map(|_| Loss::Policy(resource)));
        let nothing = footprint.mapping.as_ref().filter(|mapping| mapping.multiplier.is_zero());
        losses.extend(nothing.map(|_| Loss::MappingOfNothing(resource)));
        let mapping = footprint.mapping.as_ref().filter(|mapping| !mapping.multiplier.is_zero());
        let mapping = mapping.map(|mapping| match &mapping.basis {
            Basis::PerDevice => ResourceMapping {
                device_multiplier: Some(written(resource, mapping.multiplier)),
                ..ResourceMapping::default()
            },
            Basis::Capacity(key) => ResourceMapping {
                capacity_key: Some(key.clone()),
                capacity_multiplier: Some(written(resource, mapping.multiplier)),
                device_multiplier: None,
            },
        });
        let overhead = footprint.overhead.map(|overhead| ResourceOverhead {
            per_pod: overhead.per_pod.map(|amount| written(resource, amount)),
            per_container: overhead.per_container.map(|amount| written(resource, amount)),
        });
        let reservation = footprint
            .reservation
            .map(|amount| ResourceReservation { per_device: Some(written(resource, amount)) });
        let reservation = if reservations {
            reservation
        } else {
            losses.extend(reservation.map(|_| Loss::Reservation(resource)));
            None
        };
        if mapping.is_some() || overhead.is_some() || reservation.is_some() {
            let entry = NodeAllocatableResource { mapping, overhead, reservation };
            resources.0.insert(resource.to_string().into(), entry);
        }
    }
    (resources, losses)
}
