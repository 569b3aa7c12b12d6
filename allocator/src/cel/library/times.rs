//! What the crate lacks of times.

use cel::common::types::{CelDuration, CelInt, CelTimestamp, DURATION_TYPE, TIMESTAMP_TYPE};
use cel::{DeclarationError, Env};

use super::function;

/// A timestamp whose hours and days are those of UTC, as they are where no zone is named.
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
