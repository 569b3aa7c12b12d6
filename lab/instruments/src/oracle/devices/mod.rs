//! Compares the allocator with the published one of Kubernetes, on random scenarios.

mod checked;
mod coverage;
mod fitting;
// The property tests of the allocator draw from the same scenarios.
#[path = "../../../../../core/allocator/tests/scenarios/mod.rs"]
mod scenario;
mod smaller;

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{Options, Outcome, Overlay, Snapshot, allocate};
use fastrand::Rng;
use serde::Deserialize;
use serde_json::{Value, json};

use self::checked::Checked;
use self::coverage::Coverage;
use self::fitting::Fitting;
use super::{Declared, Judge};

/// The allocations of claims, by `namespace/name`.
type Allocations = BTreeMap<String, Value>;

/// The answer of either side.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Said {
    outcome: String,
    node: String,
    allocations: Allocations,
    explanation: String,
    node_errors: BTreeMap<String, String>,
    /// Number of times that Dragoman's search went back on the way to the solution.
    #[serde(skip)]
    steps_back: u64,
}

/// Compares the answers to `count` scenarios.
pub(super) fn compare(judge: &Judge, count: usize, seed: u64) -> anyhow::Result<(usize, Declared)> {
    let mut rng = Rng::with_seed(seed);
    let like = Snapshot::default();
    let (mut differences, mut judged, mut number) = (Declared::new(), Judged::default(), 0);
    for _ in (0..count).step_by(BATCH) {
        let scenarios: Vec<Value> = (0..BATCH).map(|_| scenario::scenario(&mut rng, false)).collect();
        let lines: Vec<String> = scenarios.iter().map(Value::to_string).collect();
        // Both sides work at once, on a core each.
        let (ours, theirs) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| judge.answer(&lines));
            let ours: anyhow::Result<Vec<Said>> = lines.iter().map(|line| ours(&like, line, false)).collect();
            (ours, theirs.join())
        });
        let Ok(theirs) = theirs else { bail!("the judge's reader failed") };
        for ((scenario, ours), theirs) in scenarios.iter().zip(ours?).zip(theirs?) {
            number += 1;
            let class = judged.judge(&like, scenario, &ours, &theirs).with_context(|| {
                format!("scenario {number} of seed {seed}: {scenario}\n  ours   {ours:?}\n  theirs {theirs}")
            })?;
            if let Some(class) = class {
                *differences.entry(class).or_default() += 1;
            }
        }
        judged.checked.decide(judge, &like)?;
    }
    judged.print()?;
    // Scenarios without an answer are counted among the outcomes.
    let different: usize =
        differences.iter().filter(|(class, _)| **class != NO_ANSWER).map(|(_, count)| count).sum();
    for (class, count) in &differences {
        println!("        {count} × {class}");
    }
    // A short run says little about rare differences.
    ensure!(
        different * 100 <= count.max(10_000),
        "{different} differences that are meant are more than 1 % of {count}"
    );
    Ok((count, differences))
}

/// The checks of scenarios and their answers.
#[derive(Default)]
struct Judged {
    checked: Checked,
    fitting: Fitting,
    coverage: Coverage,
}

impl Judged {
    /// Judges the answers to a scenario. Returns the class of an intended difference.
    fn judge(
        &mut self,
        like: &Snapshot,
        scenario: &Value,
        ours: &Said,
        theirs: &str,
    ) -> anyhow::Result<Option<&'static str>> {
        let mut theirs: Said = serde_json::from_str(theirs).context("answer")?;
        let verbatim = theirs.allocations.clone();
        normalize(&mut theirs);
        let class = declared(scenario, ours, &theirs)?;
        if class.is_none() {
            same(ours, &theirs)?;
        }
        self.checked.check(
            scenario,
            ours,
            class.is_none().then_some(&verbatim),
            theirs.outcome == "timeout",
        )?;
        self.fitting.check(like, scenario)?;
        self.coverage.count(like, scenario, ours, &theirs)?;
        Ok(class)
    }

    /// Prints the totals of all checks.
    ///
    /// # Errors
    /// The coverage of the scenarios is too low.
    fn print(&self) -> anyhow::Result<()> {
        self.checked.print();
        self.fitting.print();
        self.coverage.print();
        self.coverage.check()
    }
}

const NO_ANSWER: &str = "no answer from the judge in time";
/// The number of scenarios that the judge is asked about at once.
const BATCH: usize = 1000;
/// The most devices that the search looks at on one node.
const BUDGET: u64 = 5_000_000;

fn ours(like: &Snapshot, scenario: &str, every_branch: bool) -> anyhow::Result<Said> {
    let scenario: Scenario = serde_json::from_str(scenario)?;
    let snapshot = scenario.snapshot(like)?;
    let claims = scenario.claims(&snapshot)?;
    let overlay = Overlay::default();
    let mut said = Said { outcome: "none".to_owned(), ..Said::default() };
    for node in &scenario.candidates {
        let options = Options { budget: Some(BUDGET), every_branch, ..Options::default() };
        match allocate(&snapshot, &overlay, node, &claims, options) {
            Outcome::Solution(solution) => {
                "solution".clone_into(&mut said.outcome);
                said.steps_back = solution.steps_back();
                said.node = node.to_string();
                let mut share = 0;
                let mut ids = || {
                    share += 1;
                    format!("share-{share}").into()
                };
                for (uid, allocation) in solution.allocations(&mut ids)? {
                    let name = scenario.claim_name(&uid).context("name")?;
                    said.allocations.insert(name, serde_json::to_value(allocation)?);
                }
                normalize(&mut said);
                return Ok(said);
            }
            Outcome::Unsatisfiable(_) => {}
            Outcome::NodeError(error) => {
                said.node_errors.insert(node.to_string(), error.to_string());
            }
            Outcome::PodError(error) => {
                "error".clone_into(&mut said.outcome);
                said.node = node.to_string();
                said.explanation = error.to_string();
                return Ok(said);
            }
            Outcome::BudgetSpent(_) => {
                "timeout".clone_into(&mut said.outcome);
                return Ok(said);
            }
            Outcome::Cancelled => bail!("nobody cancelled"),
        }
    }
    Ok(said)
}

