//! The ledger of a node: allocatable resources, charges, and what is left.
//!
//! A ledger is a function of facts. Every charge is stored under its cause, so adding and removing
//! are exact inverses in any order, and a repeated fact counts once. Charges are whole units, so
//! sums cannot drift. A fact is never refused, even if it overcommits the node, because it has
//! happened; only candidates are refused.

pub mod charge;
pub mod fit;
pub mod holder;
pub mod pools;
mod shared;
pub mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dragoman_objects::{DeviceId, Name};

use crate::Uid;
use crate::amounts::Amounts;
use crate::claim::sharing::Sharing;
use crate::object::ObjectRef;
use crate::per_resource::{PerResource, Sums, Units};
use crate::pod::policy::Incompatible;
use crate::resource::Resource;
use crate::unaccounted::Unaccounted;
use charge::{ClaimCharge, PodCharge};
use pools::Pool;
use shared::Shared;

/// The progress of a Pod towards its node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// The Pod is planned for the node; kube-scheduler does not know it yet.
    #[default]
    Assumed,
    /// The Pod is bound to the node.
    Bound,
    /// The Pod is bound and only holds room for claims, so that a kube-scheduler without KEP-5517
    /// leaves the room free. It takes nothing itself.
    Holder,
}

/// The charge for a claim that several Pods use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Charging {
    /// The devices once, until the last Pod leaves: the actual use.
    #[default]
    PerClaim,
    /// The devices once for every Pod, as kube-scheduler adds up Pod by Pod.
    InTree,
}

/// The kinds of charges, each with a sum of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bucket {
    /// Specs of Pods.
    Pods,
    /// Devices that are node resources: mappings of claims.
    Mapping,
    /// The cost of using devices.
    Overhead,
    /// Amounts that drivers hold: reservations.
    Reservation,
    /// Specs of holders, which take nothing from the node themselves.
    Holders,
}

impl Bucket {
    /// The buckets that take something from the node.
    pub const TAKING: [Self; 4] = [Self::Pods, Self::Mapping, Self::Overhead, Self::Reservation];
}

/// The cause of a charge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Requests in the spec of a Pod.
    Pod(ObjectRef),
    /// Devices of a claim: charged once, whichever Pods use it.
    Mapping(ObjectRef),
    /// Cost of using a claim, for one Pod.
    Overhead {
        /// The Pod.
        pod: ObjectRef,
        /// The claim.
        claim: ObjectRef,
    },
    /// The amount that a driver holds for a device in use.
    Reservation(DeviceId),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(pod) => write!(f, "{pod}"),
            Self::Mapping(claim) => write!(f, "devices of {claim}"),
            Self::Overhead { pod, claim } => write!(f, "use of {claim} by {pod}"),
            Self::Reservation(device) => write!(f, "driver of device {device}"),
        }
    }
}

/// A charge of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The cause.
    pub cause: Cause,
    /// The amount, in units of the resource.
    pub amount: i64,
}

/// A fact that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A claim whose devices are node resources has several consumers; it is charged
    /// once, but Kubernetes would refuse the second.
    #[error("{claim}: its devices are node resources, and {consumers} Pods use it")]
    SharedMapping {
        /// The claim.
        claim: ObjectRef,
        /// Number of consumers.
        consumers: usize,
    },
    /// Containers draw more from claims than the claims have.
    #[error("{0}")]
    Overdrawn(Pool),
    /// Accounting policies of a Pod that cannot be combined.
    #[error("{pod}: {clash}")]
    Incompatible {
        /// The Pod.
        pod: ObjectRef,
        /// The policies, and the rule that forbids the combination.
        clash: Incompatible,
    },
}

/// The ledger of one node.
///
/// Two ledgers are equal if they have the same facts, in whatever order these came: the sums follow
/// from the facts, and the revision only counts how often they changed.
///
/// ```
/// use dragoman_accounting::amounts::Amounts;
/// use dragoman_accounting::ledger::NodeLedger;
/// use dragoman_accounting::ledger::fit::Headroom;
/// use dragoman_accounting::resource::Resource;
/// use dragoman_quantity::Decimal;
///
/// let mut ledger = NodeLedger::default();
/// assert_eq!(ledger.headroom(Resource::Cpu), Headroom::Unknown, "the node is not listed");
/// let mut allocatable = Amounts::default();
/// allocatable.set(Resource::Cpu, Decimal::from(4));
/// ledger.set_allocatable(&allocatable);
/// assert_eq!(ledger.headroom(Resource::Cpu), Headroom::Left(4_000), "in thousandths of a cpu");
/// ```
#[derive(Debug, Clone, Default)]
pub struct NodeLedger {
    charging: Charging,
    /// `None` until the node is listed.
    allocatable: Option<Units>,
    /// The unreadable fields of `status.allocatable`.
    unread_allocatable: Vec<Unaccounted>,
    sums: BTreeMap<Bucket, Sums>,
    /// Shared with copies of the ledger, which are made for every decision about the node.
    pods: BTreeMap<ObjectRef, Arc<PodCharge>>,
    /// Claims with mappings and the Pods that use them.
    claims: BTreeMap<ObjectRef, Shared>,
    /// Devices with reservations and the claims that use them.
    devices: BTreeMap<DeviceId, Shared>,
    /// The unreadable fields of objects other than Pods, by object.
    doubts: BTreeMap<Name, Vec<Unaccounted>>,
    revision: u64,
}

