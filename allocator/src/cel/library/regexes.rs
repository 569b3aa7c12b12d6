//! `matches`, `find` and `findAll`.

use std::cell::RefCell;
use std::collections::HashMap;

use cel::common::types::{CelBool, CelInt, CelList, CelString, INT_TYPE, STRING_TYPE};
use cel::common::value::Val;
use cel::{DeclarationError, Env, ExecutionError};
use regex::{Regex, RegexBuilder};

use super::{Arguments, function};

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    // As a method and as a function: `MATCHES`.
    function!(env, STRING_TYPE => "@matches"(STRING_TYPE) |given| {
        CelBool::from(pattern(&given)?.is_match(given.text(0)?))
    });
    function!(
        env,
        "@matches"(STRING_TYPE, STRING_TYPE) | given | {
            CelBool::from(pattern(&given)?.is_match(given.text(0)?))
        }
    );
    function!(env, STRING_TYPE => "find"(STRING_TYPE) |given| {
        let found = pattern(&given)?.find(given.text(0)?).map_or("", |found| found.as_str());
        CelString::from(found.to_owned())
    });
    function!(env, STRING_TYPE => "findAll"(STRING_TYPE) |given| all(&given, -1)?);
    function!(env, STRING_TYPE => "findAll"(STRING_TYPE, INT_TYPE) |given| {
        all(&given, *given.typed::<CelInt>(2)?.inner())?
    });
    Ok(())
}

thread_local! {
    /// Compiled last: loops use the same again and again.
    static COMPILED: RefCell<HashMap<String, Result<Regex, String>>> = RefCell::default();
}

/// Patterns that are kept compiled.
const KEPT: usize = 64;

/// A small automaton: its memory is bounded, whoever wrote it.
fn small(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(1 << 20).build()
}

/// Whether a text is a pattern. One that is too large is refused where it is used.
pub(in crate::cel) fn is_pattern(text: &str) -> Result<(), String> {
    match small(text) {
        Ok(_) | Err(regex::Error::CompiledTooBig(_)) => Ok(()),
        Err(why) => Err(why.to_string()),
    }
}

fn pattern(given: &Arguments<'_, '_, '_>) -> Result<Regex, ExecutionError> {
    let text = given.text(1)?;
    COMPILED.with_borrow_mut(|compiled| {
        if !compiled.contains_key(text) && compiled.len() >= KEPT {
            compiled.clear();
        }
        let pattern =
            compiled.entry(text.to_owned()).or_insert_with(|| small(text).map_err(|why| why.to_string()));
        pattern.clone().map_err(|why| given.failed(why))
    })
}

fn all(given: &Arguments<'_, '_, '_>, limit: i64) -> Result<CelList<'static>, ExecutionError> {
    let (pattern, text) = (pattern(given)?, given.text(0)?);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = pattern.find_iter(text).take(limit);
    let found: Vec<Box<dyn Val>> =
        found.map(|found| Box::new(CelString::from(found.as_str().to_owned())) as _).collect();
    Ok(found.into())
}
