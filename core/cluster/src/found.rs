//! Devices that a search has found for a claim, as accounting reads them.

use dragoman_accounting::cluster;
use dragoman_allocator::input::Claim;
use dragoman_objects::Allocation;

/// A claim as it would be with this allocation.
pub fn with_allocation(claim: &Claim, allocation: &Allocation) -> cluster::Claim {
    cluster::Claim {
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
        uid: claim.uid.clone(),
        results: Some(allocation.devices.results.iter().map(Into::into).collect()),
        ..cluster::Claim::default()
    }
}
