//! Planted defects: does every test bite?
//!
//! `e2e/defects/*/*.patch` each plant one defect into the production code and name the
//! tests that must then fail:
//!
//! ```text
//! Row: D1                      the row of docs/upstream-defects.md, or the rule that it breaks
//! Plants: what is wrong now
//! Red: reconcilers holders::a_done_pod_gets_nothing      a unit test: its crate and path
//! Red: accounting/naive what_is_charged_adds_up          one of tests/naive.rs
//! Red: scenario 1.36/completed_pods_cost_nothing         a scenario: its lane and name
//! Red: oracle devices                                    a published library as judge
//! Red: soak doubled                                      runs with faults: the broken invariant
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::{output, root, run};

struct Defect {
    name: String,
    patch: PathBuf,
    /// Crate (or `scenario` or `oracle`) and test.
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

/// Checks that every patch still applies.
///
/// # Errors
/// Names one that does not.
pub(crate) fn check() -> anyhow::Result<()> {
    for defect in all("")? {
        let patch = defect.patch.display().to_string();
        run("git", &["apply", "--check", &patch])
            .with_context(|| format!("{} is out of date", defect.name))?;
    }
    Ok(())
}

/// Plants every defect whose name contains `filter`, one after the other, in a copy
/// of the repository, and wants the tests it names to fail.
///
/// # Errors
/// Names the tests that do not.
pub(crate) fn find(filter: &str) -> anyhow::Result<()> {
    run("cargo", &["build", "--package", "dragoman-e2e"])?;
    let tree = root()?.join("target/defects/tree");
    let mut missed = Vec::new();
    for defect in all(filter)? {
        copy(&tree)?;
        let patch = defect.patch.display().to_string();
        let status = Command::new("patch")
            .args(["--quiet", "--fuzz=0", "-p1", "-i", &patch])
            .current_dir(&tree)
            .status();
        ensure!(status.context("patch")?.success(), "{} does not apply", defect.name);
        for (part, test) in &defect.red {
            let red = match part.as_str() {
                "scenario" => scenario_fails(&tree, test),
                "oracle" => judge_disagrees(&tree, test),
                "soak" => soak_fails(&tree, test),
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

/// Brings the copy up to date. What is the same is not touched, so that cargo does
/// not build it anew.
fn copy(tree: &Path) -> anyhow::Result<()> {
    let listed = output("git", &["ls-files", "--cached", "--others", "--exclude-standard"])?;
    let kept: BTreeSet<PathBuf> = listed.lines().map(|file| tree.join(file)).collect();
    for stale in files(tree).into_iter().filter(|file| !kept.contains(file)) {
        std::fs::remove_file(&stale).with_context(|| stale.display().to_string())?;
    }
    for file in listed.lines() {
        let (from, to) = (root()?.join(file), tree.join(file));
        let Ok(content) = std::fs::read(&from) else { continue };
        if std::fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        std::fs::create_dir_all(to.parent().context("path")?)?;
        std::fs::write(&to, content).with_context(|| file.to_owned())?;
    }
    Ok(())
}

/// Every file below `directory`.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Runs a program in the copy: whether it succeeded, and what it said.
fn said(tree: &Path, program: &Path, arguments: &[&str]) -> anyhow::Result<(bool, String)> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(tree).env("RUST_BACKTRACE", "0");
    // The copy is a workspace of its own.
    command.env_remove("CARGO_MANIFEST_DIR").env("CARGO_TARGET_DIR", root()?.join("target/defects/build"));
    let out = command.output().with_context(|| program.display().to_string())?;
    let text = [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Ok((out.status.success(), text))
}

fn unit_fails(tree: &Path, part: &str, test: &str) -> anyhow::Result<bool> {
    let (package, target) = match part.split_once('/') {
        Some((package, test)) => (format!("dragoman-{package}"), vec!["--test", test]),
        None => (format!("dragoman-{part}"), vec!["--lib"]),
    };
    let cargo = Path::new("cargo");
    let (built, log) =
        said(tree, cargo, &[&["test", "--no-run", "--package", &package], &target[..]].concat())?;
    if !built {
        bail!("it does not compile:\n{log}");
    }
    let (green, log) = said(tree, cargo, &[&["test", "--package", &package], &target[..], &[test]].concat())?;
    let failed =
        log.lines().any(|line| line.starts_with("test ") && line.ends_with(&format!("{test} ... FAILED")));
    Ok(!green && failed)
}

fn scenario_fails(tree: &Path, test: &str) -> anyhow::Result<bool> {
    let (built, log) = said(tree, Path::new("cargo"), &["build", "--package", "dragoman-operator"])?;
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
        "scenarios",
        test,
    ];
    let (green, log) = said(tree, &target.join("debug/dragoman-e2e"), &arguments)?;
    let failed = log.lines().find(|line| line.starts_with("FAILED") && line.contains(test));
    if let Some(line) = failed {
        println!("        {}", line.chars().take(200).collect::<String>());
    }
    Ok(!green && failed.is_some())
}

/// Builds `dragoman-e2e` with the defect in it and runs it: whether it succeeded, and what it
/// said.
fn e2e_says(tree: &Path, arguments: &[&str]) -> anyhow::Result<(bool, String)> {
    let (built, log) = said(tree, Path::new("cargo"), &["build", "--package", "dragoman-e2e"])?;
    if !built {
        bail!("it does not compile:\n{log}");
    }
    let target = root()?.join("target/defects");
    let program = target.join("build/debug/dragoman-e2e");
    // What is asked here needs no operator; any program will do.
    let (itself, out) = (program.display().to_string(), target.join("e2e").display().to_string());
    said(tree, &program, &[&["--binary", &itself, "--output", &out], arguments].concat())
}

/// Runs seeds until an invariant is broken: the number of runs in CI is enough.
fn soak_fails(tree: &Path, invariant: &str) -> anyhow::Result<bool> {
    let (green, log) = e2e_says(tree, &["soak", "--twice", "0"])?;
    let failed = log.lines().find_map(|line| line.strip_prefix("Error: "));
    if let Some(line) = failed {
        println!("        {}", line.chars().take(200).collect::<String>());
    }
    Ok(!green && failed.is_some_and(|line| line.contains(&format!(": {invariant}:"))))
}

/// Asks both sides until they disagree: the oracle's own number of questions is enough.
fn judge_disagrees(tree: &Path, test: &str) -> anyhow::Result<bool> {
    let (green, log) = e2e_says(tree, &["oracle", test, "--seed", "1"])?;
    let failed = log.lines().find_map(|line| Some(line.strip_prefix("Error: ")?.split_once(" of seed ")?.0));
    match failed {
        Some(number) => println!("        {number}"),
        None => println!("{}", log.lines().last().unwrap_or_default()),
    }
    Ok(!green && failed.is_some())
}
