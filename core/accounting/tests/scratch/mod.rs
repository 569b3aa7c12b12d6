//! A second, slow implementation: the accounts of all nodes, computed from all objects at once.

pub(crate) mod history;

use std::collections::{BTreeMap, BTreeSet};

use dragoman_accounting::Uid;
use dragoman_accounting::amounts::Amounts;
use dragoman_accounting::claim::allocation::{ClaimUse, Device, DeviceResult, Judgement, cost};
use dragoman_accounting::claim::contribution::{Contribution, Source, reconciled};
use dragoman_accounting::claim::footprint::ResourceFootprint;
use dragoman_accounting::cluster::{
    Claim, ClaimName, Cluster, DeviceFootprint, Node, Pod, Rules, Selector, Slice, SliceDevice,
};
use dragoman_accounting::ledger::charge::{ClaimCharge, charge};
use dragoman_accounting::ledger::{Holding, NodeLedger, Stage};
use dragoman_accounting::object::ObjectRef;
use dragoman_accounting::per_resource::Units;
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::resource::Resource;
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_objects::{DeviceId, Name};

/// The objects that there are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objects {
    pub(crate) nodes: BTreeMap<Name, Node>,
    pub(crate) pods: BTreeMap<Uid, Pod>,
    pub(crate) claims: BTreeMap<(Name, Name), Claim>,
    pub(crate) slices: BTreeMap<Name, Slice>,
    pub(crate) footprints: BTreeMap<Name, DeviceFootprint>,
    pub(crate) unread: BTreeMap<Name, Vec<(Option<Name>, Unaccounted)>>,
}

impl Objects {
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster {
            nodes: self.nodes.values().cloned().collect(),
            pods: self.pods.values().cloned().collect(),
            claims: self.claims.values().cloned().collect(),
            slices: self.slices.values().cloned().collect(),
            footprints: self.footprints.values().cloned().collect(),
            unread: self.unread.values().flatten().cloned().collect(),
        }
    }
}

/// Object and field of what is not known.
type Doubts = BTreeSet<(Name, Name)>;

/// Everything that can be seen of an account.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pods: Vec<(ObjectRef, Units, Vec<ClaimCharge>)>,
    /// By resource: what the node has, whether that is an answer, and where it went.
    resources: Vec<(i64, bool, Vec<Holding>)>,
    doubts: Doubts,
    notices: Vec<String>,
}

impl Seen {
    pub(crate) fn of(ledger: &NodeLedger, notices: impl Iterator<Item = String>) -> Self {
        let resource = |resource: Resource| {
            (ledger.allocatable(resource), ledger.is_unknown(resource), ledger.who_has(resource))
        };
        let pod = ledger.pods().map(|pod| (pod.object.clone(), pod.spec.clone(), pod.claims.clone()));
        Self {
            pods: pod.collect(),
            resources: [Resource::Cpu, Resource::Memory].map(resource).into(),
            doubts: ledger.unaccounted().map(|doubt| (doubt.object.clone(), doubt.field.clone())).collect(),
            notices: notices.collect(),
        }
    }
}

/// An account in the making.
struct Page {
    ledger: NodeLedger,
    doubts: Doubts,
    notices: BTreeSet<String>,
}

/// The accounts of all nodes.
pub(crate) fn from_scratch(objects: &Objects, rules: Rules) -> BTreeMap<Name, Seen> {
    let pages = Scratch { objects, rules }.pages();
    pages.into_iter().map(|(node, page)| (node, Seen::of(&page.ledger, page.notices.into_iter()))).collect()
}

struct Scratch<'a> {
    objects: &'a Objects,
    rules: Rules,
}

