//! Updates in protobuf of claims that the API server refuses to patch in JSON.
//!
//! It keeps opaque parameters as their author wrote them. A patch, or an update in JSON, is a change of a claim whose parameters
//! it would write in another way, with other blanks or with `<`, `>` and `&` escaped, and the spec of a claim is immutable, as is
//! its allocation. The object in protobuf has the bytes: it is read, what is meant is changed, and it is sent back.

use serde_json::Value;

use super::{Action, Changes, Guard};
use crate::protobuf::{MAGIC, Message, RAW};
use crate::refusal::Refusal;

// Of a ResourceClaim, in every version.
const METADATA: u64 = 1;
const STATUS: u64 = 3;
const ALLOCATION: u64 = 1;
const RESERVED_FOR: u64 = 2;
/// Fields of a consumer: their names in JSON and their numbers.
const CONSUMER: [(&str, u64); 4] = [("apiGroup", 1), ("resource", 3), ("name", 4), ("uid", CONSUMER_UID)];
const CONSUMER_UID: u64 = 5;

// Of the metadata.
const UID: u64 = 5;
const RESOURCE_VERSION: u64 = 6;
const LABELS: u64 = 11;
const ANNOTATIONS: u64 = 12;
const FINALIZERS: u64 = 14;

/// Whether a write of a claim was refused because its JSON is not what its author wrote.
pub(super) fn is_about_bytes(refusal: &Refusal) -> bool {
    // In the words of a field that may not change, of every release.
    let words = ["field is immutable", "field cannot be modified once set"];
    matches!(refusal, Refusal::Invalid(why) if words.iter().any(|words| why.contains(words)))
}

/// A claim in protobuf after an action.
///
/// # Errors
/// The claim is not that of the guard; or `refused`, where the action is none that is done in this form.
pub(super) fn after(action: &Action, read: &[u8], refused: Refusal) -> Result<Vec<u8>, Refusal> {
    let broken = || Refusal::Undecodable("a claim in protobuf".to_owned());
    let envelope = read.strip_prefix(MAGIC).and_then(Message::read);
    let mut envelope = envelope.ok_or_else(broken)?;
    let mut claim = envelope.message(RAW).ok_or_else(broken)?;
    let mut metadata = claim.message(METADATA).ok_or_else(broken)?;
    let mut status = claim.message(STATUS).ok_or_else(broken)?;
    match action {
        Action::Patch { guard, operations, .. } => {
            is_of(guard, &metadata)?;
            for operation in operations {
                match patched(operation, &mut metadata, &mut status) {
                    Some(done) => done?,
                    None => return Err(refused),
                }
            }
        }
        Action::Merge { guard, labels, annotations } => {
            is_of(guard, &metadata)?;
            merged(&mut metadata, LABELS, labels);
            merged(&mut metadata, ANNOTATIONS, annotations);
        }
        _ => return Err(refused),
    }
    claim.set(METADATA, &metadata.bytes());
    claim.set(STATUS, &status.bytes());
    envelope.set(RAW, &claim.bytes());
    Ok([MAGIC, &envelope.bytes()].concat())
}

/// Whether this is the version that was decided on. The update repeats it.
fn is_of(Guard { uid, resource_version }: &Guard, metadata: &Message) -> Result<(), Refusal> {
    let is = |number: u64, text: &String| metadata.one(number) == Some(text.as_bytes());
    if !is(UID, uid) {
        return Err(Refusal::Replaced);
    }
    if is(RESOURCE_VERSION, resource_version) { Ok(()) } else { Err(Refusal::Conflict) }
}

