//! Templates: used, missing, not understood, or with an error that no claim of them can be allocated with.

use super::*;

fn of_template(objects: &[Value]) -> Answer {
    crate::explain::template::explain(&facts(objects), "ml", "t", now())
}

/// A template for one device, with a change.
fn odd(pointer: &str, value: Value) -> Value {
    with(with(template(), "/spec/spec", claim("x")["spec"].clone()), pointer, value)
}

#[test]
fn a_template_is_used_wanted_or_not_understood() {
    says("used", &of_template(&[template(), from_template()]), "TemplateReady", "used by 1 Pod");
    says("wanted", &of_template(&[from_template()]), "TemplateMissing", "1 Pod waits for it");
    let newer = odd("/spec/spec/devices/requests/0/exactly/affinity", json!("near"));
    says("a newer field", &of_template(&[newer, from_template()]), "TemplateUndecidable", "affinity");
    let newer = odd("/spec/spec/devices/ordered", json!(true));
    says("a newer field", &of_template(&[newer]), "TemplateUndecidable", "ordered");
    let made =
        json!({"phase": "Running", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]});
    let served = pod(json!({"resourceClaimTemplateName": "t"}), made);
    let newer = odd("/spec/spec/devices/ordered", json!(true));
    says(
        "a Pod that has its claim",
        &of_template(&[newer, served]),
        "TemplateUndecidable",
        "0 Pods wait for it",
    );
    let broken = odd("/spec/spec/devices/requests/0/exactly/count", json!("two"));
    says("no number", &of_template(&[broken, from_template()]), "TemplateUndecidable", "1 Pod waits for it");
}

#[test]
fn a_template_of_which_no_claim_can_be_allocated_says_which_field_is_wrong() {
    let fine = claim("x")["spec"].clone();
    let ours = with(template(), "/spec/spec", fine);
    says("a class that is there", &of_template(&[ours.clone(), class()]), "TemplateReady", "used by 0 Pods");
    says(
        "files without classes",
        &of_template(std::slice::from_ref(&ours)),
        "TemplateReady",
        "used by 0 Pods",
    );
    let other = with(class(), "/metadata/name", json!("other"));
    let words = "template ml/t: spec.spec.devices.requests[0].exactly.deviceClassName: request r: could not retrieve device class";
    says("no class", &of_template(&[ours, other, from_template()]), "TemplateInvalid", words);
    let selectors = json!([{"cel": {"expression": "device.driver ="}}]);
    let broken = odd("/spec/spec/devices/requests/0/exactly/selectors", selectors.clone());
    let words = "template ml/t: spec.spec.devices.requests[0].exactly.selectors[0].cel.expression: ";
    says("a selector", &of_template(&[broken, class()]), "TemplateInvalid", words);
    let of_class = with(class(), "/spec/selectors", selectors);
    let ours = odd("/spec/spec/devices/requests/0/exactly/count", json!(1));
    says(
        "of the class",
        &of_template(&[ours, of_class]),
        "TemplateInvalid",
        "spec.selectors[0].cel.expression: ",
    );
}
