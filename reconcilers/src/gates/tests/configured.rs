//! Allocations with a configuration that neither claim nor class have.

use dragoman_machinery::controller::Fed;
use dragoman_machinery::watch::{Record, decode_item};
use dragoman_objects::{ClaimConfiguration, DeviceAllocation, DeviceClass};

use super::passes::World;
use super::*;
use crate::gates::configured::{Configured, JudgedClass};

fn opaque(parameters: &Value) -> Value {
    json!({"opaque": {"driver": "gpu.example.com", "parameters": parameters}})
}

fn class() -> Arc<JudgedClass> {
    let config = json!([opaque(&json!({"sharing": "none", "replicas": 1}))]);
    let class = json!({"metadata": {"name": "gpu"}, "spec": {"config": config}});
    Arc::new(JudgedClass::of(&serde_json::from_str::<DeviceClass>(&class.to_string()).expect("a class")))
}

/// The configurations of an allocation, as JSON, and of its claim.
fn configured(entries: &str, claim: &[ClaimConfiguration]) -> Configured {
    let devices = format!(r#"{{"config": {entries}}}"#);
    let devices: DeviceAllocation = serde_json::from_str(&devices).expect("devices of an allocation");
    Configured::of(&devices.config, claim)
}

/// Returns the fault of an allocation that configures this from a source, for a claim that configures
/// replicas.
fn wrong(source: &str, parameters: &str) -> Option<String> {
    let entry = format!(
        r#"[{{"source": "{source}", "requests": ["r"], "opaque": {{"driver": "gpu.example.com", "parameters": {parameters}}}}}]"#
    );
    let own: Vec<ClaimConfiguration> =
        serde_json::from_value(json!([opaque(&json!({"replicas": 2}))])).expect("a configuration");
    configured(&entry, &own).wrong([Some(class())].into_iter())
}

#[test]
fn what_class_and_claim_configure_is_theirs_in_whatever_order() {
    assert_eq!(wrong("FromClass", r#"{"sharing": "none", "replicas": 1}"#), None);
    assert_eq!(wrong("FromClass", r#"{"replicas": 1.0, "sharing": "none"}"#), None);
    assert_eq!(wrong("FromClaim", r#"{"replicas": 2}"#), None);
    assert_eq!(configured("[]", &[]).wrong([Some(class())].into_iter()), None);
}

/// A tenant cannot write what is of a class, and an allocator must not.
#[test]
fn what_an_allocator_adds_is_found() {
    let of_class = "its allocation has a configuration that is said to be of its class, and is not";
    let of_claim =
        "its allocation has a configuration for driver gpu.example.com that the claim does not have";
    for other in
        [r#"{"privileged": true}"#, r#"{"sharing": "none", "replicas": 3}"#, r#"{"replicas": 2}"#, "[]"]
    {
        assert_eq!(wrong("FromClass", other).as_deref(), Some(of_class), "{other}");
    }
    for other in [r#"{"privileged": true}"#, r#"{"sharing": "none", "replicas": 1}"#, r#""""#] {
        assert_eq!(wrong("FromClaim", other).as_deref(), Some(of_claim), "{other}");
    }
}

/// A configuration that cannot be judged is not wrong: the class may be on its way, or the source may be of a
/// newer API.
#[test]
fn what_is_not_known_is_not_wrong() {
    let entry = json!([{"source": "FromClass", "opaque": opaque(&json!({"privileged": true}))["opaque"]}]);
    let configured = self::configured(&entry.to_string(), &[]);
    assert!(configured.wrong([Some(class())].into_iter()).is_some());
    assert_eq!(configured.wrong([Some(class()), None].into_iter()), None);
    let newer = json!([{"source": "FromNode", "opaque": opaque(&json!({"privileged": true}))["opaque"]}]);
    assert_eq!(self::configured(&newer.to_string(), &[]).wrong([Some(class())].into_iter()), None);
}

/// The index keeps of a class what an allocation is judged by.
#[test]
fn what_a_class_configures_is_known_to_the_index() {
    let mut world = World::with_node(None);
    let config = json!([opaque(&json!({"sharing": "none"}))]);
    let class = json!({"metadata": {"name": "gpu", "uid": "gpu", "resourceVersion": "1"}, "spec": {"config": config}});
    let class = decode_item(class.to_string().as_bytes()).expect("metadata");
    Fed::<DeviceClass>::applied(&mut world.index, &class);
    let kept = || world.index.classes.get("", "gpu").and_then(Record::readable).cloned();
    let wrong = |parameters: &Value| {
        let entry = json!([{"source": "FromClass", "opaque": opaque(parameters)["opaque"]}]);
        configured(&entry.to_string(), &[]).wrong([kept()].into_iter())
    };
    assert_eq!(wrong(&json!({"sharing": "none"})), None);
    assert!(wrong(&json!({"privileged": true})).is_some());
}
