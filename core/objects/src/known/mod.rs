//! The fields of `resource.k8s.io` that this version knows. An API server may be newer than this program and store what
//! narrows a device, a request or a class; a person may write `selector` for `selectors`. What such a field means is
//! not known, so that what has it cannot be decided.
//!
//! Fields that are named here and read nowhere say nothing about what may be given: they are known to be harmless.

mod search;

use serde::Deserialize as _;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use self::search::{all, joined};
use super::unreadable::Unreadable as _;
use super::{
    AdditionalNodeAllocatableResources, Definitions, Device, Name, NativeResourceMapping,
    NodeAllocatableResource, NodeAllocatableResourceClaimStatus, NodeAllocatableResourceMapping, Tolerated,
};

/// The shape of a value.
#[derive(Debug)]
pub(super) enum Shape {
    /// Anything: a scalar, or a value that the allocator copies or does not read.
    Any,
    /// A list of values of one shape.
    Each(&'static Self),
    /// A map from names to values of one shape.
    Map(&'static Self),
    /// An object with these fields.
    Fields(&'static [(&'static str, Self)]),
}

use Shape::{Any, Each, Fields, Map};

const SELECTORS: Shape = Each(&Fields(&[("cel", Fields(&[("expression", Any)]))]));
const CAPACITY: Shape = Fields(&[("requests", Map(&Any))]);
const TOLERATIONS: Shape = Each(&Fields(&[
    ("key", Any),
    ("operator", Any),
    ("value", Any),
    ("effect", Any),
    ("tolerationSeconds", Any),
]));
const OPAQUE: Shape = Fields(&[("driver", Any), ("parameters", Any)]);
const DERIVED: Shape = Each(&Fields(&[("name", Any), ("expression", Any)]));
const COUNTERS: Shape = Map(&Fields(&[("value", Any)]));
/// A requirement of a term of a node selector.
const REQUIREMENTS: Shape = Each(&Fields(&[("key", Any), ("operator", Any), ("values", Any)]));
pub(super) const NODE_SELECTOR: Shape = Fields(&[(
    "nodeSelectorTerms",
    Each(&Fields(&[("matchExpressions", REQUIREMENTS), ("matchFields", REQUIREMENTS)])),
)]);
const ATTRIBUTE: Shape = Fields(&[
    ("int", Any),
    ("bool", Any),
    ("string", Any),
    ("version", Any),
    ("ints", Any),
    ("bools", Any),
    ("strings", Any),
    ("versions", Any),
]);
const TAINT: Shape = Fields(&[("key", Any), ("value", Any), ("effect", Any), ("timeAdded", Any)]);

/// An element of `requests` of a claim.
pub(super) const REQUEST: Shape = Fields(&[
    ("name", Any),
    (
        "exactly",
        Fields(&[
            ("deviceClassName", Any),
            ("selectors", SELECTORS),
            ("allocationMode", Any),
            ("count", Any),
            ("adminAccess", Any),
            ("tolerations", TOLERATIONS),
            ("capacity", CAPACITY),
            ("derivedAttributes", DERIVED),
        ]),
    ),
    (
        "firstAvailable",
        Each(&Fields(&[
            ("name", Any),
            ("deviceClassName", Any),
            ("selectors", SELECTORS),
            ("allocationMode", Any),
            ("count", Any),
            ("tolerations", TOLERATIONS),
            ("capacity", CAPACITY),
            ("derivedAttributes", DERIVED),
        ])),
    ),
]);

/// `spec` of a ResourceClaim, its requests aside.
pub(super) const CLAIM: Shape = Fields(&[(
    "devices",
    Fields(&[
        ("requests", Any),
        (
            "constraints",
            Each(&Fields(&[("requests", Any), ("matchAttribute", Any), ("distinctAttribute", Any)])),
        ),
        ("config", Each(&Fields(&[("requests", Any), ("opaque", OPAQUE)]))),
    ]),
)]);

/// `spec` of a DeviceClass.
pub(super) const CLASS: Shape = Fields(&[
    ("selectors", SELECTORS),
    ("config", Each(&Fields(&[("opaque", OPAQUE)]))),
    ("extendedResourceName", Any),
    // What its devices take from their node is for the ledger.
    ("managesNodeAllocatableResources", Any),
]);

/// `consumesCounters` of a device.
pub(super) const CONSUMED: Shape =
    Each(&Fields(&[("counterSet", Any), ("counters", COUNTERS), ("compatibilityGroups", Any)]));

