//! A Pod as it is seen from a node: with everything that is known of its claims there.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_objects::{DeviceId, Name};

use super::ClusterLedger;
use super::devices::Found;
use super::links::{BoundPod, named};
use super::notice::{About, Notice};
use super::objects::{Claim, ClaimName, Pod, PodClaim, SliceDevice, claim_key};
use crate::Uid;
use crate::claim::allocation::{ClaimUse, Device, DeviceResult, Judgement, cost};
use crate::claim::contribution::{Contribution, Source, reconciled};
use crate::claim::sharing::{Sharing, sharing};
use crate::ledger::Stage;
use crate::ledger::charge::{charge, units};
use crate::ledger::fit::{Candidate, Fit};
use crate::pod::PodSpecView;
use crate::unaccounted::Unaccounted;

/// A Pod as it is seen from a node.
pub(super) struct Seen {
    /// The Pod with what its claims bring along.
    pub(super) view: PodSpecView,
    /// Entries of both that could not be read.
    pub(super) unaccounted: Vec<Unaccounted>,
    /// Claims that are missing, not allocated, or on another node: they take nothing from the node, for
    /// the kubelet starts no container without them, and what they will take is not known.
    pub(super) waiting: Vec<Unaccounted>,
    /// Notices for people.
    pub(super) notices: BTreeSet<Notice>,
}

/// Findings about the claims of a Pod.
#[derive(Default)]
struct Said {
    unaccounted: Vec<Unaccounted>,
    waiting: Vec<Unaccounted>,
    notices: BTreeSet<Notice>,
}

/// Costs that the claims of a Pod bring along.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimsOfPod {
    /// The amounts, claim by claim; those that the status of the Pod records are marked.
    pub contributions: Vec<Contribution>,
    /// Facts that are missing or could not be read: the amounts are not complete.
    pub unaccounted: Vec<Unaccounted>,
    /// The claim for extended resources, which no entry of the Pod's spec names.
    pub extended: Option<Name>,
}

/// A device that a claim has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocatedDevice<'a> {
    /// Driver of the device.
    pub driver: &'a str,
    /// Pool of the device.
    pub pool: &'a str,
    /// Name of the device.
    pub device: &'a str,
    /// Attributes of the device as JSON; `None`: no ResourceSlice has the device.
    pub attributes: Option<&'a str>,
}

/// A device that a Pod on a node has through a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodDevice<'a> {
    /// Namespace of the Pod and of its claim.
    pub namespace: &'a str,
    /// Name of the Pod.
    pub pod: &'a str,
    /// Uid of the Pod.
    pub uid: &'a str,
    /// The node of the Pod.
    pub node: &'a str,
    /// Name of the claim.
    pub claim: &'a str,
    /// The request; with its subrequest where a prioritized list has one.
    pub request: &'a str,
    /// Whether the claim has a share of the device, and not the device.
    pub is_share: bool,
    /// Whether the Pod monitors or administers the device, and does not use it.
    pub admin_access: bool,
    /// The device.
    pub device: AllocatedDevice<'a>,
}

impl ClusterLedger {
    /// Returns what the claims of a Pod that has claims and a node bring along; `None` for any other Pod.
    pub fn claims_of_pod(&self, uid: &str) -> Option<ClaimsOfPod> {
        let BoundPod { node, pod, .. } = self.pods.get(uid)?;
        Some(self.claims_on(pod.as_deref()?, node))
    }

    /// Returns what the claims of a Pod bring along on `node`, where it is or would be.
    pub fn claims_on(&self, pod: &Pod, node: &str) -> ClaimsOfPod {
        let Seen { mut view, mut unaccounted, waiting, .. } = self.seen_from(pod, node);
        unaccounted.extend(waiting);
        // The status of a Pod has no place for a claim that the Pod does not name.
        let own = named(pod);
        view.contributions.retain(|of| of.recorded.is_some() || own.contains_key(&*of.source.name));
        let is_shared = |of: &&Contribution| {
            let claim = self.claims.get(&claim_key(&pod.view.namespace, &of.source.name));
            let others =
                claim.map_or(0, |claim| claim.pods.iter().filter(|uid| **uid != pod.view.uid).count());
            sharing(of) == Sharing::OnePod && others > 0
        };
        for of in view.contributions.iter().filter(is_shared) {
            let field = format!("claim {}", of.source.name).into();
            let why = "its devices are node resources, and several Pods name it".into();
            unaccounted.push(Unaccounted { object: pod.view.object().into(), field, resource: None, why });
        }
        let extended = pod.claims.iter().find_map(|of| match &of.claim {
            ClaimName::Named(name) if of.extended => Some(name.clone()),
            _ => None,
        });
        ClaimsOfPod { contributions: view.contributions, unaccounted, extended }
    }

