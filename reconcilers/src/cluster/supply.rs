//! The devices of the cluster, and what holds them: for metrics.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dragoman_crds::wire::{Name, ResourceClaim, Tolerated};

use super::Cluster;

/// What a slice publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    driver: Name,
    pool: Name,
    generation: i64,
    devices: usize,
}

/// What the allocation of a claim holds. Devices that it may only administer are left out: others use them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    devices: Box<[(Device, Name)]>,
    is_reserved: bool,
}

/// Driver, pool and name.
type Device = (Name, Name, Name);

/// The states of a device. A device with an allocation is also published, one with a reservation also allocated.
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
        let (driver, pool) = (slice.driver.as_ref().into(), slice.pool.as_ref().into());
        Self { driver, pool, generation: slice.generation, devices: slice.devices.len() }
    }
}

impl Held {
    /// Takes a claim in. An allocation that does not decode holds nothing that can be named.
    pub(super) fn new(claim: &ResourceClaim) -> Self {
        let Some(Tolerated::Read(allocation)) = &claim.status.allocation else { return Self::default() };
        let results = allocation.devices.results.iter().filter(|result| !result.admin_access);
        let device = results.map(|result| {
            let class = claim.class_of(&result.request).cloned().unwrap_or_default();
            ((result.driver.clone(), result.pool.clone(), result.device.clone()), class)
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

    fn count<'a>(
        slices: impl Iterator<Item = &'a Published>,
        claims: impl Iterator<Item = (&'a str, &'a Held)>,
    ) -> Self {
        let mut supply = Self { pools: published(slices), ..Self::default() };
        let (mut devices, mut classes, mut namespaces) = (HashMap::new(), BTreeSet::new(), BTreeSet::new());
        for (namespace, held) in claims {
            for (device, class) in &held.devices {
                *devices.entry(device).or_insert(false) |= held.is_reserved;
                classes.insert((class, device));
                namespaces.insert((namespace, device));
            }
        }
        for ((driver, pool, _), is_reserved) in devices {
            let pool = supply.pools.entry((driver.clone(), pool.clone())).or_default();
            pool.allocated += 1;
            pool.reserved += usize::from(is_reserved);
        }
        for pool in supply.pools.values_mut().filter(|pool| pool.allocated > 0) {
            pool.stranded = pool.published.saturating_sub(pool.allocated);
        }
        for (class, _) in classes {
            *supply.classes.entry(class.clone()).or_default() += 1;
        }
        for (namespace, _) in namespaces {
            *supply.namespaces.entry(namespace.into()).or_default() += 1;
        }
        supply
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

/// Slices of an older generation of their pool do not count.
fn published<'a>(slices: impl Iterator<Item = &'a Published>) -> BTreeMap<(Name, Name), Devices> {
    let mut newest: BTreeMap<(Name, Name), (i64, usize)> = BTreeMap::new();
    for slice in slices {
        let pool = newest.entry((slice.driver.clone(), slice.pool.clone())).or_insert((slice.generation, 0));
        if pool.0 < slice.generation {
            *pool = (slice.generation, 0);
        }
        if pool.0 == slice.generation {
            pool.1 += slice.devices;
        }
    }
    newest
        .into_iter()
        .map(|(pool, (_, published))| (pool, Devices { published, ..Devices::default() }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(pool: &str, generation: i64, devices: usize) -> Published {
        Published { driver: "d".into(), pool: pool.into(), generation, devices }
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
    fn devices_that_a_claim_only_administers_are_free() {
        let claim = serde_json::json!({"status": {"allocation": {"devices": {"results": [
            {"request": "r", "driver": "d", "pool": "p", "device": "0", "adminAccess": true}]}}}});
        assert_eq!(Held::new(&serde_json::from_value(claim).expect("a claim")), Held::default());
    }
}
