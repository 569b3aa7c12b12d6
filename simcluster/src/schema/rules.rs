//! CEL rules: `x-kubernetes-validations`.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::extractors::This;
use cel::objects::Opaque;
use cel::{Context, ExecutionError, Program, Value as Cel};
use dragoman_quantity::Quantity;
use serde_json::Value;

use super::member;
use crate::api::meta::items;
use crate::api::status::FieldError;

/// The compiled rules of a schema, by their text.
#[derive(Debug)]
pub(super) struct Rules(BTreeMap<String, Program>);

/// The functions that a rule may call: those of CEL, and of the Kubernetes library only quantities.
const FUNCTIONS: [&str; 20] = [
    "bool",
    "bytes",
    "compareTo",
    "contains",
    "double",
    "duration",
    "endsWith",
    "int",
    "isGreaterThan",
    "isLessThan",
    "isQuantity",
    "matches",
    "optional",
    "quantity",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "type",
    "uint",
];

impl Rules {
    /// Compiles the rules of a schema.
    ///
    /// # Errors
    /// A rule does not compile or calls a function that is not simulated, a rule has a `messageExpression`,
    /// or a pattern is not a regular expression.
    pub(super) fn of(schema: &Value) -> Result<Self, String> {
        let mut rules = BTreeMap::new();
        collect(schema, &mut rules)?;
        Ok(Self(rules))
    }

    /// Whether the schema has no rules.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the rules that an object breaks.
    pub(super) fn check(&self, schema: &Value, before: Option<&Value>, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.visit(schema, before, object, "", &mut errors);
        errors
    }

    fn visit(
        &self,
        schema: &Value,
        before: Option<&Value>,
        value: &Value,
        path: &str,
        errors: &mut Vec<FieldError>,
    ) {
        for rule in items(&schema["x-kubernetes-validations"]) {
            let text = rule["rule"].as_str().unwrap_or_default();
            let Some(program) = self.0.get(text) else { continue };
            let about_change = program.references().has_variable("oldSelf");
            if about_change && before.is_none() {
                continue;
            }
            let said = rule["message"].as_str();
            match holds(program, before.filter(|_| about_change), value) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(why) => {
                    let why = format!("{why} evaluating rule: {}", said.unwrap_or(text));
                    errors.push(FieldError::invalid(path, &"object".into(), &why));
                    continue;
                }
            }
            let why = said.map_or_else(|| format!("failed rule: {text}"), str::to_owned);
            let field = match rule["fieldPath"].as_str() {
                Some(below) => format!("{path}{below}").trim_start_matches('.').to_owned(),
                None if path.is_empty() => "<nil>".to_owned(),
                None => path.to_owned(),
            };
            errors.push(FieldError::broken_rule(rule, field, value, &why));
        }
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let Some(schema) = member(schema, name) else { continue };
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    self.visit(schema, before.and_then(|b| b.get(name)), value, &path, errors);
                }
            }
            Value::Array(elements) => {
                // List elements are not matched with their previous state: transition rules are skipped in
                // lists.
                for (number, element) in elements.iter().enumerate() {
                    self.visit(&schema["items"], None, element, &format!("{path}[{number}]"), errors);
                }
            }
            _ => {}
        }
    }
}

fn collect(schema: &Value, rules: &mut BTreeMap<String, Program>) -> Result<(), String> {
    for rule in items(&schema["x-kubernetes-validations"]) {
        let text = rule["rule"].as_str().unwrap_or_default();
        if !rule["messageExpression"].is_null() {
            return Err("simcluster does not simulate messageExpression".to_owned());
        }
        let program = Program::compile(text).map_err(|why| format!("{text}: {why}"))?;
        for function in program.references().functions() {
            // Operators are functions whose names do not start with a letter.
            let written = function.starts_with(|c: char| c.is_ascii_alphabetic());
            if written && !FUNCTIONS.contains(&function) {
                return Err(format!(
                    "simcluster does not simulate the function {function} of the rule {text}"
                ));
            }
        }
        rules.insert(text.to_owned(), program);
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        regex::Regex::new(pattern).map_err(|why| format!("the pattern {pattern:?}: {why}"))?;
    }
    for (_, schema) in schema["properties"].as_object().into_iter().flatten() {
        collect(schema, rules)?;
    }
    for below in ["items", "additionalProperties"] {
        if schema[below].is_object() {
            collect(&schema[below], rules)?;
        }
    }
    Ok(())
}

/// Message of Kubernetes about a text that is no quantity.
pub(crate) const NOT_A_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// A quantity as a value of CEL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amount(Quantity);

impl Opaque for Amount {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
}

fn amount(text: &str) -> Result<Cel, ExecutionError> {
    let quantity = text.parse::<Quantity>();
    let quantity = quantity.map_err(|_| ExecutionError::function_error("quantity", NOT_A_QUANTITY))?;
    Ok(Cel::Opaque(Arc::new(Amount(quantity))))
}

fn compared(one: &Cel, other: &Cel) -> Result<std::cmp::Ordering, ExecutionError> {
    let of = |value: &Cel| match value {
        Cel::Opaque(opaque) => opaque.downcast_ref::<Amount>().copied(),
        _ => None,
    };
    let both = of(one).zip(of(other));
    let (one, other) = both.ok_or_else(|| ExecutionError::function_error("compareTo", "no quantity"))?;
    Ok(one.0.cmp(&other.0))
}

/// Returns a value as rules see it. Whole numbers are signed integers.
fn seen(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(truth) => Cel::Bool(*truth),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Cel::Int(whole),
            None => Cel::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(elements) => elements.iter().map(seen).collect::<Vec<Cel>>().into(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), seen(value)));
            fields.collect::<std::collections::HashMap<String, Cel>>().into()
        }
    }
}

fn holds(program: &Program, before: Option<&Value>, value: &Value) -> Result<bool, String> {
    let mut context = Context::default();
    let added = [
        context.add_function("quantity", |text: Arc<String>| amount(&text)),
        context.add_function("isQuantity", |text: Arc<String>| text.parse::<Quantity>().is_ok()),
        context.add_function("isGreaterThan", |This(one): This<Cel>, other: Cel| {
            compared(&one, &other).map(std::cmp::Ordering::is_gt)
        }),
        context.add_function("isLessThan", |This(one): This<Cel>, other: Cel| {
            compared(&one, &other).map(std::cmp::Ordering::is_lt)
        }),
        context.add_function("compareTo", |This(one): This<Cel>, other: Cel| {
            compared(&one, &other).map(|order| order as i64)
        }),
    ];
    added.into_iter().collect::<Result<(), _>>().map_err(|why| why.to_string())?;
    context.add_variable_from_value("self", seen(value));
    if let Some(before) = before {
        context.add_variable_from_value("oldSelf", seen(before));
    }
    match program.execute(&context) {
        Ok(Cel::Bool(holds)) => Ok(holds),
        Ok(other) => Err(format!("{other:?} is not true or false")),
        Err(ExecutionError::FunctionError { message, .. }) => Err(message),
        Err(why) => Err(why.to_string()),
    }
}
