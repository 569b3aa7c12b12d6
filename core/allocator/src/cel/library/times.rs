//! Functions of times that the `cel` crate lacks.

use cel::common::types::{CelDuration, CelInt, CelTimestamp, DURATION_TYPE, TIMESTAMP_TYPE};
use cel::{DeclarationError, Env};

use super::function;

/// Converts a timestamp to UTC, because its hours and days are those of UTC unless a time zone is
/// given.
pub(in crate::cel) const UTC: &str = "@utc";

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    function!(
        env,
        "int"(DURATION_TYPE) | given | {
            let nanoseconds = given.typed::<CelDuration>(0)?.inner().num_nanoseconds();
            CelInt::from(nanoseconds.ok_or_else(|| given.failed("integer overflow"))?)
        }
    );
    function!(
        env,
        "@utc"(TIMESTAMP_TYPE) | given | {
            CelTimestamp::from(given.typed::<CelTimestamp>(0)?.inner().to_utc().fixed_offset())
        }
    );
    Ok(())
}
