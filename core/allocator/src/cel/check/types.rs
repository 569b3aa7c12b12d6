//! The static types of expressions.

use std::fmt;

use super::ByParameter;

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cel) enum Type {
    /// Known at evaluation only.
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Null,
    Timestamp,
    Duration,
    Quantity,
    Semver,
    Ip,
    Cidr,
    Url,
    NamedFormat,
    Device,
    List(Box<Self>),
    Map(Box<Self>, Box<Self>),
    Optional(Box<Self>),
    /// The type of a type, as a value.
    Itself(Box<Self>),
    /// A type parameter of a declaration.
    Parameter(char),
}

impl Type {
    pub(super) fn map(key: Self, value: Self) -> Self {
        Self::Map(Box::new(key), Box::new(value))
    }

    /// Whether values of both types may be elements of one list literal. The types must be equal,
    /// but an unknown element type of a list, map or optional matches any other.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        let inner = |a: &Self, b: &Self| *a == Self::Dyn || *b == Self::Dyn || a.goes_with(b);
        match (self, other) {
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => inner(a, b),
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                inner(key, other_key) && inner(value, other_value)
            }
            (a, b) => a == b,
        }
    }
}

const NAMES: [(&str, Type); 17] = [
    ("bool", Type::Bool),
    ("int", Type::Int),
    ("uint", Type::Uint),
    ("double", Type::Double),
    ("string", Type::String),
    ("bytes", Type::Bytes),
    ("null_type", Type::Null),
    ("dyn", Type::Dyn),
    ("google.protobuf.Timestamp", Type::Timestamp),
    ("google.protobuf.Duration", Type::Duration),
    ("kubernetes.Quantity", Type::Quantity),
    ("kubernetes.Semver", Type::Semver),
    ("net.IP", Type::Ip),
    ("net.CIDR", Type::Cidr),
    ("kubernetes.URL", Type::Url),
    ("kubernetes.NamedFormat", Type::NamedFormat),
    ("kubernetes.DRADevice", Type::Device),
];

/// Returns the type with a name.
pub(super) fn named(name: &str) -> Option<Type> {
    match name {
        "list" => Some(Type::List(Box::new(Type::Dyn))),
        "map" => Some(Type::map(Type::Dyn, Type::Dyn)),
        "type" => Some(Type::Itself(Box::new(Type::Dyn))),
        "optional_type" => Some(Type::Optional(Box::new(Type::Dyn))),
        name => NAMES.iter().find(|(known, _)| *known == name).map(|(_, of)| of.clone()),
    }
}

/// Returns the type of a field of `device`.
pub(super) fn device_field(name: &str) -> Option<Type> {
    let by_domain = |of: Type| Type::map(Type::String, Type::map(Type::String, of));
    match name {
        "driver" => Some(Type::String),
        "allowMultipleAllocations" => Some(Type::Bool),
        "attributes" => Some(by_domain(Type::Dyn)),
        "capacity" => Some(by_domain(Type::Quantity)),
        _ => None,
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Itself(of) => write!(f, "type({of})"),
            Self::Parameter(name) => write!(f, "{name}"),
            plain => {
                let name = NAMES.iter().find(|(_, of)| of == plain).map_or("", |(name, _)| name);
                f.write_str(name)
            }
        }
    }
}

/// The types that the type parameters of a call are bound to.
#[derive(Default)]
pub(super) struct Bindings(ByParameter);

impl Bindings {
    /// Whether a value of type `given` may be passed where a declaration has `wanted`. Binds type
    /// parameters.
    pub(super) fn accept(&mut self, wanted: &Type, given: &Type) -> bool {
        match (wanted, given) {
            (Type::Parameter(name), given) => match self.0.get(name).cloned() {
                None => {
                    self.0.insert(*name, given.clone());
                    true
                }
                Some(Type::Dyn) => true,
                Some(bound) => {
                    if !Self::default().accept(&bound, given) {
                        return false;
                    }
                    if *given == Type::Dyn {
                        self.0.insert(*name, Type::Dyn);
                    }
                    true
                }
            },
            (_, Type::Dyn) | (Type::Dyn, _) => true,
            (Type::List(wanted), Type::List(given))
            | (Type::Optional(wanted), Type::Optional(given))
            | (Type::Itself(wanted), Type::Itself(given)) => self.accept(wanted, given),
            (Type::Map(key, value), Type::Map(given_key, given_value)) => {
                self.accept(key, given_key) && self.accept(value, given_value)
            }
            (wanted, given) => wanted == given,
        }
    }

    /// Returns a declared type with its parameters replaced by the bound types.
    pub(super) fn resolved(&self, declared: &Type) -> Type {
        let inner = |of: &Type| Box::new(self.resolved(of));
        match declared {
            Type::Parameter(name) => self.0.get(name).cloned().unwrap_or(Type::Dyn),
            Type::List(of) => Type::List(inner(of)),
            Type::Map(key, value) => Type::Map(inner(key), inner(value)),
            Type::Optional(of) => Type::Optional(inner(of)),
            Type::Itself(of) => Type::Itself(inner(of)),
            plain => plain.clone(),
        }
    }
}
