//! `dragoman allocate`: which devices claims would get.

mod fields;
mod scenarios;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use dragoman_allocator::scenario::Scenario;
use dragoman_allocator::{
    Alignment, Explanation, Options, Outcome, Overlay, Policy, Snapshot, Solution, Standing, allocate,
};
use dragoman_objects::{Allocation, Name};
use dragoman_reconcilers::allocation::{DeviceAlignment, DeviceChoice};
use serde::Serialize;

use self::scenarios::Placed;

/// Flags of `dragoman allocate`.
#[derive(Debug, Args)]
pub(crate) struct AllocateFlags {
    /// Files with scenarios (objects with the lists `nodes`, `resourceSlices`, `deviceClasses`,
    /// `resourceClaims`, `deviceTaintRules`, `allocate` and `candidates`), or with objects as
    /// `kubectl get -o yaml` prints them; - is standard input.
    #[arg(short = 'f', long = "filename", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// With objects of kubectl: the claims to allocate together, as namespace/name.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    claim: Vec<String>,
    /// With objects of kubectl: the nodes to try, in order [default: all].
    #[arg(long)]
    node: Vec<String>,
    /// Look at all candidates and take the best, instead of the first with a solution.
    #[arg(long, value_enum)]
    rank: Option<By>,
    /// Which device a claim gets where several free ones of a node satisfy its request.
    #[arg(long, value_enum, default_value_t = DeviceChoice::FirstFit)]
    choose: DeviceChoice,
    /// Whether the claims get devices on one PCIe root or else on one NUMA node, where slices say these.
    #[arg(long, value_enum, default_value_t = DeviceAlignment::None)]
    align: DeviceAlignment,
    /// The attribute that all devices have to share, over all claims, such as resource.kubernetes.io/pcieRoot.
    #[arg(long, value_name = "ATTRIBUTE")]
    aligned_by: Option<String>,
    /// The work that the search may do on a node, in examined devices (64 units of the cost of CEL are one).
    /// Some requests take longer than anyone waits; the answer is then `unknown`.
    #[arg(long, default_value_t = 10_000_000)]
    budget: u64,
    /// Format of the output.
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For programs: one line for each scenario.
    Json,
}

/// Order of nodes of equal preference.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum By {
    First,
    Pack,
    Spread,
}

#[derive(Debug, Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Answer {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<Name>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    allocations: BTreeMap<String, Allocation>,
    /// By driver/pool/device: why best fit has chosen it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    chosen_because: BTreeMap<String, String>,
    /// The attribute by which the devices are aligned, and its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    aligned_by: Option<(&'static str, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Why>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    node_errors: BTreeMap<Name, String>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Why {
    /// An object has to be mended.
    Error(String),
    /// Every node, and why not there.
    Nodes(BTreeMap<Name, Explanation>),
}

/// Prints for each scenario what the allocator does with it: a table, or a line of JSON.
///
/// # Errors
/// A file cannot be read, or does not hold together.
pub(crate) fn run(flags: &AllocateFlags) -> anyhow::Result<ExitCode> {
    let mut scenarios = scenarios::of(flags)?;
    ensure!(!scenarios.is_empty(), "there is nothing to allocate in these files");
    let mut all_solved = true;
    for Placed { place, scenario, notes } in &mut scenarios {
        if let Some(attribute) = &flags.aligned_by {
            scenario.aligned_by = Some(attribute.as_str().into());
        }
        let (choice, align) = (flags.choose.into(), flags.align.into());
        let options = Options { budget: Some(flags.budget), choice, align, ..Options::default() };
        let answer = answered(scenario, flags.rank, options).with_context(|| place.clone())?;
        all_solved &= answer.outcome == "solution";
        let text = match flags.output {
            Output::Json => serde_json::to_string(&answer)? + "\n",
            Output::Table => {
                let claims: Vec<String> =
                    scenario.allocate.iter().map(|name| format!("claim {name}")).collect();
                let notes: Vec<String> = notes.iter().map(|note| format!("note: {note}\n")).collect();
                table::render(&answer, &claims) + &notes.concat()
            }
        };
        crate::print(&text)?;
    }
    Ok(if all_solved { ExitCode::SUCCESS } else { ExitCode::from(crate::NO) })
}

/// # Errors
/// A claim to allocate has its devices already.
fn ensure_unallocated(scenario: &Scenario) -> anyhow::Result<()> {
    if let Some((name, allocation)) = scenario.allocated() {
        let results = allocation.devices.results.iter();
        let devices: Vec<String> =
            results.map(|of| format!("{}/{}/{}", of.driver, of.pool, of.device)).collect();
        let devices = if devices.is_empty() { "no device".to_owned() } else { devices.join(", ") };
        bail!("claim {name} is allocated already: it has {devices}");
    }
    Ok(())
}

