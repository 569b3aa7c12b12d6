//! Compares `dragoman-quantity` with `k8s.io/apimachinery/pkg/api/resource`.

use anyhow::{bail, ensure};
use dragoman_quantity::{Decimal, ParseError, Quantity};
use fastrand::Rng;

use super::{Declared, Judge};

const NO_DIGITS: &str = "a sign or a point without any digit is no number here";
const TOO_LARGE: &str = "numbers of more than 38 digits or with exponents beyond 1000 are refused";
const NEGATIVE: &str =
    "negative numbers round away from zero; the judge rounds some otherwise or loses their high bits";
const NO_SUFFIX: &str = "beyond E an exponent is printed; the judge drops the power of ten";
const WIDE: &str = "sums of more than 38 digits are refused, or printed without a binary suffix";
const BEYOND: &str = "what no i64 holds is said; the judge answers with its lowest 64 bits or 0";

/// Compares the answers to `count` questions. Returns how many agree, and the intended differences.
pub(super) fn compare(judge: &Judge, count: usize, seed: u64) -> anyhow::Result<(usize, Declared)> {
    const AT_ONCE: usize = 100_000;
    let mut rng = Rng::with_seed(seed);
    let (mut agreed, mut declared, mut left) = (0, Declared::new(), count);
    while left > 0 {
        let questions: Vec<String> = (0..left.min(AT_ONCE)).map(|_| question(&mut rng)).collect();
        left -= questions.len();
        for (question, answer) in questions.iter().zip(judge.answer(&questions)?) {
            match judged(question, &answer)? {
                None => agreed += 1,
                Some(why) => *declared.entry(why).or_default() += 1,
            }
        }
    }
    for why in [NO_DIGITS, TOO_LARGE, WIDE, BEYOND, NEGATIVE, NO_SUFFIX] {
        ensure!(count < 100_000 || declared.contains_key(why), "does not occur any more: {why}");
    }
    Ok((agreed, declared))
}

fn question(rng: &mut Rng) -> String {
    // Two random texts seldom both parse, so that operations get well-formed ones.
    match rng.u8(0..10) {
        0..6 => format!("parse\t{}", text(rng, 25)),
        6 | 7 => format!("add\t{}\t{}", text(rng, 0), text(rng, 0)),
        8 => format!("sub\t{}\t{}", text(rng, 0), text(rng, 0)),
        _ => format!("cmp\t{}\t{}", text(rng, 0), text(rng, 0)),
    }
}

/// A random quantity. In `nonsense` of 100 cases the text is most likely malformed.
fn text(rng: &mut Rng, nonsense: u8) -> String {
    const SUFFIXES: &[&str] = &[
        "", "", "", "n", "u", "m", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
        "e0", "e3", "E6", "e-3", "e+9", "e-12", "E-9", "e18", "e27", "e-30",
    ];
    const WRONG: &[&str] = &[
        "K",
        "mm",
        "ki",
        "KI",
        "Zi",
        "e",
        "E+",
        "e--1",
        "x",
        " ",
        "i",
        "nm",
        "e1.5",
        "eE",
        "Eie3",
        "e4294967299",
        "e1001",
    ];
    let digits = |rng: &mut Rng| {
        let length = match rng.u8(0..20) {
            0 => 0,
            1..15 => rng.usize(1..5),
            15..18 => rng.usize(5..19),
            18 => rng.usize(17..23),
            _ => rng.usize(20..60),
        };
        // Zeros and nines provoke carries and truncation.
        let digit = |rng: &mut Rng| match rng.u8(0..10) {
            0..3 => '0',
            3 | 4 => '9',
            _ => rng.digit(10),
        };
        (0..length).map(|_| digit(rng)).collect::<String>()
    };
    let sign = ["", "", "", "", "-", "+"][rng.usize(0..6)];
    let mut number = match rng.u8(0..3) {
        0 => format!("{}.{}", digits(rng), digits(rng)),
        _ => digits(rng),
    };
    let wrong = rng.u8(0..100) < nonsense;
    if !wrong && !number.bytes().any(|b| b.is_ascii_digit()) {
        number.push(rng.digit(10));
    }
    // Numbers next to powers of two.
    if rng.u8(0..50) == 0 {
        number = (i64::MAX >> rng.u8(0..40)).wrapping_add(rng.i64(-1..2)).unsigned_abs().to_string();
    }
    let suffixes = if wrong && rng.bool() { WRONG } else { SUFFIXES };
    format!("{sign}{number}{}", suffixes[rng.usize(0..suffixes.len())])
}

