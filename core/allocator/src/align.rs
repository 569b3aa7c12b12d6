//! Alignment: the devices of a Pod, over all its claims, on one PCIe root or else on one NUMA node (docs/allocator.md 3.2). A
//! constraint of the API aligns devices within one claim; a GPU and its network card are often in two.

use std::sync::{Arc, LazyLock};

use dragoman_objects::Name;
use rustc_hash::FxHashMap;

use crate::claims::PreparedClaim;
use crate::gates::Gates;
use crate::search::{Attempt, Values};
use crate::snapshot::{Held, ViewDevice};

/// The alignment of the devices of a Pod.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Alignment {
    /// The devices that the search finds first, as Kubernetes has it.
    #[default]
    None,
    /// Devices that are aligned, if there are such for the same alternatives of the requests.
    Preferred,
}

/// The attributes that tell where a device is. Kubernetes reserves these names for drivers to publish.
static ROOT: LazyLock<Name> = LazyLock::new(|| "resource.kubernetes.io/pcieRoot".into());
static NUMA: LazyLock<Name> = LazyLock::new(|| "resource.kubernetes.io/numaNode".into());

/// The places of each attribute that are looked at.
const MOST_PLACES: usize = 16;

/// The devices that a Pod has already and that are looked at: each costs a look at all devices of the node.
const MOST_ALLOCATED: usize = 32;

/// A place to which a search is confined: devices that say they are elsewhere are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confined(Vec<(&'static Name, Values)>);

impl Confined {
    /// Whether a device is there, as far as it says where it is.
    pub(crate) fn admits(&self, driver: &str, device: &ViewDevice, gates: &Gates) -> bool {
        self.0.iter().all(|(attribute, place)| {
            let says = device.device.attribute(driver, attribute);
            says.is_none_or(|says| place.has(says, gates))
        })
    }
}

/// The devices that a Pod gets by an attempt, and those that it has already.
struct Placed<'a> {
    attempt: &'a Attempt,
    devices: Vec<&'a Arc<ViewDevice>>,
}

impl<'a> Placed<'a> {
    fn of(attempt: &'a Attempt) -> Self {
        let placed = attempt.placed.iter().filter(|placed| !attempt.is_admin(placed.ask));
        let mut devices: Vec<_> =
            placed.filter_map(|placed| attempt.view.devices.get(placed.device)).collect();
        let allocated = attempt.prepared.fixed.iter().filter_map(|claim| claim.allocation.as_ref());
        let results = allocated.flat_map(|of| &of.devices.results).filter(|result| !result.is_admin());
        for result in results.take(MOST_ALLOCATED) {
            let is_it = |device: &&Arc<ViewDevice>| {
                let pool = attempt.view.pools.get(device.pool).map(|pool| &pool.key);
                device.device.name == result.device
                    && pool.is_some_and(|key| key.driver == result.driver && key.pool == result.pool)
            };
            devices.extend(attempt.view.devices.iter().find(is_it));
        }
        Self { attempt, devices }
    }

    fn place(&self, attribute: &Name, device: &ViewDevice) -> Option<Values> {
        let driver = &self.attempt.view.pools.get(device.pool)?.key.driver;
        Values::of(device.device.attribute(driver, attribute)?, self.attempt.gates())
    }

    /// The place that all devices share which say where they are: none if they share none, or fewer than two say it.
    fn shared(&self, attribute: &Name) -> Option<Values> {
        let mut places = self.devices.iter().filter_map(|device| self.place(attribute, device));
        let (first, second) = (places.next()?, places.next()?);
        places.try_fold(first.common(&second)?, |common, place| common.common(&place))
    }

    /// Whether no two devices say that they are apart.
    fn is_together(&self, attribute: &Name) -> bool {
        let says = self.devices.iter().filter(|device| self.place(attribute, device).is_some()).count();
        says < 2 || self.shared(attribute).is_some()
    }

    /// The devices that the Pod might get in place of these: of the same drivers, and held by no claim alone.
    fn others(&self) -> impl Iterator<Item = &'a Arc<ViewDevice>> {
        let attempt = self.attempt;
        let mut pools: Vec<&Name> = Vec::new();
        for device in &self.devices {
            pools.extend(attempt.view.pools.get(device.pool).map(|pool| &pool.key.driver));
        }
        attempt.view.devices.iter().filter(move |device| {
            let is_held = |held: &Held| held.exclusively(attempt.gates());
            let driver = attempt.view.pools.get(device.pool).map(|pool| &pool.key.driver);
            driver.is_some_and(|driver| pools.contains(&driver)) && !attempt.held(device).is_some_and(is_held)
        })
    }

    /// The places of these devices, those with the fewest first: a Pod that needs more finds the others. With a device of each.
    fn places(&self, attribute: &Name) -> Vec<(Values, &'a Arc<ViewDevice>)> {
        let mut count: FxHashMap<Values, usize> = FxHashMap::default();
        let mut places = Vec::new();
        for device in self.others() {
            for place in self.place(attribute, device).iter().flat_map(Values::each) {
                let devices = count.entry(place.clone()).or_default();
                if *devices == 0 {
                    places.push((place, device));
                }
                *devices += 1;
            }
        }
        places.sort_by_key(|(place, _)| count.get(place).copied().unwrap_or_default());
        places.truncate(MOST_PLACES);
        places
    }
}

/// Whether no two devices say that they are on different PCIe roots, and on different NUMA nodes: more is closer.
pub(crate) fn closeness(attempt: &Attempt) -> [bool; 2] {
    let placed = Placed::of(attempt);
    [&*ROOT, &*NUMA].map(|attribute| placed.is_together(attribute))
}

/// The places at which the devices of an attempt could be closer to each other, the best first; none where they are close, or where a
/// request wants all devices.
pub(crate) fn better_places(attempt: &Attempt) -> Vec<Confined> {
    let wants_all = |claim: &PreparedClaim| {
        claim.requests.iter().flat_map(|request| &request.asked).any(|asked| asked.all)
    };
    let placed = Placed::of(attempt);
    let [is_on_one_root, is_on_one_node] = [&*ROOT, &*NUMA].map(|attribute| placed.is_together(attribute));
    if (is_on_one_root && is_on_one_node) || attempt.prepared.wanted.iter().any(wants_all) {
        return Vec::new();
    }
    let roots = placed.places(&ROOT).into_iter().map(|(root, device)| {
        // Devices that do not say their root are on the NUMA node of the others.
        let node = placed.place(&NUMA, device).map(|node| (&*NUMA, node));
        Confined(std::iter::once((&*ROOT, root)).chain(node).collect())
    });
    let mut better: Vec<Confined> = roots.collect();
    if !is_on_one_root && !is_on_one_node {
        better.extend(placed.places(&NUMA).into_iter().map(|(node, _)| Confined(vec![(&*NUMA, node)])));
    }
    better
}

/// The closest place that all devices share which say where they are, in words; none where fewer than two do.
pub(crate) fn shared_place(attempt: &Attempt) -> Option<(&'static str, String)> {
    let placed = Placed::of(attempt);
    let of = |attribute: &'static Name| Some((&**attribute, placed.shared(attribute)?.to_string()));
    of(&ROOT).or_else(|| of(&NUMA))
}
