//! Requests: user, method, path and query.

use http::Method;

/// The user of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The user name.
    pub name: String,
    /// The groups of the user.
    pub groups: Vec<String>,
}

impl User {
    /// Returns a user with all permissions.
    pub fn admin() -> Self {
        Self { name: "admin".to_owned(), groups: vec!["system:masters".to_owned()] }
    }
}

/// A request to the API server.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// The path without the query.
    pub path: String,
    /// The decoded query.
    pub query: Query,
    /// `Content-Type`, without parameters.
    pub content_type: String,
    /// `Accept`.
    pub accept: String,
    /// `User-Agent`.
    pub user_agent: String,
    /// The body.
    pub body: Vec<u8>,
    /// Whether the change of a claim stands for an update in protobuf, as the parties in the tree send it: opaque parameters
    /// keep their bytes.
    pub keeps_bytes: bool,
    /// The authenticated user.
    pub user: User,
    /// The user to impersonate: `Impersonate-User` and `Impersonate-Group`.
    pub impersonated: Option<User>,
}

/// Query parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the text after `?`.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        };
        Self(pairs.map(pair).collect())
    }

    /// Returns the value of a parameter, or the empty string.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Whether a parameter is set to `true` or `1`.
    pub fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1")
    }

    /// Returns the value of a numeric parameter.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name).parse().ok()
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                let digits = String::from_utf8_lossy(&digits).into_owned();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap_or(b'%'));
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Discovery: all groups, one group, or one group version.
    Root(&'static str),
    Group(String),
    Version {
        group: String,
        version: String,
    },
    /// A collection, an object, or a subresource.
    Resource {
        group: String,
        version: String,
        namespace: Option<String>,
        plural: String,
        name: Option<String>,
        subresource: Option<String>,
    },
    /// Any other path, such as `/version` or `/healthz`.
    Other(String),
}

impl Place {
    pub(crate) fn of(path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let owned = |text: &&str| (*text).to_owned();
        match parts.as_slice() {
            ["api"] => Self::Root("api"),
            ["apis"] => Self::Root("apis"),
            ["api", version] => Self::Version { group: String::new(), version: owned(version) },
            ["apis", group] => Self::Group(owned(group)),
            ["apis", group, version] => Self::Version { group: owned(group), version: owned(version) },
            ["api", version, rest @ ..] => {
                Self::resource("", version, rest).unwrap_or_else(|| Self::Other(path.to_owned()))
            }
            ["apis", group, version, rest @ ..] => {
                Self::resource(group, version, rest).unwrap_or_else(|| Self::Other(path.to_owned()))
            }
            _ => Self::Other(path.to_owned()),
        }
    }

    fn resource(group: &str, version: &str, rest: &[&str]) -> Option<Self> {
        let of = |namespace: Option<&str>, plural: &str, name: Option<&str>, subresource: Option<&str>| {
            Self::Resource {
                group: group.to_owned(),
                version: version.to_owned(),
                namespace: namespace.map(str::to_owned),
                plural: plural.to_owned(),
                name: name.map(str::to_owned),
                subresource: subresource.map(str::to_owned),
            }
        };
        Some(match rest {
            // Subresources of a namespace, not resources inside it.
            ["namespaces", name, subresource @ ("status" | "finalize")] => {
                of(None, "namespaces", Some(name), Some(subresource))
            }
            ["namespaces", namespace, plural] => of(Some(namespace), plural, None, None),
            ["namespaces", namespace, plural, name] => of(Some(namespace), plural, Some(name), None),
            ["namespaces", namespace, plural, name, subresource] => {
                of(Some(namespace), plural, Some(name), Some(subresource))
            }
            [plural] => of(None, plural, None, None),
            [plural, name] => of(None, plural, Some(name), None),
            [plural, name, subresource] => of(None, plural, Some(name), Some(subresource)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_somewhere() {
        let Place::Resource { namespace, plural, name, subresource, .. } =
            Place::of("/api/v1/namespaces/a/pods/b/status")
        else {
            panic!("no resource");
        };
        assert_eq!(
            (namespace.as_deref(), &*plural, name.as_deref(), subresource.as_deref()),
            (Some("a"), "pods", Some("b"), Some("status"))
        );
        let Place::Resource { namespace, plural, name, .. } = Place::of("/api/v1/namespaces/a") else {
            panic!("no resource");
        };
        assert_eq!((namespace, &*plural, name.as_deref()), (None, "namespaces", Some("a")));
        assert_eq!(
            Place::of("/apis/a/v1"),
            Place::Version { group: "a".to_owned(), version: "v1".to_owned() }
        );
        assert!(matches!(Place::of("/healthz"), Place::Other(_)));
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&watch=1&limit=5&x=a+b");
        assert_eq!(query.get("labelSelector"), "a=b,c");
        assert!(query.is_on("watch"));
        assert_eq!(query.number("limit"), Some(5));
        assert_eq!(query.get("x"), "a b");
        assert_eq!(query.get("missing"), "");
    }
}
