//! Answers without the parts that differ every time.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Until;

/// Earlier answers.
#[derive(Debug, Default)]
pub(super) struct Known {
    answers: BTreeMap<String, Value>,
    /// Uids and random names in the order in which they appeared.
    names: Vec<String>,
}

/// An answer in which versions, times and random names have been replaced.
#[derive(Debug)]
pub(super) struct Normal {
    code: u16,
    body: Value,
}

impl Known {
    pub(super) fn learn(&mut self, label: &str, body: &Value) {
        self.answers.insert(label.to_owned(), body.clone());
    }

    /// Replaces each `{{label.field}}` by the metadata field of an earlier answer.
    pub(super) fn fill(&self, text: &str) -> anyhow::Result<String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (reference, after) = after.split_once("}}").context("reference")?;
            let (label, field) = reference.rsplit_once('.').context("reference")?;
            let answer = self.answers.get(label).with_context(|| format!("no answer {label:?}"))?;
            let value = answer["metadata"][field].as_str().unwrap_or_default();
            filled.push_str(before);
            filled.push_str(value);
            rest = after;
        }
        Ok(filled + rest)
    }

    pub(super) fn normal(&mut self, code: u16, mut body: Value) -> Normal {
        self.collect(&body);
        self.normalize(&mut body, "");
        Normal { code, body }
    }

    fn collect(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let text = value.as_str().filter(|_| name == "uid").unwrap_or_default();
                    if text.len() == 36 && !self.names.iter().any(|known| known == text) {
                        self.names.push(text.to_owned());
                    }
                    self.collect(value);
                }
                if let (Some(stem), Some(name)) = (fields.get("generateName"), fields.get("name"))
                    && let (Some(stem), Some(name)) = (stem.as_str(), name.as_str())
                    && name.len() == stem.len() + 5
                    && !self.names.iter().any(|known| known == name)
                {
                    self.names.push(name.to_owned());
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            _ => {}
        }
    }

    fn without_names(&self, text: &str) -> String {
        let names = self.names.iter().enumerate();
        names.fold(text.to_owned(), |text, (number, name)| text.replace(name, &format!("name-{number}")))
    }

    fn normalize(&self, value: &mut Value, field: &str) {
        match value {
            Value::Object(fields) => {
                // The times of managed fields are not compared.
                fields.retain(|name, _| name != "time");
                let renamed = std::mem::take(fields).into_iter();
                *fields = renamed.map(|(name, value)| (self.without_names(&name), value)).collect();
                for (name, value) in fields.iter_mut() {
                    if matches!(&**name, "resourceVersion" | "continue")
                        && value.as_str().is_some_and(|text| !text.is_empty())
                    {
                        *value = json!(format!("some {name}"));
                    }
                    self.normalize(value, name);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.normalize(item, field)),
            Value::String(text) => {
                *text = self.without_names(text);
                let is_time = text.len() >= 20 && text.ends_with('Z') && text.get(10..11) == Some("T");
                if is_time {
                    "some time".clone_into(text);
                }
                if field == "message" {
                    *text = without_versions(text);
                }
            }
            _ => {}
        }
    }
}

/// Replaces the numbers of versions in messages.
fn without_versions(text: &str) -> String {
    let words = text.split_inclusive([' ', ':', ',', '(', ')']);
    words
        .map(|word| {
            let bare = word.trim_end_matches([' ', ':', ',', '(', ')']);
            let number = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit());
            if number { word.replacen(bare, "N", 1) } else { word.to_owned() }
        })
        .collect()
}

impl Normal {
    fn has(&self, pointer: &str) -> bool {
        self.body.pointer(pointer).is_some_and(|value| !value.is_null())
    }

    /// Whether this is the awaited answer.
    pub(super) fn is(&self, until: Until) -> bool {
        match until {
            Until::Code(code) => self.code == code,
            Until::Has(pointer) => self.has(pointer),
            Until::Lacks(pointer) => self.code == 200 && !self.has(pointer),
        }
    }

    /// Describes the differences of two answers. `free` are JSON pointers to fields that may differ.
    pub(super) fn difference(&self, other: &Self, free: &[&str]) -> Option<String> {
        if self.code != other.code {
            return Some(format!("{} {}\n    for {} {}", self.code, self.body, other.code, other.body));
        }
        let (mut ours, mut theirs) = (self.body.clone(), other.body.clone());
        for pointer in free {
            for body in [&mut ours, &mut theirs] {
                if let Some(value) = body.pointer_mut(pointer) {
                    *value = Value::Null;
                }
            }
        }
        let mut found = Vec::new();
        differences(&ours, &theirs, &mut String::new(), &mut found);
        (!found.is_empty()).then(|| found.join("; "))
    }
}

fn differences(ours: &Value, theirs: &Value, path: &mut String, found: &mut Vec<String>) {
    if ours == theirs || found.len() > 8 {
        return;
    }
    let length = path.len();
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                path.push_str(&format!("/{name}"));
                let none = Value::Null;
                differences(a.get(name).unwrap_or(&none), b.get(name).unwrap_or(&none), path, found);
                path.truncate(length);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (number, (a, b)) in a.iter().zip(b).enumerate() {
                path.push_str(&format!("/{number}"));
                differences(a, b, path, found);
                path.truncate(length);
            }
        }
        _ => found.push(format!("{path}: {ours} for {theirs}")),
    }
}
