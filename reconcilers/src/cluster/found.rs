//! Devices that a search has found for a claim, as accounting reads them.

use dragoman_accounting::claim::allocation::{Class, DeviceResult, consumed};
use dragoman_accounting::cluster;
use dragoman_allocator::input::{Allocation, Claim};

/// A claim as it would be with this allocation.
pub fn with_allocation(claim: &Claim, allocation: &Allocation) -> cluster::Claim {
    let results = allocation.devices.results.iter().map(|result| DeviceResult {
        request: (*result.request).into(),
        driver: (*result.driver).into(),
        pool: (*result.pool).into(),
        device: (*result.device).into(),
        consumed: consumed(result.consumed_capacity.iter().map(|(name, of)| (&**name, of.to_string()))),
        shared: result.share_id.is_some(),
        admin_access: result.admin_access == Some(true),
        class: Class::default(),
    });
    cluster::Claim {
        namespace: (*claim.namespace).into(),
        name: (*claim.name).into(),
        uid: (*claim.uid).into(),
        results: Some(results.collect()),
        unread: None,
    }
}
