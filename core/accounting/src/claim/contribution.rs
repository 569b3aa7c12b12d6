//! The contribution of a claim to one Pod.

use std::collections::BTreeSet;

use dragoman_objects::Name;
use dragoman_quantity::{Decimal, Overflow};

use crate::Uid;
use crate::amounts::Amounts;
use crate::claim::footprint::AccountingPolicy;
use crate::resource::Resource;

/// The amounts that a Pod gets through one object, nearly always a claim.
///
/// There is one line for each resource, driver and policy. Sums by resource would not be enough:
/// `Max` and `ConsumeFrom` depend on which containers name the claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contribution {
    /// The object that the amounts come from.
    pub source: Source,
    /// The containers of the Pod that name the claim, init containers included.
    pub containers: BTreeSet<Name>,
    /// The amounts.
    pub lines: Vec<Line>,
    /// Whether the status records one total (Kubernetes 1.36). Mapping and overhead cannot be told
    /// apart in a total, so limits of containers cannot be derived from it.
    pub legacy_total: bool,
    /// The generation of Pod status that the contribution was read from; `None` if it was computed.
    pub recorded: Option<Generation>,
}

/// A generation of the fields about claims in Pod status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// The draft of KEP-5517, which no kube-scheduler reads.
    Draft,
    /// Kubernetes 1.36.
    V1_36,
    /// Kubernetes 1.37.
    V1_37,
    /// Kubernetes 1.38.
    V1_38,
}

/// The object behind a contribution, in the namespace of its Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The API group.
    pub api_group: Name,
    /// The kind.
    pub kind: Name,
    /// The name.
    pub name: Name,
    /// The uid, if it is known.
    pub uid: Option<Uid>,
}

impl Source {
    /// The ResourceClaim of this name.
    pub fn claim(name: impl Into<Name>) -> Self {
        Self {
            api_group: "resource.k8s.io".into(),
            kind: "ResourceClaim".into(),
            name: name.into(),
            uid: None,
        }
    }

    /// Whether both can be the same object. A missing uid matches any uid.
    pub fn is(&self, other: &Self) -> bool {
        let same_uid = self.uid.is_none() || other.uid.is_none() || self.uid == other.uid;
        let named = (&self.name, &self.kind, &self.api_group);
        same_uid && named == (&other.name, &other.kind, &other.api_group)
    }
}

/// The amounts of one resource from one driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The resource.
    pub resource: Resource,
    /// The driver; empty if the record does not name it.
    pub driver: Name,
    /// The rule by which the line adds up with others; `None`: as Kubernetes does.
    pub policy: Option<AccountingPolicy>,
    /// The amount that the devices are.
    pub mapping: Option<Decimal>,
    /// The cost of use for each Pod.
    pub per_pod: Option<Decimal>,
    /// The cost of use for each container that names the claim.
    pub per_container: Option<Decimal>,
    /// Whether a DeviceFootprint defines the line. Kubernetes knows nothing of such amounts.
    pub local: bool,
}

impl Line {
    /// A line without amounts.
    pub fn empty(resource: Resource) -> Self {
        let driver = Name::default();
        Self {
            resource,
            driver,
            policy: None,
            mapping: None,
            per_pod: None,
            per_container: None,
            local: false,
        }
    }

    /// A line with a mapping only.
    pub fn mapping(resource: Resource, amount: Decimal) -> Self {
        Self { mapping: Some(amount), ..Self::empty(resource) }
    }

    /// Mapping, overhead per Pod, and overhead per container times `containers`.
    fn counted(&self, containers: usize) -> Result<Decimal, Overflow> {
        let once = self.mapping.unwrap_or_default().checked_add(self.per_pod.unwrap_or_default())?;
        match self.per_container {
            Some(each) => once.checked_add(each.checked_mul(number(containers)?)?),
            None => Ok(once),
        }
    }
}

impl Contribution {
    /// The lines of one resource.
    pub fn of(&self, resource: Resource) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.resource == resource)
    }

    /// The amount of `resource` for the Pod as a whole, all its containers together.
    ///
    /// # Errors
    /// The sum does not fit into a `Decimal`.
    pub fn counted(&self, resource: Resource) -> Result<Decimal, Overflow> {
        let containers = self.containers.len();
        self.of(resource).try_fold(Decimal::ZERO, |sum, line| sum.checked_add(line.counted(containers)?))
    }

    /// The amounts for the Pod as a whole, all its containers together.
    ///
    /// # Errors
    /// A sum does not fit into a `Decimal`.
    pub fn total(&self) -> Result<Amounts, Overflow> {
        self.sum(self.containers.len())
    }

    /// The amounts for one container that names the claim: all but the overhead of the other
    /// containers.
    ///
    /// # Errors
    /// A sum does not fit into a `Decimal`.
    pub fn share(&self) -> Result<Amounts, Overflow> {
        self.sum(1)
    }

    fn sum(&self, containers: usize) -> Result<Amounts, Overflow> {
        let mut sum = Amounts::default();
        for line in &self.lines {
            sum.add(line.resource, line.counted(containers)?)?;
        }
        Ok(sum)
    }
}

