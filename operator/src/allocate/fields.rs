//! The fields that the allocator knows. The API server drops a field that it does not know and says so
//! (`--validate`); a scenario that a person wrote has no API server before it, and a `selector` that
//! should be `selectors` would select every device.

use serde_json::Value;

/// The shape of a value.
enum Shape {
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
const NODE_SELECTOR: Shape = Any;
const TAINT: Shape = Fields(&[("key", Any), ("value", Any), ("effect", Any), ("timeAdded", Any)]);

const CLAIM: Shape = Fields(&[(
    "devices",
    Fields(&[
        (
            "requests",
            Each(&Fields(&[
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
            ])),
        ),
        (
            "constraints",
            Each(&Fields(&[("requests", Any), ("matchAttribute", Any), ("distinctAttribute", Any)])),
        ),
        ("config", Each(&Fields(&[("requests", Any), ("opaque", OPAQUE)]))),
    ]),
)]);

const CLASS: Shape = Fields(&[
    ("selectors", SELECTORS),
    ("config", Each(&Fields(&[("opaque", OPAQUE)]))),
    ("extendedResourceName", Any),
    ("suitableNodes", Any),
    ("managesNodeAllocatableResources", Any),
]);

const SLICE: Shape = Fields(&[
    ("driver", Any),
    ("pool", Fields(&[("name", Any), ("generation", Any), ("resourceSliceCount", Any)])),
    ("nodeName", Any),
    ("nodeSelector", NODE_SELECTOR),
    ("allNodes", Any),
    ("perDeviceNodeSelection", Any),
    (
        "devices",
        Each(&Fields(&[
            ("name", Any),
            ("attributes", Map(&Any)),
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
            (
                "consumesCounters",
                Each(&Fields(&[("counterSet", Any), ("counters", COUNTERS), ("compatibilityGroups", Any)])),
            ),
            ("nodeName", Any),
            ("nodeSelector", NODE_SELECTOR),
            ("allNodes", Any),
            ("taints", Each(&TAINT)),
            ("bindsToNode", Any),
            ("bindingConditions", Any),
            ("bindingFailureConditions", Any),
            ("allowMultipleAllocations", Any),
            // What devices take from their node is for `dragoman account`.
            ("nodeAllocatableResourceMappings", Any),
            ("nodeAllocatableResources", Any),
        ])),
    ),
    ("sharedCounters", Each(&Fields(&[("name", Any), ("counters", COUNTERS)]))),
    ("skipNodeOperations", Any),
]);

const TAINT_RULE: Shape = Fields(&[
    ("deviceSelector", Fields(&[("driver", Any), ("pool", Any), ("device", Any)])),
    ("taint", TAINT),
]);

/// The lists of a scenario, each with the kind of its objects.
pub(super) const LISTS: [(&str, &str); 5] = [
    ("nodes", "Node"),
    ("resourceSlices", "ResourceSlice"),
    ("deviceClasses", "DeviceClass"),
    ("resourceClaims", "ResourceClaim"),
    ("deviceTaintRules", "DeviceTaintRule"),
];

/// The fields of a scenario beside its lists.
const OTHERS: [&str; 3] = ["allocate", "candidates", "featureGates"];

/// Returns the paths of the unknown fields in the `spec` of an object.
pub(super) fn unknown_of(kind: &str, object: &Value) -> Vec<String> {
    let shape = match kind {
        "ResourceClaim" => &CLAIM,
        "DeviceClass" => &CLASS,
        "ResourceSlice" => &SLICE,
        "DeviceTaintRule" => &TAINT_RULE,
        _ => &Any,
    };
    let mut unknown = Vec::new();
    if let Some(spec) = object.get("spec") {
        collect(shape, spec, "spec", &mut unknown);
    }
    unknown
}

/// Returns the paths of the unknown fields in a scenario and in its objects.
pub(super) fn unknown_in(scenario: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    for (field, objects) in scenario.as_object().into_iter().flatten() {
        let Some((_, kind)) = LISTS.iter().find(|(list, _)| list == field) else {
            if !OTHERS.contains(&&**field) {
                unknown.push(field.clone());
            }
            continue;
        };
        for (number, object) in objects.as_array().into_iter().flatten().enumerate() {
            let known =
                |name: &&String| ["kind", "apiVersion", "metadata", "spec", "status"].contains(&&***name);
            let fields = object.as_object().into_iter().flatten().map(|(name, _)| name);
            let fields = fields.filter(|name| !known(name)).cloned().chain(unknown_of(kind, object));
            unknown.extend(fields.map(|path| format!("{field}[{number}].{path}")));
        }
    }
    unknown
}

fn collect(shape: &Shape, value: &Value, path: &str, unknown: &mut Vec<String>) {
    match (shape, value) {
        (Each(shape), Value::Array(values)) => {
            for (number, value) in values.iter().enumerate() {
                collect(shape, value, &format!("{path}[{number}]"), unknown);
            }
        }
        (Map(shape), Value::Object(values)) => {
            for (name, value) in values {
                collect(shape, value, &format!("{path}[{name}]"), unknown);
            }
        }
        (Fields(fields), Value::Object(values)) => {
            for (name, value) in values {
                let path = format!("{path}.{name}");
                match fields.iter().find(|(known, _)| known == name) {
                    Some((_, shape)) => collect(shape, value, &path, unknown),
                    None => unknown.push(path),
                }
            }
        }
        _ => {}
    }
}
