//! The attributes of devices for containers (KEP-5304): in a file for each request, as the drivers of Kubernetes write it,
//! and in environment variables.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::cdi::{ContainerEdits, Mount};
use crate::checkpoint::write_and_rename;
use crate::claim::{Allocated, Claim, main_request};
use crate::device::{Attribute, Pool};

/// Where containers look for the files.
const IN_CONTAINERS: &str = "/var/run/kubernetes.io/dra-device-attributes";
/// The versions of the object in a file, the newest first.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];

/// The devices of a request, by position among the results.
type Requests<'a> = BTreeMap<&'a str, Vec<(usize, &'a Allocated)>>;

/// Writes the files of a claim below `directory`, and adds to `edits` what makes files and variables appear in containers.
/// Of several devices of a request the first carries both: a container gets all of a request, or nothing.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn add(
    directory: &Path,
    driver: &str,
    pools: &[Pool],
    claim: &Claim,
    allocated: &[Allocated],
    edits: &mut [ContainerEdits],
) -> anyhow::Result<()> {
    let folder = folder(directory, &claim.reference.uid);
    let mut requests = Requests::new();
    for (position, of) in allocated.iter().enumerate() {
        requests.entry(&of.request).or_default().push((position, of));
    }
    for (request, devices) in &requests {
        let main = main_request(request);
        let host = folder.join(format!("{main}.json"));
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        write_and_rename(&host, file(driver, pools, claim, request, devices).as_bytes())?;
        let Some(edits) = devices.first().and_then(|(position, _)| edits.get_mut(*position)) else {
            continue;
        };
        edits.mounts.push(Mount { host, container: path(claim, main, driver) });
    }
    for (name, (position, value)) in variables(pools, claim, &requests) {
        if let Some(edits) = edits.get_mut(position) {
            edits.env.entry(name).or_insert(value);
        }
    }
    Ok(())
}

/// Removes the files of a claim.
///
/// # Errors
/// They cannot be removed.
pub(crate) fn remove(directory: &Path, uid: &str) -> anyhow::Result<()> {
    let folder = folder(directory, uid);
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn folder(directory: &Path, uid: &str) -> PathBuf {
    directory.join(uid)
}

/// The path of a file in containers: claims of templates are known by the entry of the Pod, others by their name.
fn path(claim: &Claim, request: &str, driver: &str) -> PathBuf {
    let (kind, name) = match &claim.pod_claim_name {
        Some(entry) => ("resourceclaimtemplates", entry),
        None => ("resourceclaims", &claim.reference.name),
    };
    [IN_CONTAINERS, kind, name, request, &format!("{driver}-metadata.json")].iter().collect()
}

fn attributes<'a>(pools: &'a [Pool], of: &Allocated) -> Option<&'a BTreeMap<String, Attribute>> {
    let pool = pools.iter().find(|pool| pool.name == of.pool)?;
    Some(&pool.devices.iter().find(|device| device.name == of.device)?.attributes)
}

/// The objects of a file, one for each version.
fn file(
    driver: &str,
    pools: &[Pool],
    claim: &Claim,
    request: &str,
    devices: &[(usize, &Allocated)],
) -> String {
    let device = |(_, of): &(usize, &Allocated)| {
        let attributes = attributes(pools, of).cloned().unwrap_or_default();
        json!({"driver": driver, "pool": of.pool, "name": of.device, "attributes": attributes})
    };
    let devices: Vec<Value> = devices.iter().map(device).collect();
    let reference = &claim.reference;
    VERSIONS
        .map(|version| {
            let object = json!({
                "apiVersion": format!("metadata.resource.k8s.io/{version}"),
                "kind": "DeviceMetadata",
                "metadata": {"namespace": reference.namespace, "name": reference.name, "uid": reference.uid,
                    "generation": claim.generation},
                "podClaimName": claim.pod_claim_name,
                "requests": [{"name": request, "devices": devices}],
            });
            format!("{object}\n")
        })
        .concat()
}

