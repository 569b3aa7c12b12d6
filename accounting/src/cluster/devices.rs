//! The devices that slices list or that claims have, and their costs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use super::objects::{ClaimKey, DeviceFootprint, Slice, SliceDevice};
use crate::amounts::Amounts;
use crate::claim::allocation::Device;
use crate::claim::footprint::ResourceFootprint;
use crate::few::Few;
use crate::ledger::DeviceId;
use crate::resource::Resource;
use crate::unaccounted::Unaccounted;

/// The slices and the DeviceFootprints of a cluster, and the devices that claims have.
///
/// A cluster has more devices than anything else: each of them has one entry, and the names of its pool, its
/// slice and its node are shared with the others.
#[derive(Debug, Clone, Default)]
pub(super) struct Devices {
    /// Slices by name.
    slices: BTreeMap<Arc<str>, Published>,
    /// Pools by driver and name.
    pools: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Pool>>,
    /// DeviceFootprints by name.
    footprints: BTreeMap<Box<str>, DeviceFootprint>,
}

/// The place of a slice.
#[derive(Debug, Clone)]
struct Published {
    driver: Arc<str>,
    pool: Arc<str>,
    generation: i64,
    /// The names of its devices, each once.
    devices: Box<[Arc<str>]>,
}

/// The devices of a pool.
#[derive(Debug, Clone, Default)]
struct Pool {
    /// The number of slices of each generation, sorted; nearly always one.
    generations: Vec<(i64, usize)>,
    devices: BTreeMap<Arc<str>, Entry>,
}

/// A device that a slice lists or that a claim has.
#[derive(Debug, Clone, Default)]
struct Entry {
    /// Sorted by the name of the slice; nearly always one.
    listings: Vec<Listing>,
    /// The claims that have it.
    users: Few<ClaimKey>,
}

/// An entry of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listing {
    slice: Arc<str>,
    generation: i64,
    /// The node that the device is on, if it is on one.
    node: Option<Arc<str>>,
    device: SliceDevice,
}

impl Pool {
    /// The generation whose slices count.
    fn newest(&self) -> Option<i64> {
        self.generations.last().map(|(generation, _)| *generation)
    }

    /// Notes a slice of a generation.
    fn count(&mut self, generation: i64) {
        match self.generations.binary_search_by_key(&generation, |(known, _)| *known) {
            Ok(at) => self.generations.iter_mut().skip(at).take(1).for_each(|(_, slices)| *slices += 1),
            Err(at) => {
                self.generations.reserve_exact(1);
                self.generations.insert(at, (generation, 1));
            }
        }
    }

    /// Notes that a slice of a generation is gone.
    fn discount(&mut self, generation: i64) {
        let known = self.generations.iter_mut().find(|(known, _)| *known == generation);
        known.into_iter().for_each(|(_, slices)| *slices -= 1);
        self.generations.retain(|(_, slices)| *slices > 0);
    }

    /// The entries of a device.
    fn of(&self, device: &str) -> &[Listing] {
        self.devices.get(device).map_or(&[], |entry| &entry.listings)
    }

    /// The entry of a device, and the shared spelling of its name.
    fn opened(&mut self, device: &str) -> (Arc<str>, &mut Entry) {
        let name = shared(&self.devices, device);
        let entry = self.devices.entry(Arc::clone(&name)).or_default();
        (name, entry)
    }

    /// Changes the entry of a device, if there is one, and forgets a device that is in no slice and that no claim
    /// has.
    fn change<T: Default>(&mut self, device: &str, change: impl FnOnce(&mut Entry) -> T) -> T {
        let Some(entry) = self.devices.get_mut(device) else { return T::default() };
        let changed = change(entry);
        if entry.listings.is_empty() && entry.users.is_empty() {
            self.devices.remove(device);
        }
        changed
    }

    /// The entries of a device that count.
    fn counting(&self, device: &str) -> impl Iterator<Item = &Listing> {
        let newest = self.newest();
        self.of(device).iter().filter(move |listing| Some(listing.generation) == newest)
    }
}

/// A device as one slice lists it.
pub(super) struct Found<'a> {
    /// The node that it is on, if it is on one.
    pub(super) node: Option<&'a str>,
    /// Its costs, DeviceFootprints included.
    pub(super) device: Cow<'a, Device>,
    listed: &'a SliceDevice,
    /// Why its costs are not known.
    uncertain: Option<String>,
}

