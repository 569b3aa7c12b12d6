//! What is taken from every node of a cluster, read from a dump of its objects:
//!
//! ```text
//! kubectl get nodes,pods,resourceclaims,resourceslices,devicefootprints -A -o yaml > dump.yaml
//! cargo run --package dragoman-accounting --example dump -- dump.yaml
//! ```

#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "reading a JSON value by name never panics; a program that prints"
)]

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use dragoman_accounting::amounts::Text;
use dragoman_accounting::claim::allocation::Judgement;
use dragoman_accounting::cluster::{Account, Cluster, DeviceFootprint, Index, Pod, Rules};
use dragoman_accounting::ledger::fit::{Fit, Headroom};
use dragoman_accounting::ledger::{Bucket, Charging, NodeLedger};
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::pod::requests::Variant;
use dragoman_accounting::resource::Resource;
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_crds::device_footprint::DeviceFootprintSpec;
use dragoman_crds::wire::{ClaimAllocation, Node, PodResources, ResourceSlice};
use dragoman_quantity::Decimal;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What Pods and claims take from every node of a dump, and what fits.
#[derive(Parser)]
struct Arguments {
    /// JSON or YAML as kubectl prints it, also several documents or lists; - is the
    /// standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Count as Kubernetes itself does where it differs.
    #[arg(long)]
    in_tree: bool,
    /// Count what is per container only while the container runs.
    #[arg(long)]
    peak: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut dump = Dump::default();
    for path in &arguments.files {
        for object in objects(path).with_context(|| path.display().to_string())? {
            dump.take(object);
        }
    }
    let rules = Rules {
        variant: if arguments.peak { Variant::Peak } else { Variant::WholeLife },
        charging: if arguments.in_tree { Charging::InTree } else { Charging::PerClaim },
        judgement: if arguments.in_tree { Judgement::Upstream } else { Judgement::Ours },
    };
    let index = Index::new(&dump.cluster, rules);
    let accounts = index.accounts();
    let pending = dump.cluster.pods.iter().filter(|pod| pod.node.is_none() && !pod.done);
    let pending: Vec<Value> = pending.map(|pod| asked(&index, &accounts, pod)).collect();
    let nodes: Vec<Value> = accounts.iter().map(|(name, account)| told(name, account)).collect();
    let report = json!({"nodes": nodes, "pending": pending, "unreadable": dump.unreadable});
    match arguments.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        Output::Table => print!("{}", table(&report)),
    }
    Ok(())
}

// Reading.

fn objects(path: &PathBuf) -> anyhow::Result<Vec<Value>> {
    let mut text = String::new();
    if path.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text)?;
    } else {
        text = std::fs::read_to_string(path)?;
    }
    let documents: Vec<Value> = if text.trim_start().starts_with('{') {
        serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>()?
    } else {
        let documents = text.split("\n---").filter(|document| !document.trim().is_empty());
        documents.map(serde_saphyr::from_str).collect::<Result<_, _>>()?
    };
    let (mut all, mut lists) = (Vec::new(), documents);
    while let Some(mut object) = lists.pop() {
        match object.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) => lists.append(items),
            None => all.push(object),
        }
    }
    Ok(all)
}

/// The cluster as far as it could be read.
#[derive(Default)]
struct Dump {
    cluster: Cluster,
    unreadable: Vec<String>,
}

