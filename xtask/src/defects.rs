//! Planted defects: each test must fail when its defect is present.
//!
//! Each `e2e/defects/*/*.patch` plants one defect into the production code and names the tests that must
//! then fail:
//!
//! ```text
//! Row: D1                      the row of docs/upstream-defects.md, or the rule that it breaks
//! Plants: the wrong behaviour
//! Red: reconcilers consumers::a_done_pod_gets_nothing    a unit test: its crate and path
//! Red: accounting/naive what_is_charged_adds_up          one of tests/naive.rs
//! Red: scenario 1.37/completed_pods_cost_nothing         a scenario: its lane and name
//! Red: oracle devices                                    a published library as judge
//! Red: soak doubled                                      runs with faults: the broken invariant
//! Red: gated late                                        the same of gated Pods
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use crate::planted::{Planted, REASON, files};
use crate::{lanes, root, run};

struct Defect {
    name: String,
    patch: PathBuf,
    /// The crate, or `scenario`, `oracle`, `soak` or `gated`, and the test that must fail.
    red: Vec<(String, String)>,
}

fn all(filter: &str) -> anyhow::Result<Vec<Defect>> {
    let mut defects = Vec::new();
    let directory = root()?.join("e2e/defects");
    for patch in files(&directory) {
        let name = patch.strip_prefix(&directory).unwrap_or(&patch).with_extension("").display().to_string();
        if !name.contains(filter) {
            continue;
        }
        let text = std::fs::read_to_string(&patch).with_context(|| name.clone())?;
        let header = text.lines().take_while(|line| !line.starts_with("diff "));
        let red = header.filter_map(|line| line.strip_prefix("Red: ")?.split_once(' '));
        let red: Vec<_> = red.map(|(part, test)| (part.to_owned(), test.trim().to_owned())).collect();
        ensure!(!red.is_empty(), "{name} names no test that must fail");
        defects.push(Defect { name, patch, red });
    }
    ensure!(!defects.is_empty(), "no defect matches");
    defects.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(defects)
}

/// The command that runs a test, of those in CONTRIBUTING.md.
fn level(part: &str, test: &str) -> &'static str {
    match (part, test.split('/').next().unwrap_or_default()) {
        ("scenario", "1.37" | "1.37-groups") => "test: scenarios on simcluster",
        ("scenario", "alone" | "crash" | "kubectl") => "test --real",
        ("scenario" | "oracle", _) => "test --long",
        ("soak" | "gated", _) => "test: runs with faults (and test --long, with more of them)",
        _ => "test: unit tests",
    }
}

/// Prints how many defects each level finds, and how many no other level does.
///
/// # Errors
/// No defect matches.
pub(crate) fn levels(filter: &str) -> anyhow::Result<()> {
    let mut found: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for defect in all(filter)? {
        let levels: BTreeSet<&str> = defect.red.iter().map(|(part, test)| level(part, test)).collect();
        for name in &levels {
            let (all, alone) = found.entry(name).or_default();
            *all += 1;
            *alone += usize::from(levels.len() == 1);
        }
    }
    println!("found  by no other  level");
    for (name, (all, alone)) in &found {
        println!("{all:>5}  {alone:>11}  {name}");
    }
    Ok(())
}

/// Checks that every patch still applies.
///
/// # Errors
/// A patch does not apply, or names no test.
pub(crate) fn check() -> anyhow::Result<()> {
    for defect in all("")? {
        let patch = defect.patch.display().to_string();
        run("git", &["apply", "--check", &patch])
            .with_context(|| format!("{} is out of date", defect.name))?;
    }
    Ok(())
}

