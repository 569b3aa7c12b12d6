//! `semver(text)` and the functions of versions.

use std::cmp::Ordering;

use cel::common::types::{BOOL_TYPE, CelBool, CelInt, STRING_TYPE, Type};
use cel::{DeclarationError, Env, ExecutionError};

use super::{Arguments, function};
use crate::cel::types::SemverVal;

const SEMVER: Type = SemverVal::TYPE;

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(SEMVER)?;
    function!(env, "semver"(STRING_TYPE) | given | parsed(&given, false)?);
    function!(
        env,
        "semver"(STRING_TYPE, BOOL_TYPE) | given | parsed(&given, *given.typed::<CelBool>(1)?.inner())?
    );
    function!(env, "isSemver"(STRING_TYPE) | given | CelBool::from(SemverVal::parse(given.text(0)?).is_ok()));
    function!(
        env,
        "isSemver"(STRING_TYPE, BOOL_TYPE) | given | {
            let normal = *given.typed::<CelBool>(1)?.inner();
            CelBool::from(read(given.text(0)?, normal).is_ok())
        }
    );
    function!(env, SEMVER => "major"() |given| part(&given, |version| version.major)?);
    function!(env, SEMVER => "minor"() |given| part(&given, |version| version.minor)?);
    function!(env, SEMVER => "patch"() |given| part(&given, |version| version.patch)?);
    function!(env, SEMVER => "compareTo"(SEMVER) |given| CelInt::from(order(&given)? as i64));
    function!(env, SEMVER => "isGreaterThan"(SEMVER) |given| CelBool::from(order(&given)?.is_gt()));
    function!(env, SEMVER => "isLessThan"(SEMVER) |given| CelBool::from(order(&given)?.is_lt()));
    Ok(())
}

fn order(given: &Arguments<'_, '_, '_>) -> Result<Ordering, ExecutionError> {
    Ok(given.typed::<SemverVal>(0)?.0.cmp_precedence(&given.typed::<SemverVal>(1)?.0))
}

fn part(given: &Arguments<'_, '_, '_>, part: fn(&semver::Version) -> u64) -> Result<CelInt, ExecutionError> {
    let number = part(&given.typed::<SemverVal>(0)?.0);
    Ok(i64::try_from(number).unwrap_or(i64::MAX).into())
}

fn parsed(given: &Arguments<'_, '_, '_>, normalized: bool) -> Result<SemverVal, ExecutionError> {
    read(given.text(0)?, normalized).map_err(|why| given.failed(why))
}

/// Parses a version. Normalization removes a leading `v` and leading zeros of the numbers, and adds
/// missing numbers as zeros.
fn read(text: &str, normalized: bool) -> Result<SemverVal, String> {
    if !normalized {
        return SemverVal::parse(text);
    }
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    let mut numbers: Vec<&str> = numbers.split('.').map(without_leading_zeros).collect();
    if numbers.len() < 3 && !rest.is_empty() {
        return Err("a short version cannot contain prerelease or build metadata".to_owned());
    }
    while numbers.len() < 3 {
        numbers.push("0");
    }
    SemverVal::parse(&format!("{}{rest}", numbers.join(".")))
}

fn without_leading_zeros(number: &str) -> &str {
    let short = number.trim_start_matches('0');
    if short.is_empty() && !number.is_empty() { "0" } else { short }
}
