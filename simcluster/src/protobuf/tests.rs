use super::*;

/// Encodes a field of bytes.
fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("short");
    [&[number << 3 | 2, length][..], content].concat()
}

fn body(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let types = [bytes(1, version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC, &bytes(1, &types), &bytes(2, raw)].concat()
}

#[test]
fn objects_are_read() {
    let label = [bytes(1, b"a"), bytes(2, b"b")].concat();
    let meta =
        [bytes(1, b"settings"), bytes(3, b""), bytes(11, &label), bytes(14, b"x"), bytes(14, b"y")].concat();
    let data = [bytes(1, b"key"), bytes(2, b"value")].concat();
    let map = [bytes(1, &meta), bytes(2, &data), vec![4 << 3, 1], bytes(15, b"unheard of")].concat();
    let object = read(&body("v1", "ConfigMap", &map)).expect("object");
    let metadata = json!({"name": "settings", "labels": {"a": "b"}, "finalizers": ["x", "y"]});
    assert_eq!(
        object,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value"}, "immutable": true})
    );
    let secret = bytes(2, &[bytes(1, b"key"), bytes(2, &[0, 255])].concat());
    assert_eq!(read(&body("v1", "Secret", &secret)).expect("object")["data"]["key"], "AP8=");
    // The encoding of -1 has ten bytes.
    let options = [&[1 << 3][..], &[255; 9], &[1]].concat();
    assert_eq!(read(&body("v1", "DeleteOptions", &options)).expect("object")["gracePeriodSeconds"], -1);
}

#[test]
fn what_is_no_message_is_said() {
    assert_eq!(read(b"{}"), Err(Unreadable::Broken));
    assert_eq!(read(&[MAGIC, &[0x0a, 0xff]].concat()), Err(Unreadable::Broken));
    let (version, kind) = ("apps/v1".to_owned(), "Deployment".to_owned());
    assert_eq!(read(&body("apps/v1", "Deployment", b"")), Err(Unreadable::Unknown { version, kind }));
    // The raw message is truncated.
    assert_eq!(read(&body("v1", "ConfigMap", &[0x0a, 5, 1])), Err(Unreadable::Broken));
}

/// Every field of a claim that the tables know, and texts of its author.
#[test]
fn claims_come_back_as_they_were_written() {
    let device = json!({"driver": "d", "pool": "p", "device": "g"});
    let toleration =
        json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60});
    let exactly = json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 2, "adminAccess": true,
        "selectors": [{"cel": {"expression": "true"}}], "tolerations": [toleration],
        "capacity": {"requests": {"memory": "1Gi"}}});
    let opaque = |text: &str| json!({"driver": "d", "parameters": text});
    let mut result = device.clone();
    result["consumedCapacity"] = json!({"memory": "1Gi"});
    result["shareID"] = json!("s");
    let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]);
    let mut status = device;
    status["conditions"] = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 3, "reason": "R", "message": ""}]);
    status["networkData"] = json!({"interfaceName": "eth0", "ips": ["10.0.0.1/24"]});
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "7", "finalizers": ["f"],
            "annotations": {"a": "b"}},
        "spec": {"devices": {
            "requests": [{"name": "r", "exactly": exactly},
                {"name": "s", "firstAvailable": [{"name": "t", "deviceClassName": "c"}]}],
            "constraints": [{"requests": ["r", "s"], "matchAttribute": "d/a"}],
            "config": [{"requests": ["r"], "opaque": opaque("{\"mode\": \"a<b\"}")}]}},
        "status": {
            "allocation": {"allocationTimestamp": "2026-01-01T00:00:00Z", "nodeSelector": {"nodeSelectorTerms": terms},
                "devices": {"results": [result],
                    "config": [{"source": "FromClaim", "opaque": opaque("{}")}, {"source": "FromClass", "opaque": opaque("[1, 2]")}]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "x"}], "devices": [status]}});
    let body = write(&claim).expect("it is simulated");
    let mut wanted = claim;
    wanted["spec"]["devices"]["config"][0]["opaque"]["parameters"] = json!({"mode": "a<b"});
    wanted["status"]["allocation"]["devices"]["config"][0]["opaque"]["parameters"] = json!({});
    wanted["status"]["allocation"]["devices"]["config"][1]["opaque"]["parameters"] = json!([1, 2]);
    // An empty text is an unset field.
    wanted["status"]["devices"][0]["conditions"][0].as_object_mut().expect("a condition").remove("message");
    assert_eq!(read(&body).expect("an object"), wanted);
    assert_eq!(
        parameters(&body),
        [vec!["{\"mode\": \"a<b\"}".to_owned()], vec!["{}".to_owned(), "[1, 2]".to_owned()]]
    );
}

#[test]
fn the_api_server_writes_json_without_blanks_and_with_escapes() {
    for (text, wanted) in [
        ("{\"a\": [1 ,\n2]}", "{\"a\":[1,2]}"),
        ("{\"a b\":\"\\\" <\"}", "{\"a b\":\"\\\" \\u003c\"}"),
        ("\"\u{2028}&>\\\\\" ", "\"\\u2028\\u0026\\u003e\\\\\""),
        ("{\"a\":1.50}", "{\"a\":1.50}"),
    ] {
        assert_eq!(written(text), wanted);
    }
}
