//! Quantities: numbers with a notation.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::decimal::{Decimal, Overflow};
use crate::parse::{ParseError, parse};
use crate::print::canonical;

/// The notation of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Notation {
    /// `n u m k M G T P E`, powers of a thousand.
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`, powers of 1024.
    BinarySi,
    /// `e3`, a power of ten.
    DecimalExponent,
}

/// A quantity of the Kubernetes API. Two quantities are equal if their numbers are. The notation
/// affects printing only.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    /// The number.
    pub amount: Decimal,
    /// The notation.
    pub notation: Notation,
}

impl Quantity {
    /// Returns a quantity in decimal notation.
    pub fn new(amount: Decimal) -> Self {
        Self { amount, notation: Notation::DecimalSi }
    }

    /// Returns the sum, in the notation of the first operand that is not zero.
    ///
    /// # Errors
    /// As for [`Decimal::checked_add`].
    pub fn checked_add(self, other: Self) -> Result<Self, Overflow> {
        self.combined(other, self.amount.checked_add(other.amount)?)
    }

    /// Returns the difference, in the notation of the first operand that is not zero.
    ///
    /// # Errors
    /// As for [`Decimal::checked_sub`].
    pub fn checked_sub(self, other: Self) -> Result<Self, Overflow> {
        self.combined(other, self.amount.checked_sub(other.amount)?)
    }

    #[expect(clippy::unnecessary_wraps, reason = "the end of two fallible operations")]
    fn combined(self, other: Self, amount: Decimal) -> Result<Self, Overflow> {
        let notation = if self.amount.is_zero() { other.notation } else { self.notation };
        Ok(Self { amount, notation })
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.amount == other.amount
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.amount.hash(state);
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.amount.cmp(&other.amount)
    }
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text)
    }
}

/// Writes the canonical form, as the API server stores it.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&canonical(*self))
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Reads a string or a JSON number, as the API does.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl Visitor<'_> for Written {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity, for example 500m or 1.5Gi")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.trim().parse().map_err(|why| E::custom(format!("quantity {text:?}: {why}")))
            }
            fn visit_u64<E: serde::de::Error>(self, units: u64) -> Result<Quantity, E> {
                self.visit_str(&units.to_string())
            }
            fn visit_i64<E: serde::de::Error>(self, units: i64) -> Result<Quantity, E> {
                self.visit_str(&units.to_string())
            }
            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Quantity, E> {
                // The shortest text that parses to the same float is the original text, unless that
                // had more digits than a float holds.
                if number.is_finite() {
                    self.visit_str(&number.to_string())
                } else {
                    Err(E::invalid_value(Unexpected::Float(number), &self))
                }
            }
        }
        deserializer.deserialize_any(Written).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_takes_text_and_numbers_and_gives_canonical_text() {
        let read = |text| serde_json::from_str::<Quantity>(text).map(|q| q.to_string()).ok();
        assert_eq!(read("\"1000m\"").as_deref(), Some("1"));
        assert_eq!(read("4").as_deref(), Some("4"));
        assert_eq!(read("0.5").as_deref(), Some("500m"));
        assert_eq!(read("-3").as_deref(), Some("-3"));
        assert_eq!(read("\" 1Gi \"").as_deref(), Some("1Gi"));
        assert_eq!(read("\"1 Gi\""), None);
        assert_eq!(read("true"), None);
        let text = serde_json::to_string(&"1536Mi".parse::<Quantity>().unwrap()).unwrap();
        assert_eq!(text, "\"1536Mi\"");
    }

    #[test]
    fn sums_keep_the_notation_of_the_first_that_counts() {
        let q = |text: &str| text.parse::<Quantity>().unwrap();
        assert_eq!(q("1Gi").checked_add(q("1")).unwrap().to_string(), "1073741825");
        assert_eq!(q("0").checked_add(q("1Gi")).unwrap().to_string(), "1Gi");
        assert_eq!(q("1").checked_sub(q("1500m")).unwrap().to_string(), "-500m");
    }
}
