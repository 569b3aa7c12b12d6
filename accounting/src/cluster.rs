//! From the objects of a cluster to a ledger for every node.

use std::collections::{BTreeMap, BTreeSet};

use crate::Uid;
use crate::amounts::Amounts;
use crate::claim::allocation::{Device, DeviceResult, Judgement, cost};
use crate::claim::contribution::{Contribution, Source, reconciled};
use crate::claim::footprint::{DeviceCost, ResourceFootprint};
use crate::ledger::charge::{charge, units};
use crate::ledger::fit::Candidate;
use crate::ledger::{Charging, DeviceId, NodeLedger, Stage};
use crate::pod::PodSpecView;
use crate::pod::requests::Variant;
use crate::resource::Resource;
use crate::unaccounted::Unaccounted;

/// Everything that says something of nodes, as it was listed.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The Pods.
    pub pods: Vec<Pod>,
    /// The claims.
    pub claims: Vec<Claim>,
    /// The slices.
    pub slices: Vec<Slice>,
    /// What administrators say of devices.
    pub footprints: Vec<DeviceFootprint>,
    /// What could not be read at all, and the node that it is about; `None`: any.
    pub unread: Vec<(Option<Box<str>>, Unaccounted)>,
}

/// A Node.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Its name.
    pub name: Box<str>,
    /// `status.allocatable`.
    pub allocatable: Amounts,
    /// What of it could not be read.
    pub unaccounted: Vec<Unaccounted>,
}

/// A Pod.
#[derive(Debug, Clone, Default)]
pub struct Pod {
    /// What it requests, and what its status records of its claims.
    pub view: PodSpecView,
    /// `spec.nodeName`.
    pub node: Option<Box<str>>,
    /// It has succeeded or failed, and takes nothing any more.
    pub done: bool,
    /// Its claims.
    pub claims: Vec<PodClaim>,
    /// What of it could not be read.
    pub unaccounted: Vec<Unaccounted>,
}

/// A claim of a Pod.
#[derive(Debug, Clone, Default)]
pub struct PodClaim {
    /// The claim object.
    pub claim: ClaimName,
    /// The containers that name it.
    pub containers: BTreeSet<Box<str>>,
}

/// The claim of an entry of `spec.resourceClaims`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ClaimName {
    /// There will be one, but nobody has made it or said its name.
    #[default]
    NotYet,
    /// The entry needs none.
    None,
    /// Its name.
    Named(Box<str>),
}

/// A ResourceClaim.
#[derive(Debug, Clone, Default)]
pub struct Claim {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// `status.allocation.devices.results`; `None`: not allocated.
    pub results: Option<Vec<DeviceResult>>,
}

/// A ResourceSlice.
#[derive(Debug, Clone, Default)]
pub struct Slice {
    /// Its name.
    pub name: Box<str>,
    /// `spec.driver`.
    pub driver: Box<str>,
    /// `spec.pool.name`.
    pub pool: Box<str>,
    /// `spec.pool.generation`: older ones do not count.
    pub generation: i64,
    /// `spec.nodeName`; `None`: its devices are of several nodes, or each says so itself.
    pub node: Option<Box<str>>,
    /// Its devices.
    pub devices: Vec<SliceDevice>,
}

/// A device of a slice.
#[derive(Debug, Clone, Default)]
pub struct SliceDevice {
    /// Its name.
    pub name: Box<str>,
    /// `nodeName` of the device.
    pub node: Option<Box<str>>,
    /// What it costs.
    pub device: Device,
    /// What its author should look at; for a definition that was refused, why.
    pub notices: Vec<Box<str>>,
    /// Its definition was refused: what it costs is not known.
    pub refused: bool,
}

/// A DeviceFootprint: for devices whose slices do not say what they cost.
#[derive(Debug, Clone, Default)]
pub struct DeviceFootprint {
    /// Its name.
    pub name: Box<str>,
    /// The driver.
    pub driver: Box<str>,
    /// CEL over the device. Nothing here evaluates CEL: the devices of the driver are
    /// uncertain where it is set.
    pub selector: Option<Box<str>>,
    /// What each device costs.
    pub cost: DeviceCost,
}

