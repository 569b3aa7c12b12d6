//! The canonical form: without loss of precision, without a fraction, with the largest possible
//! suffix.

use std::fmt;

use crate::decimal::Decimal;
use crate::quantity::{Notation, Quantity};

impl fmt::Display for Decimal {
    /// Writes the number as a quantity in decimal notation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&decimal(*self, Notation::DecimalSi))
    }
}

/// Returns the canonical text of a quantity.
pub(crate) fn canonical(quantity: Quantity) -> String {
    let amount = quantity.amount;
    match quantity.notation {
        Notation::BinarySi => binary(amount).unwrap_or_else(|| decimal(amount, Notation::DecimalSi)),
        notation => decimal(amount, notation),
    }
}

/// Returns the number with a binary suffix. `None` for a magnitude below 1024 and for a fraction.
fn binary(amount: Decimal) -> Option<String> {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut number = amount.rounded_up(0).ok().filter(|_| amount.exponent() >= 0)?;
    if number.abs() < 1024 {
        return None;
    }
    let mut suffix = 0;
    while number % 1024 == 0 && suffix + 1 < SUFFIXES.len() {
        number /= 1024;
        suffix += 1;
    }
    Some(format!("{number}{}", SUFFIXES.get(suffix)?))
}

/// Returns the digits with the suffix or the exponent of a power of a thousand.
fn decimal(amount: Decimal, notation: Notation) -> String {
    const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    let down = amount.exponent().rem_euclid(3);
    let power = amount.exponent() - down;
    // The zeros are added as text, because the digits may fill the number already.
    let zeros = usize::try_from(down).unwrap_or_default();
    let digits = format!("{}{}", amount.mantissa(), "0".repeat(zeros));
    let named = usize::try_from(power / 3 + 3).ok().and_then(|place| SUFFIXES.get(place));
    match (notation, named) {
        (Notation::DecimalExponent, _) if power == 0 => digits,
        (Notation::DecimalSi | Notation::BinarySi, Some(suffix)) => format!("{digits}{suffix}"),
        // Beyond the suffixes, only an exponent is exact.
        (Notation::DecimalExponent, _) | (_, None) => format!("{digits}e{power}"),
    }
}
