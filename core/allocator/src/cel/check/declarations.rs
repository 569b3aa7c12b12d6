//! The functions and operators, in the notation of the CEL specification: `target.name(arguments)
//! -> result`. A capital letter is a type parameter: it stands for any type, the same one
//! throughout the line.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::types::{Type, named};

const DECLARATIONS: &str = "
!_(bool) -> bool
_&&_(bool, bool) -> bool
_||_(bool, bool) -> bool
_?_:_(bool, A, A) -> A
@not_strictly_false(bool) -> bool
_==_(A, A) -> bool
_!=_(A, A) -> bool
@in(A, list(A)) -> bool
@in(A, map(A, B)) -> bool
_[_](list(A), int) -> A
_[_](map(A, B), A) -> B
_[_](optional_type(list(A)), int) -> optional_type(A)
_[_](optional_type(map(A, B)), A) -> optional_type(B)
_[?_](list(A), int) -> optional_type(A)
_[?_](map(A, B), A) -> optional_type(B)
_[?_](optional_type(list(A)), int) -> optional_type(A)
_[?_](optional_type(map(A, B)), A) -> optional_type(B)
-_(int) -> int
-_(double) -> double
_+_(int, int) -> int
_+_(uint, uint) -> uint
_+_(double, double) -> double
_+_(string, string) -> string
_+_(bytes, bytes) -> bytes
_+_(list(A), list(A)) -> list(A)
_+_(google.protobuf.Timestamp, google.protobuf.Duration) -> google.protobuf.Timestamp
_+_(google.protobuf.Duration, google.protobuf.Timestamp) -> google.protobuf.Timestamp
_+_(google.protobuf.Duration, google.protobuf.Duration) -> google.protobuf.Duration
_-_(int, int) -> int
_-_(uint, uint) -> uint
_-_(double, double) -> double
_-_(google.protobuf.Timestamp, google.protobuf.Timestamp) -> google.protobuf.Duration
_-_(google.protobuf.Timestamp, google.protobuf.Duration) -> google.protobuf.Timestamp
_-_(google.protobuf.Duration, google.protobuf.Duration) -> google.protobuf.Duration
_*_(int, int) -> int
_*_(uint, uint) -> uint
_*_(double, double) -> double
_/_(int, int) -> int
_/_(uint, uint) -> uint
_/_(double, double) -> double
_%_(int, int) -> int
_%_(uint, uint) -> uint
size(string) -> int
size(bytes) -> int
size(list(A)) -> int
size(map(A, B)) -> int
string.size() -> int
bytes.size() -> int
list(A).size() -> int
map(A, B).size() -> int
type(A) -> type(A)
dyn(A) -> dyn
bool(bool) -> bool
bool(string) -> bool
int(int) -> int
int(uint) -> int
int(double) -> int
int(string) -> int
int(google.protobuf.Timestamp) -> int
int(google.protobuf.Duration) -> int
uint(uint) -> uint
uint(int) -> uint
uint(double) -> uint
uint(string) -> uint
double(double) -> double
double(int) -> double
double(uint) -> double
double(string) -> double
string(string) -> string
string(bool) -> string
string(int) -> string
string(uint) -> string
string(double) -> string
string(bytes) -> string
string(google.protobuf.Timestamp) -> string
string(google.protobuf.Duration) -> string
string(net.IP) -> string
string(net.CIDR) -> string
bytes(bytes) -> bytes
bytes(string) -> bytes
string.contains(string) -> bool
string.startsWith(string) -> bool
string.endsWith(string) -> bool
string.matches(string) -> bool
matches(string, string) -> bool
string.charAt(int) -> string
string.indexOf(string) -> int
string.indexOf(string, int) -> int
string.lastIndexOf(string) -> int
string.lastIndexOf(string, int) -> int
string.lowerAscii() -> string
string.upperAscii() -> string
string.trim() -> string
string.replace(string, string) -> string
string.replace(string, string, int) -> string
string.split(string) -> list(string)
string.split(string, int) -> list(string)
string.substring(int) -> string
string.substring(int, int) -> string
string.format(list(dyn)) -> string
strings.quote(string) -> string
list(string).join() -> string
list(string).join(string) -> string
string.find(string) -> string
string.findAll(string) -> list(string)
string.findAll(string, int) -> list(string)
list(A).isSorted() -> bool
list(A).sum() -> A
list(A).min() -> A
list(A).max() -> A
list(A).indexOf(A) -> int
list(A).lastIndexOf(A) -> int
dyn.includes(A) -> bool
list(A).slice(int, int) -> list(A)
list(list(A)).flatten() -> list(A)
list(A).flatten(int) -> list(dyn)
list(A).distinct() -> list(A)
list(A).reverse() -> list(A)
list(A).first() -> optional_type(A)
list(A).last() -> optional_type(A)
list(optional_type(A)).unwrapOpt() -> list(A)
optional.unwrap(list(optional_type(A))) -> list(A)
lists.range(int) -> list(int)
sets.contains(list(A), list(A)) -> bool
sets.equivalent(list(A), list(A)) -> bool
sets.intersects(list(A), list(A)) -> bool
optional.of(A) -> optional_type(A)
optional.ofNonZeroValue(A) -> optional_type(A)
optional.none() -> optional_type(A)
optional_type(A).hasValue() -> bool
optional_type(A).value() -> A
optional_type(A).or(optional_type(A)) -> optional_type(A)
optional_type(A).orValue(A) -> A
quantity(string) -> kubernetes.Quantity
isQuantity(string) -> bool
sign(kubernetes.Quantity) -> int
kubernetes.Quantity.isInteger() -> bool
kubernetes.Quantity.asInteger() -> int
kubernetes.Quantity.asApproximateFloat() -> double
kubernetes.Quantity.compareTo(kubernetes.Quantity) -> int
kubernetes.Quantity.isGreaterThan(kubernetes.Quantity) -> bool
kubernetes.Quantity.isLessThan(kubernetes.Quantity) -> bool
kubernetes.Quantity.add(kubernetes.Quantity) -> kubernetes.Quantity
kubernetes.Quantity.add(int) -> kubernetes.Quantity
kubernetes.Quantity.sub(kubernetes.Quantity) -> kubernetes.Quantity
kubernetes.Quantity.sub(int) -> kubernetes.Quantity
semver(string) -> kubernetes.Semver
semver(string, bool) -> kubernetes.Semver
isSemver(string) -> bool
isSemver(string, bool) -> bool
kubernetes.Semver.major() -> int
kubernetes.Semver.minor() -> int
kubernetes.Semver.patch() -> int
kubernetes.Semver.compareTo(kubernetes.Semver) -> int
kubernetes.Semver.isGreaterThan(kubernetes.Semver) -> bool
kubernetes.Semver.isLessThan(kubernetes.Semver) -> bool
timestamp(string) -> google.protobuf.Timestamp
timestamp(int) -> google.protobuf.Timestamp
timestamp(google.protobuf.Timestamp) -> google.protobuf.Timestamp
google.protobuf.Timestamp.getFullYear() -> int
google.protobuf.Timestamp.getFullYear(string) -> int
google.protobuf.Timestamp.getMonth() -> int
google.protobuf.Timestamp.getMonth(string) -> int
google.protobuf.Timestamp.getDayOfYear() -> int
google.protobuf.Timestamp.getDayOfYear(string) -> int
google.protobuf.Timestamp.getDayOfMonth() -> int
google.protobuf.Timestamp.getDayOfMonth(string) -> int
google.protobuf.Timestamp.getDate() -> int
google.protobuf.Timestamp.getDate(string) -> int
google.protobuf.Timestamp.getDayOfWeek() -> int
google.protobuf.Timestamp.getDayOfWeek(string) -> int
google.protobuf.Timestamp.getHours() -> int
google.protobuf.Timestamp.getHours(string) -> int
google.protobuf.Timestamp.getMinutes() -> int
google.protobuf.Timestamp.getMinutes(string) -> int
google.protobuf.Timestamp.getSeconds() -> int
google.protobuf.Timestamp.getSeconds(string) -> int
google.protobuf.Timestamp.getMilliseconds() -> int
google.protobuf.Timestamp.getMilliseconds(string) -> int
duration(string) -> google.protobuf.Duration
duration(google.protobuf.Duration) -> google.protobuf.Duration
google.protobuf.Duration.getHours() -> int
google.protobuf.Duration.getMinutes() -> int
google.protobuf.Duration.getSeconds() -> int
google.protobuf.Duration.getMilliseconds() -> int
@merged(list(map(A, B))) -> map(A, B)
url(string) -> kubernetes.URL
isURL(string) -> bool
kubernetes.URL.getScheme() -> string
kubernetes.URL.getHost() -> string
kubernetes.URL.getHostname() -> string
kubernetes.URL.getPort() -> string
kubernetes.URL.getEscapedPath() -> string
kubernetes.URL.getQuery() -> map(string, list(string))
format.named(string) -> optional_type(kubernetes.NamedFormat)
format.dns1123Label() -> kubernetes.NamedFormat
format.dns1123Subdomain() -> kubernetes.NamedFormat
format.dns1035Label() -> kubernetes.NamedFormat
format.qualifiedName() -> kubernetes.NamedFormat
format.dns1123LabelPrefix() -> kubernetes.NamedFormat
format.dns1123SubdomainPrefix() -> kubernetes.NamedFormat
format.dns1035LabelPrefix() -> kubernetes.NamedFormat
format.labelValue() -> kubernetes.NamedFormat
format.uri() -> kubernetes.NamedFormat
format.uuid() -> kubernetes.NamedFormat
format.byte() -> kubernetes.NamedFormat
format.date() -> kubernetes.NamedFormat
format.datetime() -> kubernetes.NamedFormat
kubernetes.NamedFormat.validate(string) -> optional_type(list(string))
ip(string) -> net.IP
isIP(string) -> bool
ip.isCanonical(string) -> bool
net.IP.family() -> int
net.IP.isUnspecified() -> bool
net.IP.isLoopback() -> bool
net.IP.isLinkLocalMulticast() -> bool
net.IP.isLinkLocalUnicast() -> bool
net.IP.isGlobalUnicast() -> bool
cidr(string) -> net.CIDR
isCIDR(string) -> bool
net.CIDR.ip() -> net.IP
net.CIDR.masked() -> net.CIDR
net.CIDR.prefixLength() -> int
net.CIDR.containsIP(net.IP) -> bool
net.CIDR.containsIP(string) -> bool
net.CIDR.containsCIDR(net.CIDR) -> bool
net.CIDR.containsCIDR(string) -> bool
";

