//! A claim, and the devices of a driver in it.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Which claim it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimReference {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

impl std::fmt::Display for ClaimReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResourceClaim {}/{}", self.namespace, self.name)
    }
}

/// A claim that has devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Name, namespace and uid of the claim.
    pub reference: ClaimReference,
    /// The entry of the Pod that it was made for; absent where Pods name it.
    pub pod_claim_name: Option<String>,
    /// `metadata.generation` of the claim.
    pub generation: i64,
}

/// A device that the claim has of this driver.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allocated {
    /// The request that it was allocated for; `REQUEST/SUBREQUEST` of a prioritized list.
    pub request: String,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// Id of the share, where several claims have shares of the device.
    pub share_id: Option<String>,
    /// Amount of each capacity that the claim consumes, as quantities.
    pub consumed_capacity: BTreeMap<String, String>,
    /// Whether it is for administrators: the device may be in use by another claim.
    pub admin_access: bool,
    /// Parameters for this driver, those of the class first.
    pub config: Vec<Config>,
}

/// Parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Whose they are: that of a class or of the claim.
    pub source: String,
    /// `opaque.parameters`.
    pub parameters: Value,
}

impl Config {
    /// The parameters as the driver knows them.
    ///
    /// # Errors
    /// They do not decode; the text says whose they are.
    pub fn decoded<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        T::deserialize(&self.parameters)
            .with_context(|| format!("the parameters of {} do not decode", self.source))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    uid: String,
    generation: i64,
    annotations: BTreeMap<String, String>,
    owner_references: Vec<Owner>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Owner {
    kind: String,
    controller: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    allocation: Option<Allocation>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Allocation {
    devices: Devices,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Devices {
    results: Vec<Outcome>,
    config: Vec<Parameters>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Outcome {
    request: String,
    driver: String,
    pool: String,
    device: String,
    #[serde(rename = "shareID")]
    share_id: Option<String>,
    consumed_capacity: BTreeMap<String, String>,
    admin_access: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Parameters {
    source: String,
    requests: Vec<String>,
    opaque: Option<Opaque>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Opaque {
    driver: String,
    parameters: Value,
}

/// The annotation that names the entry of the Pod.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

/// A request without its subrequest.
pub(crate) fn main_request(request: &str) -> &str {
    request.split('/').next().unwrap_or_default()
}

/// Whether a text is a DNS label.
fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.chars().all(is_inner)
}

impl Claim {
    /// Reads the claim that kubelet asks for, and what it has of `driver`.
    ///
    /// # Errors
    /// It is another claim of this name, has no allocation, or nothing of this driver.
    pub(crate) fn read(
        reference: &ClaimReference,
        object: &Value,
        driver: &str,
    ) -> anyhow::Result<(Self, Vec<Allocated>)> {
        let object = Object::deserialize(object).with_context(|| format!("{reference} does not decode"))?;
        if object.metadata.uid != reference.uid {
            bail!(
                "{reference} is another one now: its uid is {}, not {}",
                object.metadata.uid,
                reference.uid
            );
        }
        let Some(Allocation { devices }) = object.status.allocation else {
            bail!("{reference} is not allocated");
        };
        let config = |request: &str| {
            let ours = devices.config.iter().filter(|config| config.is_for(request));
            let opaque = ours.filter_map(|config| Some((config, config.opaque.as_ref()?)));
            let opaque = opaque.filter(|(_, opaque)| opaque.driver == driver);
            let read = opaque.map(|(config, opaque)| Config {
                source: if config.source == "FromClass" {
                    "a DeviceClass".to_owned()
                } else {
                    reference.to_string()
                },
                parameters: opaque.parameters.clone(),
            });
            read.collect()
        };
        let ours = devices.results.iter().filter(|result| result.driver == driver);
        let allocated: Vec<Allocated> = ours
            .map(|result| Allocated {
                request: result.request.clone(),
                pool: result.pool.clone(),
                device: result.device.clone(),
                share_id: result.share_id.clone(),
                consumed_capacity: result.consumed_capacity.clone(),
                admin_access: result.admin_access == Some(true),
                config: config(&result.request),
            })
            .collect();
        ensure!(!allocated.is_empty(), "{reference} has no device of driver {driver}");
        // A user that makes a claim can write the annotation, and it becomes a part of paths. Only a claim that a Pod controls is one
        // of an entry.
        let is_generated =
            object.metadata.owner_references.iter().any(|of| of.controller && of.kind == "Pod");
        let entry =
            object.metadata.annotations.get(POD_CLAIM_NAME).filter(|name| is_generated && is_label(name));
        let pod_claim_name = entry.cloned();
        let generation = object.metadata.generation;
        Ok((Self { reference: reference.clone(), pod_claim_name, generation }, allocated))
    }
}

impl Parameters {
    /// Whether they are for a request: named with its subrequest, without it, or not at all.
    fn is_for(&self, request: &str) -> bool {
        let main = main_request(request);
        self.requests.is_empty() || self.requests.iter().any(|named| named == request || named == main)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reference() -> ClaimReference {
        ClaimReference { namespace: "ns".to_owned(), name: "c".to_owned(), uid: "u".to_owned() }
    }

    fn claim() -> Value {
        let result = |request: &str, driver: &str, device: &str| json!({"request": request, "driver": driver, "pool": "n", "device": device});
        let config = |source: &str, requests: &[&str], driver: &str, mode: &str| json!({"source": source, "requests": requests, "opaque": {"driver": driver, "parameters": {"mode": mode}}});
        json!({"metadata": {"uid": "u", "annotations": {POD_CLAIM_NAME: "gpu"},
            "ownerReferences": [{"kind": "Pod", "controller": true}]}, "status": {"allocation": {"devices": {
            "results": [result("a", "d", "1"), result("b/large", "d", "2"), result("a", "other", "3")],
            "config": [config("FromClass", &[], "d", "class"), config("FromClaim", &["b"], "d", "main"),
                config("FromClaim", &["b/small"], "d", "small"), config("FromClaim", &["a"], "other", "foreign")],
        }}}})
    }

    #[test]
    fn results_and_parameters_of_other_drivers_are_left_out() {
        let (claim, allocated) = Claim::read(&reference(), &claim(), "d").expect("a claim");
        assert_eq!(claim.pod_claim_name.as_deref(), Some("gpu"));
        let devices: Vec<&str> = allocated.iter().map(|of| &*of.device).collect();
        assert_eq!(devices, ["1", "2"]);
        let modes = |number: usize| -> Vec<&Value> {
            allocated[number].config.iter().map(|config| &config.parameters["mode"]).collect()
        };
        assert_eq!((modes(0), modes(1)), (vec![&json!("class")], vec![&json!("class"), &json!("main")]));
    }

    #[test]
    fn the_entry_is_that_of_a_generated_claim_and_no_path() {
        let entry = |change: fn(&mut Value)| {
            let mut object = claim();
            change(&mut object);
            Claim::read(&reference(), &object, "d").expect("a claim").0.pod_claim_name
        };
        assert_eq!(entry(|_| {}).as_deref(), Some("gpu"));
        assert_eq!(
            entry(|claim| claim["metadata"]["annotations"][POD_CLAIM_NAME] = json!("../../etc")),
            None
        );
        assert_eq!(entry(|claim| claim["metadata"]["ownerReferences"] = json!([])), None);
    }

    #[test]
    fn what_cannot_be_prepared_is_said() {
        let says = |change: fn(&mut Value), words: &str| {
            let mut object = claim();
            change(&mut object);
            let error = Claim::read(&reference(), &object, "d").expect_err(words);
            assert!(format!("{error:#}").contains(words), "{error:#}");
        };
        says(
            |claim| claim["metadata"]["uid"] = json!("v"),
            "ResourceClaim ns/c is another one now: its uid is v",
        );
        says(|claim| claim["status"] = json!({}), "ResourceClaim ns/c is not allocated");
        says(|claim| claim["status"]["allocation"] = json!({}), "has no device of driver d");
        says(|claim| claim["status"]["allocation"]["devices"] = json!("x"), "does not decode");
    }

    #[test]
    fn parameters_that_do_not_decode_name_their_source() {
        let (_, allocated) = Claim::read(&reference(), &claim(), "d").expect("a claim");
        let error = allocated[1].config[1].decoded::<u8>().expect_err("an object");
        assert!(
            format!("{error:#}").starts_with("the parameters of ResourceClaim ns/c do not decode: "),
            "{error:#}"
        );
    }
}
