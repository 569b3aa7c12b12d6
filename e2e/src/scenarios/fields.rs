//! Objects in which every field is set that the API server knows are read by all that read their kind.

use anyhow::{Context as _, bail, ensure};
use dragoman_accounting::cluster;
use dragoman_allocator::input::Claim;
use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_crds::driver_owner::DriverOwner;
use dragoman_crds::node_allocatable_dra_claim_state::NodeAllocatableDRAClaimState;
use dragoman_machinery::kind::{
    DEVICE_CLASS, DEVICE_FOOTPRINT, DEVICE_TAINT_RULES, DRIVER_OWNER, Kind, LEASE, NODE,
    NODE_ALLOCATABLE_DRA_CLAIM_STATE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD, POD_GROUPS,
    RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, RESOURCE_SLICES, STORAGE_CLASS,
};
use dragoman_machinery::lease::Lease;
use dragoman_objects as objects;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{NotRun, Scenario, scenario};
use crate::control_plane::{Backend, Release};
use crate::dragoman::Dragoman;
use crate::world::World;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        scenario!(every_field_of_every_kind_is_read),
        scenario!(a_field_that_is_not_known_is_found_wherever_it_stands),
    ]
}

/// Where PodGroups are served.
pub(super) fn of_groups() -> Vec<Scenario> {
    vec![scenario!(every_field_of_a_pod_group_is_read)]
}

/// Reads an object; the error says what was not read.
type Read = fn(&str) -> anyhow::Result<()>;

fn reads<T: DeserializeOwned>(text: &str) -> anyhow::Result<()> {
    serde_json::from_str::<T>(text).map(drop).with_context(|| std::any::type_name::<T>().to_owned())
}

/// The kinds that every API server serves in one version at least, and who reads them.
fn readers() -> Vec<(Vec<Kind>, Vec<Read>)> {
    vec![
        (vec![POD], vec![reads::<objects::Pod>, is_accounted]),
        (vec![NODE], vec![reads::<objects::Node>]),
        (vec![RESOURCE_CLAIM], vec![claim]),
        (vec![RESOURCE_CLAIM_TEMPLATE], vec![reads::<objects::ResourceClaimTemplate>]),
        (RESOURCE_SLICES.to_vec(), vec![slice]),
        (vec![DEVICE_CLASS], vec![class]),
        (vec![LEASE], vec![reads::<Lease>]),
        (vec![PERSISTENT_VOLUME_CLAIM], vec![reads::<objects::PersistentVolumeClaim>]),
        (vec![PERSISTENT_VOLUME], vec![reads::<objects::PersistentVolume>]),
        (vec![STORAGE_CLASS], vec![reads::<objects::StorageClass>]),
        (vec![NODE_ALLOCATABLE_DRA_CLAIM_STATE], vec![reads::<NodeAllocatableDRAClaimState>]),
        (vec![DEVICE_FOOTPRINT], vec![reads::<DeviceFootprint>]),
        (vec![DRIVER_OWNER], vec![reads::<DriverOwner>]),
    ]
}

/// Checks that every amount of a Pod counts.
fn is_accounted(text: &str) -> anyhow::Result<()> {
    let pod: objects::Pod = serde_json::from_str(text)?;
    let unaccounted = cluster::Pod::from(&pod).unaccounted;
    ensure!(unaccounted.is_empty(), "{unaccounted:?}");
    Ok(())
}

fn claim(text: &str) -> anyhow::Result<()> {
    reads::<objects::ResourceClaim>(text)?;
    let claim: objects::ResourceClaim = serde_json::from_str(text)?;
    let unread = cluster::Claim::from(&claim).unread;
    ensure!(unread.is_none(), "{unread:?}");
    let claim = Claim::of(&claim).map_err(|why| anyhow::anyhow!("{why}"))?;
    let unread = claim.devices.requests.iter().find_map(|request| request.unreadable.clone());
    let unread = unread.or(claim.devices.unreadable);
    ensure!(unread.is_none(), "{unread:?}");
    let allocation = claim.allocation.context("status.allocation")?;
    let result = allocation.devices.results.first().context("a result")?;
    ensure!(!result.consumed_capacity.is_empty() && !result.tolerations.is_empty(), "{result:?}");
    Ok(())
}