/// An element of `devices` of a slice.
pub(super) const DEVICE: Shape = Fields(&[
    ("name", Any),
    // With a value of an unknown type a selector or a constraint would fail for every device that is looked at.
    ("attributes", Map(&ATTRIBUTE)),
    (
        "capacity",
        Map(&Fields(&[
            ("value", Any),
            (
                "requestPolicy",
                Fields(&[
                    ("default", Any),
                    ("validValues", Any),
                    ("validRange", Fields(&[("min", Any), ("max", Any), ("step", Any)])),
                ]),
            ),
        ])),
    ),
    ("consumesCounters", CONSUMED),
    ("nodeName", Any),
    ("nodeSelector", NODE_SELECTOR),
    ("allNodes", Any),
    ("taints", Each(&TAINT)),
    ("bindsToNode", Any),
    ("bindingConditions", Any),
    ("bindingFailureConditions", Any),
    ("allowMultipleAllocations", Any),
    // What devices take from their node is for the ledger: `Known` has the shapes.
    ("nodeAllocatableResourceMappings", Any),
    ("nodeAllocatableResources", Any),
]);

/// An element of `sharedCounters` of a slice.
pub(super) const COUNTER_SET: Shape = Fields(&[("name", Any), ("counters", COUNTERS)]);

/// `spec` of a ResourceSlice, its devices and counter sets aside.
pub(super) const SLICE: Shape = Fields(&[
    ("driver", Any),
    ("pool", Fields(&[("name", Any), ("generation", Any), ("resourceSliceCount", Any)])),
    ("nodeName", Any),
    ("nodeSelector", NODE_SELECTOR),
    ("allNodes", Any),
    ("perDeviceNodeSelection", Any),
    ("devices", Any),
    ("sharedCounters", Any),
    ("skipNodeOperations", Any),
    // It names the attribute by which people tell partitions apart.
    ("partitionTypeAttribute", Any),
]);

/// `spec` of a DeviceTaintRule.
pub(super) const TAINT_RULE: Shape = Fields(&[
    ("deviceSelector", Fields(&[("driver", Any), ("pool", Any), ("device", Any)])),
    ("taint", TAINT),
]);

/// An element of `status.allocation.devices.results` of a claim.
pub(super) const RESULT: Shape = Fields(&[
    ("request", Any),
    ("driver", Any),
    ("pool", Any),
    ("device", Any),
    ("adminAccess", Any),
    ("tolerations", TOLERATIONS),
    ("bindingConditions", Any),
    ("bindingFailureConditions", Any),
    ("shareID", Any),
    ("consumedCapacity", Any),
    ("skipNodeOperations", Any),
]);

/// `status.allocation` of a claim, its results aside. A configuration is for the driver.
pub(super) const ALLOCATION: Shape = Fields(&[
    ("devices", Fields(&[("results", Any), ("config", Any)])),
    ("nodeSelector", NODE_SELECTOR),
    ("allocationTimestamp", Any),
]);

/// An amount for each resource in the status of a Pod.
const MAPPINGS: Shape = Each(&Fields(&[("name", Any), ("quantity", Any)]));
const OVERHEADS: Shape = Each(&Fields(&[("name", Any), ("perPod", Any), ("perContainer", Any)]));

/// A type that can be read where the value has no other fields than these. What another field says of an amount is not known.
pub(super) trait Known: DeserializeOwned + Default {
    /// The fields that are known.
    const SHAPE: &'static Shape;

    /// Reads a value.
    fn read(text: &RawValue) -> Tolerated<Self> {
        match unknown(Self::SHAPE, &mut serde_json::Deserializer::from_str(text.get())) {
            Some(path) => Tolerated::Unreadable(why(&path)),
            None => Tolerated::of(text),
        }
    }
}

impl Known for Definitions<NativeResourceMapping> {
    const SHAPE: &'static Shape =
        &Map(&Fields(&[("quantityFrom", Fields(&[("perInstanceQuantity", Any), ("capacity", Any)]))]));
}

impl Known for Definitions<NodeAllocatableResourceMapping> {
    const SHAPE: &'static Shape = &Map(&Fields(&[("capacityKey", Any), ("allocationMultiplier", Any)]));
}

impl Known for Definitions<NodeAllocatableResource> {
    const SHAPE: &'static Shape = &Map(&Fields(&[
        ("mapping", Fields(&[("capacityKey", Any), ("capacityMultiplier", Any), ("deviceMultiplier", Any)])),
        ("overhead", Fields(&[("perPod", Any), ("perContainer", Any)])),
        ("reservation", Fields(&[("perDevice", Any)])),
    ]));
}

