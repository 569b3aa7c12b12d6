//! Bodies in the protobuf encoding of Kubernetes, which typed clients send, for example `kubectl create
//! namespace`. The tables in `messages` give the field numbers of each type.

mod claims;
mod messages;
mod write;

pub(crate) use write::write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use self::messages::{Field, Form, Message};

/// The prefix of every body.
const MAGIC: &[u8] = b"k8s\0";
/// The maximum nesting of messages.
const DEPTH: usize = 32;

/// The reason why a body cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// The bytes are not a message.
    #[error("the body is no protobuf message of Kubernetes")]
    Broken,
    /// The type is not simulated.
    #[error("bodies of {kind} in {version} in protobuf; send JSON (kubectl create -f does)")]
    Unknown {
        /// `apiVersion`.
        version: String,
        /// `kind`.
        kind: String,
    },
}

/// Decodes the object in a body.
///
/// # Errors
/// The bytes are not a message, or its type is not simulated.
pub(crate) fn read(body: &[u8]) -> Result<Value, Unreadable> {
    let mut envelope = body.strip_prefix(MAGIC).ok_or(Unreadable::Broken)?;
    let (mut types, mut raw) = (Value::Null, &[][..]);
    while !envelope.is_empty() {
        match field(&mut envelope).ok_or(Unreadable::Broken)? {
            (1, Wire::Bytes(bytes)) => {
                types = decode(&messages::TYPE_META, bytes, 0).ok_or(Unreadable::Broken)?;
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let text = |field: &str| types[field].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let message = messages::of(&version, &kind);
    let message =
        message.ok_or_else(|| Unreadable::Unknown { version: version.clone(), kind: kind.clone() })?;
    let mut object = decode(message, raw, 0).ok_or(Unreadable::Broken)?;
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    Ok(object)
}

/// Splits a varint off the front.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// An encoded value.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Splits a field off the front, into its number and its value.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Wire<'a>)> {
    let tag = varint(bytes)?;
    let length = match tag & 7 {
        0 => return Some((tag >> 3, Wire::Number(varint(bytes)?))),
        1 => 8,
        2 => usize::try_from(varint(bytes)?).ok()?,
        5 => 4,
        _ => return None,
    };
    let (value, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some((tag >> 3, Wire::Bytes(value)))
}

fn decode(message: &Message, mut bytes: &[u8], depth: usize) -> Option<Value> {
    if depth > DEPTH {
        return None;
    }
    let mut object = Map::new();
    while !bytes.is_empty() {
        let (number, value) = field(&mut bytes)?;
        let Some(Field { name, form, .. }) = message.0.iter().find(|field| field.number == number) else {
            continue;
        };
        match form {
            Form::Many(form) => {
                let list = object.entry(*name).or_insert_with(|| json!([]));
                list.as_array_mut()?.push(one(form, &value, depth)?);
            }
            Form::Map(form) => {
                let Wire::Bytes(mut entry) = value else { return None };
                let (mut key, mut content) = (String::new(), Value::Null);
                while !entry.is_empty() {
                    match field(&mut entry)? {
                        (1, Wire::Bytes(text)) => key = String::from_utf8(text.to_vec()).ok()?,
                        (2, value) => content = one(form, &value, depth)?,
                        _ => {}
                    }
                }
                let map = object.entry(*name).or_insert_with(|| json!({}));
                map.as_object_mut()?.insert(key, content);
            }
            Form::Inline(of) => {
                let Wire::Bytes(bytes) = value else { return None };
                let Value::Object(fields) = decode(of, bytes, depth + 1)? else { return None };
                object.extend(fields);
            }
            form => {
                object.insert((*name).to_owned(), one(form, &value, depth)?);
            }
        }
    }
    // The generated encoders also write empty strings, which stand for unset fields.
    object.retain(|_, value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Null => false,
        _ => true,
    });
    Some(Value::Object(object))
}

fn one(form: &Form, value: &Wire<'_>, depth: usize) -> Option<Value> {
    Some(match (form, value) {
        (Form::Text, Wire::Bytes(text)) => json!(std::str::from_utf8(text).ok()?),
        (Form::Bytes, Wire::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        (Form::Bool, Wire::Number(number)) => json!(*number != 0),
        // Negative numbers are in two's complement.
        (Form::Int, Wire::Number(number)) => json!(number.cast_signed()),
        // A quantity is a message with a single string, and a string in JSON.
        (Form::Quantity, Wire::Bytes(bytes)) => {
            decode(&messages::QUANTITY, bytes, depth + 1)?["string"].take()
        }
        (Form::Message(message), Wire::Bytes(bytes)) => decode(message, bytes, depth + 1)?,
        (Form::Time, Wire::Bytes(bytes)) => {
            let (mut seconds, mut bytes) = (0, *bytes);
            while !bytes.is_empty() {
                if let (1, Wire::Number(number)) = field(&mut bytes)? {
                    seconds = number.cast_signed();
                }
            }
            json!(jiff::Timestamp::from_second(seconds).ok()?.to_string())
        }
        (Form::Raw, Wire::Bytes(bytes)) => {
            let text = inside(bytes, &[1]).into_iter().last().unwrap_or(b"null");
            serde_json::from_slice(text).ok()?
        }
        _ => return None,
    })
}

/// The contents of the fields on a path of numbers, in their order.
fn inside<'a>(mut bytes: &'a [u8], path: &[u64]) -> Vec<&'a [u8]> {
    let Some((number, rest)) = path.split_first() else { return vec![bytes] };
    let mut found = Vec::new();
    while !bytes.is_empty() {
        match field(&mut bytes) {
            Some((of, Wire::Bytes(content))) if of == *number => found.extend(inside(content, rest)),
            Some(_) => {}
            None => break,
        }
    }
    found
}

/// The texts of the opaque parameters of the claim in a body, and of its allocation.
pub(crate) fn parameters(body: &[u8]) -> [Vec<String>; 2] {
    const RAW: u64 = 2;
    let envelope = body.strip_prefix(MAGIC).unwrap_or_default();
    let texts = |path: &[u64]| {
        let found = inside(envelope, path).into_iter();
        found.map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    };
    [texts(&[RAW, 2, 1, 3, 2, 1, 2, 1]), texts(&[RAW, 3, 1, 1, 2, 3, 1, 2, 1])]
}

/// A JSON text as the API server writes it: without blanks, and with some characters escaped.
pub(crate) fn written(text: &str) -> String {
    let (mut out, mut in_string, mut is_escaped) = (String::with_capacity(text.len()), false, false);
    for character in text.chars() {
        match character {
            ' ' | '\t' | '\n' | '\r' if !in_string => continue,
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(character)));
                is_escaped = false;
                continue;
            }
            '"' if !is_escaped => in_string = !in_string,
            _ => {}
        }
        is_escaped = character == '\\' && !is_escaped;
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests;
