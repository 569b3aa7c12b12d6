//! Hostile expressions, and the limits that stop them.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use dragoman_allocator::cel::{BoundDevice, Compiler, LENGTH_LIMIT, Purpose};
use dragoman_objects::Device;

/// The stack size of a thread of an async runtime. The frames of a program that is not optimised are several times as
/// large; the long lanes run these tests optimised.
const STACK: usize = if cfg!(debug_assertions) { 16 << 20 } else { 2 << 20 };

/// Returns whether the device is selected, or the error.
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

/// Repeats a text up to the limit of length.
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

/// Nests `cel.bind` 40 times, each with the variable of the previous level.
fn bound(first: &str, next: impl Fn(&str) -> String) -> String {
    let mut text = format!("cel.bind(x0, {first}, ");
    for level in 1..40 {
        text += &format!("cel.bind(x{level}, {}, ", next(&format!("x{}", level - 1)));
    }
    text + "[x39].size() == 1" + &")".repeat(40)
}

/// Nests 40 function calls.
fn nested(open: &str, inner: &str, close: &str) -> String {
    open.repeat(40) + inner + &close.repeat(40) + " != ''"
}

#[test]
fn what_could_grow_without_bounds_is_refused() {
    let long = "x".repeat(1_000);
    let grows = [
        bound("'0123456789'", |x| format!("{x} + {x}")),
        bound("b'0123456789'", |x| format!("{x} + {x}")),
        bound("['0123456789']", |x| format!("{x} + {x}")),
        bound("['0123456789']", |x| format!("[{x}, {x}]")),
        bound("'0123456789'", |x| format!("{{'a': {x}, 'b': {x}}}")),
        bound("'0123456789'", |x| format!("[optional.of({x}), optional.of({x})]")),
        bound("'a'", |x| format!("{{{x}: {x}}}")),
        nested("strings.quote(", "'\"'", ")"),
        nested("'%x'.format([", "'a'", "])"),
        "'%.999999999f'.format([1.0]) == ''".to_owned(),
        format!("'{long}'.replace('x', '{long}').replace('x', '{long}').size() > 1"),
        format!("cel.bind(x, '{long}'.replace('x', '{long}'), [{}x].join(x).size() > 1)", "x, ".repeat(500)),
        format!("'{long}'.replace('x', '{long}').split('').size() > 1"),
        "lists.range(10000).map(x, lists.range(10000)).flatten().size() > 1".to_owned(),
        "lists.range(10000).transformMap(i, v, lists.range(10000)).size() > 1".to_owned(),
    ];
    for expression in grows {
        let why = said(&expression).unwrap_err();
        assert!(
            why.contains("could take more than") || why.contains("unsupported key"),
            "{expression:.60}: {why}"
        );
    }
}

#[test]
fn texts_in_moderation() {
    for expression in [
        "cel.bind(x, 'ab' + 'cd', (x + x).size() == 8)",
        "'abcabc'.replace('b', 'xyz') == 'axyzcaxyzc'",
        "'abcabc'.replace('b', '', 1) == 'acabc'",
        "['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab'",
        "[1, 2].map(x, x + 1) == [2, 3]",
        "'a,b,c'.split(',').map(x, x + x).filter(x, x != 'bb').join('') == 'aacc'",
        "device.driver.split('').map(x, x.upperAscii()).join('') == 'DRIVER'",
        "'%s-%s'.format(['a', 'b']) == 'a-b'",
        "device.driver.matches('^dr.v\\\\w+$') && matches('abc', 'b')",
    ] {
        assert_eq!(said(expression), Ok(true), "{expression}");
    }
}

#[test]
fn what_takes_long_is_refused_or_ends() {
    let list = |of: usize| format!("[{}0]", "0,".repeat(of));
    let exceeded = |expression: String| {
        let why = said(&expression).unwrap_err();
        assert!(why.contains("cost limit exceeded"), "{expression:.60}: {why}");
    };
    exceeded(list(1_000) + ".all(i, 'a'.matches('\\\\w{100}') || true)");
    exceeded(list(1_000) + ".all(i, 'a'.find('\\\\w{12}') == '')");
    let hundred = "x".repeat(100);
    let many = format!("'{hundred}'.replace('x', '0123456789').split('')");
    assert_eq!(said(&format!("sets.intersects({many}, {many})")), Ok(true));
    exceeded(format!(
        "{}.all(i, !sets.intersects({many}, ['a']) && sets.contains({many}, {many}))",
        list(500)
    ));
    assert_eq!(said(&(list(4_000) + ".map(c, c).filter(c, c == 0).size() == 4001")), Ok(true));
}

