//! List functions: sums, extremes, indexes, ranges and `includes`.

use std::cmp::Ordering;

use cel::common::types::{CelBool, CelInt, CelList, CelOptional, DYN_TYPE, INT_TYPE, LIST_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::{Arguments, function};
use crate::cel::types::{QuantityVal, SemverVal};

/// The largest number of values of an attribute. `includes` fails on a longer list.
const MOST_VALUES: usize = 48;

/// The largest argument of `lists.range` (a million upstream).
pub(in crate::cel) const LONGEST_RANGE: u32 = 10_000;

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    function!(env, LIST_TYPE => "isSorted"() |given| {
        let items = given.list(0)?;
        let mut sorted = true;
        for pair in items.windows(2) {
            let [before, after] = pair else { continue };
            sorted &= compare(*before, *after)?.is_le();
        }
        CelBool::from(sorted)
    });
    function!(env, LIST_TYPE => "indexOf"(DYN_TYPE) |given| {
        let wanted = given.any(1)?;
        place(given.list(0)?.iter().position(|item| item.equals(wanted)))
    });
    function!(env, LIST_TYPE => "lastIndexOf"(DYN_TYPE) |given| {
        let wanted = given.any(1)?;
        place(given.list(0)?.iter().rposition(|item| item.equals(wanted)))
    });
    function!(env, DYN_TYPE => "includes"(DYN_TYPE) |given| {
        let (attribute, wanted) = (given.any(0)?, given.any(1)?);
        if attribute.get_type().name() == "list" {
            let items = given.list(0)?;
            if items.len() > MOST_VALUES {
                return Err(given.failed(format!("more than {MOST_VALUES} values")));
            }
            CelBool::from(items.iter().any(|item| item.equals(wanted)))
        } else {
            CelBool::from(attribute.equals(wanted))
        }
    });
    env.add_member_overload("min", "list.min()", LIST_TYPE, vec![], |given| {
        least(&Arguments("min", &given), Ordering::Less)
    })?;
    env.add_member_overload("max", "list.max()", LIST_TYPE, vec![], |given| {
        least(&Arguments("max", &given), Ordering::Greater)
    })?;
    function!(
        env,
        "@range"(INT_TYPE) | given | {
            let size = *given.typed::<CelInt>(0)?.inner();
            let size = u32::try_from(size).ok().filter(|size| *size <= LONGEST_RANGE);
            let size = size.ok_or_else(|| given.failed(format!("the size must be 0 to {LONGEST_RANGE}")))?;
            CelList::from((0..size).map(|n| Box::new(CelInt::from(i64::from(n))) as _).collect::<Vec<_>>())
        }
    );
    env.add_member_overload("first", "list.first()", LIST_TYPE, vec![], |given| {
        Ok(optional(Arguments("first", &given).list(0)?.first().copied()))
    })?;
    env.add_member_overload("last", "list.last()", LIST_TYPE, vec![], |given| {
        Ok(optional(Arguments("last", &given).list(0)?.last().copied()))
    })?;
    env.add_member_overload("unwrapOpt", "list.unwrapOpt()", LIST_TYPE, vec![], |given| {
        unwrapped(&Arguments("unwrapOpt", &given))
    })?;
    env.add_overload("optional.unwrap", "optional.unwrap(list)", vec![LIST_TYPE], |given| {
        unwrapped(&Arguments("optional.unwrap", &given))
    })?;
    env.add_member_overload("sum", "list.sum()", LIST_TYPE, vec![], |given| sum(&Arguments("sum", &given)))
}

fn place(found: Option<usize>) -> CelInt {
    found.and_then(|place| i64::try_from(place).ok()).unwrap_or(-1).into()
}

fn optional<'b, 'v>(item: Option<&(dyn Val + 'v)>) -> CowVal<'b, 'v> {
    let item = item.map(Val::clone_as_boxed);
    CowVal::Owned(Box::new(item.map_or_else(CelOptional::none, CelOptional::of)))
}

/// Returns the values of those optionals that have one.
fn unwrapped<'b, 'v>(given: &Arguments<'_, 'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let mut there: Vec<Box<dyn Val + 'v>> = Vec::new();
    for item in given.list(0)? {
        let item = item.downcast_ref::<CelOptional<'v>>().ok_or_else(|| given.failed("not an optional"))?;
        there.extend(item.option().map(Val::clone_as_boxed));
    }
    Ok(CowVal::Owned(Box::new(CelList::from(there))))
}

fn compare(a: &dyn Val, b: &dyn Val) -> Result<Ordering, ExecutionError> {
    if let (Some(a), Some(b)) = (a.downcast_ref::<SemverVal>(), b.downcast_ref::<SemverVal>()) {
        return Ok(a.0.cmp_precedence(&b.0));
    }
    if let (Some(a), Some(b)) = (a.downcast_ref::<QuantityVal>(), b.downcast_ref::<QuantityVal>()) {
        return Ok(a.0.cmp(&b.0));
    }
    let comparer = a.as_comparer();
    comparer
        .ok_or_else(|| ExecutionError::ValuesNotComparable(cel::Value::Null, cel::Value::Null))?
        .compare(b)
}

fn least<'b, 'v>(given: &Arguments<'_, 'b, 'v>, wanted: Ordering) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let items = given.list(0)?;
    let mut items = items.into_iter();
    let mut least = items.next().ok_or_else(|| given.failed("called on an empty list"))?;
    for item in items {
        if compare(item, least)? == wanted {
            least = item;
        }
    }
    Ok(CowVal::Owned(least.clone_as_boxed()))
}

fn sum<'b, 'v>(given: &Arguments<'_, 'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let mut sum: Option<Box<dyn Val + 'v>> = None;
    for item in given.list(0)? {
        sum = Some(match sum {
            None => item.clone_as_boxed(),
            Some(sum) => {
                let adder = sum.as_adder().ok_or_else(|| given.failed("these cannot be added"))?;
                adder.add(item)?.into_owned()
            }
        });
    }
    Ok(sum.map_or_else(|| CowVal::owned(CelInt::from(0)), CowVal::Owned))
}
