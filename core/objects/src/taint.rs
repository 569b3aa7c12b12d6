//! Taints and tolerations: of nodes and Pods, and of devices and requests. They have the same fields and the same rules.

use serde::{Deserialize, Serialize};

use super::{Name, or_default};

/// A taint of a node or of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// `key`.
    #[serde(deserialize_with = "or_default")]
    pub key: Name,
    /// `value`.
    #[serde(deserialize_with = "or_default")]
    pub value: Name,
    /// `effect`: `NoSchedule` or `NoExecute`; of a node also `PreferNoSchedule`.
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
            return if value.is_empty() {
                write!(f, "({UNREADABLE})")
            } else {
                write!(f, "({UNREADABLE}: {value})")
            };
        }
        if value.is_empty() { write!(f, "{key}:{effect}") } else { write!(f, "{key}={value}:{effect}") }
    }
}

impl Taint {
    /// Whether it keeps a device from being allocated: unknown effects do not.
    pub fn repels(&self) -> bool {
        matches!(&*self.effect, "NoSchedule" | "NoExecute" | UNREADABLE)
    }

    /// A taint that cannot be read: nothing tolerates it. Its value says why, where that is known.
    pub(crate) fn unreadable(why: Name) -> Self {
        Self { effect: UNREADABLE.into(), value: why, ..Self::default() }
    }

    /// Whether nothing is known of it: no toleration is for it.
    pub fn is_unreadable(&self) -> bool {
        &*self.effect == UNREADABLE
    }
}

/// A toleration of a Pod or of a request.
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
