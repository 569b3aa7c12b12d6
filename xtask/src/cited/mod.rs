//! Checks that everything exists that documents name in code spans: files and folders of the repository,
//! tests, scenarios, commands with their flags, metrics, and counts of some of them. A page that names something which was renamed or removed is
//! red.

mod commands;
mod counts;

use std::collections::BTreeSet;
use std::path::Path;

use self::commands::Commands;
use crate::{output, root};
use anyhow::ensure;

/// These tell of what was: the changes, and a record of mutants that is older than some of the code.
const PAST: [&str; 2] = ["CHANGELOG.md", "docs/mutants.md"];

/// Names that the documents may use.
struct Named {
    /// Every file of the repository.
    files: BTreeSet<String>,
    /// Every folder of it.
    folders: BTreeSet<String>,
    /// The text of everything that is no document.
    code: String,
    commands: Commands,
}

/// Checks every code span of every document.
///
/// # Errors
/// Names each one that names nothing.
pub(crate) fn check() -> anyhow::Result<()> {
    let listed = output("git", &["ls-files", "--cached", "--others", "--exclude-standard"])?;
    let (named, counted) = (Named::of(&listed)?, counts::counted()?);
    let mut missing = Vec::new();
    let is_document = |file: &&str| Path::new(file).extension().is_some_and(|end| end == "md");
    let documents = listed.lines().filter(|file| is_document(file) && !PAST.contains(file));
    for document in documents {
        let Ok(text) = std::fs::read_to_string(root()?.join(document)) else { continue };
        let wrong = spans(&text).into_iter().filter(|(_, span)| !named.knows(span));
        missing.extend(wrong.map(|(line, span)| format!("{document}:{line}: `{span}`")));
        let lines = commands::in_blocks(&text).into_iter();
        let wrong = lines.filter_map(|(line, command)| Some((line, named.commands.wrong(&command)?)));
        missing.extend(wrong.map(|(line, why)| format!("{document}:{line}: {why}")));
        if counts::is_of_today(document) {
            let wrong = counts::wrong(&text, &counted)?.into_iter();
            missing.extend(wrong.map(|(line, why)| format!("{document}:{line}: {why}")));
        }
    }
    ensure!(missing.is_empty(), "named in a document and not in the repository:\n{}", missing.join("\n"));
    Ok(())
}

/// The code spans of a text outside of code blocks, each with its line.
fn spans(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut in_block) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            let odd = line.split('`').skip(1).step_by(2);
            found.extend(odd.map(|span| (number + 1, span)));
        }
    }
    found
}

impl Named {
    fn of(listed: &str) -> anyhow::Result<Self> {
        let files: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
        let mut folders = BTreeSet::new();
        for file in &files {
            let parents = file.match_indices('/').filter_map(|(at, _)| file.get(..at));
            folders.extend(parents.map(str::to_owned));
        }
        let mut code = String::new();
        let is_code = |file: &&String| {
            let ends = [".rs", ".go", ".yaml", ".yml", ".toml", ".py", ".json", ".tpl", ".patch"];
            ends.iter().any(|end| file.ends_with(end)) && !file.starts_with("xtask/src/cited")
        };
        for file in files.iter().filter(is_code) {
            code += &std::fs::read_to_string(root()?.join(file)).unwrap_or_default();
        }
        Ok(Self { files, folders, code, commands: Commands::read()? })
    }

    /// Whether a code span names something that is there, or nothing that this program can tell.
    fn knows(&self, span: &str) -> bool {
        let word = span.split_whitespace().next().unwrap_or_default();
        if self.commands.wrong(span).is_some() {
            return false;
        }
        if word != span || span.contains(['*', '{', '<', '$', '…', '[', '(', '=', ':']) {
            return span.split_once("::").is_none_or(|_| self.knows_test(span));
        }
        match kind(span) {
            Kind::Path => self.knows_path(span),
            Kind::Scenario(name) => self.knows_function(name),
            Kind::Flag(flag) => self.code.contains(flag) || self.code.contains(&flag.replace('-', "_")),
            Kind::Metric => self.knows_metric(span),
            Kind::Other => true,
        }
    }

    /// Tests have sentences as names: `consumers::a_done_pod_gets_nothing`.
    fn knows_test(&self, span: &str) -> bool {
        let name = span.rsplit("::").next().unwrap_or_default();
        let is_sentence = name.matches('_').count() >= 2 && is_identifier(name);
        !is_sentence || self.knows_function(name)
    }

