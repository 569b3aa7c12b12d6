//! URLs as Kubernetes parses them: an absolute URI or an absolute path (RFC 3986, with the
//! deviations of Go's `net/url`).

use std::fmt::Write as _;
use std::net::Ipv6Addr;

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    /// In lower case; empty if missing.
    pub(crate) scheme: String,
    user: String,
    /// The host with its port.
    pub(crate) host: String,
    /// The part after the scheme of a URI without a path, for example `a@b` in `mailto:a@b`.
    opaque: String,
    /// The path with percent-encoding where it is required.
    pub(crate) path: String,
    query: Option<String>,
    fragment: String,
}

/// The part of a URL that a character belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    User,
    Host,
    Zone,
    Path,
    Query,
    Fragment,
}

impl Url {
    /// # Errors
    /// The text is not a URL. The message quotes it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let failed = |why: String| format!("parse {text:?}: {why}");
        Self::check(text)?;
        let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
        let fragment = unescaped(fragment, Part::Fragment).map_err(failed)?;
        Ok(Self { fragment, ..Self::read(whole).map_err(failed)? })
    }

    /// Checks a text as a request URI: a `#` does not begin a fragment.
    ///
    /// # Errors
    /// The text is not a URL. The message quotes it.
    pub(crate) fn check(text: &str) -> Result<(), String> {
        Self::read(text).map(drop).map_err(|why| format!("parse {text:?}: {why}"))
    }

    /// Returns the host without the port and without the brackets of an IPv6 address.
    pub(crate) fn hostname(&self) -> &str {
        let host = self.split_host().0;
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Returns the port; empty if missing.
    pub(crate) fn port(&self) -> &str {
        self.split_host().1
    }

    /// Returns the query parameters with all their values, in order. Invalid parameters are left
    /// out.
    pub(crate) fn parameters(&self) -> Vec<(String, Vec<String>)> {
        let mut all: Vec<(String, Vec<String>)> = Vec::new();
        let pairs = self.query.as_deref().unwrap_or_default().split('&');
        for pair in pairs.filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Ok(name), Ok(value)) = (unescaped(name, Part::Query), unescaped(value, Part::Query)) else {
                continue;
            };
            match all.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(value),
                None => all.push((name, vec![value])),
            }
        }
        all
    }

    fn split_host(&self) -> (&str, &str) {
        let port = self.host.rsplit_once(':').filter(|(_, port)| is_port(port));
        port.unwrap_or((&self.host, ""))
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() {
            return Err("empty url".to_owned());
        }
        let (scheme, rest) = if text == "*" { ("", text) } else { scheme(text)? };
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query.to_owned())),
            None => (rest, None),
        };
        let mut url = Self {
            scheme: scheme.to_ascii_lowercase(),
            user: String::new(),
            host: String::new(),
            opaque: String::new(),
            path: String::new(),
            query,
            fragment: String::new(),
        };
        if text == "*" {
            text.clone_into(&mut url.path);
        } else if !rest.starts_with('/') {
            if scheme.is_empty() {
                return Err("invalid URI for request".to_owned());
            }
            rest.clone_into(&mut url.opaque);
        } else {
            let authority =
                rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///"));
            let (authority, path) = match authority {
                Some(rest) => {
                    rest.split_at_checked(rest.find('/').unwrap_or(rest.len())).unwrap_or((rest, ""))
                }
                None => ("", rest),
            };
            let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
            url.user = self::user(user)?;
            url.host = self::host(host)?;
            url.path = escaped(path)?;
        }
        Ok(url)
    }
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the scheme, which may be empty, and the rest.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|character: char| !character.is_ascii_alphanumeric() && !"+-.".contains(character));
    let (scheme, rest) = text.split_at_checked(end.unwrap_or(text.len())).unwrap_or((text, ""));
    match rest.strip_prefix(':') {
        Some(_) if scheme.is_empty() => Err("missing protocol scheme".to_owned()),
        Some(rest) if scheme.starts_with(|first: char| first.is_ascii_alphabetic()) => Ok((scheme, rest)),
        _ => Ok(("", text)),
    }
}

fn user(text: &str) -> Result<String, String> {
    let allowed =
        |character: char| character.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(character);
    if !text.chars().all(allowed) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    unescaped(text, Part::User)
}

fn host(text: &str) -> Result<String, String> {
    let bad_port = |port: &str| Err(format!("invalid port {port:?} after host"));
    match text.rfind('[') {
        Some(0) => {
            let Some((address, port)) = text.strip_prefix('[').and_then(|text| text.rsplit_once(']')) else {
                return Err("missing ']' in host".to_owned());
            };
            if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
                return bad_port(port);
            }
            let (address, zone) = address.split_once("%25").map_or((address, None), |(a, z)| (a, Some(z)));
            if address.parse::<Ipv6Addr>().is_err() || zone.is_some_and(str::is_empty) {
                return Err("invalid IP-literal".to_owned());
            }
            let zone = zone.map(|zone| unescaped(zone, Part::Zone)).transpose()?;
            let zone = zone.map(|zone| format!("%{zone}")).unwrap_or_default();
            Ok(format!("[{address}{zone}]{port}"))
        }
        Some(_) => Err("invalid IP-literal".to_owned()),
        None => match text.find(':').and_then(|place| text.split_at_checked(place)) {
            Some((_, port)) if !port.strip_prefix(':').is_some_and(is_port) => bad_port(port),
            _ => unescaped(text, Part::Host),
        },
    }
}

/// Whether a byte needs no percent-encoding in a host.
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80 || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

/// Returns a path with percent-encoding where it is required. A path that is valid as it is stays
/// unchanged.
fn escaped(path: &str) -> Result<String, String> {
    let plain = unescaped_bytes(path, Part::Path)?;
    let stays = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte);
    if path.bytes().all(|byte| stays(byte) || b"!'()*[]%".contains(&byte)) {
        return Ok(path.to_owned());
    }
    let mut text = String::with_capacity(path.len());
    for byte in plain {
        if stays(byte) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").ok();
        }
    }
    Ok(text)
}

fn unescaped(text: &str, part: Part) -> Result<String, String> {
    Ok(String::from_utf8_lossy(&unescaped_bytes(text, part)?).into_owned())
}

fn unescaped_bytes(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'%' => {
                let (byte, after) = hexadecimal(after)
                    .filter(|(byte, _)| match part {
                        // In a host, percent-encoding is allowed for bytes beyond ASCII and for `%`
                        // only.
                        Part::Host => *byte >= 0x80 || *byte == b'%',
                        Part::Zone => is_of_host(*byte) || *byte == b'%' || *byte == b' ',
                        _ => true,
                    })
                    .ok_or_else(|| {
                        let bad = after.get(..2).unwrap_or(after);
                        format!("invalid URL escape \"%{}\"", String::from_utf8_lossy(bad))
                    })?;
                plain.push(byte);
                rest = after;
            }
            b'+' if part == Part::Query => plain.push(b' '),
            byte if matches!(part, Part::Host | Part::Zone) && !is_of_host(*byte) => {
                let name = String::from(char::from(*byte));
                return Err(format!("invalid character {name:?} in host name"));
            }
            byte => plain.push(*byte),
        }
    }
    Ok(plain)
}

/// Returns the byte of two hexadecimal digits, and the rest.
fn hexadecimal(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = text.split_at_checked(2)?;
    let digits =
        std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
    Some((u8::from_str_radix(digits, 16).ok()?, rest))
}
