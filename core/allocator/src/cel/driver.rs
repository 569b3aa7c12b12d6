//! The driver that an expression names.

use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};

/// Returns the driver of all devices that the expression can select, where it says so: `device.driver == "gpu.example.com"`, alone or
/// as a part of a conjunction. Run before an expression is rewritten.
pub(super) fn driver(tree: &IdedExpr) -> Option<&str> {
    let mut left = vec![tree];
    while let Some(tree) = left.pop() {
        let Expr::Call(call) = &tree.expr else { continue };
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_AND, parts) => left.extend(parts),
            (operators::EQUALS, [a, b]) => {
                let named = [(a, b), (b, a)]
                    .into_iter()
                    .find_map(|(field, name)| text(name).filter(|_| is_driver(field)));
                if named.is_some() {
                    return named;
                }
            }
            _ => {}
        }
    }
    None
}

fn text(tree: &IdedExpr) -> Option<&str> {
    match &tree.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

fn is_driver(tree: &IdedExpr) -> bool {
    let Expr::Select(select) = &tree.expr else { return false };
    let is_device = matches!(&select.operand.expr, Expr::Ident(name) if name == "device");
    is_device && select.field == "driver" && !select.test
}

#[cfg(test)]
mod tests {
    use crate::cel::{Compiler, Purpose};

    #[test]
    fn a_driver_is_found_where_every_selected_device_is_of_it() {
        let of = |text: &str| {
            let expression = Compiler::default().compile(text, Purpose::Selector).expect(text);
            expression.driver().map(ToString::to_string)
        };
        let gpu = Some("gpu.example.com".to_owned());
        assert_eq!(of("device.driver == 'gpu.example.com'"), gpu);
        assert_eq!(of("'gpu.example.com' == device.driver"), gpu);
        let three =
            "device.allowMultipleAllocations == true && (device.driver == \"gpu.example.com\" && 1 == 1)";
        assert_eq!(of(three), gpu);
        assert_eq!(of("device.driver == 'gpu.example.com' || 1 == 1"), None, "or any other");
        assert_eq!(of("!(device.driver == 'gpu.example.com')"), None);
        assert_eq!(of("device.driver != 'gpu.example.com'"), None);
        assert_eq!(of("device.driver.startsWith('gpu')"), None);
        assert_eq!(of("true"), None);
    }
}