/// How things are counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// Claims of a Pod.
    pub variant: Variant,
    /// Claims of several Pods.
    pub charging: Charging,
    /// Where Kubernetes counts otherwise than is recommended.
    pub judgement: Judgement,
}

/// What is said of a node.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// Its ledger.
    pub ledger: NodeLedger,
    /// What somebody should look at, for people.
    pub notices: Vec<String>,
}

/// The cluster with what is needed to find something in it.
pub struct Index<'a> {
    cluster: &'a Cluster,
    rules: Rules,
    claims: BTreeMap<(&'a str, &'a str), &'a Claim>,
    devices: BTreeMap<DeviceId, Found<'a>>,
    /// Devices of claims of which nobody knows what they cost, by node.
    uncertain: BTreeMap<&'a str, Vec<Unaccounted>>,
}

struct Found<'a> {
    node: Option<&'a str>,
    device: Device,
    listed: &'a SliceDevice,
    /// Why its costs are not known.
    uncertain: Option<String>,
}

impl<'a> Index<'a> {
    /// Indexes a cluster.
    pub fn new(cluster: &'a Cluster, rules: Rules) -> Self {
        let claims = cluster.claims.iter().map(|claim| ((&*claim.namespace, &*claim.name), claim)).collect();
        let mut newest: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for slice in &cluster.slices {
            let known = newest.entry((&slice.driver, &slice.pool)).or_insert(slice.generation);
            *known = (*known).max(slice.generation);
        }
        let mut devices: BTreeMap<DeviceId, Found<'a>> = BTreeMap::new();
        for slice in &cluster.slices {
            if newest.get(&(&*slice.driver, &*slice.pool)) == Some(&slice.generation) {
                for listed in &slice.devices {
                    let (driver, pool) = (slice.driver.clone(), slice.pool.clone());
                    let id = DeviceId { driver, pool, device: listed.name.clone() };
                    let mut found = found(cluster, slice, listed);
                    if devices.contains_key(&id) {
                        found.uncertain = Some("it is in several slices of its pool".to_owned());
                    }
                    devices.insert(id, found);
                }
            }
        }
        let mut uncertain: BTreeMap<&str, Vec<Unaccounted>> = BTreeMap::new();
        for claim in &cluster.claims {
            let object = format!("ResourceClaim {}/{}", claim.namespace, claim.name);
            let used = claim.results.iter().flatten().filter(|result| !result.admin_access);
            for found in used.filter_map(|result| devices.get(&id(result))) {
                if let (Some(node), Some(doubt)) = (found.node, found.doubt(&object)) {
                    uncertain.entry(node).or_default().push(doubt);
                }
            }
        }
        Self { cluster, rules, claims, devices, uncertain }
    }

    /// The claims that a Pod names, each once, with all containers that name it.
    fn named(pod: &Pod) -> BTreeMap<&str, PodClaim> {
        let mut named: BTreeMap<&str, PodClaim> = BTreeMap::new();
        for entry in &pod.claims {
            if let ClaimName::Named(name) = &entry.claim {
                let known = named
                    .entry(name)
                    .or_insert_with(|| PodClaim { containers: BTreeSet::new(), ..entry.clone() });
                known.containers.extend(entry.containers.iter().cloned());
            }
        }
        named
    }

