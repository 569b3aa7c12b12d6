//! Exact decimal numbers of up to 38 digits.

use std::cmp::Ordering;

/// The error of a result that 38 decimal digits cannot hold exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the number is too large to be held exactly")]
pub struct Overflow;

/// `mantissa · 10^exponent`, exactly.
///
/// The number is always in lowest terms (the mantissa does not end in a zero, and zero is `0 ·
/// 10^0`). Equal numbers are therefore equal values with equal hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Decimal {
    mantissa: i128,
    exponent: i32,
}

/// The largest exponent. Amounts of resources are far below it, and a sum across such a range would
/// overflow.
const MAX_EXPONENT: u32 = 1_000;
/// 38 nines. Every number within can be negated, printed and parsed again.
const MAX_MANTISSA: u128 = 10_u128.pow(38) - 1;

impl Decimal {
    /// The number zero.
    pub const ZERO: Self = Self { mantissa: 0, exponent: 0 };

    /// Returns `mantissa · 10^exponent`.
    ///
    /// # Errors
    /// The number has more than 38 digits, or an exponent beyond ±1000, once trailing zeros have
    /// moved into the exponent.
    pub fn new(mut mantissa: i128, mut exponent: i32) -> Result<Self, Overflow> {
        if mantissa == 0 {
            return Ok(Self::ZERO);
        }
        // Nearly every amount fits an `i64`, and its division is many times faster.
        if let Ok(mut word) = i64::try_from(mantissa) {
            while word % 10 == 0 {
                word /= 10;
                exponent = exponent.checked_add(1).ok_or(Overflow)?;
            }
            mantissa = word.into();
        }
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent = exponent.checked_add(1).ok_or(Overflow)?;
        }
        if exponent.unsigned_abs() > MAX_EXPONENT || mantissa.unsigned_abs() > MAX_MANTISSA {
            return Err(Overflow);
        }
        Ok(Self { mantissa, exponent })
    }

    /// Returns the digits without trailing zeros, with the sign.
    pub fn mantissa(self) -> i128 {
        self.mantissa
    }

    /// Returns the power of ten that the mantissa counts.
    pub fn exponent(self) -> i32 {
        self.exponent
    }

    /// Whether the number is zero.
    pub fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    /// Returns -1, 0 or 1.
    pub fn signum(self) -> i128 {
        self.mantissa.signum()
    }

    /// Whether the number is below zero.
    pub fn is_negative(self) -> bool {
        self.mantissa < 0
    }

    /// Returns the number with the other sign.
    #[must_use]
    pub fn negated(self) -> Self {
        Self { mantissa: -self.mantissa, ..self }
    }

    /// Returns the sum.
    ///
    /// # Errors
    /// The result, or an operand in the smaller unit of both, needs more than 38 digits.
    pub fn checked_add(self, other: Self) -> Result<Self, Overflow> {
        if self.is_zero() {
            return Ok(other);
        }
        if other.is_zero() {
            return Ok(self);
        }
        let exponent = self.exponent.min(other.exponent);
        let sum = self.at(exponent)?.checked_add(other.at(exponent)?).ok_or(Overflow)?;
        Self::new(sum, exponent)
    }

    /// Returns the difference.
    ///
    /// # Errors
    /// The result, or an operand in the smaller unit of both, needs more than 38 digits.
    pub fn checked_sub(self, other: Self) -> Result<Self, Overflow> {
        self.checked_add(other.negated())
    }

    /// Returns the product.
    ///
    /// # Errors
    /// The result needs more than 38 digits, or its exponent is beyond ±1000.
    pub fn checked_mul(self, other: Self) -> Result<Self, Overflow> {
        let mantissa = self.mantissa.checked_mul(other.mantissa).ok_or(Overflow)?;
        Self::new(mantissa, self.exponent + other.exponent)
    }

    /// Returns the sum of all numbers.
    ///
    /// # Errors
    /// A sum, or an operand in the smaller unit, needs more than 38 digits.
    pub fn checked_sum(numbers: impl IntoIterator<Item = Self>) -> Result<Self, Overflow> {
        numbers.into_iter().try_fold(Self::ZERO, Self::checked_add)
    }

    /// Returns the number in units of `10^exponent`, rounded away from zero as the API does.
    ///
    /// # Errors
    /// The result does not fit an `i128`.
    pub fn rounded_up(self, exponent: i32) -> Result<i128, Overflow> {
        if self.exponent >= exponent {
            return self.at(exponent);
        }
        let drop = exponent.abs_diff(self.exponent);
        let Some(divisor) = 10_i128.checked_pow(drop) else {
            // The number is not zero and less than one unit.
            return Ok(self.signum());
        };
        let quotient = self.mantissa / divisor;
        // In lowest terms the last digit is not zero, so the division always leaves a remainder.
        Ok(quotient + self.signum())
    }

    /// Returns the number in units of `10^exponent`, rounded towards zero.
    ///
    /// # Errors
    /// The result does not fit an `i128`.
    pub fn rounded_down(self, exponent: i32) -> Result<i128, Overflow> {
        let up = self.rounded_up(exponent)?;
        // In lowest terms, a smaller exponent means that `rounded_up` rounded.
        Ok(if self.exponent < exponent { up - self.signum() } else { up })
    }

    /// Returns whole units, rounded away from zero. `None` if they do not fit an `i64`.
    pub fn units(self) -> Option<i64> {
        self.rounded_up(0).ok()?.try_into().ok()
    }

    /// Returns thousandths, rounded away from zero. `None` if they do not fit an `i64`.
    pub fn milli(self) -> Option<i64> {
        self.rounded_up(-3).ok()?.try_into().ok()
    }

    /// Returns the mantissa for a smaller or equal exponent.
    fn at(self, exponent: i32) -> Result<i128, Overflow> {
        let shift = self.exponent.checked_sub(exponent).and_then(|shift| u32::try_from(shift).ok());
        let shift = shift.ok_or(Overflow)?;
        if shift == 0 {
            return Ok(self.mantissa);
        }
        if let (Ok(word), Some(factor)) = (i64::try_from(self.mantissa), power_of_ten(shift)) {
            // The product of two `i64` fits an `i128`.
            return Ok(i128::from(word) * i128::from(factor));
        }
        let factor = 10_i128.checked_pow(shift).ok_or(Overflow)?;
        self.mantissa.checked_mul(factor).ok_or(Overflow)
    }

    /// Returns the position of the first digit: 1 for 1 … 9, 2 for 10 … 99, 0 for 0.1 … 0.9.
    fn magnitude(self) -> i32 {
        // The logarithm is at most 37.
        self.mantissa
            .unsigned_abs()
            .checked_ilog10()
            .map_or(i32::MIN, |log| i32::try_from(log).unwrap_or_default() + 1 + self.exponent)
    }
}

