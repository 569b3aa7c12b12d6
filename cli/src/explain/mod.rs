//! Why: one verdict in a sentence, then the chain of objects that leads to it. Pure functions over what was read.

pub(crate) mod claim;
pub(crate) mod device;
mod devices;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod template;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde::Serialize;

/// What is true of an object, in a word for programs and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verdict {
    /// A word of a fixed set.
    pub(crate) reason: &'static str,
    /// Whether anything stands in the way.
    pub(crate) blocked: bool,
    pub(crate) sentence: String,
    /// What to do; empty where there is nothing to do.
    pub(crate) advice: String,
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
pub(crate) struct Link {
    /// How far down the chain: a Pod is 0, its entries 1, their claims 2.
    pub(crate) depth: usize,
    pub(crate) object: String,
    pub(crate) says: String,
}

fn link(depth: usize, object: impl Into<String>, says: impl Into<String>) -> Link {
    Link { depth, object: object.into(), says: says.into() }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Answer {
    /// What was asked about.
    pub(crate) object: String,
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
    pub(crate) chain: Vec<Link>,
    /// What could not be read: the answer may lack it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) lacks: Vec<String>,
}

/// The time since `since` (RFC 3339) in the words of kubectl; empty for a time that does not decode.
pub(crate) fn age(since: Option<&str>, now: Timestamp) -> String {
    let Some(since) = since.and_then(|text| text.parse::<Timestamp>().ok()) else { return String::new() };
    let seconds = now.as_second().saturating_sub(since.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `one`, or `2 others` with the number.
fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}