/// The types whose values have an order. Numbers compare across types.
const ORDERED: [&str; 5] =
    ["bool", "string", "bytes", "google.protobuf.Timestamp", "google.protobuf.Duration"];
const NUMBERS: [&str; 3] = ["int", "uint", "double"];

/// An overload of a function.
pub(super) struct Overload {
    /// The types of the arguments. The target of a member function is the first.
    pub(super) takes: Vec<Type>,
    /// The type of the result.
    pub(super) gives: Type,
}

/// All overloads, by function name and whether the function is a member of its first argument.
pub(super) struct Declarations(HashMap<(String, bool), Vec<Overload>>);

impl Declarations {
    pub(super) fn has(&self, name: &str, member: bool) -> bool {
        self.0.contains_key(&(name.to_owned(), member))
    }

    pub(super) fn overloads(&self, name: &str, member: bool) -> impl Iterator<Item = &Overload> {
        self.0.get(&(name.to_owned(), member)).into_iter().flatten()
    }

    fn declare(&mut self, line: &str) -> Option<()> {
        let (call, gives) = line.split_once(" -> ")?;
        let open = call.strip_suffix(')').and_then(opening)?;
        let (name, arguments) = call.split_at_checked(open)?;
        let arguments = arguments.strip_prefix('(')?.strip_suffix(')')?;
        let mut takes: Vec<Type> = split(arguments).into_iter().map(read).collect::<Option<_>>()?;
        // A target is a type. Any other prefix before a dot is part of the name.
        let target = name.rsplit_once('.').and_then(|(target, name)| Some((read(target)?, name)));
        let member = target.is_some();
        let name = match target {
            Some((target, name)) => {
                takes.insert(0, target);
                name
            }
            None => name,
        };
        let overloads = self.0.entry((name.to_owned(), member)).or_default();
        overloads.push(Overload { takes, gives: read(gives)? });
        Some(())
    }
}

