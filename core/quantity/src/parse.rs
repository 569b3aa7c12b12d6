//! The parser of quantities, with the rules of the API.

use crate::decimal::Decimal;
use crate::quantity::{Notation, Quantity};

/// The reason why a text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text is not a number with a suffix.
    #[error("must be a number with an optional suffix, for example 500m, 2 or 1.5Gi")]
    Format,
    /// The suffix does not exist.
    #[error(
        "unknown suffix; n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei and exponents such as e3 are known"
    )]
    Suffix,
    /// The number is too large to be held.
    #[error("the number is too large")]
    TooLarge,
    /// The text has more than 256 bytes.
    #[error("longer than {MAX_LENGTH} characters")]
    TooLong,
}

/// The largest length of a text. It bounds the work for untrusted input. The API server has no such
/// limit, but no real quantity has hundreds of digits.
const MAX_LENGTH: usize = 256;
/// The exponent of the finest amount that the API keeps: it rounds up to billionths.
const NANO: i32 = -9;
/// A number of at most this many digits needs no check for overflow.
const SHORT: usize = 18;

/// The parts of a text.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

/// Parses a quantity.
pub(crate) fn parse(text: &str) -> Result<Quantity, ParseError> {
    if text.len() > MAX_LENGTH {
        return Err(ParseError::TooLong);
    }
    let parts = Parts::of(text)?;
    let (notation, scale) = suffix(parts.suffix)?;
    let (amount, notation) = match scale {
        Scale::Ten(exponent) => (parts.decimal(exponent)?, notation),
        Scale::Two(power) => parts.binary(power),
    };
    let amount = if parts.negative { amount.negated() } else { amount };
    Ok(Quantity { amount, notation })
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, ParseError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..)),
            Some(b'+') => (false, text.get(1..)),
            Some(_) => (false, Some(text)),
            None => return Err(ParseError::Format),
        };
        let rest = rest.ok_or(ParseError::Format)?;
        let (whole, rest) = digits(rest);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(ParseError::Format);
        }
        Ok(Self { negative, whole: whole.trim_start_matches('0'), fraction, suffix })
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes()).map(|b| b - b'0')
    }

    /// Returns the number of digits after the point.
    fn places(&self) -> i32 {
        // The length is at most `MAX_LENGTH`.
        i32::try_from(self.fraction.len()).unwrap_or(i32::MAX)
    }

    fn decimal(&self, exponent: i32) -> Result<Decimal, ParseError> {
        let scale = exponent.checked_sub(self.places()).ok_or(ParseError::TooLarge)?;
        if self.whole.len() + self.fraction.len() <= SHORT && scale >= NANO {
            return Decimal::new(mantissa(self.digits()), scale).map_err(|_| ParseError::TooLarge);
        }
        rounded(&self.digits().collect::<Vec<_>>(), scale).ok_or(ParseError::TooLarge)
    }

    fn binary(&self, power: u32) -> (Decimal, Notation) {
        let factor = 1_u128 << power;
        let cap = Decimal::from(i64::MAX);
        let amount = if self.fraction.is_empty() && self.whole.len() <= SHORT {
            // The product has at most 18 + 19 digits.
            Decimal::new(mantissa(self.digits()).saturating_mul(factor.cast_signed()), 0).unwrap_or(cap)
        } else {
            rounded(&times(self.digits().collect(), factor), -self.places()).unwrap_or(cap)
        };
        // The API caps numbers with a binary suffix, and no others.
        let amount = amount.min(cap);
        // A number below one has no binary suffix.
        let fraction = !amount.is_zero() && amount < Decimal::from(1);
        (amount, if fraction { Notation::DecimalSi } else { Notation::BinarySi })
    }
}

/// Returns the number of at most 38 digits.
fn mantissa(digits: impl Iterator<Item = u8>) -> i128 {
    digits.fold(0, |number, digit| number * 10 + i128::from(digit))
}

/// Returns `digits · factor`, which has at most 19 digits more.
fn times(mut digits: Vec<u8>, factor: u128) -> Vec<u8> {
    let mut carry = 0_u128;
    for digit in digits.iter_mut().rev() {
        // The product is below 10 · 2^60 plus the carry, and the carry stays below 2^61.
        let product = u128::from(*digit) * factor + carry;
        *digit = u8::try_from(product % 10).unwrap_or_default();
        carry = product / 10;
    }
    let front = carry.to_string();
    front.bytes().map(|b| b - b'0').chain(digits).collect()
}

