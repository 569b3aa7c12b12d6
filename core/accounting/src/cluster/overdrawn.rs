//! Finds claims that hold more than exists: a device that one claim has to itself and another claim has, too;
//! more shares than a device has capacity for; more partitions than a counter of their pool allows. Two
//! allocators have promised it, or one has made a mistake.
//!
//! Nothing outside of an allocator compares claims: neither the API server nor kube-scheduler, once a claim is allocated.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use dragoman_objects::{DeviceId, Name, own_name};
use dragoman_quantity::{Decimal, Notation, Quantity, QuantityText};

use super::ClusterLedger;
use super::drawn::{Drawn, PoolDevice};
use super::objects::{ClaimKey, claim_key};
use crate::amounts::non_negative;
use crate::claim::allocation::DeviceResult;
use crate::few::Few;

/// A device, its capacity or a counter that claims have beyond what there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdrawn {
    /// The device, or one that draws on the counter.
    pub device: DeviceId,
    /// The thing of which there is too little.
    pub of: Scarce,
    /// The claims that have it, as `namespace/name`. Whether their Pods run does not count.
    pub claims: BTreeSet<ClaimKey>,
}

/// A thing of which there is too little.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scarce {
    /// The device: several claims have it, and one of them has it to itself.
    Device,
    /// A capacity of the device, of which its shares consume more than it has.
    Capacity(Name, Amounts),
    /// A counter of the pool, set and name, on which the devices in use draw more than it has.
    Counter(Name, Name, Amounts),
}

/// Amount that is taken, and amount that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amounts {
    /// Amount that is taken.
    pub taken: Decimal,
    /// Amount that exists.
    pub has: Decimal,
    /// Notation of the amount that exists.
    notation: Notation,
}

impl Display for Overdrawn {
    /// Names no claim: the owner of another one is no business of a tenant.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.what(f)?;
        if self.claims.len() > 1 { f.write_str(": two allocators promised it") } else { Ok(()) }
    }
}

impl Overdrawn {
    fn what(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        match &self.of {
            Scarce::Device => write!(f, "another claim has device {device}, too"),
            Scarce::Capacity(name, amounts) => {
                let [taken, has] = amounts.in_words();
                write!(f, "the shares of device {device} take {taken} of {name}, and it has {has}")
            }
            Scarce::Counter(set, name, amounts) => {
                let [taken, has] = amounts.in_words();
                write!(
                    f,
                    "device {device} and others in use take {taken} of counter {set}/{name}, and there is {has}"
                )
            }
        }
    }
}

impl Amounts {
    /// Returns the amount that is taken and the amount that exists, in words.
    fn in_words(&self) -> [Name; 2] {
        [self.taken, self.has].map(|amount| QuantityText::of(amount, self.notation).0.into())
    }
}

impl ClusterLedger {
    /// Returns the other claims with which a claim may overdraw something: those with one of its devices, and those whose
    /// devices draw on the same counters.
    pub fn rivals(&self, namespace: &str, name: &str) -> BTreeSet<ClaimKey> {
        let own = claim_key(namespace, name);
        let node = self.node_of_claim(&own);
        let mut rivals = BTreeSet::new();
        for device in self.used_by(&own) {
            rivals
                .extend(self.devices.users(&device).filter(|user| self.has_it(user, &device, node)).cloned());
            for other in self.drawn_beside(&device, node).into_iter().flat_map(|drawn| drawn.devices) {
                let users = other.users.into_iter().filter(|user| self.has_it(user, &other.id, node));
                rivals.extend(users.cloned());
            }
        }
        rivals.remove(&own);
        rivals
    }

    /// Returns what a claim overdraws together with the other claims but the `ignored` ones, if it does.
    pub fn overdrawn_by(
        &self,
        namespace: &str,
        name: &str,
        ignored: &BTreeSet<ClaimKey>,
    ) -> Option<Overdrawn> {
        let own = claim_key(namespace, name);
        let node = self.node_of_claim(&own);
        let counts = |claim: &ClaimKey| !ignored.contains(claim);
        let devices = self.used_by(&own);
        let device = devices.iter().find_map(|device| self.overdrawn_device(device, node, &counts));
        device.or_else(|| {
            let drawn = |device: &DeviceId| Some((device.clone(), self.drawn_beside(device, node)?));
            let mut drawn = devices.iter().filter_map(drawn);
            drawn.find_map(|(device, drawn)| {
                self.overdrawn_counters(drawn, Some(&device), node, &counts).into_iter().next()
            })
        })
    }

