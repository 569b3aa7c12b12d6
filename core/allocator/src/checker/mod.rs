//! An independent judge of allocations. It shares with the search the input types (with their
//! methods, for example `tolerates`), quantities, the arithmetic of capacities and the evaluation
//! of CEL, and nothing else. It examines everything on each call, so it is slow and simple
//! (docs/allocator.md 7).

mod ask;
mod brute_force;
mod expected;
mod held;
mod pools;
mod rule;
mod together;

pub use ask::Expressions;
pub use brute_force::{Choice, Tried};
pub use rule::{Broken, Rule};

use dragoman_objects::{Allocation, DeviceId, DeviceResult, Name, Slice};

use self::ask::{Alone, Ask, asks};
use self::brute_force::Counting;
use self::held::Held;
use self::pools::{NodePools, PoolId, Usable};
use self::together::Given;
use crate::gates::Gates;
use crate::input::{Claim, Cluster, Node};

/// A node, and the claims that were allocated together on it.
pub struct Checker<'a> {
    cluster: &'a Cluster,
    node: &'a Node,
    gates: Gates,
    expressions: &'a Expressions,
    wanted: Vec<&'a Claim>,
    /// Whether the claims that were allocated before can be used on the node.
    reachable: bool,
    /// By request: its alternatives.
    asks: Vec<Vec<Ask<'a>>>,
    pools: NodePools<'a>,
    /// All devices that the node can use, in order.
    devices: Vec<Usable<'a>>,
    held: Held,
}

/// An input that cannot be checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotCheck {
    /// The node does not exist.
    #[error("there is no node {0:?}")]
    NoNode(Name),
    /// The claim does not exist.
    #[error("there is no claim with uid {0:?}")]
    NoClaim(Name),
    /// A slice has an invalid node selector. Nothing can be allocated then.
    #[error("node selector of a slice: {0}")]
    BadSelector(#[from] dragoman_objects::BadSelector),
}

impl<'a> Checker<'a> {
    /// Prepares a check of the Pod's claims with these uids, in the Pod's order. The cluster is
    /// that before the allocation. The claims that have no allocation in it are checked.
    ///
    /// # Errors
    /// The node or a claim does not exist, or a node selector is invalid.
    pub fn new(
        cluster: &'a Cluster,
        node: &str,
        claims: &[Name],
        gates: Gates,
        expressions: &'a Expressions,
    ) -> Result<Self, CannotCheck> {
        let found = cluster.nodes.iter().find(|known| *known.name == *node);
        let node = found.ok_or_else(|| CannotCheck::NoNode(node.into()))?;
        let claim = |uid: &Name| {
            let found = cluster.claims.iter().find(|claim| claim.uid == *uid);
            found.ok_or_else(|| CannotCheck::NoClaim(uid.clone()))
        };
        let claims: Vec<&Claim> = claims.iter().map(claim).collect::<Result<_, _>>()?;
        let (fixed, wanted): (Vec<_>, Vec<_>) =
            claims.into_iter().partition(|claim| claim.allocation.is_some());
        let selectors = fixed.iter().filter_map(|claim| claim.allocation.as_ref()?.node_selector.as_ref());
        let reachable =
            selectors.into_iter().all(|selector| selector.matches(&node.name, &node.labels) == Ok(true));
        let pools = pools::pools(cluster, node, gates)?;
        Ok(Self {
            cluster,
            node,
            gates,
            expressions,
            asks: asks(cluster, &wanted),
            wanted,
            reachable,
            devices: pools::usable(&pools),
            pools,
            held: Held::new(cluster, gates),
        })
    }