impl PartialEq for NodeLedger {
    fn eq(&self, other: &Self) -> bool {
        self.charging == other.charging
            && self.allocatable == other.allocatable
            && self.unread_allocatable == other.unread_allocatable
            && self.pods == other.pods
            && self.devices == other.devices
            && self.doubts == other.doubts
    }
}

impl Eq for NodeLedger {}

impl NodeLedger {
    /// An empty ledger.
    pub fn new(charging: Charging) -> Self {
        Self { charging, ..Self::default() }
    }

    /// Sets `status.allocatable` of the node.
    pub fn set_allocatable(&mut self, allocatable: &Amounts) {
        // Rounded down, so that a node never has more than it says.
        let has = |resource: Resource, amount: dragoman_quantity::Decimal| {
            let down = amount.rounded_down(resource.unit()).unwrap_or(0);
            i64::try_from(down.max(0)).unwrap_or(i64::MAX)
        };
        let allocatable: Units = allocatable.iter().map(|(r, amount)| (r, has(r, amount))).collect();
        // Kubelets report every few minutes; only a different value is a new revision.
        if self.allocatable.as_ref() != Some(&allocatable) {
            self.allocatable = Some(allocatable);
            self.changed();
        }
    }

    /// Forgets `status.allocatable`: the node is not listed any more.
    pub fn forget_allocatable(&mut self) {
        if self.allocatable.take().is_some() {
            self.changed();
        }
        self.doubt_allocatable(Vec::new());
    }

    /// Replaces the unreadable entries of `status.allocatable`.
    pub fn doubt_allocatable(&mut self, unaccounted: Vec<Unaccounted>) {
        if self.unread_allocatable != unaccounted {
            self.unread_allocatable = unaccounted;
            self.changed();
        }
    }

    /// Charges a Pod, in place of what was charged for it before: also when it is bound
    /// after it was assumed.
    pub fn put_pod(&mut self, pod: impl Into<Arc<PodCharge>>) {
        let mut pod = pod.into();
        self.share_names(&mut pod);
        let object = pod.object.clone();
        match self.pods.get_mut(&object) {
            Some(known) if *known == pod => return,
            Some(known) => {
                // Emptied in place: the entry is filled again below.
                let before = std::mem::take(known);
                self.discharge(&before, &pod.claims);
            }
            None => {}
        }
        self.sum(bucket(pod.stage)).add(&pod.spec);
        for claim in &pod.claims {
            self.sum(Bucket::Overhead).add(&claim.overhead);
            self.share(claim, &object);
        }
        self.pods.insert(object, pod);
        self.changed();
    }

    /// Replaces the references in a charge by equal ones of the ledger: equal ones share a text.
    fn share_names(&self, pod: &mut Arc<PodCharge>) {
        let object = self.pods.get_key_value(&pod.object).map(|(known, _)| known);
        if object.is_none() && pod.claims.iter().all(|claim| !self.claims.contains_key(&claim.object)) {
            return;
        }
        let pod = Arc::make_mut(pod);
        if let Some(known) = object {
            pod.object = known.clone();
        }
        for claim in &mut pod.claims {
            if let Some((known, _)) = self.claims.get_key_value(&claim.object) {
                claim.object = known.clone();
            }
        }
    }

    /// A Pod is gone or done. Unknown ones are fine.
    pub fn remove_pod(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else { return };
        self.discharge(&pod, &[]);
        self.changed();
    }

    /// Takes back the charge for a Pod. Shared charges of the claims in `kept` stay, because
    /// `put_pod` replaces them.
    fn discharge(&mut self, pod: &PodCharge, kept: &[ClaimCharge]) {
        self.sum(bucket(pod.stage)).take(&pod.spec);
        for claim in &pod.claims {
            self.sum(Bucket::Overhead).take(&claim.overhead);
            if !kept.iter().any(|kept| kept.object == claim.object && maps(kept)) {
                self.unshare(&claim.object, pod.object.uid());
            }
        }
    }

