//! The devices of the cluster, and what holds them: for metrics.

use std::collections::{BTreeMap, HashMap};

use dragoman_objects::{Name, ResourceClaim};

use super::Cluster;

/// Pool, generation and number of devices of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    pool: Name,
    /// The node that the slice names for all its devices, if it does.
    node: Option<Name>,
    generation: i64,
    devices: usize,
}

/// Devices that the allocation of a claim holds. Devices with admin access are left out: other claims use
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    devices: Box<[(Device, Name)]>,
    is_reserved: bool,
}

/// Driver, pool and name in one text: a scrape reads all of them, and each text is elsewhere in memory. No name has the
/// separator.
type Device = Name;
const SEPARATOR: char = '\n';

/// The states of devices. A reserved device is also allocated; one that its driver withdrew may be allocated and not published.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Devices {
    /// Devices that the newest slices of the pool list.
    pub published: usize,
    /// Devices that a claim holds.
    pub allocated: usize,
    /// Those whose claim is reserved for a consumer.
    pub reserved: usize,
    /// Free devices in pools of which a claim holds another one: a claim for a whole pool does not find them.
    pub stranded: usize,
}

impl std::iter::Sum for Devices {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, of| Self {
            published: sum.published + of.published,
            allocated: sum.allocated + of.allocated,
            reserved: sum.reserved + of.reserved,
            stranded: sum.stranded + of.stranded,
        })
    }
}

/// The devices of the cluster.
#[derive(Debug, Default)]
pub struct Supply {
    /// By driver and pool.
    pub pools: BTreeMap<(Name, Name), Devices>,
    /// Allocated devices by the DeviceClass that was asked for; a device that is shared counts once.
    pub classes: BTreeMap<Name, usize>,
    /// Allocated devices by the namespace of the claim; a device that is shared counts once in each.
    pub namespaces: BTreeMap<Name, usize>,
}

impl Published {
    /// Takes a slice with this many devices in.
    pub(super) fn new(slice: &dragoman_accounting::cluster::Slice) -> Self {
        let pool = format!("{}{SEPARATOR}{}", slice.driver, slice.pool).into();
        Self { pool, node: slice.node.clone(), generation: slice.generation, devices: slice.devices.len() }
    }
}

impl Held {
    /// Takes a claim in. An allocation that does not decode holds nothing that can be named.
    pub(super) fn new(claim: &ResourceClaim) -> Self {
        let Some(allocation) = claim.allocation() else { return Self::default() };
        let results = allocation.devices.results.iter().filter(|result| !result.is_admin());
        let device = results.map(|result| {
            let class = claim.class_of(&result.request).cloned().unwrap_or_default();
            let [driver, pool, device] = [&result.driver, &result.pool, &result.device];
            (format!("{driver}{SEPARATOR}{pool}{SEPARATOR}{device}").into(), class)
        });
        Self { devices: device.collect(), is_reserved: !claim.status.reserved_for.is_empty() }
    }
}

impl Supply {
    /// Counts the devices of a cluster.
    pub fn of(cluster: &Cluster) -> Self {
        let slices = cluster.slices.iter().filter_map(|(_, _, record)| record.readable());
        let claims =
            cluster.claims.iter().filter_map(|(namespace, _, record)| Some((namespace, record.readable()?)));
        Self::count(slices, claims.map(|(namespace, held)| (&**namespace, held)))
    }

    /// Borrows until the end: this runs at every scrape, beside the work of the controllers.
    fn count<'a>(
        slices: impl Iterator<Item = &'a Published>,
        claims: impl Iterator<Item = (&'a str, &'a Held)>,
    ) -> Self {
        let mut pools = published(slices);
        let mut held: HashMap<&Device, Holder<'_>> = HashMap::new();
        let (mut classes, mut namespaces) = (Counts::default(), Counts::default());
        for (namespace, claim) in claims {
            for (device, class) in &claim.devices {
                let holder = held.entry(device).or_default();
                holder.is_reserved |= claim.is_reserved;
                // A device that is shared counts once for each name.
                *classes.entry(class).or_default() += usize::from(holder.classes.insert(class));
                *namespaces.entry(namespace).or_default() += usize::from(holder.namespaces.insert(namespace));
            }
        }
        for (device, holder) in held {
            let pool = device.rsplit_once(SEPARATOR).map_or("", |(pool, _)| pool);
            let pool = pools.entry(pool).or_default();
            pool.allocated += 1;
            pool.reserved += usize::from(holder.is_reserved);
        }
        for pool in pools.values_mut().filter(|pool| pool.allocated > 0) {
            pool.stranded = pool.published.saturating_sub(pool.allocated);
        }
        let owned =
            |counts: Counts<'_>| counts.into_iter().map(|(name, count)| (name.into(), count)).collect();
        Self {
            pools: pools.into_iter().map(|(pool, of)| (named(pool), of)).collect(),
            classes: owned(classes),
            namespaces: owned(namespaces),
        }
    }

    /// The devices of every driver.
    pub fn drivers(&self) -> BTreeMap<&Name, Devices> {
        let mut drivers: BTreeMap<&Name, Devices> = BTreeMap::new();
        for ((driver, _), of) in &self.pools {
            let all = drivers.entry(driver).or_default();
            *all = [*all, *of].into_iter().sum();
        }
        drivers
    }
}

