//! What a claim brings along for one Pod.

use std::collections::BTreeSet;

use dragoman_quantity::{Decimal, Overflow};

use crate::amounts::Amounts;
use crate::footprint::AccountingPolicy;
use crate::pod::PodSpecView;
use crate::resource::Resource;

/// What a Pod gets through one object, nearly always a claim.
///
/// One line for each resource, driver and policy: which containers take the larger of
/// two amounts, and which draw from a pool, cannot be computed from sums.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contribution {
    /// Where it comes from.
    pub source: Source,
    /// The Pod's containers, init containers among them, that name the claim.
    pub containers: BTreeSet<Box<str>>,
    /// The amounts.
    pub lines: Vec<Line>,
    /// It was recorded as one total (Kubernetes 1.36): what of it is mapping and what
    /// overhead is not known, and limits of containers cannot be derived.
    pub legacy_total: bool,
}

/// The object behind a contribution, in the namespace of its Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// Its API group.
    pub api_group: Box<str>,
    /// Its kind.
    pub kind: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its uid, where it is known.
    pub uid: Option<Box<str>>,
}

impl Source {
    /// The ResourceClaim of this name.
    pub fn claim(name: impl Into<Box<str>>) -> Self {
        Self {
            api_group: "resource.k8s.io".into(),
            kind: "ResourceClaim".into(),
            name: name.into(),
            uid: None,
        }
    }
}

/// The amounts of one resource from one driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The resource.
    pub resource: Resource,
    /// The driver; empty where the record does not say.
    pub driver: Box<str>,
    /// How it adds up with others; `None`: as Kubernetes does.
    pub policy: Option<AccountingPolicy>,
    /// What the devices are.
    pub mapping: Option<Decimal>,
    /// What using them costs each Pod.
    pub per_pod: Option<Decimal>,
    /// What using them costs each container that names the claim.
    pub per_container: Option<Decimal>,
}

impl Line {
    /// A line with a mapping only.
    pub fn mapping(resource: Resource, amount: Decimal) -> Self {
        Self {
            resource,
            driver: Box::default(),
            policy: None,
            mapping: Some(amount),
            per_pod: None,
            per_container: None,
        }
    }

    fn once(&self) -> Result<Decimal, Overflow> {
        self.mapping.unwrap_or_default().checked_add(self.per_pod.unwrap_or_default())
    }
}

impl Contribution {
    /// What counts once for the Pod, however many containers name the claim.
    ///
    /// # Errors
    /// A sum cannot be held.
    pub fn once(&self) -> Result<Amounts, Overflow> {
        let mut once = Amounts::default();
        self.lines.iter().try_for_each(|line| once.add(&line.resource, line.once()?))?;
        Ok(once)
    }

    /// What the devices are, for the claim, whoever uses it.
    ///
    /// # Errors
    /// A sum cannot be held.
    pub fn mapping(&self) -> Result<Amounts, Overflow> {
        let mut mapping = Amounts::default();
        for line in &self.lines {
            if let Some(amount) = line.mapping {
                mapping.add(&line.resource, amount)?;
            }
        }
        Ok(mapping)
    }

    /// What using the claim costs this Pod.
    ///
    /// # Errors
    /// A sum cannot be held.
    pub fn overhead(&self) -> Result<Amounts, Overflow> {
        let count = Decimal::from(i64::try_from(self.containers.len()).map_err(|_| Overflow)?);
        let mut overhead = Amounts::default();
        for line in &self.lines {
            let containers = line.per_container.unwrap_or_default().checked_mul(count)?;
            overhead.add(&line.resource, line.per_pod.unwrap_or_default().checked_add(containers)?)?;
        }
        Ok(overhead.without_zeros())
    }

    /// What counts for each container that names the claim.
    ///
    /// # Errors
    /// A sum cannot be held.
    pub fn per_container(&self) -> Result<Amounts, Overflow> {
        let mut each = Amounts::default();
        for line in &self.lines {
            each.add(&line.resource, line.per_container.unwrap_or_default())?;
        }
        Ok(each)
    }

    /// What counts for the Pod as a whole, all its containers together.
    ///
    /// # Errors
    /// A sum cannot be held.
    pub fn total(&self) -> Result<Amounts, Overflow> {
        self.counted(self.containers.len())
    }

    /// What the peak of the containers does not hold: everything but the amounts per
    /// container, and those of containers that the Pod does not have.
    ///
    /// # Errors
    /// A sum cannot be held.
    pub fn fixed(&self, pod: &PodSpecView) -> Result<Amounts, Overflow> {
        let known = |name: &str| {
            pod.containers.iter().chain(&pod.init_containers).any(|container| *container.name == *name)
        };
        self.counted(self.containers.iter().filter(|name| !known(name)).count())
    }

    fn counted(&self, containers: usize) -> Result<Amounts, Overflow> {
        let mut total = self.once()?;
        let count = Decimal::from(i64::try_from(containers).map_err(|_| Overflow)?);
        for (resource, each) in self.per_container()? {
            total.add(&resource, each.checked_mul(count)?)?;
        }
        Ok(total)
    }
}
