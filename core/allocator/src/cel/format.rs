//! The named formats of Kubernetes, and their validation with the messages of the API server.

use super::url::Url;

/// A named format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Dns1123Label,
    Dns1123Subdomain,
    Dns1035Label,
    QualifiedName,
    Dns1123LabelPrefix,
    Dns1123SubdomainPrefix,
    Dns1035LabelPrefix,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    Datetime,
}

/// All formats, by name.
pub(crate) const FORMATS: [(&str, Format); 13] = [
    ("dns1123Label", Format::Dns1123Label),
    ("dns1123Subdomain", Format::Dns1123Subdomain),
    ("dns1035Label", Format::Dns1035Label),
    ("qualifiedName", Format::QualifiedName),
    ("dns1123LabelPrefix", Format::Dns1123LabelPrefix),
    ("dns1123SubdomainPrefix", Format::Dns1123SubdomainPrefix),
    ("dns1035LabelPrefix", Format::Dns1035LabelPrefix),
    ("labelValue", Format::LabelValue),
    ("uri", Format::Uri),
    ("uuid", Format::Uuid),
    ("byte", Format::Byte),
    ("date", Format::Date),
    ("datetime", Format::Datetime),
];

const LABEL: usize = 63;
const SUBDOMAIN: usize = 253;

const BAD_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const BAD_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const BAD_DNS1035_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const BAD_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
     validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const BAD_NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

impl Format {
    /// Returns the violations of the format; empty if the text is valid.
    pub(crate) fn validate(self, text: &str) -> Vec<String> {
        let unless =
            |good: bool, why: &str| -> Vec<String> { if good { Vec::new() } else { vec![why.to_owned()] } };
        match self {
            Self::Dns1123Label => label(text),
            Self::Dns1123Subdomain => subdomain(text),
            Self::Dns1035Label => dns1035_label(text),
            Self::Dns1123LabelPrefix => label(&completed(text)),
            Self::Dns1123SubdomainPrefix => subdomain(&completed(text)),
            Self::Dns1035LabelPrefix => dns1035_label(&completed(text)),
            Self::QualifiedName => qualified_name(text),
            Self::LabelValue => {
                let good = text.is_empty() || is_of(text, is_of_name, alphanumeric);
                short(text, LABEL, "bytes", unless(good, BAD_VALUE))
            }
            Self::Uri => Url::check(text).err().into_iter().collect(),
            Self::Uuid => unless(is_uuid(text), "does not match the UUID format"),
            Self::Byte => unless(is_base64(text), "invalid base64"),
            Self::Date => unless(is_date(text), "invalid date"),
            Self::Datetime => unless(is_datetime(text).is_some(), "invalid datetime"),
        }
    }
}

/// Puts a violation of the length first.
fn short(text: &str, most: usize, unit: &str, mut wrong: Vec<String>) -> Vec<String> {
    if text.len() > most {
        wrong.insert(0, format!("must be no more than {most} {unit}"));
    }
    wrong
}

/// Whether a text is not empty, all its bytes satisfy `inner`, and its first and last one satisfy
/// `end`.
fn is_of(text: &str, inner: fn(u8) -> bool, end: fn(u8) -> bool) -> bool {
    let text = text.as_bytes();
    let ends = text.first().zip(text.last());
    ends.is_some_and(|(first, last)| end(*first) && end(*last)) && text.iter().all(|byte| inner(*byte))
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
}

fn is_label(text: &str) -> bool {
    is_of(text, |byte| lower(byte) || byte == b'-', lower)
}

fn label(text: &str) -> Vec<String> {
    let wrong = if is_label(text) { vec![] } else { vec![BAD_LABEL.to_owned()] };
    short(text, LABEL, "characters", wrong)
}

fn dns1035_label(text: &str) -> Vec<String> {
    let good = is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase());
    let wrong = if good { vec![] } else { vec![BAD_DNS1035_LABEL.to_owned()] };
    short(text, LABEL, "characters", wrong)
}

fn subdomain(text: &str) -> Vec<String> {
    let wrong = if text.split('.').all(is_label) { vec![] } else { vec![BAD_SUBDOMAIN.to_owned()] };
    short(text, SUBDOMAIN, "characters", wrong)
}

/// Returns the name that stands for a prefix in the validation. As in the API server, `a` replaces
/// the last two characters of a prefix that ends with a hyphen.
fn completed(text: &str) -> String {
    match text.strip_suffix('-').and_then(|text| text.char_indices().next_back().map(|(end, _)| (text, end)))
    {
        Some((text, end)) => format!("{}a", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = match text.split_once('/') {
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a valid label key {BAD_NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some(("", name)) => {
            wrong.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            wrong.extend(subdomain(prefix).into_iter().map(|why| format!("prefix part {why}")));
            name
        }
        None => text,
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL {
        wrong.push(format!("name part must be no more than {LABEL} bytes"));
    }
    if !is_of(name, is_of_name, alphanumeric) {
        wrong.push(format!("name part {BAD_NAME}"));
    }
    wrong
}

/// Whether a text is a UUID. Each of the four hyphens is optional.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (place, digits) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if place > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((part, after)) = rest.split_at_checked(digits) else { return false };
        if !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

/// Whether a text is base64: groups of four digits, the last one padded.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    let of_base64 = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !digits.is_empty() && text.len().is_multiple_of(4) && padding < 3 && digits.bytes().all(of_base64)
}

/// Reads a number of exactly `digits` digits. Returns it and the rest.
fn number(text: &str, digits: usize) -> Option<(u32, &str)> {
    let (number, rest) = text.split_at_checked(digits)?;
    let plain = number.bytes().all(|byte| byte.is_ascii_digit());
    Some((number.parse().ok().filter(|_| plain)?, rest))
}

fn is_date(text: &str) -> bool {
    day(text).is_some_and(str::is_empty)
}

/// Reads a valid date. Returns the rest.
fn day(text: &str) -> Option<&str> {
    let (year, rest) = number(text, 4)?;
    let (month, rest) = number(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = number(rest.strip_prefix('-')?, 2)?;
    let leaps = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leaps => 29,
        2 => 28,
        _ => 0,
    };
    (1..=days).contains(&day).then_some(rest)
}

/// Checks a date and a time with an offset. The hours and minutes of the offset may have any value.
fn is_datetime(text: &str) -> Option<()> {
    let rest = day(text)?.strip_prefix(['T', 't'])?;
    let (hour, rest) = number(rest, 2)?;
    let (minute, rest) = number(rest.strip_prefix(':')?, 2)?;
    let (second, mut rest) = number(rest.strip_prefix(':')?, 2)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    if let Some(fraction) = rest.strip_prefix('.') {
        rest = fraction.trim_start_matches(|character: char| character.is_ascii_digit());
        if rest.len() == fraction.len() {
            return None;
        }
    }
    if let Some(offset) = rest.strip_prefix(['+', '-']) {
        let (_, minutes) = number(offset, 2)?;
        (_, rest) = number(minutes.strip_prefix(':')?, 2)?;
    } else {
        rest = rest.strip_prefix(['Z', 'z'])?;
    }
    rest.is_empty().then_some(())
}
