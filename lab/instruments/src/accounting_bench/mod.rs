//! `dragoman-accounting` side by side with `k8s.io/component-helpers` on the same Pods, and against its
//! budget.

mod dump;

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use fastrand::Rng;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::oracle::Judge;

/// `core/accounting/budget.json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Budget {
    update_ns: f64,
    ledger_update_ns: f64,
    rebuild_ms: f64,
    times_faster_than_component_helpers: f64,
    /// Peak memory of `dragoman account`, for a dump of 5 000 nodes and 50 000 Pods.
    dump_peak_mib: u64,
}

impl Budget {
    /// Prints the times with their limits, and returns those that are above. `figure` has the times by name.
    fn exceeded(&self, figure: impl Fn(&str) -> f64) -> Vec<String> {
        let mut over = Vec::new();
        let mut line = |what: &str, figure: f64, most: f64| {
            println!("{what}: {figure:.1} (at most {most})");
            if figure > most {
                over.push(what.to_owned());
            }
        };
        line(
            "ns for a Pod whose contribution has changed, computed anew and charged",
            figure("update_ns"),
            self.update_ns,
        );
        line("ns for a changed charge", figure("ledger_update_ns"), self.ledger_update_ns);
        line("ms to rebuild 5000 nodes of 100 Pods", figure("rebuild_ms"), self.rebuild_ms);
        over
    }
}

/// Measures both sides three times in turn, prints medians, and requires that they are within the budget.
pub(crate) async fn run(binary: &Path, repository: &Path, output: &Path) -> anyhow::Result<()> {
    const TURNS: usize = 3;
    let judge = Judge::build(repository, "pods").await?;
    std::fs::create_dir_all(output).context("output")?;
    let path = output.canonicalize().context("output")?.join("pods.jsonl");
    write_pods(&path)?;
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let figures = bench(repository, &path).await?;
        let their: f64 = judge.time(&path)?.trim().parse().context("nanoseconds")?;
        ratios.push(their / figures["requests_ns"].as_f64().context("requests_ns")?);
        ours.push(figures);
        theirs.push(their);
    }
    let figure = |name: &str| median(ours.iter().filter_map(|figures| figures[name].as_f64()).collect());
    let budget = std::fs::read_to_string(repository.join("core/accounting/budget.json")).context("budget")?;
    let budget: Budget = serde_json::from_str(&budget).context("budget")?;
    println!(
        "requests of one Pod: {:.0} ns, component-helpers {:.0} ns",
        figure("requests_ns"),
        median(theirs)
    );
    let mut over = budget.exceeded(figure);
    let dump::Figures { size, peak, took } = dump::measure(binary, output).await?;
    println!(
        "dragoman account of {size} MB: {peak} MiB (at most {}), {:.1} s",
        budget.dump_peak_mib,
        took.as_secs_f64()
    );
    if peak > budget.dump_peak_mib {
        over.push("MiB of dragoman account".to_owned());
    }
    let (faster, least) = (median(ratios), budget.times_faster_than_component_helpers);
    println!("times faster than component-helpers: {faster:.1} (at least {least})");
    ensure!(over.is_empty() && faster >= least, "over budget: {}", over.join("; "));
    Ok(())
}

/// Writes 5000 random Pods, one a line.
fn write_pods(path: &Path) -> anyhow::Result<()> {
    let mut file = std::fs::File::create(path).context("pods")?;
    let mut rng = Rng::with_seed(1);
    for number in 0..5_000 {
        writeln!(file, "{}", pod(&mut rng, number))?;
    }
    Ok(())
}

/// Runs the benchmark of `dragoman-accounting` on the Pods in a file, and returns its figures.
async fn bench(repository: &Path, pods: &Path) -> anyhow::Result<Value> {
    let out = Command::new("cargo")
        .args(["bench", "--quiet", "--package", "dragoman-accounting", "--bench", "ledgers", "--", "--pods"])
        .arg(pods)
        .current_dir(repository)
        .output()
        .await?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).context("figures")
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A running Pod: two containers and a sidecar, each with a status, and a claim that maps CPUs and has an
/// overhead of memory.
fn pod(rng: &mut Rng, number: usize) -> Value {
    let list = |rng: &mut Rng| json!({"cpu": format!("{}m", rng.u32(50..2_000)), "memory": format!("{}Mi", rng.u32(16..4_096))});
    let (mut containers, mut statuses) = (Vec::new(), Vec::new());
    for name in ["sidecar", "one", "two"] {
        let (requests, limits) = (list(rng), list(rng));
        let resources = json!({"requests": requests, "limits": limits});
        statuses.push(json!({"name": name, "allocatedResources": requests, "resources": resources}));
        containers.push(json!({"name": name, "resources": resources}));
    }
    let (mut sidecar, sidecar_status) = (containers.remove(0), statuses.remove(0));
    sidecar["restartPolicy"] = json!("Always");
    let claim = json!({
        "resourceClaimName": format!("claim-{number}"), "containers": ["one", "two"],
        "mapping": [{"name": "cpu", "quantity": rng.u8(1..32).to_string()}],
        "overhead": [{"name": "memory", "perPod": "256Mi", "perContainer": "64Mi"}],
    });
    json!({
        "metadata": {"namespace": "ns", "name": format!("pod-{number}"), "uid": format!("uid-{number}")},
        "spec": {"containers": containers, "initContainers": [sidecar]},
        "status": {
            "containerStatuses": statuses, "initContainerStatuses": [sidecar_status],
            "nodeAllocatableResourceClaimStatuses": [claim],
        },
    })
}
