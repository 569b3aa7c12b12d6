//! The cost of an evaluation. The evaluator does not count costs, so loops are rewritten to: every
//! round adds its worst-case cost and fails once the limit is exceeded. Everything outside of loops
//! is evaluated once and charged with its worst-case cost. An expression that cannot exceed the
//! limit is not rewritten.
//!
//! The costs follow cel-go where it matters: one for a name, a field and a call, ten for a list,
//! thirty for a map. A call costs more if its arguments may be large, and a pattern costs its
//! compilation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::{Context, DeclarationError, ExecutionError, FunctionContext, Value};

use super::library;
use super::size::Sizes;
use super::{COST_LIMIT, EXCEEDED};

const CHARGE: &str = "@charge";

/// The assumed number of elements of a range that is no list literal.
const MOST_ELEMENTS: u64 = super::LENGTH_LIMIT as u64;

/// Compiling a pattern takes up to some milliseconds, and finding out that it is too large takes
/// more. A literal pattern is compiled once, unless there are many.
const PATTERN: u64 = 2_000;
const NEW_PATTERN: u64 = 20_000;

/// Returns the nesting depth of an expression.
pub(super) fn depth(tree: &IdedExpr) -> usize {
    let (mut deepest, mut left) = (0, vec![(1, tree)]);
    while let Some((depth, tree)) = left.pop() {
        deepest = deepest.max(depth);
        left.extend(all_parts(tree).into_iter().map(|part| (depth + 1, part)));
    }
    deepest
}

/// Returns the cost of an expression without its loops, and its worst-case cost with them.
pub(super) fn costs(tree: &IdedExpr, sizes: &Sizes) -> (u64, u64) {
    let mut sum = (own(tree, sizes), 0_u64);
    for (once, most) in parts(tree).into_iter().map(|part| costs(part, sizes)) {
        sum = (sum.0.saturating_add(once), sum.1.saturating_add(most));
    }
    sum.1 = sum.1.saturating_add(own(tree, sizes));
    if let Expr::Comprehension(comprehension) = &tree.expr {
        let (_, round) = costs(&comprehension.loop_step, sizes);
        let (_, condition) = costs(&comprehension.loop_cond, sizes);
        let rounds = match &comprehension.iter_range.expr {
            Expr::List(list) => list.elements.len() as u64,
            _ => MOST_ELEMENTS,
        };
        sum.1 = sum.1.saturating_add(round.saturating_add(condition).saturating_mul(rounds));
    }
    sum
}

/// Returns the cost of an expression without its parts.
fn own(tree: &IdedExpr, sizes: &Sizes) -> u64 {
    match &tree.expr {
        Expr::Ident(name) if name.starts_with('@') => 0,
        Expr::Ident(_) | Expr::Select(_) => 1,
        Expr::Call(call) if is_branch(&call.func_name) => 0,
        Expr::Call(call) => of_call(call, sizes),
        Expr::List(_) => 10,
        Expr::Map(_) => 30,
        Expr::Struct(_) => 40,
        Expr::Literal(_) | Expr::Comprehension(_) | Expr::Unspecified => 0,
    }
}

fn of_call(call: &CallExpr, sizes: &Sizes) -> u64 {
    // `sets` is part of a function name, not a value.
    let target =
        call.target.as_deref().filter(|target| !matches!(&target.expr, Expr::Ident(name) if name == "sets"));
    let given = || target.into_iter().chain(&call.args).map(|part| sizes.get(part));
    let bytes = given().map(|size| size.bytes).fold(0, u64::saturating_add);
    let each_with_each = given().map(|size| size.items.max(1)).fold(1, u64::saturating_mul);
    let more = match call.func_name.as_str() {
        "matches" | "find" | "findAll" => {
            let pattern = if target.is_some() { call.args.first() } else { call.args.get(1) };
            let is_literal = pattern.is_some_and(|pattern| matches!(pattern.expr, Expr::Literal(_)));
            if is_literal { PATTERN } else { NEW_PATTERN }
        }
        "contains" | "equivalent" | "intersects" | "indexOf" | "lastIndexOf" => each_with_each / 10,
        // Each element is compared with each other one.
        "distinct" => {
            given().map(|size| size.items.saturating_mul(size.items)).fold(0, u64::saturating_add) / 10
        }
        "range" => u64::from(library::LONGEST_RANGE) / 10,
        _ => 0,
    };
    more.saturating_add(bytes / 100).saturating_add(1)
}

