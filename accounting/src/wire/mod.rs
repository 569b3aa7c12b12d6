//! The shapes in which the API has said all this, generation by generation
//! (docs/accounting.md 1), and the way from and to the canonical model.

pub mod device;
pub mod pod_status;

use serde::{Deserialize, Deserializer};

/// A field that may be missing or `null` and then has its default value.
///
/// # Errors
/// It is there, and something else.
pub fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
