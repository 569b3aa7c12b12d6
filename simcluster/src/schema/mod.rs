//! Schemas of custom resources: pruning, defaults, validation, and CEL rules.

mod check;
mod rules;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::meta::{self, items};
use crate::api::status::FieldError;

pub(crate) use self::rules::NOT_A_QUANTITY;
use self::rules::Rules;

/// The schema of one version of a custom resource.
#[derive(Debug)]
pub(crate) struct Schema {
    root: Value,
    rules: Rules,
}

/// The fields at the root that every object has.
const COMMON: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Reads an `openAPIV3Schema`.
    ///
    /// # Errors
    /// A rule does not compile or uses what is not simulated, or a pattern is not a regular expression.
    pub(crate) fn new(root: &Value) -> Result<Self, String> {
        Ok(Self { root: root.clone(), rules: Rules::of(root)? })
    }

    /// The schema as the definition has it.
    pub(crate) fn root(&self) -> &Value {
        &self.root
    }

    /// Drops unknown fields, and nulls where the schema does not allow them. Returns the paths of the unknown
    /// fields.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut dropped = Vec::new();
        prune(&self.root, object, &mut Vec::new(), &mut dropped);
        dropped
    }

    /// Sets the defaults of missing fields.
    pub(crate) fn fill(&self, object: &mut Value) {
        fill(&self.root, object);
    }

    /// Validates an object; `before` is its previous state on update.
    pub(crate) fn check(&self, before: Option<&Value>, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (name, value) in object.as_object().into_iter().flatten() {
            if COMMON.contains(&&**name) {
                continue;
            }
            if let Some(schema) = self.root["properties"].get(name) {
                check::value(schema, value, name, &mut errors);
            }
        }
        errors.extend(check::missing(&self.root, object, ""));
        // Rules are evaluated only on objects of the right shape.
        if errors.iter().all(FieldError::is_about_a_value) {
            errors.extend(self.rules.check(&self.root, before, object));
        } else if !self.rules.is_empty() {
            errors.push(FieldError::unchecked_rules());
        }
        errors
    }
}

/// Returns the schema of a member of an object, if the member is allowed.
fn member<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema["properties"].get(name).or_else(|| schema.get("additionalProperties").filter(|s| s.is_object()))
}

fn prune(schema: &Value, value: &mut Value, path: &mut Vec<String>, dropped: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true
                || schema["additionalProperties"] == true;
            let root = path.is_empty();
            fields.retain(|name, value| {
                if root && COMMON.contains(&&**name) {
                    return true;
                }
                path.push(if root { name.clone() } else { format!(".{name}") });
                let known = member(schema, name);
                if value.is_null() && known.is_some_and(|schema| schema["nullable"] != true) {
                    path.pop();
                    return false;
                }
                if let Some(schema) = known {
                    prune(schema, value, path, dropped);
                } else if !keeps {
                    dropped.push(path.concat());
                }
                path.pop();
                known.is_some() || keeps
            });
        }
        Value::Array(elements) => {
            for (number, element) in elements.iter_mut().enumerate() {
                path.push(format!("[{number}]"));
                prune(&schema["items"], element, path, dropped);
                path.pop();
            }
        }
        _ => {}
    }
}

fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                if !fields.contains_key(name)
                    && let Some(default) = schema.get("default")
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(schema) = member(schema, name) {
                    fill(schema, value);
                }
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| fill(&schema["items"], element)),
        _ => {}
    }
}

/// Schemas by resource and version.
#[derive(Debug, Default)]
pub(crate) struct Schemas(BTreeMap<(String, String), std::sync::Arc<Schema>>);

impl Schemas {
    /// Adds the schemas of a definition.
    pub(crate) fn learn(&mut self, definition: &Value) {
        let resource = meta::text(definition, "name");
        for version in items(&definition["spec"]["versions"]) {
            let schema = version["schema"].get("openAPIV3Schema").cloned().unwrap_or_else(|| json!({}));
            let name = version["name"].as_str().unwrap_or_default().to_owned();
            // A schema that is not simulated is refused on create and update, but may come from a dump.
            if let Ok(schema) = Schema::new(&schema) {
                self.0.insert((resource.to_owned(), name), std::sync::Arc::new(schema));
            }
        }
    }

    /// Removes the schemas of a definition.
    pub(crate) fn forget(&mut self, definition: &str) {
        self.0.retain(|(resource, _), _| resource != definition);
    }

    /// Returns the schema of a version of a resource.
    pub(crate) fn get(&self, resource: &str, version: &str) -> Option<std::sync::Arc<Schema>> {
        self.0.get(&(resource.to_owned(), version.to_owned())).cloned()
    }
}

/// Returns an error for every schema of a definition that is not simulated.
pub(crate) fn beyond(definition: &Value) -> Vec<FieldError> {
    let versions = items(&definition["spec"]["versions"]).enumerate();
    let wrong = versions.filter_map(|(number, version)| {
        let why = Schema::new(&version["schema"]["openAPIV3Schema"]).err()?;
        let field = format!("spec.versions[{number}].schema.openAPIV3Schema");
        Some(FieldError::invalid(field, &Value::Null, &why))
    });
    wrong.collect()
}

#[cfg(test)]
mod tests;