    /// Returns everything that is overdrawn: each device, and the first counter of each set.
    pub fn overdrawn(&self) -> Vec<Overdrawn> {
        let shared = self.devices.shared().into_iter();
        let mut all: Vec<Overdrawn> = Vec::new();
        for id in shared {
            let mut nodes: BTreeSet<_> =
                self.devices.users(&id).map(|user| self.node_of_claim(user)).collect();
            if nodes.len() > 1 {
                nodes.remove(&None);
            }
            let mut nodes = nodes.into_iter();
            all.extend(nodes.find_map(|node| self.overdrawn_device(&id, node, &|_| true)));
        }
        for drawn in self.devices.drawn(&|users| self.place_of(users, None)) {
            // Most pools have enough for all their claims.
            if !drawn.overdrawn(None).is_empty() {
                all.extend(self.overdrawn_counters(drawn, None, None, &|_| true));
            }
        }
        all
    }

    /// The node that the allocation of a claim names, if it names one.
    fn node_of_claim(&self, claim: &ClaimKey) -> Option<&str> {
        self.claims.get(claim)?.claim.as_ref()?.node.as_deref()
    }

    /// Whether a claim has the device that claims on a node have. A node that lists a device itself has it alone, and another node may
    /// list one of the same name. A device that no node lists is the same for all.
    fn has_it(&self, claim: &ClaimKey, device: &DeviceId, node: Option<&str>) -> bool {
        let nodes = [node, self.node_of_claim(claim)];
        let [Some(here), Some(there)] = nodes else { return true };
        here == there || nodes.into_iter().flatten().all(|node| !self.devices.is_listed_by(device, node))
    }

    /// The node where claims use a device: this one, if one of them is there; or that of the first one.
    fn place_of<'a>(&'a self, users: &Few<ClaimKey>, node: Option<&'a str>) -> Option<&'a str> {
        let mut nodes = users.iter().filter_map(|user| self.node_of_claim(user));
        if node.is_some_and(|node| nodes.clone().any(|of| of == node)) { node } else { nodes.next() }
    }

    fn drawn_beside<'a>(&'a self, device: &DeviceId, node: Option<&'a str>) -> Option<Drawn<'a>> {
        self.devices.drawn_beside(device, &move |users| self.place_of(users, node))
    }

    /// The devices that a claim uses, each once.
    fn used_by(&self, claim: &ClaimKey) -> BTreeSet<DeviceId> {
        self.results(claim).filter(|result| !result.admin_access).map(DeviceResult::id).collect()
    }

    fn results(&self, claim: &ClaimKey) -> impl Iterator<Item = &DeviceResult> {
        let claim = self.claims.get(claim).and_then(|entry| entry.claim.as_ref());
        claim.into_iter().flat_map(|claim| claim.results.iter().flatten())
    }

    /// Returns the results of a claim for a device, without admin access.
    fn parts(&self, claim: &ClaimKey, device: &DeviceId) -> impl Iterator<Item = &DeviceResult> {
        self.results(claim).filter(move |result| !result.admin_access && result.id() == *device)
    }

    /// `node`: where the claims that count use it.
    fn overdrawn_device(
        &self,
        id: &DeviceId,
        node: Option<&str>,
        counts: &dyn Fn(&ClaimKey) -> bool,
    ) -> Option<Overdrawn> {
        let users = self.devices.users(id).filter(|user| counts(user) && self.has_it(user, id, node));
        let users: Vec<(&ClaimKey, Vec<&DeviceResult>)> =
            users.map(|user| (user, self.parts(user, id).collect::<Vec<_>>())).collect();
        let users = || users.iter().filter(|(_, parts)| !parts.is_empty());
        let is_whole = |parts: &[&DeviceResult]| parts.iter().any(|part| !part.is_share());
        let of = if users().count() > 1 && users().any(|(_, parts)| is_whole(parts)) {
            Scarce::Device
        } else {
            self.overdrawn_capacity(id, node, users().flat_map(|(_, parts)| parts).copied())?
        };
        let claims = users().map(|(user, _)| ClaimKey::clone(user)).collect();
        Some(Overdrawn { device: id.clone(), of, claims })
    }

