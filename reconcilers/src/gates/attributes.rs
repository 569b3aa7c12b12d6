//! Attributes of devices for the containers of a gated Pod (KEP-5304), as annotations that the downward API reads.
//!
//! A Pod asks in the annotation `dragoman.dev/attributes`, a line each: `NAME: ENTRY/REQUEST/ATTRIBUTE`. The value comes
//! into the annotation `attributes.dragoman.dev/NAME` with the opening of the gate, in one write: before there is no
//! allocation to speak of, and after it a container may have read it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use dragoman_accounting::cluster::ClusterLedger;
use serde_json::{Value, json};

use super::facts::PodFacts;
use super::plan::{Reason, Wait};
use dragoman_cluster::Attributes;
use dragoman_crds::protocol::shown;

/// The annotation by which a Pod asks.
pub const WANTED: &str = "dragoman.dev/attributes";
/// The domain of the answers.
pub const GIVEN: &str = "attributes.dragoman.dev/";

/// The most bytes of a question.
pub(super) const QUESTION: usize = 8 << 10;
/// The most attributes of a Pod.
const MOST: usize = 64;
/// The most bytes of all answers: an object takes 256 KiB of annotations, those of others included.
const ANSWER: usize = 32 << 10;

/// An attribute that a Pod asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted<'a> {
    name: &'a str,
    entry: &'a str,
    request: &'a str,
    attribute: &'a str,
}

/// The answers to what a Pod asks for, by their annotations; none where it asks for nothing.
///
/// # Errors
/// The question cannot be read, or a device has no such attribute; the text is for the author of the Pod.
pub(super) fn of(pod: &PodFacts, ledger: &ClusterLedger) -> Result<BTreeMap<String, String>, Wait> {
    let Some(asked) = &pod.asked else { return Ok(BTreeMap::new()) };
    let missing = |message: String| Wait::new(Reason::AttributeMissing, message);
    let too_long = || missing(format!("{WANTED} has more than {QUESTION} bytes"));
    let wanted = parsed(asked.question.as_ref().ok_or_else(too_long)?).map_err(missing)?;
    let mut answers = BTreeMap::new();
    for of in wanted {
        let claim = match asked.claims.iter().find(|(entry, _)| **entry == *of.entry) {
            Some((_, Some(claim))) => claim,
            Some((entry, None)) => {
                return Err(missing(format!("{WANTED}: entry {entry} of the Pod has no claim")));
            }
            None => return Err(missing(format!("{WANTED}: the Pod has no entry {}", shown(of.entry)))),
        };
        let devices = ledger.allocated_for(&pod.accounted.view.namespace, claim, of.request);
        if devices.is_empty() {
            return Err(missing(format!(
                "{WANTED}: claim {claim} has no device for request {}",
                shown(of.request)
            )));
        }
        let values: Result<Vec<String>, String> =
            devices.iter().map(|device| Attributes::of(device).value(of.attribute)).collect();
        answers.insert(format!("{GIVEN}{}", of.name), values.map_err(missing)?.join(","));
    }
    if answers.values().map(String::len).sum::<usize>() > ANSWER {
        return Err(missing(format!("{WANTED}: the values have more than {ANSWER} bytes")));
    }
    Ok(answers)
}

/// The changes that bring the annotations of a Pod in line with the answers.
pub(super) fn operations(answers: &BTreeMap<String, String>) -> impl Iterator<Item = Value> + '_ {
    // The question is an annotation, so that there is a map of them.
    answers.iter().map(|(key, value)| {
        json!({"op": "add", "path": format!("/metadata/annotations/{}", key.replace('/', "~1")), "value": value})
    })
}

/// Whether the Pod has these answers already.
pub(super) fn are_given(pod: &PodFacts, answers: &BTreeMap<String, String>) -> bool {
    let given =
        |key: &str| pod.asked.as_ref()?.given.iter().find(|(known, _)| **known == *key).map(|(_, of)| *of);
    answers.iter().all(|(key, value)| given(key) == Some(fingerprint(value)))
}

/// A number that stands for the value of an answer.
pub(super) fn fingerprint(value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The annotations that answer a question; none where it cannot be read.
pub(super) fn annotations(question: &str) -> Vec<String> {
    let wanted = parsed(question).unwrap_or_default();
    wanted.into_iter().map(|of| format!("{GIVEN}{}", of.name)).collect()
}

fn parsed(question: &str) -> Result<Vec<Wanted<'_>>, String> {
    let lines: Vec<&str> = question.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.len() > MOST {
        return Err(format!("{WANTED} asks for more than {MOST} attributes"));
    }
    lines.into_iter().map(line).collect()
}

fn line(line: &str) -> Result<Wanted<'_>, String> {
    let wrong = || format!("{WANTED}: {:?} is not NAME: ENTRY/REQUEST/ATTRIBUTE", shown(line));
    let (name, place) = line.split_once(':').ok_or_else(wrong)?;
    let name = name.trim();
    if !is_name(name) {
        return Err(format!("{WANTED}: {:?} is no name of an annotation", shown(name)));
    }
    let mut parts = place.trim().splitn(3, '/').filter(|part| !part.is_empty());
    match (parts.next(), parts.next(), parts.next()) {
        (Some(entry), Some(request), Some(attribute)) => Ok(Wanted { name, entry, request, attribute }),
        _ => Err(wrong()),
    }
}

/// Whether a text can be the name of an annotation behind its domain.
fn is_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.len() <= 63
        && is_outer(name.chars().next())
        && is_outer(name.chars().last())
        && name.chars().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_line_by_line_and_what_is_wrong_is_said() {
        let question = "bus: gpu/r/resource.kubernetes.io/pciBusID\n\n  my.model : gpu/r/model \n";
        let wanted = parsed(question).expect("a question");
        let bus =
            Wanted { name: "bus", entry: "gpu", request: "r", attribute: "resource.kubernetes.io/pciBusID" };
        let model = Wanted { name: "my.model", entry: "gpu", request: "r", attribute: "model" };
        assert_eq!(wanted, [bus, model]);
        for (wrong, words) in [
            ("bus", "is not NAME: ENTRY/REQUEST/ATTRIBUTE"),
            ("bus: gpu/r", "is not NAME: ENTRY/REQUEST/ATTRIBUTE"),
            ("bus: gpu//x", "is not NAME: ENTRY/REQUEST/ATTRIBUTE"),
            ("-bus: gpu/r/x", "is no name of an annotation"),
            ("b/us: gpu/r/x", "is no name of an annotation"),
            (&"a: b/c/d\n".repeat(65), "more than 64 attributes"),
        ] {
            let why = parsed(wrong).expect_err(words);
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn answers_are_annotations() {
        let answers = [("attributes.dragoman.dev/bus".to_owned(), "a,b".to_owned())].into();
        let operations: Vec<Value> = operations(&answers).collect();
        assert_eq!(operations[0]["path"], "/metadata/annotations/attributes.dragoman.dev~1bus");
    }
}
