//! What an evaluation costs. The evaluator does not count, so the expression is made to:
//! every part that is evaluated as a whole is wrapped in a call that adds what it costs,
//! and fails when that is too much. Only comprehensions can cost much, so an expression
//! that cannot exceed the limit stays as it is.
//!
//! Costs are those of cel-go: one for a name, a field and a call, ten for a list, thirty
//! for a map. Texts and lists that an expression makes cost a tenth of their size besides,
//! so that none grows without bounds; other operations on texts are counted as one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators,
};
use cel::{Context, DeclarationError, ExecutionError, FunctionContext, Value};

use super::EXCEEDED;
use super::library::texts;

const CHARGE: &str = "@charge";
/// The name of a text or list that was made and is yet to be charged for.
const MADE: &str = "@made";

/// Elements that a comprehension may have: an attribute has at most 48 values, a text as
/// many characters as an expression, and so has a list that it spells out.
const MOST_ELEMENTS: u64 = super::LENGTH_LIMIT as u64;

/// Whether evaluating it could cost more than `limit`.
pub(super) fn may_exceed(tree: &IdedExpr, limit: u64) -> bool {
    most(tree) > limit || grows(tree)
}

/// Whether it can make texts that are much longer than itself.
fn grows(tree: &IdedExpr) -> bool {
    let (mut repeats, mut adds, mut multiplies) = (false, false, false);
    let mut left = vec![tree];
    while let Some(tree) = left.pop() {
        left.extend(parts(tree));
        match &tree.expr {
            Expr::Comprehension(_) => repeats = true,
            Expr::Call(call) => {
                multiplies |= texts::bounded(&call.func_name).is_some();
                adds |= call.func_name == operators::ADD;
            }
            Expr::List(list) => {
                adds |= list.elements.iter().any(|item| !matches!(item.expr, Expr::Literal(_)));
            }
            Expr::Map(_) => adds = true,
            _ => {}
        }
    }
    multiplies || (repeats && adds)
}

/// How deep it is.
pub(super) fn depth(tree: &IdedExpr) -> usize {
    let (mut deepest, mut left) = (0, vec![(1, tree)]);
    while let Some((depth, tree)) = left.pop() {
        deepest = deepest.max(depth);
        left.extend(parts(tree).into_iter().map(|part| (depth + 1, part)));
    }
    deepest
}

/// All parts, those of a loop too.
fn parts(tree: &IdedExpr) -> Vec<&IdedExpr> {
    let mut parts = children(tree);
    if let Expr::Comprehension(comprehension) = &tree.expr {
        parts.extend([&comprehension.loop_cond, &comprehension.loop_step]);
    }
    parts
}

/// An upper bound.
fn most(tree: &IdedExpr) -> u64 {
    let children = children(tree).into_iter().map(most).fold(0, u64::saturating_add);
    match &tree.expr {
        Expr::Comprehension(comprehension) => {
            let once = most(&comprehension.loop_step).saturating_add(most(&comprehension.loop_cond));
            let elements = match &comprehension.iter_range.expr {
                Expr::List(list) => list.elements.len() as u64,
                _ => MOST_ELEMENTS,
            };
            children.saturating_add(once.saturating_mul(elements))
        }
        _ => children.saturating_add(own(tree)),
    }
}

/// What an expression costs apart from its parts.
fn own(tree: &IdedExpr) -> u64 {
    match &tree.expr {
        Expr::Ident(name) if name.starts_with('@') => 0,
        Expr::Ident(_) | Expr::Select(_) => 1,
        Expr::Call(call) => u64::from(!is_branch(&call.func_name)),
        Expr::List(_) => 10,
        Expr::Map(_) => 30,
        Expr::Struct(_) => 40,
        Expr::Literal(_) | Expr::Comprehension(_) | Expr::Unspecified => 0,
    }
}

fn is_branch(function: &str) -> bool {
    matches!(
        function,
        operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::CONDITIONAL
            | operators::NOT_STRICTLY_FALSE
            | CHARGE
    )
}

/// The parts, those of a loop apart.
fn children(tree: &IdedExpr) -> Vec<&IdedExpr> {
    match &tree.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map
            .entries
            .iter()
            .filter_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => Some([&entry.key, &entry.value]),
                EntryExpr::StructField(_) => None,
            })
            .flatten()
            .collect(),
        Expr::Comprehension(comprehension) => {
            vec![&comprehension.iter_range, &comprehension.accu_init, &comprehension.result]
        }
        _ => Vec::new(),
    }
}

/// Makes the expression count what it costs.
pub(super) fn count(tree: &mut IdedExpr) {
    let whole = counted(tree);
    charge(tree, whole);
}