/// Converts a count into a number.
pub(crate) fn number(count: usize) -> Result<Decimal, Overflow> {
    i64::try_from(count).map(Decimal::from).map_err(|_| Overflow)
}

/// A difference between the two sources for a claim: the record in the Pod's status, and the
/// computation from its allocation and today's slices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource} of {} {}: {recorded} was recorded when it was allocated, {} follows from today's slices",
    of.kind, of.name, said(*computed))]
pub struct Drift {
    /// The claim.
    pub of: Source,
    /// The resource.
    pub resource: Resource,
    /// The amount in the Pod's status. It counts.
    pub recorded: Decimal,
    /// The amount that follows from today's slices, without DeviceFootprints; `None` if it does not
    /// fit into a `Decimal`.
    pub computed: Option<Decimal>,
}

fn said(amount: Option<Decimal>) -> String {
    amount.map_or_else(|| "more than can be held".to_owned(), |amount| amount.to_string())
}

/// Merges the recorded and the computed contributions, resource by resource. A recorded amount
/// counts, because an allocation does not change when its slice is edited later. If both amounts
/// are equal, the computed lines are kept, which also name drivers and policies. Computed lines
/// without a record are kept too: resources that the record does not mention, and amounts from a
/// DeviceFootprint.
pub fn reconciled(
    recorded: &[Contribution],
    mut computed: Vec<Contribution>,
) -> (Vec<Contribution>, Vec<Drift>) {
    let (mut drifts, mut kept) = (Vec::new(), Vec::new());
    for known in &mut computed {
        // Several records of one claim add up.
        let records: Vec<&Contribution> =
            recorded.iter().filter(|record| known.source.is(&record.source)).collect();
        let lines = records.iter().flat_map(|record| &record.lines);
        let resources: BTreeSet<Resource> = lines.map(|line| line.resource).collect();
        for resource in resources {
            let said = records.iter().map(|record| record.counted(resource));
            let said = said.into_iter().try_fold(Decimal::ZERO, |sum, more| sum.checked_add(more?));
            // Recorded amounts are capped, so that their sum does not overflow.
            let Ok(said) = said else { continue };
            let by_slices = Contribution {
                lines: known.lines.iter().filter(|line| !line.local).cloned().collect(),
                ..known.clone()
            };
            let (now, all) = (by_slices.counted(resource).ok(), known.counted(resource).ok());
            if [now, all].contains(&Some(said)) {
                continue;
            }
            let computed = if by_slices.of(resource).next().is_some() { now } else { all };
            drifts.push(Drift { of: known.source.clone(), resource, recorded: said, computed });
            let (driver, policy) = names(&by_slices, resource);
            // Where slices say something, their scheduler recorded that, and knew no DeviceFootprint.
            let sliced = by_slices.of(resource).next().is_some();
            known.lines.retain(|line| line.resource != resource || (line.local && sliced));
            kept.extend(records.iter().map(|record| {
                let line = |line: &Line| Line { driver: driver.clone(), policy, ..line.clone() };
                let lines = record.of(resource).map(line).collect();
                Contribution { source: known.source.clone(), lines, ..(*record).clone() }
            }));
        }
    }
    let alone = |record: &&Contribution| !computed.iter().any(|known| known.source.is(&record.source));
    kept.extend(recorded.iter().filter(alone).cloned());
    computed.extend(kept);
    computed.retain(|contribution| !contribution.lines.is_empty());
    (computed, drifts)
}

/// The driver and the policy of a resource, which are not recorded; defaults if its lines disagree.
fn names(claim: &Contribution, resource: Resource) -> (Name, Option<AccountingPolicy>) {
    let all: BTreeSet<_> = claim.of(resource).map(|line| (&line.driver, line.policy)).collect();
    match all.first() {
        Some((driver, policy)) if all.len() == 1 => ((*driver).clone(), *policy),
        _ => Default::default(),
    }
}
