//! `sets.contains`, `sets.equivalent`, `sets.intersects`.

use cel::common::types::{CelBool, LIST_TYPE};
use cel::common::value::Val;
use cel::{DeclarationError, Env};

use super::function;

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    function!(
        env,
        "sets.contains"(LIST_TYPE, LIST_TYPE) | given | {
            CelBool::from(contains(&given.list(0)?, &given.list(1)?))
        }
    );
    function!(
        env,
        "sets.equivalent"(LIST_TYPE, LIST_TYPE) | given | {
            let (a, b) = (given.list(0)?, given.list(1)?);
            CelBool::from(contains(&a, &b) && contains(&b, &a))
        }
    );
    function!(
        env,
        "sets.intersects"(LIST_TYPE, LIST_TYPE) | given | {
            let (a, b) = (given.list(0)?, given.list(1)?);
            CelBool::from(a.iter().any(|item| b.iter().any(|other| item.equals(*other))))
        }
    );
    Ok(())
}

fn contains(set: &[&dyn Val], subset: &[&dyn Val]) -> bool {
    subset.iter().all(|wanted| set.iter().any(|item| item.equals(*wanted)))
}
