//! The devices that slices list or that claims have, and their costs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use dragoman_objects::{DeviceId, Name};
use dragoman_quantity::Decimal;

use super::objects::{ClaimKey, Counter, DeviceFootprint, Slice, SliceDevice};
use crate::amounts::Amounts;
use crate::claim::allocation::Device;
use crate::claim::footprint::ResourceFootprint;
use crate::few::Few;
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
    footprints: BTreeMap<Name, DeviceFootprint>,
    /// Draws of devices on counters, each list once: partitions of the same kind of device draw the same.
    draws: HashSet<Arc<[Counter]>>,
}

/// The node that a slice names for all its devices, if it does. What a node says of a pool counts for its own devices only: its kubelet
/// may write any pool and any generation, and no slice without its name.
pub(super) type Scope = Option<Arc<str>>;

/// The place of a slice.
#[derive(Debug, Clone)]
struct Published {
    driver: Arc<str>,
    pool: Arc<str>,
    scope: Scope,
    generation: i64,
    /// The names of its devices, each once.
    devices: Box<[Arc<str>]>,
}

/// The devices of a pool.
#[derive(Debug, Clone, Default)]
pub(super) struct Pool {
    /// The number of slices of each scope and generation, sorted; nearly always one.
    generations: Vec<((Scope, i64), usize)>,
    pub(super) devices: BTreeMap<Arc<str>, Entry>,
    /// The counters of its slices, with the name of the slice and its generation; most have none.
    pub(super) counters: Vec<(Arc<str>, (Scope, i64), Box<[Counter]>)>,
}

/// A device that a slice lists or that a claim has.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    /// Sorted by the name of the slice; nearly always one.
    listings: Vec<Listing>,
    /// The claims that have it.
    pub(super) users: Few<ClaimKey>,
}

/// An entry of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listing {
    slice: Arc<str>,
    pub(super) scope: Scope,
    generation: i64,
    /// The node that the device is on, if it is on one.
    node: Option<Arc<str>>,
    pub(super) device: SliceDevice,
}

impl Pool {
    /// The newest generation of a scope: that of its own slices, or of those that name no node, if they have a newer one.
    fn newest(&self, scope: &Scope) -> Option<i64> {
        let last = |scope: &Scope| {
            let behind = self.generations.partition_point(|((of, _), _)| of <= scope);
            let ((of, generation), _) = self.generations.get(behind.checked_sub(1)?)?;
            (of == scope).then_some(*generation)
        };
        last(scope).max(last(&None))
    }

    fn counts(&self, scope: &Scope, generation: i64) -> bool {
        self.newest(scope) == Some(generation)
    }

    /// Notes a slice.
    fn count(&mut self, scope: Scope, generation: i64) {
        let of = (scope, generation);
        match self.generations.binary_search_by(|(known, _)| known.cmp(&of)) {
            Ok(at) => self.generations.iter_mut().skip(at).take(1).for_each(|(_, slices)| *slices += 1),
            Err(at) => {
                self.generations.reserve_exact(1);
                self.generations.insert(at, (of, 1));
            }
        }
    }

    /// Notes that a slice is gone.
    fn discount(&mut self, scope: &Scope, generation: i64) {
        let known = self.generations.iter_mut().find(|((of, at), _)| of == scope && *at == generation);
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
        self.of(device).iter().filter(|listing| self.counts(&listing.scope, listing.generation))
    }

    /// Returns the amounts that the counters have, by their scope, set and name.
    pub(super) fn counters(&self) -> BTreeMap<(&Scope, &str, &str), Decimal> {
        let counting =
            self.counters.iter().filter(|(_, (scope, generation), _)| self.counts(scope, *generation));
        let all = counting.flat_map(|(_, (scope, _), counters)| {
            counters.iter().map(move |counter| ((scope, &*counter.set, &*counter.name), counter.amount))
        });
        all.collect()
    }

    /// The entry of a device that counts where it is used, on `node` if that is known: if it is the only one, or the only one that names
    /// no node. Entries may contradict each other, and what another node lists does not count.
    pub(super) fn only(&self, device: &str, node: Option<&str>) -> Option<&Listing> {
        let here = || self.here(device, node);
        single(here()).or_else(|| single(here().filter(|listing| listing.scope.is_none())))
    }

    /// The entries of a device that count on a node, if that is known: those of other nodes do not.
    fn here<'s>(&'s self, device: &str, node: Option<&str>) -> impl Iterator<Item = &'s Listing> {
        let is_here = move |listing: &&Listing| {
            let scope = listing.scope.as_deref();
            scope.is_none_or(|scope| node.is_none_or(|node| scope == node))
        };
        self.counting(device).filter(is_here)
    }
}

