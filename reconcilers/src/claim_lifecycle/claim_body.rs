//! From a template to the claim that is posted, and what the API server kept of it.

use dragoman_machinery::kind::{Kind, RESOURCE_CLAIM};
use dragoman_objects::{DELETE_PROTECTION, annotation};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::facts::TemplateFacts;
use dragoman_crds::protocol::ALLOCATOR;

/// The consumer and the entry that a claim is made for.
#[derive(Debug, Clone, Copy)]
pub struct ClaimSource<'a> {
    /// Kind of the consumer at the version it was read in.
    pub kind: Kind,
    /// Name of the consumer.
    pub name: &'a str,
    /// Uid of the consumer.
    pub uid: &'a str,
    /// The entry.
    pub entry: &'a str,
    /// Whether it has the scheduling gate of the claim gate protocol.
    pub gated: bool,
}

/// Options for the creation of claims by this controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Birth {
    /// With the delete-protection finalizer: one write less per life, but a namespace of unscheduled Pods
    /// hangs in deletion while we are down.
    pub protected: bool,
    /// The allocator of claims of gated Pods whose template names none (docs/protocol.md).
    pub default_allocator: Option<Box<str>>,
}

/// Why a template cannot become a claim.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    /// The template has no `spec.spec`.
    #[error("the template has no spec.spec")]
    NoSpec,
    /// `spec.metadata` of the template is not an object.
    #[error("the template's spec.metadata is not an object: {0}")]
    Metadata(String),
}

/// The claim as JSON text. Labels, annotations and every other field of the
/// template's metadata are copied, its spec is inserted letter by letter, so that
/// fields that this version does not know survive.
///
/// # Errors
/// [`BadTemplate`].
pub fn claim_body(
    template: &TemplateFacts,
    namespace: &str,
    name: &str,
    consumer: ClaimSource<'_>,
    birth: &Birth,
) -> Result<String, BadTemplate> {
    let spec = template.spec.as_deref().ok_or(BadTemplate::NoSpec)?;
    let metadata = metadata(template.metadata.as_deref(), namespace, name, consumer, birth)?;
    let api_version = Value::from(RESOURCE_CLAIM.api_version());
    let kind = RESOURCE_CLAIM.kind;
    Ok(format!(
        r#"{{"apiVersion":{api_version},"kind":"{kind}","metadata":{metadata},"spec":{}}}"#,
        spec.get()
    ))
}

fn metadata(
    template: Option<&RawValue>,
    namespace: &str,
    name: &str,
    consumer: ClaimSource<'_>,
    birth: &Birth,
) -> Result<Value, BadTemplate> {
    let wrong = |e: serde_json::Error| BadTemplate::Metadata(e.to_string());
    let mut metadata: Map<String, Value> = match template {
        Some(raw) => serde_json::from_str::<Option<_>>(raw.get()).map_err(wrong)?.unwrap_or_default(),
        None => Map::new(),
    };
    // A template cannot carry a null timestamp on, the API server would refuse it
    // as it refuses every other field that it sets by itself.
    metadata.retain(|_, value| !value.is_null());
    metadata.insert("name".to_owned(), name.into());
    metadata.insert("namespace".to_owned(), namespace.into());
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    match annotations.as_object_mut() {
        Some(map) => map.insert(annotation::POD_CLAIM_NAME.to_owned(), consumer.entry.into()),
        None => return Err(BadTemplate::Metadata("annotations is not an object".to_owned())),
    };
    let owner = json!({
        "apiVersion": consumer.kind.api_version(),
        "kind": consumer.kind.kind,
        "name": consumer.name,
        "uid": consumer.uid,
        "controller": true,
    });
    metadata.insert("ownerReferences".to_owned(), json!([owner]));
    if let Some(allocator) = birth.default_allocator.as_deref().filter(|_| consumer.gated) {
        match metadata.entry("labels").or_insert_with(|| json!({})).as_object_mut() {
            Some(labels) => drop(labels.entry(ALLOCATOR).or_insert_with(|| allocator.into())),
            None => return Err(BadTemplate::Metadata("labels is not an object".to_owned())),
        }
    }
    if birth.protected {
        metadata.insert("finalizers".to_owned(), json!([DELETE_PROTECTION]));
    }
    Ok(Value::Object(metadata))
}

/// Maximum number of dropped fields that are named; more would help no reader.
const NAMED: usize = 5;

/// The fields of the posted spec that the API server did not keep, by path. It
/// drops what its version does not know or what a feature gate turns off, without
/// a word.
pub fn dropped_fields(template: &TemplateFacts, answer: &[u8]) -> Vec<String> {
    let posted = template.spec.as_deref().and_then(|raw| serde_json::from_str(raw.get()).ok());
    let kept: Option<Value> = serde_json::from_slice(answer).ok();
    let mut dropped = Vec::new();
    if let (Some(posted), Some(kept)) = (posted, kept.as_ref().and_then(|k| k.get("spec"))) {
        missing("spec", &posted, kept, &mut dropped);
    }
    dropped
}

