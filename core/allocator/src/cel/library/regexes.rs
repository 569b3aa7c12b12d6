//! `matches`, `find` and `findAll`.

use std::cell::RefCell;
use std::collections::HashMap;

use cel::common::types::{CelBool, CelInt, CelList, CelString, INT_TYPE, STRING_TYPE};
use cel::common::value::Val;
use cel::{DeclarationError, Env, ExecutionError};
use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind};

use super::{Arguments, function};

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    // Registered as a member and as a global function: `MATCHES`.
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
    /// The patterns compiled last, because loops repeat the same patterns.
    static COMPILED: RefCell<HashMap<String, Result<Regex, String>>> = RefCell::default();
}

/// The number of patterns at which the cache is cleared.
const KEPT: usize = 64;

/// Compiles a pattern with bounded memory.
fn small(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(1 << 20).build()
}

/// The units of cost that a state of a compiled pattern takes to compile: `\w{20}` has 64 000 of them, and takes 7 ms.
const COST_OF_A_STATE: u64 = 2;
/// The states at which a pattern is too large at the latest.
const MOST_STATES: u64 = 100_000;

/// Checks a literal pattern, and returns what it costs to compile it. A pattern that is too large is refused when it is used.
pub(in crate::cel) fn cost_of_pattern(text: &str) -> Result<u64, String> {
    let parsed = regex_syntax::parse(text).map_err(|why| why.to_string())?;
    Ok(states(&parsed).min(MOST_STATES) * COST_OF_A_STATE)
}

/// About how many states a pattern has when it is compiled: repetitions are written out, and a range of characters takes
/// some bytes.
fn states(pattern: &Hir) -> u64 {
    let sum = |parts: &[Hir]| parts.iter().map(states).fold(0, u64::saturating_add);
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(text) => text.0.len() as u64,
        HirKind::Class(Class::Unicode(class)) => 4 * class.ranges().len() as u64,
        HirKind::Class(Class::Bytes(class)) => class.ranges().len() as u64,
        HirKind::Repetition(repeated) => {
            let times = repeated.max.unwrap_or_else(|| repeated.min.saturating_add(1));
            states(&repeated.sub).saturating_mul(times.into())
        }
        HirKind::Capture(capture) => states(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => sum(parts),
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