impl Known for Vec<NodeAllocatableResourceClaimStatus> {
    const SHAPE: &'static Shape = &Each(&Fields(&[
        ("resourceClaimName", Any),
        ("containers", Any),
        ("resources", Any),
        ("mapping", MAPPINGS),
        ("overhead", OVERHEADS),
    ]));
}

impl Known for Vec<AdditionalNodeAllocatableResources> {
    const SHAPE: &'static Shape = &Each(&Fields(&[
        ("source", Fields(&[("apiGroup", Any), ("kind", Any), ("name", Any)])),
        ("containers", Any),
        ("mapping", MAPPINGS),
        ("overhead", OVERHEADS),
    ]));
}

/// Reads a field of a [`Known`] type.
pub(super) fn known<'de, D: Deserializer<'de>, T: Known>(deserializer: D) -> Result<Tolerated<T>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(|text| T::read(&text))
}

/// Reads a field of a [`Known`] type that may be absent.
pub(super) fn costs<'de, D, T>(deserializer: D) -> Result<Option<Box<Tolerated<T>>>, D::Error>
where
    D: Deserializer<'de>,
    T: Known,
{
    let text = Option::<Box<RawValue>>::deserialize(deserializer)?;
    Ok(text.map(|text| Box::new(T::read(&text))))
}

/// The reason why an object with an unknown field at `path` cannot be read.
pub(super) fn why(path: &str) -> Name {
    format!("field {path} is not known to this version").into()
}

/// Why a `spec` that has a field which is not known cannot be decided, if it has one.
pub(super) fn unknown_in(shape: &'static Shape, spec: &RawValue) -> Option<Name> {
    let path = unknown(shape, &mut serde_json::Deserializer::from_str(spec.get()))?;
    Some(why(&format!("spec.{path}")))
}

/// The path of the first unknown field of a value. What is no JSON has none, and fails where it is decoded.
pub(super) fn unknown<'de>(shape: &'static Shape, value: impl Deserializer<'de>) -> Option<String> {
    all(shape, value).into_iter().next()
}

/// The paths of the unknown fields in `spec` of an object of this kind, in its allocation, and in what its devices cost.
pub fn unknown_fields(kind: &str, object: &Value) -> Vec<String> {
    let newest = (kind == "ResourceSlice").then(|| newest(object));
    let object = newest.as_ref().unwrap_or(object);
    let parts: &'static [(&str, Shape)] = match kind {
        "ResourceClaim" => &[
            ("spec", CLAIM),
            ("spec.devices.requests", Each(&REQUEST)),
            ("status.allocation", ALLOCATION),
            ("status.allocation.devices.results", Each(&RESULT)),
        ],
        "DeviceClass" => &[("spec", CLASS)],
        "ResourceSlice" => {
            &[("spec", SLICE), ("spec.devices", Each(&DEVICE)), ("spec.sharedCounters", Each(&COUNTER_SET))]
        }
        "DeviceTaintRule" => &[("spec", TAINT_RULE)],
        _ => &[],
    };
    let of_part = |(part, shape): &'static (&str, Shape)| {
        let value = object.pointer(&format!("/{}", part.replace('.', "/")));
        let unknown = value.map(|value| all(shape, value)).unwrap_or_default();
        unknown.into_iter().map(move |path| joined(part, &path))
    };
    let mut unknown: Vec<String> = parts.iter().flat_map(of_part).collect();
    if kind == "ResourceSlice" {
        let devices = object.pointer("/spec/devices").and_then(Value::as_array).into_iter().flatten();
        for (number, device) in devices.enumerate() {
            for (field, shape) in OF_COSTS {
                let found = device.get(field).map(|costs| all(shape, costs)).unwrap_or_default();
                unknown.extend(
                    found.iter().map(|path| joined(&format!("spec.devices[{number}].{field}"), path)),
                );
            }
        }
    }
    unknown
}

/// The fields of a device that say what it takes from its node.
const OF_COSTS: [(&str, &Shape); 2] = [
    ("nodeAllocatableResourceMappings", Definitions::<NodeAllocatableResourceMapping>::SHAPE),
    ("nodeAllocatableResources", Definitions::<NodeAllocatableResource>::SHAPE),
];