/// Returns `10^exponent` if it fits an `i64`.
fn power_of_ten(exponent: u32) -> Option<i64> {
    const POWERS: [i64; 19] = [
        1,
        10,
        100,
        1_000,
        10_000,
        100_000,
        1_000_000,
        10_000_000,
        100_000_000,
        1_000_000_000,
        10_000_000_000,
        100_000_000_000,
        1_000_000_000_000,
        10_000_000_000_000,
        100_000_000_000_000,
        1_000_000_000_000_000,
        10_000_000_000_000_000,
        100_000_000_000_000_000,
        1_000_000_000_000_000_000,
    ];
    POWERS.get(usize::try_from(exponent).ok()?).copied()
}

impl From<i64> for Decimal {
    fn from(units: i64) -> Self {
        // Nineteen digits without an exponent always fit.
        Self::new(units.into(), 0).unwrap_or_default()
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.exponent == other.exponent {
            return self.mantissa.cmp(&other.mantissa);
        }
        if let Some(order) = self.words(*other) {
            return order;
        }
        let signs = self.signum().cmp(&other.signum());
        if signs != Ordering::Equal || self.is_zero() {
            return signs;
        }
        let sized = |order: Ordering| if self.is_negative() { order.reverse() } else { order };
        let magnitudes = self.magnitude().cmp(&other.magnitude());
        if magnitudes != Ordering::Equal {
            return sized(magnitudes);
        }
        // The magnitudes are equal, so a shifted mantissa has as many digits as the other one and
        // fits. Should it not fit, the digits are compared.
        let exponent = self.exponent.min(other.exponent);
        match (self.at(exponent), other.at(exponent)) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            (Err(_), _) | (_, Err(_)) => self.leading(*other),
        }
    }
}

impl Decimal {
    /// Compares two numbers whose common mantissas are products of two `i64`.
    fn words(self, other: Self) -> Option<Ordering> {
        let exponent = self.exponent.min(other.exponent);
        let word = |number: Self| {
            let factor = power_of_ten(number.exponent.abs_diff(exponent))?;
            Some(i128::from(i64::try_from(number.mantissa).ok()?) * i128::from(factor))
        };
        Some(word(self)?.cmp(&word(other)?))
    }

