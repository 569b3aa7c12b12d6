//! The coverage of the random scenarios: how often each outcome occurs, and how often each rule decides. A
//! rule decides if the answer changes once the subject of the rule is removed from the scenario.

use std::collections::BTreeMap;

use anyhow::ensure;
use dragoman_allocator::Snapshot;
use serde_json::{Value, json};

use super::{Said, ours, results_of, same};

/// One in this many scenarios is examined for the rules that decide. Every rule costs one more answer.
const SAMPLE: usize = 8;
/// The number of examined scenarios from which on even rare rules must have decided.
const ENOUGH: usize = 1_000;

#[derive(Default)]
pub(super) struct Coverage {
    scenarios: usize,
    outcomes: BTreeMap<String, usize>,
    backtracked: usize,
    looked_at: usize,
    decisive: BTreeMap<&'static str, usize>,
}

/// Removes the subject of a rule from a scenario.
type Without = fn(&mut Value);

/// The rules, by their number in the specification of the allocator.
const RULES: [(&str, Without); 8] = [
    ("1.2 pools", without_disorder),
    ("1.5 devices in use", |scenario| {
        for claim in list(&mut scenario["resourceClaims"]) {
            claim["status"] = json!({});
        }
    }),
    ("1.6 admin access", |scenario| each_asked(scenario, |asked| remove(asked, "adminAccess"))),
    ("1.7 taints", |scenario| {
        scenario["deviceTaintRules"] = json!([]);
        each_device(scenario, |device| remove(device, "taints"));
    }),
    ("1.8 constraints", |scenario| {
        for claim in list(&mut scenario["resourceClaims"]) {
            remove(&mut claim["spec"]["devices"], "constraints");
        }
    }),
    ("1.9 counters", |scenario| each_device(scenario, |device| remove(device, "consumesCounters"))),
    ("1.10 compatibility groups", |scenario| {
        each_device(scenario, |device| {
            for consumption in list(&mut device["consumesCounters"]) {
                remove(consumption, "compatibilityGroups");
            }
        });
    }),
    ("1.11 consumable capacity", |scenario| {
        each_asked(scenario, |asked| remove(asked, "capacity"));
        each_device(scenario, |device| remove(device, "allowMultipleAllocations"));
    }),
];

/// Parts of the messages of errors that are found before the search (1.3).
const BEFORE_THE_SEARCH: [&str; 8] = [
    "is disabled",
    "CEL expression empty",
    "missing device class",
    "could not retrieve",
    "unsupported count mode",
    "empty constraint",
    "exceeds the claim limit",
    "has derived attributes",
];

impl Coverage {
    pub(super) fn count(
        &mut self,
        like: &Snapshot,
        scenario: &Value,
        ours: &Said,
        theirs: &Said,
    ) -> anyhow::Result<()> {
        self.scenarios += 1;
        let outcome = if theirs.node_errors.is_empty() || theirs.outcome != "none" {
            theirs.outcome.clone()
        } else {
            "node error".to_owned()
        };
        *self.outcomes.entry(outcome).or_default() += 1;
        self.backtracked += usize::from(ours.steps_back > 0);
        if self.scenarios.is_multiple_of(SAMPLE) {
            self.looked_at += 1;
            self.look(like, scenario, ours)?;
        }
        Ok(())
    }

    fn look(&mut self, like: &Snapshot, scenario: &Value, said: &Said) -> anyhow::Result<()> {
        for (rule, without) in RULES {
            let mut other = scenario.clone();
            without(&mut other);
            if other != *scenario {
                let decides = same(said, &ours(like, &other.to_string(), false)?).is_err();
                *self.decisive.entry(rule).or_default() += usize::from(decides);
            }
        }
        let early = BEFORE_THE_SEARCH.iter().any(|needle| said.explanation.contains(needle));
        *self.decisive.entry("1.3 before the search").or_default() += usize::from(early);
        *self.decisive.entry("1.4 search").or_default() += usize::from(said.steps_back > 0);
        let made = said.allocations.values().any(|allocation| {
            let several = results_of(allocation).count() > 1;
            allocation["devices"].get("config").is_some()
                || allocation["nodeSelector"]["nodeSelectorTerms"][0].get("matchExpressions").is_some()
                    && several
        });
        *self.decisive.entry("1.12 result").or_default() += usize::from(made);
        Ok(())
    }