/// Does an operation of a JSON patch; `None` for one that claims are not written with, or of what is not there.
fn patched(operation: &Value, metadata: &mut Message, status: &mut Message) -> Option<Result<(), Refusal>> {
    let value = operation.get("value");
    let path: Vec<&str> = operation.get("path")?.as_str()?.split('/').skip(1).collect();
    match (operation.get("op")?.as_str()?, path.as_slice()) {
        ("test", ["status", "reservedFor", at, "uid"]) => {
            let consumer = status.all(RESERVED_FOR).nth(at.parse().ok()?).and_then(Message::read);
            let is_so = consumer?.one(CONSUMER_UID) == Some(value?.as_str()?.as_bytes());
            return Some(if is_so { Ok(()) } else { Err(Refusal::Conflict) });
        }
        ("remove", ["status", "reservedFor", at]) => status.remove(RESERVED_FOR, at.parse().ok()?)?,
        ("remove", ["status", "allocation"]) => status.remove_all(ALLOCATION),
        ("add", ["status", "reservedFor", "-"]) => status.add(RESERVED_FOR, &consumer(value?)?),
        ("add", ["status", "reservedFor"]) => {
            let consumers = value?.as_array()?.iter().map(consumer).collect::<Option<Vec<_>>>()?;
            status.remove_all(RESERVED_FOR);
            consumers.iter().for_each(|consumer| status.add(RESERVED_FOR, consumer));
        }
        ("remove", ["metadata", "finalizers", at]) => metadata.remove(FINALIZERS, at.parse().ok()?)?,
        ("add", ["metadata", "finalizers", "-"]) => metadata.add(FINALIZERS, value?.as_str()?.as_bytes()),
        ("add", ["metadata", "finalizers"]) => {
            let texts = value?.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
            metadata.remove_all(FINALIZERS);
            texts.iter().for_each(|text| metadata.add(FINALIZERS, text.as_bytes()));
        }
        _ => return None,
    }
    Some(Ok(()))
}

fn consumer(value: &Value) -> Option<Vec<u8>> {
    let mut consumer = Message::default();
    let fields = value.as_object()?;
    for (name, value) in fields {
        let (_, number) = CONSUMER.iter().find(|(known, _)| known == name)?;
        consumer.add(*number, value.as_str()?.as_bytes());
    }
    Some(consumer.bytes())
}