impl Found<'_> {
    /// The same number for devices of a driver that take the same from their node.
    pub(super) fn weight(&self, driver: &str) -> Option<u64> {
        let is_plain = self.uncertain.is_none() && !self.listed.allow_multiple_allocations;
        let mut hasher = DefaultHasher::new();
        (driver, &*self.device).hash(&mut hasher);
        is_plain.then(|| hasher.finish())
    }
}

impl Devices {
    /// Publishes a slice, in place of the one of its name. Returns the devices of which something
    /// else may be known now.
    pub(super) fn put_slice(&mut self, slice: Slice) -> BTreeSet<DeviceId> {
        let name = slice.name.clone();
        self.edit(&name, Some(slice))
    }

    /// Withdraws a slice. Returns the devices of which something else may be known now.
    pub(super) fn remove_slice(&mut self, name: &str) -> BTreeSet<DeviceId> {
        self.edit(name, None)
    }

    /// Puts a DeviceFootprint in place of the one of its name. Returns the drivers whose devices
    /// may cost something else now.
    pub(super) fn put_footprint(&mut self, footprint: DeviceFootprint) -> BTreeSet<Box<str>> {
        if self.footprints.get(&footprint.name) == Some(&footprint) {
            return BTreeSet::new();
        }
        let mut drivers = BTreeSet::from([footprint.driver.clone()]);
        let before = self.footprints.insert(footprint.name.clone(), footprint);
        drivers.extend(before.map(|before| before.driver));
        drivers
    }

    /// Removes a DeviceFootprint. Returns its driver.
    pub(super) fn remove_footprint(&mut self, name: &str) -> BTreeSet<Box<str>> {
        self.footprints.remove(name).map(|before| before.driver).into_iter().collect()
    }

    fn edit(&mut self, name: &str, slice: Option<Slice>) -> BTreeSet<DeviceId> {
        let known = self.slices.get(name).map(|known| (Arc::clone(&known.driver), Arc::clone(&known.pool)));
        let new = slice.as_ref().map(|slice| (Arc::from(&*slice.driver), Arc::from(&*slice.pool)));
        let pools: BTreeSet<(Arc<str>, Arc<str>)> = known.into_iter().chain(new).collect();
        let newest: Vec<Option<i64>> = pools.iter().map(|pool| self.newest(pool)).collect();
        let before = self.withdraw(name);
        let published = slice.map(|slice| self.publish(slice)).unwrap_or_default();
        let listed = before.keys().cloned().chain(published);
        let mut edited: BTreeSet<DeviceId> = listed
            .filter(|id| !self.listings_in(id, name).eq(before.get(id).into_iter().flatten()))
            .collect();
        for (pool, newest) in pools.iter().zip(newest) {
            if self.newest(pool) != newest {
                // Other slices of the pool count now, or do not count any more.
                let devices = self.pool(&pool.0, &pool.1).into_iter().flat_map(|of| &of.devices);
                let listed = devices.filter(|(_, entry)| !entry.listings.is_empty());
                edited.extend(listed.map(|(device, _)| identified(&pool.0, &pool.1, device)));
            }
        }
        edited
    }

    fn pool(&self, driver: &str, pool: &str) -> Option<&Pool> {
        self.pools.get(driver)?.get(pool)
    }

    /// A pool, and the shared spelling of its driver and its name.
    fn opened(&mut self, driver: &str, pool: &str) -> (Arc<str>, Arc<str>, &mut Pool) {
        let driver = shared(&self.pools, driver);
        let pools = self.pools.entry(Arc::clone(&driver)).or_default();
        let name = shared(pools, pool);
        let pool = pools.entry(Arc::clone(&name)).or_default();
        (driver, name, pool)
    }

    /// Changes a pool, if it is known, and forgets one without slices and devices.
    fn change<T: Default>(&mut self, driver: &str, pool: &str, change: impl FnOnce(&mut Pool) -> T) -> T {
        let Some(pools) = self.pools.get_mut(driver) else { return T::default() };
        let Some(of) = pools.get_mut(pool) else { return T::default() };
        let changed = change(of);
        if of.generations.is_empty() && of.devices.is_empty() {
            pools.remove(pool);
            if pools.is_empty() {
                self.pools.remove(driver);
            }
        }
        changed
    }

