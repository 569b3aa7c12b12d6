//! Taints of devices, tolerations of requests, and taint rules.

use serde::{Deserialize, Serialize};

use super::{Name, or_default};

/// A taint of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// `key`.
    #[serde(deserialize_with = "or_default")]
    pub key: Name,
    /// `value`.
    #[serde(deserialize_with = "or_default")]
    pub value: Name,
    /// `effect`: `NoSchedule` or `NoExecute`. Other effects are ignored.
    #[serde(deserialize_with = "or_default")]
    pub effect: Name,
}

/// The effect of a taint that cannot be read. The API admits none with blanks.
const UNREADABLE: &str = "cannot be read";

impl std::fmt::Display for Taint {
    /// `key=value:effect`, as kubectl writes taints; without a value `key:effect`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key, value, effect } = self;
        if self.is_unreadable() {
            return write!(f, "that {UNREADABLE}");
        }
        if value.is_empty() { write!(f, "{key}:{effect}") } else { write!(f, "{key}={value}:{effect}") }
    }
}

impl Taint {
    /// Whether it keeps a device from being allocated: unknown effects do not.
    pub fn repels(&self) -> bool {
        matches!(&*self.effect, "NoSchedule" | "NoExecute" | UNREADABLE)
    }

    /// A taint that cannot be read: nothing tolerates it.
    pub(super) fn unreadable() -> Self {
        Self { effect: UNREADABLE.into(), ..Self::default() }
    }

    /// Whether nothing is known of it: no toleration is for it.
    pub fn is_unreadable(&self) -> bool {
        &*self.effect == UNREADABLE
    }
}

/// A toleration of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// `key`; empty: any key.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "str::is_empty")]
    pub key: Name,
    /// `operator`: `Exists` or `Equal`; empty: `Equal`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "str::is_empty")]
    pub operator: Name,
    /// `value`, for `Equal`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "str::is_empty")]
    pub value: Name,
    /// `effect`; empty: any effect.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "str::is_empty")]
    pub effect: Name,
    /// `tolerationSeconds`, copied into the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// Whether the toleration tolerates the taint (docs/allocator.md 1.7).
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let any_or = |wanted: &Name, given: &Name| wanted.is_empty() || wanted == given;
        !taint.is_unreadable()
            && any_or(&self.effect, &taint.effect)
            && any_or(&self.key, &taint.key)
            && match &*self.operator {
                "Exists" => true,
                "" | "Equal" => self.value == taint.value,
                _ => false,
            }
    }
}

/// A `DeviceTaintRule`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaintRule {
    /// `metadata.name`.
    pub name: Name,
    /// `spec.deviceSelector`.
    pub selector: Option<DeviceSelector>,
    /// `spec.taint`.
    pub taint: Taint,
}

/// `deviceSelector` of a taint rule. Every field that is set must match. An empty selector selects
/// every device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeviceSelector {
    /// `driver`.
    pub driver: Option<Name>,
    /// `pool`.
    pub pool: Option<Name>,
    /// `device`.
    pub device: Option<Name>,
}

impl TaintRule {
    /// A rule that does not decode. It may be about any device, and its taint may be one that nothing tolerates.
    pub fn unreadable(name: Name) -> Self {
        Self { name, selector: Some(DeviceSelector::default()), taint: Taint::unreadable() }
    }

    /// Whether the rule taints the device. A rule without a selector taints none.
    pub fn selects(&self, driver: &str, pool: &str, device: &str) -> bool {
        let same = |wanted: &Option<Name>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
        self.selector.as_ref().is_some_and(|selector| {
            same(&selector.driver, driver) && same(&selector.pool, pool) && same(&selector.device, device)
        })
    }
}
