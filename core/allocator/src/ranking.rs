//! The order of nodes that have a solution.

use std::cmp::Reverse;

use dragoman_objects::Name;
use dragoman_quantity::Decimal;

/// The criterion after preference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// The order of the input.
    #[default]
    First,
    /// The fullest node first.
    Pack,
    /// The emptiest node first.
    Spread,
}

/// A used amount and the total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// The used amount.
    pub used: Decimal,
    /// The total.
    pub of: Decimal,
}

/// A node with a solution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranked {
    /// The name of the node.
    pub node: Name,
    /// [`crate::Solution::preference`].
    pub preference: u64,
    /// [`crate::Solution::devices`]: the used devices among the eligible ones.
    pub devices: Part,
    /// For each resource of the node, the requests of Pods and claims with the Pod on it, and the
    /// allocatable amount. Empty if no ledger exists.
    pub ledger: Vec<Part>,
}

/// One, in the units of [`Part::ratio`].
const ONE: i128 = 1_000_000;

impl Part {
    /// Returns the share in millionths, rounded down. It is 0 if the total is not positive or the
    /// used amount is negative, and at most [`ONE`].
    pub(crate) fn ratio(self) -> i128 {
        if self.of.is_zero() || self.of.is_negative() || self.used.is_negative() {
            return 0;
        }
        // Both amounts in the smaller of their units, so that the division is exact on integers.
        let unit = self.used.exponent().min(self.of.exponent());
        match (self.used.rounded_up(unit), self.of.rounded_up(unit)) {
            (Ok(used), Ok(of)) if used < of => {
                used.checked_mul(ONE).map_or_else(|| used / (of / ONE).max(1), |used| used / of)
            }
            // No common unit within 38 digits: the share rounds down to zero.
            (Err(_), _) | (_, Err(_)) if self.used < self.of => 0,
            _ => ONE,
        }
    }
}

impl Ranked {
    /// Returns the fullness of the node with the Pod on it, in millionths. It is the mean of the
    /// share of devices and the mean share of the ledger's resources; without a ledger, the share
    /// of devices alone.
    pub fn fullness(&self) -> i128 {
        let devices = self.devices.ratio();
        let count = i128::try_from(self.ledger.len()).unwrap_or(i128::MAX);
        if count == 0 {
            return devices;
        }
        let ledger = self.ledger.iter().map(|part| part.ratio()).sum::<i128>() / count;
        i128::midpoint(devices, ledger)
    }
}

/// Sorts nodes, the best first: by preference (the sum of 8 − the index of every chosen
/// sub-request, as kube-scheduler scores), then by the policy, then by name. With
/// [`Policy::First`], nodes of equal preference keep the order of the input.
pub fn rank(nodes: &mut [Ranked], policy: Policy) {
    match policy {
        Policy::First => nodes.sort_by_key(|node| Reverse(node.preference)),
        Policy::Pack => nodes.sort_by(|a, b| {
            let key = |node: &Ranked| (Reverse(node.preference), Reverse(node.fullness()));
            key(a).cmp(&key(b)).then_with(|| a.node.cmp(&b.node))
        }),
        Policy::Spread => nodes.sort_by(|a, b| {
            let key = |node: &Ranked| (Reverse(node.preference), node.fullness());
            key(a).cmp(&key(b)).then_with(|| a.node.cmp(&b.node))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(used: &str, of: &str) -> Part {
        let amount = |text: &str| text.parse::<dragoman_quantity::Quantity>().unwrap().amount;
        Part { used: amount(used), of: amount(of) }
    }

    fn node(name: &str, preference: u64, devices: Part, ledger: &[Part]) -> Ranked {
        Ranked { node: name.into(), preference, devices, ledger: ledger.to_vec() }
    }

    fn ranked(nodes: &[Ranked], policy: Policy) -> Vec<String> {
        let mut nodes = nodes.to_vec();
        rank(&mut nodes, policy);
        nodes.iter().map(|node| node.node.to_string()).collect()
    }

    #[test]
    fn fullness_is_the_mean_of_devices_and_ledger() {
        assert_eq!(node("n", 0, part("3", "4"), &[]).fullness(), 750_000);
        // (3/4 + 1/2) / 2
        assert_eq!(node("n", 0, part("3", "4"), &[part("2", "4")]).fullness(), 625_000);
        // (3/4 + (1/2 + 1/4) / 2) / 2
        let ledger = [part("2", "4"), part("256e6", "1024e6")];
        assert_eq!(node("n", 0, part("3", "4"), &ledger).fullness(), 562_500);
        assert_eq!(node("n", 0, part("1", "3"), &[]).fullness(), 333_333);
        assert_eq!(node("n", 0, part("0", "0"), &[part("9", "4")]).fullness(), 500_000);
        assert_eq!(node("n", 0, part("1n", "1e30"), &[]).fullness(), 0);
        let huge = part("1e36", "3e36");
        assert_eq!(node("n", 0, huge, &[]).fullness(), 333_333);
    }

    #[test]
    fn preference_comes_before_everything() {
        let nodes =
            [node("second-choice", 7, part("4", "4"), &[]), node("first-choice", 8, part("1", "4"), &[])];
        for policy in [Policy::First, Policy::Pack] {
            assert_eq!(ranked(&nodes, policy), ["first-choice", "second-choice"]);
        }
    }

    #[test]
    fn policies_differ_among_equals() {
        let nodes = [
            node("half-b", 8, part("2", "4"), &[]),
            node("full", 8, part("4", "4"), &[]),
            node("half-a", 8, part("2", "4"), &[]),
            node("empty", 8, part("1", "4"), &[]),
        ];
        assert_eq!(ranked(&nodes, Policy::First), ["half-b", "full", "half-a", "empty"]);
        assert_eq!(ranked(&nodes, Policy::Pack), ["full", "half-a", "half-b", "empty"]);
        assert_eq!(ranked(&nodes, Policy::Spread), ["empty", "half-a", "half-b", "full"]);
    }
}
