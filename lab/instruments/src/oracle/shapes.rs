//! Round trips of the output of `dragoman-accounting` through the published types of Kubernetes, which
//! decode it strictly and encode it again. The result must mean the same.

use anyhow::{Context as _, bail, ensure};
use dragoman_accounting::claim::contribution::{Contribution, Generation, Line, Source};
use dragoman_accounting::claim::footprint::{Basis, DeviceCost, Mapping, Overhead, ResourceFootprint};
use dragoman_accounting::resource::Resource;
use dragoman_accounting::wire::{device, pod_status};
use dragoman_quantity::Decimal;
use fastrand::Rng;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Declared, Judge};

#[derive(Deserialize)]
struct Answer {
    refused: Option<String>,
    #[serde(default)]
    object: Value,
}

enum Meant {
    Device(DeviceCost),
    Claims(Vec<Contribution>),
    /// A field that these types do not have. Its refusal shows that the decoding is strict.
    Refused(&'static str),
}

/// Checks the round trips of `count` devices and Pod statuses.
pub(super) fn compare(judge: &Judge, count: usize, seed: u64) -> anyhow::Result<(usize, Declared)> {
    let mut rng = Rng::with_seed(seed);
    let questions: Vec<(Value, Meant)> = (0..count).map(|_| question(&mut rng)).collect::<Result<_, _>>()?;
    let lines: Vec<String> = questions.iter().map(|(question, _)| question.to_string()).collect();
    for ((question, meant), answer) in questions.iter().zip(judge.answer(&lines)?) {
        let answer: Answer = serde_json::from_str(&answer).context("answer")?;
        judged(meant, answer).with_context(|| question.to_string())?;
    }
    Ok((count, Declared::new()))
}

fn judged(meant: &Meant, answer: Answer) -> anyhow::Result<()> {
    match (meant, answer.refused) {
        (Meant::Refused(field), Some(why)) => ensure!(why.contains(field), "{why}"),
        (Meant::Refused(field), None) => bail!("{field} was taken"),
        (_, Some(why)) => bail!("refused: {why}"),
        (Meant::Device(footprint), None) => {
            let fields: device::DeviceFields = serde_json::from_value(answer.object)?;
            let (read, warnings) = device::read(&fields)?;
            ensure!(read == *footprint && warnings.is_empty(), "came back as {read:?}");
        }
        (Meant::Claims(contributions), None) => {
            let entries = answer.object["nodeAllocatableResourceClaimStatuses"].clone();
            let statuses: Vec<dragoman_objects::NodeAllocatableResourceClaimStatus> =
                serde_json::from_value(entries)?;
            let mut unaccounted = Vec::new();
            let recorded = pod_status::Recorded { statuses: &statuses, ..Default::default() };
            let read = pod_status::read(recorded, "Pod", &mut unaccounted);
            ensure!(read.contributions == *contributions && unaccounted.is_empty(), "came back as {read:?}");
        }
    }
    Ok(())
}

const RESOURCES: [&str; 5] = ["cpu", "ephemeral-storage", "hugepages-1Gi", "hugepages-2Mi", "memory"];

fn amount(rng: &mut Rng) -> anyhow::Result<Decimal> {
    let number = match rng.u8(0..4) {
        // Binary sizes, as in manifests.
        0 => Decimal::new(i128::from(rng.u16(1..2000)) << rng.u8(0..41), 0),
        1 => Decimal::new(rng.i128(1..1_000_000), rng.i32(-9..10)),
        2 => Decimal::new(rng.i128(1..i128::from(i64::MAX)), 0),
        _ => Decimal::new(rng.i128(1..10), 0),
    };
    number.context("amount")
}

fn question(rng: &mut Rng) -> anyhow::Result<(Value, Meant)> {
    let (kind, object, meant) = match rng.u8(0..8) {
        0..4 => {
            let footprint = footprint(rng)?;
            let (resources, losses) = device::to_1_37(&footprint, false);
            ensure!(losses.is_empty(), "{losses:?}");
            (
                "Device",
                json!({"name": "dev", "nodeAllocatableResources": resources}),
                Meant::Device(footprint),
            )
        }
        4 => {
            // KEP-6352 came after these types.
            let mut footprint = footprint(rng)?;
            let held = Some(amount(rng)?);
            let other = ResourceFootprint { reservation: held, ..ResourceFootprint::default() };
            footprint.resources.insert(Resource::Cpu, other);
            let (resources, _) = device::to_1_37(&footprint, true);
            let device = json!({"name": "dev", "nodeAllocatableResources": resources});
            ("Device", device, Meant::Refused("reservation"))
        }
        5 => {
            let (entries, _) = pod_status::to_1_36(&contributions(rng)?)?;
            let status = json!({"nodeAllocatableResourceClaimStatuses": entries});
            ("PodStatus", status, Meant::Refused("resources"))
        }
        _ => {
            let contributions = contributions(rng)?;
            let (entries, losses) = pod_status::to_1_37(&contributions)?;
            ensure!(losses.is_empty(), "{losses:?}");
            let status = json!({"nodeAllocatableResourceClaimStatuses": entries});
            ("PodStatus", status, Meant::Claims(contributions))
        }
    };
    Ok((json!({"Kind": kind, "Object": object}), meant))
}

/// One or more random resources.
fn resources(rng: &mut Rng) -> Vec<Resource> {
    let first = rng.usize(0..RESOURCES.len());
    let chosen = RESOURCES.iter().enumerate().filter(|(i, _)| *i == first || rng.u8(0..3) == 0);
    chosen.filter_map(|(_, name)| Resource::of(name)).collect()
}

fn footprint(rng: &mut Rng) -> anyhow::Result<DeviceCost> {
    let mut footprint = DeviceCost::default();
    for resource in resources(rng) {
        let basis = if rng.bool() { Basis::PerDevice } else { Basis::Capacity("example.com/cores".into()) };
        let mapping = if rng.bool() { Some(Mapping { basis, multiplier: amount(rng)? }) } else { None };
        let overhead = match rng.u8(0..4) {
            0 => None,
            1 => Some(Overhead { per_pod: Some(amount(rng)?), per_container: None }),
            2 => Some(Overhead { per_pod: None, per_container: Some(amount(rng)?) }),
            _ => Some(Overhead { per_pod: Some(amount(rng)?), per_container: Some(Decimal::ZERO) }),
        };
        if mapping.is_some() || overhead.is_some() {
            let costs =
                ResourceFootprint { mapping, overhead, reservation: None, policy: None, local: false };
            footprint.resources.insert(resource, costs);
        }
    }
    Ok(footprint)
}

fn contributions(rng: &mut Rng) -> anyhow::Result<Vec<Contribution>> {
    let mut all = Vec::new();
    for number in 0..rng.u8(1..4) {
        let mut lines = Vec::new();
        for resource in resources(rng) {
            let mut line = Line { mapping: Some(amount(rng)?), ..Line::empty(resource) };
            line.per_pod = if rng.bool() { Some(amount(rng)?) } else { None };
            line.per_container = if rng.bool() { Some(amount(rng)?) } else { None };
            line.mapping =
                line.mapping.filter(|_| rng.bool() || line.per_pod.or(line.per_container).is_none());
            lines.push(line);
        }
        all.push(Contribution {
            source: Source::claim(format!("claim-{number}")),
            containers: (0..rng.u8(0..3)).map(|i| format!("c{i}").into()).collect(),
            lines,
            legacy_total: false,
            recorded: Some(Generation::V1_37),
        });
    }
    Ok(all)
}
