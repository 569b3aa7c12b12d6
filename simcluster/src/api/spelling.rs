//! The bytes of opaque parameters: the API server keeps them as their author wrote them, and finds a claim changed that has
//! others.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::body::PROTOBUF;
use super::status::FieldError;
use super::{State, Target};
use crate::protobuf::{self, written};

/// The kind whose objects are immutable in part and have opaque parameters.
const CLAIM: &str = "ResourceClaim";

/// The texts of opaque parameters, by their position in a list: those that the API server would write in another way.
type Texts = BTreeMap<usize, String>;

/// The parameters of a claim and of its allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Spelling {
    spec: Texts,
    allocation: Texts,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Configured {
    config: Vec<Entry>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    opaque: Option<Opaque>,
}

#[derive(Deserialize)]
struct Opaque {
    parameters: Option<Box<RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Claim {
    spec: Spec,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    devices: Configured,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    allocation: Option<Spec>,
}

impl Configured {
    fn texts(&self) -> Texts {
        let parameters = self.config.iter().filter_map(|entry| entry.opaque.as_ref()?.parameters.as_ref());
        particular(parameters.map(|text| text.get().to_owned()))
    }
}

/// Those of the texts that the API server would write in another way.
fn particular(texts: impl Iterator<Item = String>) -> Texts {
    texts.enumerate().filter(|(_, text)| written(text) != *text).collect()
}

impl Spelling {
    /// That of the claim in the body of a request.
    pub(super) fn of_body(target: &Target<'_>) -> Self {
        if target.resource.kind != CLAIM {
            return Self::default();
        }
        let body = &target.request.body;
        if target.request.content_type == PROTOBUF {
            let [spec, allocation] = protobuf::parameters(body);
            return Self {
                spec: particular(spec.into_iter()),
                allocation: particular(allocation.into_iter()),
            };
        }
        let claim: Claim = serde_json::from_slice(body).unwrap_or_default();
        Self {
            spec: claim.spec.devices.texts(),
            allocation: claim.status.allocation.map(|of| of.devices.texts()).unwrap_or_default(),
        }
    }

    /// That of an update which takes over what it has read: the parameters of a new allocation are those of the claim.
    fn kept(&self, before: &Value, after: &Value) -> Self {
        if !before["status"]["allocation"].is_null() {
            return self.clone();
        }
        let of_claim: Vec<&Value> = parameters(&after["spec"]["devices"]).collect();
        let given = parameters(&after["status"]["allocation"]["devices"]).enumerate();
        let allocation = given.filter_map(|(number, value)| {
            let at = of_claim.iter().position(|of| *of == value)?;
            Some((number, self.spec.get(&at)?.clone()))
        });
        Self { spec: self.spec.clone(), allocation: allocation.collect() }
    }

    fn is_ordinary(&self) -> bool {
        *self == Self::default()
    }
}

fn parameters(devices: &Value) -> impl Iterator<Item = &Value> {
    let config = devices["config"].as_array().into_iter().flatten();
    config.filter_map(|entry| entry.pointer("/opaque/parameters"))
}

/// Sets the parameters of a list of configurations to their texts.
fn spell(devices: &mut Value, texts: &Texts) {
    let config = devices["config"].as_array_mut().into_iter().flatten();
    let opaque = config.filter_map(|entry| entry.pointer_mut("/opaque/parameters"));
    for (number, parameters) in opaque.enumerate() {
        if let Some(text) = texts.get(&number) {
            *parameters = Value::String(text.clone());
        }
    }
}

impl State {
    /// The spelling of a claim after a change of it, and what is wrong with it. `sent`: that of a whole object; a patch has the
    /// one of the API server.
    pub(super) fn respelled(
        &self,
        target: &Target<'_>,
        (before, after): (&Value, &Value),
        sent: Option<Spelling>,
    ) -> (Spelling, Vec<FieldError>) {
        let uid = before["metadata"]["uid"].as_str().unwrap_or_default();
        let known = self.spellings.get(uid).cloned().unwrap_or_default();
        let sent =
            if target.request.keeps_bytes { known.kept(before, after) } else { sent.unwrap_or_default() };
        if target.subresource.is_empty() {
            let is_other = sent.spec != known.spec;
            let errors = is_other.then(|| FieldError::immutable("spec", &after["spec"]));
            return (known, errors.into_iter().collect());
        }
        let (is, was) = (&after["status"]["allocation"], &before["status"]["allocation"]);
        let is_other = !is.is_null() && !was.is_null() && sent.allocation != known.allocation;
        let errors = is_other.then(|| FieldError::immutable("status.allocation", is));
        let allocation = if is.is_null() { Texts::new() } else { sent.allocation };
        (Spelling { allocation, ..known }, errors.into_iter().collect())
    }

    /// Keeps the spelling of a claim that was stored.
    pub(super) fn keep_spelling(&mut self, object: &Value, spelling: Spelling) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        if spelling.is_ordinary() {
            self.spellings.remove(uid);
        } else {
            self.spellings.insert(uid.to_owned(), spelling);
        }
    }

    /// A claim in protobuf, as its authors wrote it.
    pub(super) fn in_protobuf(&self, mut object: Value) -> Option<Vec<u8>> {
        if object["kind"] != CLAIM {
            return None;
        }
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        if let Some(Spelling { spec, allocation }) = self.spellings.get(uid) {
            for (pointer, texts) in [("/spec/devices", spec), ("/status/allocation/devices", allocation)] {
                if let Some(devices) = object.pointer_mut(pointer) {
                    spell(devices, texts);
                }
            }
        }
        protobuf::write(&object)
    }
}
