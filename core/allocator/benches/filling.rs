//! Fills a cluster with claims, one Pod after the other, as a scheduler does: each Pod is tried on
//! a number of nodes and gets the first one with a solution. Prints the time per Pod, a hash of the
//! results and the memory of the cluster, as JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use clap::Parser;
use dragoman_allocator::input::Claim;
use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{Alignment, Choice, Options, Outcome, Overlay, PodClaims, Snapshot, allocate};
use dragoman_objects::Slice;

#[derive(Parser)]
struct Arguments {
    /// The cluster, and the claims. Each claim is a Pod of its own.
    #[arg(long)]
    scenario: Option<PathBuf>,
    /// The number of nodes to try for each Pod.
    #[arg(long, default_value_t = 100)]
    tried: usize,
    /// Release each Pod before the next one.
    #[arg(long)]
    release: bool,
    /// Publish a slice again before each Pod.
    #[arg(long)]
    change: bool,
    /// Take the devices that cost others least, instead of the first.
    #[arg(long)]
    best_fit: bool,
    /// Align the devices of a Pod.
    #[arg(long)]
    align: bool,
    /// Count the work, in steps of a hundred examined devices.
    #[arg(long)]
    count: bool,
    /// Set by `cargo bench` for every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    fn options(&self) -> Options<'static> {
        let choice = if self.best_fit { Choice::BestFit } else { Choice::FirstFit };
        let align = if self.align { Alignment::Preferred } else { Alignment::None };
        Options { budget: self.count.then_some(STEP), choice, align, ..Options::default() }
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let Some(path) = &arguments.scenario else { return Ok(()) };
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let scenario: Scenario = serde_json::from_str(&text).context("scenario")?;
    let cluster = scenario.cluster();
    let (slices, claims) = (cluster.slices.clone(), cluster.claims.clone());
    let mut snapshot = Snapshot::default();
    for node in cluster.nodes {
        snapshot = snapshot.with_node(node);
    }
    for class in cluster.classes {
        snapshot = snapshot.with_class(class);
    }
    let before = resident()?;
    snapshot = slices.iter().cloned().fold(snapshot, |snapshot, slice| snapshot.with_slice(slice));
    let with_slices = resident()?;
    snapshot = claims.iter().cloned().fold(snapshot, |snapshot, claim| snapshot.with_claim(claim));
    let with_claims = resident()?;
    let figures = fill(&scenario, snapshot, &slices, &claims, &arguments)?;
    let devices: usize = slices.iter().map(|slice| slice.devices.len()).sum();
    let per = |bytes: usize, count: usize| bytes / count.max(1);
    #[expect(clippy::print_stdout, reason = "the figures")]
    {
        println!(
            "{{\"nsPerPod\": {}, \"solved\": {}, \"hash\": \"{:016x}\", \"work\": {}, \"bytesPerDevice\": {}, \"bytesPerClaim\": {}}}",
            figures.nanoseconds,
            figures.solved,
            figures.hash.0,
            figures.work,
            per(with_slices.saturating_sub(before), devices),
            per(with_claims.saturating_sub(with_slices), claims.len()),
        );
    }
    Ok(())
}

struct Figures {
    nanoseconds: u128,
    solved: usize,
    hash: Hash,
    work: u64,
}

/// The work after which a search is asked whether it has ended, where it is counted.
const STEP: u64 = 100;

/// Searches to the end. Adds to `work` what the search examined, if that is counted.
fn searched(mut found: Outcome, work: Option<&mut u64>) -> Outcome {
    let Some(work) = work else { return found };
    while let Outcome::BudgetSpent(paused) = found {
        *work += STEP;
        found = paused.resume(Options { budget: Some(STEP), ..Options::default() });
    }
    *work += STEP;
    found
}

fn fill(
    scenario: &Scenario,
    mut snapshot: Snapshot,
    slices: &[Slice],
    claims: &[Claim],
    arguments: &Arguments,
) -> anyhow::Result<Figures> {
    let mut overlay = Overlay::default();
    let (mut hash, mut solved, mut shares, mut work) = (Hash::new(), 0_usize, 0_u64, 0);
    let mut seen: Vec<Claim> = Vec::new();
    let gates = scenario.gates()?;
    let by_name: BTreeMap<String, Arc<Claim>> = claims
        .iter()
        .map(|claim| (format!("{}/{}", claim.namespace, claim.name), Arc::new(claim.clone())))
        .collect();
    let begun = Instant::now();
    for (pod, name) in scenario.allocate.iter().enumerate() {
        // The API has observed the allocation of the previous Pod, and with `--release` its end.
        for claim in seen.drain(..) {
            overlay.forget(&claim.uid);
            let uid = claim.uid.clone();
            snapshot = snapshot.with_claim(claim);
            if arguments.release {
                snapshot = snapshot.without_claim(&uid);
            }
        }
        if let Some(slice) = slices.get(pod % slices.len().max(1)).filter(|_| arguments.change) {
            snapshot = snapshot.with_slice(slice.clone());
        }
        let claim = by_name.get(&**name).with_context(|| name.to_string())?;
        let claims = PodClaims::new(&snapshot, vec![claim.clone()], gates);
        let mut found = None;
        let nodes =
            scenario.candidates.iter().cycle().skip(pod * arguments.tried % scenario.candidates.len());
        for node in nodes.take(arguments.tried) {
            let options = arguments.options();
            let begun = allocate(&snapshot, &overlay, node, &claims, options);
            if let Outcome::Solution(solution) = searched(begun, arguments.count.then_some(&mut work)) {
                found.get_or_insert(solution);
            }
        }
        hash.text(name);
        let Some(solution) = found else { continue };
        solved += 1;
        hash.text(solution.node());
        let mut ids = || {
            shares += 1;
            shares.to_string().into()
        };
        for (uid, allocation) in solution.allocations(&mut ids)? {
            for result in &allocation.devices.results {
                hash.text(&result.device);
            }
            let claim = snapshot.claim(&uid).map(|claim| Claim::clone(claim)).unwrap_or_default();
            seen.push(Claim { allocation: Some(allocation.clone()), ..claim });
            overlay.assume(uid, allocation);
        }
    }
    let pods = scenario.allocate.len().max(1);
    Ok(Figures { nanoseconds: begun.elapsed().as_nanos() / pods as u128, solved, hash, work })
}

/// Returns the resident memory in bytes.
fn resident() -> anyhow::Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status").context("status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    let kibibytes: usize = line.trim().trim_end_matches(" kB").parse().context("VmRSS")?;
    Ok(kibibytes * 1024)
}

/// FNV-1a. The upstream benchmark computes the same hash.
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn text(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
