//! The fields of `resource.k8s.io` that this version knows. An API server may be newer than this program and store what
//! narrows a device, a request or a class; a person may write `selector` for `selectors`. What such a field means is
//! not known, so that what has it cannot be decided.
//!
//! Fields that are named here and read nowhere say nothing about what may be given: they are known to be harmless.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::unreadable::Unreadable as _;
use super::{Device, Name};

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
    // A value of an unknown type is a value of which a selector says that it does not know it.
    ("attributes", Any),
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
    ("nodeSelector", Any),
    ("allNodes", Any),
    ("taints", Each(&TAINT)),
    ("bindsToNode", Any),
    ("bindingConditions", Any),
    ("bindingFailureConditions", Any),
    ("allowMultipleAllocations", Any),
    // What devices take from their node is for the ledger.
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
    ("nodeSelector", Any),
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

/// The paths of the unknown fields in `spec` of an object of this kind, and in the results of its allocation.
pub fn unknown_fields(kind: &str, object: &Value) -> Vec<String> {
    let newest = (kind == "ResourceSlice").then(|| newest(object));
    let object = newest.as_ref().unwrap_or(object);
    let parts: &'static [(&str, Shape)] = match kind {
        "ResourceClaim" => &[
            ("spec", CLAIM),
            ("spec.devices.requests", Each(&REQUEST)),
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
    parts.iter().flat_map(of_part).collect()
}

/// A slice whose devices are in the form of the newest version of the API.
fn newest(slice: &Value) -> Value {
    let mut slice = slice.clone();
    let devices = slice.pointer_mut("/spec/devices").and_then(Value::as_array_mut);
    devices.into_iter().flatten().for_each(Device::newest);
    slice
}

fn all<'de>(shape: &'static Shape, value: impl Deserializer<'de>) -> Vec<String> {
    let mut unknown = Vec::new();
    // What was found before a value that does not decode counts; of that value its reader says what is wrong.
    drop(Search { shape, unknown: &mut unknown }.deserialize(value));
    unknown
}

fn joined(parent: &str, path: &str) -> String {
    if parent.is_empty() || path.starts_with('[') {
        format!("{parent}{path}")
    } else {
        format!("{parent}.{path}")
    }
}

/// Looks a value through for unknown fields. Their paths begin at the value.
struct Search<'a> {
    shape: &'static Shape,
    unknown: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Search<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.shape {
            Any => IgnoredAny::deserialize(deserializer).map(drop),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Search<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let shape = if let Each(shape) = self.shape { shape } else { &Any };
        for number in 0.. {
            let before = self.unknown.len();
            if seq.next_element_seed(Search { shape, unknown: self.unknown })?.is_none() {
                break;
            }
            self.unknown
                .iter_mut()
                .skip(before)
                .for_each(|path| *path = joined(&format!("[{number}]"), path));
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(Field(self.shape))? {
            let (shape, name) = match field {
                // `null` is absent.
                Found::Unknown(name) => {
                    self.unknown.extend(map.next_value::<Option<IgnoredAny>>()?.map(|_| name));
                    continue;
                }
                Found::Known(shape, name) => (shape, name),
            };
            let before = self.unknown.len();
            map.next_value_seed(Search { shape, unknown: self.unknown })?;
            self.unknown.iter_mut().skip(before).for_each(|path| *path = joined(&name, path));
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// The key of a field of a value of this shape.
struct Field(&'static Shape);

/// The meaning of a key.
enum Found {
    /// A field of this shape, and its place in a path.
    Known(&'static Shape, Cow<'static, str>),
    /// A field that is not known.
    Unknown(String),
}

impl<'de> DeserializeSeed<'de> for Field {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Field {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Found, E> {
        Ok(match self.0 {
            Map(shape) => Found::Known(shape, format!("[{key}]").into()),
            Fields(fields) => match fields.iter().find(|(known, _)| *known == key) {
                Some((known, shape)) => Found::Known(shape, (*known).into()),
                None => Found::Unknown(key.to_owned()),
            },
            Any | Each(_) => Found::Known(&Any, Cow::Borrowed("")),
        })
    }
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
            "status": {"allocation": {"devices": {"results": [{"device": "d", "consumedCounters": []}]}}}});
        let expected = [
            "spec.devices.constraints[0].maxDistance",
            "spec.devices.requests[0].exactly.selectors[0].odd",
            "spec.devices.requests[1].firstAvailable[0].tolerations[0].odd",
            "spec.devices.requests[1].optional",
            "status.allocation.devices.results[0].consumedCounters",
        ];
        assert_eq!(unknown_fields("ResourceClaim", &claim), expected);
        let slice = json!({"spec": {"pool": {"name": "p", "odd": 1}, "partitionTypeAttribute": "a",
            "devices": [{"name": "d", "attributes": {"a": {"newer": 1}},
                "capacity": {"x.y/m": {"value": "1", "requestPolicy": {"validRange": {"odd": 1}}}},
                "consumesCounters": [{"counterSet": "s", "counters": {"c": {"valueFrom": {"capacityName": "m"}}}}]}],
            "sharedCounters": [{"name": "s", "counters": {"c": {"value": "1", "requestPolicy": {}}}}]}});
        let expected = [
            "spec.pool.odd",
            "spec.devices[0].capacity[x.y/m].requestPolicy.validRange.odd",
            "spec.devices[0].consumesCounters[0].counters[c].valueFrom",
            "spec.sharedCounters[0].counters[c].requestPolicy",
        ];
        assert_eq!(unknown_fields("ResourceSlice", &slice), expected);
        let older =
            json!({"spec": {"devices": [{"name": "d", "basic": {"taints": [], "odd": 1}}, {"basic": 7}]}});
        let expected = ["spec.devices[0].odd", "spec.devices[1].basic"];
        assert_eq!(unknown_fields("ResourceSlice", &older), expected);
        assert_eq!(unknown_fields("Pod", &json!({"spec": {"odd": 1}})), Vec::<String>::new());
    }

    #[test]
    fn a_value_of_another_type_has_no_unknown_fields() {
        let spec = json!({"devices": [{"odd": 1}, 7, true, "text", 1.5, -1, null], "pool": 7});
        assert_eq!(unknown_fields("ResourceSlice", &json!({"spec": spec})), ["spec.devices[0].odd"]);
        assert_eq!(unknown(&CLAIM, &mut serde_json::Deserializer::from_str("{")), None);
    }
}