    fn share(&mut self, claim: &ClaimCharge, pod: &ObjectRef) {
        if !maps(claim) {
            return;
        }
        let shared = self.claims.entry(claim.object.clone()).or_default();
        let before = shared.charged(self.charging);
        shared.put(pod.clone(), claim.mapping.clone());
        let after = shared.charged(self.charging);
        self.recharge(Bucket::Mapping, &before, &after);
    }

    fn unshare(&mut self, claim: &ObjectRef, pod: &str) {
        let Some(shared) = self.claims.get_mut(claim) else { return };
        let before = shared.charged(self.charging);
        shared.remove(pod);
        let after = shared.charged(self.charging);
        if shared.users().len() == 0 {
            self.claims.remove(claim);
        }
        self.recharge(Bucket::Mapping, &before, &after);
    }

    /// Charges `reservation` for a device that a claim uses. Several claims of one device are
    /// charged once (KEP-6352).
    pub fn use_device(&mut self, device: DeviceId, claim: Uid, reservation: &Amounts) {
        let units = reservation.iter().map(|(r, amount)| (r, charge::units(r, amount))).collect();
        let known = self.devices.entry(device).or_default();
        let before = known.clone();
        known.put(ObjectRef::from(claim), units);
        if *known != before {
            // A reservation is charged once for the device under either charging.
            let after = known.charged(Charging::PerClaim);
            self.recharge(Bucket::Reservation, &before.charged(Charging::PerClaim), &after);
            self.changed();
        }
    }

    /// Ends the use of a device by a claim. An unknown device or claim is ignored.
    pub fn leave_device(&mut self, device: &DeviceId, claim: &str) {
        let Some(known) = self.devices.get_mut(device) else { return };
        let before = known.clone();
        known.remove(claim);
        if *known != before {
            let after = known.charged(Charging::PerClaim);
            if known.users().len() == 0 {
                self.devices.remove(device);
            }
            self.recharge(Bucket::Reservation, &before.charged(Charging::PerClaim), &after);
            self.changed();
        }
    }

    /// Replaces the unreadable entries of `object` (a slice or an unreferenced claim). An empty list
    /// clears them.
    pub fn doubt(&mut self, object: &str, unaccounted: Vec<Unaccounted>) {
        let before = self.doubts.remove(object);
        if before.unwrap_or_default() != unaccounted {
            self.changed();
        }
        if !unaccounted.is_empty() {
            self.doubts.insert(object.into(), unaccounted);
        }
    }

    fn recharge(&mut self, bucket: Bucket, before: &Units, after: &Units) {
        self.sum(bucket).take(before);
        self.sum(bucket).add(after);
    }

    fn sum(&mut self, bucket: Bucket) -> &mut Sums {
        self.sums.entry(bucket).or_default()
    }

    fn changed(&mut self) {
        self.revision += 1;
        // At powers of two only: often while the ledger is small, seldom later.
        debug_assert!(!self.revision.is_power_of_two() || self.is_consistent(), "sums have drifted");
    }

    // Queries.

    /// The revision, which increases with every change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The sum of the charges in one bucket.
    pub fn charged(&self, bucket: Bucket, resource: Resource) -> i128 {
        self.sums.get(&bucket).map_or(0, |sums| sums.get(resource))
    }

    /// The sum of all charges that take something from the node.
    pub fn requested(&self, resource: Resource) -> i128 {
        Bucket::TAKING.into_iter().map(|bucket| self.charged(bucket, resource)).sum()
    }

    /// The allocatable amount; zero until the node is listed.
    pub fn allocatable(&self, resource: Resource) -> i64 {
        self.allocatable.as_ref().map_or(0, |has| has.get(resource))
    }

