//! Expressions that nobody means well with.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use dragoman_allocator::cel::{BoundDevice, Compiler, LENGTH_LIMIT, Purpose};
use dragoman_allocator::input::Device;

/// The stack of a thread of an async runtime.
const STACK: usize = 2 << 20;

/// Whether the device is selected, or why that cannot be said.
fn said(expression: &str) -> Result<bool, String> {
    let expression = expression.to_owned();
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        let compiled = Compiler::default().compile(&expression, Purpose::Selector);
        let device = BoundDevice::new("driver".into(), Arc::new(Device::default()));
        let compiled = compiled.map_err(|why| why.to_string())?;
        compiled.matches(&device).map_err(|why| why.to_string())
    });
    thread.unwrap().join().unwrap()
}

/// A text so often that the limit of length is reached.
fn much(text: &str) -> String {
    text.repeat(LENGTH_LIMIT / text.len() - 4)
}

#[test]
fn deep_expressions_are_refused_and_long_ones_are_not() {
    let deep = [
        much("(") + "true",
        much("1 + ") + "1 == 1",
        much("[") + "true",
        much("true ? true : ") + "true",
        "device".to_owned() + &much(".a") + " == 1",
        "device".to_owned() + &much("[0]") + " == 1",
    ];
    for expression in deep {
        assert!(said(&expression).is_err(), "{expression:.40}");
    }
    assert_eq!(said(&(much("true && ") + "true")), Ok(true));
    assert_eq!(said(&("1 + ".repeat(200) + "1 == 201")), Ok(true));
    assert!(said(&much("true && true && ").repeat(2)).unwrap_err().contains("longer than"));
}

#[test]
fn texts_do_not_grow_without_bounds() {
    let exceeded = |expression: &str| {
        let why = said(expression).unwrap_err();
        assert!(why.contains("cost limit exceeded"), "{expression}: {why}");
    };
    // Each doubles the one before.
    let doubled = (0..40).fold("'0123456789'".to_owned(), |text, n| {
        if n == 0 {
            format!("cel.bind(x0, {text}, ")
        } else {
            format!("{text}cel.bind(x{n}, x{0} + x{0}, ", n - 1)
        }
    });
    exceeded(&format!("{doubled}x39.size() > 1{}", ")".repeat(40)));
    let lists = (0..40).fold("['0123456789']".to_owned(), |text, n| {
        if n == 0 {
            format!("cel.bind(x0, {text}, ")
        } else {
            format!("{text}cel.bind(x{n}, x{0} + x{0}, ", n - 1)
        }
    });
    exceeded(&format!("{lists}x39.size() > 1{}", ")".repeat(40)));
    let nested = (0..40).fold("'0123456789'".to_owned(), |text, n| {
        if n == 0 {
            format!("cel.bind(x0, {text}, ")
        } else {
            format!("{text}cel.bind(x{n}, [x{0}, x{0}], ", n - 1)
        }
    });
    exceeded(&format!("{nested}x39.size() > 1{}", ")".repeat(40)));
    let long = "x".repeat(1_000);
    exceeded(&format!("'{long}'.replace('x', '{long}').replace('x', '{long}').size() > 1"));
    exceeded(&format!(
        "cel.bind(x, '{long}'.replace('x', '{long}'), [{}].join(x).size() > 1)",
        "x, ".repeat(500) + "x"
    ));
    // The same in moderation.
    assert_eq!(said("cel.bind(x, 'ab' + 'cd', (x + x).size() == 8)"), Ok(true));
    assert_eq!(said("'abcabc'.replace('b', 'xyz') == 'axyzcaxyzc'"), Ok(true));
    assert_eq!(said("'abcabc'.replace('b', '', 1) == 'acabc'"), Ok(true));
    assert_eq!(said("'ab'.replace('', '-') == '-a-b-'"), Ok(true));
    assert_eq!(said("['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab'"), Ok(true));
    assert_eq!(said("[1, 2].map(x, x + 1) == [2, 3]"), Ok(true));
}

#[test]
fn loops_end() {
    let list = "[1, 2, 3, 4, 5, 6, 7, 8]";
    let nested = format!("{list}.all(x, ").repeat(9) + "true" + &")".repeat(9);
    assert!(said(&nested).unwrap_err().contains("cost limit exceeded"));
    assert_eq!(said(&(format!("{list}.all(x, ").repeat(3) + "x > 0" + &")".repeat(3))), Ok(true));
}
