//! Files with API objects, as kubectl prints them: JSON or YAML, one object, several, or lists.
//!
//! The dump of a large cluster has gigabytes. It is read while it comes in, and one object is held at a
//! time.

mod document;
mod usual;
mod yaml;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use dragoman_objects::Name;
use serde::Deserialize;
use serde_json::Value;

use self::document::Documents;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// An object, and its place in the files.
#[derive(Debug)]
pub struct Found {
    /// File, line and number of the item, for people.
    pub place: String,
    /// The identity of the object.
    pub head: PartialObjectMetadata,
    /// The object in JSON.
    pub text: Box<[u8]>,
}

/// The kind of an object and its name. In a typed list it has the kind of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialObjectMetadata {
    /// `kind`.
    pub kind: Option<Name>,
    /// `apiVersion`.
    pub api_version: Option<Name>,
    /// `metadata`.
    pub metadata: Option<Metadata>,
}

/// `metadata` of an object, as far as it says which object it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Absent for objects of the cluster.
    pub namespace: Option<Name>,
    /// Present in every object that was stored.
    pub name: Option<Name>,
    /// The version that was printed.
    pub resource_version: Option<Name>,
}

impl PartialObjectMetadata {
    /// Whether an object of a kind of Kubernetes says that it is of the API group of that kind. One that says nothing may be.
    pub fn is_of_its_group(&self) -> bool {
        let Some(version) = &self.api_version else { return true };
        let group = version.split_once('/').map_or("", |(group, _)| group);
        match self.kind.as_deref().unwrap_or_default() {
            "Pod" | "Node" | "ResourceQuota" | "PersistentVolumeClaim" | "PersistentVolume" => {
                group.is_empty()
            }
            "StorageClass" => group == "storage.k8s.io",
            "Event" => ["", "events.k8s.io"].contains(&group),
            "ResourceClaim"
            | "ResourceClaimTemplate"
            | "DeviceClass"
            | "ResourceSlice"
            | "DeviceTaintRule" => group == "resource.k8s.io",
            _ => true,
        }
    }
}

impl Found {
    /// An item of a list whose kind is known: in the answers of the API server items do not say theirs.
    pub fn item(kind: &str, text: &str) -> Self {
        let mut head: PartialObjectMetadata = serde_json::from_str(text).unwrap_or_default();
        head.kind = Some(kind.into());
        Self { place: format!("the list of kind {kind}"), head, text: text.as_bytes().into() }
    }

    /// The object as a value, with its kind.
    ///
    /// # Errors
    /// It is cut off.
    pub fn object(&self) -> anyhow::Result<Value> {
        let mut object: Value = serde_json::from_slice(&self.text).with_context(|| broken(&self.place))?;
        if let (Some(fields), Some(kind)) = (object.as_object_mut(), &self.head.kind)
            && fields.get("kind").is_none_or(Value::is_null)
        {
            fields.insert("kind".to_owned(), (&**kind).into());
            fields.insert("apiVersion".to_owned(), self.head.api_version.as_deref().into());
        }
        Ok(object)
    }
}

/// Hands every object of `files` to `each`; `-` is standard input. A document that is neither YAML nor
/// JSON is an error in the place of its objects.
///
/// # Errors
/// A file cannot be read.
pub fn each(files: &[PathBuf], each: &mut dyn FnMut(anyhow::Result<Found>)) -> anyhow::Result<()> {
    for file in files {
        if file.as_os_str() == "-" {
            read(file, BufReader::with_capacity(CHUNK, std::io::stdin()), each).context("standard input")?;
        } else {
            let opened = File::open(file).with_context(|| file.display().to_string())?;
            read(file, BufReader::with_capacity(CHUNK, opened), each)
                .with_context(|| file.display().to_string())?;
        }
    }
    Ok(())
}

/// Hands every object of a text to `take`, up to the first that is none or is not taken.
///
/// # Errors
/// The first error, with the place of the object.
pub fn take(
    file: &Path,
    text: &str,
    take: &mut dyn FnMut(Found) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut outcome = Ok(());
    read(file, text.as_bytes(), &mut |found| {
        if outcome.is_ok() {
            outcome = found.and_then(&mut *take);
        }
    })?;
    outcome
}

/// Hands every object of a text to `each`.
///
/// # Errors
/// The text cannot be read.
pub fn read(
    file: &Path,
    text: impl BufRead,
    each: &mut dyn FnMut(anyhow::Result<Found>),
) -> anyhow::Result<()> {
    let name = file.display().to_string();
    let mut documents = Documents::new(&name, text);
    let mut is_empty = true;
    // A list without items is an answer, too.
    while documents.next(each)? {
        is_empty = false;
    }
    if is_empty {
        each(Err(anyhow::anyhow!("{name}: it is empty")));
    }
    Ok(())
}

fn broken(place: &str) -> String {
    format!("{place}: it is neither YAML nor JSON, or cut off")
}

#[cfg(test)]
mod tests;
