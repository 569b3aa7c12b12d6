//! One event of a watch.

use dragoman_objects::Object;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Failure;
use super::item::{Item, Outline};
use crate::kind::Kind;
use crate::refusal::{Refusal, Status};

/// One step of a watch.
#[derive(Debug)]
pub enum Step<T> {
    /// ADDED or MODIFIED.
    Applied(Item<T>),
    /// DELETED, with the last state of the object.
    Deleted(Item<T>),
    /// BOOKMARK: everything up to this version has been sent.
    Bookmark(String),
    /// The server closed the watch in good order.
    End,
    /// The connection broke: what the server had sent may not have come.
    Cut,
}

/// A line of a watch.
#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct Event<'a, T> {
    r#type: &'a str,
    object: T,
}

#[derive(Deserialize)]
struct ErrorStatus {
    #[serde(default)]
    code: u16,
    #[serde(flatten)]
    status: Status,
}

/// Decodes one `line` of a watch of `kind`: an object in one pass, and once more for its outline where
/// it does not decode.
///
/// # Errors
/// The event is an error, or does not decode and has no name to be remembered under.
pub(super) fn decode_event<T: Object>(line: &[u8], kind: Kind) -> Result<Step<T>, Failure> {
    let (event, item) = match serde_json::from_slice::<Event<'_, T>>(line) {
        Ok(Event { r#type, object }) => (r#type, Item::Readable(object)),
        Err(why) => {
            let Event { r#type, object } =
                serde_json::from_slice::<Event<'_, Outline>>(line).map_err(undecodable)?;
            (r#type, object.item(&why))
        }
    };
    match event {
        "ADDED" | "MODIFIED" => item.named().map(Step::Applied).map_err(Failure::Undecodable),
        "DELETED" => item.named().map(Step::Deleted).map_err(Failure::Undecodable),
        "BOOKMARK" => Ok(Step::Bookmark(item.meta().resource_version.to_string())),
        "ERROR" => {
            let event: Event<'_, ErrorStatus> = serde_json::from_slice(line).map_err(undecodable)?;
            Err(event.object.failure(kind))
        }
        other => Err(Failure::Undecodable(format!("watch event of type {other:?}"))),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn undecodable(error: serde_json::Error) -> Failure {
    Failure::Undecodable(error.to_string())
}

impl ErrorStatus {
    fn failure(&self, kind: Kind) -> Failure {
        match Refusal::classify(self.code, &self.status, kind, "") {
            _ if self.code == 410 => Failure::Expired,
            Refusal::Throttled => Failure::Throttled(None),
            refusal => Failure::Other(refusal.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {

    use dragoman_objects::Pod;

    use super::*;
    use crate::kind::POD;

    fn decode(line: &str) -> Result<Step<Pod>, Failure> {
        decode_event(line.as_bytes(), POD)
    }

    #[test]
    fn every_type_of_event_is_told_from_the_others() {
        let object = r#"{"metadata":{"name":"a","uid":"1","resourceVersion":"7"},"spec":{}}"#;
        for event in ["ADDED", "MODIFIED"] {
            let step = decode(&format!(r#"{{"type":"{event}","object":{object}}}"#));
            assert!(matches!(step, Ok(Step::Applied(Item::Readable(_)))), "{step:?}");
        }
        let step = decode(&format!(r#"{{"type":"DELETED","object":{object}}}"#));
        assert!(matches!(step, Ok(Step::Deleted(Item::Readable(_)))), "{step:?}");
        // A bookmark has neither name nor content.
        for content in [r#","spec":{"containers":null},"status":{}"#, r#","spec":7"#] {
            let object =
                format!(r#"{{"metadata":{{"resourceVersion":"7","creationTimestamp":null}}{content}}}"#);
            let step = decode(&format!(r#"{{"type":"BOOKMARK","object":{object}}}"#));
            assert!(matches!(&step, Ok(Step::Bookmark(version)) if version == "7"), "{step:?}");
        }
        let status = r#"{"kind":"Status","metadata":{},"status":"Failure","reason":"Expired","code":410}"#;
        let step = decode(&format!(r#"{{"type":"ERROR","object":{status}}}"#));
        assert!(matches!(step, Err(Failure::Expired)), "{step:?}");
        let step = decode(&format!(r#"{{"object":{object},"type":"NEW"}}"#));
        assert!(matches!(step, Err(Failure::Undecodable(_))), "{step:?}");
    }

    #[test]
    fn an_event_that_does_not_decode_is_known_by_its_metadata() {
        let object =
            r#"{"metadata":{"name":"a","uid":"1","resourceVersion":"7"},"spec":{"resourceClaims":"x"}}"#;
        let step = decode(&format!(r#"{{"type":"MODIFIED","object":{object}}}"#));
        let Ok(Step::Applied(item @ Item::Unreadable { .. })) = step else { panic!("{step:?}") };
        assert_eq!((&*item.meta().name, &*item.meta().resource_version), ("a", "7"));
        let step = decode(r#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"7"}}}"#);
        assert!(matches!(step, Err(Failure::Undecodable(_))), "{step:?}");
    }
}