    pub(super) fn print(&self) {
        for (outcome, count) in &self.outcomes {
            println!("        {outcome}: {:.1} %", percent(*count, self.scenarios));
        }
        let solved = self.outcomes.get("solution").copied().unwrap_or_default();
        println!("        solutions after going back: {:.1} %", percent(self.backtracked, solved));
        for (rule, count) in &self.decisive {
            println!("        {rule} decides: {:.2} %", percent(*count, self.looked_at));
        }
    }

    /// Checks that every outcome and every rule is frequent enough.
    ///
    /// # Errors
    /// An outcome or a rule is too rare, or too many scenarios have no answer in time.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let share = |outcome: &str| self.outcomes.get(outcome).copied().unwrap_or_default() * 100;
        let solved = share("solution");
        ensure!(solved >= self.scenarios * 25, "less than 25 % are solved");
        ensure!(share("none") >= self.scenarios * 25, "less than 25 % have no solution");
        ensure!(share("error") + share("node error") >= self.scenarios * 5, "less than 5 % are errors");
        ensure!(share("timeout") <= self.scenarios, "more than 1 % have no answer in time");
        ensure!(self.backtracked * 100 >= solved / 100 * 20, "less than 20 % of the solved go back");
        for (rule, count) in &self.decisive {
            // At least one in 400. A short run says little about rare rules.
            ensure!(
                count * 400 >= self.looked_at || self.looked_at < ENOUGH,
                "{rule} decides in {count} of {}",
                self.looked_at
            );
        }
        ensure!(self.decisive.len() == RULES.len() + 3, "a rule is never decisive");
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn percent(part: usize, whole: usize) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

fn list(value: &mut Value) -> impl Iterator<Item = &mut Value> {
    value.as_array_mut().into_iter().flatten()
}

fn remove(object: &mut Value, field: &str) {
    if let Some(object) = object.as_object_mut() {
        object.remove(field);
    }
}

fn each_device(scenario: &mut Value, change: impl Fn(&mut Value)) {
    for slice in list(&mut scenario["resourceSlices"]) {
        if slice["spec"].get("devices").is_some() {
            list(&mut slice["spec"]["devices"]).for_each(&change);
        }
    }
}

fn each_asked(scenario: &mut Value, change: impl Fn(&mut Value)) {
    for claim in list(&mut scenario["resourceClaims"]) {
        for request in list(&mut claim["spec"]["devices"]["requests"]) {
            if request.get("exactly").is_some() {
                change(&mut request["exactly"]);
            }
            if request.get("firstAvailable").is_some() {
                list(&mut request["firstAvailable"]).for_each(&change);
            }
        }
    }
}

/// Gives every pool one generation and all of its slices.
fn without_disorder(scenario: &mut Value) {
    let Some(slices) = scenario["resourceSlices"].as_array_mut() else { return };
    slices.retain(|slice| !slice["metadata"]["name"].as_str().is_some_and(|name| name.ends_with("-old")));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let key = |slice: &Value| format!("{}/{}", slice["spec"]["driver"], slice["spec"]["pool"]["name"]);
    for slice in slices.iter() {
        *counts.entry(key(slice)).or_default() += 1;
    }
    for slice in slices {
        let count = counts.get(&key(slice)).copied().unwrap_or_default();
        slice["spec"]["pool"]["generation"] = json!(1);
        slice["spec"]["pool"]["resourceSliceCount"] = json!(count);
    }
}
