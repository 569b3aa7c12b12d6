//! Constant errors. A conversion of a literal or a literal pattern that fails for every device is
//! refused at compile time. What the patterns cost is known then, too.

use std::collections::HashSet;
use std::sync::Arc;

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};
use cel::{Context, Env, Value};

use super::cost::all_parts;
use super::library;

const CONVERSIONS: [&str; 8] = ["bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"];

/// Returns what it costs to compile the literal patterns, each once.
///
/// # Errors
/// A conversion of a literal fails, or a literal pattern is invalid.
pub(super) fn check(tree: &IdedExpr, environment: &Arc<Env>) -> Result<u64, String> {
    let (mut left, mut patterns, mut cost) = (vec![tree], HashSet::new(), 0_u64);
    while let Some(tree) = left.pop() {
        if let Expr::Call(call) = &tree.expr {
            if is_conversion(call) {
                is_written_well(call)?;
                let context = Context::with_env(environment.clone());
                Value::resolve_val(tree, &context).map_err(|why| why.to_string())?;
            }
            if let Some(pattern) = pattern(call).filter(|pattern| patterns.insert(*pattern)) {
                cost = cost.saturating_add(library::cost_of_pattern(pattern)?);
            }
        }
        left.extend(all_parts(tree));
    }
    Ok(cost)
}

fn is_conversion(call: &CallExpr) -> bool {
    let is_literal = matches!(call.args.as_slice(), [IdedExpr { expr: Expr::Literal(_), .. }]);
    is_literal && call.target.is_none() && CONVERSIONS.contains(&call.func_name.as_str())
}

/// Refuses literals that the `cel` crate accepts as a timestamp or a duration and cel-go does not.
fn is_written_well(call: &CallExpr) -> Result<(), String> {
    let [IdedExpr { expr: Expr::Literal(LiteralValue::String(text)), .. }] = call.args.as_slice() else {
        return Ok(());
    };
    let signs = text.inner().bytes().skip(1).any(|byte| matches!(byte, b'-' | b'+'));
    match call.func_name.as_str() {
        "timestamp" if text.inner().contains(['t', 'z']) => Err("invalid timestamp argument".to_owned()),
        "duration" if signs || text.inner().contains(['e', 'E']) => {
            Err("invalid duration argument".to_owned())
        }
        _ => Ok(()),
    }
}

/// Returns the literal pattern of a call.
fn pattern(call: &CallExpr) -> Option<&str> {
    let of = match (call.func_name.as_str(), &call.target) {
        ("matches" | "find" | "findAll", Some(_)) => call.args.first(),
        ("matches", None) => call.args.get(1),
        _ => None,
    };
    match &of?.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}
