//! The events of a watch over HTTP.

use std::sync::{Mutex, PoisonError};

use http_body_util::BodyExt as _;
use serde_json::Value;

use super::client::Received;

/// The body of a watch: one JSON object on each line.
pub(super) struct Lines {
    /// Never locked: the mutex makes a body that is only `Send` part of a value that tasks share.
    body: Mutex<Received>,
    /// The bytes that are not returned yet.
    received: Vec<u8>,
}

impl Lines {
    pub(super) fn new(body: Received) -> Self {
        Self { body: Mutex::new(body), received: Vec::new() }
    }

    /// Returns the next object, or `None` at the end, at a lost connection and at a line that is no JSON.
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
            let frame = body.frame().await?.ok()?;
            self.received.extend(frame.into_data().unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use serde_json::json;

    use super::*;
    use crate::standins::client::BoxError;

    fn lines(parts: &'static [&'static str]) -> Lines {
        let frames =
            parts.iter().map(|part| Ok::<_, BoxError>(Frame::data(Bytes::from_static(part.as_bytes()))));
        Lines::new(StreamBody::new(stream::iter(frames)).boxed_unsync())
    }

    #[tokio::test]
    async fn an_event_may_come_in_parts_and_two_in_one() {
        let mut lines = lines(&["{\"a\"", ":1}\n{\"a\":2}\n{\"a\":", "3}\n"]);
        for number in 1..=3 {
            assert_eq!(lines.next().await, Some(json!({"a": number})));
        }
        assert_eq!(lines.next().await, None);
    }

    #[tokio::test]
    async fn half_an_event_is_none() {
        assert_eq!(lines(&["{\"a\":1}"]).next().await, None);
        assert_eq!(lines(&["{\"a\"\n{\"a\":1}\n"]).next().await, None);
    }
}
