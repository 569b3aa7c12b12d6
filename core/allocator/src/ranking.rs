//! The order of nodes for a Pod. The live allocator tries nodes in this order before it knows their devices;
//! `dragoman allocate --rank` compares the nodes that have a solution.

use std::cmp::Reverse;

use dragoman_quantity::Decimal;

/// The criterion after the preferences of the Pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// None: the order of the input.
    #[default]
    First,
    /// The fullest node first, so that others stay free for Pods that need many devices.
    Pack,
    /// The emptiest node first.
    Spread,
}

/// A node as a Pod sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// [`crate::Solution::preference`], where there is a solution.
    pub preference: u64,
    /// The taints with effect `PreferNoSchedule` that the Pod does not tolerate.
    pub repels: usize,
    /// The weights of the preferred node affinity terms that select the node.
    pub preferred: i64,
    /// The free devices among those that the Pod asks for.
    pub free: i64,
    /// The share of cpu and memory that is taken, in thousandths; zero where there is no ledger.
    pub taken: i64,
}

/// The place of a node for a Pod; the least comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    preference: Reverse<u64>,
    repels: usize,
    preferred: Reverse<i64>,
    room: [i64; 2],
}

impl Policy {
    /// The place of a node: by the alternatives that it has for the requests (the sum of 8 − the index of every chosen one, as
    /// kube-scheduler scores), then by what the Pod prefers, then by free devices, then by the ledger.
    pub fn rank(self, node: &Standing) -> Rank {
        let Standing { preference, repels, preferred, free, taken } = *node;
        let room = match self {
            Self::First => [0, 0],
            Self::Pack => [free, -taken],
            Self::Spread => [-free, taken],
        };
        Rank { preference: Reverse(preference), repels, preferred: Reverse(preferred), room }
    }
}

/// A used amount and the total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) used: Decimal,
    pub(crate) of: Decimal,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(used: &str, of: &str) -> i128 {
        let amount = |text: &str| text.parse::<dragoman_quantity::Quantity>().unwrap().amount;
        Part { used: amount(used), of: amount(of) }.ratio()
    }

    #[test]
    fn a_share_is_rounded_down_at_any_size() {
        assert_eq!(ratio("3", "4"), 750_000);
        assert_eq!(ratio("1", "3"), 333_333);
        assert_eq!(ratio("0", "0"), 0);
        assert_eq!(ratio("9", "4"), ONE);
        assert_eq!(ratio("1n", "1e30"), 0);
        assert_eq!(ratio("1e36", "3e36"), 333_333);
    }

    fn first(a: Standing, b: Standing) -> [char; 3] {
        let [first, pack, spread] = [Policy::First, Policy::Pack, Policy::Spread].map(|policy| match policy
            .rank(&a)
            .cmp(&policy.rank(&b))
        {
            std::cmp::Ordering::Less => 'a',
            std::cmp::Ordering::Equal => '=',
            std::cmp::Ordering::Greater => 'b',
        });
        [first, pack, spread]
    }

    #[test]
    fn preferences_come_before_room() {
        let full = Standing { free: 0, ..Standing::default() };
        let better = Standing { preference: 8, free: 4, ..full };
        assert_eq!(first(full, better), ['b'; 3], "a first alternative");
        assert_eq!(first(full, Standing { preferred: 1, free: 4, ..full }), ['b'; 3]);
        let repels = Standing { repels: 1, preferred: 100, ..full };
        assert_eq!(first(repels, Standing { free: 4, ..full }), ['b'; 3]);
    }

    #[test]
    fn policies_differ_among_equals() {
        let of = |free, taken| Standing { free, taken, ..Standing::default() };
        assert_eq!(first(of(1, 0), of(3, 0)), ['=', 'a', 'b']);
        assert_eq!(first(of(1, 0), of(3, 900)), ['=', 'a', 'b'], "devices first");
        assert_eq!(first(of(2, 700), of(2, 100)), ['=', 'a', 'b'], "then cpu and memory");
        assert_eq!(first(of(2, 100), of(2, 100)), ['='; 3]);
    }
}
