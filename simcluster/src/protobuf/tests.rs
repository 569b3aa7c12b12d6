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
