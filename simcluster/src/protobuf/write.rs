//! Objects in the protobuf encoding. Not the code of `machinery/src/protobuf.rs`: each is tested against the other.

use serde_json::Value;

use super::messages::{self, Field, Form, Message};
use super::{MAGIC, written};

/// Encodes an object; `None` for a type that is not simulated. Opaque parameters may be a string: their text, byte by byte.
pub(crate) fn write(object: &Value) -> Option<Vec<u8>> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let message = messages::of(text("apiVersion"), text("kind"))?;
    let mut types = Vec::new();
    put(&mut types, 1, text("apiVersion").as_bytes());
    put(&mut types, 2, text("kind").as_bytes());
    let mut envelope = MAGIC.to_vec();
    put(&mut envelope, 1, &types);
    put(&mut envelope, 2, &encode(message, object));
    Some(envelope)
}

fn encode(message: &Message, object: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for Field { number, name, form } in message.0 {
        let value = &object[*name];
        match form {
            Form::Inline(of) => put(&mut out, *number, &encode(of, object)),
            _ if value.is_null() => {}
            Form::Many(form) => {
                value.as_array().into_iter().flatten().for_each(|value| one(&mut out, *number, form, value));
            }
            Form::Map(form) => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    let mut entry = Vec::new();
                    put(&mut entry, 1, key.as_bytes());
                    one(&mut entry, 2, form, value);
                    put(&mut out, *number, &entry);
                }
            }
            form => one(&mut out, *number, form, value),
        }
    }
    out
}

fn one(out: &mut Vec<u8>, number: u64, form: &Form, value: &Value) {
    match (form, value) {
        (Form::Bool, value) => put_number(out, number, u64::from(value == true)),
        (Form::Int, value) => {
            put_number(out, number, value.as_i64().unwrap_or_default().cast_unsigned());
        }
        (Form::Time, value) => {
            let time = value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
            let mut content = Vec::new();
            put_number(&mut content, 1, time.unwrap_or_default().as_second().cast_unsigned());
            put(out, number, &content);
        }
        (Form::Raw, value) => {
            let text = value.as_str().map_or_else(|| written(&value.to_string()), str::to_owned);
            let mut content = Vec::new();
            put(&mut content, 1, text.as_bytes());
            put(out, number, &content);
        }
        (Form::Quantity, value) => {
            let mut content = Vec::new();
            put(&mut content, 1, value.as_str().unwrap_or_default().as_bytes());
            put(out, number, &content);
        }
        (Form::Message(of), value) => put(out, number, &encode(of, value)),
        (_, value) => put(out, number, value.as_str().unwrap_or_default().as_bytes()),
    }
}

/// Adds a field that has a length.
fn put(out: &mut Vec<u8>, number: u64, content: &[u8]) {
    put_varint(out, number << 3 | 2);
    put_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// Adds a field that is a number.
fn put_number(out: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(out, number << 3);
    put_varint(out, value);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}
