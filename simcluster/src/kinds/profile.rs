//! What a version of Kubernetes serves and keeps.

/// A version of Kubernetes, with its default feature gates and those that are switched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The minor version: 34 to 38.
    pub minor: u8,
    /// Feature gates that are on although they are off by default.
    pub on: Vec<String>,
    /// Feature gates that are off although they are on by default.
    pub off: Vec<String>,
}

/// Oldest and newest minor version there is a profile of.
pub(crate) const MINORS: std::ops::RangeInclusive<u8> = 34..=38;

/// A gate with the versions in which it came, and in which it came to be on by default.
const GATES: &[(&str, u8, u8)] = &[
    ("DRAAdminAccess", 32, 34),
    ("DRAPrioritizedList", 33, 34),
    ("DRAResourceClaimDeviceStatus", 32, 33),
    ("DRADeviceTaints", 33, 36),
    ("DRADeviceTaintRules", 35, 37),
    ("DRAExtendedResource", 34, 36),
    ("DRAConsumableCapacity", 34, 36),
    ("DRAPartitionableDevices", 33, 36),
    ("DRADeviceBindingConditions", 34, 36),
    ("DRANodeAllocatableResources", 36, u8::MAX),
    ("DRAResourceClaimGranularStatusAuthorization", 36, 36),
    ("DRAWorkloadResourceClaims", 36, u8::MAX),
    ("GenericWorkload", 35, u8::MAX),
];

/// Why there is no such profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no profile of Kubernetes {0:?}: 1.34 to 1.38")]
pub struct UnknownVersion(String);

impl Default for Profile {
    fn default() -> Self {
        Self { minor: 36, on: Vec::new(), off: Vec::new() }
    }
}

impl std::str::FromStr for Profile {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let minor = text.strip_prefix("1.").and_then(|minor| minor.parse().ok());
        let minor = minor.filter(|minor| MINORS.contains(minor));
        let minor = minor.ok_or_else(|| UnknownVersion(text.to_owned()))?;
        Ok(Self { minor, ..Self::default() })
    }
}

impl Profile {
    /// Whether a feature gate is on.
    pub fn has(&self, gate: &str) -> bool {
        let listed = |gates: &[String]| gates.iter().any(|listed| listed == gate);
        let (since, default_since) = GATES
            .iter()
            .find(|(name, ..)| *name == gate)
            .map_or((u8::MAX, u8::MAX), |known| (known.1, known.2));
        self.minor >= since && !listed(&self.off) && (listed(&self.on) || self.minor >= default_since)
    }

    /// The version in which PodGroups are served, if they are.
    pub(crate) fn pod_groups(&self) -> Option<&'static str> {
        match self.minor {
            _ if !self.has("GenericWorkload") => None,
            35 | 36 => Some("v1alpha2"),
            _ => Some("v1beta1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_come_and_are_switched() {
        let profile: Profile = "1.35".parse().expect("version");
        assert!(!profile.has("DRAConsumableCapacity"));
        assert!(
            Profile { on: vec!["DRAConsumableCapacity".to_owned()], ..profile.clone() }
                .has("DRAConsumableCapacity")
        );
        // A gate that did not exist yet cannot be switched on.
        assert!(
            !Profile { on: vec!["DRANodeAllocatableResources".to_owned()], ..profile }
                .has("DRANodeAllocatableResources")
        );
        assert!(Profile::default().has("DRAConsumableCapacity"));
        assert!("1.33".parse::<Profile>().is_err());
    }
}
