//! The write that opens the gate.

use super::*;

/// Returns the spec of a Pod after the write that opens its gate.
fn released(spec: &Value, pin: Option<&str>) -> Value {
    let pod = pod_of(spec);
    let key = ObjectKey { namespace: "ns".into(), name: "p".into() };
    let facts = PodFacts::of(&pod, &Vec::new()).expect("it waits");
    let write =
        writes::release(&key, UID, &facts, Opened::Released, pin, &BTreeMap::new()).expect("it has the gate");
    let mut object = json!({"metadata": {"resourceVersion": "7"}, "spec": spec});
    patch(&mut object, &write);
    assert_eq!(object["metadata"]["annotations"]["dragoman.dev/released"], UID);
    object["spec"].clone()
}

/// Applies the patch of a Pod to it.
pub(super) fn patch(object: &mut Value, write: &Write) {
    let Write { action: Action::Patch { subresource: None, guard, operations }, .. } = write else {
        panic!("no patch")
    };
    assert_eq!(*guard.resource_version, object["metadata"]["resourceVersion"], "it is guarded");
    for operation in operations {
        let path = operation["path"].as_str().expect("path");
        let (parent, part) = path.rsplit_once('/').expect("path");
        let part = part.replace("~1", "/");
        if operation["op"] == "test" {
            assert_eq!(object.pointer(path), Some(&operation["value"]), "{operation}");
            continue;
        }
        match (object.pointer_mut(parent).expect("parent"), operation["op"].as_str()) {
            (Value::Array(list), Some("remove")) => drop(list.remove(part.parse().expect("index"))),
            (Value::Array(list), Some("add")) if part == "-" => list.push(operation["value"].clone()),
            (Value::Object(map), Some("add")) => {
                drop(map.insert(part, operation["value"].clone()));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A Pod without annotations gets the map first; another one keeps those that it has. A Pod that is let go has not everything.
#[test]
fn a_pod_is_marked_as_released_with_the_opening_of_its_gate() {
    let key = ObjectKey { namespace: "ns".into(), name: "p".into() };
    let annotations = |of: Value, why: Opened| {
        let mut object = json!({"metadata": {"namespace": "ns", "name": "p", "uid": UID, "resourceVersion": "7",
                "annotations": of},
            "spec": {"schedulingGates": [{"name": "dragoman.dev/claims"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}});
        let facts = |object: &Value| {
            let pod = serde_json::from_value(object.clone()).expect("Pod");
            PodFacts::of(&pod, &Vec::new()).expect("it waits")
        };
        let write = writes::release(&key, UID, &facts(&object), why, None, &BTreeMap::new());
        patch(&mut object, &write.expect("it has the gate"));
        assert_eq!(facts(&object).was_released, why == Opened::Released);
        let mut copy = object.clone();
        copy["metadata"]["uid"] = json!("copy");
        assert!(!facts(&copy).was_released, "a copy was not released");
        object["metadata"]["annotations"].clone()
    };
    let marked = json!({"dragoman.dev/released": UID});
    assert_eq!(annotations(Value::Null, Opened::Released), marked);
    assert_eq!(annotations(json!({}), Opened::Released), marked);
    let both = json!({"dragoman.dev/released": UID, "of.another/domain": "x"});
    assert_eq!(annotations(json!({"of.another/domain": "x"}), Opened::Released), both);
    assert_eq!(annotations(Value::Null, Opened::LetGo), Value::Null);
    assert_eq!(annotations(Value::Null, Opened::NoAllocator), Value::Null);
}

#[test]
fn exactly_our_gate_is_removed() {
    let gates = json!([{"name": "first"}, {"name": "dragoman.dev/claims"}, {"name": "last"}]);
    let spec = released(&json!({"schedulingGates": gates}), None);
    assert_eq!(spec, json!({"schedulingGates": [{"name": "first"}, {"name": "last"}]}));
    assert!(writes::open(&pod_of(&json!({"schedulingGates": [{"name": "first"}]}))).is_none());
}

#[test]
fn a_pin_keeps_what_the_affinity_of_the_author_says() {
    let gate = json!([{"name": "dragoman.dev/claims"}]);
    let pin = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
    let zone = json!({"key": "zone", "operator": "In", "values": ["z"]});
    let required = |terms: Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    let cases = [
        (Value::Null, required(json!([{"matchFields": [pin]}]))),
        (
            json!({"podAntiAffinity": {}}),
            json!({"podAntiAffinity": {}, "nodeAffinity": required(json!([{"matchFields": [pin]}]))["nodeAffinity"]}),
        ),
        (
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}),
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [],
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [pin]}]}}}),
        ),
        // Terms are alternatives: each gets the pin.
        (
            required(json!([{"matchExpressions": [zone]}, {"matchFields": [zone]}])),
            required(
                json!([{"matchExpressions": [zone], "matchFields": [pin]}, {"matchFields": [zone, pin]}]),
            ),
        ),
    ];
    for (before, after) in cases {
        let mut spec = json!({"schedulingGates": gate});
        if !before.is_null() {
            spec["affinity"] = before;
        }
        assert_eq!(released(&spec, Some("n"))["affinity"], after);
    }
}