    fn device(&self, result: &DeviceResult, node: &str) -> Option<&Found<'a>> {
        let found = self.devices.get(&id(result))?;
        found.node.is_none_or(|of| of == node).then_some(found)
    }

    /// The account of every node, Pods on nodes that were not listed included.
    pub fn accounts(&self) -> BTreeMap<Box<str>, Account> {
        let mut accounts: BTreeMap<Box<str>, Account> = BTreeMap::new();
        let empty = || Account { ledger: NodeLedger::new(self.rules.charging), notices: Vec::new() };
        for node in &self.cluster.nodes {
            let account = accounts.entry(node.name.clone()).or_insert_with(empty);
            account.ledger.set_allocatable(&node.allocatable);
            account.ledger.doubt_allocatable(node.unaccounted.clone());
        }
        for pod in self.cluster.pods.iter().filter(|pod| !pod.done) {
            if let Some(node) = &pod.node {
                let account = accounts.entry(node.clone()).or_insert_with(empty);
                let (view, unaccounted) = self.seen_from(pod, node, &mut account.notices);
                account.ledger.put_pod(charge(&view, Stage::Bound, self.rules.variant, unaccounted));
            }
        }
        for claim in &self.cluster.claims {
            for (node, device, reservation) in self.reservations(claim) {
                let account = accounts.entry(node).or_insert_with(empty);
                account.ledger.use_device(device, Uid::from(&*claim.uid), &reservation);
            }
        }
        for (name, account) in &mut accounts {
            for (object, unaccounted) in self.doubts(name) {
                account.ledger.doubt(&object, unaccounted);
            }
        }
        accounts
    }

    /// A Pod as it would be on `node`, and what its claims would wake up there.
    pub fn candidate(&self, pod: &Pod, node: &str) -> Candidate {
        let (view, unaccounted) = self.seen_from(pod, node, &mut Vec::new());
        let named = Self::named(pod);
        let claims = named.keys().filter_map(|name| self.claim(pod, name));
        let devices = claims.flat_map(|claim| self.reservations(claim)).filter(|(of, ..)| **of == *node);
        let devices = devices.map(|(_, device, amounts)| {
            (device, amounts.iter().map(|(resource, amount)| (resource, units(resource, amount))).collect())
        });
        let devices = devices.collect();
        Candidate { pod: charge(&view, Stage::Assumed, self.rules.variant, unaccounted), devices }
    }

    fn claim(&self, pod: &Pod, name: &str) -> Option<&'a Claim> {
        self.claims.get(&(&*pod.view.namespace, name)).copied()
    }

    /// The Pod with everything that is known of its claims on `node`.
    fn seen_from(&self, pod: &Pod, node: &str, notices: &mut Vec<String>) -> (PodSpecView, Vec<Unaccounted>) {
        let mut unaccounted = pod.unaccounted.clone();
        let mut doubt = |field: String, why: &str| {
            let object = pod.view.object().into();
            unaccounted.push(Unaccounted { object, field: field.into(), resource: None, why: why.into() });
        };
        for claim in pod.claims.iter().filter(|claim| claim.claim == ClaimName::NotYet) {
            let names: Vec<&str> = claim.containers.iter().map(AsRef::as_ref).collect();
            doubt(format!("spec.resourceClaims, of containers {names:?}"), "there is no claim yet");
        }
        let (mut computed, mut uncounted) = (Vec::new(), Vec::new());
        for (name, claim) in Self::named(pod) {
            let recorded = pod.view.contributions.iter().any(|known| known.source.is(&Source::claim(name)));
            match self.claim(pod, name).map(|found| (found, &found.results)) {
                Some((found, Some(results))) => {
                    computed.push(self.contribution(found, results, &claim, node, notices, &mut uncounted));
                }
                _ if recorded => {}
                Some((_, None)) => doubt(format!("claim {name}"), "the claim is not allocated"),
                None => doubt(format!("claim {name}"), "the claim does not exist"),
            }
        }
        notices
            .extend(pod.view.conflicts.iter().map(|conflict| format!("{}: {conflict}", pod.view.object())));
        let (contributions, drifts) = reconciled(&pod.view.contributions, computed);
        notices.extend(drifts.iter().map(|drift| format!("{}: {drift}", pod.view.object())));
        unaccounted.extend(uncounted);
        (PodSpecView { contributions, ..pod.view.clone() }, unaccounted)
    }

    fn contribution(
        &self,
        claim: &Claim,
        results: &[DeviceResult],
        of: &PodClaim,
        node: &str,
        notices: &mut Vec<String>,
        unaccounted: &mut Vec<Unaccounted>,
    ) -> Contribution {
        let object = format!("ResourceClaim {}/{}", claim.namespace, claim.name);
        let used = results.iter().filter(|r| !r.admin_access || self.rules.judgement == Judgement::Upstream);
        for found in used.filter_map(|result| self.device(result, node)) {
            notices.extend(found.listed.notices.iter().map(|notice| format!("{object}: {notice}")));
            unaccounted.extend(found.doubt(&object));
        }
        let source = Source { uid: Some(Uid::from(&*claim.uid)), ..Source::claim(claim.name.clone()) };
        let device = |result: &DeviceResult| self.device(result, node).map(|found| &found.device);
        let cost =
            cost(&object, source, of.containers.clone(), results, device, self.rules.judgement, unaccounted);
        notices.extend(cost.remarks.iter().map(|remark| format!("{object}: {remark}")));
        cost.contribution
    }

    /// What is not known of a node, by object: what could not be read at all, and devices of
    /// claims of which nobody knows what they cost. Whoever uses the claim, their drivers
    /// may hold something.
    fn doubts(&self, node: &str) -> BTreeMap<Box<str>, Vec<Unaccounted>> {
        let mut doubts: BTreeMap<Box<str>, Vec<Unaccounted>> = BTreeMap::new();
        let unread = self.cluster.unread.iter().filter(|(of, _)| of.as_ref().is_none_or(|of| **of == *node));
        let unread = unread.map(|(_, unaccounted)| unaccounted.clone());
        let uncertain = self.uncertain.get(node).into_iter().flatten().cloned();
        for unaccounted in unread.chain(uncertain) {
            doubts.entry(unaccounted.object.clone()).or_default().push(unaccounted);
        }
        doubts
    }

    /// What drivers hold for the devices of a claim, on which nodes. Only devices of one
    /// node can have reservations (KEP-6352).
    fn reservations(&self, claim: &Claim) -> Vec<(Box<str>, DeviceId, Amounts)> {
        let mut held = Vec::new();
        for result in claim.results.iter().flatten().filter(|result| !result.admin_access) {
            let Some(Found { node: Some(node), device, .. }) = self.devices.get(&id(result)) else {
                continue;
            };
            let amounts = device.cost.resources.iter().filter_map(|(r, of)| Some((*r, of.reservation?)));
            let amounts: Amounts = amounts.collect();
            if !amounts.is_empty() {
                held.push(((*node).into(), id(result), amounts));
            }
        }
        held
    }
}

