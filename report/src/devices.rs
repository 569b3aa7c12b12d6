//! The devices of a dump, for the claims of waiting Pods that have none yet.

use std::sync::Arc;

use dragoman_accounting::cluster::{ClaimName, ClusterLedger, Pod};
use dragoman_accounting::ledger::fit::Fit;
use dragoman_allocator::input::{Claim, Cluster};
use dragoman_allocator::{Gates, Options, Outcome, Overlay, PodClaims, Snapshot, allocate};
use dragoman_cluster::with_allocation;
use dragoman_objects::{Allocation, DeviceClass, DeviceTaintRule, Name, ResourceClaim, ResourceSlice};
use serde::de::DeserializeOwned;

use crate::objects::{Object, Objects, Text};

/// The work that a Pod may cost on a node, in examined devices. There may be thousands of each.
const BUDGET: u64 = 10_000;

/// The devices, classes and claims of a dump.
pub(crate) struct Devices(Snapshot);

impl Devices {
    /// Returns the devices of a dump; `None` without a `DeviceClass`, because they say what a request
    /// means.
    ///
    /// # Errors
    /// An object does not decode; the text names it.
    pub(crate) fn of(objects: &Objects) -> Result<Option<Self>, String> {
        let mut cluster = Cluster::default();
        for (name, object) in objects.iter() {
            let taken = match object {
                Object::Node(node) => {
                    cluster.nodes.push(node.2.clone());
                    Ok(())
                }
                Object::Slice(_, text) => {
                    read::<ResourceSlice>(text).map(|slice| cluster.slices.push(slice.slice()))
                }
                Object::Class(text) => {
                    read::<DeviceClass>(text).map(|class| cluster.classes.push(class.class()))
                }
                Object::TaintRule(text) => {
                    read::<DeviceTaintRule>(text).map(|rule| cluster.taint_rules.push(rule.rule()))
                }
                Object::Claim(of) => read::<ResourceClaim>(&of.text).and_then(|claim| {
                    let claim = Claim::of(&claim).map_err(|why| why.to_string())?;
                    // Its own uid may be that of another claim.
                    cluster.claims.push(Claim { uid: (*of.accounted.uid).into(), ..claim });
                    Ok(())
                }),
                Object::Pod(_) | Object::Footprint(..) | Object::Unreadable { .. } => Ok(()),
            };
            taken.map_err(|why| format!("{name}: {why}"))?;
        }
        if cluster.classes.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self(Snapshot::default().with(cluster))))
    }

    /// The claims of a Pod, ready to be tried on nodes.
    pub(crate) fn claims(&self, pod: &Pod) -> PodClaims {
        let is_named = |claim: &&Arc<Claim>| {
            *claim.namespace == *pod.view.namespace
                && pod
                    .claims
                    .iter()
                    .any(|of| matches!(&of.claim, ClaimName::Named(name) if **name == *claim.name))
        };
        let claims = self.0.claims().filter(is_named).cloned().collect();
        PodClaims::new(&self.0, claims, Gates::SERVED)
    }

    /// Looks for devices on a node with which the Pod fits there.
    pub(crate) fn on(&self, claims: &PodClaims, pod: &Pod, cluster: &ClusterLedger, node: &str) -> Found {
        let Some(ledger) = cluster.node(node) else {
            return Found::Unknown("the node has no account".to_owned());
        };
        let mut outcome = allocate(&self.0, &Overlay::default(), node, claims, limited(BUDGET));
        let mut refused = None;
        loop {
            let solution = match outcome {
                Outcome::Solution(solution) => solution,
                Outcome::Unsatisfiable(unsolved) => {
                    let words = unsolved.explain().to_string();
                    let words = words.lines().map(str::trim).collect::<Vec<_>>().join("; ");
                    return refused.map_or(Found::None(words), Found::Refused);
                }
                Outcome::NodeError(error) => return Found::None(error.to_string()),
                Outcome::PodError(error) => return Found::None(error.to_string()),
                Outcome::BudgetSpent(_) | Outcome::Cancelled => {
                    return Found::Unknown(
                        "whether the node has the devices: the search takes too long".to_owned(),
                    );
                }
            };
            // Nothing is written: a share needs an identity, and any will do.
            let Ok(found) = solution.allocations(&mut || Name::from("share")) else {
                return Found::Unknown("which nodes can use the devices".to_owned());
            };
            let found: Vec<(&Claim, &Allocation)> = found
                .iter()
                .filter_map(|(uid, of)| Some((&**self.0.claims().find(|claim| claim.uid == *uid)?, of)))
                .collect();
            let given: Vec<_> = found.iter().map(|(claim, of)| with_allocation(claim, of)).collect();
            match ledger.fits(&cluster.candidate_with(pod, node, &given)) {
                Fit::Yes => {
                    return Found::Fits(found.iter().flat_map(|(claim, of)| in_words(claim, of)).collect());
                }
                fit => drop(refused.get_or_insert(fit)),
            }
            // Other devices may take less of the node.
            let left = BUDGET.saturating_sub(solution.work());
            let weight = |driver: &str, pool: &str, device: &str| cluster.weight(node, driver, pool, device);
            outcome = solution.refused(&weight, limited(left));
        }
    }
}

/// Result of the search for devices on a node.
pub(crate) enum Found {
    /// The Pod fits with these devices, in words.
    Fits(Vec<String>),
    /// There are devices, and with none of them the Pod fits: what is against the first.
    Refused(Fit),
    /// There are none; the text says why.
    None(String),
    /// The result is not known; the text names the missing fact.
    Unknown(String),
}

fn limited(budget: u64) -> Options<'static> {
    Options { budget: Some(budget), ..Options::default() }
}

fn in_words<'a>(claim: &'a Claim, allocation: &'a Allocation) -> impl Iterator<Item = String> + 'a {
    allocation.devices.results.iter().map(|of| {
        format!("{}/{}/{} for request {} of claim {}", of.driver, of.pool, of.device, of.request, claim.name)
    })
}

fn read<T: DeserializeOwned>(Text(text): &Text) -> Result<T, String> {
    serde_json::from_str(text).map_err(|why| why.to_string())
}

/// Returns the claims of a Pod that have no devices yet: each in words, and the names of those that may be
/// tried. Without them the cost of the Pod is not known.
pub(crate) fn unallocated(
    pod: &Pod,
    is_allocated: impl Fn(&str) -> bool,
    exists: impl Fn(&str) -> bool,
) -> (Vec<String>, Vec<&str>) {
    let namespace = &pod.view.namespace;
    let (mut waits, mut names) = (Vec::new(), Vec::new());
    for of in &pod.claims {
        match &of.claim {
            ClaimName::Named(name) if is_allocated(name) => {}
            ClaimName::Named(name) => {
                let what = if exists(name) { "is not allocated" } else { "does not exist" };
                waits.push(format!("ResourceClaim {namespace}/{name} {what}"));
                names.push(&**name);
            }
            ClaimName::NotYet => waits.push("a ResourceClaim is not created yet".to_owned()),
            ClaimName::None => {}
        }
    }
    (waits, names)
}
