//! Node selectors.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Name, or_default};

/// The labels of an object.
pub type Labels = BTreeMap<Name, Name>;

/// A `v1` `NodeSelector`. It matches if one of its terms matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// `nodeSelectorTerms`.
    #[serde(deserialize_with = "or_default")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// A term. It matches if all of its requirements match. An empty term matches nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// `matchExpressions`, over labels.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// `matchFields`, over `metadata.name` only.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// A requirement of a term.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(default)]
pub struct NodeSelectorRequirement {
    /// `key`.
    #[serde(deserialize_with = "or_default")]
    pub key: Name,
    /// `operator`.
    #[serde(deserialize_with = "or_default")]
    pub operator: Name,
    /// `values`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Name>,
}

/// A node selector that cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSelector {
    /// An unknown operator, or one that fields do not allow.
    #[error("operator {operator:?} of {key:?} is not a valid node selector operator")]
    Operator {
        /// The key of the requirement.
        key: Name,
        /// The operator.
        operator: Name,
    },
    /// The number of values does not suit the operator, or a value is not a number.
    #[error("values of {key:?} do not go with operator {operator:?}")]
    Values {
        /// The key of the requirement.
        key: Name,
        /// The operator.
        operator: Name,
    },
    /// An invalid label key or value.
    #[error("{text:?} is not a valid label {part}")]
    Label {
        /// The invalid text.
        text: Name,
        /// `key` or `value`.
        part: &'static str,
    },
    /// A field other than `metadata.name`.
    #[error("{0:?} is not a valid field of a node selector")]
    Field(Name),
}

impl NodeSelector {
    /// Whether the node of this name and these labels matches, by the rules of node affinity. Terms are evaluated in order.
    /// An invalid term is an error only if no term matches.
    ///
    /// # Errors
    /// The first [`BadSelector`], if no term matches.
    pub fn matches(&self, node: &Name, labels: &Labels) -> Result<bool, BadSelector> {
        let mut bad = None;
        for term in &self.node_selector_terms {
            match term.matches(node, labels) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(why) => {
                    bad.get_or_insert(why);
                }
            }
        }
        bad.map_or(Ok(false), Err)
    }

    /// The only node that the terms leave, by its name: each of them names it. Terms are alternatives.
    pub fn node(&self) -> Option<&Name> {
        let mut nodes = self.node_selector_terms.iter().map(NodeSelectorTerm::node);
        let first = nodes.next()??;
        nodes.all(|other| other == Some(first)).then_some(first)
    }

    /// Whether every term can be evaluated.
    ///
    /// # Errors
    /// The first [`BadSelector`].
    pub fn check(&self) -> Result<(), BadSelector> {
        self.node_selector_terms.iter().try_for_each(NodeSelectorTerm::check)
    }
}

impl NodeSelectorTerm {
    /// The node that `matchFields` name: `metadata.name` in a list of one. A field can be nothing else.
    pub fn node(&self) -> Option<&Name> {
        self.match_fields.iter().find_map(|of| match of.values.as_slice() {
            [node] if &*of.key == "metadata.name" && &*of.operator == "In" => Some(node),
            _ => None,
        })
    }

    /// Whether the term can be evaluated.
    ///
    /// # Errors
    /// The first [`BadSelector`].
    pub fn check(&self) -> Result<(), BadSelector> {
        self.match_expressions.iter().try_for_each(NodeSelectorRequirement::check_expression)?;
        self.match_fields.iter().try_for_each(NodeSelectorRequirement::check_field)
    }

    /// Whether the node of this name and these labels matches.
    ///
    /// # Errors
    /// The term cannot be evaluated.
    pub fn matches(&self, node: &Name, labels: &Labels) -> Result<bool, BadSelector> {
        self.check()?;
        Ok(self.selects(node, labels))
    }

    /// Whether a term that [can be evaluated](Self::check) matches the node of this name and these labels.
    pub fn selects(&self, node: &Name, labels: &Labels) -> bool {
        (!self.match_expressions.is_empty() || !self.match_fields.is_empty())
            && self
                .match_expressions
                .iter()
                .all(|requirement| requirement.holds(labels.get(&requirement.key)))
            && self.match_fields.iter().all(|requirement| requirement.holds(Some(node)))
    }
}

impl NodeSelectorRequirement {
    fn check_expression(&self) -> Result<(), BadSelector> {
        let values = || BadSelector::Values { key: self.key.clone(), operator: self.operator.clone() };
        let fine = match &*self.operator {
            "In" | "NotIn" => !self.values.is_empty(),
            "Exists" | "DoesNotExist" => self.values.is_empty(),
            "Gt" | "Lt" => self.number().is_some(),
            _ => {
                return Err(BadSelector::Operator { key: self.key.clone(), operator: self.operator.clone() });
            }
        };
        if !fine {
            return Err(values());
        }
        if !is_label_key(&self.key) {
            return Err(BadSelector::Label { text: self.key.clone(), part: "key" });
        }
        match self.values.iter().find(|value| !is_label_value(value)) {
            Some(value) => Err(BadSelector::Label { text: value.clone(), part: "value" }),
            None => Ok(()),
        }
    }

    fn check_field(&self) -> Result<(), BadSelector> {
        if !matches!(&*self.operator, "In" | "NotIn") {
            return Err(BadSelector::Operator { key: self.key.clone(), operator: self.operator.clone() });
        }
        if self.values.len() != 1 {
            return Err(BadSelector::Values { key: self.key.clone(), operator: self.operator.clone() });
        }
        if &*self.key == "metadata.name" { Ok(()) } else { Err(BadSelector::Field(self.key.clone())) }
    }

    fn number(&self) -> Option<i64> {
        let [value] = self.values.as_slice() else { return None };
        value.parse().ok()
    }

    /// Whether the requirement holds for the value of its key.
    pub(crate) fn holds(&self, value: Option<&Name>) -> bool {
        let listed = || value.is_some_and(|value| self.values.contains(value));
        let compared = |holds: fn(&i64, &i64) -> bool| {
            let value = value.and_then(|value| value.parse().ok());
            value.zip(self.number()).is_some_and(|(value, bound)| holds(&value, &bound))
        };
        match &*self.operator {
            "In" => listed(),
            "NotIn" => !listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compared(i64::gt),
            "Lt" => compared(i64::lt),
            _ => false,
        }
    }
}

/// Whether a text is `[prefix/]name`: the prefix is a DNS subdomain, the name has at most 63
/// characters and begins and ends with a letter or digit.
fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && !name.is_empty() && is_label_value(name),
        None => !key.is_empty() && is_label_value(key),
    }
}

fn is_label_value(value: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let outer = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    bytes.len() <= 63 && bytes.iter().all(|byte| inner(*byte)) && outer(bytes.first()) && outer(bytes.last())
}

fn is_subdomain(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}