    fn knows_function(&self, name: &str) -> bool {
        self.code.contains(&format!("fn {name}("))
            || self.code.contains(&format!("fn {name}<"))
            || self.code.contains(&format!("{name:?}"))
    }

    /// From the root, or the end of a path where it is that of a source or a folder: `gates/pass.rs`, `cel/`.
    fn knows_path(&self, path: &str) -> bool {
        let ends_here = |known: &String| known == path || known.ends_with(&format!("/{path}"));
        if Path::new(path).extension().is_some_and(|end| end == "rs") {
            return self.files.iter().any(ends_here);
        }
        let folder = path.trim_end_matches('/');
        if path.ends_with('/') && is_word(folder) {
            return self
                .folders
                .iter()
                .any(|known| known == folder || known.ends_with(&format!("/{folder}")));
        }
        let is_own = folder.split('/').next().is_some_and(|first| self.folders.contains(first));
        !is_own || self.files.contains(folder) || self.folders.contains(folder)
    }

    /// A histogram or a counter has a suffix where it is read.
    fn knows_metric(&self, metric: &str) -> bool {
        let stem = ["_total", "_bucket", "_sum", "_count", "_created"]
            .iter()
            .find_map(|suffix| metric.strip_suffix(suffix))
            .unwrap_or(metric);
        self.code.contains(stem)
    }
}

/// Kind of the thing that a code span names.
enum Kind<'a> {
    Path,
    Scenario(&'a str),
    Flag(&'a str),
    Metric,
    Other,
}

fn kind(span: &str) -> Kind<'_> {
    if let Some(flag) = span.strip_prefix("--").filter(|flag| !flag.is_empty()) {
        return Kind::Flag(flag);
    }
    if span.starts_with("dragoman_") {
        return Kind::Metric;
    }
    match span.rsplit_once('/') {
        Some((_, name)) if name.matches('_').count() >= 2 && is_identifier(name) => Kind::Scenario(name),
        Some(_) => Kind::Path,
        None if span.strip_suffix(".rs").is_some_and(|stem| !stem.is_empty()) => Kind::Path,
        None => Kind::Other,
    }
}

/// Whether it is one lower-case word: a folder of the root, and no address.
fn is_word(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_lowercase())
}

fn is_identifier(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named() -> Named {
        let files = ["docs/a.md", "gates/src/plan.rs", "e2e/src/scenarios/lives.rs"];
        Named {
            files: files.map(str::to_owned).into(),
            folders: ["docs", "gates", "gates/src", "e2e", "e2e/src", "e2e/src/scenarios"]
                .map(str::to_owned)
                .into(),
            code: "fn a_pod_has_a_claim() {} let_go_after \"dragoman_gates_opened\" \"late_by_a_day\""
                .to_owned(),
            commands: Commands::of_page("## dragoman\n### dragoman check\n      --all\n"),
        }
    }

    #[test]
    fn what_is_there_is_known_and_what_is_gone_is_not() {
        let named = named();
        let known = [
            "gates/src",
            "gates/src/plan.rs",
            "plan.rs",
            "src/plan.rs",
            "kube-system/dragoman",
            "tests::a_pod_has_a_claim",
            "lives/a_pod_has_a_claim",
            "lives/late_by_a_day",
            "dragoman check --all",
            "--let-go-after",
            "dragoman_gates_opened_total",
            "kubectl get pods",
            "gates/src/*.rs",
            "spec.nodeName",
        ];
        for span in known {
            assert!(named.knows(span), "{span}");
        }
        let gone = [
            "gates/src/nominate.rs",
            "src/nominate.rs",
            "model/",
            "nominate.rs",
            "tests::a_pod_has_no_claim",
            "lives/a_pod_has_no_claim",
            "dragoman chck",
            "dragoman check --none",
            "--let-stay-after",
            "dragoman_gates_closed_total",
        ];
        for span in gone {
            assert!(!named.knows(span), "{span}");
        }
    }

    #[test]
    fn code_blocks_have_no_spans() {
        assert_eq!(spans("a `b` c `d`\n```\n`e`\n```\n`f`"), [(1, "b"), (1, "d"), (5, "f")]);
    }
}
