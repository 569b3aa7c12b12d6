//! Where lists and watches come from: an API server, or a script in a test.

use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use dragoman_objects::Object;
use futures::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use http::{Method, Request, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::event::{Step, decode_event};
use super::item::{Item, decode_item};
use crate::api::USER_AGENT;
use crate::discovery::{Discovery, Served};
use crate::kind::Kind;
use crate::metrics::ClientMetrics;
use dragoman_objects::Cutter;

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
    /// The newest state is older than one that was seen.
    #[error("the API server was at version {seen} and is at {newest}: its store was restored from a backup")]
    WentBack {
        /// The version that was seen.
        seen: String,
        /// That of the newest state.
        newest: String,
    },
    /// An object or the answer itself does not decode.
    #[error("does not decode: {0}")]
    Undecodable(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

crate::words! {
    Failure, REASONS, reason;
    Self::Expired => "Expired",
    Self::PageExpired(_) => "PageExpired",
    Self::Unserved => "Unserved",
    Self::Throttled(_) => "Throttled",
    Self::Forbidden(_) => "Forbidden",
    Self::Fruitless => "Fruitless",
    Self::WentBack { .. } => "WentBack",
    Self::Undecodable(_) => "Undecodable",
    Self::Other(_) => "Other",
}

/// Metadata of a page of a list, without the items.
#[derive(Debug)]
pub struct Page {
    /// Token of the next page.
    pub next: Option<String>,
    /// resourceVersion of the list.
    pub version: String,
}

/// Lists and watches one kind.
pub trait Source: Send + 'static {
    /// The type of the objects.
    type Object: Object + Send + 'static;
    /// An open watch.
    type Events: Watch<Object = Self::Object>;
    /// Where that is, for people: a URL path.
    fn place(&self) -> String;
    /// One page of a complete list; `page` is the token of the page before. `each` receives the objects
    /// as they arrive, also those of a page that breaks off.
    fn list(
        &mut self,
        page: Option<&str>,
        each: impl FnMut(Item<Self::Object>) + Send,
    ) -> impl Future<Output = Result<Page, Failure>> + Send;
    /// The resourceVersion of the newest state. It is read from the store, so that it is no older than any that the server has shown.
    fn newest(&mut self) -> impl Future<Output = Result<String, Failure>> + Send;
    /// Opens a watch from just after `version`, which the server ends after the time `lasts`.
    fn watch(
        &mut self,
        version: &str,
        lasts: Duration,
    ) -> impl Future<Output = Result<Self::Events, Failure>> + Send;
}

/// An open watch.
pub trait Watch: Send {
    /// The type of the objects.
    type Object: Object;
    /// The next step.
    fn next(&mut self) -> impl Future<Output = Result<Step<Self::Object>, Failure>> + Send;
}

/// Objects per page: an API server answers 500 Pods in some tens of
/// milliseconds. Our memory holds one object of a page at a time.
const PAGE: u32 = 500;
/// Time for which the server is asked to keep a watch open. The server sends a bookmark each minute and
/// shortly before the end, and then closes the watch in good order, so that it is resumed. Less than a
/// minute: silence is noticed sooner than a missing bookmark would be, and a resumed watch costs the
/// API server no read of etcd.
pub(super) const WATCH_LASTS: Duration = Duration::from_secs(45);
/// Silence after which a watch counts as dead: it has outlived its own time.
const SILENCE: Duration = Duration::from_secs(50);
/// Timeout for the start of a watch, and for the list of one object that finds the newest version: an API
/// server lets a request wait 15 s for its turn.
const OPENS: Duration = Duration::from_secs(20);
/// Timeout for the start of a page, and for its arrival: an API server ends requests after a minute.
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

/// The client for lists and watches. Cheap to clone.
#[derive(Clone)]
pub struct WatchClient {
    client: kube::Client,
    metrics: ClientMetrics,
}

impl WatchClient {
    /// Sends through `client`, which must not have a read timeout, and counts in `metrics`.
    pub fn new(client: kube::Client, metrics: ClientMetrics) -> Self {
        Self { client, metrics }
    }

    /// The answer to a GET, as it arrives.
    async fn stream(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<impl AsyncBufRead + Send + use<>, kube::Error> {
        let answer = self.client.request_stream(request).await;
        let code = match &answer {
            Ok(_) => Some(200),
            Err(kube::Error::Api(status)) => Some(status.code),
            Err(_) => None,
        };
        self.metrics.answered(&Method::GET, code);
        answer
    }
}

/// One kind on an API server, read as `T`.
pub struct Watched<T> {
    client: WatchClient,
    kind: Kind,
    discovery: Discovery,
    selectors: Selectors,
    read_as: PhantomData<fn() -> T>,
}

impl<T: Object> Watched<T> {
    /// Watches `kind` in all namespaces through `client`.
    pub fn new(client: WatchClient, kind: Kind, discovery: Discovery) -> Self {
        Self { client, kind, discovery, selectors: Selectors::default(), read_as: PhantomData }
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
    ) -> Result<impl AsyncBufRead + Send + use<T>, Failure> {
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
        match timeout_at(Instant::now() + within, self.client.stream(request)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(self.understand(&error)),
            Err(_) => {
                self.client.metrics.answered(&Method::GET, None);
                Err(Failure::Other("no answer in time".to_owned()))
            }
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

impl<T: Object + Send + 'static> Source for Watched<T> {
    type Object = T;
    type Events = Lines<T>;

    fn place(&self) -> String {
        match self.selectors.query() {
            all if all.is_empty() => self.kind.all_path(),
            some => format!("{}?{}", self.kind.all_path(), some),
        }
    }

    async fn list(
        &mut self,
        page: Option<&str>,
        mut each: impl FnMut(Item<T>) + Send,
    ) -> Result<Page, Failure> {
        if page.is_none() {
            self.served().await?;
        }
        let token = page.map(|token| format!("&continue={}", encode(token))).unwrap_or_default();
        let stream = self.open(format!("limit={PAGE}{token}"), LISTS).await?;
        let mut stream = std::pin::pin!(stream);
        let mut cutter = Cutter::default();
        let deadline = Instant::now() + LISTS;
        loop {
            let chunk = match timeout_at(deadline, stream.fill_buf()).await {
                Ok(Ok([])) => break,
                Ok(Ok(chunk)) => chunk,
                Ok(Err(error)) => return Err(Failure::Other(error.to_string())),
                Err(_) => return Err(Failure::Other("the list broke off".to_owned())),
            };
            let length = chunk.len();
            let each = &mut |text: &[u8], _: &[u8]| decode_item(text).map(&mut each);
            let end = cutter.feed(chunk, each).map_err(Failure::Undecodable)?;
            if chunk.get(end..).is_some_and(|behind| !behind.trim_ascii().is_empty()) {
                return Err(Failure::Undecodable("there is text behind the list".to_owned()));
            }
            stream.as_mut().consume(length);
        }
        let List { metadata } =
            serde_json::from_slice(cutter.rest()).map_err(|e| Failure::Undecodable(e.to_string()))?;
        Ok(Page {
            next: metadata.r#continue.filter(|token| !token.is_empty()),
            version: metadata.resource_version,
        })
    }

    async fn newest(&mut self) -> Result<String, Failure> {
        // A list that asks for no version is of the newest state. It has one object at most.
        let stream = self.open("limit=1".to_owned(), OPENS).await?;
        let (mut stream, mut text) = (std::pin::pin!(stream), Vec::new());
        match timeout_at(Instant::now() + OPENS, stream.read_to_end(&mut text)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(Failure::Other(error.to_string())),
            Err(_) => return Err(Failure::Other("the list broke off".to_owned())),
        }
        let List { metadata } =
            serde_json::from_slice(&text).map_err(|e| Failure::Undecodable(e.to_string()))?;
        Ok(metadata.resource_version)
    }

    async fn watch(&mut self, version: &str, lasts: Duration) -> Result<Lines<T>, Failure> {
        self.served().await?;
        let query = format!(
            "watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            lasts.as_secs(),
            encode(version)
        );
        let stream = self.open(query, OPENS).await?;
        Ok(Lines { stream: Box::pin(stream), line: Vec::new(), kind: self.kind, read_as: PhantomData })
    }
}

/// Everything but what a URL may hold anywhere (RFC 3986, 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes what a query value may not hold.
fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// A list without its items.
#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    r#continue: Option<String>,
    #[serde(default)]
    resource_version: String,
}

/// A watch that arrives as lines of JSON.
pub struct Lines<T> {
    stream: std::pin::Pin<Box<dyn AsyncBufRead + Send>>,
    line: Vec<u8>,
    kind: Kind,
    read_as: PhantomData<fn() -> T>,
}

impl<T: Object> Watch for Lines<T> {
    type Object = T;

    async fn next(&mut self) -> Result<Step<T>, Failure> {
        self.line.clear();
        let read = self.stream.read_until(b'\n', &mut self.line);
        let length = match timeout_at(Instant::now() + SILENCE, read).await {
            Ok(Ok(length)) => length,
            // A connection that breaks is no failure: the watch is resumed.
            Ok(Err(error)) => {
                tracing::debug!(kind = self.kind.kind, %error, "watch broke off");
                return Ok(Step::Cut);
            }
            Err(_) => return Err(Failure::Other("the watch fell silent".to_owned())),
        };
        if length == 0 {
            return Ok(Step::End);
        }
        if self.line.last() != Some(&b'\n') {
            return Ok(Step::Cut);
        }
        let step = decode_event(&self.line, self.kind);
        // An ordinary object has some kilobytes; the room of one with large annotations is given back.
        self.line.clear();
        self.line.shrink_to(ORDINARY);
        step
    }
}

/// Bytes of a line whose room is kept for the next.
const ORDINARY: usize = 64 << 10;

#[cfg(test)]
mod tests;