/// Changes the entries of a map from texts to texts.
fn merged(metadata: &mut Message, map: u64, changes: &Changes) {
    const KEY: u64 = 1;
    const VALUE: u64 = 2;
    for (key, value) in changes {
        let is_key = |entry: &[u8]| {
            Message::read(entry).is_some_and(|entry| entry.one(KEY).unwrap_or_default() == key.as_bytes())
        };
        metadata.remove_where(map, is_key);
        if let Some(value) = value {
            let mut entry = Message::default();
            entry.add(KEY, key.as_bytes());
            entry.add(VALUE, value.as_bytes());
            metadata.add(map, &entry.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use http::{Request, Response, StatusCode, header};
    use kube::client::Body;
    use prometheus_client::registry::Registry;
    use serde_json::json;

    use super::super::Write;
    use super::*;
    use crate::api::{Api, Limits, PROTOBUF};
    use crate::kind::{Kind, POD, RESOURCE_CLAIM};
    use crate::metrics::{ClientMetrics, MachineryMetrics};

    fn message(fields: &[(u64, &[u8])]) -> Message {
        let mut message = Message::default();
        fields.iter().for_each(|(number, content)| message.add(*number, content));
        message
    }

    fn consumers(uids: &[&str]) -> Vec<(u64, Vec<u8>)> {
        let of = |uid: &&str| message(&[(3, b"pods"), (4, b"p"), (CONSUMER_UID, uid.as_bytes())]).bytes();
        uids.iter().map(|uid| (RESERVED_FOR, of(uid))).collect()
    }

    /// A claim with fields that nothing here knows, on every level.
    fn stored(finalizers: &[&str], annotations: &[(&str, &str)], uids: &[&str]) -> Vec<u8> {
        let mut metadata = message(&[(1, b"claim"), (UID, b"u"), (RESOURCE_VERSION, b"7"), (99, b"unknown")]);
        finalizers.iter().for_each(|text| metadata.add(FINALIZERS, text.as_bytes()));
        for (key, value) in annotations {
            metadata.add(ANNOTATIONS, &message(&[(1, key.as_bytes()), (2, value.as_bytes())]).bytes());
        }
        let mut status = message(&[(ALLOCATION, b"{\"mode\": \"fast\"}"), (98, b"unknown")]);
        consumers(uids).iter().for_each(|(number, content)| status.add(*number, content));
        let claim = message(&[
            (METADATA, &metadata.bytes()),
            (2, b"the spec, { \"with\": \"blanks\" }"),
            (STATUS, &status.bytes()),
            (97, b"unknown"),
        ]);
        [MAGIC, &message(&[(1, b"types"), (RAW, &claim.bytes()), (4, b"application/json")]).bytes()].concat()
    }

    /// The parts of a claim, whatever their order.
    fn parts(stored: &[u8]) -> (Vec<String>, Vec<(String, String)>, Vec<String>, bool) {
        let texts = |message: &Message, number: u64| -> Vec<String> {
            message.all(number).map(|text| String::from_utf8(text.to_vec()).expect("text")).collect()
        };
        let envelope = Message::read(stored.strip_prefix(MAGIC).expect("magic")).expect("an envelope");
        assert_eq!((envelope.one(1), envelope.one(4)), (Some(&b"types"[..]), Some(&b"application/json"[..])));
        let claim = envelope.message(RAW).expect("a claim");
        assert_eq!(claim.one(2), Some(&b"the spec, { \"with\": \"blanks\" }"[..]));
        let (metadata, status) =
            (claim.message(METADATA).expect("metadata"), claim.message(STATUS).expect("status"));
        for (message, number) in [(&claim, 97), (&status, 98), (&metadata, 99)] {
            assert_eq!(message.one(number), Some(&b"unknown"[..]));
        }
        let entries = metadata.all(ANNOTATIONS).map(|entry| {
            let entry = Message::read(entry).expect("an entry");
            (texts(&entry, 1).concat(), texts(&entry, 2).concat())
        });
        let uids = status
            .all(RESERVED_FOR)
            .map(|of| texts(&Message::read(of).expect("a consumer"), CONSUMER_UID).concat());
        (texts(&metadata, FINALIZERS), entries.collect(), uids.collect(), status.one(ALLOCATION).is_some())
    }

    fn guard() -> Guard {
        Guard { uid: "u".to_owned(), resource_version: "7".to_owned() }
    }

    fn refused() -> Refusal {
        Refusal::Invalid("spec: field is immutable".to_owned())
    }

    fn patched(stored: &[u8], operations: &Value) -> Result<Vec<u8>, Refusal> {
        let operations = operations.as_array().cloned().unwrap_or_default();
        after(&Action::Patch { subresource: None, guard: guard(), operations }, stored, refused())
    }

    #[test]
    fn every_write_of_a_claim_changes_what_is_meant_and_nothing_else() {
        let claim = stored(&["a", "b"], &[("key", "old"), ("other", "x")], &["one", "two", "three"]);
        let (finalizers, annotations, ..) = parts(&claim);
        let after = |operations: Value| parts(&patched(&claim, &operations).expect("it is done"));
        let unreserved = after(json!([
            {"op": "remove", "path": "/status/reservedFor/2"}, {"op": "remove", "path": "/status/reservedFor/0"}]));
        assert_eq!(unreserved, (finalizers.clone(), annotations.clone(), vec!["two".to_owned()], true));
        let released = after(json!([
            {"op": "test", "path": "/status/reservedFor/1/uid", "value": "two"},
            {"op": "remove", "path": "/status/reservedFor/1"}, {"op": "remove", "path": "/status/allocation"}]));
        assert_eq!(released.2, ["one", "three"]);
        assert!(!released.3);
        let consumer = json!({"resource": "pods", "name": "p", "uid": "four"});
        let added = after(json!([{"op": "add", "path": "/status/reservedFor/-", "value": consumer}]));
        assert_eq!(added.2, ["one", "two", "three", "four"]);
        let only = after(json!([{"op": "add", "path": "/status/reservedFor", "value": [consumer]}]));
        assert_eq!(only.2, ["four"]);
        assert_eq!(after(json!([{"op": "remove", "path": "/metadata/finalizers/0"}])).0, ["b"]);
        assert_eq!(
            after(json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "c"}])).0,
            ["a", "b", "c"]
        );
        assert_eq!(after(json!([{"op": "add", "path": "/metadata/finalizers", "value": ["c"]}])).0, ["c"]);
        let changes = |value: Option<&str>| [("key".to_owned(), value.map(str::to_owned))].into();
        let merged = |value| {
            let action =
                Action::Merge { guard: guard(), labels: Changes::new(), annotations: changes(value) };
            parts(&super::after(&action, &claim, refused()).expect("it is done")).1
        };
        let entry = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(merged(Some("new")), [entry("other", "x"), entry("key", "new")]);
        assert_eq!(merged(None), [entry("other", "x")]);
    }

    #[test]
    fn another_version_and_what_is_not_done_in_this_form_change_nothing() {
        let claim = stored(&[], &[], &["one"]);
        let with = |uid: &str, version: &str| {
            let guard = Guard { uid: uid.to_owned(), resource_version: version.to_owned() };
            after(&Action::Patch { subresource: None, guard, operations: Vec::new() }, &claim, refused())
        };
        assert_eq!((with("v", "7"), with("u", "8")), (Err(Refusal::Replaced), Err(Refusal::Conflict)));
        let test = json!([{"op": "test", "path": "/status/reservedFor/0/uid", "value": "two"}]);
        assert_eq!(patched(&claim, &test), Err(Refusal::Conflict));
        for operation in [
            json!({"op": "add", "path": "/status/allocation", "value": {}}),
            json!({"op": "remove", "path": "/status/reservedFor/1"}),
            json!({"op": "add", "path": "/status/reservedFor/-", "value": {"unheard": "of"}}),
            json!({"op": "replace", "path": "/spec", "value": {}}),
        ] {
            assert_eq!(patched(&claim, &json!([operation])), Err(refused()), "{operation}");
        }
        assert!(matches!(patched(b"{}", &json!([])), Err(Refusal::Undecodable(_))));
    }

    /// An API server that answers in this order; also what it was asked.
    fn server(answers: Vec<(u16, Vec<u8>)>) -> (Api, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (seen, answers) = (Arc::clone(&asked), Arc::new(Mutex::new(VecDeque::from(answers))));
        let service = tower::service_fn(move |request: Request<Body>| {
            let accept = request.headers()[header::ACCEPT].to_str().expect("text").to_owned();
            seen.lock().expect("a lock").push(format!("{} {} {accept}", request.method(), request.uri()));
            let (code, body) = answers.lock().expect("a lock").pop_front().expect("an answer");
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = StatusCode::from_u16(code).expect("a code");
            async move { Ok::<_, std::io::Error>(response) }
        });
        let metrics = ClientMetrics::register(&mut Registry::default(), "server");
        (Api::new(kube::Client::new(service, "default"), Limits::default(), metrics), asked)
    }

    /// Sends a write to that server; the outcome, and what was asked.
    async fn sent(
        kind: Kind,
        action: Action,
        answers: Vec<(u16, Vec<u8>)>,
    ) -> (Result<(), Refusal>, Vec<String>) {
        let (api, asked) = server(answers);
        let metrics = MachineryMetrics::register(&mut Registry::default());
        let write = Write::new(kind, "ns", "c", action).dry();
        let outcome = write.send(&api, &metrics).await.map(drop);
        let asked = asked.lock().expect("a lock").clone();
        (outcome, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_takes_no_patch_is_read_and_sent_back_and_nothing_else_is() {
        let no = |message: &str| {
            let status =
                json!({"reason": "Invalid", "message": message, "details": {"causes": [{"field": "spec"}]}});
            (422, status.to_string().into_bytes())
        };
        let immutable =
            || no("ResourceClaim \"c\" is invalid: spec: Invalid value: null: field is immutable");
        let patch = || Action::Patch {
            subresource: Some("status"),
            guard: guard(),
            operations: vec![json!({"op": "remove", "path": "/status/reservedFor/0"})],
        };
        let read = || (200, stored(&[], &[], &["one"]));
        let at = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c";
        let asked = [
            format!("PATCH {at}/status?fieldManager=dragoman&dryRun=All application/json"),
            format!("GET {at} {PROTOBUF}"),
            format!("PUT {at}/status?fieldManager=dragoman&dryRun=All application/json"),
        ];
        let done = sent(RESOURCE_CLAIM, patch(), vec![immutable(), read(), (200, b"{}".to_vec())]).await;
        assert_eq!(done, (Ok(()), asked.to_vec()));
        let conflict = (409, b"{}".to_vec());
        let late = sent(RESOURCE_CLAIM, patch(), vec![immutable(), read(), conflict]).await;
        assert_eq!(late, (Err(Refusal::Conflict), asked.to_vec()));
        // A proxy answers in JSON.
        let gone = json!({"reason": "NotFound", "details": {"kind": "resourceclaims", "name": "c"}});
        let gone = (404, gone.to_string().into_bytes());
        assert_eq!(sent(RESOURCE_CLAIM, patch(), vec![immutable(), gone]).await.0, Err(Refusal::NotFound));
        let another = sent(RESOURCE_CLAIM, patch(), vec![no("something else")]).await;
        assert_eq!(another, (Err(Refusal::Invalid("something else".to_owned())), asked[..1].to_vec()));
        // The words of a webhook that refuses a creation are no reason to read anything.
        let create = Action::Create { body: "{}".to_owned() };
        for (kind, action) in [(RESOURCE_CLAIM, create), (POD, patch())] {
            let (outcome, asked) = sent(kind, action, vec![immutable()]).await;
            assert!(matches!(outcome, Err(Refusal::Invalid(_))), "{outcome:?}");
            assert_eq!(asked.len(), 1);
        }
    }
}