fn missing(path: &str, posted: &Value, kept: &Value, dropped: &mut Vec<String>) {
    if dropped.len() >= NAMED {
        return;
    }
    match (posted, kept) {
        (Value::Object(posted), Value::Object(kept)) => {
            for (field, value) in posted {
                let path = format!("{path}.{field}");
                match kept.get(field) {
                    Some(kept) => missing(&path, value, kept, dropped),
                    // Empty values are left out on the way back; nothing is lost.
                    None if is_empty(value) => {}
                    None => dropped.push(path),
                }
            }
        }
        (Value::Array(posted), Value::Array(kept)) => {
            for (index, (posted, kept)) in posted.iter().zip(kept).enumerate() {
                missing(&format!("{path}[{index}]"), posted, kept, dropped);
            }
        }
        // Values may come back in canonical form ("1000m" as "1").
        _ => {}
    }
    dropped.truncate(NAMED);
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use dragoman_machinery::kind::POD;

    use super::*;

    fn template(metadata: &str, spec: &str) -> TemplateFacts {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).expect("json");
        TemplateFacts { metadata: Some(raw(metadata)), spec: Some(raw(spec)) }
    }

    const HOLDER: ClaimSource<'static> =
        ClaimSource { kind: POD, name: "pod", uid: "u", entry: "gpu", gated: false };

    #[test]
    fn fields_that_nobody_knows_survive_to_the_letter() {
        let spec = r#"{"devices":{"fromTheFuture":[1.50,{"x":null}]},  "other":1e3}"#;
        let template = template(r#"{"labels":{"a":"b"},"annotations":{"c":"d"},"later":[true]}"#, spec);
        let body = claim_body(&template, "n", "pod-gpu-12345", HOLDER, &Birth::default()).expect("body");
        assert!(body.contains(spec));
        let claim: Value = serde_json::from_str(&body).expect("json");
        assert_eq!(claim["metadata"]["labels"]["a"], "b");
        assert_eq!(claim["metadata"]["annotations"]["c"], "d");
        assert_eq!(claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"], "gpu");
        assert_eq!(claim["metadata"]["later"], json!([true]));
        assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], "u");
        assert!(claim["metadata"].get("finalizers").is_none());
    }

    #[test]
    fn a_claim_can_be_born_protected() {
        let birth = Birth { protected: true, ..Birth::default() };
        let body = claim_body(&template("{}", "{}"), "n", "c", HOLDER, &birth).expect("body");
        let claim: Value = serde_json::from_str(&body).expect("json");
        assert_eq!(claim["metadata"]["finalizers"], json!([DELETE_PROTECTION]));
    }

    #[test]
    fn claims_of_gated_pods_name_an_allocator() {
        let birth = Birth { default_allocator: Some("ours".into()), ..Birth::default() };
        let label = |metadata: &str, gated: bool| {
            let source = ClaimSource { gated, ..HOLDER };
            let body = claim_body(&template(metadata, "{}"), "n", "c", source, &birth).expect("body");
            let claim: Value = serde_json::from_str(&body).expect("json");
            claim["metadata"]["labels"][ALLOCATOR].clone()
        };
        assert_eq!(label("{}", true), "ours");
        assert_eq!(label("{}", false), Value::Null);
        assert_eq!(label(r#"{"labels":{"dragoman.dev/allocator":"theirs"}}"#, true), "theirs");
        let odd = template(r#"{"labels":3}"#, "{}");
        let gated = ClaimSource { gated: true, ..HOLDER };
        assert!(matches!(claim_body(&odd, "n", "c", gated, &birth), Err(BadTemplate::Metadata(_))));
    }

    #[test]
    fn templates_that_cannot_become_claims_are_refused() {
        let empty = TemplateFacts { metadata: None, spec: None };
        assert_eq!(claim_body(&empty, "n", "c", HOLDER, &Birth::default()), Err(BadTemplate::NoSpec));
        let odd = template("[1]", "{}");
        assert!(matches!(
            claim_body(&odd, "n", "c", HOLDER, &Birth::default()),
            Err(BadTemplate::Metadata(_))
        ));
        let odd = template(r#"{"annotations":3}"#, "{}");
        assert!(matches!(
            claim_body(&odd, "n", "c", HOLDER, &Birth::default()),
            Err(BadTemplate::Metadata(_))
        ));
    }

    #[test]
    fn dropped_fields_are_named_and_defaults_are_not_mistaken_for_them() {
        let template = template(
            "{}",
            r#"{"devices":{"requests":[{"name":"a","future":1,"exactly":{"count":2}}],"constraints":[]},"gone":{"x":1}}"#,
        );
        let answer = br#"{"spec":{"devices":{"requests":[{"name":"a","exactly":{"count":2,"allocationMode":"ExactCount"}}]}}}"#;
        let mut dropped = dropped_fields(&template, answer);
        dropped.sort();
        assert_eq!(dropped, ["spec.devices.requests[0].future", "spec.gone"]);
    }
}
