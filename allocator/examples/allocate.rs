//! Reads scenarios, one a line or one in all, and prints for each what the allocator does
//! with it, as JSON: `cargo run -p dragoman-allocator --example allocate -- scenario.json`.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::Context as _;
use clap::Parser;
use dragoman_allocator::input::Allocation;
use dragoman_allocator::{Options, Outcome, Overlay, Snapshot, allocate};
use dragoman_crds::wire::DeviceScenario;
use serde::Serialize;

/// What the allocator does with devices and claims.
#[derive(Parser)]
struct Arguments {
    /// The file with the scenario; `-` is standard input.
    #[arg(default_value = "-")]
    file: String,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Answer {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    allocations: BTreeMap<String, Allocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    node_errors: BTreeMap<String, String>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut text = String::new();
    if arguments.file == "-" {
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
    } else {
        text = std::fs::read_to_string(&arguments.file).with_context(|| arguments.file.clone())?;
    }
    for scenario in serde_json::Deserializer::from_str(&text).into_iter::<DeviceScenario>() {
        let answer = answered(&scenario.with_context(|| arguments.file.clone())?)?;
        #[expect(clippy::print_stdout, reason = "the answer")]
        {
            println!("{}", serde_json::to_string(&answer)?);
        }
    }
    Ok(())
}

fn answered(scenario: &DeviceScenario) -> anyhow::Result<Answer> {
    let snapshot = scenario.snapshot(&Snapshot::default())?;
    let claims = scenario.claims(&snapshot)?;
    let overlay = Overlay::default();
    let mut answer = Answer { outcome: "none", ..Answer::default() };
    let mut shares = 0;
    for node in &scenario.candidates {
        match allocate(&snapshot, &overlay, node, &claims, Options::default()) {
            Outcome::Solution(solution) => {
                let mut ids = || {
                    shares += 1;
                    format!("00000000-0000-0000-0000-{shares:012}").into()
                };
                answer.outcome = "solution";
                answer.node = Some(node.to_string());
                for (uid, allocation) in solution.allocations(&mut ids)? {
                    answer.allocations.insert(scenario.claim_name(&uid).unwrap_or_default(), allocation);
                }
                return Ok(answer);
            }
            Outcome::NodeError(error) => {
                answer.node_errors.insert(node.to_string(), error.to_string());
            }
            Outcome::PodError(error) => {
                answer.outcome = "error";
                answer.node = Some(node.to_string());
                answer.explanation = Some(error.to_string());
                return Ok(answer);
            }
            Outcome::None | Outcome::BudgetSpent(_) | Outcome::Cancelled => {}
        }
    }
    Ok(answer)
}