/// Returns `digits · 10^scale`, rounded up to a billionth. `None` if the result has more digits
/// than a number can hold.
fn rounded(digits: &[u8], scale: i32) -> Option<Decimal> {
    const MOST: usize = 38;
    let zeros = digits.iter().take_while(|d| **d == 0).count();
    let significant = digits.get(zeros..)?;
    // The number of digits below a billionth. They are dropped and round up.
    let below = usize::try_from(i64::from(NANO) - i64::from(scale)).unwrap_or(0);
    let (kept, rest) = significant.split_at_checked(significant.len().saturating_sub(below))?;
    let up = rest.iter().any(|d| *d != 0);
    let scale = if below > 0 { NANO } else { scale };
    // Trailing zeros move into the exponent.
    let end = kept.iter().rposition(|d| *d != 0).map_or(0, |last| last + 1);
    let (end, scale) = if up {
        (kept.len(), scale)
    } else {
        (end, scale.checked_add(i32::try_from(kept.len() - end).ok()?)?)
    };
    let kept = kept.get(..end).filter(|kept| kept.len() <= MOST)?;
    Decimal::new(mantissa(kept.iter().copied()) + i128::from(up), scale).ok()
}

/// Returns the leading digits of a text, and the rest.
fn digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

enum Scale {
    Ten(i32),
    Two(u32),
}

fn suffix(text: &str) -> Result<(Notation, Scale), ParseError> {
    let si = |exponent| Ok((Notation::DecimalSi, Scale::Ten(exponent)));
    let binary = |power| Ok((Notation::BinarySi, Scale::Two(power)));
    match text {
        "n" => si(-9),
        "u" => si(-6),
        "m" => si(-3),
        "" => si(0),
        "k" => si(3),
        "M" => si(6),
        "G" => si(9),
        "T" => si(12),
        "P" => si(15),
        "E" => si(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        other => exponent(other).map(|exponent| (Notation::DecimalExponent, Scale::Ten(exponent))),
    }
}

fn exponent(text: &str) -> Result<i32, ParseError> {
    let known = |b: u8| b"eEinumkKMGTP".contains(&b);
    let Some(number) = text.strip_prefix(['e', 'E']) else {
        // Known letters in an unknown combination are an unknown suffix. Anything else is a wrong
        // format.
        let letters = text.bytes().take_while(|b| known(*b)).count();
        let rest = text.get(letters..).unwrap_or_default();
        let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
        return Err(if rest.bytes().all(|b| b.is_ascii_digit()) {
            ParseError::Suffix
        } else {
            ParseError::Format
        });
    };
    let unsigned = number.strip_prefix(['+', '-']).unwrap_or(number);
    if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        let format = unsigned.bytes().any(|b| !known(b) && !b.is_ascii_digit());
        return Err(if format { ParseError::Format } else { ParseError::Suffix });
    }
    number.parse().map_err(|_| ParseError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> Result<String, ParseError> {
        parse(text).map(|quantity| quantity.to_string())
    }

    #[test]
    fn ordinary_quantities() {
        for (text, canonical) in [
            ("0", "0"),
            ("1", "1"),
            ("+1", "1"),
            ("-1", "-1"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1.", "1"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12E", "12E"),
            ("100e-1", "10"),
            ("1000", "1k"),
            ("1100", "1100"),
            ("0.5Ki", "512"),
            ("0.0001Ki", "102400u"),
            ("007", "7"),
            ("1e-12", "1e-9"),
            ("0.1n", "1n"),
            ("-0.1n", "-1n"),
            ("0Mi", "0"),
        ] {
            assert_eq!(printed(text).as_deref(), Ok(canonical), "{text}");
        }
    }

    #[test]
    fn binary_numbers_are_capped_and_long_ones_refused() {
        assert_eq!(printed("8Ei").as_deref(), Ok("9223372036854775807"));
        assert_eq!(printed("-8Ei").as_deref(), Ok("-9223372036854775807"));
        assert_eq!(printed(&format!("{}Gi", "9".repeat(200))).as_deref(), Ok("9223372036854775807"));
        assert_eq!(printed("9223372036854775808").as_deref(), Ok("9223372036854775808"));
        assert_eq!(printed("1.00000000000000000000000000001").as_deref(), Ok("1000000001n"));
        assert_eq!(printed("99999999999999999999999999999.9999999999").as_deref(), Ok("100e27"));
        assert_eq!(printed(&"9".repeat(200)), Err(ParseError::TooLarge));
        assert_eq!(printed(&format!("1{}", "0".repeat(200))).as_deref(), Ok("100e198"));
    }

    #[test]
    fn nonsense_is_refused() {
        use ParseError::{Format, Suffix, TooLarge, TooLong};
        for (text, why) in [
            ("", Format),
            ("-", Format),
            (".", Format),
            ("1 ", Format),
            (" 1", Format),
            ("1..2", Format),
            ("a", Format),
            ("1x", Format),
            ("0x10", Format),
            ("1,5", Format),
            ("1Zi", Format),
            ("NaN", Format),
            ("1KI", Format),
            ("1K", Suffix),
            ("1mm", Suffix),
            ("1e", Suffix),
            ("1ki", Suffix),
            ("1e+", Suffix),
            ("1--", Format),
            ("1e2000", TooLarge),
            ("1e99999999999", TooLarge),
        ] {
            assert_eq!(printed(text), Err(why), "{text}");
        }
        assert_eq!(printed(&"1".repeat(300)), Err(TooLong));
    }
}
