//! Quantities, exact to a billionth, for the checks of resource requests and limits.

/// Billionths of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Amount(i128);

const BILLION: i128 = 1_000_000_000;
/// The suffixes from a billionth up, each a thousand times the one before.
const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const EXPONENTS: [&str; 10] = ["e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18"];

impl Amount {
    /// Returns an amount of whole units.
    pub(crate) fn units(units: i128) -> Self {
        Self(units.saturating_mul(BILLION))
    }

    /// Returns the amount as the API writes it for `resource`: cpu in decimal units, bytes in binary units.
    pub(crate) fn text(self, resource: &str) -> String {
        if resource == "cpu" { self.decimal(SUFFIXES) } else { self.binary() }
    }

    /// Returns the canonical form that the API stores: a whole number of the largest possible unit, in the
    /// format of `text` (binary suffix, exponent or decimal suffix).
    ///
    /// # Errors
    /// `text` is not a quantity.
    pub(crate) fn canonical(text: &str) -> Result<String, String> {
        let amount: Self = text.parse()?;
        Ok(match text {
            text if text.ends_with('i') => amount.binary(),
            // A trailing E is the suffix for exa, not an exponent.
            text if text.contains(['e', 'E']) && text.ends_with(|c: char| c.is_ascii_digit()) => {
                amount.decimal(EXPONENTS)
            }
            _ => amount.decimal(SUFFIXES),
        })
    }

    /// Formats with the largest of `suffixes` that leaves a whole number. The first suffix is a billionth.
    fn decimal(self, suffixes: [&str; 10]) -> String {
        let (mut number, mut place) = (self.0, 0);
        while number != 0 && number % 1000 == 0 && place + 1 < suffixes.len() {
            (number, place) = (number / 1000, place + 1);
        }
        let suffix = if number == 0 { "" } else { suffixes.get(place).copied().unwrap_or_default() };
        format!("{number}{suffix}")
    }

    fn binary(self) -> String {
        const SUFFIXES_OF_1024: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        if self.0 % BILLION != 0 {
            return self.decimal(SUFFIXES);
        }
        let (mut units, mut place) = (self.0 / BILLION, 0);
        while units != 0 && units % 1024 == 0 && place + 1 < SUFFIXES_OF_1024.len() {
            (units, place) = (units / 1024, place + 1);
        }
        format!("{units}{}", SUFFIXES_OF_1024.get(place).copied().unwrap_or_default())
    }

    /// Returns the sum, saturated at the limits of `i128`.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Whether the amount is a whole multiple of `unit`.
    pub(crate) fn is_multiple_of(self, unit: Self) -> bool {
        unit.0 != 0 && self.0 % unit.0 == 0
    }

    /// Returns the units, if the amount is a whole number of them.
    pub(crate) fn whole(self) -> Option<u64> {
        u64::try_from(self.0 / BILLION).ok().filter(|_| self.0 % BILLION == 0)
    }

    pub(crate) fn is_negative(self) -> bool {
        self.0 < 0
    }
}

/// The factor of a suffix, as a fraction.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| Some((1_i128 << (10 * power), 1));
    let decimal = |exponent: i32| {
        let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
        Some(if exponent < 0 { (1, power) } else { (power, 1) })
    };
    match suffix {
        "" => Some((1, 1)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        other => decimal(other.strip_prefix(['e', 'E'])?.parse().ok()?),
    }
}

impl std::str::FromStr for Amount {
    type Err = String;

    /// Parses the API's notation. A fraction of a billionth is rounded away from zero.
    ///
    /// # Errors
    /// `text` is not a quantity, or too large for `i128` billionths.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            const FORM: &str = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$";
            format!("quantities must match the regular expression '{FORM}'")
        };
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at_checked(end).ok_or_else(wrong)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{part}");
        let mantissa: i128 = digits.parse().map_err(|_| wrong())?;
        let shift = u32::try_from(part.len()).ok().and_then(|digits| 10_i128.checked_pow(digits));
        let ((times, over), shift) = scale(suffix).zip(shift).ok_or_else(wrong)?;
        let billionths =
            mantissa.checked_mul(BILLION).and_then(|m| m.checked_mul(times)).ok_or_else(wrong)?;
        let over = over.checked_mul(shift).ok_or_else(wrong)?;
        let rounded = billionths / over + i128::from(billionths % over != 0);
        Ok(Self(if negative { -rounded } else { rounded }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read() {
        let of = |text: &str| text.parse::<Amount>();
        for (text, billionths) in [
            ("1", BILLION),
            ("1.5Gi", 1_610_612_736 * BILLION),
            ("250m", 250_000_000),
            ("-.5", -500_000_000),
            ("1e3", 1000 * BILLION),
            ("1E", 1_000_000_000_000_000_000 * BILLION),
            ("0.1n", 1),
        ] {
            assert_eq!(of(text), Ok(Amount(billionths)), "{text}");
        }
        for text in ["", "1 core", "--1", "1.2.3", ".", "Gi", "1e99"] {
            assert!(of(text).is_err(), "{text}");
        }
        let printed = |text: &str, resource: &str| of(text).map(|amount| amount.text(resource));
        for (text, resource, written) in [
            ("2048", "cpu", "2048"),
            ("2000", "cpu", "2k"),
            ("1.5", "cpu", "1500m"),
            ("2048Mi", "memory", "2Gi"),
            ("1000", "memory", "1000"),
            ("0", "memory", "0"),
        ] {
            assert_eq!(printed(text, resource).as_deref(), Ok(written));
        }
        for (text, written) in [
            ("1.5", "1500m"),
            ("1000m", "1"),
            ("2048Mi", "2Gi"),
            ("0.5Gi", "512Mi"),
            ("2e3", "2e3"),
            ("3000", "3k"),
            ("0", "0"),
            ("-1", "-1"),
            ("1E", "1E"),
        ] {
            assert_eq!(Amount::canonical(text).as_deref(), Ok(written), "{text}");
        }
        assert!(Amount::units(4).is_multiple_of(Amount::units(2)));
    }
}
