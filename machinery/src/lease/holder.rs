//! Whether another process holds a Lease, for one that does not stand.

use std::time::Duration;

use serde::Deserialize as _;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{LEASE, Lease};
use crate::api::{Api, Live};
use crate::refusal::Refusal;

/// Interval between looks at the Lease.
const LOOK: Duration = Duration::from_secs(1);

/// Returns the holder of a Lease that is being renewed. One that is not is watched until it has run
/// out, so that no clock has to agree with another.
///
/// # Errors
/// The Lease cannot be read.
pub async fn live_holder(api: &Api, namespace: &str, name: &str) -> Result<Option<String>, Refusal> {
    let mut first: Option<(String, Instant)> = None;
    loop {
        let Live::Found(object) = api.get::<Value>(LEASE, namespace, name).await? else { return Ok(None) };
        let lease = Lease::deserialize(&*object).map_err(|e| Refusal::Undecodable(e.to_string()))?;
        let validity = lease.spec.validity().unwrap_or_default() + LOOK;
        let Some(holder) = lease.spec.holder_identity.filter(|holder| !holder.is_empty()) else {
            return Ok(None);
        };
        let version = lease.metadata.resource_version.to_string();
        match &first {
            None => first = Some((version, Instant::now() + validity)),
            Some((known, _)) if *known != version => return Ok(Some(holder)),
            Some((_, end)) if Instant::now() >= *end => return Ok(None),
            Some(_) => {}
        }
        sleep(LOOK).await;
    }
}