    /// Returns a Pod as it would be on `node`, with what its claims would wake up there.
    pub fn candidate(&self, pod: &Pod, node: &str) -> Candidate {
        self.candidate_with(pod, node, &[])
    }

    /// Returns a Pod as it would be on `node` if some of its claims were as in `claims`: allocated
    /// otherwise, or allocated at all.
    pub fn candidate_with(&self, pod: &Pod, node: &str, claims: &[Claim]) -> Candidate {
        let Seen { view, mut unaccounted, waiting, .. } = self.seen_with(pod, node, claims);
        unaccounted.extend(waiting);
        let effects = named(pod).into_keys().filter_map(|name| {
            let key = claim_key(&pod.view.namespace, name);
            match claims.iter().find(|claim| *claim.name == *name) {
                Some(claim) => self.devices.effects(&key, claim),
                None => self.claims.get(&key)?.effects.clone(),
            }
        });
        let held = effects.flat_map(|effects| effects.held).filter(|((of, _), _)| **of == *node);
        let devices = held.map(|((_, device), amounts)| {
            let amounts = amounts.iter().map(|(resource, amount)| (resource, units(resource, amount)));
            (device, amounts.collect())
        });
        let devices = devices.collect();
        Candidate { pod: charge(&view, Stage::Assumed, self.rules.variant, unaccounted), devices }
    }

    /// Returns a Pod with what its claims would bring along on `node` if some of them were as in `claims`, and the facts about these
    /// amounts that could not be read.
    pub fn pod_with(&self, pod: &Pod, node: &str, claims: &[Claim]) -> (PodSpecView, Vec<Unaccounted>) {
        let Seen { view, unaccounted, .. } = self.seen_with(pod, node, claims);
        (view, unaccounted)
    }

