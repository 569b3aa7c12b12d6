//! The rewriting of loops over two variables into loops over one. The one variable is a pair, and
//! its halves replace the two variables.

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue, operators};

use super::cost::parts_mut;
use super::library::PAIRS;

/// Rewrites all loops of an expression.
pub(super) fn instead_of_two_variables(tree: &mut IdedExpr) {
    let id = tree.id;
    if let Expr::Comprehension(comprehension) = &mut tree.expr
        && let Some(second) = comprehension.iter_var2.take()
    {
        // The id makes the name unique, also among nested loops.
        let pair = format!("@pair{id}");
        let first = std::mem::replace(&mut comprehension.iter_var, pair.clone());
        let range = std::mem::take(&mut comprehension.iter_range);
        let of_pairs = CallExpr { func_name: PAIRS.to_owned(), target: None, args: vec![range] };
        comprehension.iter_range = IdedExpr { id, expr: Expr::Call(of_pairs) };
        for (half, name) in [first, second].iter().enumerate() {
            let half = half_of(&pair, half, id);
            replace(&mut comprehension.loop_cond, name, &half);
            replace(&mut comprehension.loop_step, name, &half);
        }
    }
    parts_mut(tree).into_iter().for_each(instead_of_two_variables);
}

fn half_of(pair: &str, half: usize, id: u64) -> Expr {
    let half = i64::try_from(half).unwrap_or_default();
    let args = [Expr::Ident(pair.to_owned()), Expr::Literal(LiteralValue::Int(half.into()))];
    let args = args.map(|expr| IdedExpr { id, expr }).into();
    Expr::Call(CallExpr { func_name: operators::INDEX.to_owned(), target: None, args })
}

/// Replaces a variable, except where an inner variable of the same name hides it.
fn replace(tree: &mut IdedExpr, name: &str, with: &Expr) {
    match &mut tree.expr {
        Expr::Ident(known) if known == name => tree.expr = with.clone(),
        Expr::Comprehension(comprehension) => {
            let ComprehensionExpr { iter_range, iter_var, iter_var2, accu_var, .. } = &mut **comprehension;
            replace(iter_range, name, with);
            let gathers = accu_var == name;
            let hides = gathers || iter_var == name || iter_var2.as_deref() == Some(name);
            replace(&mut comprehension.accu_init, name, with);
            if !hides {
                replace(&mut comprehension.loop_cond, name, with);
                replace(&mut comprehension.loop_step, name, with);
            }
            if !gathers {
                replace(&mut comprehension.result, name, with);
            }
        }
        _ => parts_mut(tree).into_iter().for_each(|part| replace(part, name, with)),
    }
}
