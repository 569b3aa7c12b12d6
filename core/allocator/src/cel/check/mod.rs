//! The type check. Ill-typed expressions are refused before any device is examined, as the API
//! server does when it validates an object and kube-scheduler when it compiles an expression.

mod declarations;
mod types;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators,
};

use self::declarations::{Declarations, declared};
use self::types::{Bindings, Type};
use super::Purpose;

/// Returns the type of an expression.
///
/// # Errors
/// A name is undeclared, or the types do not match.
pub(super) fn check(tree: &IdedExpr) -> Result<Type, String> {
    let mut checker = Checker { declarations: declared(), names: Vec::new() };
    checker.names.push(("device".to_owned(), Type::Device));
    checker.type_of(tree)
}

/// Checks whether the type of an expression suits its purpose.
///
/// # Errors
/// The type does not suit the purpose.
pub(super) fn is_useful(given: &Type, purpose: Purpose) -> Result<(), String> {
    let scalar = |of: &Type| matches!(of, Type::Dyn | Type::Bool | Type::Int | Type::String | Type::Semver);
    match (purpose, given) {
        (_, Type::Dyn) | (Purpose::Selector, Type::Bool) => Ok(()),
        (Purpose::Selector, given) => Err(format!("must evaluate to bool or the unknown type, not {given}")),
        (Purpose::DerivedAttribute, Type::List(of)) if scalar(of) => Ok(()),
        (Purpose::DerivedAttribute, given) if scalar(given) => Ok(()),
        (Purpose::DerivedAttribute, given) => {
            Err(format!("must evaluate to an attribute or the unknown type, not {given}"))
        }
    }
}

struct Checker {
    declarations: &'static Declarations,
    /// The variables, innermost last.
    names: Vec<(String, Type)>,
}

type Checked = Result<Type, String>;

impl Checker {
    fn type_of(&mut self, tree: &IdedExpr) -> Checked {
        match &tree.expr {
            Expr::Literal(literal) => Ok(literal_type(literal)),
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let optional = |place: usize| list.optional_indices.contains(&place);
                let mut element = None;
                for (place, item) in list.elements.iter().enumerate() {
                    let given = self.type_of(item)?;
                    let given = if optional(place) { unwrapped(given)? } else { given };
                    joined(&mut element, given)?;
                }
                Ok(Type::List(Box::new(element.unwrap_or(Type::Dyn))))
            }
            Expr::Map(map) => {
                let (mut key, mut value) = (None, None);
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    let given = self.type_of(&entry.key)?;
                    if !matches!(given, Type::Bool | Type::Int | Type::Uint | Type::String | Type::Dyn) {
                        return Err(format!("unsupported key type '{given}'"));
                    }
                    joined(&mut key, given)?;
                    let given = self.type_of(&entry.value)?;
                    joined(&mut value, if entry.optional { unwrapped(given)? } else { given })?;
                }
                Ok(Type::map(key.unwrap_or(Type::Dyn), value.unwrap_or(Type::Dyn)))
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(object) => Err(format!("undeclared reference to '{}'", object.type_name)),
            Expr::Unspecified => Err("an empty expression".to_owned()),
        }
    }

    fn ident(&self, name: &str) -> Checked {
        let variable = self.names.iter().rev().find(|(known, _)| known == name);
        variable
            .map(|(_, of)| of.clone())
            .or_else(|| types::named(name).map(|of| Type::Itself(Box::new(of))))
            .ok_or_else(|| format!("undeclared reference to '{name}'"))
    }

    fn select(&mut self, select: &SelectExpr) -> Checked {
        if let Some(of) = dotted(select).and_then(|name| types::named(&name)) {
            return Ok(Type::Itself(Box::new(of)));
        }
        let field = field_of(self.type_of(&select.operand)?, &select.field)?;
        Ok(if select.test { Type::Bool } else { field })
    }

    fn call(&mut self, call: &CallExpr) -> Checked {
        if call.func_name == operators::OPT_SELECT {
            return self.optional_select(call);
        }
        let qualified = call.target.as_ref().and_then(|target| path(&target.expr));
        let qualified = qualified.map(|path| format!("{path}.{}", call.func_name));
        let global = qualified.filter(|name| self.declarations.has(name, false));
        let member = call.target.as_deref().filter(|_| global.is_none());
        let mut given = Vec::with_capacity(call.args.len() + 1);
        for argument in member.into_iter().chain(&call.args) {
            given.push(match &argument.expr {
                // The arguments of `format` may have different types.
                Expr::List(list) if call.func_name == "format" => {
                    list.elements.iter().try_for_each(|item| self.type_of(item).map(drop))?;
                    Type::List(Box::new(Type::Dyn))
                }
                _ => self.type_of(argument)?,
            });
        }
        let name = global.as_deref().unwrap_or(&call.func_name);
        if !self.declarations.has(name, member.is_some()) {
            return Err(format!("undeclared reference to '{name}'"));
        }
        let mut result: Option<Type> = None;
        for overload in self.declarations.overloads(name, member.is_some()) {
            let mut bindings = Bindings::default();
            let fits = overload.takes.len() == given.len()
                && overload.takes.iter().zip(&given).all(|(wanted, given)| bindings.accept(wanted, given));
            if fits {
                let one = bindings.resolved(&overload.gives);
                result = Some(match result {
                    Some(before) if before != one => Type::Dyn,
                    _ => one,
                });
            }
        }
        result.ok_or_else(|| unmatched(name, member.is_some(), &given))
    }

    /// `a.?b`.
    fn optional_select(&mut self, call: &CallExpr) -> Checked {
        let [operand, field] = call.args.as_slice() else { return Err("unsupported '.?'".to_owned()) };
        let Expr::Literal(LiteralValue::String(field)) = &field.expr else {
            return Err("unsupported optional field selection".to_owned());
        };
        let operand = self.type_of(operand)?;
        let operand = if let Type::Optional(of) = operand { *of } else { operand };
        Ok(match field_of(operand, field.inner())? {
            Type::Optional(of) => Type::Optional(of),
            of => Type::Optional(Box::new(of)),
        })
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Checked {
        let range = self.type_of(&comprehension.iter_range)?;
        let is_list = matches!(range, Type::List(_));
        let (key, value) = match range {
            Type::List(of) => (Type::Int, *of),
            Type::Map(key, value) => (*key, *value),
            Type::Dyn => (Type::Dyn, Type::Dyn),
            other => return Err(format!("expression of type '{other}' cannot be range of a comprehension")),
        };
        let accumulated = self.type_of(&comprehension.accu_init)?;
        let depth = self.names.len();
        self.names.push((comprehension.accu_var.clone(), accumulated));
        match &comprehension.iter_var2 {
            None => {
                let item = if is_list { value } else { key };
                self.names.push((comprehension.iter_var.clone(), item));
            }
            Some(second) => {
                self.names.push((comprehension.iter_var.clone(), key));
                self.names.push((second.clone(), value));
            }
        }
        let condition = self.type_of(&comprehension.loop_cond)?;
        if !matches!(condition, Type::Bool | Type::Dyn) {
            return Err(format!("expected type 'bool' but found '{condition}'"));
        }
        let mut step = self.type_of(&comprehension.loop_step)?;
        // The element type of an accumulator that starts as an empty list is the type of the added
        // elements.
        let empty = matches!(&comprehension.accu_init.expr, Expr::List(list) if list.elements.is_empty());
        if let Some(more) = added(&comprehension.loop_step).filter(|_| empty) {
            step = self.type_of(more)?;
        }
        self.names.truncate(depth);
        self.names.push((comprehension.accu_var.clone(), step));
        let result = self.type_of(&comprehension.result);
        self.names.truncate(depth);
        result
    }
}

