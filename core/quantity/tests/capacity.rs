//! Worked examples of consumable capacity (C; docs/accounting.md 6).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use dragoman_quantity::capacity::{
    ByCapacity, Capacity, Invalid, Range, Refused, RequestPolicy, Steps, consumption,
};
use dragoman_quantity::{Decimal, Quantity};
use proptest::prelude::*;

fn q(text: &str) -> Decimal {
    text.parse::<Quantity>().unwrap().amount
}

fn some(text: &str) -> Option<Decimal> {
    (!text.is_empty()).then(|| q(text))
}

fn plain(value: &str) -> Capacity {
    Capacity { value: q(value), policy: None }
}

fn values(value: &str, default: &str, values: &[&str]) -> Capacity {
    let values = values.iter().map(|text| q(text)).collect();
    Capacity { value: q(value), policy: Some(RequestPolicy { default: some(default), values, range: None }) }
}

/// Returns a capacity with a range. An empty text means that the field is not set.
fn range(value: &str, default: &str, min: &str, max: &str, step: &str) -> Capacity {
    let range = Some(Range { min: q(min), max: some(max), step: some(step) });
    Capacity {
        value: q(value),
        policy: Some(RequestPolicy { default: some(default), values: vec![], range }),
    }
}

fn of<T: Clone>(list: &[(&str, T)]) -> ByCapacity<T> {
    list.iter().map(|(name, of)| (Box::from(*name), of.clone())).collect()
}

/// Returns the amount that one request consumes of one capacity.
fn consumed(capacity: &Capacity, taken: &str, request: &str) -> Result<Decimal, Refused> {
    let request: Vec<_> = some(request).into_iter().map(|amount| ("c", amount)).collect();
    let taken = of(&[("c", q(taken))]);
    let consumed = consumption(&of(&[("c", capacity.clone())]), &of(&request), &taken, Steps::Whole)?;
    Ok(consumed["c"])
}

fn is(capacity: &Capacity, request: &str, expected: &str) {
    let expected = some(expected).ok_or(());
    assert_eq!(consumed(capacity, "0", request).map_err(|_| ()), expected, "{capacity:?} {request:?}");
}

#[test]
fn c1_without_a_request_the_whole_device() {
    is(&plain("10"), "", "10");
}

#[test]
fn c3_steps_count_from_the_least() {
    let memory = range("10Gi", "1Mi", "1Mi", "", "8");
    is(&memory, "5Gi", "5368709120");
    is(&memory, "", "1Mi");
    is(&memory, "5368709121", "5368709128");
}

#[test]
fn c5_c7_c9_rounded_into_the_range() {
    is(&range("3", "1", "1", "", "2"), "2", "3");
    is(&range("10", "1", "1", "4", "1"), "5", "");
    let fours = range("16", "4", "4", "16", "4");
    is(&fours, "9", "12");
    is(&fours, "10", "12");
    is(&fours, "17", "");
    is(&fours, "1", "4");
}

#[test]
fn c11_what_others_have_is_not_left() {
    assert_eq!(consumed(&plain("10"), "6", "4"), Ok(q("4")));
    assert_eq!(consumed(&plain("10"), "6", "5"), Err(Refused::NotLeft("c".into(), q("5"))));
}

#[test]
fn c13_two_requests_share_a_device() {
    assert_eq!(consumed(&plain("10"), "0", "4"), Ok(q("4")));
    assert_eq!(consumed(&plain("10"), "4", "4"), Ok(q("4")));
}

#[test]
fn c15_every_capacity_is_consumed() {
    let device = of(&[("a", plain("10")), ("b", values("4", "2", &[]))]);
    let consumed = consumption(&device, &of(&[("a", q("4"))]), &ByCapacity::new(), Steps::Whole);
    assert_eq!(consumed, Ok(of(&[("a", q("4")), ("b", q("2"))])));
}

#[test]
fn c17_what_the_device_lacks() {
    let refused =
        consumption(&of(&[("a", plain("1"))]), &of(&[("mem", q("1"))]), &ByCapacity::new(), Steps::Whole);
    assert_eq!(refused, Err(Refused::NoSuchCapacity("mem".into())));
}

#[test]
fn c19_a_default_alone_allows_everything() {
    is(&values("10", "2", &[]), "7", "7");
    is(&values("10", "2", &[]), "", "2");
}

#[test]
fn c21_fractions_of_steps() {
    let range = || range("3", "1", "1", "", "1");
    let of = |steps| {
        consumption(&of(&[("c", range())]), &self::of(&[("c", q("1.0000001"))]), &ByCapacity::new(), steps)
    };
    assert_eq!(of(Steps::Whole), Ok(self::of(&[("c", q("2"))])));
    assert_eq!(of(Steps::Thousandths), Err(Refused::Uncountable("c".into(), q("1.0000001"))));
    let halves = Capacity {
        policy: Some(RequestPolicy {
            default: some("500m"),
            values: vec![],
            range: Some(Range { min: q("500m"), max: None, step: some("500m") }),
        }),
        ..plain("3")
    };
    let rounded = consumption(
        &self::of(&[("c", halves)]),
        &self::of(&[("c", q("1200m"))]),
        &ByCapacity::new(),
        Steps::Thousandths,
    );
    assert_eq!(rounded, Ok(self::of(&[("c", q("1.5"))])));
}

#[test]
fn c23_a_device_without_capacity_always_fits() {
    let nothing = ByCapacity::new();
    assert_eq!(consumption(&ByCapacity::new(), &nothing, &nothing, Steps::Whole), Ok(nothing.clone()));
}

