//! Decisions never wait (docs/adr/0004-pure-plans-thin-executors.md): in the controllers, only the files below wait for anything,
//! read a clock or draw a random number. What they wait for is a pass that the kit carries out, or a search that goes on aside.

use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::planted::files;
use crate::root;

/// The files of a controller that may wait.
const MAY_WAIT: [&str; 3] = ["controller.rs", "allocation/turns.rs", "allocation/aside.rs"];
/// A file and the one word that it may have: the index notes when a claim went, because no reconciliation follows from that
/// by itself.
const EXCEPTION: (&str, &str) = ("claim_lifecycle/index/claims.rs", "Instant::now");
/// Waiting, clocks, and chance.
const WORDS: [&str; 7] =
    [".await", "async ", "clock::", "Instant::now", "SystemTime::now", "Timestamp::now", "fastrand::"];
/// Start of the part of a file that is compiled for tests alone.
const TESTS: &str = "#[cfg(test)]\nmod tests {";

/// Checks every file of the controllers but their tests.
///
/// # Errors
/// Names each place at which a decision waits.
pub(crate) fn check() -> anyhow::Result<()> {
    let source = root()?.join("reconcilers/src");
    let mut broken = Vec::new();
    for file in files(&source) {
        let name = file.strip_prefix(&source).unwrap_or(&file);
        if may_wait(name) {
            continue;
        }
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        broken.extend(in_text(name, &text));
    }
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

fn may_wait(name: &Path) -> bool {
    let is_test = name.components().any(|part| part.as_os_str() == "tests")
        || name.file_name().is_some_and(|name| name == "tests.rs" || name == "steady.rs");
    is_test || MAY_WAIT.iter().any(|allowed| name.ends_with(allowed))
}

fn in_text(name: &Path, text: &str) -> Vec<String> {
    let text = text.split(TESTS).next().unwrap_or_default();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    let broken = lines.filter_map(|(number, line)| {
        let is_excepted = |word: &str| name.ends_with(EXCEPTION.0) && word == EXCEPTION.1;
        let word = WORDS.iter().find(|word| line.contains(*word) && !is_excepted(word))?;
        Some(format!(
            "reconcilers/src/{}:{}: {}: a decision does not wait, reads no clock and draws no random number (ADR 0004): `controller.rs` hands it what it needs",
            name.display(),
            number + 1,
            word.trim()
        ))
    });
    broken.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_that_waits_is_found_and_a_controller_may_wait() {
        let text = "// an .await in words\nfn plan() {\n    let now = clock::now();\n    send().await;\n}\n";
        let found = in_text(Path::new("gates/plan.rs"), text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].starts_with("reconcilers/src/gates/plan.rs:4: .await"), "{found:?}");
        let of_tests = format!("fn plan() {{}}\n\n{TESTS}\n    async fn test() {{}}\n}}\n");
        assert_eq!(in_text(Path::new("gates/plan.rs"), &of_tests), Vec::<String>::new());
        for allowed in
            ["gates/controller.rs", "allocation/turns.rs", "gates/tests/passes.rs", "ledger/tests.rs"]
        {
            assert!(may_wait(Path::new(allowed)), "{allowed}");
        }
        assert!(!may_wait(Path::new("holders/turns.rs")));
    }
}