fn class(text: &str) -> anyhow::Result<()> {
    let class = serde_json::from_str::<objects::DeviceClass>(text).context("DeviceClass")?.class();
    ensure!(class.unreadable.is_none(), "{:?}", class.unreadable);
    Ok(())
}

fn rule(text: &str) -> anyhow::Result<()> {
    let rule = serde_json::from_str::<objects::DeviceTaintRule>(text).context("DeviceTaintRule")?.rule();
    ensure!(
        !rule.taint.is_unreadable(),
        "{}",
        objects::unknown_fields("DeviceTaintRule", &serde_json::from_str(text)?).join(", ")
    );
    Ok(())
}

fn slice(text: &str) -> anyhow::Result<()> {
    let slice: objects::ResourceSlice = serde_json::from_str(text).context("ResourceSlice")?;
    // What it costs is refused, because the fields of a cost exclude each other.
    ensure!(cluster::Slice::from(&slice).devices.len() == 1, "a device");
    let slice = slice.slice();
    let sets = slice.shared_counters.iter().map(|set| &set.unreadable);
    let unread = slice.devices.iter().map(|device| &device.unreadable).chain(sets).find_map(Clone::clone);
    ensure!(unread.is_none(), "{unread:?}");
    Ok(())
}

async fn every_field_of_every_kind_is_read(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    for (versions, readers) in readers() {
        ensure!(are_read(world, &versions, &readers).await? > 0, "{} is not served", versions[0].kind);
    }
    // The versions before the last are off by default.
    let rules = are_read(world, &DEVICE_TAINT_RULES, &[rule]).await?;
    let is_newest = world.release == Release::V1_37;
    ensure!(rules > 0 || !is_newest, "DeviceTaintRules are not served");
    Ok(())
}

/// Places of which it does not matter for what may be given what a newer API server says there: what drivers are told and report,
/// and consumers.
const HARMLESS: &[&str] = &[
    "metadata",
    "spec.devices.config[0].opaque.parameters",
    "spec.config[0].opaque.parameters",
    "status.allocation.devices.config",
    "status.conditions",
    "status.devices",
    "status.reservedFor",
];

/// A field that no version has is put into every object of the objects that decide what may be given.
async fn a_field_that_is_not_known_is_found_wherever_it_stands(
    world: &World,
    _: &Dragoman,
) -> anyhow::Result<()> {
    if world.bench.backend == Backend::Sim {
        return Err(NotRun("simcluster publishes no schemas".to_owned()).into());
    }
    let kinds = [RESOURCE_CLAIM, RESOURCE_SLICES[0], DEVICE_CLASS, DEVICE_TAINT_RULES[0]];
    let mut count = 0;
    for kind in kinds {
        let Some(whole) = full(world, kind).await? else { continue };
        let known = objects::unknown_fields(kind.kind, &whole);
        ensure!(known.is_empty(), "{} of {} {known:?}", kind.kind, kind.api_version());
        for at in places(&whole, "", "") {
            let mut object = whole.clone();
            let place = object.pointer_mut(&at.pointer).and_then(Value::as_object_mut).context("place")?;
            place.insert("odd".to_owned(), json!(1));
            let found = objects::unknown_fields(kind.kind, &object);
            ensure!(found == [format!("{}.odd", at.path)], "{} {}: {found:?}", kind.kind, at.path);
            count += 1;
        }
    }
    println!("        found in {count} places");
    ensure!(count > 30, "{count} places");
    Ok(())
}

/// An object within an object.
struct Place {
    pointer: String,
    path: String,
}

/// The objects within a full object of which a field may decide something. Of a map, the entry.
fn places(value: &Value, pointer: &str, path: &str) -> Vec<Place> {
    if HARMLESS.iter().any(|harmless| path.starts_with(harmless)) {
        return Vec::new();
    }
    match value {
        Value::Array(items) => {
            let of =
                |(number, item)| places(item, &format!("{pointer}/{number}"), &format!("{path}[{number}]"));
            items.iter().enumerate().flat_map(of).collect()
        }
        Value::Object(fields) => {
            let is_map = fields.keys().eq(["key"]);
            let mut found = Vec::new();
            if !is_map && !["", "status"].contains(&path) {
                found.push(Place { pointer: pointer.to_owned(), path: path.to_owned() });
            }
            for (name, value) in fields {
                let below = match path {
                    "" => name.clone(),
                    _ if is_map => format!("{path}[{name}]"),
                    _ => format!("{path}.{name}"),
                };
                found.extend(places(value, &format!("{pointer}/{name}"), &below));
            }
            found
        }
        _ => Vec::new(),
    }
}