impl Dump {
    fn take(&mut self, object: Value) {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, node) = (text("/kind"), text("/spec/nodeName"));
        let name = format!("{kind} {}/{}", text("/metadata/namespace"), text("/metadata/name"));
        let taken = match kind.as_str() {
            "Node" => read::<Node>(object).map(|read| self.cluster.nodes.push(read.node())),
            "Pod" => read::<PodResources>(object).map(|read| self.cluster.pods.push(read.pod())),
            "ResourceClaim" => {
                read::<ClaimAllocation>(object).map(|read| self.cluster.claims.push(read.claim()))
            }
            "ResourceSlice" => {
                read::<ResourceSlice>(object).map(|read| self.cluster.slices.push(read.slice()))
            }
            "DeviceFootprint" => footprint(&object).map(|read| self.cluster.footprints.push(read)),
            _ => Ok(()),
        };
        if let Err(why) = taken {
            let unread = Unaccounted {
                object: name.as_str().into(),
                field: "".into(),
                resource: None,
                why: why.as_str().into(),
            };
            match kind.as_str() {
                "Pod" if !node.is_empty() => self.cluster.pods.push(unreadable(&name, node, unread)),
                // It may cost any node something, or the one it names.
                "ResourceSlice" if !node.is_empty() => self.cluster.unread.push((Some(node.into()), unread)),
                "ResourceSlice" | "DeviceFootprint" | "ResourceClaim" => {
                    self.cluster.unread.push((None, unread));
                }
                // A Node that is not listed is unknown, and so are Pods whose claim is not.
                _ => {}
            }
            self.unreadable.push(format!("{name}: {why}"));
        }
    }
}

fn read<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|why| why.to_string())
}

fn footprint(object: &Value) -> Result<DeviceFootprint, String> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().into();
    let spec: DeviceFootprintSpec = read(object.get("spec").cloned().unwrap_or_default())?;
    let cost = spec.cost().map_err(|why| format!("spec.resources{why}"))?;
    Ok(DeviceFootprint { name, driver: spec.driver.into(), selector: spec.selector.map(Into::into), cost })
}

/// It takes something from its node, and nobody knows what.
fn unreadable(name: &str, node: String, unaccounted: Unaccounted) -> Pod {
    let view = PodSpecView { uid: name.into(), ..PodSpecView::default() };
    Pod { view, node: Some(node.into()), unaccounted: vec![unaccounted], ..Pod::default() }
}

// Telling.

/// An amount in the units of a node.
fn amount(resource: Resource, count: i128) -> String {
    let amount = Decimal::new(count.abs(), resource.unit()).unwrap_or_default();
    format!("{}{}", if count < 0 { "-" } else { "" }, Text::of(resource, amount).0)
}

fn told(name: &str, account: &Account) -> Value {
    let Account { ledger, notices } = account;
    let resource = |resource: Resource| {
        let charged = |bucket| amount(resource, ledger.charged(bucket, resource));
        let left = match ledger.headroom(resource) {
            Headroom::Left(left) => Some(amount(resource, left)),
            Headroom::Unknown => None,
        };
        let of = json!({
            "allocatable": amount(resource, ledger.allocatable(resource).into()),
            "pods": charged(Bucket::Pods),
            "mapping": charged(Bucket::Mapping),
            "overhead": charged(Bucket::Overhead),
            "reservations": charged(Bucket::Reservation),
            "left": left,
        });
        (resource.to_string(), of)
    };
    let texts = |texts: Vec<String>| json!(texts);
    json!({
        "name": name,
        "resources": ledger.resources().into_iter().map(resource).collect::<BTreeMap<_, _>>(),
        "violations": texts(ledger.violations().iter().map(ToString::to_string).collect()),
        "unaccounted": texts(ledger.unaccounted().map(ToString::to_string).collect()),
        "notices": notices,
    })
}