fn is_branch(function: &str) -> bool {
    matches!(
        function,
        operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::CONDITIONAL
            | operators::NOT_STRICTLY_FALSE
    )
}

/// Returns the parts of an expression, without those that a loop repeats.
fn parts(tree: &IdedExpr) -> Vec<&IdedExpr> {
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

/// Returns all parts of an expression.
pub(super) fn all_parts(tree: &IdedExpr) -> Vec<&IdedExpr> {
    let mut all = parts(tree);
    if let Expr::Comprehension(comprehension) = &tree.expr {
        all.extend([&comprehension.loop_cond, &comprehension.loop_step]);
    }
    all
}

pub(super) fn parts_mut(tree: &mut IdedExpr) -> Vec<&mut IdedExpr> {
    match &mut tree.expr {
        Expr::Call(call) => call.target.as_deref_mut().into_iter().chain(&mut call.args).collect(),
        Expr::Select(select) => vec![&mut select.operand],
        Expr::List(list) => list.elements.iter_mut().collect(),
        Expr::Map(map) => map
            .entries
            .iter_mut()
            .filter_map(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => Some([&mut entry.key, &mut entry.value]),
                EntryExpr::StructField(_) => None,
            })
            .flatten()
            .collect(),
        Expr::Comprehension(comprehension) => vec![
            &mut comprehension.iter_range,
            &mut comprehension.accu_init,
            &mut comprehension.loop_cond,
            &mut comprehension.loop_step,
            &mut comprehension.result,
        ],
        _ => Vec::new(),
    }
}

/// Rewrites calls to functions of the `cel` crate that lack bounds or errors into calls to the
/// bounded functions of [`library`].
pub(super) fn replace(tree: &mut IdedExpr) {
    parts_mut(tree).into_iter().for_each(replace);
    if matches!(&tree.expr, Expr::Call(call) if call.func_name == "timestamp") {
        let timestamp = IdedExpr { id: tree.id, expr: std::mem::take(&mut tree.expr) };
        let func_name = library::UTC.to_owned();
        tree.expr = Expr::Call(CallExpr { func_name, target: None, args: vec![timestamp] });
    }
    if let Expr::Call(call) = &mut tree.expr
        && let Some(name) = replacement(call)
    {
        name.clone_into(&mut call.func_name);
        if name == library::RANGE {
            call.target = None;
        }
    }
}

fn replacement(call: &CallExpr) -> Option<&'static str> {
    let is_literal = |item: &IdedExpr| matches!(item.expr, Expr::Literal(_));
    match (call.func_name.as_str(), call.args.as_slice()) {
        ("matches", _) => Some(library::MATCHES),
        ("range", _) if is_range(call) => Some(library::RANGE),
        (operators::EQUALS, [first, _]) if !is_literal(first) => Some(library::EQUALS),
        (operators::IN, [_, IdedExpr { expr: Expr::List(list), .. }]) => {
            (!list.elements.is_empty() && list.elements.iter().all(is_literal)).then_some(library::AMONG)
        }
        _ => None,
    }
}

/// Whether a call is `lists.range(…)`.
pub(super) fn is_range(call: &CallExpr) -> bool {
    let of_lists = |target: &IdedExpr| matches!(&target.expr, Expr::Ident(name) if name == "lists");
    call.func_name == "range" && call.target.as_deref().is_some_and(of_lists)
}

/// Rewrites every loop so that each round is charged with its cost.
pub(super) fn count(tree: &mut IdedExpr, sizes: &Sizes) {
    let round = match &tree.expr {
        Expr::Comprehension(comprehension) => {
            let (step, _) = costs(&comprehension.loop_step, sizes);
            let (condition, _) = costs(&comprehension.loop_cond, sizes);
            Some(step.saturating_add(condition).max(1))
        }
        _ => None,
    };
    let is_long = matches!(&tree.expr, Expr::Call(call) if is_long(call, sizes));
    parts_mut(tree).into_iter().for_each(|part| count(part, sizes));
    if let (Expr::Comprehension(comprehension), Some(round)) = (&mut tree.expr, round) {
        charge(comprehension, round);
    }
    if is_long {
        // A charge of nothing looks at the interrupt.
        let call = std::mem::take(tree);
        let never = IdedExpr { id: call.id, expr: Expr::Literal(LiteralValue::Boolean(false.into())) };
        *tree = after_charge(0, call, never);
    }
}

