//! Explanations in words, for Events, conditions and the command.

use std::fmt::{self, Display, Formatter};

use dragoman_objects::Name;

use super::{Combination, Detail, Explanation, OfRequest, Reason};
use crate::cause::Cause;
use crate::search::Blocked;

/// The number of claims that are named in one sentence.
const MOST_NAMED: usize = 3;

/// One line for each request that has too few devices, and below it one for each reason.
impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.elsewhere.is_empty() {
            return writeln!(f, "the node cannot use what is allocated to {}", Claims(self.elsewhere.iter()));
        }
        if let Some(combination) = &self.combination {
            return writeln!(f, "{combination}");
        }
        self.requests
            .iter()
            .filter(|request| !request.is_enough())
            .try_for_each(|request| write!(f, "{request}"))
    }
}

impl Display for OfRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { claim, request, wanted, suit, .. } = self;
        let devices = if *wanted == 1 { "device" } else { "devices" };
        writeln!(f, "request {request} of claim {claim} wants {wanted} {devices}, {suit} suitable")?;
        let all: usize = self.pools.iter().map(|pool| pool.devices).sum();
        if all == 0 {
            return writeln!(f, "  no driver publishes devices for the node");
        }
        let told = |reason: &&Reason| !matches!(reason.cause, Cause::TooFew | Cause::Combination);
        self.reasons.iter().filter(told).try_for_each(|reason| {
            let of = if reason.devices == all { "all ".to_owned() } else { String::new() };
            let devices = if reason.devices == 1 { "device" } else { "devices" };
            writeln!(f, "  {of}{} {devices}: {reason}", reason.devices)
        })
    }
}

impl Display for Combination {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { claim, request, blocked } = self;
        write!(
            f,
            "each request alone finds devices, but not all together: request {request} of claim {claim}: {blocked}"
        )
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(Detail::Held { claims }) if self.cause == Cause::InFlight => {
                write!(f, "just promised to {}", Claims(claims.iter()))
            }
            Some(Detail::Held { claims }) => write!(f, "held by {}", Claims(claims.iter())),
            Some(Detail::Selector { device_class, index, expression }) => {
                match device_class {
                    Some(class) => write!(f, "not of class {class}: its selector {index} does not hold: ")?,
                    None => write!(f, "selector {index} does not hold: ")?,
                }
                f.write_str(expression)
            }
            Some(Detail::Taint { taint, rule }) => {
                write!(f, "taint {taint} is not tolerated")?;
                rule.as_ref().map_or(Ok(()), |rule| write!(f, " (DeviceTaintRule {rule})"))
            }
            Some(Detail::Attribute { constraint, attribute, is_known }) => {
                let devices =
                    if *is_known { "these devices do not have" } else { "no device of the node has" };
                write!(f, "constraint {constraint}: {devices} the attribute {attribute}")
            }
            Some(Detail::Blocked(blocked)) => write!(f, "{blocked}"),
            Some(Detail::Unusable { why }) => f.write_str(why),
            None => f.write_str(self.cause.in_words()),
        }
    }
}

impl Display for Blocked {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constraint { index, attribute } => {
                write!(f, "constraint {index}: no value of attribute {attribute} that the constraint allows")
            }
            Self::Counters { counter_set, counter } => {
                write!(f, "too little left of counter {counter} in counter set {counter_set}")
            }
            Self::Uncounted { why } => {
                write!(f, "what is left of the counters of its pool is not known: {why}")
            }
            Self::CompatibilityGroup { counter_set } => {
                write!(f, "its compatibility groups do not go with those in use in counter set {counter_set}")
            }
            Self::Capacity { name, wanted: _, left: None } => write!(f, "no capacity {name}"),
            Self::Capacity { name, wanted: Some(wanted), left: Some(left) } => {
                write!(f, "capacity {name}: {wanted} wanted, at most {left} left")
            }
            Self::Capacity { name, wanted: None, .. } => {
                write!(f, "capacity {name}: its request policy does not give the amount that is asked for")
            }
            Self::Alignment { attribute } => {
                write!(f, "no value of attribute {attribute} that all devices of the Pod share")
            }
            Self::Devices => f.write_str("other requests have all suitable devices"),
            Self::ClaimSize => f.write_str("the claim would have more than 32 devices"),
        }
    }
}

impl Cause {
    /// Returns the cause in words, where no detail says more.
    fn in_words(self) -> &'static str {
        match self {
            Self::PoolIncomplete => "slices of the pool are missing",
            Self::PoolInvalid => "the pool contradicts itself",
            Self::Taken => "held by a claim",
            Self::InFlight => "just promised to a claim",
            Self::TakenHere => "another request of the Pod has it",
            Self::Unreadable => "it cannot be read",
            Self::BindingConditions => "it has binding conditions, and the feature gate is off",
            Self::NotOfClass => "not of the class",
            Self::Selector => "a selector does not hold",
            Self::OtherNode => "the node has no access to it",
            Self::Capacity => "its capacity does not suffice",
            Self::DedicatedOrShared => "a share from the time when it was shared is still allocated",
            Self::NodeOperation => "the node does not support skipNodeOperations",
            Self::CompatibilityGroup => "its compatibility groups do not go with those in use",
            Self::Counters => "the counters of its pool do not suffice",
            Self::Tainted => "a taint is not tolerated",
            Self::Constraint => "a constraint excludes it",
            Self::Alignment => "it is apart from the other devices of the Pod",
            Self::Failed => "a selector or an amount cannot be evaluated for it",
            Self::Unexamined => "not looked at: its selectors take long",
            Self::TooFew | Self::Combination => "suitable",
        }
    }
}

/// `claim ns/a`, or several claims of which the first are named.
struct Claims<I>(I);

impl<'a, I: Iterator<Item = &'a Name> + ExactSizeIterator + Clone> Display for Claims<I> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        let named: Vec<&str> = self.0.clone().take(MOST_NAMED).map(|name| &**name).collect();
        let more = count.saturating_sub(named.len());
        write!(f, "{} {}", if count == 1 { "claim" } else { "claims" }, named.join(", "))?;
        if more == 0 { Ok(()) } else { write!(f, " and {more} more") }
    }
}
