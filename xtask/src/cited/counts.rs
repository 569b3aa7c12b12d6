//! Counts in documents: a page that says how many of something there are is red once there are more or fewer.

use std::path::Path;

use anyhow::Context as _;
use regex::Regex;

use crate::{lanes, output, root};

/// Something that documents count.
pub(super) struct Counted {
    /// The words behind the number.
    noun: &'static str,
    count: usize,
}

/// Everything that is counted.
///
/// # Errors
/// A file with what is counted cannot be read.
pub(super) fn counted() -> anyhow::Result<Vec<Counted>> {
    let text = |file: &str| std::fs::read_to_string(root()?.join(file)).with_context(|| file.to_owned());
    let occurs = |file: &str, words: &str| anyhow::Ok(text(file)?.matches(words).count());
    let files = |pattern: &str| anyhow::Ok(output("git", &["ls-files", pattern])?.lines().count());
    let table = text("reconcilers/src/table.rs")?;
    let operator = table.split("pub fn operator").nth(1).and_then(|rest| rest.split("\n}").next());
    Ok(vec![
        Counted { noun: "long lanes", count: lanes::count() },
        Counted { noun: "lanes", count: lanes::count() },
        Counted { noun: "alerts", count: occurs("config/monitoring/rules.yaml", "- alert: ")? },
        Counted { noun: "dashboards", count: files("config/monitoring/dashboards/*.json")? },
        Counted { noun: "planted defects", count: files("e2e/defects/*.patch")? },
        Counted {
            noun: "controllers of the operator",
            count: operator.unwrap_or_default().matches("::spec(").count(),
        },
        Counted {
            noun: "scenarios, each with the rule that was broken",
            count: length_of(&text("operator/src/conformance/scenarios.rs")?, "NAMES"),
        },
    ])
}

/// The length of the array of strings of this name in a source.
fn length_of(source: &str, name: &str) -> usize {
    let length =
        source.split(&format!("const {name}: [&str; ")).nth(1).and_then(|rest| rest.split(']').next());
    length.and_then(|length| length.parse().ok()).unwrap_or_default()
}

/// The wrong counts in a text, each with its line.
///
/// # Errors
/// A noun is no expression.
pub(super) fn wrong(text: &str, counted: &[Counted]) -> anyhow::Result<Vec<(usize, String)>> {
    let mut found = Vec::new();
    for Counted { noun, count } in counted {
        // A line may end between the words.
        let noun = noun.replace(' ', r"\s+");
        let said = Regex::new(&format!(r"(?i)\b([a-z]+(?:-[a-z]+)?|[0-9]+)\s+{noun}\b"))?;
        for said in said.captures_iter(text) {
            let at = said.get(0).map_or(0, |all| text.get(..all.start()).unwrap_or_default().lines().count());
            if number_of(&said[1]).is_some_and(|number| number != *count) {
                found.push((at.max(1), format!("{}: there are {count}", said[0].replace('\n', " "))));
            }
        }
    }
    Ok(found)
}

const ONES: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];

/// A number below a hundred in words, or any in digits.
fn number_of(word: &str) -> Option<usize> {
    let word = word.to_lowercase();
    let below_twenty = |word: &str| ONES.iter().position(|one| *one == word);
    let tens = |word: &str| Some(20 + 10 * TENS.iter().position(|ten| *ten == word)?);
    let both = || {
        let (ten, one) = word.split_once('-')?;
        Some(tens(ten)? + below_twenty(one)?)
    };
    word.parse().ok().or_else(|| below_twenty(&word)).or_else(|| tens(&word)).or_else(both)
}

/// Whether a document tells of how things are, so that its counts must be right.
pub(super) fn is_of_today(document: &str) -> bool {
    !Path::new(document).starts_with("docs/adr")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_not_that_of_the_repository_is_found() -> anyhow::Result<()> {
        let counted = [Counted { noun: "alerts", count: 25 }];
        let wrong = |text: &str| anyhow::Ok(wrong(text, &counted)?.len());
        assert_eq!(wrong("It has twenty-five alerts.\n25 alerts\nthe alerts, some alerts")?, 0);
        assert_eq!(wrong("twenty-four alerts\n24 alerts and Twenty\nalerts\nzero alerts")?, 4);
        Ok(())
    }

    #[test]
    fn everything_that_is_counted_is_there() -> anyhow::Result<()> {
        assert!(counted()?.iter().all(|counted| counted.count > 1));
        Ok(())
    }
}
