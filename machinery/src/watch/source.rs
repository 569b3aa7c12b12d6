//! Where lists and watches come from: an API server, or a script in a test.

use std::future::Future;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use http::{Request, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use crate::api::USER_AGENT;
use crate::discovery::{Discovery, Served};
use crate::kind::Kind;
use crate::refusal::{Refusal, Status};

/// Why a list or a watch ended before its time.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The server no longer knows the version asked for (410).
    #[error("the resource version is too old")]
    Expired,
    /// The token of the next page is too old; the list goes on with this one, from a newer state.
    #[error("the list took so long that its next page expired")]
    PageExpired(String),
    /// The group version is not served, as far as this server knows.
    #[error("the API is not served")]
    Unserved,
    /// The server asks for patience.
    #[error("throttled")]
    Throttled(Option<Duration>),
    /// RBAC; the text names the missing rule.
    #[error("{0}")]
    Forbidden(String),
    /// The watch ended, or had to begin anew, as soon as it was open.
    #[error("the watch ended at once")]
    Fruitless,
    /// An object or the answer itself does not decode.
    #[error("does not decode: {0}")]
    Undecodable(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// A short fixed word, a metric label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Expired => "Expired",
            Self::PageExpired(_) => "PageExpired",
            Self::Unserved => "Unserved",
            Self::Throttled(_) => "Throttled",
            Self::Forbidden(_) => "Forbidden",
            Self::Fruitless => "Fruitless",
            Self::Undecodable(_) => "Undecodable",
            Self::Other(_) => "Other",
        }
    }
}

/// A page of a list.
#[derive(Debug)]
pub struct Page {
    /// The objects, undecoded.
    pub items: Vec<Box<RawValue>>,
    /// Token of the next page.
    pub next: Option<String>,
    /// resourceVersion of the list.
    pub version: String,
}

/// One step of a watch.
#[derive(Debug)]
pub enum Step {
    /// ADDED or MODIFIED.
    Applied(Box<RawValue>),
    /// DELETED, with the last state of the object.
    Deleted(Box<RawValue>),
    /// BOOKMARK: everything up to this version has been sent.
    Bookmark(String),
    /// The server closed the watch in good order.
    End,
}

/// Lists and watches one kind.
pub trait Source: Send + 'static {
    /// An open watch.
    type Events: Watch;
    /// Where that is, for people: a URL path.
    fn place(&self) -> String;
    /// One page of a complete list; `page` is the token of the page before.
    fn list(&mut self, page: Option<&str>) -> impl Future<Output = Result<Page, Failure>> + Send;
    /// Opens a watch from just after `version`.
    fn watch(&mut self, version: &str) -> impl Future<Output = Result<Self::Events, Failure>> + Send;
}

/// An open watch.
pub trait Watch: Send {
    /// The next step.
    fn next(&mut self) -> impl Future<Output = Result<Step, Failure>> + Send;
}

/// Objects per page: an API server answers 500 Pods in some tens of
/// milliseconds, and our peak memory holds one page beside the index.
const PAGE: u32 = 500;
/// How long the server is asked to keep a watch open. It sends a bookmark each minute and shortly
/// before the end, and then closes the watch in good order, so that it is resumed. Less than a
/// minute: silence is noticed sooner than a missing bookmark would be, and a resumed watch costs the
/// API server no read of etcd.
const WATCH_LASTS: Duration = Duration::from_secs(45);
/// Silence after which a watch counts as dead: it has outlived its own time.
const SILENCE: Duration = Duration::from_secs(50);
/// How long a watch may take to open: an API server lets a request wait 15 s for its turn.
const OPENS: Duration = Duration::from_secs(20);
/// How long a page may take: an API server ends requests after a minute.
const LISTS: Duration = Duration::from_mins(1);

/// Which objects of a kind are watched: all, unless narrowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selectors {
    /// `labelSelector`, as kubectl takes it; empty for all.
    pub labels: String,
    /// `fieldSelector` likewise.
    pub fields: String,
}

impl Selectors {
    /// As parameters of a query, joined by `&`.
    pub(super) fn query(&self) -> String {
        let parameters = [("labelSelector", &self.labels), ("fieldSelector", &self.fields)];
        let set = parameters.into_iter().filter(|(_, selector)| !selector.is_empty());
        set.map(|(name, selector)| format!("{name}={}", encode(selector))).collect::<Vec<_>>().join("&")
    }
}

/// One kind on an API server.
#[derive(Clone)]
pub struct Watched {
    client: kube::Client,
    kind: Kind,
    discovery: Discovery,
    selectors: Selectors,
}

impl Watched {
    /// Watches `kind` in all namespaces through `client`, which must not have a
    /// read timeout.
    pub fn new(client: kube::Client, kind: Kind, discovery: Discovery) -> Self {
        Self { client, kind, discovery, selectors: Selectors::default() }
    }

    /// The same, narrowed to what `selectors` select.
    #[must_use]
    pub fn selecting(mut self, selectors: Selectors) -> Self {
        self.selectors = selectors;
        self
    }

