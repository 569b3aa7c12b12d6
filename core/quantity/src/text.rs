//! Quantities as an API object has them, not parsed yet.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{Decimal, Notation, Quantity};

/// A quantity as an API object has it: `4`, `500m`, `"1.5Gi"`. It is kept as text and not parsed, so
/// that one unreadable amount leaves the rest of its object readable. Numbers without quotes are
/// accepted, as the API server does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct QuantityText(pub Box<str>);

impl QuantityText {
    /// Returns `amount` as the API writes it: in `notation`, rounded up to a billionth.
    pub fn of(amount: Decimal, notation: Notation) -> Self {
        const BILLIONTH: i32 = -9;
        let rounded = amount.rounded_up(BILLIONTH).and_then(|count| Decimal::new(count, BILLIONTH));
        let amount = if amount.exponent() < BILLIONTH { rounded.unwrap_or(amount) } else { amount };
        Self(Quantity { amount, notation }.to_string().into())
    }
}

impl<'de> Deserialize<'de> for QuantityText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(Box<str>),
            Whole(i64),
            Fraction(f64),
        }
        Ok(Self(match Written::deserialize(deserializer)? {
            Written::Text(text) => text,
            Written::Whole(number) => number.to_string().into(),
            Written::Fraction(number) => number.to_string().into(),
        }))
    }
}

/// The schema in a `CustomResourceDefinition` of an amount that may not be negative.
#[cfg(feature = "schema")]
impl schemars::JsonSchema for QuantityText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Quantity".into()
    }

    /// `maxLength`: the longest exact quantity that Kubernetes prints has about twenty characters.
    /// 40 leaves room for zeros and bounds the input of CEL.
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
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
    use super::*;

    #[test]
    fn numbers_and_text_are_quantities() {
        let read = |text| serde_json::from_str::<QuantityText>(text).map(|q| q.0.to_string()).ok();
        assert_eq!(read("4").as_deref(), Some("4"));
        assert_eq!(read("-0.5").as_deref(), Some("-0.5"));
        assert_eq!(read("\"1.5Gi\"").as_deref(), Some("1.5Gi"));
        assert_eq!(read("\"no quantity\"").as_deref(), Some("no quantity"));
        assert_eq!(read("[]"), None);
    }

    #[test]
    fn amounts_are_written_rounded_up_to_a_billionth() {
        let of = |text: &str, notation| {
            QuantityText::of(text.parse::<Quantity>().expect("quantity").amount, notation).0.to_string()
        };
        assert_eq!(of("1536Mi", Notation::BinarySi), "1536Mi");
        assert_eq!(of("0.5", Notation::DecimalSi), "500m");
    }
}
