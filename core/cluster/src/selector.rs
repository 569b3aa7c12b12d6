//! The CEL selectors of DeviceFootprints, in the allocator's environment and with its limits.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dragoman_accounting::claim::allocation::Device as Content;
use dragoman_accounting::cluster::{self, SliceDevice};
use dragoman_allocator::cel::{BoundDevice, COST_LIMIT, Compiler, Expression, Purpose};
use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_objects::{Device, Name};
use serde_json::{Value, json};

/// The cost of all verdicts of a selector together, about half a second of evaluation: an edit of a
/// footprint judges the devices of all nodes in one go. Verdicts below [`EXPENSIVE`] do not count.
const MOST_COST: u64 = 10 * COST_LIMIT;
/// The cost from which a verdict counts. A selector without loops costs less than a hundred.
const EXPENSIVE: u64 = 1_000;

/// The number of verdicts of a selector at which they are forgotten: four megabytes of them.
const MOST_REMEMBERED: usize = 1 << 16;

/// Returns a DeviceFootprint as accounting reads it, and why its selector is refused, if it is. The
/// selector is evaluated as that of a DeviceClass; where it does not compile, or could cost too much, the
/// devices of the driver are uncertain.
///
/// # Errors
/// What the API server would have refused: names the field.
pub fn footprint(object: &DeviceFootprint) -> Result<(cluster::DeviceFootprint, Option<String>), String> {
    let mut footprint = object.accounted()?;
    let Some(selector) = footprint.selector.take() else { return Ok((footprint, None)) };
    let (selector, refused) = match Compiler::default().compile(selector.text(), Purpose::Selector) {
        Ok(expression) => {
            let verdicts = Verdicts {
                driver: footprint.driver.clone(),
                expression,
                hasher: RandomState::new(),
                known: Mutex::default(),
                spent: AtomicU64::new(0),
            };
            (selector.evaluated(move |device| verdicts.of(device)), None)
        }
        Err(why) => {
            let why = why.to_string();
            let refused = format!("spec.selector: {why}");
            (selector.evaluated(move |_| Err(why.clone())), Some(refused))
        }
    };
    footprint.selector = Some(selector);
    Ok((footprint, refused))
}

/// The verdicts of an expression. Each is computed once: an account is computed anew with every change
/// of a claim, and an expression may cost milliseconds.
struct Verdicts {
    driver: Name,
    expression: Expression,
    hasher: RandomState,
    /// By a hash of what the expression can read. Its key is this process' own, so that no author of
    /// slices can make two devices look alike.
    known: Mutex<HashMap<u64, Result<bool, String>>>,
    /// The cost of the expensive verdicts so far.
    spent: AtomicU64,
}

impl Verdicts {
    fn of(&self, device: &SliceDevice) -> Result<bool, String> {
        if let Some(why) = &device.device.unread {
            return Err(format!("device {}: {why}", device.name));
        }
        let content = content(device);
        let key = self.hasher.hash_one(&content);
        if let Some(verdict) = self.known().get(&key) {
            return verdict.clone();
        }
        let verdict = self.evaluate(&content);
        let mut known = self.known();
        if known.len() >= MOST_REMEMBERED {
            known.clear();
        }
        known.insert(key, verdict.clone());
        verdict
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Result<bool, String>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn evaluate(&self, content: &str) -> Result<bool, String> {
        let device: Device = serde_json::from_str(content).map_err(|why| why.to_string())?;
        let bound = BoundDevice::new((&*self.driver).into(), Arc::new(device));
        if self.spent.load(Ordering::Relaxed) > MOST_COST {
            return Err(format!("spec.selector: it costs more than {MOST_COST} on all devices together"));
        }
        let (matches, cost) = self.expression.matches_at_cost(&bound);
        if cost >= EXPENSIVE {
            self.spent.fetch_add(cost, Ordering::Relaxed);
        }
        matches.map_err(|why| why.to_string())
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

    fn footprint_of(selector: &str) -> (cluster::DeviceFootprint, Option<String>) {
        let object = json!({"metadata": {"name": "f"}, "spec": {"driver": "gpu.example.com",
            "selector": selector, "resources": {"cpu": {"overhead": {"perPod": "1"}}}}});
        footprint(&serde_json::from_value(object).expect("a DeviceFootprint")).expect("accounted")
    }

    fn device(content: &Value) -> SliceDevice {
        let mut device = content.clone();
        device["name"] = "d".into();
        let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "gpu.example.com",
            "pool": {"name": "p", "generation": 1}, "devices": [device]}});
        let slice: dragoman_objects::ResourceSlice = serde_json::from_value(slice).expect("a slice");
        cluster::Slice::from(&slice).devices.remove(0)
    }

    #[test]
    fn a_selector_reads_what_a_slice_says_of_a_device() {
        let says = |selector: &str| {
            let selector = footprint_of(selector).0.selector.expect("there is one");
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
    fn a_selector_that_cannot_be_evaluated_is_refused_and_makes_its_devices_uncertain() {
        for (selector, is_refused) in
            [("device.attributes[", true), ("device.driver", true), ("'a'.matches('a')", false)]
        {
            let (footprint, refused) = footprint_of(selector);
            let said = refused.is_some_and(|why| why.starts_with("spec.selector: CEL compile error: "));
            let verdict = footprint.selector.expect("there is one").selects(&device(&json!({})));
            assert_eq!((said, verdict.is_err()), (is_refused, is_refused), "{selector}: {verdict:?}");
        }
    }

    #[test]
    fn a_selector_may_cost_only_so_much_on_all_devices() {
        let selector = "lists.range(700).all(x, lists.range(50).all(y, x + y >= 0))";
        let selector = footprint_of(selector).0.selector.expect("there is one");
        let says = |number: usize| {
            selector.selects(&device(&json!({"attributes": {"x.io/number": {"int": number}}})))
        };
        let refused = (0..100).map(says).find_map(Result::err).expect("a hundred devices cost too much");
        assert!(refused.contains("costs more than 10000000 on all devices together"), "{refused}");
        let cheap = footprint_of("device.attributes['x.io'].number >= 0").0.selector.expect("there is one");
        for number in 0..100 {
            let device = device(&json!({"attributes": {"x.io/number": {"int": number}}}));
            assert_eq!(cheap.selects(&device), Ok(true));
        }
    }
}