    /// Compares two numbers of the same sign and magnitude digit by digit.
    fn leading(self, other: Self) -> Ordering {
        let digits = |number: Self| number.mantissa.unsigned_abs().to_string();
        let order = digits(self).cmp(&digits(other));
        if self.is_negative() { order.reverse() } else { order }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn d(mantissa: i128, exponent: i32) -> Decimal {
        Decimal::new(mantissa, exponent).unwrap()
    }

    #[test]
    fn equal_numbers_are_equal_values() {
        assert_eq!(d(1500, 0), d(15, 2));
        assert_eq!(d(0, 7), Decimal::ZERO);
        assert_eq!(d(-250, -2), d(-25, -1));
    }

    #[test]
    fn rounding_goes_away_from_zero() {
        assert_eq!(d(1001, -3).rounded_up(0), Ok(2));
        assert_eq!(d(-1001, -3).rounded_up(0), Ok(-2));
        assert_eq!(d(1, -9).rounded_up(-3), Ok(1));
        assert_eq!(d(1, -900).rounded_up(0), Ok(1));
        assert_eq!(d(15, -1).rounded_up(-3), Ok(1500));
        assert_eq!(Decimal::ZERO.rounded_up(3), Ok(0));
        assert_eq!(d(12, 2).rounded_up(3), Ok(2));
    }

    #[test]
    fn rounding_down_goes_towards_zero() {
        assert_eq!(d(1999, -3).rounded_down(0), Ok(1));
        assert_eq!(d(-1999, -3).rounded_down(0), Ok(-1));
        assert_eq!(d(2, 0).rounded_down(0), Ok(2));
        assert_eq!(d(1, -900).rounded_down(0), Ok(0));
        assert_eq!(d(15, 2).rounded_down(3), Ok(1));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_what_does_is_exact() {
        assert_eq!(d(1, 30).checked_add(d(1, -9)), Err(Overflow));
        assert_eq!(d(1, 28).checked_add(d(1, -9)), Ok(d(10_i128.pow(37) + 1, -9)));
        assert_eq!(d(10_i128.pow(38) - 1, 0).checked_mul(d(3, 0)), Err(Overflow));
        assert_eq!(d(10_i128.pow(38) - 1, 0).checked_add(d(2, 0)), Err(Overflow));
        assert_eq!(Decimal::new(i128::MIN, 0), Err(Overflow));
        assert_eq!(Decimal::new(1, i32::MIN), Err(Overflow));
        assert_eq!(d(5, 2).rounded_up(i32::MIN), Err(Overflow));
        assert_eq!(d(1, 900).checked_mul(d(1, 900)), Err(Overflow));
        assert_eq!(d(15, -1).checked_mul(d(2, 0)), Ok(d(3, 0)));
        assert!(Decimal::new(10, i32::MAX).is_err());
    }

    #[test]
    fn numbers_of_very_different_size_compare() {
        assert!(d(1, 1000) > d(10_i128.pow(38) - 1, 0));
        assert!(d(-1, 1000) < d(-9, 0));
        assert!(d(1, -1000) > Decimal::ZERO);
        // 38 nines: the magnitude decides.
        assert!(d(10_i128.pow(38) - 1, -38) < d(1, 0));
        assert!(d(12, 36) > d(11_999_999_999_999_999_999_999_999_999_999_999_999, 0));
        assert!(d(170, 36) > d(i128::MAX / 10, 0).negated());
        assert_eq!(d(i128::MAX / 10, 0).negated().negated(), d(i128::MAX / 10, 0));
    }

    proptest! {
        #[test]
        fn arithmetic_agrees_with_integers(a in -1_000_000_000_i64..1_000_000_000, b in -1_000_000_000_i64..1_000_000_000) {
            let (x, y) = (Decimal::from(a), Decimal::from(b));
            prop_assert_eq!(x.checked_add(y), Ok(Decimal::from(a + b)));
            prop_assert_eq!(x.checked_sub(y), Ok(Decimal::from(a - b)));
            prop_assert_eq!(x.checked_mul(y), Ok(Decimal::from(a * b)));
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        }

        #[test]
        fn order_is_that_of_the_difference(a in any::<i64>(), i in -20..20, b in any::<i64>(), j in -20..20) {
            let (x, y) = (d(a.into(), i), d(b.into(), j));
            if let Ok(difference) = x.checked_sub(y) {
                prop_assert_eq!(x.cmp(&y), difference.signum().cmp(&0));
            }
        }

        #[test]
        fn what_is_held_can_be_negated_printed_and_read_again(mantissa in any::<i128>(), exponent in -9..900) {
            if let Ok(number) = Decimal::new(mantissa, exponent) {
                prop_assert_eq!(number.negated().negated(), number);
                prop_assert_eq!(number.checked_add(number.negated()), Ok(Decimal::ZERO));
                for notation in [crate::Notation::DecimalSi, crate::Notation::DecimalExponent] {
                    let printed = crate::Quantity { amount: number, notation }.to_string();
                    prop_assert_eq!(printed.parse::<crate::Quantity>().map(|q| q.amount), Ok(number), "{}", printed);
                }
            }
        }

        #[test]
        fn adding_and_taking_away_again_changes_nothing(a in any::<i64>(), i in -9..9, b in any::<i64>(), j in -9..9) {
            let (x, y) = (d(a.into(), i), d(b.into(), j));
            prop_assert_eq!(x.checked_add(y).and_then(|sum| sum.checked_sub(y)), Ok(x));
        }
    }
}
