//! Scenarios as proptest draws them and makes them smaller.

use std::cell::Cell;
use std::fmt;

use fastrand::Rng;
use proptest::arbitrary::any;
use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use serde_json::Value;

use crate::{crowded, scenarios};

/// The seed of every run, unless `PROPTEST_RNG_SEED` is set.
const SEED: u64 = 1;
/// The most scenarios that are tried to make a failure smaller.
const MOST_SMALLER: u32 = 1_500;

/// A scenario. It is printed in its own format.
#[derive(Clone)]
pub(crate) struct Drawn(pub(crate) Value);

impl fmt::Debug for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A source of scenarios.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scenarios {
    /// With every feature.
    Any,
    /// With too little of one thing.
    Crowded,
}

impl Strategy for Scenarios {
    type Tree = Smaller;
    type Value = Drawn;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let seed = any::<u64>().new_tree(runner)?.current();
        let mut rng = Rng::with_seed(seed);
        let scenario = match self {
            Self::Any => scenarios::scenario(&mut rng, true),
            Self::Crowded => crowded::scenario(&mut rng),
        };
        Ok(Smaller { failing: scenario, tried: None, place: 0 })
    }
}

/// Takes away one part of a failing scenario after the other, the large ones first.
pub(crate) struct Smaller {
    failing: Value,
    /// `failing` without the part at `place`.
    tried: Option<Value>,
    place: usize,
}

impl Smaller {
    fn try_next(&mut self) -> bool {
        let mut smaller = self.failing.clone();
        let is_smaller = take_away(&mut smaller, &mut self.place.clone());
        self.tried = is_smaller.then_some(smaller);
        is_smaller
    }
}

impl ValueTree for Smaller {
    type Value = Drawn;

    fn current(&self) -> Drawn {
        Drawn(self.tried.as_ref().unwrap_or(&self.failing).clone())
    }

    fn simplify(&mut self) -> bool {
        // It still fails without the part. The next part is at the same place now.
        if let Some(smaller) = self.tried.take() {
            self.failing = smaller;
        }
        self.try_next()
    }

    fn complicate(&mut self) -> bool {
        self.place += 1;
        self.try_next()
    }
}

/// Fields without which an object is not one that the API server accepts.
const NEEDED: [&str; 14] = [
    "allocationMode",
    "candidates",
    "count",
    "device",
    "deviceClassName",
    "devices",
    "driver",
    "exactly",
    "featureGates",
    "key",
    "metadata",
    "name",
    "pool",
    "request",
];

/// Removes the part with this number, counted in depth-first order. Returns whether there is one.
fn take_away(value: &mut Value, number: &mut usize) -> bool {
    match value {
        Value::Array(values) => {
            for place in 0..values.len() {
                if *number == 0 {
                    values.remove(place);
                    return true;
                }
                *number -= 1;
                if take_away(&mut values[place], number) {
                    return true;
                }
            }
        }
        Value::Object(fields) => {
            let names: Vec<String> = fields.keys().cloned().collect();
            for name in names {
                if !NEEDED.contains(&&*name) {
                    if *number == 0 {
                        fields.remove(&name);
                        return true;
                    }
                    *number -= 1;
                }
                if take_away(&mut fields[&name], number) {
                    return true;
                }
            }
        }
        _ => {}
    }
    false
}

/// The settings of a property that is tried on `cases` inputs.
pub(crate) fn config(cases: u32) -> Config {
    let from_environment = Config::default();
    let is_set = |name: &str| std::env::var_os(name).is_some();
    // An unoptimised program tries a part; the long lanes try all of them, optimised.
    let spared = if cfg!(debug_assertions) { 4 } else { 1 };
    let cases = if is_set("PROPTEST_CASES") { from_environment.cases } else { cases / spared };
    let rng_seed = match from_environment.rng_seed {
        RngSeed::Random => RngSeed::Fixed(SEED),
        seed @ RngSeed::Fixed(_) => seed,
    };
    Config { cases, rng_seed, failure_persistence: None, max_shrink_iters: MOST_SMALLER, ..from_environment }
}

/// Requires that a property holds for scenarios: for those that are drawn, or for the one of `SCENARIO`.
pub(crate) fn holds(of: Scenarios, cases: u32, property: impl Fn(&Value) -> Result<(), TestCaseError>) {
    if let Some(path) = std::env::var_os("SCENARIO") {
        let text = std::fs::read_to_string(path).unwrap();
        return property(&serde_json::from_str(&text).unwrap()).unwrap();
    }
    let (passed, failed) = (Cell::new(0), Cell::new(false));
    let run = TestRunner::new(config(cases)).run(&of, |Drawn(scenario)| {
        let said = property(&scenario);
        failed.set(failed.get() || said.is_err());
        passed.set(passed.get() + u32::from(!failed.get()));
        said
    });
    if let Err(why) = run {
        panic!("after {} scenarios: {why}", passed.get());
    }
}