fn id(result: &DeviceResult) -> DeviceId {
    let DeviceResult { driver, pool, device, .. } = result;
    DeviceId { driver: driver.clone(), pool: pool.clone(), device: device.clone() }
}

impl Found<'_> {
    /// Why its costs are not known, if they are not.
    fn doubt(&self, object: &str) -> Option<Unaccounted> {
        let why = self.uncertain.as_deref()?.into();
        let field = format!("device {}", self.listed.name).into();
        Some(Unaccounted { object: object.into(), field, resource: None, why })
    }
}

/// What is known of a device: from its slice and, where that says nothing of a resource,
/// from the footprints.
fn found<'a>(cluster: &'a Cluster, slice: &'a Slice, listed: &'a SliceDevice) -> Found<'a> {
    let mut device = listed.device.clone();
    let mut uncertain =
        listed.refused.then(|| format!("its definition is refused: {}", listed.notices.join("; ")));
    let mut said: BTreeMap<Resource, &ResourceFootprint> = BTreeMap::new();
    for footprint in cluster.footprints.iter().filter(|footprint| footprint.driver == slice.driver) {
        if let Some(selector) = &footprint.selector {
            let why = format!("DeviceFootprint {} may be about it: selector {selector:?}", footprint.name);
            uncertain.get_or_insert(why);
            continue;
        }
        for (resource, costs) in &footprint.cost.resources {
            if said.insert(*resource, costs).is_some_and(|known| known != costs) {
                let why = || format!("several DeviceFootprints say what it costs of {resource}");
                uncertain.get_or_insert_with(why);
            }
        }
    }
    for (resource, costs) in said {
        let local = || ResourceFootprint { local: true, ..costs.clone() };
        device.cost.resources.entry(resource).or_insert_with(local);
    }
    let node = listed.node.as_deref().or(slice.node.as_deref());
    Found { node, device, listed, uncertain }
}