/// Returns all declarations.
pub(super) fn declared() -> &'static Declarations {
    static ALL: LazyLock<Declarations> = LazyLock::new(|| {
        let mut all = Declarations(HashMap::new());
        let ordered = ORDERED.iter().map(|name| (*name, *name));
        let numbers = NUMBERS.iter().flat_map(|a| NUMBERS.iter().map(move |b| (*a, *b)));
        for (a, b) in ordered.chain(numbers) {
            for operator in ["_<_", "_<=_", "_>_", "_>=_"] {
                all.declare(&format!("{operator}({a}, {b}) -> bool"));
            }
        }
        for of in ORDERED.iter().chain(&NUMBERS) {
            all.declare(&format!("list({of}).sort() -> list({of})"));
            all.declare(&format!("list(A).@sortByAssociatedKeys(list({of})) -> list(A)"));
        }
        for line in DECLARATIONS.lines().filter(|line| !line.is_empty()) {
            let declared = all.declare(line);
            debug_assert!(declared.is_some(), "{line}");
        }
        all
    });
    &ALL
}

/// Returns the position of the last parenthesis that is open at the end of the text.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (place, character) in text.char_indices().rev() {
        match character {
            ')' => depth += 1,
            '(' if depth == 0 => return Some(place),
            '(' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Splits a text at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = text.split(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn read(text: &str) -> Option<Type> {
    if let [letter @ b'A'..=b'Z'] = text.as_bytes() {
        return Some(Type::Parameter(char::from(*letter)));
    }
    let Some((name, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) else {
        return named(text);
    };
    let mut inner = split(inner).into_iter().map(|part| read(part).map(Box::new));
    let first = inner.next()??;
    match name {
        "list" => Some(Type::List(first)),
        "optional_type" => Some(Type::Optional(first)),
        "type" => Some(Type::Itself(first)),
        "map" => Some(Type::Map(first, inner.next()??)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_declaration() {
        let mut all = Declarations(HashMap::new());
        for line in DECLARATIONS.lines().filter(|line| !line.is_empty()) {
            assert!(all.declare(line).is_some(), "{line}");
        }
        assert!(all.has("sets.contains", false));
        assert!(all.has("join", true));
        assert!(all.overloads("_[_]", false).any(|overload| overload.takes.len() == 2));
    }
}