    /// Notes that a claim has a device.
    pub(super) fn use_device(&mut self, id: &DeviceId, claim: ClaimKey) {
        let (_, _, pool) = self.opened(&id.driver, &id.pool);
        pool.opened(&id.device).1.users.insert(claim);
    }

    /// Notes that a claim does not have a device any more.
    pub(super) fn leave_device(&mut self, id: &DeviceId, claim: &ClaimKey) {
        self.change(&id.driver, &id.pool, |pool| pool.change(&id.device, |entry| entry.users.remove(claim)));
    }

    /// The claims that have a device.
    pub(super) fn users(&self, id: &DeviceId) -> impl Iterator<Item = &ClaimKey> {
        let pool = self.pool(&id.driver, &id.pool);
        pool.and_then(|pool| pool.devices.get(&*id.device)).into_iter().flat_map(|entry| &entry.users)
    }

    /// The devices that several claims have, with these.
    pub(super) fn shared(&self) -> impl Iterator<Item = (DeviceId, &Few<ClaimKey>)> {
        let pools = self
            .pools
            .iter()
            .flat_map(|(driver, pools)| pools.iter().map(move |(name, pool)| (driver, name, pool)));
        pools.flat_map(|(driver, name, pool)| {
            let shared = pool.devices.iter().filter(|(_, entry)| entry.users.iter().nth(1).is_some());
            shared.map(move |(device, entry)| {
                let id = DeviceId {
                    driver: (&**driver).into(),
                    pool: (&**name).into(),
                    device: (&**device).into(),
                };
                (id, &entry.users)
            })
        })
    }

    /// The claims that have a device of a driver.
    pub(super) fn users_of(&self, driver: &str) -> impl Iterator<Item = &ClaimKey> {
        let pools = self.pools.get(driver).into_iter().flatten();
        pools.flat_map(|(_, pool)| pool.devices.values()).flat_map(|entry| &entry.users)
    }

    /// The generation of a pool whose slices count.
    fn newest(&self, (driver, pool): &(Arc<str>, Arc<str>)) -> Option<i64> {
        self.pool(driver, pool)?.newest()
    }

    /// The entries of a device that count: nearly always one.
    fn counting(&self, id: &DeviceId) -> impl Iterator<Item = &Listing> {
        let pool = self.pool(&id.driver, &id.pool);
        pool.into_iter().flat_map(|pool| pool.counting(&id.device))
    }

    /// The entries that a slice has for a device: more than one contradict each other.
    fn listings_in<'a>(&'a self, id: &DeviceId, slice: &'a str) -> impl Iterator<Item = &'a Listing> {
        let all = self.pool(&id.driver, &id.pool).map_or(&[][..], |pool| pool.of(&id.device));
        all.iter().filter(move |listing| *listing.slice == *slice)
    }

    /// Returns the devices of the slice.
    fn publish(&mut self, slice: Slice) -> BTreeSet<DeviceId> {
        let Slice { name, driver, pool, generation, node, devices: listed } = slice;
        let (name, node): (Arc<str>, _) = (name.into(), node.map(Arc::<str>::from));
        let (driver, pool, of) = self.opened(&driver, &pool);
        of.count(generation);
        let mut devices: BTreeSet<Arc<str>> = BTreeSet::new();
        for device in listed {
            let (id, Entry { listings, .. }) = of.opened(&device.name);
            let node = device.node.as_deref().map(Arc::from).or_else(|| node.clone());
            let at = listings.partition_point(|known| *known.slice <= *name);
            if listings.is_empty() {
                listings.reserve_exact(1);
            }
            listings.insert(at, Listing { slice: Arc::clone(&name), generation, node, device });
            devices.insert(id);
        }
        let ids = devices.iter().map(|device| identified(&driver, &pool, device)).collect();
        let devices = devices.into_iter().collect();
        self.slices.insert(name, Published { driver, pool, generation, devices });
        ids
    }

    /// Returns what the slice has listed.
    fn withdraw(&mut self, name: &str) -> BTreeMap<DeviceId, Vec<Listing>> {
        let Some(Published { driver, pool, generation, devices }) = self.slices.remove(name) else {
            return BTreeMap::new();
        };
        self.change(&driver, &pool, |of| {
            of.discount(generation);
            let withdrawn = devices.iter().map(|device| {
                let gone = |entry: &mut Entry| {
                    entry.listings.extract_if(.., |listing| *listing.slice == *name).collect()
                };
                (identified(&driver, &pool, device), of.change(device, gone))
            });
            withdrawn.collect()
        })
    }

