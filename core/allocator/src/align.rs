//! Alignment: the devices of a Pod, over all its claims, on one PCIe root or else on one NUMA node (docs/allocator.md 3.2). A
//! constraint of the API aligns devices within one claim; a GPU and its network card are often in two.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use dragoman_objects::{DeviceResult, Name};
use rustc_hash::FxHashMap;

use crate::claims::PreparedClaim;
use crate::gates::Gates;
use crate::search::{Attempt, Constrained, Values};
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

/// The devices that a Pod has already and that are looked at: each is looked for among all devices of the node.
const MOST_ALLOCATED: usize = 32;
/// So many looks at a name are as much work as an examined device.
const LOOKS: u64 = 16;

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

    /// Whether it is a PCIe root.
    pub(crate) fn is_a_root(&self) -> bool {
        self.0.iter().any(|(attribute, _)| **attribute == *ROOT)
    }
}

/// Devices that a Pod has already, of a view.
pub(crate) type Having = Vec<Arc<ViewDevice>>;

/// The devices that the Pod of an attempt has already.
pub(crate) fn having(attempt: &Attempt) -> Having {
    let allocated = attempt.prepared.fixed.iter().filter_map(|claim| claim.allocation.as_ref());
    let results = allocated.flat_map(|of| &of.devices.results).filter(|result| !result.is_admin());
    let device = |result: &DeviceResult| {
        let is_it = |device: &&Arc<ViewDevice>| {
            let pool = attempt.view.pools.get(device.pool).map(|pool| &pool.key);
            device.device.name == result.device
                && pool.is_some_and(|key| key.driver == result.driver && key.pool == result.pool)
        };
        attempt.view.devices.iter().find(is_it).cloned()
    };
    let results = results.take(MOST_ALLOCATED);
    results
        .filter_map(|result| {
            attempt.pace.did(attempt.view.devices.len() as u64 / LOOKS);
            device(result)
        })
        .collect()
}

/// The values of an attribute that the devices share which the Pod of an attempt has already. Where they share none, or one of them does
/// not say it, no other device goes with them.
pub(crate) fn had(attempt: &Attempt, attribute: &Name) -> Constrained {
    let mut known = Constrained::default();
    let having = having(attempt);
    let placed = Placed { attempt, having: &having, devices: Vec::new() };
    if having.iter().any(|device| !known.add(false, placed.place(attribute, device))) {
        known.values.push(Values::Opaque);
    }
    known
}

/// The devices that a Pod gets by an attempt, and those that it has already.
struct Placed<'a> {
    attempt: &'a Attempt,
    having: &'a [Arc<ViewDevice>],
    devices: Vec<&'a Arc<ViewDevice>>,
}

impl<'a> Placed<'a> {
    fn of(attempt: &'a Attempt, having: &'a [Arc<ViewDevice>]) -> Self {
        let placed = attempt.placed.iter().filter(|placed| !attempt.is_admin(placed.ask));
        let placed = placed.filter_map(|placed| attempt.view.devices.get(placed.device));
        Self { attempt, having, devices: placed.chain(having).collect() }
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

    /// The devices that the Pod might get in place of these: of the same drivers, for this node, and held by no claim alone.
    fn others(&self) -> impl Iterator<Item = &'a Arc<ViewDevice>> {
        let attempt = self.attempt;
        let driver = |device: &ViewDevice| attempt.view.pools.get(device.pool).map(|pool| &pool.key.driver);
        let drivers: BTreeSet<&Name> = self.devices.iter().filter_map(|device| driver(device)).collect();
        attempt.view.devices.iter().filter(move |device| {
            let is_held = |held: &Held| held.exclusively(attempt.gates());
            driver(device).is_some_and(|driver| drivers.contains(driver))
                && device.reach == Ok(true)
                && device.device.unreadable.is_none()
                && !attempt.held(device).is_some_and(is_held)
        })
    }

    /// The places at which all devices can be, those with the fewest devices first: a Pod that needs more finds the others. With a
    /// device of each. A Pod that has devices already is where they are.
    fn places(&self, attribute: &Name) -> Vec<(Values, &'a Arc<ViewDevice>)> {
        let mut had = self.having.iter().filter_map(|device| Some((self.place(attribute, device)?, device)));
        if let Some((first, device)) = had.next() {
            let common = had.try_fold(first, |common, (place, _)| common.common(&place));
            return common.map(|place| (place, device)).into_iter().collect();
        }
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
pub(crate) fn closeness(attempt: &Attempt, having: &[Arc<ViewDevice>]) -> [bool; 2] {
    let placed = Placed::of(attempt, having);
    [&*ROOT, &*NUMA].map(|attribute| placed.is_together(attribute))
}

/// The places at which the devices of an attempt could be closer to each other, the best first; none where they are close, or where a
/// request wants all devices.
pub(crate) fn better_places(attempt: &Attempt, having: &[Arc<ViewDevice>]) -> Vec<Confined> {
    let wants_all = |claim: &PreparedClaim| {
        claim.requests.iter().flat_map(|request| &request.asked).any(|asked| asked.all)
    };
    let placed = Placed::of(attempt, having);
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
    if !is_on_one_node {
        better.extend(placed.places(&NUMA).into_iter().map(|(node, _)| Confined(vec![(&*NUMA, node)])));
    }
    better
}

/// The closest place that all devices share which say where they are, in words; none where fewer than two do.
pub(crate) fn shared_place(attempt: &Attempt) -> Option<(&'static str, String)> {
    let having = having(attempt);
    let placed = Placed::of(attempt, &having);
    let of = |attribute: &'static Name| Some((&**attribute, placed.shared(attribute)?.to_string()));
    of(&ROOT).or_else(|| of(&NUMA))
}