    /// Every resource that the node has or that is taken from it, sorted.
    pub fn resources(&self) -> Vec<Resource> {
        let taken = Bucket::TAKING.iter().filter_map(|bucket| self.sums.get(bucket));
        let taken = taken.flat_map(|sums| sums.iter().map(|(resource, _)| resource));
        let mut all: Vec<Resource> =
            self.allocatable.iter().flat_map(PerResource::iter).map(|(r, _)| r).chain(taken).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether it charges no Pod, and no device is in use.
    pub(crate) fn is_idle(&self) -> bool {
        self.pods.is_empty() && self.devices.is_empty()
    }

    /// The Pods, with what each of them takes.
    pub fn pods(&self) -> impl Iterator<Item = &PodCharge> {
        self.pods.values().map(|pod| &**pod)
    }

    /// All unreadable fields.
    pub fn unaccounted(&self) -> impl Iterator<Item = &Unaccounted> {
        let others = self.doubts.values().flatten().chain(&self.unread_allocatable);
        self.pods().flat_map(PodCharge::unaccounted).chain(others)
    }

    /// The holdings of a resource, the largest first.
    pub fn who_has(&self, resource: Resource) -> Vec<Holding> {
        let mut holdings = Vec::new();
        let mut hold = |cause: Cause, units: &Units| {
            let amount = units.get(resource);
            if amount != 0 {
                holdings.push(Holding { cause, amount });
            }
        };
        for pod in self.pods.values() {
            if Bucket::TAKING.contains(&bucket(pod.stage)) {
                hold(Cause::Pod(pod.object.clone()), &pod.spec);
            }
            for claim in &pod.claims {
                let cause = Cause::Overhead { pod: pod.object.clone(), claim: claim.object.clone() };
                hold(cause, &claim.overhead);
            }
        }
        for (claim, shared) in &self.claims {
            hold(Cause::Mapping(claim.clone()), &shared.charged(self.charging));
        }
        for (device, shared) in &self.devices {
            hold(Cause::Reservation(device.clone()), &shared.charged(Charging::PerClaim));
        }
        holdings.sort_by(|a, b| b.amount.cmp(&a.amount).then_with(|| a.cause.cmp(&b.cause)));
        holdings
    }

    /// All violations on the node.
    pub fn violations(&self) -> Vec<Violation> {
        let mut violations: Vec<_> =
            self.claims.keys().filter_map(|claim| self.shared_mapping(claim)).collect();
        violations.extend(self.pods().flat_map(incompatible));
        violations.extend(self.pools().into_iter().filter(|pool| pool.short > 0).map(Violation::Overdrawn));
        violations
    }

    /// The violations of a Pod, and of the claims that it shares with others.
    pub fn violations_of(&self, pod: &str) -> Vec<Violation> {
        let Some(pod) = self.pods.get(pod) else { return Vec::new() };
        let shared = pod.claims.iter().filter_map(|claim| self.shared_mapping(&claim.object));
        let mut violations: Vec<_> = shared.chain(incompatible(pod)).collect();
        if !pod.draws().is_empty() {
            let concerned = |pool: &Pool| pool.consumers.contains(&pod.object) && pool.short > 0;
            violations.extend(self.pools().into_iter().filter(concerned).map(Violation::Overdrawn));
        }
        violations
    }

    fn shared_mapping(&self, claim: &ObjectRef) -> Option<Violation> {
        let consumers = self.claims.get(claim)?.users().len();
        let shared = consumers > 1 && self.is_one_pods(claim);
        shared.then(|| Violation::SharedMapping { claim: claim.clone(), consumers })
    }

    /// Whether a Pod that uses the claim says that no other may.
    fn is_one_pods(&self, claim: &ObjectRef) -> bool {
        let users = self.claims.get(claim).into_iter().flat_map(Shared::users);
        let mut charges =
            users.filter_map(|pod| self.pods.get(pod)?.claims.iter().find(|c| c.object == *claim));
        charges.any(|charge| charge.sharing == Sharing::OnePod)
    }

    /// Whether the sums equal those computed from the facts.
    pub fn is_consistent(&self) -> bool {
        let mut sums: BTreeMap<Bucket, Sums> = BTreeMap::new();
        let mut claims: BTreeMap<&ObjectRef, Shared> = BTreeMap::new();
        for pod in self.pods.values() {
            sums.entry(bucket(pod.stage)).or_default().add(&pod.spec);
            for claim in &pod.claims {
                sums.entry(Bucket::Overhead).or_default().add(&claim.overhead);
                if maps(claim) {
                    let shared = claims.entry(&claim.object).or_default();
                    shared.put(pod.object.clone(), claim.mapping.clone());
                }
            }
        }
        for claim in claims.values() {
            sums.entry(Bucket::Mapping).or_default().add(&claim.charged(self.charging));
        }
        for device in self.devices.values() {
            sums.entry(Bucket::Reservation).or_default().add(&device.charged(Charging::PerClaim));
        }
        let known = self.sums.iter().filter(|(_, sums)| !sums.is_empty());
        known.eq(sums.iter().filter(|(_, sums)| !sums.is_empty()))
    }
}

fn bucket(stage: Stage) -> Bucket {
    match stage {
        Stage::Assumed | Stage::Bound => Bucket::Pods,
        Stage::Holder => Bucket::Holders,
    }
}

/// Whether the charge of a claim is shared between its Pods: it maps something, even if within the
/// Pod-level budget of this Pod.
fn maps(claim: &ClaimCharge) -> bool {
    claim.sharing == Sharing::OnePod || !claim.mapping.is_empty()
}

fn incompatible(pod: &PodCharge) -> impl Iterator<Item = Violation> {
    let clashes = pod.rare.iter().flat_map(|rare| &rare.incompatible);
    clashes.map(|clash| Violation::Incompatible { pod: pod.object.clone(), clash: clash.clone() })
}