impl Scratch<'_> {
    fn pages(&self) -> BTreeMap<Name, Page> {
        let mut pages: BTreeMap<Name, Page> = BTreeMap::new();
        let empty = || Page {
            ledger: NodeLedger::new(self.rules.charging),
            doubts: Doubts::new(),
            notices: BTreeSet::new(),
        };
        for node in self.objects.nodes.values() {
            let page = pages.entry(node.name.clone()).or_insert_with(empty);
            page.ledger.set_allocatable(&node.allocatable);
            page.ledger.doubt_allocatable(node.unaccounted.clone());
        }
        for pod in self.objects.pods.values().filter(|pod| !pod.done) {
            let Some(node) = &pod.node else { continue };
            let page = pages.entry(node.clone()).or_insert_with(empty);
            let view = self.view(pod, node, page);
            page.ledger.put_pod(charge(&view, Stage::Bound, self.rules.variant, Vec::new()));
        }
        for claim in self.objects.claims.values() {
            for (node, device, reservation) in self.held(claim) {
                let page = pages.entry(node).or_insert_with(empty);
                page.ledger.use_device(device, Uid::from(&*claim.uid), &reservation);
            }
        }
        for (node, page) in &mut pages {
            page.doubts.extend(self.doubts(node));
            let doubt = |(object, field): &(Name, Name)| Unaccounted {
                object: object.clone(),
                field: field.clone(),
                resource: None,
                why: "it is so".into(),
            };
            let doubts = page.doubts.iter().map(doubt).collect();
            page.ledger.doubt("everything", doubts);
        }
        pages
    }

    /// A Pod with what its claims bring along on its node.
    fn view(&self, pod: &Pod, node: &str, page: &mut Page) -> PodSpecView {
        let object = pod.view.object();
        page.doubts.extend(pod.unaccounted.iter().map(|doubt| (doubt.object.clone(), doubt.field.clone())));
        let mut named: BTreeMap<&str, BTreeSet<Name>> = BTreeMap::new();
        for entry in &pod.claims {
            match &entry.claim {
                ClaimName::Named(name) => {
                    named.entry(name).or_default().extend(entry.containers.iter().cloned());
                }
                ClaimName::NotYet => {
                    let containers: Vec<&str> = entry.containers.iter().map(AsRef::as_ref).collect();
                    let field = format!("spec.resourceClaims, of containers {containers:?}");
                    page.notices.insert(format!("{object}: {field}: there is no claim yet"));
                }
                ClaimName::None => {}
            }
        }
        if pod.left_out > 0 {
            let field = format!("spec.resourceClaims, {} more entries", pod.left_out);
            let why = "no more than the entries before are read; their claims count once they are reserved for the Pod";
            page.notices.insert(format!("{object}: {field}: {why}"));
        }
        if pod.left_out > 0 || pod.claims.iter().any(|entry| entry.claim == ClaimName::NotYet) {
            let is_reserved = |claim: &&Claim| {
                claim.namespace == pod.view.namespace
                    && claim.reserved_for.contains(&pod.view.uid)
                    && claim.results.as_ref().is_some_and(|results| !results.is_empty())
            };
            for claim in self.objects.claims.values().filter(is_reserved) {
                named.entry(&claim.name).or_default();
            }
        }
        let mut computed = Vec::new();
        for (name, containers) in named {
            let claim = self.objects.claims.get(&(pod.view.namespace.clone(), Name::from(name)));
            let recorded = pod.view.contributions.iter().any(|known| *known.source.name == *name);
            match claim.map(|claim| (claim, &claim.results)) {
                Some((claim, Some(results))) => {
                    computed.push(self.contribution(claim, results, containers, node, page));
                }
                _ if recorded => {}
                // The kubelet starts no container without its claims.
                Some(_) => {
                    page.notices.insert(format!("{object}: claim {name}: the claim is not allocated"));
                }
                None => {
                    page.notices.insert(format!("{object}: claim {name}: the claim does not exist"));
                }
            }
        }
        let (contributions, drifts) = reconciled(&pod.view.contributions, computed);
        page.notices.extend(drifts.iter().map(|drift| format!("{object}: {drift}")));
        PodSpecView { contributions, ..pod.view.clone() }
    }

    fn contribution(
        &self,
        claim: &Claim,
        results: &[DeviceResult],
        containers: BTreeSet<Name>,
        node: &str,
        page: &mut Page,
    ) -> Contribution {
        let object = format!("ResourceClaim {}/{}", claim.namespace, claim.name);
        let mut devices: BTreeMap<DeviceId, Device> = BTreeMap::new();
        for (i, result) in results.iter().enumerate() {
            let entries = self.listed(result);
            if !entries.is_empty() && entries.iter().all(|(of, _)| of.is_some_and(|of| of != node)) {
                let field = format!("status.allocation.devices.results[{i}]");
                page.notices.insert(format!("{object}: {field}: the device is on another node"));
                devices.insert(result.id(), Device::default());
            }
            let here = entries.iter().rfind(|(of, _)| of.is_none_or(|of| of == node));
            let Some((of, listed)) = here else { continue };
            devices.insert(result.id(), self.device(&result.driver, listed));
            if result.admin_access && self.rules.judgement == Judgement::Ours {
                continue;
            }
            page.notices.extend(listed.notices.iter().map(|notice| format!("{object}: {notice}")));
            let reserved = self.reservation(result, listed);
            if of.is_none() && !reserved.is_empty() {
                let of = format!("device {} belongs to no single node", listed.name);
                page.notices.insert(format!("{object}: {of}: its reservation ({reserved}) counts on none"));
            }
            if self.is_uncertain(&result.driver, listed, beside(&entries, *of)) {
                page.doubts.insert((object.as_str().into(), format!("device {}", listed.name).into()));
            }
        }
        let source = Source { uid: Some(Uid::from(&*claim.uid)), ..Source::claim(claim.name.clone()) };
        let device = |result: &DeviceResult| devices.get(&result.id());
        let judgement = self.rules.judgement;
        let used = ClaimUse { object: object.clone(), source, containers, judgement };
        let cost = cost(used, results, device);
        page.doubts.extend(cost.unaccounted.into_iter().map(|doubt| (doubt.object, doubt.field)));
        page.notices.extend(cost.remarks.iter().map(|remark| format!("{object}: {remark}")));
        cost.contribution
    }

    /// The reservations of drivers for the devices of a claim.
    fn held(&self, claim: &Claim) -> Vec<(Name, DeviceId, Amounts)> {
        let mut held = Vec::new();
        for result in claim.results.iter().flatten().filter(|result| !result.admin_access) {
            for (node, listed) in self.listed(result) {
                let reservation = self.reservation(result, listed);
                if let Some(node) = node.filter(|_| !reservation.is_empty()) {
                    held.push((node.into(), result.id(), reservation));
                }
            }
        }
        held
    }

    fn reservation(&self, result: &DeviceResult, listed: &SliceDevice) -> Amounts {
        let resources = self.device(&result.driver, listed).cost.resources;
        resources.iter().filter_map(|(resource, of)| Some((*resource, of.reservation?))).collect()
    }

    /// The doubts about a node, Pods apart.
    fn doubts(&self, node: &str) -> Doubts {
        let unread = self.objects.unread.values().flatten();
        let unread = unread.filter(|(of, _)| of.as_ref().is_none_or(|of| **of == *node));
        let mut doubts: Doubts =
            unread.map(|(_, doubt)| (doubt.object.clone(), doubt.field.clone())).collect();
        for claim in self.objects.claims.values() {
            let object = format!("ResourceClaim {}/{}", claim.namespace, claim.name);
            for result in claim.results.iter().flatten().filter(|result| !result.admin_access) {
                let entries = self.listed(result);
                for (of, listed) in &entries {
                    if *of == Some(node) && self.is_uncertain(&result.driver, listed, beside(&entries, *of)) {
                        let field = format!("device {}", listed.name);
                        doubts.insert((object.as_str().into(), field.into()));
                    }
                }
            }
        }
        doubts
    }

    /// The entries of a device in the slices that count, with the node that each says.
    fn listed(&self, result: &DeviceResult) -> Vec<(Option<&str>, &SliceDevice)> {
        let of_pool: Vec<&Slice> = self
            .objects
            .slices
            .values()
            .filter(|slice| slice.driver == result.driver && slice.pool == result.pool)
            .collect();
        // What a node says counts for itself; what is said without a node counts for all.
        let newest = |node: &Option<Name>| {
            let counting = of_pool.iter().filter(|slice| slice.node.is_none() || slice.node == *node);
            counting.map(|slice| slice.generation).max()
        };
        let mut entries = Vec::new();
        for slice in of_pool.iter().filter(|slice| Some(slice.generation) == newest(&slice.node)) {
            for device in slice.devices.iter().filter(|device| device.name == result.device) {
                entries.push((device.node.as_deref().or(slice.node.as_deref()), device));
            }
        }
        entries
    }

    fn footprints(&self, driver: &str) -> Vec<&DeviceFootprint> {
        self.objects.footprints.values().filter(|footprint| *footprint.driver == *driver).collect()
    }

    fn device(&self, driver: &str, listed: &SliceDevice) -> Device {
        let mut device = listed.device.clone();
        let mut said: BTreeMap<Resource, ResourceFootprint> = BTreeMap::new();
        for footprint in self.footprints(driver).iter().filter(|footprint| is_about(footprint, listed)) {
            said.extend(footprint.cost.resources.clone());
        }
        for (resource, costs) in said {
            let local = ResourceFootprint { local: true, ..costs };
            device.cost.resources.entry(resource).or_insert(local);
        }
        device
    }

    fn is_uncertain(&self, driver: &str, listed: &SliceDevice, entries: usize) -> bool {
        let footprints = self.footprints(driver);
        let is_unevaluated = |footprint: &&DeviceFootprint| {
            footprint.selector.as_ref().is_some_and(|selector| selector.text() == "unevaluated")
        };
        let unevaluated = footprints.iter().any(is_unevaluated);
        let about: Vec<_> = footprints.into_iter().filter(|footprint| is_about(footprint, listed)).collect();
        let contradiction = about.iter().any(|one| about.iter().any(|other| contradicts(one, other)));
        entries > 1 || listed.refused || unevaluated || contradiction
    }
}

/// The entries that count wherever one of this node does.
fn beside(entries: &[(Option<&str>, &SliceDevice)], node: Option<&str>) -> usize {
    entries.iter().filter(|(other, _)| other.is_none() || *other == node).count()
}

/// The selector of the text `big` selects the devices with these attributes; no other is evaluated.
pub(super) fn selector(text: &str) -> Selector {
    let selector = Selector::unevaluated(text);
    if text == "big" { selector.evaluated(|device| Ok(&*device.attributes == "big")) } else { selector }
}

fn is_about(footprint: &DeviceFootprint, device: &SliceDevice) -> bool {
    let text = footprint.selector.as_ref().map(Selector::text);
    text.is_none_or(|text| text == "big" && &*device.attributes == "big")
}

/// Whether two DeviceFootprints say different things of a resource.
fn contradicts(one: &DeviceFootprint, other: &DeviceFootprint) -> bool {
    let mut costs = one.cost.resources.iter();
    costs.any(|(resource, costs)| other.cost.resources.get(resource).is_some_and(|other| other != costs))
}
