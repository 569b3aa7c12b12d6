//! `dragoman account`: what Pods and claims take from every node of a dump, and what fits.

mod report;
mod table;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use dragoman_accounting::claim::allocation::Judgement;
use dragoman_accounting::cluster::{self, Cluster, Rules};
use dragoman_accounting::ledger::Charging;
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::pod::requests::Variant;
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_crds::wire::{Node, Pod, ResourceClaim, ResourceSlice};
use dragoman_reconcilers::cluster::{SharedCluster, footprint};
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::report::Report;
use crate::manifests::{self, Found};

/// Flags of `dragoman account`.
#[derive(Debug, Args)]
pub(crate) struct AccountFlags {
    /// Files with objects as `kubectl get -o yaml` or `-o json` prints them: one, several, or lists;
    /// - is standard input.
    #[arg(short = 'f', long = "filename", required = true, num_args = 1..)]
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

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Prints the ledgers.
///
/// # Errors
/// A file cannot be read, or holds something that is no Kubernetes object.
pub(crate) fn account(flags: &AccountFlags) -> anyhow::Result<()> {
    let mut dump = Dump::default();
    let mut wrong = Vec::new();
    for found in manifests::read(&flags.files)? {
        match found.and_then(|found| dump.take(found)) {
            Ok(()) => {}
            Err(why) => wrong.push(format!("{why:#}")),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(dump.read > 0, "there are no nodes, Pods, claims, slices or footprints in these files");
    let rules = Rules {
        variant: if flags.peak { Variant::Peak } else { Variant::WholeLife },
        charging: if flags.in_tree { Charging::InTree } else { Charging::PerClaim },
        judgement: if flags.in_tree { Judgement::Upstream } else { Judgement::Ours },
    };
    let report = Report::of(&dump.cluster, rules, dump.unreadable);
    let text = match flags.output {
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
        Output::Table => table::render(&report),
    };
    std::io::stdout().write_all(text.as_bytes()).context("stdout")
}

/// The table of a running process: what `dragoman account` prints of a dump, without the Pods that wait.
pub(crate) fn of_index(cluster: &SharedCluster) -> String {
    let Some(index) = cluster.get() else { return "the controller of ledgers is off\n".to_owned() };
    table::render(&index.read(|cluster| Report::of_ledger(cluster.ledger())))
}

/// The cluster of a dump, as far as it could be read.
#[derive(Default)]
struct Dump {
    cluster: Cluster,
    /// Objects of the kinds that accounting reads.
    read: usize,
    unreadable: Vec<String>,
}

impl Dump {
    /// Takes in an object. One of a kind that costs no node anything is left out; one that does not
    /// decode costs something that is unknown.
    ///
    /// # Errors
    /// It is no Kubernetes object: nothing may vanish without a word.
    fn take(&mut self, Found { place, object }: Found) -> anyhow::Result<()> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, node) = (text("/kind"), text("/spec/nodeName"));
        ensure!(
            !kind.is_empty() && object.is_object(),
            "{place}: it is no Kubernetes object: it has no kind (print dumps with -o yaml or -o json)"
        );
        let name = format!("{kind} {}/{}", text("/metadata/namespace"), text("/metadata/name"));
        self.read += 1;
        let taken = match kind.as_str() {
            "Node" => read::<Node>(object).map(|read| self.cluster.nodes.push(read.accounted())),
            "Pod" => read::<Pod>(object).map(|read| self.cluster.pods.push(read.accounted())),
            "ResourceClaim" => read::<ResourceClaim>(object)
                .and_then(|read| read.accounted().map_err(String::from))
                .map(|read| self.cluster.claims.push(read)),
            "ResourceSlice" => {
                read::<ResourceSlice>(object).map(|read| self.cluster.slices.push(read.accounted()))
            }
            "DeviceFootprint" => {
                read::<DeviceFootprint>(object).and_then(|read| footprint(&read)).map(|(read, refused)| {
                    self.unreadable.extend(refused.map(|why| format!("{name}: {why}")));
                    self.cluster.footprints.push(read);
                })
            }
            _ => {
                self.read -= 1;
                Ok(())
            }
        };
        if let Err(why) = taken {
            self.unread(&kind, &name, node, &why);
        }
        Ok(())
    }

    /// Counts an object that does not decode as an unknown cost.
    fn unread(&mut self, kind: &str, name: &str, node: String, why: &str) {
        let unread = Unaccounted { object: name.into(), field: "".into(), resource: None, why: why.into() };
        match kind {
            "Pod" if !node.is_empty() => self.cluster.pods.push(unreadable(name, node, unread)),
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

fn read<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|why| why.to_string())
}

/// A Pod that takes an unknown amount from its node.
fn unreadable(name: &str, node: String, unaccounted: Unaccounted) -> cluster::Pod {
    let view = PodSpecView { uid: name.into(), ..PodSpecView::default() };
    cluster::Pod { view, node: Some(node.into()), unaccounted: vec![unaccounted], ..cluster::Pod::default() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn report(objects: &Value) -> Report {
        let mut dump = Dump::default();
        for found in manifests::objects(Path::new("f"), &objects.to_string()) {
            dump.take(found.expect("object")).expect("a Kubernetes object");
        }
        Report::of(&dump.cluster, Rules::default(), dump.unreadable)
    }

    fn pod(name: &str, node: &str, cpu: &str) -> Value {
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
        let node = if node.is_empty() { Value::Null } else { node.into() };
        json!({"metadata": {"namespace": "ns", "name": name, "uid": name},
            "spec": {"nodeName": node, "containers": containers}, "status": {"phase": "Pending"}})
    }

    #[test]
    fn items_of_typed_lists_count() {
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}});
        let nodes = json!({"kind": "NodeList", "apiVersion": "v1", "items": [node]});
        let pods =
            json!({"kind": "PodList", "apiVersion": "v1", "items": [pod("a", "n", "3"), pod("b", "", "2")]});
        let report = report(&json!({"kind": "List", "items": [nodes, pods]}));
        let text = table::render(&report);
        assert!(
            text.contains("n     cpu       4            3     0        0         0         1\n"),
            "{text}"
        );
        assert!(text.contains("Pod ns/b on n: 1 of cpu is missing (Pod ns/a: 3)"), "{text}");
    }

    #[test]
    fn nothing_vanishes_without_a_word() {
        let mut dump = Dump::default();
        for text in ["NAME READY\npod 1/1\n", "{\"metadata\": {}}", "[{\"kind\": \"Pod\"}]"] {
            for found in manifests::objects(Path::new("f"), text) {
                let why = found.and_then(|found| dump.take(found)).expect_err(text);
                assert!(format!("{why:#}").starts_with("f:1: it is n"), "{why:#}");
            }
        }
    }
}