/// Returns `None` if both sides agree, and the reason if they differ as intended.
fn judged(question: &str, answer: &str) -> anyhow::Result<Option<&'static str>> {
    let fields: Vec<&str> = question.split('\t').collect();
    let wrong = |ours: &str| anyhow::anyhow!("{question:?}: the judge says {answer:?}, we say {ours:?}");
    match fields[..] {
        ["parse", text] => parsed(text, answer).map_err(|ours| wrong(&ours)),
        [operation, a, b] => {
            let (a, b): (Quantity, Quantity) = match (a.parse(), b.parse()) {
                (Ok(a), Ok(b)) => (a, b),
                (Err(ParseError::TooLarge), _) if too_large(a) => return Ok(Some(TOO_LARGE)),
                (_, Err(ParseError::TooLarge)) if too_large(b) => return Ok(Some(TOO_LARGE)),
                (Err(why), _) | (_, Err(why)) => bail!(wrong(&why.to_string())),
            };
            let ours = match operation {
                "cmp" => (a.cmp(&b) as i8).to_string(),
                "add" | "sub" => {
                    let result = if operation == "add" { a.checked_add(b) } else { a.checked_sub(b) };
                    let Ok(result) = result else {
                        ensure!(width(a, b) > 37, wrong("overflow"));
                        return Ok(Some(WIDE));
                    };
                    result.to_string()
                }
                other => bail!("unknown operation {other}"),
            };
            if drops_exponent(&ours, answer) {
                return Ok(Some(NO_SUFFIX));
            }
            if ours != answer && ours.len() > 38 {
                return Ok(Some(WIDE));
            }
            ensure!(ours == answer, wrong(&ours));
            Ok(None)
        }
        _ => bail!("a question of {} fields", fields.len()),
    }
}

fn parsed(text: &str, answer: &str) -> Result<Option<&'static str>, String> {
    let theirs: Vec<&str> = answer.split('\t').collect();
    match (text.parse::<Quantity>(), &theirs[..]) {
        (Ok(ours), ["ok", canonical, value, milli]) => {
            let printed = ours.to_string();
            let dropped = drops_exponent(&printed, canonical);
            if printed != *canonical && !dropped {
                return Err(printed);
            }
            let mut beyond = dropped.then_some(NO_SUFFIX);
            let (whole, thousandths) = (ours.amount, ours.amount.checked_mul(Decimal::from(1000)));
            for (exact, ours, theirs) in
                [(Ok(whole), ours.amount.units(), value), (thousandths, ours.amount.milli(), milli)]
            {
                match ours {
                    Some(ours) if ours.to_string() == **theirs => {}
                    Some(ours) if ours < 0 => beyond = Some(NEGATIVE),
                    Some(ours) => return Err(ours.to_string()),
                    None => {
                        let large = |n: Decimal| n > Decimal::from(i64::MAX) || n < Decimal::from(i64::MIN);
                        if !exact.map_or(true, large) {
                            return Err("nothing, for a number that fits".to_owned());
                        }
                        beyond = Some(BEYOND);
                    }
                }
            }
            Ok(beyond)
        }
        (Err(ParseError::Suffix), ["error", why]) if why.contains("suffix") => Ok(None),
        (Err(ParseError::Format), ["error", why]) if !why.contains("suffix") => Ok(None),
        (Err(ParseError::Format), ["ok", ..]) if !text.bytes().any(|b| b.is_ascii_digit()) => {
            Ok(Some(NO_DIGITS))
        }
        (Err(ParseError::Format), _)
            if !text.starts_with(|c: char| c.is_ascii_digit()) && no_digit_before_suffix(text) =>
        {
            Ok(Some(NO_DIGITS))
        }
        (Err(ParseError::TooLarge), ["ok", ..]) if too_large(text) => Ok(Some(TOO_LARGE)),
        (ours, _) => Err(format!("{ours:?}")),
    }
}

/// The number of digits from the first of the larger number to the last of the smaller one.
fn width(a: Quantity, b: Quantity) -> i64 {
    let ends = |q: Quantity| {
        let last = i64::from(q.amount.exponent());
        (last + i64::try_from(q.amount.mantissa().unsigned_abs().to_string().len()).unwrap_or(0), last)
    };
    let ((first_a, last_a), (first_b, last_b)) = (ends(a), ends(b));
    first_a.max(first_b) - last_a.min(last_b)
}

/// Whether the judge prints only the digits of a number beyond the largest suffix.
fn drops_exponent(ours: &str, theirs: &str) -> bool {
    ours != theirs
        && ours
            .split_once('e')
            .is_some_and(|(digits, power)| digits == theirs && power.parse::<i32>().is_ok_and(|p| p > 18))
}

/// Whether a text has more than 38 significant digits, or an exponent of more than three digits.
fn too_large(text: &str) -> bool {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, ""));
    let digits: String = number.chars().filter(char::is_ascii_digit).collect();
    digits.trim_matches('0').len() > 38 || exponent.trim_start_matches(['+', '-']).len() > 3
}

/// Whether the number itself has no digit; an exponent may have some.
fn no_digit_before_suffix(text: &str) -> bool {
    text.trim_start_matches(['+', '-', '.']).starts_with(|c: char| !c.is_ascii_digit())
}