/// Whether the evaluation of a function takes so long that the interrupt is looked at before it.
/// Operators are left as they are, because the evaluator recognizes the shape of loop steps.
fn is_long(call: &CallExpr, sizes: &Sizes) -> bool {
    call.func_name.starts_with(char::is_alphabetic) && of_call(call, sizes) >= PATTERN
}

/// Returns an expression that charges a cost, evaluates another expression and yields its value.
/// The evaluator never reaches `otherwise`.
fn after_charge(cost: u64, expression: IdedExpr, otherwise: IdedExpr) -> IdedExpr {
    let id = expression.id;
    let call = |name: &str, args: Vec<IdedExpr>| IdedExpr {
        id,
        expr: Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }),
    };
    let cost = i64::try_from(cost).unwrap_or(i64::MAX);
    let cost = IdedExpr { id, expr: Expr::Literal(LiteralValue::Int(cost.into())) };
    let charge = call(CHARGE, vec![cost]);
    call(operators::CONDITIONAL, vec![charge, expression, otherwise])
}

/// Adds a charge to a loop step. The evaluator recognizes some shapes of a step: `accu + [item]`,
/// also as the first branch of a conditional whose other branch is the accumulator, is appended in
/// place, and `accu && …` or `accu || …` defers errors. The charge keeps these shapes.
fn charge(comprehension: &mut ComprehensionExpr, cost: u64) {
    let id = comprehension.loop_step.id;
    let ided = |expr: Expr| IdedExpr { id, expr };
    let accumulator = || ided(Expr::Ident(comprehension.accu_var.clone()));
    let is_accumulator = |part: &IdedExpr| part.expr == accumulator().expr;
    let never = ided(Expr::Literal(LiteralValue::Boolean(false.into())));
    let (charged, otherwise) = match &mut comprehension.loop_step.expr {
        Expr::Call(CallExpr { func_name, args, .. }) => match args.as_mut_slice() {
            [guard, _, last] if func_name == operators::CONDITIONAL && is_accumulator(last) => (guard, never),
            [first, said] if is_branch(func_name) && is_accumulator(first) => (said, never),
            _ => (&mut comprehension.loop_step, accumulator()),
        },
        _ => (&mut comprehension.loop_step, accumulator()),
    };
    let inner = std::mem::take(charged);
    *charged = after_charge(cost, inner, otherwise);
}

/// The cost of one evaluation while it runs, and the flag that ends it.
pub(super) struct Meter {
    spent: AtomicU64,
    interrupt: Option<Arc<AtomicBool>>,
    interrupted: AtomicBool,
}

impl Meter {
    /// Adds a meter to a context. The cost outside of loops is spent.
    pub(super) fn of(
        context: &mut Context<'_, '_>,
        once: u64,
        interrupt: Option<Arc<AtomicBool>>,
    ) -> Result<Arc<Self>, DeclarationError> {
        let meter =
            Arc::new(Self { spent: AtomicU64::new(once), interrupt, interrupted: AtomicBool::new(false) });
        let charged = meter.clone();
        context.add_function(CHARGE, move |context: &FunctionContext<'_, '_>, cost: i64| {
            if charged.charge(u64::try_from(cost).unwrap_or_default()) {
                Ok::<Value, ExecutionError>(Value::Bool(true))
            } else {
                Err(context.error(EXCEEDED))
            }
        })?;
        Ok(meter)
    }

    fn charge(&self, cost: u64) -> bool {
        if self.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            self.interrupted.store(true, Ordering::Relaxed);
        }
        let before = self.spent.fetch_add(cost, Ordering::Relaxed);
        before.saturating_add(cost) <= COST_LIMIT && !self.was_interrupted()
    }

    pub(super) fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    pub(super) fn was_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}