    /// Returns every rule that the allocations break; empty if they are correct. Whether another
    /// solution comes first is examined only as far as `limit` tried devices allow.
    pub fn check(&self, allocations: &[(Name, Allocation)], limit: u64) -> Vec<Broken> {
        let mut broken = Vec::new();
        if allocations.iter().map(|(uid, _)| uid).ne(self.wanted.iter().map(|claim| &claim.uid)) {
            let claim = allocations.first().map(|(uid, _)| uid.clone()).unwrap_or_default();
            let why = "allocations are not those of the claims, in order".to_owned();
            broken.push(Broken { rule: Rule::Claims, claim, request: Name::default(), why });
            return broken;
        }
        if !self.reachable {
            let why = "a claim that was allocated before cannot be used here".to_owned();
            let (claim, request) = (Name::default(), Name::default());
            broken.push(Broken { rule: Rule::Node, claim, request, why });
        }
        let mut given: Vec<Given<'_, '_>> = Vec::new();
        for (number, (_, allocation)) in allocations.iter().enumerate() {
            given.extend(self.of_claim(number, allocation, &mut broken));
        }
        let results: usize = allocations.iter().map(|(_, of)| of.devices.results.len()).sum();
        if given.len() < results {
            // A result without a device: the rules about combinations do not apply.
            return broken;
        }
        for (rule, number) in together::broken(self, &given) {
            if let Some(one) = given.get(number) {
                broken.push(self.broken(rule, one.ask, format!("device {}", one.usable.device.name)));
            }
        }
        self.share_ids(allocations, &mut broken);
        if broken.is_empty()
            && let Some(rule) = brute_force::is_first(self, &given, limit)
        {
            let why = "another solution comes before it".to_owned();
            let claim = self.wanted.first().map(|claim| claim.uid.clone()).unwrap_or_default();
            broken.push(Broken { rule, claim, request: Name::default(), why });
        }
        broken
    }

    /// Returns the first solution that `accept` takes, by trying everything in order. The result is
    /// [`Tried::TooMuch`] if that takes more than `limit` devices.
    pub fn first(&self, limit: u64, accept: &dyn Fn(&[Choice]) -> bool) -> Tried {
        self.try_in_order(limit, Counting::Off, accept)
    }

    /// Returns the first solution as [`Checker::first`] does, but counts first: requests that want
    /// more devices than exist are not tried. That decides many clusters that are too large to be
    /// tried.
    pub fn first_by_counting(&self, limit: u64) -> Tried {
        self.try_in_order(limit, Counting::On, &|_| true)
    }

    fn try_in_order(&self, limit: u64, counting: Counting, accept: &dyn Fn(&[Choice]) -> bool) -> Tried {
        if self.reachable { brute_force::first(self, limit, counting, accept) } else { Tried::None }
    }

    fn broken(&self, rule: Rule, ask: &Ask<'_>, why: String) -> Broken {
        let claim = self.wanted.get(ask.claim).map(|claim| claim.uid.clone()).unwrap_or_default();
        Broken { rule, claim, request: ask.name.clone(), why }
    }

    /// Checks the rules for one claim, and returns its devices.
    fn of_claim(
        &self,
        number: usize,
        allocation: &Allocation,
        broken: &mut Vec<Broken>,
    ) -> Vec<Given<'a, '_>> {
        let mut given: Vec<Given<'a, '_>> = Vec::new();
        for result in &allocation.devices.results {
            match self.given(number, result) {
                Err(found) => broken.push(found),
                Ok(one) => {
                    let rules = expected::of_result(self, &one, result);
                    let rules = rules.into_iter().chain(self.alone().broken(one.ask, &one.usable));
                    let why = format!("device {}", result.device);
                    broken.extend(rules.map(|rule| self.broken(rule, one.ask, why.clone())));
                    given.push(one);
                }
            }
        }
        if given.len() < allocation.devices.results.len() {
            return given;
        }
        let in_order = |pair: &[Given<'_, '_>]| match pair {
            [a, b] => {
                (a.ask.request, a.place)
                    < (b.ask.request, if a.ask.request == b.ask.request { b.place } else { usize::MAX })
            }
            _ => true,
        };
        if let Some([_, late]) = given.windows(2).find(|pair| !in_order(pair)) {
            broken.push(self.broken(Rule::Order, late.ask, format!("device {}", late.usable.device.name)));
        }
        let chosen = self.chosen(number, &given, broken);
        if let Some(claim) = self.wanted.get(number) {
            let about_claim = |rule: Rule, why: &str| Broken {
                rule,
                claim: claim.uid.clone(),
                request: Name::default(),
                why: why.to_owned(),
            };
            if expected::configuration(claim, &chosen) != allocation.devices.config {
                broken.push(about_claim(Rule::Configuration, "it is not that of classes and claim"));
            }
            if !expected::is_where_devices_are(self, &given, allocation) {
                broken.push(about_claim(Rule::NodeSelector, "it is not where the devices can be used"));
            }
        }
        given
    }

