//! Functions that can make much of little, with a bound on what they make. An expression
//! calls them by their usual names; the count of costs puts these in their place.

use cel::common::types::{CelInt, CelString, DYN_TYPE, INT_TYPE, LIST_TYPE, STRING_TYPE};
use cel::common::value::Val;
use cel::{DeclarationError, Env, ExecutionError};

use super::{Arguments, function};
use crate::cel::{COST_LIMIT, EXCEEDED};

/// What a text or list costs by its size.
pub(in crate::cel) const SIZE: &str = "@size";

/// Characters that cost one, as cel-go counts them.
const CHARACTERS: usize = 10;

/// Elements of lists take more room than characters.
const ELEMENT: usize = 32;

/// The name of the bounded function that does the same.
pub(in crate::cel) fn bounded(name: &str) -> Option<&'static str> {
    match name {
        "replace" => Some("@replace"),
        "join" => Some("@join"),
        _ => None,
    }
}

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    function!(
        env,
        "@size"(DYN_TYPE) | given | {
            CelInt::from(i64::try_from(size(given.any(0)?) / CHARACTERS).unwrap_or(i64::MAX))
        }
    );
    function!(env, STRING_TYPE => "@replace"(STRING_TYPE, STRING_TYPE) |given| replaced(&given, -1)?);
    function!(env, STRING_TYPE => "@replace"(STRING_TYPE, STRING_TYPE, INT_TYPE) |given| {
        replaced(&given, *given.typed::<CelInt>(3)?.inner())?
    });
    function!(env, LIST_TYPE => "@join"() |given| joined(&given, "")?);
    function!(env, LIST_TYPE => "@join"(STRING_TYPE) |given| joined(&given, given.text(1)?)?);
    Ok(())
}

/// Bytes of texts, and elements of lists with all that is in them.
fn size(value: &dyn Val) -> usize {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return text.inner().len();
    }
    let Some(list) = value.as_iterable() else { return 0 };
    let mut items = list.iter();
    let mut sum = 0_usize;
    while let Some(item) = items.next() {
        sum = sum.saturating_add(ELEMENT).saturating_add(size(item));
    }
    sum
}

/// # Errors
/// Making it would cost more than everything may.
fn affordable(given: &Arguments<'_, '_, '_>, size: Option<usize>) -> Result<(), ExecutionError> {
    let most = usize::try_from(COST_LIMIT).unwrap_or(usize::MAX).saturating_mul(CHARACTERS);
    if size.is_some_and(|size| size <= most) { Ok(()) } else { Err(given.failed(EXCEEDED)) }
}

/// The first `count` occurrences replaced; of a negative number all.
fn replaced(given: &Arguments<'_, '_, '_>, count: i64) -> Result<CelString<'static>, ExecutionError> {
    let (text, from, to) = (given.text(0)?, given.text(1)?, given.text(2)?);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let occurrences = text.matches(from).count().min(count);
    let longer = to.len().saturating_sub(from.len()).checked_mul(occurrences);
    affordable(given, longer.and_then(|longer| longer.checked_add(text.len())))?;
    Ok(text.replacen(from, to, count).into())
}

fn joined(given: &Arguments<'_, '_, '_>, separator: &str) -> Result<CelString<'static>, ExecutionError> {
    let mut texts = Vec::new();
    for item in given.list(0)? {
        let text = item.downcast_ref::<CelString<'_>>().ok_or_else(|| given.failed("not a list of texts"))?;
        texts.push(text.inner());
    }
    let all = texts.iter().try_fold(0_usize, |sum, text| sum.checked_add(text.len()));
    let between = separator.len().checked_mul(texts.len());
    affordable(given, all.zip(between).and_then(|(all, between)| all.checked_add(between)))?;
    Ok(texts.join(separator).into())
}
