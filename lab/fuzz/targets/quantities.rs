//! Two quantities: a parsed quantity prints and parses to the same value, and sums are exact.
#![no_main]

use dragoman_quantity::{Decimal, Quantity};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (first, second) = text.split_once(' ').unwrap_or((text, "1"));
    let (Ok(a), Ok(b)) = (first.parse::<Quantity>(), second.parse::<Quantity>()) else { return };
    for quantity in [a, b] {
        let printed = quantity.to_string();
        assert_eq!(printed.parse::<Quantity>(), Ok(quantity), "{printed}");
        assert_eq!(printed, printed.parse::<Quantity>().unwrap().to_string());
    }
    let (x, y) = (a.amount, b.amount);
    if let Ok(sum) = x.checked_add(y) {
        assert_eq!(sum.checked_sub(y), Ok(x));
        assert_eq!(y.checked_add(x), Ok(sum));
        assert_eq!(sum.cmp(&x), y.cmp(&Decimal::ZERO));
    }
    if let Ok(product) = x.checked_mul(y) {
        assert_eq!(y.checked_mul(x), Ok(product));
    }
    for unit in [-9, -3, 0, 3] {
        if let (Ok(up), Ok(down)) = (x.rounded_up(unit), x.rounded_down(unit)) {
            assert!((up - down).abs() <= 1);
        }
    }
});
