//! Alignment: the devices of a Pod, over all its claims, on one PCIe root or else on one NUMA node (docs/allocator.md 3.2). A
//! constraint of the API aligns devices within one claim; a GPU and its network card are often in two.

use std::sync::LazyLock;

use dragoman_objects::Name;
use rustc_hash::FxHashMap;

use crate::gates::Gates;
use crate::search::{Attempt, Values};
use crate::snapshot::ViewDevice;

/// The alignment of the devices of a Pod.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Alignment {
    /// The devices that the search finds first, as Kubernetes has it.
    #[default]
    None,
    /// Devices that are aligned, if there are such for the same alternatives of the requests.
    Preferred,
}

/// The attributes that tell where a device is, the closest first. Kubernetes reserves these names for drivers to publish.
static PLACES: LazyLock<[Name; 2]> =
    LazyLock::new(|| ["resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"].map(Name::from));

/// The searches for aligned devices that a Pod may cost on a node, for each attribute.
const MOST_TRIES: usize = 16;

/// A place to which a search is confined: devices that say they are elsewhere are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confined {
    attribute: &'static Name,
    value: Values,
}

impl Confined {
    /// Whether a device is there, or does not say where it is.
    pub(crate) fn admits(&self, driver: &str, device: &ViewDevice, gates: &Gates) -> bool {
        let Some(known) = device.device.attribute(driver, self.attribute) else { return true };
        self.value.has(known, gates)
    }

    /// The attribute, and its value.
    pub(crate) fn words(&self) -> (&'static str, String) {
        (self.attribute, self.value.to_string())
    }
}

/// The devices that an attempt has placed, by where they are.
struct Placed<'a>(&'a Attempt);

impl Placed<'_> {
    /// The places of the devices that say where they are.
    fn places(&self, attribute: &Name) -> Vec<Values> {
        let attempt = self.0;
        let placed = attempt.placed.iter().filter(|placed| !attempt.is_admin(placed.ask));
        let devices = placed.filter_map(|placed| attempt.view.devices.get(placed.device));
        devices.filter_map(|device| self.place(attribute, device)).collect()
    }

    fn place(&self, attribute: &Name, device: &ViewDevice) -> Option<Values> {
        let driver = &self.0.view.pools.get(device.pool)?.key.driver;
        Values::of(device.device.attribute(driver, attribute)?, self.0.gates())
    }

    /// The single places of the node at which at least one of the devices can be, those with the fewest devices first: a Pod that needs
    /// more finds the others.
    fn candidates(&self, attribute: &Name) -> Vec<Values> {
        let mut count: FxHashMap<Values, usize> = FxHashMap::default();
        let mut order: Vec<Values> = Vec::new();
        let devices = self.0.view.devices.iter().filter_map(|device| self.place(attribute, device));
        for place in devices.flat_map(|place| place.each()) {
            *count.entry(place.clone()).or_insert_with(|| {
                order.push(place);
                0
            }) += 1;
        }
        let devices_at = |place: &Values| count.get(place).copied().unwrap_or_default();
        let mut places: Vec<(usize, Values)> =
            order.into_iter().map(|place| (devices_at(&place), place)).collect();
        places.sort_by_key(|(devices, _)| *devices);
        places.into_iter().map(|(_, place)| place).collect()
    }
}

/// The first attribute by which these devices could be closer together, and the places to look at; none where they are aligned, where
/// fewer than two of them say where they are, or where one request wants all devices.
pub(crate) fn better_places(attempt: &Attempt) -> Vec<Confined> {
    let placed = Placed(attempt);
    let wants_all = |of: &crate::claims::PreparedClaim| {
        of.requests.iter().flat_map(|request| &request.asked).any(|asked| asked.all)
    };
    if attempt.placed.len() < 2 || attempt.prepared.wanted.iter().any(wants_all) {
        return Vec::new();
    }
    let mut better = Vec::new();
    for attribute in PLACES.iter() {
        let places = placed.places(attribute);
        let common = places
            .iter()
            .skip(1)
            .try_fold(places.first().cloned(), |common, place| Some(Some(common?.common(place)?)));
        if places.len() < 2 {
            continue;
        }
        if common.is_some() {
            // They are aligned at this level: no level that is further away is of interest.
            break;
        }
        let places = placed.candidates(attribute).into_iter().take(MOST_TRIES);
        better.extend(places.map(|value| Confined { attribute, value }));
    }
    better
}

/// The closest place that all devices share which say where they are, in words; none where fewer than two do.
pub(crate) fn shared_place(attempt: &Attempt) -> Option<(&'static str, String)> {
    let placed = Placed(attempt);
    PLACES.iter().find_map(|attribute| {
        let places = placed.places(attribute);
        let mut places = places.into_iter();
        let (first, second) = (places.next()?, places.next()?);
        let common = places.try_fold(first.common(&second)?, |common, place| common.common(&place))?;
        Some(Confined { attribute, value: common }.words())
    })
}
