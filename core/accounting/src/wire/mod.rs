//! The wire shapes of every generation of the API (docs/accounting.md 1), and conversions from and
//! to the canonical model.

pub mod device;
pub mod pod_status;

use serde::{Deserialize, Deserializer};

/// Deserializes a field that may be missing or `null`; both give the default.
///
/// # Errors
/// The field is present and is neither `null` nor a `T`.
pub fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