    async fn open(
        &self,
        query: String,
        within: Duration,
    ) -> Result<impl AsyncBufRead + Send + use<>, Failure> {
        let selectors = self.selectors.query();
        let request = Request::get(format!(
            "{}?{query}{}{}",
            self.kind.all_path(),
            if selectors.is_empty() { "" } else { "&" },
            selectors
        ))
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "application/json")
        .body(Vec::new())
        .map_err(|e| Failure::Other(e.to_string()))?;
        match timeout_at(Instant::now() + within, self.client.request_stream(request)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(self.understand(&error)),
            Err(_) => Err(Failure::Other("no answer in time".to_owned())),
        }
    }

    /// Before every list and every watch: API servers of two versions may answer in
    /// turn, and one that does not know the group lists nothing with a clear
    /// conscience. Where discovery has no answer the list or watch itself finds out.
    async fn served(&self) -> Result<(), Failure> {
        match self.discovery.ask(self.kind).await {
            Ok(Served::No) => Err(Failure::Unserved),
            Ok(Served::Yes) | Err(_) => Ok(()),
        }
    }

    fn understand(&self, error: &kube::Error) -> Failure {
        let kube::Error::Api(status) = error else {
            return Failure::Other(error.to_string());
        };
        match status.code {
            404 => {
                // Servers of two versions may answer in turn: ask again who serves what.
                self.discovery.invalidate();
                Failure::Unserved
            }
            403 => Failure::Forbidden(status.message.clone()),
            410 => {
                // Only a list in pages is answered with a token.
                let token = status.metadata.as_ref().and_then(|meta| meta.continue_.clone());
                token.filter(|token| !token.is_empty()).map_or(Failure::Expired, Failure::PageExpired)
            }
            429 => Failure::Throttled(
                status.details.as_ref().map(|d| Duration::from_secs(d.retry_after_seconds.into())),
            ),
            _ => Failure::Other(status.message.clone()),
        }
    }
}

impl Source for Watched {
    type Events = Lines;

    fn place(&self) -> String {
        match self.selectors.query() {
            all if all.is_empty() => self.kind.all_path(),
            some => format!("{}?{}", self.kind.all_path(), some),
        }
    }

    async fn list(&mut self, page: Option<&str>) -> Result<Page, Failure> {
        #[derive(Deserialize)]
        struct List {
            metadata: ListMeta,
            #[serde(default)]
            items: Option<Vec<Box<RawValue>>>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ListMeta {
            #[serde(default)]
            r#continue: Option<String>,
            #[serde(default)]
            resource_version: String,
        }
        if page.is_none() {
            self.served().await?;
        }
        let token = page.map(|token| format!("&continue={}", encode(token))).unwrap_or_default();
        let mut stream = self.open(format!("limit={PAGE}{token}"), LISTS).await?;
        let mut text = Vec::new();
        let deadline = Instant::now() + LISTS;
        let read = futures::AsyncReadExt::read_to_end(&mut stream, &mut text);
        match timeout_at(deadline, read).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(Failure::Other(error.to_string())),
            Err(_) => return Err(Failure::Other("the list broke off".to_owned())),
        }
        let list: List = serde_json::from_slice(&text).map_err(|e| Failure::Undecodable(e.to_string()))?;
        Ok(Page {
            items: list.items.unwrap_or_default(),
            next: list.metadata.r#continue.filter(|token| !token.is_empty()),
            version: list.metadata.resource_version,
        })
    }

    async fn watch(&mut self, version: &str) -> Result<Lines, Failure> {
        self.served().await?;
        let query = format!(
            "watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            WATCH_LASTS.as_secs(),
            encode(version)
        );
        let stream = self.open(query, OPENS).await?;
        Ok(Lines { stream: Box::pin(stream), line: Vec::new(), kind: self.kind })
    }
}

/// Percent-encodes what a query value may not hold.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// A watch that arrives as lines of JSON.
pub struct Lines {
    stream: std::pin::Pin<Box<dyn AsyncBufRead + Send>>,
    line: Vec<u8>,
    kind: Kind,
}

#[derive(Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl Watch for Lines {
    async fn next(&mut self) -> Result<Step, Failure> {
        self.line.clear();
        let read = self.stream.read_until(b'\n', &mut self.line);
        let length = match timeout_at(Instant::now() + SILENCE, read).await {
            Ok(Ok(length)) => length,
            // A connection that breaks is an ordinary end: the watch is resumed.
            Ok(Err(error)) => {
                tracing::debug!(kind = self.kind.kind, %error, "watch broke off");
                return Ok(Step::End);
            }
            Err(_) => return Err(Failure::Other("the watch fell silent".to_owned())),
        };
        if length == 0 || self.line.last() != Some(&b'\n') {
            return Ok(Step::End);
        }
        let undecodable = |e: serde_json::Error| Failure::Undecodable(e.to_string());
        let event: Event<'_> = serde_json::from_slice(&self.line).map_err(undecodable)?;
        match event.r#type {
            "ADDED" | "MODIFIED" => Ok(Step::Applied(event.object.to_owned())),
            "DELETED" => Ok(Step::Deleted(event.object.to_owned())),
            "BOOKMARK" => {
                let object: super::MetaOnly =
                    serde_json::from_str(event.object.get()).map_err(undecodable)?;
                Ok(Step::Bookmark(object.metadata.resource_version.into()))
            }
            "ERROR" => {
                let status: ErrorStatus = serde_json::from_str(event.object.get()).map_err(undecodable)?;
                Err(status.failure(self.kind))
            }
            other => Err(Failure::Undecodable(format!("watch event of type {other:?}"))),
        }
    }
}

#[derive(Deserialize)]
struct ErrorStatus {
    #[serde(default)]
    code: u16,
    #[serde(flatten)]
    status: Status,
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
mod tests;