#[test]
fn nothing_less_than_nothing_and_large_ranges() {
    assert_eq!(consumed(&plain("10"), "0", "-5"), Err(Refused::Negative("c".into(), q("-5"))));
    assert_eq!(range("10", "1", "-1", "", "2").check(true, Steps::Whole), Err(Invalid::Step));
    let large = of(&[("c", range("16Pi", "1Gi", "1Gi", "16Pi", "1Gi"))]);
    let consumed = consumption(&large, &of(&[("c", q("10Pi"))]), &ByCapacity::new(), Steps::Thousandths);
    assert_eq!(consumed, Ok(of(&[("c", q("10Pi"))])));
}

#[test]
fn values_are_rounded_up_to() {
    let sizes = values("16", "4", &["2", "4", "8"]);
    is(&sizes, "3", "4");
    is(&sizes, "8", "8");
    is(&sizes, "9", "");
    is(&sizes, "", "4");
}

#[test]
fn policies_that_the_api_server_refuses() {
    let eleven: Vec<String> = (1..12).map(|i| i.to_string()).collect();
    let eleven: Vec<&str> = eleven.iter().map(String::as_str).collect();
    let both = Capacity {
        policy: Some(RequestPolicy {
            range: range("10", "1", "1", "", "").policy.unwrap().range,
            ..values("10", "1", &["1"]).policy.unwrap()
        }),
        ..plain("10")
    };
    for (capacity, why) in [
        (range("10", "", "1", "", ""), Invalid::NoDefault),
        (values("10", "", &["1"]), Invalid::NoDefault),
        (both, Invalid::Both),
        (values("20", "1", &eleven), Invalid::Values),
        (values("10", "1", &["2", "1"]), Invalid::Values),
        (values("10", "1", &["1", "1"]), Invalid::Values),
        (values("10", "1", &["1", "11"]), Invalid::Values),
        (values("10", "3", &["1", "2"]), Invalid::Values),
        (range("10", "11", "11", "", ""), Invalid::Range),
        (range("10", "5", "5", "4", ""), Invalid::Range),
        (range("10", "1", "1", "11", ""), Invalid::Range),
        (range("10", "1", "2", "", ""), Invalid::Range),
        (range("10", "5", "1", "4", ""), Invalid::Range),
        (range("10", "1", "1", "", "0"), Invalid::Step),
        (range("10", "9", "9", "", "2"), Invalid::Step),
        (range("10", "2", "1", "", "2"), Invalid::Step),
        (range("10", "1", "1", "4", "2"), Invalid::Step),
    ] {
        for steps in [Steps::Whole, Steps::Thousandths] {
            assert_eq!(capacity.check(true, steps), Err(why), "{capacity:?}");
        }
        assert_eq!(capacity.check(false, Steps::Whole), Err(Invalid::Exclusive));
    }
    for capacity in
        [range("10", "3", "1", "5", "2"), values("10", "2", &["1", "2"]), values("10", "2", &[]), plain("10")]
    {
        assert_eq!(capacity.check(true, Steps::Whole), Ok(()), "{capacity:?}");
    }
    assert_eq!(plain("10").check(false, Steps::Whole), Ok(()));
    let finest = range("1", "1u", "1u", "", "1u");
    assert_eq!(finest.check(true, Steps::Thousandths), Err(Invalid::Step), "finer than thousandths");
}

proptest! {
    /// The consumed amount under a valid policy is the least allowed amount that covers the
    /// request.
    #[test]
    fn the_least_allowed_amount(min in 1..20_i64, step in 1..9_i64, count in 0..9_i64, request in 0..200_i64) {
        let (max, value) = (min + step * count, min + step * (count + 1));
        let number = Decimal::from;
        let range = Some(Range { min: number(min), max: Some(number(max)), step: Some(number(step)) });
        let capacity = Capacity { value: number(value), policy: Some(RequestPolicy { default: Some(number(min)), values: vec![], range }) };
        prop_assert_eq!(capacity.check(true, Steps::Whole), Ok(()));
        let expected = (0..=count).map(|i| min + step * i).find(|amount| *amount >= request);
        let requests = of(&[("c", number(request))]);
        for steps in [Steps::Whole, Steps::Thousandths] {
            let consumed = consumption(&of(&[("c", capacity.clone())]), &requests, &ByCapacity::new(), steps);
            prop_assert_eq!(consumed.ok().map(|consumed| consumed["c"]), expected.map(number));
        }
    }
}

#[test]
fn a_rounded_amount_is_counted_in_64_bits() {
    // The step exceeds the request, and twice the step exceeds 64 bits.
    let huge = range("10E", "0", "0", "", "5E");
    for (request, steps) in [("5000000000000000001", Steps::Whole), ("9E", Steps::Whole)] {
        let (capacities, requests) = (of(&[("c", huge.clone())]), of(&[("c", q(request))]));
        let refused = consumption(&capacities, &requests, &ByCapacity::new(), steps);
        assert_eq!(refused, Err(Refused::Uncountable("c".into(), q(request))), "{steps:?}");
    }
    let milli = range("9P", "0", "0", "", "5P");
    let (capacities, requests) = (of(&[("c", milli)]), of(&[("c", q("5000000000000001"))]));
    let refused = consumption(&capacities, &requests, &ByCapacity::new(), Steps::Thousandths);
    assert_eq!(refused, Err(Refused::Uncountable("c".into(), q("5000000000000001"))));
}

#[test]
fn a_device_that_offers_less_than_nothing_is_refused() {
    for capacity in [plain("-2"), values("4", "-2", &[]), range("4", "-1", "-1", "", "1")] {
        let refused = consumed(&capacity, "0", "");
        assert!(matches!(refused, Err(Refused::NegativeOffer(..))), "{capacity:?}: {refused:?}");
    }
}
