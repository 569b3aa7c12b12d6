//! Lazy alternatives. `a.or(b)` and `a.orValue(b)` evaluate `b` only if `a` has no value, but the
//! functions of the `cel` crate evaluate both.

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators};

use super::cost::parts_mut;

/// Rewrites all alternatives that may fail into conditionals.
pub(super) fn alternatives(tree: &mut IdedExpr) {
    parts_mut(tree).into_iter().for_each(alternatives);
    let id = tree.id;
    let Expr::Call(call) = &mut tree.expr else { return };
    let has_value = call.func_name == "orValue";
    let [other] = call.args.as_mut_slice() else { return };
    if !(has_value || call.func_name == "or") || matches!(other.expr, Expr::Literal(_)) {
        return;
    }
    let Some(option) = call.target.take() else { return };
    let other = std::mem::take(other);
    let ided = |expr: Expr| IdedExpr { id, expr };
    let name = format!("@option{id}");
    let named = || ided(Expr::Ident(name.clone()));
    let of_named = |function: &str| {
        let target = Some(Box::new(named()));
        ided(Expr::Call(CallExpr { func_name: function.to_owned(), target, args: Vec::new() }))
    };
    let first = if has_value { of_named("value") } else { named() };
    let args = vec![of_named("hasValue"), first, other];
    let func_name = operators::CONDITIONAL.to_owned();
    // The same construction as `cel.bind`: a loop over an empty list.
    tree.expr = Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: ided(Expr::List(ListExpr::new(Vec::new()))),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name.clone(),
        accu_init: *option,
        loop_cond: ided(Expr::Literal(LiteralValue::Boolean(false.into()))),
        loop_step: named(),
        result: ided(Expr::Call(CallExpr { func_name, target: None, args })),
    }));
}
