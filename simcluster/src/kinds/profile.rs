//! Profiles: the API groups, fields and feature gates of a version of Kubernetes.

/// A version of Kubernetes, with its default feature gates and overrides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The minor version: 34 to 38.
    pub minor: u8,
    /// Feature gates that are switched on.
    pub on: Vec<String>,
    /// Feature gates that are switched off.
    pub off: Vec<String>,
}

/// The supported minor versions.
pub(crate) const MINORS: std::ops::RangeInclusive<u8> = 34..=38;

/// The feature gates: the minor version that introduced each, and the one that enabled it by default.
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

/// The version has no profile.
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
    /// Whether a feature gate is enabled.
    pub fn has(&self, gate: &str) -> bool {
        let listed = |gates: &[String]| gates.iter().any(|listed| listed == gate);
        let (since, default_since) = GATES
            .iter()
            .find(|(name, ..)| *name == gate)
            .map_or((u8::MAX, u8::MAX), |known| (known.1, known.2));
        self.minor >= since && !listed(&self.off) && (listed(&self.on) || self.minor >= default_since)
    }

    /// Returns the version in which PodGroups are served, or `None` if they are not.
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
        // A gate of a later version cannot be switched on.
        assert!(
            !Profile { on: vec!["DRANodeAllocatableResources".to_owned()], ..profile }
                .has("DRANodeAllocatableResources")
        );
        assert!(Profile::default().has("DRAConsumableCapacity"));
        assert!("1.33".parse::<Profile>().is_err());
    }
}
