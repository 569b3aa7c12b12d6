//! What a node has, who has it, and what is left.
//!
//! A ledger is a function of facts: every charge stands under a key that names its cause,
//! so adding and removing are exact inverses in any order, and the same fact twice counts
//! once. Amounts are rounded up once, when they are charged, to the unit in which a node
//! counts; sums of such integers cannot drift. Adding a fact never fails because it does
//! not fit: it happened. Only questions are refused.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_quantity::Decimal;

use crate::amounts::Amounts;
use crate::contribution::Contribution;
use crate::resource::Resource;
use crate::unaccounted::Unaccounted;

/// Whole units of each resource: thousandths of cpu, bytes and pages' bytes of the rest.
pub type Units = BTreeMap<Resource, i128>;

/// Any uid.
pub type Uid = Box<str>;

/// How far a Pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It is meant for the node and on its way; kube-scheduler does not know yet.
    Assumed,
    /// It has the node.
    Bound,
}

/// A Pod with everything it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodCharge {
    /// Its uid.
    pub uid: Uid,
    /// How far it is.
    pub stage: Stage,
    /// What its spec requests, claims left out (see [`crate::requests`]).
    pub spec: Amounts,
    /// Its claims.
    pub claims: Vec<ClaimCharge>,
    /// What of it could not be read.
    pub unaccounted: Vec<Unaccounted>,
}

/// A claim of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimCharge {
    /// Its uid.
    pub uid: Uid,
    /// What it brings along for this Pod.
    pub contribution: Contribution,
    /// Whether the status of the Pod says so to kube-scheduler (KEP-5517 switched on).
    pub published: bool,
}

/// A device of the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId {
    /// Its driver.
    pub driver: Box<str>,
    /// Its pool.
    pub pool: Box<str>,
    /// Its name.
    pub device: Box<str>,
}

/// The cause of a charge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// What a Pod's spec requests.
    Pod(Uid),
    /// What the devices of a claim are: once, whoever uses it.
    Mapping(Uid),
    /// What using a claim costs a Pod.
    Overhead { pod: Uid, claim: Uid },
    /// What a driver holds for a device in use.
    Reservation(DeviceId),
}

/// What charges are summed up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bucket {
    /// Specs of Pods.
    Pods,
    /// Devices that are node resources.
    Mapping,
    /// The cost of using devices.
    Overhead,
    /// What drivers hold.
    Reservation,
}

impl Key {
    fn bucket(&self) -> Bucket {
        match self {
            Self::Pod(_) => Bucket::Pods,
            Self::Mapping(_) => Bucket::Mapping,
            Self::Overhead { .. } => Bucket::Overhead,
            Self::Reservation(_) => Bucket::Reservation,
        }
    }
}

/// Something that is so, and should not be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A claim whose devices are node resources has several consumers; it is charged
    /// once, but Kubernetes would refuse the second.
    #[error("claim {claim}: its devices are node resources, and {consumers} Pods use it")]
    SharedMapping {
        /// Uid of the claim.
        claim: Uid,
        /// How many.
        consumers: usize,
    },
}

/// The ledger of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeLedger {
    allocatable: Units,
    charges: BTreeMap<Key, Units>,
    sums: BTreeMap<(Bucket, Resource), i128>,
    pods: BTreeMap<Uid, PodCharge>,
    /// Claims with mappings → the Pods that use them.
    consumers: BTreeMap<Uid, BTreeSet<Uid>>,
    /// Devices with reservations → the claims that use them.
    users: BTreeMap<DeviceId, BTreeSet<Uid>>,
    unaccounted: BTreeMap<Uid, Vec<Unaccounted>>,
    revision: u64,
}

/// What is left of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headroom {
    /// So much; below zero where the node is overcommitted.
    Left(i128),
    /// Something that takes of it could not be read.
    Unknown,
}

/// Whether more fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// It does.
    Yes,
    /// It does not now.
    Missing {
        /// Resource → how much is missing.
        missing: Units,
    },
    /// The node is too small, whoever leaves.
    Never {
        /// Resource → what the node has of it.
        allocatable: Units,
    },
    /// Facts about these resources could not be read: nobody knows.
    Unknown(BTreeSet<Resource>),
}

impl NodeLedger {
    /// `status.allocatable` of the node.
    pub fn set_allocatable(&mut self, allocatable: &Amounts) {
        // Rounded down: what a node has must not be more than it has.
        let has = |amount: Decimal, unit| amount.rounded_down(unit).unwrap_or(0).clamp(0, i64::MAX.into());
        let allocatable = allocatable.iter().map(|(r, amount)| (r.clone(), has(amount, r.unit()))).collect();
        // A node says this every few minutes; only news make a new revision.
        if self.allocatable != allocatable {
            self.allocatable = allocatable;
            self.revision += 1;
        }
    }

