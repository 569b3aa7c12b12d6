//! The types that Kubernetes adds to CEL.

use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use cel::common::types::Type;
use cel::common::value::{StaticVal, Val};
use dragoman_quantity::Quantity;

use super::format::Format;
use super::url::Url;

/// Defines a type of values that only its own functions handle.
macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident($inner:ty), $cel:literal, |$a:ident, $b:ident| $equal:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(crate) struct $name(pub(crate) $inner);

        impl $name {
            pub(crate) const TYPE: Type = Type::new_unspecified_type($cel);
        }

        impl Val for $name {
            fn get_type(&self) -> &Type {
                <Self as Val>::cel_type()
            }

            fn cel_type() -> &'static Type {
                static TYPE: Type = $name::TYPE;
                &TYPE
            }

            fn equals(&self, other: &dyn Val) -> bool {
                other.downcast_ref::<Self>().is_some_and(|other| {
                    let ($a, $b) = (&self.0, &other.0);
                    $equal
                })
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
                Box::new(self.clone())
            }

            fn as_any(&self) -> Option<&dyn Any> {
                Some(self)
            }
        }

        impl StaticVal for $name {}
    };
}

opaque!(
    /// A quantity.
    QuantityVal(Quantity),
    "kubernetes.Quantity",
    |a, b| a == b
);
opaque!(
    /// A semantic version. Two versions are equal if neither precedes the other, so build metadata
    /// is ignored.
    SemverVal(semver::Version),
    "kubernetes.Semver",
    |a, b| a.cmp_precedence(b).is_eq()
);
opaque!(
    /// An IP address.
    IpVal(IpAddr),
    "net.IP",
    |a, b| a == b
);
opaque!(
    /// A range of IP addresses.
    CidrVal(Cidr),
    "net.CIDR",
    |a, b| a == b
);

opaque!(
    /// A URL.
    UrlVal(Arc<Url>),
    "kubernetes.URL",
    |a, b| a == b
);
opaque!(
    /// A format that strings can be validated against.
    FormatVal(Format),
    "kubernetes.NamedFormat",
    |a, b| a == b
);

/// Whether a value has one of these types.
pub(crate) fn is_opaque(value: &dyn Val) -> bool {
    let types =
        [QuantityVal::TYPE, SemverVal::TYPE, IpVal::TYPE, CidrVal::TYPE, UrlVal::TYPE, FormatVal::TYPE];
    types.contains(value.get_type())
}

/// An address and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    /// The address as written.
    pub(crate) address: IpAddr,
    /// The number of leading bits that count.
    pub(crate) bits: u8,
}

impl SemverVal {
    /// Parses a version with three numbers, as the API requires.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        semver::Version::parse(text).map(Self).map_err(|why| why.to_string())
    }
}

impl fmt::Display for SemverVal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Cidr {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let plain = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits: u8 = bits.parse().ok().filter(|_| plain)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        (bits <= width).then_some(Self { address, bits })
    }

    fn value(address: IpAddr) -> (u128, u32) {
        match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        }
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let ((ours, width), (theirs, other)) = (Self::value(self.address), Self::value(address));
        let shift = width - u32::from(self.bits);
        width == other && (ours ^ theirs).checked_shr(shift).unwrap_or_default() == 0
    }

    pub(crate) fn masked(self) -> Self {
        let (value, width) = Self::value(self.address);
        let shift = width - u32::from(self.bits);
        let kept = value.checked_shr(shift).and_then(|kept| kept.checked_shl(shift)).unwrap_or_default();
        let address = match u32::try_from(kept) {
            Ok(kept) if width == 32 => IpAddr::V4(kept.into()),
            _ => IpAddr::V6(kept.into()),
        };
        Self { address, bits: self.bits }
    }
}