/// Plants every defect whose name contains `filter`, one after the other, in a copy of the repository, and
/// requires that the tests that it names fail.
///
/// # Errors
/// No defect matches, or a named test does not fail; the error lists all of these tests.
pub(crate) fn find(filter: &str) -> anyhow::Result<()> {
    run("cargo", &["build", "--package", "dragoman-e2e"])?;
    let mut missed = Vec::new();
    for defect in all(filter)? {
        let tree = Planted::fresh()?;
        tree.patch(&defect.patch, "-p1")?;
        for (part, test) in &defect.red {
            let red = match part.as_str() {
                "scenario" => scenario_fails(&tree, test),
                "oracle" => judge_disagrees(&tree, test),
                "soak" => soak_fails(&tree, &[], test),
                "gated" => soak_fails(&tree, &["--gated"], test),
                _ => unit_fails(&tree, part, test),
            };
            let red = red.unwrap_or_else(|why| {
                println!("{why:#}");
                false
            });
            println!("{} {}: {test}", if red { "found  " } else { "MISSED " }, defect.name);
            if !red {
                missed.push(format!("{}: {test}", defect.name));
            }
        }
    }
    ensure!(missed.is_empty(), "not found: {}", missed.join(", "));
    Ok(())
}

fn unit_fails(tree: &Planted, part: &str, test: &str) -> anyhow::Result<bool> {
    let (package, target) = match part.split_once('/') {
        Some((package, test)) => (format!("dragoman-{package}"), vec!["--test", test]),
        // The operator is a binary only.
        None if ["operator", "cli"].contains(&part) => (format!("dragoman-{part}"), vec!["--bins"]),
        None => (format!("dragoman-{part}"), vec!["--lib"]),
    };
    let cargo = Path::new("cargo");
    let (built, log) =
        tree.said(cargo, &[&["test", "--no-run", "--package", &package], &target[..]].concat())?;
    if !built {
        bail!("it does not compile:\n{log}");
    }
    let (green, log) =
        tree.said(cargo, &[&["test", "--package", &package], &target[..], &[test]].concat())?;
    let failed =
        log.lines().any(|line| line.starts_with("test ") && line.ends_with(&format!("{test} ... FAILED")));
    Ok(!green && failed)
}

fn scenario_fails(tree: &Planted, test: &str) -> anyhow::Result<bool> {
    let (built, log) = tree.said(Path::new("cargo"), &["build", "--package", "dragoman-operator"])?;
    if !built {
        bail!("it does not compile:\n{log}");
    }
    let target = root()?.join("target");
    let (binary, out) = (target.join("defects/build/debug/dragoman"), target.join("defects/e2e"));
    let arguments = [
        "--binary",
        &binary.display().to_string(),
        "--output",
        &out.display().to_string(),
        // A defect may be in a manifest.
        "--repository",
        &tree.path().display().to_string(),
        "--patience",
        lanes::IMPATIENT,
        "scenarios",
        test,
    ];
    let (green, log) = tree.said(&target.join("debug/dragoman-e2e"), &arguments)?;
    let failed = log.lines().find(|line| line.starts_with("FAILED") && line.contains(test));
    if let Some(line) = failed {
        println!("        {}", line.chars().take(200).collect::<String>());
    }
    Ok(!green && failed.is_some())
}

/// Runs seeds until an invariant is broken. Returns whether it is `invariant`.
fn soak_fails(tree: &Planted, which: &[&str], invariant: &str) -> anyhow::Result<bool> {
    let why = tree.soak_fails(which)?;
    if let Some(line) = &why {
        println!("        {}", line.chars().take(200).collect::<String>());
    }
    Ok(why.is_some_and(|line| line.contains(&format!(": {invariant}:"))))
}

/// Returns whether both sides disagree within the oracle's default number of questions.
fn judge_disagrees(tree: &Planted, test: &str) -> anyhow::Result<bool> {
    let (green, log) = tree.lab_says("dev", &["oracle", test, "--seed", "1"])?;
    let failed = log.lines().find_map(|line| Some(line.strip_prefix(REASON)?.split_once(" of seed ")?.0));
    match failed {
        Some(number) => println!("        {number}"),
        None => println!("{}", log.lines().last().unwrap_or_default()),
    }
    Ok(!green && failed.is_some())
}