fn literal_type(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Bytes,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::String,
        LiteralValue::UInt(_) => Type::Uint,
    }
}

/// Returns the operand that a loop step adds to the accumulator.
fn added(step: &IdedExpr) -> Option<&IdedExpr> {
    let Expr::Call(call) = &step.expr else { return None };
    let second = call.args.get(1)?;
    match call.func_name.as_str() {
        operators::ADD => Some(second),
        operators::CONDITIONAL => added(second),
        _ => None,
    }
}

/// Merges the type of an element into that of a literal: all elements have one type.
fn joined(element: &mut Option<Type>, given: Type) -> Result<(), String> {
    match element {
        None => *element = Some(given),
        Some(element) if element.goes_with(&given) => {}
        Some(element) => return Err(format!("expected type '{element}' but found '{given}'")),
    }
    Ok(())
}

fn unwrapped(given: Type) -> Checked {
    match given {
        Type::Optional(of) => Ok(*of),
        Type::Dyn => Ok(Type::Dyn),
        other => Err(format!("expected type 'optional_type' but found '{other}'")),
    }
}

fn field_of(operand: Type, field: &str) -> Checked {
    match operand {
        Type::Dyn => Ok(Type::Dyn),
        Type::Map(_, value) => Ok(*value),
        Type::Optional(of) => Ok(match field_of(*of, field)? {
            Type::Optional(of) => Type::Optional(of),
            of => Type::Optional(Box::new(of)),
        }),
        Type::Device => types::device_field(field).ok_or_else(|| format!("undefined field '{field}'")),
        other => Err(format!("type '{other}' does not support field selection")),
    }
}

/// Returns `a.b.c` for an expression that consists of names only.
fn path(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) => dotted(select),
        _ => None,
    }
}

fn dotted(select: &SelectExpr) -> Option<String> {
    let operand = path(&select.operand.expr).filter(|_| !select.test)?;
    Some(format!("{operand}.{}", select.field))
}

fn unmatched(name: &str, member: bool, given: &[Type]) -> String {
    let mut text = format!("found no matching overload for '{name}' applied to '");
    let mut arguments = given;
    if let Some((target, rest)) = given.split_first().filter(|_| member) {
        write!(text, "{target}.").ok();
        arguments = rest;
    }
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    write!(text, "({})'", arguments.join(", ")).ok();
    text
}

/// Types by the names of type parameters.
type ByParameter = BTreeMap<char, Type>;
