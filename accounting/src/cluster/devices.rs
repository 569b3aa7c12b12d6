//! The devices that slices list, and their costs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::objects::{DeviceFootprint, Slice, SliceDevice};
use crate::amounts::Amounts;
use crate::claim::allocation::Device;
use crate::claim::footprint::ResourceFootprint;
use crate::ledger::DeviceId;
use crate::resource::Resource;
use crate::unaccounted::Unaccounted;

/// Driver and name of a pool.
type PoolId = (Box<str>, Box<str>);

/// The slices and the DeviceFootprints of a cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Devices {
    /// Slices by name.
    slices: BTreeMap<Box<str>, Published>,
    /// The number of slices of each generation of a pool.
    generations: BTreeMap<PoolId, BTreeMap<i64, usize>>,
    /// The entries of every device, sorted by the name of the slice.
    listings: BTreeMap<DeviceId, Vec<Listing>>,
    /// DeviceFootprints by name.
    footprints: BTreeMap<Box<str>, DeviceFootprint>,
}

/// The place of a slice.
#[derive(Debug, Clone)]
struct Published {
    pool: PoolId,
    generation: i64,
    devices: BTreeSet<DeviceId>,
}

/// An entry of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listing {
    slice: Box<str>,
    generation: i64,
    /// The node that the device is on, if it is on one.
    node: Option<Box<str>>,
    device: SliceDevice,
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
        let known = self.slices.get(name).map(|published| published.pool.clone());
        let pool = slice.as_ref().map(|slice| (slice.driver.clone(), slice.pool.clone()));
        let pools: BTreeSet<PoolId> = known.into_iter().chain(pool).collect();
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
                edited.extend(self.devices_in(pool).cloned());
            }
        }
        edited
    }

    /// The entries that a slice has for a device: more than one contradict each other.
    fn listings_in<'a>(&'a self, id: &DeviceId, slice: &'a str) -> impl Iterator<Item = &'a Listing> {
        let all = self.listings.get(id).into_iter().flatten();
        all.filter(move |listing| *listing.slice == *slice)
    }

    fn devices_in<'a>(&'a self, pool: &'a PoolId) -> impl Iterator<Item = &'a DeviceId> {
        let (driver, pool) = pool;
        let first = DeviceId { driver: driver.clone(), pool: pool.clone(), device: Box::default() };
        let from = self.listings.range(first..).map(|(id, _)| id);
        from.take_while(move |id| id.driver == *driver && id.pool == *pool)
    }

    /// The generation of a pool whose slices count.
    fn newest(&self, pool: &PoolId) -> Option<i64> {
        self.generations.get(pool)?.keys().next_back().copied()
    }

    /// Returns the devices of the slice.
    fn publish(&mut self, slice: Slice) -> BTreeSet<DeviceId> {
        let Slice { name, driver, pool, generation, node, devices: listed } = slice;
        let mut devices = BTreeSet::new();
        for device in listed {
            let id = DeviceId { driver: driver.clone(), pool: pool.clone(), device: device.name.clone() };
            let listings = self.listings.entry(id.clone()).or_default();
            let node = device.node.clone().or_else(|| node.clone());
            listings.push(Listing { slice: name.clone(), generation, node, device });
            listings.sort_by(|a, b| a.slice.cmp(&b.slice));
            devices.insert(id);
        }
        let pool = (driver, pool);
        *self.generations.entry(pool.clone()).or_default().entry(generation).or_default() += 1;
        self.slices.insert(name, Published { pool, generation, devices: devices.clone() });
        devices
    }

    /// Returns what the slice has listed.
    fn withdraw(&mut self, name: &str) -> BTreeMap<DeviceId, Vec<Listing>> {
        let Some(Published { pool, generation, devices }) = self.slices.remove(name) else {
            return BTreeMap::new();
        };
        if let Some(generations) = self.generations.get_mut(&pool) {
            if let Some(slices) = generations.get_mut(&generation) {
                *slices -= 1;
            }
            generations.retain(|_, slices| *slices > 0);
            if generations.is_empty() {
                self.generations.remove(&pool);
            }
        }
        let mut withdrawn = BTreeMap::new();
        for id in devices {
            let listings = self.listings.remove(&id).unwrap_or_default();
            let (gone, kept): (Vec<_>, Vec<_>) =
                listings.into_iter().partition(|listing| *listing.slice == *name);
            if !kept.is_empty() {
                self.listings.insert(id.clone(), kept);
            }
            withdrawn.insert(id, gone);
        }
        withdrawn
    }

    /// Returns the entries of a device that count: nearly always one.
    pub(super) fn found(&self, id: &DeviceId) -> Vec<Found<'_>> {
        let newest = self.newest(&(id.driver.clone(), id.pool.clone()));
        let listings = self.listings.get(id).into_iter().flatten();
        let listings: Vec<_> = listings.filter(|listing| Some(listing.generation) == newest).collect();
        let several = listings.len() > 1;
        listings.into_iter().map(|listing| self.known(&id.driver, listing, several)).collect()
    }

    /// Returns the attributes of a device as JSON, as the newest generation of its pool has it.
    pub(super) fn attributes(&self, id: &DeviceId) -> Option<&str> {
        let newest = self.newest(&(id.driver.clone(), id.pool.clone()));
        let listing = self.listings.get(id)?.iter().find(|listing| Some(listing.generation) == newest)?;
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
