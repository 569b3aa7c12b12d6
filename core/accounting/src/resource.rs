//! The resources of a node that Pods and claims share.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A node-allocatable resource (KEP-5517): a resource of the node itself, not of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Resource {
    /// `cpu`.
    Cpu,
    /// `ephemeral-storage`.
    EphemeralStorage,
    /// `hugepages-SIZE`.
    HugePages(PageSize),
    /// `memory`.
    Memory,
}

/// The size of huge pages, as written: `2Mi` and `2048Ki` are two resources.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageSize {
    length: u8,
    text: [u8; Self::LONGEST],
}

impl PageSize {
    /// `1099511627776Ki`, one pebibyte, has 15 characters; no machine has larger pages.
    const LONGEST: usize = 15;

    /// Returns `None` for an empty size and for one of more than 15 bytes.
    pub fn of(written: &str) -> Option<Self> {
        let mut text = [0; Self::LONGEST];
        text.get_mut(..written.len()).filter(|part| !part.is_empty())?.copy_from_slice(written.as_bytes());
        Some(Self { length: u8::try_from(written.len()).ok()?, text })
    }

    /// The size, as written.
    pub fn as_str(&self) -> &str {
        let text = self.text.get(..usize::from(self.length)).unwrap_or_default();
        // The bytes came from a `str`.
        str::from_utf8(text).unwrap_or_default()
    }
}

impl Ord for PageSize {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialOrd for PageSize {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for a name that is not a node-allocatable resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not node-allocatable: only cpu, memory, ephemeral-storage and hugepages-SIZE are")]
pub struct NotNodeAllocatable(pub String);

const HUGE_PAGES: &str = "hugepages-";

impl Resource {
    /// Returns the resource of this name; `None` for extended resources, `pods` and other names.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "cpu" => Some(Self::Cpu),
            "memory" => Some(Self::Memory),
            "ephemeral-storage" => Some(Self::EphemeralStorage),
            other => other.strip_prefix(HUGE_PAGES).and_then(PageSize::of).map(Self::HugePages),
        }
    }

    /// Whether a Pod may request the resource at Pod level (KEP-2837): every one but
    /// `ephemeral-storage`.
    pub fn at_pod_level(self) -> bool {
        self != Self::EphemeralStorage
    }

    /// Whether the resource can change while a Pod runs (KEP-1287): cpu and memory only.
    pub fn resizable(self) -> bool {
        matches!(self, Self::Cpu | Self::Memory)
    }

    /// The power of ten that a node counts in: thousandths of cpu, whole units of the others.
    pub fn unit(self) -> i32 {
        if self == Self::Cpu { -3 } else { 0 }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::EphemeralStorage => f.write_str("ephemeral-storage"),
            Self::HugePages(size) => write!(f, "{HUGE_PAGES}{}", size.as_str()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_sorted_by_name() {
        let names =
            ["cpu", "ephemeral-storage", "hugepages-1Gi", "hugepages-2048Ki", "hugepages-2Mi", "memory"];
        let mut resources: Vec<_> = names.iter().rev().filter_map(|name| Resource::of(name)).collect();
        resources.sort();
        assert_eq!(resources.iter().map(ToString::to_string).collect::<Vec<_>>(), names);
    }

    #[test]
    fn what_is_no_page_size_is_no_resource() {
        for name in ["hugepages-", "hugepages-0000000000000002Mi", "pods", "example.com/gpu", "Cpu", ""] {
            assert_eq!(Resource::of(name), None, "{name}");
        }
        assert!(Resource::of("hugepages-1099511627776Ki").is_some());
    }
}
