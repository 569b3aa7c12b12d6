//! The English of comments, as far as a program can see it (docs/STYLE.md, rules 3 and 7).

use anyhow::{Context as _, ensure};

use crate::{output, root};

/// Openings of a doc comment that leave its subject unnamed.
const OPENINGS: [&str; 6] = ["What", "How", "Who", "Its", "It", "Of"];

/// Persons that comments put in the place of a process or an object.
const PERSONS: [&str; 9] = [
    "somebody",
    "nobody",
    "whoever",
    "anybody",
    "everybody",
    "himself",
    "herself",
    "who waits",
    "of no concern",
];

/// Checks the comments of every source file.
///
/// # Errors
/// Names each place where a rule is broken.
pub(crate) fn check() -> anyhow::Result<()> {
    let listed = output("git", &["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"])?;
    let mut broken = Vec::new();
    // The index still lists a file that was just deleted.
    for (file, path) in listed.lines().map(|file| (file, root().map(|root| root.join(file)))) {
        let path = path?;
        if path.exists() {
            let text = std::fs::read_to_string(path).with_context(|| file.to_owned())?;
            broken.extend(in_text(&text).into_iter().map(|complaint| format!("{file}:{complaint}")));
        }
    }
    ensure!(broken.is_empty(), "docs/STYLE.md, rules 3 and 7:\n{}", broken.join("\n"));
    Ok(())
}

/// The complaints about the comments of a source file, each with its line.
fn in_text(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut in_doc_comment = false;
    for (number, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//");
        let doc = comment.and_then(|rest| rest.strip_prefix(['/', '!']));
        if let (Some(doc), false) = (doc, in_doc_comment) {
            let first = doc.trim_start().split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
            let is_opening = OPENINGS.contains(&first);
            complaints.extend(is_opening.then(|| {
                format!("{}: a doc comment begins with its subject, not with {first:?}", number + 1)
            }));
        }
        in_doc_comment = doc.is_some();
        let lower = comment.unwrap_or_default().to_lowercase();
        let persons = PERSONS.iter().filter(|person| has(&lower, person));
        complaints.extend(persons.map(|person| format!("{}: {person:?} is a person", number + 1)));
    }
    complaints
}

/// Whether a text has a phrase as whole words.
fn has(text: &str, phrase: &str) -> bool {
    let is_edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    text.match_indices(phrase).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let after = text.get(at + phrase.len()..).and_then(|after| after.chars().next());
        is_edge(before) && is_edge(after)
    })
}

#[cfg(test)]
mod tests {
    use super::in_text;

    #[test]
    fn a_doc_comment_is_judged_by_its_first_word() {
        let text = "/// What it is.\n/// How it follows.\nfn a() {}\n\n//! Of use-cases.\n\n/// It's there.\nfn b() {}";
        let lines: Vec<char> =
            in_text(text).iter().filter_map(|complaint| complaint.chars().next()).collect();
        assert_eq!(lines, ['1', '5', '7']);
        let fine = "/// Whatever follows.\n// What is no doc comment.\nlet a = \"/// What\";";
        assert_eq!(in_text(fine), Vec::<String>::new());
    }

    #[test]
    fn persons_are_found_in_every_comment_and_as_whole_words() {
        let text = "// Nobody looks, and somebody writes.\nlet nobody = 0; // not seen\n/// Antinobody.";
        assert_eq!(in_text(text), ["1: \"somebody\" is a person", "1: \"nobody\" is a person"]);
    }
}