    /// Charges a Pod, in place of what was charged for it before.
    pub fn put_pod(&mut self, pod: PodCharge) -> Vec<Violation> {
        if self.pods.get(&pod.uid).is_some_and(|known| *known == pod) {
            return self.violations(&pod);
        }
        let revision = self.revision + 1;
        self.remove_pod(&pod.uid);
        let mut unaccounted = pod.unaccounted.clone();
        self.charge(Key::Pod(pod.uid.clone()), &pod.spec);
        for ClaimCharge { uid, contribution, .. } in &pod.claims {
            let object = format!("{} {}", contribution.source.kind, contribution.source.name);
            let mut sum = |amounts: Result<Amounts, _>| -> Amounts {
                amounts.unwrap_or_else(|overflow: dragoman_quantity::Overflow| {
                    unaccounted.push(doubt(&object, "status.allocation", None, &overflow.to_string()));
                    Amounts::default()
                })
            };
            let (mapping, overhead) = (sum(contribution.mapping()), sum(contribution.overhead()));
            let key = Key::Overhead { pod: pod.uid.clone(), claim: uid.clone() };
            self.charge(key, &overhead);
            if !mapping.is_empty() {
                self.consumers.entry(uid.clone()).or_default().insert(pod.uid.clone());
            }
        }
        let violations = self.violations(&pod);
        if !unaccounted.is_empty() {
            self.unaccounted.insert(pod.uid.clone(), unaccounted);
        }
        let claims: Vec<Uid> = pod.claims.iter().map(|claim| claim.uid.clone()).collect();
        self.pods.insert(pod.uid.clone(), pod);
        claims.iter().for_each(|claim| self.charge_mapping(claim));
        self.revision = revision;
        violations
    }

    fn violations(&self, pod: &PodCharge) -> Vec<Violation> {
        let shared = pod.claims.iter().filter_map(|claim| {
            let consumers = self.consumers.get(&claim.uid)?.len();
            (consumers > 1).then(|| Violation::SharedMapping { claim: claim.uid.clone(), consumers })
        });
        shared.collect()
    }

    /// A Pod is gone or done. Unknown ones are fine.
    pub fn remove_pod(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else { return };
        self.unaccounted.remove(uid);
        self.discharge(&Key::Pod(uid.into()));
        for ClaimCharge { uid: claim, .. } in &pod.claims {
            self.discharge(&Key::Overhead { pod: uid.into(), claim: claim.clone() });
            if let Some(consumers) = self.consumers.get_mut(claim) {
                consumers.remove(uid);
                if consumers.is_empty() {
                    self.consumers.remove(claim);
                }
                self.charge_mapping(claim);
            }
        }
        self.revision += 1;
    }

    /// The mapping of a claim is what the Pods that use it say. It costs the same for all
    /// of them; where records differ the larger counts, so that no order of events makes
    /// a difference.
    fn charge_mapping(&mut self, claim: &Uid) {
        let mut units = Units::new();
        for user in self.consumers.get(claim).into_iter().flatten() {
            let claims = self.pods.get(user).into_iter().flat_map(|pod| &pod.claims);
            for charge in claims.filter(|charge| charge.uid == *claim) {
                // What cannot be summed was said when the Pod was charged.
                for (resource, amount) in charge.contribution.mapping().unwrap_or_default().without_zeros() {
                    let count = charged(&resource, amount);
                    let most = units.entry(resource).or_default();
                    *most = count.max(*most);
                }
            }
        }
        let key = Key::Mapping(claim.clone());
        self.discharge(&key);
        self.enter(key, units);
    }

    /// A claim uses a device for which its driver holds `reservation`.
    pub fn use_device(&mut self, device: DeviceId, claim: Uid, reservation: &Amounts) {
        let users = self.users.entry(device.clone()).or_default();
        if users.insert(claim) && users.len() == 1 {
            self.charge(Key::Reservation(device), reservation);
            self.revision += 1;
        }
    }

    /// A claim no longer uses a device. Unknown ones are fine.
    pub fn leave_device(&mut self, device: &DeviceId, claim: &str) {
        let Some(users) = self.users.get_mut(device) else { return };
        if users.remove(claim) && users.is_empty() {
            self.users.remove(device);
            self.discharge(&Key::Reservation(device.clone()));
            self.revision += 1;
        }
    }

    fn charge(&mut self, key: Key, amounts: &Amounts) {
        self.discharge(&key);
        let amounts = amounts.iter().filter(|(_, amount)| !amount.is_zero());
        let units = amounts.map(|(resource, amount)| (resource.clone(), charged(resource, amount)));
        self.enter(key, units.collect());
    }

    fn enter(&mut self, key: Key, units: Units) {
        for (resource, count) in &units {
            *self.sums.entry((key.bucket(), resource.clone())).or_default() += count;
        }
        if !units.is_empty() {
            self.charges.insert(key, units);
        }
    }

    fn discharge(&mut self, key: &Key) {
        for (resource, count) in self.charges.remove(key).unwrap_or_default() {
            let at = (key.bucket(), resource);
            if let Some(sum) = self.sums.get_mut(&at) {
                *sum -= count;
                if *sum == 0 {
                    self.sums.remove(&at);
                }
            }
        }
    }

    // Questions.