    /// Returns the chosen alternative of every request, and checks the number of its devices.
    fn chosen(&self, number: usize, given: &[Given<'a, '_>], broken: &mut Vec<Broken>) -> Vec<&Ask<'a>> {
        let mut chosen = Vec::new();
        let of_claim = self.asks.iter().filter(|subs| subs.first().is_some_and(|ask| ask.claim == number));
        for subs in of_claim {
            let Some(default) = subs.first() else { continue };
            let mut has: Vec<&Given<'_, '_>> =
                given.iter().filter(|one| one.ask.request == default.request).collect();
            let ask = has.first().map_or(default, |one| one.ask);
            let ask = subs.iter().find(|known| known.name == ask.name).unwrap_or(default);
            if has.iter().any(|one| one.ask.name != ask.name) {
                broken.push(self.broken(Rule::Alternative, ask, "more than one is chosen".to_owned()));
                has.retain(|one| one.ask.name == ask.name);
            }
            let all = self.devices.iter().enumerate();
            let all = all.filter(|(_, usable)| ask.wants_all() && self.alone().about(ask, usable).is_none());
            let all: Vec<usize> = all.map(|(place, _)| place).collect();
            let complete = if ask.wants_all() {
                !all.is_empty() && has.iter().map(|one| one.place).eq(all) && self.no_trouble()
            } else {
                usize::try_from(ask.spec.count) == Ok(has.len())
            };
            if !complete {
                broken.push(self.broken(Rule::Count, ask, format!("it has {} devices", has.len())));
            }
            chosen.push(ask);
        }
        chosen
    }

    fn no_trouble(&self) -> bool {
        self.pools.values().all(|pool| pool.trouble.is_none())
    }

    /// Returns the request and the device of a result.
    fn given(&self, number: usize, result: &DeviceResult) -> Result<Given<'a, '_>, Broken> {
        let claim = self.wanted.get(number).map(|claim| claim.uid.clone()).unwrap_or_default();
        let not = |rule: Rule, why: String| Broken { rule, claim, request: result.request.clone(), why };
        let mut asks = self.asks.iter().flatten().filter(|ask| ask.claim == number);
        let Some(ask) = asks.find(|ask| ask.name == result.request) else {
            return Err(not(Rule::Request, "it is not asked for".to_owned()));
        };
        let is_it = |usable: &Usable<'_>| usable.id() == result.id();
        let Some((place, usable)) = self.devices.iter().enumerate().find(|(_, usable)| is_it(usable)) else {
            let pool = self.pools.get(&(result.driver.clone(), result.pool.clone()));
            let trouble = pool.and_then(|pool| pool.trouble.clone());
            let why = trouble.unwrap_or_else(|| "no pool of the node has it".to_owned());
            return Err(not(Rule::Pool, format!("device {}: {why}", result.device)));
        };
        Ok(Given { ask, place, usable: *usable })
    }

    fn share_ids(&self, allocations: &[(Name, Allocation)], broken: &mut Vec<Broken>) {
        let held = self.cluster.claims.iter().filter_map(|claim| claim.allocation.as_ref());
        let held = held.flat_map(|allocation| &allocation.devices.results);
        let mut known: Vec<&Name> = held.filter_map(|result| result.share_id.as_ref()).collect();
        for (claim, allocation) in allocations {
            for result in &allocation.devices.results {
                let Some(id) = &result.share_id else { continue };
                if known.contains(&id) {
                    let (claim, request) = (claim.clone(), result.request.clone());
                    broken.push(Broken {
                        rule: Rule::ShareId,
                        claim,
                        request,
                        why: format!("{id} comes twice"),
                    });
                }
                known.push(id);
            }
        }
    }

    fn alone(&self) -> Alone<'_> {
        Alone {
            cluster: self.cluster,
            node: self.node,
            gates: self.gates,
            held: &self.held,
            expressions: self.expressions,
        }
    }

    /// Whether the device is shareable.
    fn shares(&self, usable: &Usable<'_>) -> bool {
        self.gates.consumable_capacity && usable.device.allow_multiple_allocations
    }

    /// Returns all slices of a pool that the node knows.
    fn known(&self, id: &PoolId) -> Vec<&'a Slice> {
        self.pools.get(id).map(|pool| pool.known.clone()).unwrap_or_default()
    }

    fn choice(&self, given: &Given<'_, '_>) -> Choice {
        let DeviceId { driver, pool, device } = given.usable.id();
        let claim = self.wanted.get(given.ask.claim).map(|claim| claim.uid.clone()).unwrap_or_default();
        Choice { claim, request: given.ask.name.clone(), driver, pool, device }
    }
}