/// A slice whose devices are in the form of the newest version of the API.
fn newest(slice: &Value) -> Value {
    let mut slice = slice.clone();
    let devices = slice.pointer_mut("/spec/devices").and_then(Value::as_array_mut);
    devices.into_iter().flatten().for_each(Device::newest);
    slice
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_are_found_wherever_they_can_narrow_and_opaque_values_are_left_alone() {
        let claim = json!({"metadata": {"odd": 1}, "spec": {"odd": null, "devices": {
            "requests": [{"name": "r", "exactly": {"deviceClassName": "c", "selectors": [{"cel": {"expression": "true"}, "odd": 1}]}},
                {"name": "s", "firstAvailable": [{"tolerations": [{"odd": "x"}]}], "optional": true}],
            "constraints": [{"matchAttribute": "a", "maxDistance": 2}],
            "config": [{"opaque": {"driver": "d", "parameters": {"any": {"thing": [1]}}}}]}},
            "status": {"allocation": {"reservations": [], "devices": {"sharedResults": [],
                "results": [{"device": "d", "consumedCounters": []}]}}}});
        let expected = [
            "spec.devices.constraints[0].maxDistance",
            "spec.devices.requests[0].exactly.selectors[0].odd",
            "spec.devices.requests[1].firstAvailable[0].tolerations[0].odd",
            "spec.devices.requests[1].optional",
            "status.allocation.devices.sharedResults",
            "status.allocation.reservations",
            "status.allocation.devices.results[0].consumedCounters",
        ];
        assert_eq!(unknown_fields("ResourceClaim", &claim), expected);
        let slice = json!({"spec": {"pool": {"name": "p", "odd": 1}, "partitionTypeAttribute": "a",
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "k", "odd": 1}], "matchDevices": []}]},
            "devices": [{"name": "d", "attributes": {"a": {"newer": 1}},
                "nodeAllocatableResources": {"cpu": {"mapping": {"accountingPolicy": "Max"}, "overhead": {"perPod": "1"}}},
                "capacity": {"x.y/m": {"value": "1", "requestPolicy": {"validRange": {"odd": 1}}}},
                "consumesCounters": [{"counterSet": "s", "counters": {"c": {"valueFrom": {"capacityName": "m"}}}}]}],
            "sharedCounters": [{"name": "s", "counters": {"c": {"value": "1", "requestPolicy": {}}}}]}});
        let expected = [
            "spec.nodeSelector.nodeSelectorTerms[0].matchDevices",
            "spec.nodeSelector.nodeSelectorTerms[0].matchFields[0].odd",
            "spec.pool.odd",
            "spec.devices[0].attributes[a].newer",
            "spec.devices[0].capacity[x.y/m].requestPolicy.validRange.odd",
            "spec.devices[0].consumesCounters[0].counters[c].valueFrom",
            "spec.sharedCounters[0].counters[c].requestPolicy",
            "spec.devices[0].nodeAllocatableResources[cpu].mapping.accountingPolicy",
        ];
        assert_eq!(unknown_fields("ResourceSlice", &slice), expected);
        let older =
            json!({"spec": {"devices": [{"name": "d", "basic": {"taints": [], "odd": 1}}, {"basic": 7}]}});
        let expected = ["spec.devices[0].odd", "spec.devices[1].basic"];
        assert_eq!(unknown_fields("ResourceSlice", &older), expected);
        assert_eq!(unknown_fields("Pod", &json!({"spec": {"odd": 1}})), Vec::<String>::new());
    }

    /// The device may be given; what it takes from its node is not known.
    #[test]
    fn a_cost_with_an_unknown_field_is_not_known_and_its_device_is() {
        let device = |costs: Value| {
            let slice =
                json!({"spec": {"devices": [{"name": "d", "nodeAllocatableResources": {"cpu": costs}}]}});
            let slice: crate::ResourceSlice = serde_json::from_value(slice).expect("a slice");
            slice.spec.devices.into_iter().next().expect("a device")
        };
        let known = device(json!({"overhead": {"perPod": "1"}}));
        assert!(matches!(known.node_allocatable_resources.as_deref(), Some(Tolerated::Read(_))));
        for unknown in [
            json!({"overhead": {"perPod": "1", "perClaim": "2"}}),
            json!({"mapping": {"deviceMultiplier": "1"}, "headroom": {}}),
        ] {
            let device = device(unknown);
            let costs = device.node_allocatable_resources.as_deref();
            assert!(
                matches!(costs, Some(Tolerated::Unreadable(_))) && device.unreadable.is_none(),
                "{device:?}"
            );
        }
    }

    #[test]
    fn a_value_of_another_type_has_no_unknown_fields() {
        let spec = json!({"devices": [{"odd": 1}, 7, true, "text", 1.5, -1, null], "pool": 7});
        assert_eq!(unknown_fields("ResourceSlice", &json!({"spec": spec})), ["spec.devices[0].odd"]);
        assert_eq!(unknown(&CLAIM, &mut serde_json::Deserializer::from_str("{")), None);
    }
}