/// Driver and name of a pool.
fn named(pool: &str) -> (Name, Name) {
    let (driver, pool) = pool.split_once(SEPARATOR).unwrap_or((pool, ""));
    (driver.into(), pool.into())
}

/// Summary of the claims that hold a device.
#[derive(Default)]
struct Holder<'a> {
    is_reserved: bool,
    classes: Few<'a>,
    namespaces: Few<'a>,
}

/// Names of which there is mostly one.
#[derive(Default)]
struct Few<'a> {
    first: Option<&'a str>,
    others: Vec<&'a str>,
}

impl<'a> Few<'a> {
    /// Adds a name; returns whether it is new.
    fn insert(&mut self, name: &'a str) -> bool {
        match self.first {
            None => {
                self.first = Some(name);
                true
            }
            Some(first) if first == name || self.others.contains(&name) => false,
            Some(_) => {
                self.others.push(name);
                true
            }
        }
    }
}

/// Devices by a name.
type Counts<'a> = BTreeMap<&'a str, usize>;

/// Slices of an older generation of their pool do not count. The generation that a node says counts for its own slices only.
fn published<'a>(slices: impl Iterator<Item = &'a Published>) -> HashMap<&'a str, Devices> {
    let mut newest: HashMap<(&str, Option<&str>), (i64, usize)> = HashMap::new();
    for Published { pool, node, generation, devices } in slices {
        let (known, published) = newest.entry((pool, node.as_deref())).or_insert((*generation, 0));
        if *known < *generation {
            (*known, *published) = (*generation, 0);
        }
        if *known == *generation {
            *published += devices;
        }
    }
    let of_all = |pool: &str| newest.get(&(pool, None)).map(|(generation, _)| *generation);
    let mut pools: HashMap<&str, Devices> = HashMap::new();
    for ((pool, _), (generation, published)) in &newest {
        let counts = of_all(pool).is_none_or(|newer| newer <= *generation);
        pools.entry(pool).or_default().published += if counts { *published } else { 0 };
    }
    pools
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(pool: &str, generation: i64, devices: usize) -> Published {
        Published { pool: format!("d{SEPARATOR}{pool}").into(), node: None, generation, devices }
    }

    fn held(devices: &[(&str, &str)], is_reserved: bool) -> Held {
        let result = |(pool, device): &(&str, &str)| serde_json::json!({"request": "r/big", "driver": "d", "pool": pool, "device": device});
        let results: Vec<_> = devices.iter().map(result).collect();
        let consumers = if is_reserved { vec![serde_json::json!({"resource": "pods"})] } else { Vec::new() };
        let claim = serde_json::json!({
            "spec": {"devices": {"requests": [{"name": "r", "firstAvailable": [
                {"name": "small", "deviceClassName": "s"}, {"name": "big", "deviceClassName": "b"}]}]}},
            "status": {"allocation": {"devices": {"results": results}}, "reservedFor": consumers},
        });
        Held::new(&serde_json::from_value(claim).expect("a claim"))
    }

    #[test]
    fn a_device_counts_once_whatever_shares_it() {
        let slices = [slice("p", 1, 7), slice("p", 2, 3), slice("p", 2, 1), slice("q", 1, 2)];
        let claims = [
            ("one", held(&[("p", "0")], false)),
            ("two", held(&[("p", "0"), ("p", "1")], true)),
            ("two", held(&[("gone", "0")], false)),
        ];
        let supply = Supply::count(slices.iter(), claims.iter().map(|(namespace, held)| (*namespace, held)));
        let of =
            |published, allocated, reserved, stranded| Devices { published, allocated, reserved, stranded };
        let pool = |name: &str| supply.pools.get(&("d".into(), name.into())).copied();
        assert_eq!((pool("p"), pool("q")), (Some(of(4, 2, 2, 2)), Some(of(2, 0, 0, 0))));
        assert_eq!(pool("gone"), Some(of(0, 1, 0, 0)), "an allocated device that is not published any more");
        assert_eq!(supply.drivers().into_iter().collect::<Vec<_>>(), [(&"d".into(), of(6, 3, 2, 2))]);
        assert_eq!(supply.classes.into_iter().collect::<Vec<_>>(), [("b".into(), 3)]);
        assert_eq!(supply.namespaces.into_iter().collect::<Vec<_>>(), [("one".into(), 1), ("two".into(), 3)]);
    }

    #[test]
    fn what_a_node_says_of_a_pool_hides_no_other_slice() {
        let of = |node: &str, generation, devices| Published {
            node: Some(node.into()),
            ..slice("p", generation, devices)
        };
        let count = |slices: &[Published]| {
            published(slices.iter()).values().map(|pool| pool.published).collect::<Vec<_>>()
        };
        assert_eq!(count(&[of("n", 1, 8), of("liar", 999, 1)]), [9]);
        assert_eq!(count(&[slice("p", 1, 8), of("liar", 999, 1)]), [9]);
        assert_eq!(
            count(&[slice("p", 2, 8), of("n", 1, 3), of("n", 2, 4)]),
            [12],
            "a newer one of no node counts for all"
        );
    }

    #[test]
    fn devices_that_a_claim_only_administers_are_free() {
        let claim = serde_json::json!({"status": {"allocation": {"devices": {"results": [
            {"request": "r", "driver": "d", "pool": "p", "device": "0", "adminAccess": true}]}}}});
        assert_eq!(Held::new(&serde_json::from_value(claim).expect("a claim")), Held::default());
    }
}