/// The variables of a claim: each with the position of the device that carries it. One that two attributes would have, or
/// that a device of the request has no attribute for, is left out: half a truth is worse than none.
fn variables(pools: &[Pool], claim: &Claim, requests: &Requests<'_>) -> BTreeMap<String, (usize, String)> {
    let entry = claim.pod_claim_name.as_ref().unwrap_or(&claim.reference.name);
    let mut found: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
    for (request, devices) in requests {
        let Some((position, first)) = devices.first() else { continue };
        for attribute in attributes(pools, first).into_iter().flat_map(BTreeMap::keys) {
            let value =
                |(_, of): &(usize, &Allocated)| Some(attributes(pools, of)?.get(attribute)?.to_string());
            let values: Option<Vec<String>> = devices.iter().map(value).collect();
            let name = variable(entry, main_request(request), attribute);
            found.entry(name).or_default().extend(values.map(|values| (*position, values.join(","))));
        }
    }
    let unique =
        found.into_iter().filter_map(|(name, mut all)| (all.len() == 1).then(|| Some((name, all.pop()?)))?);
    unique.collect()
}

/// `DRA_` with entry, request and attribute in capitals; what a shell does not take in a name is `_`.
fn variable(entry: &str, request: &str, attribute: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("DRA_{entry}_{request}_{attribute}").chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::ClaimReference;
    use crate::device::Device;

    fn pools() -> Vec<Pool> {
        let device = |name: &str, attributes: &[(&str, Attribute)]| Device {
            name: name.to_owned(),
            attributes: attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            ..Device::default()
        };
        let text = |text: &str| Attribute::String(text.to_owned());
        let bus = "resource.kubernetes.io/pciBusID";
        let devices = vec![
            device("a", &[("model", text("x")), (bus, text("0000:01")), ("lanes", Attribute::Int(4))]),
            device("b", &[("model", text("x")), (bus, text("0000:02"))]),
            device("c", &[("a.b/d", text("1")), ("a-b/d", text("2"))]),
        ];
        vec![Pool { name: "n".to_owned(), devices, ..Pool::default() }]
    }

    fn allocated(request: &str, device: &str) -> Allocated {
        Allocated {
            request: request.to_owned(),
            pool: "n".to_owned(),
            device: device.to_owned(),
            ..Allocated::default()
        }
    }

    fn claim() -> Claim {
        let reference =
            ClaimReference { namespace: "ns".to_owned(), name: "c".to_owned(), uid: "u".to_owned() };
        Claim { reference, pod_claim_name: Some("gpu".to_owned()), generation: 0 }
    }

    #[test]
    fn files_and_variables_agree_and_half_a_truth_is_left_out() {
        let directory = std::env::temp_dir().join(format!("dragoman-attributes-{}", std::process::id()));
        let all = [("two/large", "b"), ("two/large", "a"), ("odd", "c"), ("half", "a"), ("half", "b")]
            .map(|(request, device)| allocated(request, device));
        let mut edits = vec![ContainerEdits::default(); 5];
        add(&directory, "d", &pools(), &claim(), &all, &mut edits).expect("files");
        let env: Vec<(&str, &str)> = edits[0].env.iter().map(|(name, value)| (&**name, &**value)).collect();
        let expected = [
            ("DRA_GPU_TWO_MODEL", "x,x"),
            ("DRA_GPU_TWO_RESOURCE_KUBERNETES_IO_PCIBUSID", "0000:02,0000:01"),
        ];
        assert_eq!(env, expected, "in allocation order");
        assert!(!edits[3].env.contains_key("DRA_GPU_HALF_LANES"), "not all have lanes");
        assert_eq!(edits[3].env["DRA_GPU_HALF_MODEL"], "x,x");
        assert!(
            edits[1] == ContainerEdits::default() && edits[2].env.is_empty(),
            "a.b/d and a-b/d have one name"
        );
        let mount = &edits[0].mounts[0];
        let place =
            "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/gpu/two/d-metadata.json";
        assert_eq!(mount.container, PathBuf::from(place));
        let text = std::fs::read_to_string(&mount.host).expect("a file");
        let objects: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(objects[0]["apiVersion"], "metadata.resource.k8s.io/v1beta1");
        assert_eq!(objects[1]["apiVersion"], "metadata.resource.k8s.io/v1alpha1");
        assert_eq!(objects[0]["requests"][0]["devices"][1]["attributes"]["lanes"], json!({"int": 4}));
        assert_eq!(
            (&objects[0]["podClaimName"], &objects[0]["requests"][0]["name"]),
            (&json!("gpu"), &json!("two/large"))
        );
        remove(&directory, "u").expect("removed");
        remove(&directory, "u").expect("twice");
        assert_eq!(std::fs::read_dir(&directory).expect("a directory").count(), 0);
        std::fs::remove_dir_all(&directory).expect("clean");
    }
}
