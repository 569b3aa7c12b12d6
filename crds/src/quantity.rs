//! The quantity type of Dragoman's kinds.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

/// An amount of a resource as people write it: `4`, `500m`, `"1.5Gi"`. It is kept as text and not
/// parsed. The schema in the API server rejects negative amounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Quantity(pub Box<str>);

impl<'de> Deserialize<'de> for Quantity {
    /// Accepts whole numbers without quotes, as everywhere in Kubernetes.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(Box<str>),
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Number(number) => Self(number.to_string().into()),
            Written::Text(text) => Self(text),
        })
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Quantity".into()
    }

    /// `maxLength`: the longest exact quantity that Kubernetes prints has about twenty characters.
    /// 40 leaves room for zeros and bounds the input of CEL.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 0,
            "maxLength": 40,
            "pattern": r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    #[test]
    fn numbers_and_text_are_quantities() {
        let read = |text| serde_json::from_str::<Quantity>(text).map(|q| q.0.to_string()).ok();
        assert_eq!(read("4").as_deref(), Some("4"));
        assert_eq!(read("\"1.5Gi\"").as_deref(), Some("1.5Gi"));
        assert_eq!(read("-1"), None);
        assert_eq!(read("[]"), None);
    }
}
