//! Reads scenarios (a stream of JSON objects) and prints the result of the allocator for each, as
//! JSON: `cargo run -p dragoman-allocator --example allocate -- scenario.json`.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::Context as _;
use clap::Parser;
use dragoman_allocator::input::{Allocation, Name};
use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{
    Explanation, Options, Outcome, Overlay, Policy, Ranked, Snapshot, Solution, allocate, rank,
};
use serde::Serialize;

/// Prints the result of the allocator for scenarios.
#[derive(Parser)]
struct Arguments {
    /// The file with the scenarios; `-` is standard input.
    #[arg(default_value = "-")]
    file: String,
    /// Tries all candidates and takes the best one, instead of the first with a solution.
    #[arg(long, value_enum)]
    rank: Option<By>,
}

/// The criterion after preference.
#[derive(Clone, Copy, clap::ValueEnum)]
enum By {
    First,
    Pack,
    Spread,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Answer {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<Name>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    allocations: BTreeMap<String, Allocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Why>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    node_errors: BTreeMap<Name, String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Why {
    /// The error of an object that has to be corrected.
    Error(String),
    /// The explanation of every node.
    Nodes(BTreeMap<Name, Explanation>),
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut text = String::new();
    if arguments.file == "-" {
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
    } else {
        text = std::fs::read_to_string(&arguments.file).with_context(|| arguments.file.clone())?;
    }
    for scenario in serde_json::Deserializer::from_str(&text).into_iter::<Scenario>() {
        let scenario = scenario.with_context(|| arguments.file.clone())?;
        let answer = answered(&scenario, arguments.rank).with_context(|| arguments.file.clone())?;
        #[expect(clippy::print_stdout, reason = "the answer")]
        {
            println!("{}", serde_json::to_string(&answer)?);
        }
    }
    Ok(())
}

fn answered(scenario: &Scenario, by: Option<By>) -> anyhow::Result<Answer> {
    let snapshot = scenario.snapshot(&Snapshot::default())?;
    let claims = scenario.claims(&snapshot)?;
    let overlay = Overlay::default();
    let mut answer = Answer { outcome: "none", ..Answer::default() };
    let (mut solutions, mut why): (Vec<Solution>, _) = (Vec::new(), BTreeMap::new());
    for node in &scenario.candidates {
        match allocate(&snapshot, &overlay, node, &claims, Options::default()) {
            Outcome::Solution(solution) => {
                solutions.push(solution);
                if by.is_none() {
                    break;
                }
            }
            Outcome::NodeError(error) => {
                answer.node_errors.insert(node.clone(), error.to_string());
            }
            Outcome::PodError(error) => {
                answer.outcome = "error";
                answer.node = Some(node.clone());
                answer.explanation = Some(Why::Error(error.to_string()));
                return Ok(answer);
            }
            Outcome::None(unsolved) => {
                why.insert(node.clone(), unsolved.explain(None));
            }
            // These do not occur without a budget and an interrupt.
            Outcome::BudgetSpent(_) | Outcome::Cancelled => {}
        }
    }
    let Some(solution) = best(solutions, by) else {
        answer.explanation = Some(Why::Nodes(why));
        return Ok(answer);
    };
    answer.outcome = "solution";
    answer.node = Some(solution.node().clone());
    let mut shares = 0;
    let mut ids = || {
        shares += 1;
        format!("00000000-0000-0000-0000-{shares:012}").into()
    };
    for (uid, allocation) in solution.allocations(&mut ids)? {
        answer.allocations.insert(scenario.claim_name(&uid).unwrap_or_default(), allocation);
    }
    Ok(answer)
}

/// Returns the solution on the best node. There is no ledger here.
fn best(solutions: Vec<Solution>, by: Option<By>) -> Option<Solution> {
    let policy = match by {
        None | Some(By::First) => Policy::First,
        Some(By::Pack) => Policy::Pack,
        Some(By::Spread) => Policy::Spread,
    };
    let mut ranked: Vec<Ranked> = solutions
        .iter()
        .map(|solution| Ranked {
            node: solution.node().clone(),
            preference: solution.preference(),
            devices: solution.devices(),
            ledger: Vec::new(),
        })
        .collect();
    rank(&mut ranked, policy);
    let best = ranked.first()?.node.clone();
    solutions.into_iter().find(|solution| *solution.node() == best)
}
