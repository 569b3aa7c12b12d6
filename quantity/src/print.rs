//! Canonical form: no precision lost, no fraction, the largest suffix possible.

use std::fmt;

use crate::decimal::Decimal;
use crate::quantity::{Notation, Quantity};

impl fmt::Display for Decimal {
    /// As a quantity in decimal notation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&decimal(*self, Notation::DecimalSi))
    }
}

/// The canonical text of a quantity.
pub(crate) fn canonical(quantity: Quantity) -> String {
    let amount = quantity.amount;
    match quantity.notation {
        Notation::BinarySi => binary(amount).unwrap_or_else(|| decimal(amount, Notation::DecimalSi)),
        notation => decimal(amount, notation),
    }
}

/// Whole units, divided by 1024 as often as that leaves no rest. Small numbers and
/// fractions have no binary suffix.
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

/// The digits, and a power of a thousand.
fn decimal(amount: Decimal, notation: Notation) -> String {
    const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    let down = amount.exponent().rem_euclid(3);
    let power = amount.exponent() - down;
    // One or two zeros: as text, because the digits may fill the number already.
    let zeros = usize::try_from(down).unwrap_or_default();
    let digits = format!("{}{}", amount.mantissa(), "0".repeat(zeros));
    let named = usize::try_from(power / 3 + 3).ok().and_then(|place| SUFFIXES.get(place));
    match (notation, named) {
        (Notation::DecimalExponent, _) if power == 0 => digits,
        (Notation::DecimalSi | Notation::BinarySi, Some(suffix)) => format!("{digits}{suffix}"),
        // Beyond the suffixes only an exponent says it without loss.
        (Notation::DecimalExponent, _) | (_, None) => format!("{digits}e{power}"),
    }
}