/// Counts the parts that may be skipped or repeated, and gives the cost of the rest.
fn counted(tree: &mut IdedExpr) -> u64 {
    let own = own(tree);
    let sum = |parts: &mut dyn Iterator<Item = &mut IdedExpr>| parts.map(counted).sum::<u64>();
    let mut makes_text = false;
    let of_parts = match &mut tree.expr {
        // The first part is always evaluated, the others are not.
        Expr::Call(call) if is_branch(&call.func_name) => {
            let mut parts = call.args.iter_mut();
            let first = parts.next().map_or(0, counted);
            parts.for_each(count);
            first
        }
        Expr::Call(call) => {
            let cost = sum(&mut call.target.as_deref_mut().into_iter().chain(&mut call.args));
            if let Some(bounded) = texts::bounded(&call.func_name) {
                bounded.clone_into(&mut call.func_name);
                makes_text = true;
            }
            // What a loop gathers is counted element by element.
            let gathers = matches!(call.args.first(), Some(IdedExpr { expr: Expr::Ident(name), .. }) if name.starts_with('@'));
            makes_text |= call.func_name == operators::ADD && !gathers;
            cost
        }
        Expr::Select(select) => counted(&mut select.operand),
        Expr::List(list) => {
            let cost = sum(&mut list.elements.iter_mut());
            list.elements.iter_mut().for_each(size);
            cost
        }
        Expr::Map(map) => {
            let entries = map.entries.iter_mut().filter_map(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => Some([&mut entry.key, &mut entry.value]),
                EntryExpr::StructField(_) => None,
            });
            let cost = |part: &mut IdedExpr| {
                let cost = counted(part);
                size(part);
                cost
            };
            entries.flatten().map(cost).sum()
        }
        Expr::Comprehension(comprehension) => {
            count(&mut comprehension.loop_step);
            let parts =
                [&mut comprehension.iter_range, &mut comprehension.accu_init, &mut comprehension.result];
            sum(&mut parts.into_iter())
        }
        _ => 0,
    };
    if makes_text {
        size(tree);
    }
    own + of_parts
}

/// Charges for the size of a text or list once it is made.
fn size(tree: &mut IdedExpr) {
    if matches!(&tree.expr, Expr::Literal(_)) {
        return;
    }
    let id = tree.id;
    let ided = |expr: Expr| IdedExpr { id, expr };
    let made = || ided(Expr::Ident(MADE.to_owned()));
    let never = || ided(Expr::Literal(LiteralValue::Boolean(false.into())));
    let call = |name: &str, args: Vec<IdedExpr>| {
        ided(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
    };
    let cost = call(CHARGE, vec![call(texts::SIZE, vec![made()])]);
    // As `cel.bind(@made, tree, @charge(@size(@made)) ? @made : false)`.
    let inner = std::mem::take(tree);
    *tree = ided(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: ided(Expr::List(ListExpr::new(Vec::new()))),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: MADE.to_owned(),
        accu_init: inner,
        loop_cond: never(),
        loop_step: made(),
        result: call(operators::CONDITIONAL, vec![cost, made(), never()]),
    })));
}

fn charge(tree: &mut IdedExpr, cost: u64) {
    if cost == 0 {
        return;
    }
    let cost = i64::try_from(cost).unwrap_or(i64::MAX);
    let cost = IdedExpr { id: tree.id, expr: Expr::Literal(LiteralValue::Int(cost.into())) };
    let inner = std::mem::take(tree);
    let never = IdedExpr { id: inner.id, expr: Expr::Literal(LiteralValue::Boolean(false.into())) };
    // `@charge(cost) ? inner : false`: what is too much is refused before it is evaluated.
    let call = CallExpr {
        func_name: operators::CONDITIONAL.to_owned(),
        target: None,
        args: vec![
            IdedExpr {
                id: inner.id,
                expr: Expr::Call(CallExpr { func_name: CHARGE.to_owned(), target: None, args: vec![cost] }),
            },
            inner,
            never,
        ],
    };
    *tree = IdedExpr { id: call.args.first().map_or(0, |first| first.id), expr: Expr::Call(call) };
}

/// Lets an evaluation in this context cost no more than `limit`. What it gives is the cost
/// so far: a logical operator may have swallowed the error.
pub(super) fn limit(context: &mut Context<'_, '_>, limit: u64) -> Result<Arc<AtomicU64>, DeclarationError> {
    let total = Arc::new(AtomicU64::new(0));
    let spent = total.clone();
    context.add_function(CHARGE, move |context: &FunctionContext<'_, '_>, cost: i64| {
        let cost = u64::try_from(cost).unwrap_or_default();
        let before = spent.fetch_add(cost, Ordering::Relaxed);
        if before.saturating_add(cost) > limit {
            Err(context.error(EXCEEDED))
        } else {
            Ok::<Value, ExecutionError>(Value::Bool(true))
        }
    })?;
    Ok(total)
}