/// Numbers the ids of shares by their order, spells quantities as numbers, and sorts requirements.
fn normalize(said: &mut Said) {
    let mut shares = 0;
    for allocation in said.allocations.values_mut() {
        let results = allocation["devices"]["results"].as_array_mut();
        for result in results.into_iter().flatten() {
            if let Some(id) = result.get_mut("shareID") {
                shares += 1;
                *id = json!(format!("share-{shares}"));
            }
            let consumed = result.get_mut("consumedCapacity").and_then(Value::as_object_mut);
            for amount in consumed.into_iter().flat_map(|consumed| consumed.values_mut()) {
                let text = amount.as_str().unwrap_or_default();
                if let Ok(quantity) = text.parse::<dragoman_quantity::Quantity>() {
                    *amount = json!(quantity.amount.to_string());
                }
            }
        }
        let selector = allocation.get_mut("nodeSelector");
        let terms = selector.and_then(|selector| selector.get_mut("nodeSelectorTerms"));
        let terms = terms.and_then(Value::as_array_mut);
        for term in terms.into_iter().flatten() {
            for field in ["matchExpressions", "matchFields"] {
                let requirements = term.get_mut(field).and_then(Value::as_array_mut);
                for requirement in requirements.into_iter().flatten() {
                    if let Some(values) = requirement.get_mut("values").and_then(Value::as_array_mut) {
                        values.sort_by_key(Value::to_string);
                    }
                }
                if let Some(requirements) = term.get_mut(field).and_then(Value::as_array_mut) {
                    requirements.sort_by_key(Value::to_string);
                }
            }
        }
    }
}

/// Returns the class of an intended difference.
fn declared(scenario: &Value, ours: &Said, theirs: &Said) -> anyhow::Result<Option<&'static str>> {
    let updated = ["is currently being updated", "is currently invalid"];
    let all = updated.iter().any(|needle| theirs.explanation.contains(needle));
    if theirs.outcome == "error" && all && ours.node_errors.contains_key(&theirs.node) {
        let class = "a pool in disorder and a request for all devices: this node only, not the whole Pod";
        return Ok(Some(class));
    }
    // Two timeouts are no agreement.
    if theirs.outcome == "timeout" {
        return Ok(Some(NO_ANSWER));
    }
    if same(ours, theirs).is_ok() {
        return Ok(None);
    }
    // Upstream finds an error in a branch without a solution, which Dragoman prunes. Without pruning,
    // Dragoman must find the same error.
    if theirs.outcome == "error"
        && same(&self::ours(&Snapshot::default(), &scenario.to_string(), true)?, theirs).is_ok()
    {
        return Ok(Some("an error in a branch that is proved to hold no solution"));
    }
    if scenario["featureGates"]["DRAConsumableCapacity"] == json!(true) && has_stale_share(scenario) {
        return Ok(Some("a device that is dedicated now and still shared is given to nobody"));
    }
    Ok(None)
}

/// Whether a claim has a share of a device that does not allow multiple allocations any more.
fn has_stale_share(scenario: &Value) -> bool {
    let dedicated = |result: &Value| {
        let slices = scenario["resourceSlices"].as_array().into_iter().flatten();
        let same = slices.filter(|slice| {
            slice["spec"]["driver"] == result["driver"] && slice["spec"]["pool"]["name"] == result["pool"]
        });
        let mut devices = same.flat_map(|slice| slice["spec"]["devices"].as_array().into_iter().flatten());
        devices.any(|device| {
            device["name"] == result["device"] && device["allowMultipleAllocations"] != json!(true)
        })
    };
    let claims = scenario["resourceClaims"].as_array().into_iter().flatten();
    let mut held = claims.flat_map(|claim| results_of(&claim["status"]["allocation"]));
    held.any(|result| result.get("shareID").is_some() && dedicated(result))
}

fn results_of(allocation: &Value) -> impl Iterator<Item = &Value> {
    allocation["devices"]["results"].as_array().into_iter().flatten()
}

fn same(ours: &Said, theirs: &Said) -> anyhow::Result<()> {
    ensure!(ours.outcome == theirs.outcome, "outcome");
    ensure!(ours.node == theirs.node, "node");
    let nodes = |said: &Said| said.node_errors.keys().cloned().collect::<Vec<_>>();
    ensure!(nodes(ours) == nodes(theirs), "nodes with errors");
    for (name, allocation) in &ours.allocations {
        let other = theirs.allocations.get(name).context("claim")?;
        ensure!(allocation == other, "{name}:\n    {allocation}\n    {other}");
    }
    Ok(())
}
