use serde_json::json;

use super::*;

fn schema() -> Schema {
    let schema = json!({
        "type": "object", "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-validations": [
                    {"rule": "!has(self.most) || quantity(self.least).isLessThan(quantity(self.most))", "message": "least is not less"},
                    {"rule": "self.mode == oldSelf.mode", "message": "the mode stays", "fieldPath": ".mode"},
                ],
                "properties": {
                    "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                    "least": {"type": "string"}, "most": {"type": "string"},
                    "sizes": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                },
            },
        },
    });
    Schema::new(&schema).expect("schema")
}

#[test]
fn unknown_fields_go_and_defaults_come() {
    let mut object = json!({
        "kind": "Any", "metadata": {"name": "a"}, "more": 1,
        "spec": {"typo": 1, "sizes": {"any": 2}, "free": {"any": {"thing": 1}}},
    });
    assert_eq!(schema().prune(&mut object), ["more", "spec.typo"]);
    schema().fill(&mut object);
    let spec = json!({"mode": "a", "sizes": {"any": 2}, "free": {"any": {"thing": 1}}});
    assert_eq!(object, json!({"kind": "Any", "metadata": {"name": "a"}, "spec": spec}));
}

#[test]
fn what_is_wrong_is_said_with_its_field() {
    let fields = |before: Option<Value>, spec: Value| {
        let object = |spec: Value| json!({"spec": spec});
        let errors = schema().check(before.map(object).as_ref(), &object(spec));
        errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
    };
    assert_eq!(
        fields(None, json!({"mode": "c", "sizes": {"x": 0}, "least": 1})),
        ["spec.least", "spec.mode", "spec.sizes.x", "<nil>"]
    );
    assert_eq!(fields(None, json!({"least": "1", "most": "900m"})), ["spec"]);
    assert!(fields(None, json!({"least": "1", "most": "2", "mode": "a"})).is_empty());
    let was = json!({"mode": "a"});
    assert_eq!(fields(Some(was.clone()), json!({"mode": "b"})), ["spec.mode"]);
    assert!(fields(Some(was.clone()), was).is_empty());
    assert_eq!(schema().check(None, &json!({}))[0].field, "spec");
}

#[test]
fn rules_that_are_not_simulated_are_refused() {
    let with = |rule: &str| Schema::new(&json!({"x-kubernetes-validations": [{"rule": rule}]}));
    assert!(with("self.all(x, x in ['a'] || x.startsWith('b'))").is_ok());
    let why = with("self.find('[0-9]+') == '1'").expect_err("an extension");
    assert!(why.contains("find"), "{why}");
    assert!(with("self.").is_err());
}
