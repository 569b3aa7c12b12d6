//! `cel.bind(name, value, expression)`.

use cel::common::ast::{ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue};
use cel::parser::{Macro, MacroExprHelper, ParseError};
use cel::{DeclarationError, Env};

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_macro(Macro::receiver("bind", 3, bind))
}

/// Expands to a comprehension over an empty list, whose accumulator is the bound name.
fn bind(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    arguments: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    if !matches!(target, Some(IdedExpr { expr: Expr::Ident(name), .. }) if name == "cel") {
        return Ok(None);
    }
    let [name, _, _] = arguments.as_slice() else { return Ok(None) };
    let Expr::Ident(accu_var) = name.expr.clone() else {
        return Err(helper.new_error(name.id, "cel.bind() variable names must be simple identifiers"));
    };
    let (Some(result), Some(accu_init)) = (arguments.pop(), arguments.pop()) else { return Ok(None) };
    let empty = helper.next_expr(Expr::List(ListExpr::new(Vec::new())));
    let never = helper.next_expr(Expr::Literal(LiteralValue::Boolean(false.into())));
    let step = helper.next_expr(Expr::Ident(accu_var.clone()));
    Ok(Some(helper.next_expr(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: empty,
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var,
        accu_init,
        loop_cond: never,
        loop_step: step,
        result,
    })))))
}
