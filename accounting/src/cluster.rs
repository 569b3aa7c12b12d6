//! From the objects of a cluster to a ledger for every node.

use std::collections::{BTreeMap, BTreeSet};

use crate::Uid;
use crate::amounts::Amounts;
use crate::claim::allocation::{Device, DeviceResult, Judgement, cost};
use crate::claim::contribution::{Contribution, Source, reconciled};
use crate::claim::footprint::DeviceFootprint;
use crate::ledger::charge::{charge, units};
use crate::ledger::fit::Candidate;
use crate::ledger::{Charging, DeviceId, NodeLedger, Stage};
use crate::pod::PodSpecView;
use crate::pod::requests::Variant;
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
    pub footprints: Vec<Footprint>,
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
    /// Name of the claim object, once there is one.
    pub claim: Option<Box<str>>,
    /// The containers that name it.
    pub containers: BTreeSet<Box<str>>,
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
pub struct Footprint {
    /// Its name.
    pub name: Box<str>,
    /// The driver.
    pub driver: Box<str>,
    /// CEL over the device. Nothing here evaluates CEL: the devices of the driver are
    /// uncertain where it is set.
    pub selector: Option<Box<str>>,
    /// What each device costs.
    pub footprint: DeviceFootprint,
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
        let mut devices = BTreeMap::new();
        for slice in &cluster.slices {
            if newest.get(&(&*slice.driver, &*slice.pool)) == Some(&slice.generation) {
                for listed in &slice.devices {
                    let (driver, pool) = (slice.driver.clone(), slice.pool.clone());
                    let id = DeviceId { driver, pool, device: listed.name.clone() };
                    devices.insert(id, found(cluster, slice, listed));
                }
            }
        }
        Self { cluster, rules, claims, devices }
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
            account.ledger.doubt(&format!("Node {}", node.name), node.unaccounted.clone());
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
        accounts
    }

    /// A Pod as it would be on `node`, and what its claims would wake up there.
    pub fn candidate(&self, pod: &Pod, node: &str) -> Candidate {
        let (view, unaccounted) = self.seen_from(pod, node, &mut Vec::new());
        let claims = pod.claims.iter().filter_map(|claim| self.claim(pod, claim.claim.as_deref()?));
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
        let mut computed = Vec::new();
        let mut uncounted = Vec::new();
        for claim in &pod.claims {
            // An entry that needs no claim has none.
            let Some(name) = &claim.claim else { continue };
            let recorded = pod.view.contributions.iter().any(|known| *known.source.name == **name);
            let Some(results) = self.claim(pod, name).map(|found| (found, found.results.as_ref())) else {
                if !recorded {
                    doubt(format!("claim {name}"), "the claim does not exist");
                }
                continue;
            };
            match results {
                (found, Some(results)) => {
                    computed.extend(self.contribution(found, results, claim, node, notices, &mut uncounted));
                }
                (_, None) if !recorded => doubt(format!("claim {name}"), "the claim is not allocated"),
                (_, None) => {}
            }
        }
        notices
            .extend(pod.view.conflicts.iter().map(|conflict| format!("{}: {conflict}", pod.view.object())));
        let contributions = match reconciled(pod.view.contributions.clone(), computed.clone()) {
            Ok((contributions, drifts)) => {
                notices.extend(drifts.iter().map(|drift| format!("{}: {drift}", pod.view.object())));
                contributions
            }
            // Charging says which sum it is that cannot be held.
            Err(_) => computed,
        };
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
    ) -> Option<Contribution> {
        let object = format!("ResourceClaim {}/{}", claim.namespace, claim.name);
        let used = results.iter().filter(|r| !r.admin_access || self.rules.judgement == Judgement::Upstream);
        for found in used.filter_map(|result| self.device(result, node)) {
            notices.extend(found.listed.notices.iter().map(|notice| format!("{object}: {notice}")));
            if let Some(why) = &found.uncertain {
                let (object, why) = (object.as_str().into(), why.as_str().into());
                let field = format!("device {}", found.listed.name).into();
                unaccounted.push(Unaccounted { object, field, resource: None, why });
            }
        }
        let source = Source { uid: Some(Uid::from(&*claim.uid)), ..Source::claim(claim.name.clone()) };
        let device = |result: &DeviceResult| self.device(result, node).map(|found| &found.device);
        let cost = cost(source, of.containers.clone(), results, device, self.rules.judgement, unaccounted);
        notices.extend(cost.remarks.iter().map(|remark| format!("{object}: {remark}")));
        (!cost.contribution.lines.is_empty()).then_some(cost.contribution)
    }

    /// What drivers hold for the devices of a claim, on which nodes. Only devices of one
    /// node can have reservations (KEP-6352).
    fn reservations(&self, claim: &Claim) -> Vec<(Box<str>, DeviceId, Amounts)> {
        let mut held = Vec::new();
        for result in claim.results.iter().flatten().filter(|result| !result.admin_access) {
            let Some(Found { node: Some(node), device, .. }) = self.devices.get(&id(result)) else {
                continue;
            };
            let amounts = device.footprint.resources.iter().filter_map(|(r, of)| Some((*r, of.reservation?)));
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

/// What is known of a device: from its slice and, where that says nothing of a resource,
/// from the footprints.
fn found<'a>(cluster: &'a Cluster, slice: &'a Slice, listed: &'a SliceDevice) -> Found<'a> {
    let mut device = listed.device.clone();
    let mut uncertain =
        listed.refused.then(|| format!("its definition is refused: {}", listed.notices.join("; ")));
    for footprint in cluster.footprints.iter().filter(|footprint| footprint.driver == slice.driver) {
        if let Some(selector) = &footprint.selector {
            let why = format!("DeviceFootprint {} may be about it: selector {selector:?}", footprint.name);
            uncertain.get_or_insert(why);
            continue;
        }
        for (resource, costs) in &footprint.footprint.resources {
            device.footprint.resources.entry(*resource).or_insert_with(|| costs.clone());
        }
    }
    let node = listed.node.as_deref().or(slice.node.as_deref());
    Found { node, device, listed, uncertain }
}