    /// The first capacity of which the shares of a device take more than it has. What cannot be read is not compared.
    fn overdrawn_capacity<'a>(
        &self,
        id: &DeviceId,
        node: Option<&str>,
        shares: impl Iterator<Item = &'a DeviceResult>,
    ) -> Option<Scarce> {
        let mut taken: BTreeMap<&str, Decimal> = BTreeMap::new();
        for (name, text) in shares.filter_map(|share| share.consumed.as_ref()).flatten() {
            // One that is no amount hides none of the others.
            let Ok(amount) = non_negative(&text.0) else { continue };
            let sum = taken.entry(own_name(&id.driver, name)).or_default();
            *sum = sum.checked_add(amount).unwrap_or(*sum);
        }
        let listed = &self.devices.listed(id, node)?.device.capacity;
        let has = |name: &str| {
            let (_, text) = listed.iter().find(|(known, _)| own_name(&id.driver, known) == name)?;
            text.0.parse::<Quantity>().ok()
        };
        taken.into_iter().find_map(|(name, taken)| {
            let Quantity { amount: has, notation } = has(name)?;
            (taken > has).then(|| Scarce::Capacity(name.into(), Amounts { taken, has, notation }))
        })
    }

    /// The counters that have less than the devices in use take; with `only` those that this device draws on.
    fn overdrawn_counters(
        &self,
        drawn: Drawn<'_>,
        only: Option<&DeviceId>,
        node: Option<&str>,
        counts: &dyn Fn(&ClaimKey) -> bool,
    ) -> Vec<Overdrawn> {
        let has_part = |user: &ClaimKey, id: &DeviceId| {
            counts(user) && self.has_it(user, id, node) && self.parts(user, id).next().is_some()
        };
        let used = drawn.only(|device| device.users.into_iter().any(|user| has_part(user, &device.id)));
        let overdrawn = used.overdrawn(only).into_iter().map(|(device, counter, taken, has)| {
            let of_set = |of: &&PoolDevice<'_>| of.counters.iter().any(|of| of.set == counter.set);
            let same = used.devices.iter().filter(of_set);
            let claims = same.flat_map(|of| of.users.into_iter().filter(|user| has_part(user, &of.id)));
            let amounts = Amounts { taken, has, notation: Notation::DecimalSi };
            Overdrawn {
                device: device.id.clone(),
                of: Scarce::Counter(counter.set.clone(), counter.name.clone(), amounts),
                claims: claims.map(Arc::clone).collect(),
            }
        });
        overdrawn.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Claim, Counter, Rules, Slice, SliceDevice};
    use super::*;
    use crate::claim::allocation::Device;

    fn counter(amount: i64) -> Counter {
        let amount = Decimal::new(amount.into(), 0).expect("a number");
        Counter { set: "gpu".into(), name: "slots".into(), amount }
    }

    fn ledger() -> ClusterLedger {
        let shared = |name: &str, capacity: Option<&str>| SliceDevice {
            name: name.into(),
            allow_multiple_allocations: true,
            device: Device {
                capacity: capacity
                    .map(|of| ("d/memory".into(), QuantityText(of.into())))
                    .into_iter()
                    .collect(),
                ..Device::default()
            },
            ..SliceDevice::default()
        };
        let part = |name: &str| SliceDevice {
            name: name.into(),
            counters: vec![counter(4)].into(),
            ..SliceDevice::default()
        };
        let slice = |name: &str, devices, counters| Slice {
            name: name.into(),
            driver: "d".into(),
            pool: "p".into(),
            generation: 1,
            node: Some("n".into()),
            devices,
            counters,
        };
        let mut ledger = ClusterLedger::new(Rules::default());
        let devices =
            vec![shared("memory", Some("10Gi")), shared("free", None), part("0"), part("1"), part("2")];
        ledger.put_slice(slice("devices", devices, Vec::new()));
        ledger.put_slice(slice("counters", Vec::new(), vec![counter(10)]));
        ledger
    }

    fn device(name: &str) -> DeviceResult {
        DeviceResult { driver: "d".into(), pool: "p".into(), device: name.into(), ..DeviceResult::default() }
    }

    fn share(name: &str, consumed: &[(&str, &str)]) -> DeviceResult {
        let consumed: BTreeMap<_, _> =
            consumed.iter().map(|(name, of)| ((*name).into(), QuantityText((*of).into()))).collect();
        let consumed = (!consumed.is_empty()).then_some(consumed);
        DeviceResult { consumed, shared: true, ..device(name) }
    }

    fn put(ledger: &mut ClusterLedger, name: &str, result: DeviceResult) {
        ledger.put_claim(Claim {
            namespace: "ns".into(),
            name: name.into(),
            uid: name.into(),
            results: Some(vec![result]),
            ..Claim::default()
        });
    }

    /// Returns what the last of these claims overdraws, in words, and the number of things that are overdrawn
    /// in the cluster.
    fn said(results: &[DeviceResult]) -> (Option<String>, usize) {
        let mut ledger = ledger();
        for (number, result) in results.iter().enumerate() {
            put(&mut ledger, &number.to_string(), result.clone());
        }
        let last = (results.len() - 1).to_string();
        let found = ledger.overdrawn_by("ns", &last, &BTreeSet::new());
        (found.map(|of| of.to_string()), ledger.overdrawn().len())
    }

    #[test]
    fn a_device_has_one_claim_or_shares() {
        let twice = Some("another claim has device d/p/0, too: two allocators promised it".to_owned());
        assert_eq!(said(&[device("0"), device("0")]), (twice, 1));
        let admin = DeviceResult { admin_access: true, ..device("0") };
        assert_eq!(said(&[device("0"), admin.clone()]), (None, 0));
        assert_eq!(said(&[admin, device("0")]), (None, 0));
        let beside = Some("another claim has device d/p/memory, too: two allocators promised it".to_owned());
        assert_eq!(said(&[share("memory", &[("memory", "1")]), device("memory")]), (beside, 1));
        assert_eq!(
            said(&[share("free", &[]), share("free", &[])]),
            (None, 0),
            "it has no capacity to be taken"
        );
    }

    /// The kubelet of another node lists the same devices, in any generation.
    #[test]
    fn what_another_node_says_turns_no_comparison_off() {
        let lie = |devices| Slice {
            name: "lie".into(),
            driver: "d".into(),
            pool: "p".into(),
            generation: 999,
            node: Some("liar".into()),
            devices,
            counters: Vec::new(),
        };
        let lies = || {
            ["memory", "0", "1", "2"].map(|name| SliceDevice { name: name.into(), ..SliceDevice::default() })
        };
        let of_node = |name: &str, result: DeviceResult| Claim {
            namespace: "ns".into(),
            name: name.into(),
            node: Some("n".into()),
            results: Some(vec![result]),
            ..Claim::default()
        };
        let shares = [share("memory", &[("memory", "6Gi")]), share("memory", &[("memory", "6Gi")])];
        let parts = ["0", "1", "2"].map(device);
        for results in [&shares[..], &parts[..]] {
            let mut ledger = ledger();
            ledger.put_slice(lie(lies().into()));
            for (number, result) in results.iter().enumerate() {
                ledger.put_claim(of_node(&number.to_string(), result.clone()));
            }
            assert_eq!(ledger.overdrawn().len(), 1, "{results:?}");
            assert!(ledger.overdrawn_by("ns", "0", &BTreeSet::new()).is_some(), "{results:?}");
            // A claim on that node is about a device of its own, whatever its name.
            let first =
                Claim { name: "".into(), node: Some("liar".into()), ..of_node("", results[0].clone()) };
            ledger.put_claim(Claim { name: "-first".into(), ..first });
            assert!(ledger.overdrawn_by("ns", "0", &BTreeSet::new()).is_some(), "{results:?}");
            assert!(!ledger.rivals("ns", "0").contains("ns/-first"), "{results:?}");
            assert_eq!(ledger.overdrawn_by("ns", "-first", &BTreeSet::new()), None, "{results:?}");
        }
        let mut ledger = ledger();
        ledger.put_slice(lie(lies().into()));
        assert!(ledger.device("d", "p", "memory", Some("n")).is_some_and(|of| of.allow_multiple_allocations));
        assert_eq!(ledger.device("d", "p", "memory", Some("m")), None);
        assert_eq!(ledger.device("d", "p", "memory", None), None, "two say different things of it");
    }

    /// A claim with a device of a node, too, is confined to that node.
    #[test]
    fn a_device_that_no_node_lists_is_the_same_on_all() {
        let mut ledger = ClusterLedger::new(Rules::default());
        let part =
            SliceDevice { name: "part".into(), counters: vec![counter(6)].into(), ..SliceDevice::default() };
        let whole = SliceDevice { name: "whole".into(), ..SliceDevice::default() };
        let other = SliceDevice { name: "other".into(), ..part.clone() };
        ledger.put_slice(Slice {
            name: "fabric".into(),
            driver: "d".into(),
            pool: "p".into(),
            generation: 1,
            node: None,
            devices: vec![whole, part, other],
            counters: vec![counter(10)],
        });
        let claim = |name: &str, node: &str, result: DeviceResult| Claim {
            namespace: "ns".into(),
            name: name.into(),
            node: Some(node.into()),
            results: Some(vec![result]),
            ..Claim::default()
        };
        for (first, second) in [("whole", "whole"), ("part", "other")] {
            ledger.put_claim(claim("0", "n", device(first)));
            ledger.put_claim(claim("1", "m", device(second)));
            assert!(ledger.rivals("ns", "0").contains("ns/1"), "{second}");
            assert!(ledger.overdrawn_by("ns", "1", &BTreeSet::new()).is_some(), "{second}");
            assert_eq!(ledger.overdrawn().len(), 1, "{second}");
        }
    }

    #[test]
    fn shares_take_what_their_device_has_in_either_spelling() {
        let of = |name, memory| share("memory", &[(name, memory)]);
        assert_eq!(said(&[of("memory", "5Gi"), of("d/memory", "5Gi")]), (None, 0));
        let over = "the shares of device d/p/memory take 11Gi of memory, and it has 10Gi: two allocators promised it";
        assert_eq!(said(&[of("memory", "5Gi"), of("d/memory", "6Gi")]), (Some(over.to_owned()), 1));
        let shares = [of("memory", "-1"), of("memory", "many"), of("memory", "5Gi"), of("memory", "6Gi")];
        assert_eq!(said(&shares), (Some(over.to_owned()), 1), "one that is no amount hides no other");
        let alone = "the shares of device d/p/memory take 12Gi of memory, and it has 10Gi";
        assert_eq!(said(&[of("memory", "12Gi")]), (Some(alone.to_owned()), 1), "one share is too large");
        assert_eq!(
            said(&[of("other", "1Ti"), of("memory", "odd")]),
            (None, 0),
            "what cannot be read is not compared"
        );
    }

    #[test]
    fn partitions_draw_what_their_counter_has() {
        assert_eq!(said(&[device("0"), device("1")]), (None, 0));
        let over = "device d/p/2 and others in use take 12 of counter gpu/slots, and there is 10: two allocators promised it";
        assert_eq!(said(&[device("0"), device("1"), device("2")]), (Some(over.to_owned()), 1));
    }

    #[test]
    fn a_counter_on_which_a_device_does_not_draw_is_not_held_against_it() {
        let mut ledger = ledger();
        let of = |set: &str, amount| Counter { set: set.into(), ..counter(amount) };
        let slice = |name: &str, devices, counters| Slice {
            name: name.into(),
            driver: "d".into(),
            pool: "q".into(),
            generation: 1,
            node: Some("n".into()),
            devices,
            counters,
        };
        let device_of = |name: &str, counters: Vec<Counter>| SliceDevice {
            name: name.into(),
            counters: counters.into(),
            ..SliceDevice::default()
        };
        let devices = vec![
            device_of("one", vec![of("a", 2)]),
            device_of("both", vec![of("a", 2), of("b", 8)]),
            device_of("other", vec![of("a", 2), of("b", 8)]),
        ];
        ledger.put_slice(slice("q", devices, Vec::new()));
        ledger.put_slice(slice("q-counters", Vec::new(), vec![of("a", 10), of("b", 10)]));
        for name in ["one", "both", "other"] {
            put(&mut ledger, name, DeviceResult { pool: "q".into(), ..device(name) });
        }
        let overdrawn = |name| ledger.overdrawn_by("ns", name, &BTreeSet::new()).is_some();
        assert_eq!(["one", "both", "other"].map(overdrawn), [false, true, true]);
        assert_eq!(ledger.overdrawn().len(), 1);
    }

    /// A node can write slices with its name only, of any pool.
    #[test]
    fn what_a_node_says_overdraws_no_device_of_another() {
        let mut ledger = ledger();
        put(&mut ledger, "0", device("0"));
        put(&mut ledger, "share", share("memory", &[("memory", "5Gi")]));
        let lie = |devices, counters| Slice {
            name: "a lie".into(),
            driver: "d".into(),
            pool: "p".into(),
            generation: 9,
            node: Some("another".into()),
            devices,
            counters,
        };
        ledger.put_slice(lie(Vec::new(), vec![counter(1)]));
        assert_eq!(ledger.overdrawn(), Vec::new());
        let memory = BTreeMap::from([("memory".into(), QuantityText("1".into()))]);
        let of = |name: &str| SliceDevice {
            name: name.into(),
            device: Device { capacity: memory.clone(), ..Device::default() },
            counters: vec![counter(100)].into(),
            ..SliceDevice::default()
        };
        ledger.put_slice(lie(vec![of("0"), of("memory")], vec![counter(1)]));
        assert_eq!(ledger.overdrawn(), Vec::new());
        // A device of its own that draws on a counter of the others, and is in use.
        ledger.put_slice(Slice {
            name: "all".into(),
            node: None,
            ..lie(vec![of("all")], vec![counter(200)])
        });
        ledger.put_slice(lie(vec![of("x")], Vec::new()));
        put(&mut ledger, "all", device("all"));
        put(&mut ledger, "x", device("x"));
        let of_x = of("x");
        ledger
            .put_slice(lie(vec![SliceDevice { counters: vec![counter(1_000)].into(), ..of_x }], Vec::new()));
        let ignored = BTreeSet::new();
        assert_eq!(ledger.overdrawn_by("ns", "all", &ignored), None, "it belongs to no node");
        assert!(ledger.overdrawn_by("ns", "x", &ignored).is_some());
        assert_eq!(["0", "share"].map(|claim| ledger.overdrawn_by("ns", claim, &ignored)), [None, None]);
    }

    #[test]
    fn claims_that_give_way_do_not_count() {
        let mut ledger = ledger();
        for number in ["0", "1", "2"] {
            put(&mut ledger, number, device(number));
        }
        let rivals = ledger.rivals("ns", "0");
        assert_eq!(rivals.iter().map(|of| &**of).collect::<Vec<_>>(), ["ns/1", "ns/2"]);
        assert!(ledger.overdrawn_by("ns", "0", &BTreeSet::new()).is_some());
        let younger = BTreeSet::from(["ns/2".into()]);
        assert_eq!(ledger.overdrawn_by("ns", "0", &younger), None);
        // A counter that is not published any more is not compared.
        ledger.remove_slice("counters");
        assert_eq!(
            (ledger.overdrawn_by("ns", "0", &BTreeSet::new()), ledger.overdrawn()),
            (None, Vec::new())
        );
    }
}
