//! The CEL selectors of DeviceFootprints, in the allocator's environment and with its limits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dragoman_accounting::claim::allocation::Device as Content;
use dragoman_accounting::cluster::{self, SliceDevice};
use dragoman_allocator::cel::{BoundDevice, Compiler, Expression, Purpose};
use dragoman_allocator::input::Device;
use dragoman_crds::device_footprint::DeviceFootprint;
use serde_json::{Value, json};

/// The number of verdicts of a selector at which they are forgotten: what is kept of each is the text of
/// a device, about a kilobyte.
const MOST_REMEMBERED: usize = 4096;

/// Returns a DeviceFootprint as accounting reads it. Its selector is evaluated as that of a DeviceClass.
///
/// # Errors
/// What the API server would have refused, and an expression that does not compile or could cost too
/// much: names the field.
pub fn footprint(object: &DeviceFootprint) -> Result<cluster::DeviceFootprint, String> {
    let mut footprint = object.accounted()?;
    if let Some(selector) = footprint.selector.take() {
        let expression = Compiler::default().compile(selector.text(), Purpose::Selector);
        let expression = expression.map_err(|why| format!("spec.selector: {why}"))?;
        let verdicts = Verdicts { driver: footprint.driver.clone(), expression, known: Mutex::default() };
        footprint.selector = Some(selector.evaluated(move |device| verdicts.of(device)));
    }
    Ok(footprint)
}

/// The verdicts of an expression. Each is computed once: an account is computed anew with every change
/// of a claim, and an expression may cost milliseconds.
struct Verdicts {
    driver: Box<str>,
    expression: Expression,
    known: Mutex<HashMap<String, Result<bool, String>>>,
}

impl Verdicts {
    fn of(&self, device: &SliceDevice) -> Result<bool, String> {
        let content = content(device);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = known.get(&content) {
            return verdict.clone();
        }
        let verdict = self.evaluate(&content);
        if known.len() >= MOST_REMEMBERED {
            known.clear();
        }
        known.insert(content, verdict.clone());
        verdict
    }

    fn evaluate(&self, content: &str) -> Result<bool, String> {
        let device: Device = serde_json::from_str(content).map_err(|why| why.to_string())?;
        let bound = BoundDevice::new((&*self.driver).into(), Arc::new(device));
        self.expression.matches(&bound).map_err(|why| why.to_string())
    }
}

/// All that an expression can read of a device, as a slice writes it.
fn content(device: &SliceDevice) -> String {
    let SliceDevice { attributes, allow_multiple_allocations, device: Content { capacity, .. }, .. } = device;
    let attributes = if attributes.is_empty() { "{}" } else { attributes };
    let capacity = capacity.iter().map(|(name, value)| (name.to_string(), json!({"value": &*value.0})));
    let capacity = Value::Object(capacity.collect());
    format!(
        r#"{{"attributes":{attributes},"capacity":{capacity},"allowMultipleAllocations":{allow_multiple_allocations}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footprint_of(selector: &str) -> Result<cluster::DeviceFootprint, String> {
        let object = json!({"metadata": {"name": "f"}, "spec": {"driver": "gpu.example.com",
            "selector": selector, "resources": {"cpu": {"overhead": {"perPod": "1"}}}}});
        footprint(&serde_json::from_value(object).expect("a DeviceFootprint"))
    }

    fn device(content: &Value) -> SliceDevice {
        let mut device = content.clone();
        device["name"] = "d".into();
        let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "gpu.example.com",
            "pool": {"name": "p", "generation": 1}, "devices": [device]}});
        let slice: dragoman_crds::wire::ResourceSlice = serde_json::from_value(slice).expect("a slice");
        slice.accounted().devices.remove(0)
    }

    #[test]
    fn a_selector_reads_what_a_slice_says_of_a_device() {
        let says = |selector: &str| {
            let selector = footprint_of(selector).expect("it compiles").selector.expect("there is one");
            let device = device(&json!({"attributes": {"model": {"string": "big"}, "x.io/gen": {"int": 3},
                "driverVersion": {"version": "1.2.0"}}, "capacity": {"memory": {"value": "80Gi"}},
                "allowMultipleAllocations": true}));
            // The second answer is one that is remembered.
            assert_eq!(selector.selects(&device), selector.selects(&device));
            selector.selects(&device)
        };
        assert_eq!(says("device.attributes['gpu.example.com'].model == 'big'"), Ok(true));
        assert_eq!(says("device.attributes['x.io'].gen > 3"), Ok(false));
        assert_eq!(
            says("device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('40Gi'))"),
            Ok(true)
        );
        assert_eq!(says("device.allowMultipleAllocations"), Ok(true));
        assert_eq!(says("device.driver == 'gpu.example.com'"), Ok(true));
        let why = says("device.attributes['gpu.example.com'].color == 'red'").expect_err("no such attribute");
        assert!(why.contains("no such key: color"), "{why}");
    }

    #[test]
    fn a_selector_that_cannot_be_evaluated_is_refused() {
        for (selector, expected) in [
            ("device.attributes[", "spec.selector: CEL compile error: "),
            ("device.driver", "spec.selector: CEL compile error: "),
            ("'a'.matches('a')", ""),
        ] {
            match footprint_of(selector) {
                Ok(_) => assert!(expected.is_empty(), "{selector}"),
                Err(why) => assert!(!expected.is_empty() && why.starts_with(expected), "{selector}: {why}"),
            }
        }
    }
}
