//! The resources of a node that Pods and claims share.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A node-allocatable resource (KEP-5517): what the node itself has, not its devices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Resource {
    /// `cpu`.
    Cpu,
    /// `ephemeral-storage`.
    EphemeralStorage,
    /// `hugepages-SIZE`, with the size as it is written.
    HugePages(Box<str>),
    /// `memory`.
    Memory,
}

/// A name that is no node-allocatable resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not node-allocatable: only cpu, memory, ephemeral-storage and hugepages-SIZE are")]
pub struct NotNodeAllocatable(pub String);

const HUGE_PAGES: &str = "hugepages-";

impl Resource {
    /// The resource of this name; `None` for extended resources, `pods`, and whatever
    /// else a node counts.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "cpu" => Some(Self::Cpu),
            "memory" => Some(Self::Memory),
            "ephemeral-storage" => Some(Self::EphemeralStorage),
            other => other.strip_prefix(HUGE_PAGES).map(|size| Self::HugePages(size.into())),
        }
    }

    /// Whether a Pod may ask for it at Pod level (KEP-2837): `ephemeral-storage` not.
    pub fn at_pod_level(&self) -> bool {
        *self != Self::EphemeralStorage
    }

    /// The power of ten in which a node counts it: thousandths of cpu, units of the rest.
    pub fn unit(&self) -> i32 {
        if *self == Self::Cpu { -3 } else { 0 }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::EphemeralStorage => f.write_str("ephemeral-storage"),
            Self::HugePages(size) => write!(f, "{HUGE_PAGES}{size}"),
            Self::Memory => f.write_str("memory"),
        }
    }
}

impl TryFrom<String> for Resource {
    type Error = NotNodeAllocatable;

    fn try_from(name: String) -> Result<Self, NotNodeAllocatable> {
        Self::of(&name).ok_or(NotNodeAllocatable(name))
    }
}

impl From<Resource> for String {
    fn from(resource: Resource) -> Self {
        resource.to_string()
    }
}
