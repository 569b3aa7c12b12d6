//! Label selectors.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Name, NodeSelectorRequirement, or_default};

/// A `meta/v1` `LabelSelector`. It matches labels of which every requirement holds; an empty one matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// `matchLabels`.
    #[serde(deserialize_with = "or_default")]
    pub match_labels: BTreeMap<Name, Name>,
    /// `matchExpressions`; the operators are those of node selectors without `Gt` and `Lt`.
    #[serde(deserialize_with = "or_default")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
}

impl LabelSelector {
    /// Whether labels match, given the value of each key.
    pub fn matches<'a>(&self, value: impl Fn(&str) -> Option<&'a Name>) -> bool {
        self.match_labels.iter().all(|(key, wanted)| value(key) == Some(wanted))
            && self.match_expressions.iter().all(|requirement| requirement.holds(value(&requirement.key)))
    }

    /// The keys, values and requirements that it is made of: what it costs to keep and to evaluate.
    pub fn len(&self) -> usize {
        let values = self.match_expressions.iter().map(|requirement| 1 + requirement.values.len());
        self.match_labels.len() + values.sum::<usize>()
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// The keys of its requirements.
    pub fn keys(&self) -> impl Iterator<Item = &Name> {
        self.match_labels.keys().chain(self.match_expressions.iter().map(|requirement| &requirement.key))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_requirement_has_to_hold() {
        let labels: BTreeMap<Name, Name> =
            [("app", "web"), ("tier", "front")].map(|(key, value)| (key.into(), value.into())).into();
        let matches = |selector: serde_json::Value| {
            let selector: LabelSelector = serde_json::from_value(selector).expect("a selector");
            selector.matches(|key| labels.get(key))
        };
        assert!(matches(json!({})) && matches(json!({"matchLabels": null, "matchExpressions": null})));
        assert!(matches(json!({"matchLabels": {"app": "web"}})));
        assert!(!matches(json!({"matchLabels": {"app": "web", "tier": "back"}})));
        let of = |key: &str, operator: &str, values: &[&str]| {
            matches(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        assert!(of("app", "In", &["db", "web"]) && !of("app", "In", &["db"]) && !of("none", "In", &["db"]));
        assert!(of("app", "NotIn", &["db"]) && of("none", "NotIn", &["db"]) && !of("app", "NotIn", &["web"]));
        assert!(of("app", "Exists", &[]) && !of("none", "Exists", &[]));
        assert!(of("none", "DoesNotExist", &[]) && !of("app", "DoesNotExist", &[]));
    }
}