fn answered(scenario: &Scenario, by: Option<By>, options: Options<'_>) -> anyhow::Result<Answer> {
    let snapshot = scenario.snapshot(&Snapshot::default())?;
    let claims = scenario.claims(&snapshot)?;
    let overlay = Overlay::default();
    let mut answer = Answer { outcome: "none", ..Answer::default() };
    ensure_unallocated(scenario)?;
    if scenario.candidates.is_empty() {
        return Ok(Answer { outcome: "noCandidates", ..answer });
    }
    let (mut solutions, mut why): (Vec<Solution>, _) = (Vec::new(), BTreeMap::new());
    for node in &scenario.candidates {
        match allocate(&snapshot, &overlay, node, &claims, options) {
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
            Outcome::Unsatisfiable(unsatisfiable) => {
                why.insert(node.clone(), unsatisfiable.explain());
            }
            Outcome::BudgetSpent(_) => {
                answer.outcome = "unknown";
                let budget = options.budget.unwrap_or_default();
                let why =
                    format!("no answer after work worth {budget} examined devices; --budget allows more");
                answer.node_errors.insert(node.clone(), why);
            }
            // It does not occur without an interrupt.
            Outcome::Cancelled => {}
        }
    }
    let Some(solution) = best(solutions, by) else {
        answer.explanation = Some(Why::Nodes(why));
        return Ok(answer);
    };
    answer.outcome = "solution";
    answer.node = Some(solution.node().clone());
    let because = solution.losses().into_iter().map(|(device, loss)| (device.join("/"), loss.to_string()));
    answer.chosen_because = because.collect();
    answer.aligned_by = solution.place().filter(|_| options.align == Alignment::Preferred);
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

/// The solution on the best node. There is no ledger here.
fn best(solutions: Vec<Solution>, by: Option<By>) -> Option<Solution> {
    let policy = match by {
        None | Some(By::First) => Policy::First,
        Some(By::Pack) => Policy::Pack,
        Some(By::Spread) => Policy::Spread,
    };
    // Equals: the first of the input, or by name.
    let name = |solution: &Solution| (policy != Policy::First).then(|| solution.node().clone());
    solutions.into_iter().min_by_key(|solution| {
        let (preference, free) = (solution.preference(), solution.free_devices());
        (policy.rank(&Standing { preference, free, ..Standing::default() }), name(solution))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Eight of sixteen devices that draw different amounts from a counter, which has a little less
    /// than the eight smallest amounts. Nothing but trying finds that out.
    #[test]
    fn a_search_without_an_end_says_so() {
        let draws = |value: usize| json!({"c": {"value": value.to_string()}});
        let device = |number: usize| {
            json!({"name": format!("d{number}"),
                "consumesCounters": [{"counterSet": "set", "counters": draws(1000 + number)}]})
        };
        let slice = |name: &str, more: Value| {
            let mut spec = json!({"driver": "gpu.example.com", "nodeName": "n",
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 2}});
            spec.as_object_mut()
                .into_iter()
                .for_each(|spec| spec.extend(more.as_object().cloned().unwrap_or_default()));
            json!({"metadata": {"name": name}, "spec": spec})
        };
        let scenario = json!({
            "nodes": [{"metadata": {"name": "n"}}], "deviceClasses": [{"metadata": {"name": "gpu"}}],
            "resourceSlices": [
                slice("devices", json!({"devices": (0..16).map(device).collect::<Vec<Value>>()})),
                slice("counters", json!({"sharedCounters": [{"name": "set", "counters": draws(8 * 1000 + 27)}]}))],
            "resourceClaims": [{"metadata": {"namespace": "ns", "name": "c", "uid": "u"}, "spec": {"devices":
                {"requests": [{"name": "r", "exactly":
                    {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 8}}]}}}],
            "allocate": ["ns/c"], "candidates": ["n"], "featureGates": {"DRAPartitionableDevices": true}
        });
        let scenario: Scenario = serde_json::from_value(scenario).expect("a scenario");
        let answer = answered(&scenario, None, Options { budget: Some(1_000), ..Options::default() })
            .expect("an answer");
        assert_eq!(answer.outcome, "unknown");
        let why = answer.node_errors.values().next().expect("a reason");
        assert_eq!(&**why, "no answer after work worth 1000 examined devices; --budget allows more");
    }
}
