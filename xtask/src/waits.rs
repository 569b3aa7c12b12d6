//! The rules of waits in the scenarios, as far as a program can see them (CONTRIBUTING.md, "Green means green").

use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::planted::files;
use crate::root;

/// Calls that wait until a condition holds.
const WAITS: [&str; 3] = ["wait::until(", "wait::value(", "wait::slowly("];
/// Calls that write: a condition that is looked at by a write may be destroyed by the look.
const WRITES: [&str; 8] = [
    ".create(",
    ".merge(",
    ".json_patch(",
    ".strategic_merge(",
    ".delete(",
    ".delete_options(",
    ".pod(",
    ".let_end(",
];
/// Marks of a write without effect, or of a comment that says why the effect does no harm.
const HARMLESS: [&str; 4] = ["dry", "dryRun", "dry-run", "// The look writes: "];
/// Pauses and limits of one's own: the first conclude something from time, the second are too short for a slow machine.
const TIMES: [&str; 4] = ["time::sleep(", "thread::sleep(", "time::timeout(", "timeout_at("];

/// Checks every scenario.
///
/// # Errors
/// Names each place where a rule is broken.
pub(crate) fn check() -> anyhow::Result<()> {
    let scenarios = root()?.join("e2e/src/scenarios");
    let mut broken = Vec::new();
    for file in files(&scenarios).iter().filter(|file| file.extension().is_some_and(|end| end == "rs")) {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        broken.extend(in_text(file.strip_prefix(root()?).unwrap_or(file), &text));
    }
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

fn in_text(file: &Path, text: &str) -> Vec<String> {
    let place = |at: usize| {
        let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
        format!("{}:{line}", file.display())
    };
    let mut broken = Vec::new();
    for word in TIMES {
        broken.extend(text.match_indices(word).map(|(at, _)| {
            format!(
                "{}: {word}…): a scenario waits for conditions alone (wait::until, wait::apart, wait::ended)",
                place(at)
            )
        }));
    }
    for wait in WAITS {
        for (at, _) in text.match_indices(wait) {
            let call = arguments(text.get(at + wait.len()..).unwrap_or_default());
            let writes = WRITES.iter().find(|word| call.contains(*word));
            if let Some(word) = writes.filter(|_| !HARMLESS.iter().any(|word| call.contains(word))) {
                broken.push(format!(
                    "{}: a wait looks by a write with effect ({word}…)), which may destroy what it waits for: use a dry \
                     run, or say in a comment why it does not (`The look writes: …`)",
                    place(at)
                ));
            }
        }
    }
    broken
}

/// The text up to the parenthesis that closes a call. Strings may hold parentheses, but only in pairs.
fn arguments(text: &str) -> &str {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' if depth == 0 => return text.get(..at).unwrap_or_default(),
            ')' => depth -= 1,
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> Vec<String> {
        in_text(Path::new("a.rs"), text)
    }

    #[test]
    fn a_look_that_writes_is_found() {
        let text = "x;\nwait::value(\"gone\", async || {\n  client.merge(CLAIMS, ns, \"c\", &gate).await\n})";
        let found = broken(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found.concat().starts_with("a.rs:2: a wait looks by a write"), "{found:?}");
        assert!(broken(&text.replace("\"c\"", "\"c?dryRun=All\"")).is_empty());
        // Behind the wait a write is none of its business.
        assert!(broken("wait::until(\"it\", is_it).await?;\nclient.merge(CLAIMS)").is_empty());
    }

    #[test]
    fn the_scenarios_keep_the_rules() -> anyhow::Result<()> {
        check()
    }

    #[test]
    fn a_pause_and_a_limit_are_found() {
        assert_eq!(broken("tokio::time::sleep(X).await;").len(), 1);
        assert_eq!(broken("tokio::time::timeout(X, work).await;").len(), 1);
        assert!(broken("wait::apart().await;").is_empty());
    }
}