/// Where a Pod without a node would fit.
fn asked(index: &Index, accounts: &BTreeMap<Box<str>, Account>, pod: &Pod) -> Value {
    let answer = |name: &str, account: &Account| {
        let ledger = &account.ledger;
        let answer = match ledger.fits(&index.candidate(pod, name)) {
            Fit::Yes => json!({"fits": true}),
            Fit::Missing(missing) => {
                let held = |resource| json!({"missing": amount(resource, missing.get(resource)), "heldBy": holders(ledger, resource)});
                let missing: BTreeMap<_, _> =
                    missing.iter().map(|(resource, _)| (resource.to_string(), held(resource))).collect();
                json!({"fits": false, "missing": missing})
            }
            Fit::Never(never) => {
                let has = |resource: &Resource| {
                    (resource.to_string(), amount(*resource, ledger.allocatable(*resource).into()))
                };
                json!({"fits": false, "never": never.iter().map(has).collect::<BTreeMap<_, _>>()})
            }
            Fit::Unknown(unknown) => {
                json!({"fits": null, "unknown": unknown.iter().map(ToString::to_string).collect::<Vec<_>>()})
            }
            Fit::Refused(why) => {
                json!({"fits": false, "refused": why.iter().map(ToString::to_string).collect::<Vec<_>>()})
            }
        };
        (name.to_string(), answer)
    };
    json!({"pod": pod.view.object(), "nodes": accounts.iter().map(|(name, account)| answer(name, account)).collect::<BTreeMap<_, _>>()})
}

/// The largest holders of a resource.
fn holders(ledger: &NodeLedger, resource: Resource) -> Vec<String> {
    const SHOWN: usize = 5;
    let holding = ledger.who_has(resource).into_iter().take(SHOWN);
    holding.map(|held| format!("{}: {}", held.cause, amount(resource, held.amount.into()))).collect()
}

/// An answer in words.
fn said(answer: &Value) -> String {
    let entries = |part: &str| answer[part].as_object().cloned().unwrap_or_default();
    let words = |value: &Value| {
        let list = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        list.collect::<Vec<_>>().join(", ")
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let missing = entries("missing").into_iter().map(|(resource, of)| {
        format!("{} of {resource} is missing ({})", text(&of["missing"]), words(&of["heldBy"]))
    });
    let never = entries("never")
        .into_iter()
        .map(|(resource, has)| format!("the node has {} of {resource}", text(&has)));
    let unknown = words(&answer["unknown"]);
    let unknown = (!unknown.is_empty()).then(|| format!("nobody knows how much is left of {unknown}"));
    let refused = words(&answer["refused"]);
    let all: Vec<String> =
        missing.chain(never).chain(unknown).chain((!refused.is_empty()).then_some(refused)).collect();
    if all.is_empty() { "fits".to_owned() } else { all.join("; ") }
}

fn table(report: &Value) -> String {
    const COLUMNS: [&str; 5] = ["allocatable", "pods", "mapping", "overhead", "reservations"];
    let mut rows: Vec<Vec<String>> = vec![
        ["NODE", "RESOURCE", "ALLOCATABLE", "PODS", "MAPPING", "OVERHEAD", "RESERVED", "LEFT"]
            .map(str::to_owned)
            .into(),
    ];
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (mut below, all) = (String::new(), |value: &Value| value.as_array().cloned().unwrap_or_default());
    for node in all(&report["nodes"]) {
        let name = text(&node["name"]);
        for (resource, of) in node["resources"].as_object().into_iter().flatten() {
            let left = of["left"].as_str().unwrap_or("unknown").to_owned();
            let cells = COLUMNS.iter().map(|column| text(&of[*column]));
            rows.push([name.clone(), resource.clone()].into_iter().chain(cells).chain([left]).collect());
        }
        for part in ["violations", "unaccounted", "notices"] {
            all(&node[part]).iter().for_each(|line| below += &format!("{name}: {part}: {}\n", text(line)));
        }
    }
    for pod in all(&report["pending"]) {
        for (node, answer) in pod["nodes"].as_object().into_iter().flatten() {
            below += &format!("{} on {node}: {}\n", text(&pod["pod"]), said(answer));
        }
    }
    all(&report["unreadable"]).iter().for_each(|line| below += &format!("unreadable: {}\n", text(line)));
    let widths: Vec<usize> =
        (0..8).map(|i| rows.iter().filter_map(|row| Some(row.get(i)?.len())).max().unwrap_or(0)).collect();
    let mut table = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        table += &format!("{}\n", cells.join("  ").trim_end());
    }
    if below.is_empty() { table } else { format!("{table}\n{below}") }
}
