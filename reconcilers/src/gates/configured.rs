//! Whether the configuration in an allocation is that of the claim and of its classes. Drivers trust what is said to be of a class: a
//! tenant cannot write that, and an allocator that adds some of its own gives the Pod what no administrator has allowed.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use dragoman_objects::{
    AllocationConfiguration, ClaimConfiguration, Class, ConfigSource, DeviceClass, Name, OpaqueConfiguration,
};
use serde_json::Value;

/// A class as allocations are judged by it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JudgedClass {
    /// The class without its configuration, which may be large.
    pub(super) class: Class,
    /// Configurations of the class, each as a number.
    configured: Box<[u64]>,
}

impl JudgedClass {
    /// Returns what is kept of a class.
    pub(super) fn of(class: &DeviceClass) -> Self {
        let mut class = class.class();
        let config = std::mem::take(&mut class.config);
        let configured = config.iter().filter_map(|entry| entry.opaque.as_ref()).map(digest).collect();
        Self { class, configured }
    }
}

/// The configurations of a claim and of its allocation. Parameters may be large, and only whether they are the same counts: each is kept
/// as a number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Configured {
    /// Configurations that the allocation ascribes to the classes.
    of_classes: Vec<u64>,
    /// The driver of the first configuration that the allocation ascribes to the claim and that the claim does not have.
    forged: Option<Name>,
}

impl Configured {
    /// `entries`: `config` of the allocation. Nothing of what this version does not know: an allocator that is newer may know it.
    pub(super) fn of(entries: &[AllocationConfiguration], claim: &[ClaimConfiguration]) -> Self {
        let own: Vec<u64> = claim.iter().filter_map(|entry| entry.opaque.as_ref()).map(digest).collect();
        let mut this = Self::default();
        for AllocationConfiguration { source, opaque, .. } in entries {
            let Some(opaque) = opaque else { continue };
            match source {
                ConfigSource::FromClass => this.of_classes.push(digest(opaque)),
                ConfigSource::FromClaim if own.contains(&digest(opaque)) => {}
                ConfigSource::FromClaim => {
                    this.forged.get_or_insert_with(|| opaque.driver.clone());
                }
            }
        }
        this
    }

    /// Why this is not the configuration of the claim and of these classes, in words for the tenant of the claim. `None` for a class
    /// that is not there: it may be on its way, and nothing is said of any.
    pub(super) fn wrong(
        &self,
        mut classes: impl Iterator<Item = Option<Arc<JudgedClass>>>,
    ) -> Option<String> {
        if let Some(driver) = &self.forged {
            return Some(format!(
                "its allocation has a configuration for driver {driver} that the claim does not have"
            ));
        }
        if self.of_classes.is_empty() {
            return None;
        }
        let known: Vec<u64> = classes.try_fold(Vec::new(), |mut known, class| {
            known.extend_from_slice(&class?.configured);
            Some(known)
        })?;
        self.of_classes.iter().any(|of| !known.contains(of)).then(|| {
            "its allocation has a configuration that is said to be of its class, and is not".to_owned()
        })
    }
}

/// A number that is the same for the same parameters, in whatever order their fields were written.
fn digest(of: &OpaqueConfiguration) -> u64 {
    let mut hasher = DefaultHasher::new();
    add(&serde_json::to_value(of).unwrap_or_default(), &mut hasher);
    hasher.finish()
}

/// Adds a value. The fields of an object come sorted; 1 and 1.0 are the same number.
fn add(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Null => 0_u8.hash(hasher),
        Value::Bool(of) => (1_u8, of).hash(hasher),
        Value::Number(of) => match of.as_i128().or_else(|| whole(of.as_f64()?)) {
            Some(whole) => (2_u8, whole).hash(hasher),
            None => (6_u8, of.to_string()).hash(hasher),
        },
        Value::String(of) => (3_u8, of).hash(hasher),
        Value::Array(items) => {
            (4_u8, items.len()).hash(hasher);
            items.iter().for_each(|of| add(of, hasher));
        }
        Value::Object(fields) => {
            (5_u8, fields.len()).hash(hasher);
            fields.iter().for_each(|(name, of)| {
                name.hash(hasher);
                add(of, hasher);
            });
        }
    }
}

/// A number without a fraction, as it is when it was written as an integer: below 2^53 both are the same number.
fn whole(of: f64) -> Option<i128> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction, and is small enough")]
    (of.fract() == 0.0 && of.abs() < EXACT).then_some(of as i128)
}
