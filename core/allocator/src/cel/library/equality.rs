//! Equality. A value of a Kubernetes type can only be compared with a value of the same type:
//! comparing a version with a string is an error.

use cel::common::types::{CelBool, DYN_TYPE, LIST_TYPE};
use cel::common::value::Val;
use cel::{DeclarationError, Env, ExecutionError};

use super::{Arguments, function};
use crate::cel::types::is_opaque;

/// The name of `==` in rewritten expressions.
pub(in crate::cel) const EQUALS: &str = "@equals";
/// The name of `in` with a list of literals in rewritten expressions.
pub(in crate::cel) const AMONG: &str = "@among";

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    function!(
        env,
        "@equals"(DYN_TYPE, DYN_TYPE) | given | {
            let (a, b) = (given.any(0)?, given.any(1)?);
            let unlike = a.get_type() != b.get_type() && b.get_type().name() != "null_type";
            if unlike && is_opaque(a) {
                return Err(no_overload(&given, a));
            }
            CelBool::from(a.equals(b))
        }
    );
    function!(
        env,
        "@among"(DYN_TYPE, LIST_TYPE) | given | {
            let wanted = given.any(0)?;
            if is_opaque(wanted) {
                return Err(no_overload(&given, wanted));
            }
            CelBool::from(given.list(1)?.iter().any(|item| item.equals(wanted)))
        }
    );
    Ok(())
}

fn no_overload(given: &Arguments<'_, '_, '_>, of: &dyn Val) -> ExecutionError {
    given.failed(format!("no such overload: {} can be compared with its like only", of.get_type().name()))
}