    /// Rises with every change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// What the charges of one kind sum up to.
    pub fn sum(&self, bucket: Bucket, resource: &Resource) -> i128 {
        self.sums.get(&(bucket, resource.clone())).copied().unwrap_or_default()
    }

    /// What is taken in all.
    pub fn requested(&self, resource: &Resource) -> i128 {
        let buckets = [Bucket::Pods, Bucket::Mapping, Bucket::Overhead, Bucket::Reservation];
        buckets.into_iter().map(|bucket| self.sum(bucket, resource)).sum()
    }

    /// Everything that could not be read.
    pub fn unaccounted(&self) -> impl Iterator<Item = &Unaccounted> {
        self.unaccounted.values().flatten()
    }

    /// What is left.
    pub fn headroom(&self, resource: &Resource) -> Headroom {
        if self.unaccounted().any(|u| u.resource.as_ref().is_none_or(|r| r == resource)) {
            return Headroom::Unknown;
        }
        let allocatable = self.allocatable.get(resource).copied().unwrap_or_default();
        Headroom::Left(allocatable - self.requested(resource))
    }

    /// Whether `more` fits besides everything that is there. What is not asked for is not
    /// looked at: an overcommitted resource keeps nobody out who needs none of it.
    pub fn fits(&self, more: &Amounts) -> Fit {
        let (mut missing, mut never, mut unknown) = (Units::new(), Units::new(), BTreeSet::new());
        for (resource, amount) in more.iter().filter(|(_, amount)| !amount.is_zero()) {
            let allocatable = self.allocatable.get(resource).copied().unwrap_or_default();
            match (amount.rounded_up(resource.unit()), self.headroom(resource)) {
                (Ok(need), _) if need > allocatable => {
                    never.insert(resource.clone(), allocatable);
                }
                (Ok(need), Headroom::Left(left)) if need > left => {
                    missing.insert(resource.clone(), need - left);
                }
                (Ok(_), Headroom::Left(_)) => {}
                (Ok(_), Headroom::Unknown) => {
                    unknown.insert(resource.clone());
                }
                (Err(_), _) => {
                    never.insert(resource.clone(), allocatable);
                }
            }
        }
        if !never.is_empty() {
            Fit::Never { allocatable: never }
        } else if !missing.is_empty() {
            Fit::Missing { missing }
        } else if !unknown.is_empty() {
            Fit::Unknown(unknown)
        } else {
            Fit::Yes
        }
    }

    /// What a kube-scheduler that knows nothing of claims does not see: the truth less
    /// the specs of bound Pods, never below zero. A holder Pod that requests this much
    /// makes it see the ledger. What the status of a Pod already says of a claim
    /// (`published`) is seen by a scheduler that reads it, and left out.
    pub fn unseen(&self) -> Units {
        let mut seen: Units = Units::new();
        let mut mapped: BTreeSet<&Uid> = BTreeSet::new();
        for pod in self.pods.values().filter(|pod| pod.stage == Stage::Bound) {
            let mut keys = vec![Key::Pod(pod.uid.clone())];
            for claim in pod.claims.iter().filter(|claim| claim.published) {
                keys.push(Key::Overhead { pod: pod.uid.clone(), claim: claim.uid.clone() });
                if mapped.insert(&claim.uid) {
                    keys.push(Key::Mapping(claim.uid.clone()));
                }
            }
            for (resource, count) in keys.iter().filter_map(|key| self.charges.get(key)).flatten() {
                *seen.entry(resource.clone()).or_default() += count;
            }
        }
        let resources: BTreeSet<&Resource> = self.sums.keys().map(|(_, resource)| resource).collect();
        let unseen = resources.into_iter().map(|resource| {
            let hidden = self.requested(resource) - seen.get(resource).copied().unwrap_or_default();
            (resource.clone(), hidden)
        });
        unseen.filter(|(_, hidden)| *hidden > 0).collect()
    }

    /// The sums from scratch, for checks: equal to what is kept.
    pub fn recomputed(&self) -> BTreeMap<(Bucket, Resource), i128> {
        let mut sums = BTreeMap::new();
        for (key, units) in &self.charges {
            for (resource, count) in units {
                *sums.entry((key.bucket(), resource.clone())).or_default() += count;
            }
        }
        sums
    }

    /// The sums that are kept.
    pub fn sums(&self) -> &BTreeMap<(Bucket, Resource), i128> {
        &self.sums
    }
}

/// An amount as it is charged: rounded up, and at most what an `i64` holds. Nothing on a
/// computer is larger, whatever somebody wrote into a Pod, and the sum of as many such
/// charges as there can be Pods fits an `i128`.
fn charged(resource: &Resource, amount: Decimal) -> i128 {
    let most = i128::from(i64::MAX);
    amount.rounded_up(resource.unit()).unwrap_or(most).clamp(0, most)
}

fn doubt(object: &str, field: &str, resource: Option<Resource>, why: &str) -> Unaccounted {
    Unaccounted { object: object.into(), field: field.into(), resource, why: why.into() }
}
