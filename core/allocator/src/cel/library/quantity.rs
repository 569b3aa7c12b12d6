//! `quantity(text)` and the functions of quantities.

use cel::common::types::{CelBool, CelDouble, CelInt, INT_TYPE, STRING_TYPE, Type};
use cel::{DeclarationError, Env, ExecutionError};
use dragoman_quantity::{Decimal, Quantity};

use super::{Arguments, function};
use crate::cel::types::QuantityVal;

const QUANTITY: Type = QuantityVal::TYPE;

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(QUANTITY)?;
    function!(
        env,
        "quantity"(STRING_TYPE) | given | {
            let text = given.text(0)?;
            QuantityVal(text.parse::<Quantity>().map_err(|why| given.failed(format!("{text:?}: {why}")))?)
        }
    );
    function!(
        env,
        "isQuantity"(STRING_TYPE) | given | CelBool::from(given.text(0)?.parse::<Quantity>().is_ok())
    );
    function!(
        env,
        "sign"(QUANTITY) | given | {
            CelInt::from(i64::try_from(number(&given, 0)?.signum()).unwrap_or_default())
        }
    );
    function!(env, QUANTITY => "isInteger"() |given| CelBool::from(whole(number(&given, 0)?).is_some()));
    function!(env, QUANTITY => "asInteger"() |given| {
        let whole = whole(number(&given, 0)?);
        CelInt::from(whole.ok_or_else(|| given.failed("cannot convert value to integer"))?)
    });
    function!(env, QUANTITY => "asApproximateFloat"() |given| {
        let number = number(&given, 0)?;
        // The conversion through text rounds only once.
        let text = format!("{}e{}", number.mantissa(), number.exponent());
        CelDouble::from(text.parse::<f64>().map_err(|why| given.failed(why))?)
    });
    function!(env, QUANTITY => "compareTo"(QUANTITY) |given| {
        CelInt::from(number(&given, 0)?.cmp(&number(&given, 1)?) as i64)
    });
    function!(env, QUANTITY => "isGreaterThan"(QUANTITY) |given| {
        CelBool::from(number(&given, 0)? > number(&given, 1)?)
    });
    function!(env, QUANTITY => "isLessThan"(QUANTITY) |given| {
        CelBool::from(number(&given, 0)? < number(&given, 1)?)
    });
    function!(env, QUANTITY => "add"(QUANTITY) |given| sum(&given, number(&given, 1)?)?);
    function!(env, QUANTITY => "add"(INT_TYPE) |given| sum(&given, int(&given, 1)?)?);
    function!(env, QUANTITY => "sub"(QUANTITY) |given| sum(&given, number(&given, 1)?.negated())?);
    function!(env, QUANTITY => "sub"(INT_TYPE) |given| sum(&given, int(&given, 1)?.negated())?);
    Ok(())
}

/// Returns the number as an `i64`. `None` if it has a fraction or does not fit.
fn whole(number: Decimal) -> Option<i64> {
    number.units().filter(|_| number.exponent() >= 0)
}

fn number(given: &Arguments<'_, '_, '_>, place: usize) -> Result<Decimal, ExecutionError> {
    given.typed::<QuantityVal>(place).map(|quantity| quantity.0.amount)
}

fn int(given: &Arguments<'_, '_, '_>, place: usize) -> Result<Decimal, ExecutionError> {
    given.typed::<CelInt>(place).map(|int| Decimal::from(*int.inner()))
}

fn sum(given: &Arguments<'_, '_, '_>, other: Decimal) -> Result<QuantityVal, ExecutionError> {
    let first = given.typed::<QuantityVal>(0)?.0;
    let amount = first.amount.checked_add(other).map_err(|why| given.failed(why))?;
    Ok(QuantityVal(Quantity { amount, notation: first.notation }))
}
