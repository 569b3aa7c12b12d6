//! Mutants: small changes of the controller that a test must notice.
//!
//! `cargo-mutants` makes every change of a controller that it knows. Mutants that survive the unit tests are
//! tried in runs with faults. Mutants that survive both must be in `docs/mutants.md`, with the reason.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::planted::{Planted, files};
use crate::{root, run};

/// The controllers, each a folder.
const FOLDER: &str = "reconcilers/src/";
/// The controller whose runs with faults are those of the lifecycle of claims. The others take part in the runs of gated Pods.
const OF_CLAIMS: &str = "claim_lifecycle/";
const LISTED: &str = "docs/mutants.md";
/// Files without mutants: the tests, and code that neither unit tests nor runs with faults check.
const UNSEEN: [&str; 4] = ["**/tests/**", "**/tests.rs", "**/metrics.rs", "**/rights.rs"];

/// A mutant that the unit tests do not find.
struct Survivor {
    /// The file below `FOLDER`, and the change. The line number is left out, because it moves.
    name: String,
    diff: PathBuf,
}

/// Makes mutants of the files of the controllers whose path contains `filter`, such as `gates/plan`, and requires that each is found
/// or listed.
///
/// # Errors
/// A mutant is neither found by a test nor in `docs/mutants.md`; the error lists all of these mutants.
pub(crate) fn find(filter: &str) -> anyhow::Result<()> {
    if Command::new("cargo").args(["mutants", "--version"]).output().is_ok_and(|out| !out.status.success()) {
        run("cargo", &["install", "--locked", "cargo-mutants"])?;
    }
    let listed = std::fs::read_to_string(root()?.join(LISTED)).context(LISTED)?;
    let out = root()?.join("target/mutants");
    let tree = Planted::fresh()?;
    let files = files_that_match(filter)?;
    let files: Vec<&str> = files.iter().flat_map(|file| ["--file", file]).collect();
    let excluded: Vec<String> =
        UNSEEN.iter().flat_map(|file| ["--exclude".to_owned(), format!("{FOLDER}{file}")]).collect();
    let excluded: Vec<&str> = excluded.iter().map(String::as_str).collect();
    let directory = out.display().to_string();
    let options = ["mutants", "--in-place", "--no-shuffle", "--package", "dragoman-reconcilers"];
    let places = [&files[..], &["--output", &directory]].concat();
    // cargo-mutants fails if a mutant survives. The survivors are read from its output instead.
    let (_, log) =
        tree.said(Path::new("cargo"), &[&options[..], &excluded, &places, &["--", "--lib"]].concat())?;
    println!("{}", log.lines().last().unwrap_or_default());
    let mut unexplained = Vec::new();
    for Survivor { name, diff } in survivors(&out.join("mutants.out"))? {
        let tree = Planted::fresh()?;
        tree.patch(&diff, "-p0")?;
        let fate = tree.soak_fails(if name.starts_with(OF_CLAIMS) { &[] } else { &["--gated"] })?;
        let is_listed = listed.contains(&format!("`{}`", name.replace('|', "\\|")));
        match fate {
            Some(why) => println!("found     {name}: {}", why.chars().take(100).collect::<String>()),
            None if is_listed => println!("listed    {name}"),
            None => {
                println!("SURVIVES  {name}");
                unexplained.push(name);
            }
        }
    }
    ensure!(unexplained.is_empty(), "neither found nor in {LISTED}: {}", unexplained.join("; "));
    Ok(())
}

/// Returns the paths of the controllers' files that contain `filter`, below the root of the repository.
fn files_that_match(filter: &str) -> anyhow::Result<Vec<String>> {
    let source = root()?.join(FOLDER);
    let below = |file: PathBuf| Some(file.strip_prefix(&source).ok()?.to_str()?.to_owned());
    let found: Vec<String> =
        files(&source).into_iter().filter_map(below).filter(|file| file.contains(filter)).collect();
    ensure!(!found.is_empty(), "no file below {FOLDER} has {filter} in its path");
    Ok(found.into_iter().map(|file| format!("{FOLDER}{file}")).collect())
}

/// Reads the mutants that the unit tests do not find.
fn survivors(out: &Path) -> anyhow::Result<Vec<Survivor>> {
    let missed = std::fs::read_to_string(out.join("missed.txt")).context("missed.txt")?;
    let mut diffs = Vec::new();
    for diff in files(&out.join("diff")) {
        let text = std::fs::read_to_string(&diff).with_context(|| diff.display().to_string())?;
        diffs.push((diff, text));
    }
    let survivor = |line: &str| {
        // path:line:column: what
        let (place, what) = line.split_once(": ").context("a line of missed.txt")?;
        let mut place = place.splitn(3, ':');
        let mut next = || place.next().context("a place in missed.txt");
        let (path, number, column) = (next()?, next()?, next()?);
        let at = format!("_line_{number}_col_{column}");
        let is_meant = |(diff, text): &&(PathBuf, String)| {
            let header = format!("--- {path}\n+++ {what}\n");
            let stem = diff.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            text.starts_with(&header)
                && stem
                    .split_once(&at)
                    .is_some_and(|(_, rest)| !rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let (diff, _) = diffs.iter().find(is_meant).with_context(|| format!("no diff of {line}"))?;
        let name = format!("{}: {what}", path.trim_start_matches(FOLDER));
        Ok(Survivor { name, diff: diff.clone() })
    };
    missed.lines().map(survivor).collect()
}
