//! Fills a cluster with claims, one Pod after the other, as a scheduler would: every Pod is
//! tried on so many nodes, and gets the first that can have it. Prints the time for a Pod
//! and a hash of who got what, as JSON.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use clap::Parser;
use dragoman_allocator::{Options, Outcome, Overlay, Snapshot, allocate};
use dragoman_crds::wire::DeviceScenario;

#[derive(Parser)]
struct Arguments {
    /// The cluster, and the claims, each of which is a Pod of its own.
    #[arg(long)]
    scenario: Option<PathBuf>,
    /// Nodes to try for each Pod.
    #[arg(long, default_value_t = 100)]
    tried: usize,
    /// What `cargo bench` says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let Some(path) = arguments.scenario else { return Ok(()) };
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let scenario: DeviceScenario = serde_json::from_str(&text).context("scenario")?;
    let snapshot = scenario.snapshot(&Snapshot::default())?;
    let mut overlay = Overlay::default();
    let (mut hash, mut solved, mut shares) = (Hash::new(), 0_usize, 0_u64);
    let begun = Instant::now();
    for (pod, name) in scenario.allocate.iter().enumerate() {
        let claims = scenario.claims_named(&snapshot, std::slice::from_ref(name))?;
        let mut found = None;
        let nodes =
            scenario.candidates.iter().cycle().skip(pod * arguments.tried % scenario.candidates.len());
        for node in nodes.take(arguments.tried) {
            if let Outcome::Solution(solution) =
                allocate(&snapshot, &overlay, node, &claims, Options::default())
            {
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
            overlay.assume(uid, allocation);
        }
    }
    let pods = scenario.allocate.len().max(1);
    let nanoseconds = begun.elapsed().as_nanos() / pods as u128;
    #[expect(clippy::print_stdout, reason = "the figures")]
    {
        println!("{{\"nsPerPod\": {nanoseconds}, \"solved\": {solved}, \"hash\": \"{:016x}\"}}", hash.0);
    }
    Ok(())
}

/// FNV-1a, which the other side has too.
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