    /// Returns the devices that a claim has for a request, in the order of the allocation. None where the claim is unknown or
    /// has none. A request of a prioritized list is named without its subrequest.
    pub fn allocated_for(&self, namespace: &str, claim: &str, request: &str) -> Vec<AllocatedDevice<'_>> {
        let entry = self.claims.get(&claim_key(namespace, claim)).and_then(|entry| entry.claim.as_ref());
        let node = entry.and_then(|claim| claim.node.as_deref());
        let results = entry.into_iter().flat_map(|claim| claim.results.iter().flatten());
        let main = |of: &DeviceResult| of.request.split('/').next() == Some(request);
        let devices = results.filter(|of| main(of)).map(|of| AllocatedDevice {
            driver: &of.driver,
            pool: &of.pool,
            device: &of.device,
            attributes: self.devices.attributes(&of.id(), node),
        });
        devices.collect()
    }

    /// Returns the Pods with claims that are on nodes: the node, and the Pod with what its claims bring along there.
    pub fn pods_with_claims(&self) -> impl Iterator<Item = (&str, PodSpecView)> {
        self.pods.values().filter_map(|BoundPod { node, pod, .. }| {
            let pod = pod.as_deref().filter(|pod| !pod.claims.is_empty())?;
            Some((&**node, self.seen_from(pod, node).view))
        })
    }

    /// Returns the devices that Pods on nodes have through their claims, those of one Pod together.
    pub fn devices_of_pods(&self) -> impl Iterator<Item = PodDevice<'_>> {
        let bound = self.pods.values().filter_map(|of| Some((&*of.node, of.pod.as_deref()?)));
        let claims = bound
            .flat_map(|(node, pod)| self.claims_of(pod).into_keys().map(move |claim| (node, pod, claim)));
        claims.flat_map(move |(node, Pod { view, .. }, claim)| {
            let known = self.claims.get(&claim_key(&view.namespace, claim));
            let results = known.and_then(|entry| entry.claim.as_ref()?.results.as_ref());
            results.into_iter().flatten().map(move |result| PodDevice {
                namespace: &view.namespace,
                pod: &view.name,
                uid: &view.uid,
                node,
                claim,
                request: &result.request,
                is_share: result.is_share(),
                admin_access: result.admin_access,
                device: AllocatedDevice {
                    driver: &result.driver,
                    pool: &result.pool,
                    device: &result.device,
                    attributes: self.devices.attributes(&result.id(), Some(node)),
                },
            })
        })
    }

    /// Counts the devices in use of which neither their slice nor a DeviceFootprint says that they take anything of their node, by node
    /// and driver. Whether they take something is not known.
    pub fn undeclared(&self) -> BTreeMap<(&str, &str), usize> {
        let claims = self.claims.values().filter_map(|entry| entry.claim.as_ref());
        let mut counts = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for result in claims.flat_map(|claim| claim.results.iter().flatten()).filter(|of| !of.admin_access) {
            let id = result.id();
            for found in self.devices.found(&id) {
                let Some(node) = found.node else { continue };
                let says_nothing = found.device.cost.resources.is_empty() && found.doubt("").is_none();
                if says_nothing && seen.insert((node, id.clone())) {
                    *counts.entry((node, &*result.driver)).or_default() += 1;
                }
            }
        }
        counts
    }

    /// Returns a device as the newest generation of its pool has it where it is used, on `node` if that is known. None where no slice has
    /// it, or several slices that count there have.
    pub fn device(&self, driver: &str, pool: &str, device: &str, node: Option<&str>) -> Option<&SliceDevice> {
        self.devices
            .undisputed(&DeviceId { driver: driver.into(), pool: pool.into(), device: device.into() }, node)
    }

    /// A number that is the same for devices of a node that take the same from it, whichever claim has them. None where that is not
    /// certain: a device that several claims may have can be taken already.
    pub fn weight(&self, node: &str, driver: &str, pool: &str, device: &str) -> Option<u64> {
        let id = DeviceId { driver: driver.into(), pool: pool.into(), device: device.into() };
        self.devices.found_on(&id, node)?.weight(driver)
    }

    /// Returns the bound Pods that name a claim (`namespace/name`), and those for which it is reserved that do not name all their claims:
    /// namespace, name and uid of each.
    pub fn pods_of<'a>(&'a self, claim: &str) -> impl Iterator<Item = (&'a str, &'a str, &'a Uid)> {
        let pods = self.claims.get(claim).into_iter().flat_map(|entry| &entry.pods);
        pods.filter_map(|uid| {
            let view = &self.pods.get(uid)?.pod.as_ref()?.view;
            Some((&*view.namespace, &*view.name, &view.uid))
        })
    }

    /// Returns whether a Pod fits on a node; `None` where the node has no account.
    pub fn fits(&self, pod: &Pod, node: &str) -> Option<Fit> {
        Some(self.node(node)?.fits(&self.candidate(pod, node)))
    }

    pub(super) fn seen_from(&self, pod: &Pod, node: &str) -> Seen {
        self.seen_with(pod, node, &[])
    }

    /// The same, with some of its claims as in `claims`.
    fn seen_with(&self, pod: &Pod, node: &str, claims: &[Claim]) -> Seen {
        let (mut unaccounted, mut waiting) = (pod.unaccounted.clone(), Vec::new());
        let mut doubt = |field: String, why: &str| {
            let object = pod.view.object().into();
            waiting.push(Unaccounted { object, field: field.into(), resource: None, why: why.into() });
        };
        for claim in pod.claims.iter().filter(|claim| claim.claim == ClaimName::NotYet) {
            let names: Vec<&str> = claim.containers.iter().map(AsRef::as_ref).collect();
            doubt(format!("spec.resourceClaims, of containers {names:?}"), "there is no claim yet");
        }
        if pod.left_out > 0 {
            doubt(
                format!("spec.resourceClaims, {} more entries", pod.left_out),
                "no more than the entries before are read; their claims count once they are reserved for the Pod",
            );
        }
        let (mut computed, mut said) = (Vec::new(), Said::default());
        for (name, entry) in self.claims_of(pod) {
            let recorded = pod.view.contributions.iter().any(|known| known.source.is(&Source::claim(name)));
            let given = claims.iter().find(|claim| *claim.name == *name);
            let known = || self.claims.get(&claim_key(&pod.view.namespace, name))?.claim.as_ref();
            let found = given.or_else(known);
            let results = found.and_then(|found| Some((found, found.results.as_ref()?)));
            if let Some((found, results)) = results {
                computed.push(self.contribution(found, results, entry, node, &mut said));
            }
            match found {
                // What is recorded counts, whatever the claim says.
                Some(Claim { results: None, .. }) | None if recorded => {}
                Some(Claim { unread: Some(why), namespace, .. }) => {
                    let object = format!("ResourceClaim {namespace}/{name}").into();
                    let (field, why) = (Name::default(), why.clone());
                    unaccounted.push(Unaccounted { object, field, resource: None, why });
                }
                Some(Claim { results: Some(_), .. }) => {}
                Some(_) => doubt(format!("claim {name}"), "the claim is not allocated"),
                None => doubt(format!("claim {name}"), "the claim does not exist"),
            }
        }
        let object = pod.view.object();
        let (contributions, drifts) = reconciled(&pod.view.contributions, computed);
        let conflicts = pod.view.conflicts.iter().map(ToString::to_string);
        let drifts = conflicts.chain(drifts.iter().map(ToString::to_string));
        said.notices.extend(drifts.map(|drift| Notice::new(About::Drift, &format!("{object}: {drift}"))));
        unaccounted.extend(said.unaccounted);
        waiting.extend(said.waiting);
        said.notices.extend(waiting.iter().map(|fact| Notice::new(About::Waiting, &fact.to_string())));
        let view = PodSpecView { contributions, ..pod.view.clone() };
        Seen { view, unaccounted, waiting, notices: said.notices }
    }

    /// Returns what a claim brings along for a Pod on `node`.
    fn contribution(
        &self,
        claim: &Claim,
        results: &[DeviceResult],
        of: PodClaim,
        node: &str,
        said: &mut Said,
    ) -> Contribution {
        let object = format!("ResourceClaim {}/{}", claim.namespace, claim.name);
        let devices: BTreeSet<DeviceId> = results.iter().map(DeviceResult::id).collect();
        let known = devices.into_iter().filter_map(|id| {
            let found = self.devices.found_on(&id, node)?;
            Some((id, found))
        });
        let known: BTreeMap<DeviceId, Found<'_>> = known.collect();
        // A device of another node takes nothing from this one.
        let elsewhere = Device::default();
        let judgement = self.rules.judgement;
        let used = results.iter().filter(|result| !result.admin_access || judgement == Judgement::Upstream);
        for found in used.filter_map(|result| known.get(&result.id())) {
            said.notices.extend(found.notices(&object).map(|notice| Notice::new(About::Device, &notice)));
            said.unaccounted.extend(found.doubt(&object));
        }
        let source = Source { uid: Some(Uid::from(&*claim.uid)), ..Source::claim(claim.name.clone()) };
        let is_elsewhere = |result: &DeviceResult| {
            let id = result.id();
            !known.contains_key(&id) && !self.devices.found(&id).is_empty()
        };
        for (i, _) in results.iter().enumerate().filter(|(_, result)| is_elsewhere(result)) {
            let field = format!("status.allocation.devices.results[{i}]").into();
            let (object, why) = (object.as_str().into(), "the device is on another node".into());
            said.waiting.push(Unaccounted { object, field, resource: None, why });
        }
        let device = |result: &DeviceResult| {
            let of_other_node = || is_elsewhere(result).then_some(&elsewhere);
            known.get(&result.id()).map(|found| &*found.device).or_else(of_other_node)
        };
        let containers = of.containers.into_iter().collect();
        let used = ClaimUse { object: object.clone(), source, containers, judgement };
        let cost = cost(used, results, device);
        said.unaccounted.extend(cost.unaccounted);
        let remarks = cost.remarks.iter().map(|remark| format!("{object}: {remark}"));
        said.notices.extend(remarks.map(|remark| Notice::new(About::Device, &remark)));
        cost.contribution
    }
}