async fn every_field_of_a_pod_group_is_read(world: &World, _: &Dragoman) -> anyhow::Result<()> {
    ensure!(
        are_read(world, &POD_GROUPS, &[reads::<objects::PodGroup>]).await? > 0,
        "PodGroups are not served"
    );
    Ok(())
}

/// Reads full objects of every version of a kind that is served. Returns how many are.
async fn are_read(world: &World, versions: &[Kind], readers: &[Read]) -> anyhow::Result<usize> {
    if world.bench.backend == Backend::Sim {
        return Err(NotRun("simcluster publishes no schemas".to_owned()).into());
    }
    let mut served = 0;
    for kind in versions {
        let Some(object) = full(world, *kind).await? else { continue };
        served += 1;
        let text = object.to_string();
        for read in readers {
            read(&text).with_context(|| format!("{} {}: {text:.2000}", kind.api_version(), kind.kind))?;
        }
    }
    Ok(served)
}

/// An object of a kind with every field, or nothing where it is not served.
async fn full(world: &World, kind: Kind) -> anyhow::Result<Option<Value>> {
    let path = if kind.group.is_empty() {
        format!("/openapi/v3/api/{}", kind.version)
    } else {
        format!("/openapi/v3/apis/{}/{}", kind.group, kind.version)
    };
    let Ok(text) = world.client.text(&path).await else { return Ok(None) };
    let document: Value = serde_json::from_str(&text).context(path)?;
    let schemas = document["components"]["schemas"].as_object().context("schemas")?;
    let is_it = |schema: &&Value| {
        let of = schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten();
        of.clone()
            .any(|of| of["group"] == kind.group && of["version"] == kind.version && of["kind"] == kind.kind)
    };
    let Some(schema) = schemas.values().find(is_it) else { return Ok(None) };
    let mut object = filled(schema, schemas, 0)?;
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
    Ok(Some(object))
}

/// The deepest kind, a Pod, has a dozen levels.
const DEEPEST: usize = 40;

/// A value of a schema with every field. Of a list there is one element, of a map one entry.
fn filled(schema: &Value, schemas: &Map<String, Value>, depth: usize) -> anyhow::Result<Value> {
    ensure!(depth < DEEPEST, "a schema without an end: {schema}");
    let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    if let Some(reference) = reference {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return match name.rsplit('.').next().unwrap_or_default() {
            "Quantity" => Ok(json!("1")),
            "IntOrString" => Ok(json!(1)),
            // It may hold anything.
            "FieldsV1" | "RawExtension" => Ok(json!({"any": "thing"})),
            _ => filled(schemas.get(name).with_context(|| name.to_owned())?, schemas, depth + 1),
        };
    }
    if let Some(first) =
        schema["enum"].as_array().and_then(|values| values.iter().find(|value| **value != ""))
    {
        return Ok(first.clone());
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return Ok(json!(1));
    }
    match schema["type"].as_str() {
        Some("string") if schema["format"] == "date-time" => Ok(json!("2026-01-01T00:00:00Z")),
        Some("string") => Ok(json!("text")),
        Some("integer" | "number") => Ok(json!(1)),
        Some("boolean") => Ok(json!(true)),
        Some("array") => Ok(json!([filled(&schema["items"], schemas, depth + 1)?])),
        Some("object") => {
            let mut object = Map::new();
            for (name, of) in schema["properties"].as_object().into_iter().flatten() {
                object.insert(name.clone(), filled(of, schemas, depth + 1)?);
            }
            let entries = &schema["additionalProperties"];
            if entries.is_object() {
                object.insert("key".to_owned(), filled(entries, schemas, depth + 1)?);
            }
            Ok(object.into())
        }
        _ => bail!("a schema of no known form: {schema}"),
    }
}
