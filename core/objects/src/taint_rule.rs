//! `DeviceTaintRule`.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;

use super::{Meta, Name, Taint, known, or_default};

/// A DeviceTaintRule as the API server sends it. Its status is not read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeviceTaintRule {
    /// `metadata`.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    #[serde(deserialize_with = "decided")]
    spec: RuleSpec,
}

/// `spec` of a DeviceTaintRule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuleSpec {
    device_selector: Option<DeviceSelector>,
    #[serde(deserialize_with = "or_default")]
    taint: Taint,
}

/// A field that this version does not know may be what selects the devices, or what the taint means.
fn decided<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RuleSpec, D::Error> {
    let Some(text) = Option::<Box<RawValue>>::deserialize(deserializer)? else {
        return Ok(RuleSpec::default());
    };
    let mut spec: RuleSpec = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
    if let Some(why) = known::unknown_in(&known::TAINT_RULE, &text) {
        spec.device_selector.get_or_insert_default();
        spec.taint = Taint::unreadable(why);
    }
    Ok(spec)
}

impl DeviceTaintRule {
    /// The rule.
    pub fn rule(&self) -> TaintRule {
        TaintRule {
            name: self.metadata.name.clone(),
            selector: self.spec.device_selector.clone(),
            taint: self.spec.taint.clone(),
        }
    }
}

/// Content of a DeviceTaintRule: its `spec` and its name.
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
        Self { name, selector: Some(DeviceSelector::default()), taint: Taint::unreadable(Name::default()) }
    }

    /// Whether the rule taints the device. A rule without a selector taints none.
    pub fn selects(&self, driver: &str, pool: &str, device: &str) -> bool {
        let same = |wanted: &Option<Name>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
        self.selector.as_ref().is_some_and(|selector| {
            same(&selector.driver, driver) && same(&selector.pool, pool) && same(&selector.device, device)
        })
    }
}