/// A device as one slice lists it.
pub(super) struct Found<'a> {
    /// The node that it is on, if it is on one.
    pub(super) node: Option<&'a str>,
    /// Costs and capacities of the device, DeviceFootprints included.
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
    pub(super) fn put_footprint(&mut self, footprint: DeviceFootprint) -> BTreeSet<Name> {
        if self.footprints.get(&footprint.name) == Some(&footprint) {
            return BTreeSet::new();
        }
        let mut drivers = BTreeSet::from([footprint.driver.clone()]);
        let before = self.footprints.insert(footprint.name.clone(), footprint);
        drivers.extend(before.map(|before| before.driver));
        drivers
    }

    /// Removes a DeviceFootprint. Returns its driver.
    pub(super) fn remove_footprint(&mut self, name: &str) -> BTreeSet<Name> {
        self.footprints.remove(name).map(|before| before.driver).into_iter().collect()
    }

    fn edit(&mut self, name: &str, slice: Option<Slice>) -> BTreeSet<DeviceId> {
        let known = self.slices.get(name);
        let known = known.map(|of| (Arc::clone(&of.driver), Arc::clone(&of.pool), of.scope.clone()));
        let new = slice.as_ref().map(|slice| {
            let scope = slice.node.as_deref().map(Arc::from);
            (Arc::from(&*slice.driver), Arc::from(&*slice.pool), scope)
        });
        let places: BTreeSet<(Arc<str>, Arc<str>, Scope)> = known.into_iter().chain(new).collect();
        let newest: Vec<Option<i64>> = places.iter().map(|place| self.newest(place)).collect();
        let before = self.withdraw(name);
        let published = slice.map(|slice| self.publish(slice)).unwrap_or_default();
        let listed = before.keys().cloned().chain(published);
        let mut edited: BTreeSet<DeviceId> = listed
            .filter(|id| !self.listings_in(id, name).eq(before.get(id).into_iter().flatten()))
            .collect();
        for (place, newest) in places.iter().zip(newest) {
            if self.newest(place) != newest {
                // Other slices of the pool count now, or do not count any more.
                let (driver, pool, scope) = place;
                let devices = self.pool(driver, pool).into_iter().flat_map(|of| &of.devices);
                let is_concerned = |listing: &Listing| scope.is_none() || listing.scope == *scope;
                let listed = devices.filter(|(_, entry)| entry.listings.iter().any(is_concerned));
                edited.extend(listed.map(|(device, _)| identified(driver, pool, device)));
            }
        }
        let draws = before.values().flatten().map(|listing| Arc::clone(&listing.device.counters)).collect();
        drop(before);
        self.draw_no_more(draws);
        edited
    }

    pub(super) fn pool(&self, driver: &str, pool: &str) -> Option<&Pool> {
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

    pub(super) fn all_pools(&self) -> impl Iterator<Item = (&str, &str, &Pool)> {
        let pools = self.pools.iter();
        pools.flat_map(|(driver, pools)| pools.iter().map(move |(name, pool)| (&**driver, &**name, pool)))
    }

    /// The devices that several claims have, and those of one claim that others may have, too.
    pub(super) fn shared(&self) -> Vec<DeviceId> {
        let is_shared = |entry: &Entry| match entry.users.iter().count() {
            0 => false,
            1 => entry.listings.iter().any(|of| of.device.allow_multiple_allocations),
            _ => true,
        };
        let shared = self.all_pools().flat_map(|(driver, name, pool)| {
            let shared = pool.devices.iter().filter(|(_, entry)| is_shared(entry));
            shared.map(move |(device, _)| identified(driver, name, device))
        });
        shared.collect()
    }

    /// Returns a device as it is listed where it is used, on `node` if that is known; as slices without a node list it, where others
    /// contradict them.
    pub(super) fn listed(&self, id: &DeviceId, node: Option<&str>) -> Option<&SliceDevice> {
        Some(&self.pool(&id.driver, &id.pool)?.only(&id.device, node)?.device)
    }

    /// Returns a device as it is listed where it is used; `None` where entries contradict each other there.
    pub(super) fn undisputed(&self, id: &DeviceId, node: Option<&str>) -> Option<&SliceDevice> {
        Some(&single(self.pool(&id.driver, &id.pool)?.here(&id.device, node))?.device)
    }

    /// Whether slices of a node list a device.
    pub(super) fn is_listed_by(&self, id: &DeviceId, node: &str) -> bool {
        self.counting(id).any(|listing| listing.scope.as_deref() == Some(node))
    }

    /// The claims that have a device of a driver.
    pub(super) fn users_of(&self, driver: &str) -> impl Iterator<Item = &ClaimKey> {
        let pools = self.pools.get(driver).into_iter().flatten();
        pools.flat_map(|(_, pool)| pool.devices.values()).flat_map(|entry| &entry.users)
    }

    /// The generation of a place whose slices count.
    fn newest(&self, (driver, pool, scope): &(Arc<str>, Arc<str>, Scope)) -> Option<i64> {
        self.pool(driver, pool)?.newest(scope)
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

    /// Replaces what a device draws by what is known to be the same.
    fn draw_once(&mut self, counters: &mut Arc<[Counter]>) {
        match self.draws.get(counters) {
            Some(known) => *counters = Arc::clone(known),
            None if counters.is_empty() => {}
            None => drop(self.draws.insert(Arc::clone(counters))),
        }
    }

    /// Forgets what no device draws any more. `withdrawn`: what devices have drawn that were listed before.
    fn draw_no_more(&mut self, withdrawn: HashSet<Arc<[Counter]>>) {
        for counters in withdrawn {
            // One is here, and one is kept.
            if Arc::strong_count(&counters) == 2 {
                self.draws.remove(&counters);
            }
        }
    }

    /// Returns the devices of the slice.
    fn publish(&mut self, slice: Slice) -> BTreeSet<DeviceId> {
        let Slice { name, driver, pool, generation, node, devices: mut listed, counters } = slice;
        listed.iter_mut().for_each(|device| self.draw_once(&mut device.counters));
        let (driver, pool, of) = self.opened(&driver, &pool);
        of.count(node.clone(), generation);
        if !counters.is_empty() {
            of.counters.push((Arc::clone(&name), (node.clone(), generation), counters.into()));
        }
        let mut devices: BTreeSet<Arc<str>> = BTreeSet::new();
        for device in listed {
            let (id, Entry { listings, .. }) = of.opened(&device.name);
            let (scope, node) =
                (node.clone(), device.node.as_deref().map(Arc::from).or_else(|| node.clone()));
            let at = listings.partition_point(|known| *known.slice <= *name);
            if listings.is_empty() {
                listings.reserve_exact(1);
            }
            listings.insert(at, Listing { slice: Arc::clone(&name), scope, generation, node, device });
            devices.insert(id);
        }
        let ids = devices.iter().map(|device| identified(&driver, &pool, device)).collect();
        let devices = devices.into_iter().collect();
        self.slices.insert(name, Published { driver, pool, scope: node, generation, devices });
        ids
    }

    /// Returns what the slice has listed.
    fn withdraw(&mut self, name: &str) -> BTreeMap<DeviceId, Vec<Listing>> {
        let Some(Published { driver, pool, scope, generation, devices }) = self.slices.remove(name) else {
            return BTreeMap::new();
        };
        self.change(&driver, &pool, |of| {
            of.discount(&scope, generation);
            of.counters.retain(|(slice, _, _)| **slice != *name);
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
        // Another entry counts wherever this one does.
        let contradicts = |of: &Listing, other: &Listing| other.node.is_none() || other.node == of.node;
        let known = listings.iter().map(|listing| {
            let several = listings.iter().filter(|other| contradicts(listing, other)).count() > 1;
            self.known(&id.driver, listing, several)
        });
        known.collect()
    }

    /// Returns the attributes of a device as JSON, as the newest generation of its pool has it where it is used, on `node` if that is
    /// known. What another node says of it does not count.
    pub(super) fn attributes(&self, id: &DeviceId, node: Option<&str>) -> Option<&str> {
        let own = self.counting(id).find(|listing| node.is_some() && listing.scope.as_deref() == node);
        let of_none = || self.counting(id).find(|listing| listing.scope.is_none());
        let any = || node.is_none().then(|| self.counting(id).next()).flatten();
        let listing = own.or_else(of_none).or_else(any)?;
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

/// The element of an iterator that has one.
fn single<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

/// The shared spelling of a name.
fn shared<T>(known: &BTreeMap<Arc<str>, T>, name: &str) -> Arc<str> {
    known.get_key_value(name).map_or_else(|| name.into(), |(known, _)| Arc::clone(known))
}

/// The identity of a device.
pub(super) fn identified(driver: &str, pool: &str, device: &str) -> DeviceId {
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
