//! `ip(text)`, `cidr(text)`.

use std::net::IpAddr;

use cel::common::types::{CelBool, CelInt, CelString, STRING_TYPE, Type};
use cel::{DeclarationError, Env, ExecutionError};

use super::{Arguments, function};
use crate::cel::types::{Cidr, CidrVal, IpVal};

const IP: Type = IpVal::TYPE;
const CIDR: Type = CidrVal::TYPE;

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(IP)?;
    env.add_type(CIDR)?;
    function!(env, "ip"(STRING_TYPE) | given | IpVal(address(&given, 0)?));
    function!(env, "isIP"(STRING_TYPE) | given | CelBool::from(address(&given, 0).is_ok()));
    function!(
        env,
        "ip.isCanonical"(STRING_TYPE) | given | {
            CelBool::from(address(&given, 0)?.to_string() == given.text(0)?)
        }
    );
    function!(env, IP => "family"() |given| CelInt::from(if ip(&given)?.is_ipv4() { 4 } else { 6 }));
    function!(env, IP => "isUnspecified"() |given| CelBool::from(ip(&given)?.is_unspecified()));
    function!(env, IP => "isLoopback"() |given| CelBool::from(ip(&given)?.is_loopback()));
    function!(env, IP => "isLinkLocalMulticast"() |given| CelBool::from(match ip(&given)? {
        IpAddr::V4(ip) => matches!(ip.octets(), [224, 0, 0, _]),
        IpAddr::V6(ip) => ip.segments().first().is_some_and(|first| first & 0xff0f == 0xff02),
    }));
    function!(env, IP => "isLinkLocalUnicast"() |given| CelBool::from(link_local(ip(&given)?)));
    function!(env, IP => "isGlobalUnicast"() |given| {
        let ip = ip(&given)?;
        let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
        let special = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast();
        CelBool::from(!broadcast && !special && !link_local(ip))
    });
    function!(env, "cidr"(STRING_TYPE) | given | CidrVal(parsed(&given, 0)?));
    function!(env, "isCIDR"(STRING_TYPE) | given | CelBool::from(parsed(&given, 0).is_ok()));
    function!(env, CIDR => "ip"() |given| IpVal(range(&given, 0)?.address));
    function!(env, CIDR => "masked"() |given| CidrVal(range(&given, 0)?.masked()));
    function!(env, CIDR => "prefixLength"() |given| CelInt::from(i64::from(range(&given, 0)?.bits)));
    function!(env, CIDR => "containsIP"(IP) |given| {
        CelBool::from(range(&given, 0)?.contains(given.typed::<IpVal>(1)?.0))
    });
    function!(env, CIDR => "containsIP"(STRING_TYPE) |given| {
        CelBool::from(range(&given, 0)?.contains(address(&given, 1)?))
    });
    function!(env, CIDR => "containsCIDR"(CIDR) |given| within(range(&given, 0)?, range(&given, 1)?));
    function!(env, CIDR => "containsCIDR"(STRING_TYPE) |given| {
        within(range(&given, 0)?, parsed(&given, 1)?)
    });
    function!(env, "string"(IP) | given | CelString::from(ip(&given)?.to_string()));
    function!(
        env,
        "string"(CIDR) | given | {
            let range = range(&given, 0)?;
            CelString::from(format!("{}/{}", range.address, range.bits))
        }
    );
    Ok(())
}

fn within(range: Cidr, other: Cidr) -> CelBool {
    (other.bits >= range.bits && range.contains(other.masked().address)).into()
}

fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn ip(given: &Arguments<'_, '_, '_>) -> Result<IpAddr, ExecutionError> {
    given.typed::<IpVal>(0).map(|ip| ip.0)
}

fn range(given: &Arguments<'_, '_, '_>, place: usize) -> Result<Cidr, ExecutionError> {
    given.typed::<CidrVal>(place).map(|range| range.0)
}

/// Parses an address. Zones and IPv4-mapped IPv6 addresses are errors.
fn address(given: &Arguments<'_, '_, '_>, place: usize) -> Result<IpAddr, ExecutionError> {
    let text = given.text(place)?;
    let address: IpAddr = text.parse().map_err(|why| given.failed(format!("{text:?}: {why}")))?;
    match address {
        IpAddr::V6(inner) if inner.to_ipv4_mapped().is_some() => {
            Err(given.failed(format!("{text:?}: IPv4-mapped IPv6 address is not allowed")))
        }
        address => Ok(address),
    }
}

fn parsed(given: &Arguments<'_, '_, '_>, place: usize) -> Result<Cidr, ExecutionError> {
    let text = given.text(place)?;
    Cidr::parse(text).ok_or_else(|| given.failed(format!("{text:?} is not a CIDR")))
}