    /// Returns the entries of a device that count: nearly always one.
    pub(super) fn found(&self, id: &DeviceId) -> Vec<Found<'_>> {
        let listings: Vec<&Listing> = self.counting(id).collect();
        let several = listings.len() > 1;
        listings.into_iter().map(|listing| self.known(&id.driver, listing, several)).collect()
    }

    /// Returns the attributes of a device as JSON, as the newest generation of its pool has it.
    pub(super) fn attributes(&self, id: &DeviceId) -> Option<&str> {
        let listing = self.counting(id).next()?;
        Some(if listing.device.attributes.is_empty() { "{}" } else { &listing.device.attributes })
    }

    /// Returns the device as it is listed for `node`.
    pub(super) fn found_on(&self, id: &DeviceId, node: &str) -> Option<Found<'_>> {
        self.found(id).into_iter().rfind(|found| found.node.is_none_or(|of| of == node))
    }

    /// Merges what a slice says of a device with the DeviceFootprints of its driver: they count for
    /// resources of which the slice says nothing.
    fn known<'a>(&'a self, driver: &str, listing: &'a Listing, several: bool) -> Found<'a> {
        let listed = &listing.device;
        let refused = || format!("its definition is refused: {}", listed.notices.join("; "));
        let mut uncertain = listed.refused.then(refused);
        let mut said: BTreeMap<Resource, &ResourceFootprint> = BTreeMap::new();
        for footprint in self.footprints.values().filter(|footprint| *footprint.driver == *driver) {
            match footprint.selector.as_ref().map_or(Ok(true), |selector| selector.selects(listed)) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    let name = &footprint.name;
                    let why = || format!("DeviceFootprint {name} may be about it: its selector: {why}");
                    uncertain.get_or_insert_with(why);
                    continue;
                }
            }
            for (resource, costs) in &footprint.cost.resources {
                if said.insert(*resource, costs).is_some_and(|known| known != costs) {
                    let why = || format!("several DeviceFootprints say what it costs of {resource}");
                    uncertain.get_or_insert_with(why);
                }
            }
        }
        let mut device = Cow::Borrowed(&listed.device);
        for (resource, costs) in said {
            if !device.cost.resources.contains_key(&resource) {
                let local = ResourceFootprint { local: true, ..costs.clone() };
                device.to_mut().cost.resources.insert(resource, local);
            }
        }
        if several {
            uncertain = Some("it is in several slices of its pool".to_owned());
        }
        Found { node: listing.node.as_deref(), device, listed, uncertain }
    }
}

/// The shared spelling of a name.
fn shared<T>(known: &BTreeMap<Arc<str>, T>, name: &str) -> Arc<str> {
    known.get_key_value(name).map_or_else(|| name.into(), |(known, _)| Arc::clone(known))
}

/// The identity of a device.
fn identified(driver: &str, pool: &str, device: &str) -> DeviceId {
    DeviceId { driver: driver.into(), pool: pool.into(), device: device.into() }
}

impl Found<'_> {
    /// Returns the notices for the author of the slice; messages call the claim `object`.
    pub(super) fn notices(&self, object: &str) -> impl Iterator<Item = String> {
        // KEP-6352 has reservations for devices of one node only.
        let reserved = self.node.is_none().then(|| self.reservation()).filter(|of| !of.is_empty());
        let reserved = reserved.map(|of| {
            let name = &self.listed.name;
            format!(
                "{object}: device {name} belongs to no single node: its reservation ({of}) counts on none"
            )
        });
        self.listed.notices.iter().map(move |notice| format!("{object}: {notice}")).chain(reserved)
    }

    /// Returns why its costs are not known, if they are not.
    pub(super) fn doubt(&self, object: &str) -> Option<Unaccounted> {
        let why = self.uncertain.as_deref()?.into();
        let field = format!("device {}", self.listed.name).into();
        Some(Unaccounted { object: object.into(), field, resource: None, why })
    }

    /// Returns what its driver holds while it is in use.
    pub(super) fn reservation(&self) -> Amounts {
        let resources = self.device.cost.resources.iter();
        resources.filter_map(|(resource, of)| Some((*resource, of.reservation?))).collect()
    }
}
