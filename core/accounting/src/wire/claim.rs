//! A ResourceClaim as accounting reads it.

use dragoman_objects::{self as objects, Name, ResourceClaim};

use crate::claim::allocation::{Class, DeviceResult, consumed};
use crate::cluster;

impl From<&objects::DeviceResult> for DeviceResult {
    fn from(result: &objects::DeviceResult) -> Self {
        Self {
            request: result.request.clone(),
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            consumed: consumed(result.consumed_capacity.iter().map(|(name, of)| (&**name, of.to_string()))),
            shared: result.share_id.is_some(),
            admin_access: result.is_admin(),
            class: Class::default(),
        }
    }
}

impl From<&ResourceClaim> for cluster::Claim {
    /// An allocation or a result that does not decode is in `unread`.
    fn from(claim: &ResourceClaim) -> Self {
        let allocation = claim.decoded_allocation();
        let results =
            |allocation: &objects::Allocation| allocation.devices.results.iter().map(Into::into).collect();
        let unread = |allocation: &objects::Allocation| {
            let why = allocation.devices.results.iter().find_map(|result| result.unreadable.clone());
            // A field beside the results is named with its whole path.
            let is_whole = |why: &Name| why.starts_with("field status.allocation.");
            why.map(|why| {
                if is_whole(&why) { why } else { format!("status.allocation.devices.results: {why}").into() }
            })
        };
        Self {
            namespace: claim.metadata.namespace.clone(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
            node: claim.allocation().and_then(|of| of.node_selector.as_ref()?.node().cloned()),
            reserved_for: claim.status.reserved_for.iter().map(|of| of.uid.clone()).collect(),
            results: claim.allocation().map(results),
            unread: allocation.map_or_else(Some, |of| of.and_then(unread)),
        }
    }
}
