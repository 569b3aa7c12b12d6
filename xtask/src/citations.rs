//! Documents that code and documents cite: each is in the repository, and a cited section exists.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;

use crate::{output, root};

/// Checks every citation of a Markdown file.
///
/// # Errors
/// Names every citation that a clone cannot open.
pub(crate) fn check() -> anyhow::Result<()> {
    let listed = output("git", &["ls-files", "--cached", "--others", "--exclude-standard"])?;
    let markdown = output("git", &["ls-files", "--cached", "--others", "--exclude-standard", "*.md"])?;
    let documents: BTreeSet<&str> = markdown.lines().collect();
    let mut sections = BTreeMap::new();
    for document in &documents {
        let text = std::fs::read_to_string(root()?.join(document)).unwrap_or_default();
        sections.insert(*document, numbered(&text));
    }
    let mut dangling = Vec::new();
    for file in listed.lines().filter(|file| may_cite(file)) {
        let Ok(text) = std::fs::read_to_string(root()?.join(file)) else { continue };
        for (cited, section) in citations(&text) {
            let found = resolve(file, &cited, &documents);
            let there = found.is_some_and(|document| {
                section.as_ref().is_none_or(|section| sections[document].contains(section))
            });
            if !there {
                dangling.push(format!("{file}: {cited} {}", section.unwrap_or_default()));
            }
        }
    }
    ensure!(dangling.is_empty(), "cited and not in the repository:\n{}", dangling.join("\n"));
    Ok(())
}

fn may_cite(file: &str) -> bool {
    let code = [".rs", ".go", ".md", ".patch", ".yaml", ".toml", ".py"];
    code.iter().any(|end| file.ends_with(end)) && !file.starts_with("xtask/src/cit")
}

/// The numbers of the sections of a document: `## 2. Title`, `### 2.1 Title`, `**2.1 Title.**`.
fn numbered(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#') || line.starts_with("**"));
    let numbers = headings.filter_map(|line| line.trim_start_matches(['#', '*']).split_whitespace().next());
    let is_number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    numbers.filter(is_number).map(|word| word.trim_end_matches('.').to_owned()).collect()
}

/// The Markdown files that a text names, each with the number of a section, if one follows.
fn citations(text: &str) -> Vec<(String, Option<String>)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let mut found = Vec::new();
    for (at, _) in text.match_indices(".md") {
        let (before, after) = (text.get(..at).unwrap_or_default(), text.get(at + 3..).unwrap_or_default());
        if after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            continue;
        }
        let start = before.rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
        let name = before.get(start..).unwrap_or_default();
        // `*.md`, or a variable.
        if name.is_empty() || before.get(..start).unwrap_or_default().ends_with(['*', '{', '}']) {
            continue;
        }
        // An address of another site.
        if before.get(..start).unwrap_or_default().ends_with("://") || name.contains("//") {
            continue;
        }
        found.push((format!("{name}.md"), section_after(after)));
    }
    found
}

/// The number that follows a name after one space.
fn section_after(text: &str) -> Option<String> {
    let number: String =
        text.strip_prefix(' ')?.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let number = number.trim_end_matches('.').to_owned();
    (!number.is_empty()).then_some(number)
}

/// The document that a citation in `file` means: beside the file, in `docs`, or from the root.
fn resolve<'a>(file: &str, cited: &str, documents: &BTreeSet<&'a str>) -> Option<&'a str> {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut beside: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in cited.split('/') {
        match part {
            "." => {}
            ".." => drop(beside.pop()),
            part => beside.push(part),
        }
    }
    [beside.join("/"), cited.to_owned()].iter().find_map(|path| documents.get(path.as_str()).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sections_are_found() {
        let text = "see (docs/a.md 1.2), `b.md`; [c](../c.md#x) *.md https://x.y/z.md";
        let found: Vec<_> = citations(text).into_iter().collect();
        assert_eq!(
            found,
            [
                ("docs/a.md".to_owned(), Some("1.2".to_owned())),
                ("b.md".to_owned(), None),
                ("../c.md".to_owned(), None)
            ]
        );
        assert!(numbered("# 1. A\n## 1.2 B\n## C").contains("1.2"));
        assert!(numbered("**2.1 A.** Text").contains("2.1"));
        let documents = BTreeSet::from(["docs/a.md", "c.md"]);
        assert_eq!(resolve("docs/b.md", "a.md", &documents), Some("docs/a.md"));
        assert_eq!(resolve("docs/b.md", "../c.md", &documents), Some("c.md"));
        assert_eq!(resolve("src/b.rs", "a.md", &documents), None);
    }
}
