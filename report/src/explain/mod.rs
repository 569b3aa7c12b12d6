//! Why: one verdict in a sentence, then the chain of objects that leads to it. Pure functions over what was read.

pub mod claim;
pub mod device;
mod devices;
mod gate;
pub mod node;
pub mod pod;
pub mod template;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde::Serialize;

use crate::printable;

/// State of an object: a word for programs and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// A word of a fixed set.
    pub reason: &'static str,
    /// Whether anything stands in the way.
    pub blocked: bool,
    /// The sentence.
    pub sentence: String,
    /// Advice to the reader; empty if there is nothing to do.
    pub advice: String,
}

impl Verdict {
    /// Nothing stands in the way.
    fn fine(reason: &'static str, sentence: String) -> Self {
        Self { reason, blocked: false, sentence, advice: String::new() }
    }

    fn blocked(reason: &'static str, sentence: String, advice: impl Into<String>) -> Self {
        Self { reason, blocked: true, sentence, advice: advice.into() }
    }
}

/// Nothing can be said of an object that could not be read.
fn unknown(object: &str) -> Verdict {
    let advice = "get the right to read it, or let an administrator ask";
    Verdict::blocked("Unknown", format!("{object} could not be read"), advice)
}

/// A link of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Depth in the chain: a Pod is 0, its entries 1, their claims 2.
    pub depth: usize,
    /// The object: its kind and name.
    pub object: String,
    /// State of the object.
    pub says: String,
}

fn link(depth: usize, object: impl Into<String>, says: impl Into<String>) -> Link {
    Link { depth, object: object.into(), says: says.into() }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The object that the question is about.
    pub object: String,
    /// State of the object.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The objects that lead to the verdict, from the top.
    pub chain: Vec<Link>,
    /// Whether the object does not exist.
    #[serde(skip)]
    pub is_missing: bool,
    /// Objects that could not be read. The answer may lack them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
}

impl Answer {
    /// The answer for people: the sentence in the first line, the chain, what to do, and what could not be read.
    pub fn in_words(&self) -> String {
        let mut text = format!("{}\n", printable(&self.verdict.sentence));
        if !self.chain.is_empty() {
            text.push('\n');
        }
        let indented: Vec<(String, String)> = self
            .chain
            .iter()
            .map(|link| {
                (format!("{}{}", "  ".repeat(link.depth), printable(&link.object)), printable(&link.says))
            })
            .collect();
        let width = indented.iter().map(|(object, _)| object.chars().count()).max().unwrap_or_default();
        for (object, says) in indented {
            text.push_str(&format!("{object:width$}  {says}\n"));
        }
        if !self.verdict.advice.is_empty() {
            text.push_str(&format!("\nWhat to do: {}\n", printable(&self.verdict.advice)));
        }
        self.lacks.iter().for_each(|lack| text.push_str(&format!("partial: {}\n", printable(lack))));
        text
    }
}

/// The time since `since` (RFC 3339) in the words of kubectl; empty for a time that does not decode.
pub fn age(since: Option<&str>, now: Timestamp) -> String {
    let Some(since) = since.and_then(|text| text.parse::<Timestamp>().ok()) else { return String::new() };
    let seconds = now.as_second().saturating_sub(since.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A state and an age; a dump may have no times.
fn with_age(state: &str, age: &str) -> String {
    if age.is_empty() { state.to_owned() } else { format!("{state}, {age} old") }
}

/// `one`, or `2 others` with the number.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}