#[test]
fn loops_over_two_variables() {
    for expression in [
        "[1, 2].all(i, v, v == i + 1) && [1, 2].exists(i, v, i == 1 && v == 2)",
        "[1, 1].existsOne(i, v, i == 1) && !{'a': 1, 'b': 1}.existsOne(k, v, v == 1)",
        "[1, 2].transformList(i, v, v > 1, i * 10 + v) == [12]",
        "{'a': 1}.transformMap(k, v, k + string(v)) == {'a': 'a1'}",
        "[5, 6].transformMapEntry(i, v, i > 0, {v: i}) == {6: 1}",
        // Inner variables hide outer ones.
        "[1, 2].all(i, v, [5].exists(v, v == 5) && cel.bind(i, 7, i == 7) && v < 3)",
        "[1, 2].transformList(i, v, [v].transformList(i, w, w + v)) == [[2], [4]]",
        "[0, 1].exists(i, v, 1 / v == 1)",
    ] {
        assert_eq!(said(expression), Ok(true), "{expression}");
    }
    for (expression, why) in [
        ("[1].all(i, i, true)", "duplicate variable name: i"),
        ("[1].all(i, v.x, true)", "simple name"),
        ("[1].transformMapEntry(i, v, v) == {}", "no matching overload"),
        ("[1, 1].transformMapEntry(i, v, {v: i}) == {}", "already exists"),
        ("[1, 2].all(i, v, v.contains('a'))", "no matching overload"),
    ] {
        assert!(said(expression).unwrap_err().contains(why), "{expression}");
    }
}

#[test]
fn urls_formats_and_times() {
    for expression in [
        "url('https://user@host.example:80/a b?x=1&y=2&x=3#part').getHost() == 'host.example:80'",
        "url('https://host/a b').getEscapedPath() == '/a%20b'",
        "url('https://host/?x=1&x=+%20').getQuery()['x'] == ['1', '  ']",
        "isURL('/a') && !isURL('a') && !isURL('https://host:a/')",
        "!format.dns1123Label().validate('a-b').hasValue() && format.uuid().validate('a-b').hasValue()",
        "format.named('labelValue').value() == format.labelValue() && !format.named('none').hasValue()",
        "duration('1h30m').getMinutes() == 90 && int(duration('1s')) == 1000000000",
        "timestamp('2024-02-29T23:30:00-01:00').getHours() == 0",
        "timestamp('2024-02-29T23:30:00Z').getDate('Asia/Tokyo') == 1",
        "optional.of(1).orValue(1 / 0) == 1 && optional.of(1).or(optional.of(1 / 0)).value() == 1",
    ] {
        assert_eq!(said(expression), Ok(true), "{expression}");
    }
}

#[test]
fn what_can_never_do_is_refused_at_once() {
    for expression in [
        "true || int('x') == 1",
        "true || timestamp('2024') == timestamp(0)",
        "true || duration('1d') == duration('1s')",
        "true || 'a'.matches('(')",
    ] {
        let compiled = Compiler::default().compile(expression, Purpose::Selector);
        assert!(compiled.is_err(), "{expression}");
    }
    assert!(said("semver('1.0.0') == dyn('1.0.0')").unwrap_err().contains("no such overload"));
    assert!(said("dyn(semver('1.0.0')) in ['1.0.0']").unwrap_err().contains("no such overload"));
    assert_eq!(said("dyn('1.0.0') == semver('1.0.0')"), Ok(false));
}

#[test]
fn messages_are_short() {
    for text in ["$", "`", "'", "1 1 ", "{}['x'] "] {
        assert!(said(&much(text)).unwrap_err().len() < 2_000, "{text}");
    }
    assert_eq!(said(&("(".repeat(200) + "true" + &")".repeat(200))), Ok(true));
}

#[test]
fn loops_end() {
    let list = "[1, 2, 3, 4, 5, 6, 7, 8]";
    let nested = format!("{list}.all(x, ").repeat(9) + "true" + &")".repeat(9);
    assert!(said(&nested).unwrap_err().contains("cost limit exceeded"));
    assert_eq!(said(&(format!("{list}.all(x, ").repeat(3) + "x > 0" + &")".repeat(3))), Ok(true));
}
