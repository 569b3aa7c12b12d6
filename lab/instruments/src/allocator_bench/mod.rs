//! `dragoman-allocator` side by side with the published allocator of Kubernetes: both fill the
//! same clusters with the same claims, one Pod after the other, and must give the same
//! devices on the same nodes.

mod cluster;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use tokio::process::Command;

use self::cluster::{CASES, Case};
use crate::oracle::Judge;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Figures {
    ns_per_pod: f64,
    hash: String,
    /// The number of Pods for which the published allocator had no answer within ten seconds.
    #[serde(default)]
    timed_out: usize,
    /// The work for all Pods, in examined devices, where it is counted.
    #[serde(default)]
    work: u64,
    #[serde(default)]
    bytes_per_device: f64,
    #[serde(default)]
    bytes_per_claim: f64,
}

/// `core/allocator/budget.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Budget {
    bytes_per_device: f64,
    bytes_per_claim: f64,
    /// The least ratio to the published allocator, by case.
    times_faster: BTreeMap<String, f64>,
    /// The most work of a case in which it is counted.
    most_work: BTreeMap<String, u64>,
}

const TURNS: usize = 7;

/// Measures the cases whose name contains `filter`, prints medians, and requires that they are within the
/// budget.
pub(crate) async fn run(repository: &Path, output: &Path, filter: &str) -> anyhow::Result<()> {
    let judge = Judge::build(repository, "allocator").await?;
    let budget = std::fs::read_to_string(repository.join("core/allocator/budget.json")).context("budget")?;
    let budget: Budget = serde_json::from_str(&budget).context("budget")?;
    std::fs::create_dir_all(output).context("output")?;
    let path = output.canonicalize().context("output")?.join("filling.json");
    let mut over = Vec::new();
    for case in CASES.iter().filter(|case| case.name.contains(filter)) {
        std::fs::write(&path, case.scenario().to_string()).context("scenario")?;
        let measured = measure(repository, &judge, &path, case).await?;
        let least = budget.times_faster.get(case.name);
        let least = *least.with_context(|| format!("no budget for {}", case.name))?;
        println!(
            "{}: {:.3} ms for a Pod, {}{:.3} ms upstream, {:.1} times faster (at least {least})",
            case.name,
            measured.ours / 1e6,
            if measured.timed_out { "at least " } else { "" },
            measured.theirs / 1e6,
            measured.ratio,
        );
        if measured.ratio < least {
            over.push(case.name);
        }
        if case.count {
            let most =
                *budget.most_work.get(case.name).with_context(|| format!("no work for {}", case.name))?;
            println!("  {} examined devices (at most {most})", measured.work);
            if measured.work > most {
                over.push("work");
            }
        }
        if case.name == CASES[0].name {
            let [device, claim] = measured.bytes;
            println!(
                "  {device:.0} bytes for a device (at most {}), {claim:.0} for a claim (at most {})",
                budget.bytes_per_device, budget.bytes_per_claim
            );
            if device > budget.bytes_per_device || claim > budget.bytes_per_claim {
                over.push("memory");
            }
        }
    }
    ensure!(over.is_empty(), "over budget: {}", over.join("; "));
    Ok(())
}

/// The medians of a case.
struct Measured {
    ours: f64,
    theirs: f64,
    ratio: f64,
    timed_out: bool,
    work: u64,
    bytes: [f64; 2],
}

async fn measure(repository: &Path, judge: &Judge, path: &Path, case: &Case) -> anyhow::Result<Measured> {
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut timed_out = false;
    let their_arguments: Vec<String> = case
        .arguments()
        .into_iter()
        .chain(case.channel.map(|channel| format!("--channel={channel}")))
        .collect();
    for _ in 0..TURNS {
        let counted = case.count.then(|| "--count".to_owned());
        let arguments: Vec<String> = case.arguments().into_iter().chain(counted).collect();
        let our = our_figures(repository, path, &arguments).await?;
        let their: Figures =
            serde_json::from_str(&judge.fill(path, &their_arguments)?).context("figures of the judge")?;
        timed_out |= their.timed_out > 0;
        ensure!(timed_out || our.hash == their.hash, "{}: not the same devices", case.name);
        ratios.push(their.ns_per_pod / our.ns_per_pod);
        theirs.push(their.ns_per_pod);
        ours.push(our);
    }
    let median_of = |figure: fn(&Figures) -> f64| median(ours.iter().map(figure).collect());
    Ok(Measured {
        ours: median_of(|figures| figures.ns_per_pod),
        theirs: median(theirs),
        ratio: median(ratios),
        timed_out,
        work: ours.iter().map(|figures| figures.work).max().unwrap_or_default(),
        bytes: [median_of(|figures| figures.bytes_per_device), median_of(|figures| figures.bytes_per_claim)],
    })
}

async fn our_figures(repository: &Path, scenario: &Path, arguments: &[String]) -> anyhow::Result<Figures> {
    let out = Command::new("cargo")
        .args(["bench", "--quiet", "--package", "dragoman-allocator", "--bench", "filling", "--"])
        .arg("--scenario")
        .arg(scenario)
        .args(arguments)
        .current_dir(repository)
        .output()
        .await?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).context("our figures")
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}
