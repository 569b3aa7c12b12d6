//! Measures the cost of a watch: with our driver (`dragoman_machinery::watch`), and with kube-runtime's
//! `watcher` in its place (docs/adr/0006-no-kube-runtime.md).
//!
//! A server in this process lists Pods with claims in pages, then sends changes of them, with bookmarks,
//! over watches that it closes in good order. Both readers decode the same wire type and feed the same
//! sink, which keeps the index of `claim_lifecycle`. Every run is a process of its own, the readers in
//! turn:
//!
//! ```text
//! cargo run --release -p dragoman-lab --example watch_cost -- 9
//! cargo rustc --release -p dragoman-lab --example watch_cost -- --cfg heap
//! target/release/examples/watch_cost 1
//! ```
//!
//! The first command measures cpu and resident memory with the allocator of the operator, in nine
//! rounds. The others count the bytes of the live heap, on the system's allocator.

#![expect(clippy::expect_used, clippy::print_stdout, reason = "a measurement: whatever fails ends it")]
#![allow(unexpected_cfgs, reason = "`heap` is given by hand, see above")]

mod pods;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use dragoman_machinery::api::Limits;
use dragoman_machinery::connect::within;
use dragoman_machinery::controller::{Fed, Index as _, Keeps};
use dragoman_machinery::discovery::Discovery;
use dragoman_machinery::kind::Kind;
use dragoman_machinery::metrics::MachineryMetrics;
use dragoman_machinery::watch::{Connection, Failure, Item, Journal, Selectors, Sink, Watches, decode_item};
use dragoman_objects::{self as objects, Meta};
use dragoman_reconcilers::claim_lifecycle::State;
use futures::{StreamExt as _, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::api::ObjectMeta;
use kube::core::NamespaceResourceScope;
use kube::runtime::{WatchStreamExt as _, watcher};
use prometheus_client::registry::Registry;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, oneshot};

use self::pods::Text;

#[cfg(not(heap))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(heap)]
#[global_allocator]
static ALLOCATOR: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

/// Pods that are listed.
const PODS: usize = 20_000;
/// Changes of them that follow.
const EVENTS: usize = 100_000;
/// Changes after which a bookmark is sent.
const BOOKMARK: usize = 1_000;
/// Changes after which the server closes a watch in good order.
const SEGMENT: usize = 10_000;
/// The resourceVersion of the list.
const LISTED: usize = 1_000_000;
/// The size of a frame of a list.
const FRAME: usize = 64 << 10;

/// The readers, as the command line names them.
const READERS: [&str; 4] = ["ours", "kube", "kube-tolerant", "none"];

// ---- the server

type Body = UnsyncBoxBody<Bytes, Infallible>;

#[derive(Clone)]
struct Server {
    text: Arc<Text>,
    /// A permit for every watch that is asked for.
    asked: Arc<Semaphore>,
    /// A permit lets watches send.
    open: Arc<Semaphore>,
}

impl Server {
    fn new() -> Self {
        let closed = || Arc::new(Semaphore::new(0));
        Self { text: Arc::new(Text::new()), asked: closed(), open: closed() }
    }

    fn answer(&self, uri: &http::Uri) -> http::Response<Body> {
        let query: BTreeMap<&str, &str> =
            uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('=')).collect();
        let number = |name: &str| query.get(name).and_then(|value| value.parse::<usize>().ok());
        http::Response::new(match uri.path() {
            "/api/v1" => {
                let pods =
                    json!({"name": "pods", "namespaced": true, "kind": "Pod", "verbs": ["list", "watch"]});
                let list =
                    json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [pods]}).to_string();
                Full::new(Bytes::from(list)).boxed_unsync()
            }
            "/api/v1/pods" if query.contains_key("watch") => {
                self.watch(number("resourceVersion").expect("a version"))
            }
            "/api/v1/pods" => self.list(number("continue").unwrap_or(0), number("limit").unwrap_or(PODS)),
            other => unreachable!("{other}"),
        })
    }

    /// A page, in frames.
    fn list(&self, first: usize, limit: usize) -> Body {
        let text = Arc::clone(&self.text);
        let end = PODS.min(first + limit);
        let token = if end < PODS { json!(end.to_string()) } else { json!("") };
        let metadata = json!({"resourceVersion": LISTED.to_string(), "continue": token,
            "remainingItemCount": PODS - end});
        let head = format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":["#);
        let frames = stream::unfold((head, first), move |(mut frame, mut i)| {
            let text = Arc::clone(&text);
            async move {
                if i > end {
                    return None;
                }
                while i < end && frame.len() < FRAME {
                    text.write(&mut frame, i, LISTED - PODS + i, 0);
                    i += 1;
                    frame.push_str(if i < end { "," } else { "" });
                }
                if i == end {
                    frame.push_str("]}\n");
                    i += 1;
                }
                let next = String::with_capacity(FRAME + (8 << 10));
                Some((Ok(http_body::Frame::data(Bytes::from(frame))), (next, i)))
            }
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// A watch: one frame for each event, as API servers send them.
    fn watch(&self, version: usize) -> Body {
        self.asked.add_permits(1);
        let (text, open) = (Arc::clone(&self.text), Arc::clone(&self.open));
        let first = version - LISTED;
        let frames = stream::unfold((first, false), move |(sent, bookmark)| {
            let (text, open) = (Arc::clone(&text), Arc::clone(&open));
            async move {
                let mut line = String::with_capacity(5 << 10);
                if bookmark {
                    let version = LISTED + sent;
                    let metadata = format!(r#"{{"resourceVersion":"{version}","creationTimestamp":null}}"#);
                    let object = format!(
                        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"spec":{{"containers":null}},"status":{{}}}}"#
                    );
                    line = format!(r#"{{"type":"BOOKMARK","object":{object}}}"#);
                    line.push('\n');
                    return Some((Ok(http_body::Frame::data(Bytes::from(line))), (sent, false)));
                }
                if sent == EVENTS {
                    return std::future::pending().await;
                }
                if sent == first {
                    drop(open.acquire().await);
                } else if sent.is_multiple_of(SEGMENT) {
                    return None;
                }
                line.push_str(r#"{"type":"MODIFIED","object":"#);
                let sent = sent + 1;
                text.write(&mut line, sent * 7_919 % PODS, LISTED + sent, sent / PODS);
                line.push_str("}\n");
                let frame = http_body::Frame::data(Bytes::from(line));
                Some((Ok(frame), (sent, sent.is_multiple_of(BOOKMARK))))
            }
        });
        StreamBody::new(frames).boxed_unsync()
    }
}

impl<B> tower::Service<http::Request<B>> for Server {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        std::future::ready(Ok(self.answer(request.uri())))
    }
}

// ---- the sink

/// Keeps the index, as `controller::Feed` does, without a queue.
struct Feed {
    state: State,
    counts: Counts,
    /// Gets the counts with the last event.
    done: Option<oneshot::Sender<Counts>>,
}

#[derive(Default)]
struct Counts {
    applied: usize,
    dirty: usize,
    advanced: usize,
    lists: usize,
}

impl Feed {
    fn change(&mut self, change: impl FnOnce(&mut State) -> usize) {
        self.state.at(dragoman_machinery::clock::now());
        self.counts.dirty += change(&mut self.state);
    }
}

impl Sink for Feed {
    type Object = objects::Pod;

    fn name(&self) -> String {
        "claim_lifecycle".to_owned()
    }

    fn serving(&mut self, _kind: Kind) {}

    fn began(&mut self) {
        Fed::<objects::Pod>::began(&mut self.state);
    }

    fn applied(&mut self, item: &Item<objects::Pod>) {
        self.change(|state| Fed::<objects::Pod>::applied(state, item).len());
        self.counts.applied += 1;
        if self.counts.applied == PODS + EVENTS {
            let kept = Keeps::<objects::Pod>::store_mut(&mut self.state).len();
            assert!((kept, self.counts.lists) == (PODS, 1), "{kept} kept, {} lists", self.counts.lists);
            let done = self.done.take().and_then(|done| done.send(std::mem::take(&mut self.counts)).ok());
            done.expect("the measurement waits");
        }
    }

    fn deleted(&mut self, meta: &Meta) {
        self.change(|state| Fed::<objects::Pod>::deleted(state, meta).len());
    }

    fn completed(&mut self, version: &str) {
        self.change(|state| Fed::<objects::Pod>::completed(state, version).len());
        self.counts.lists += 1;
    }

    fn advanced(&mut self, version: &str) {
        Keeps::<objects::Pod>::store_mut(&mut self.state).advance(version);
        self.counts.advanced += 1;
    }

    fn failed(&mut self, failure: &Failure) {
        unreachable!("{failure}");
    }
}

// ---- the readers

/// With our driver.
fn ours(server: &Server, feed: Feed) {
    let mut registry = Registry::default();
    let clients = within(server, Limits::default(), &mut registry);
    let connection = Connection {
        client: clients.watch,
        discovery: Discovery::new(clients.api),
        journal: Journal::new(MachineryMetrics::register(&mut registry)),
    };
    let mut watches = Watches::default();
    watches.feed(Selectors::default(), feed);
    for task in watches.open(&connection) {
        drop(tokio::spawn(task.future));
    }
}

/// The wire type as kube knows objects. Of the metadata there is what `watcher` reads: the version.
/// A tolerant one is there even where it does not decode, like ours.
#[derive(Debug, Clone)]
struct Thin<const TOLERANT: bool> {
    item: Item<objects::Pod>,
    meta: ObjectMeta,
}

impl<'de, const TOLERANT: bool> Deserialize<'de> for Thin<TOLERANT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let item = if TOLERANT {
            let raw = Box::<RawValue>::deserialize(deserializer)?;
            decode_item(raw.get().as_bytes()).map_err(serde::de::Error::custom)?
        } else {
            Item::Readable(objects::Pod::deserialize(deserializer)?)
        };
        let version = Some(item.meta().resource_version.to_string());
        Ok(Self { item, meta: ObjectMeta { resource_version: version, ..ObjectMeta::default() } })
    }
}

impl<const TOLERANT: bool> kube::Resource for Thin<TOLERANT> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// With kube-runtime.
async fn kube_runtime<const TOLERANT: bool>(server: Server, feed: Feed) {
    let client = kube::Client::new(server, "kube-system");
    let api = kube::Api::<Thin<TOLERANT>>::all(client);
    // In a box, as in a `Fanout`.
    let mut sinks: Vec<Box<dyn Sink<Object = objects::Pod>>> = vec![Box::new(feed)];
    // The time of a watch and the size of a page are those of our driver.
    let config = watcher::Config::default().timeout(45).page_size(500);
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    // The version of the list is not told.
    let mut highest = 0;
    while let Some(event) = events.next().await {
        match event.expect("an event") {
            watcher::Event::Init => sinks.iter_mut().for_each(|sink| sink.began()),
            watcher::Event::InitApply(object) => {
                highest = highest.max(object.item.meta().resource_version.parse::<u64>().unwrap_or(0));
                for sink in &mut sinks {
                    sink.applied(&object.item);
                }
            }
            watcher::Event::InitDone => {
                let version = highest.to_string();
                for sink in &mut sinks {
                    sink.completed(&version);
                }
            }
            watcher::Event::Apply(object) => sinks.iter_mut().for_each(|sink| sink.applied(&object.item)),
            watcher::Event::Delete(object) => {
                for sink in &mut sinks {
                    sink.deleted(object.item.meta());
                }
            }
        }
    }
}

/// Reads and forgets: what the server itself costs.
async fn none(server: Server, done: oneshot::Sender<Counts>) {
    let (mut at, mut bytes, mut lines) = (0, 0, 0);
    while at < PODS {
        let mut page = server.list(at, 500);
        while let Some(frame) = page.frame().await {
            bytes +=
                frame.into_iter().filter_map(|frame| frame.into_data().ok()).map(|d| d.len()).sum::<usize>();
        }
        at += 500;
    }
    for segment in 0..EVENTS / SEGMENT {
        let mut watch = server.watch(LISTED + segment * SEGMENT);
        let lines_end = (segment + 1) * (SEGMENT + SEGMENT / BOOKMARK);
        while lines < lines_end
            && let Some(frame) = watch.frame().await
        {
            lines += 1;
            bytes +=
                frame.into_iter().filter_map(|frame| frame.into_data().ok()).map(|d| d.len()).sum::<usize>();
        }
    }
    assert!(bytes > (PODS + EVENTS) * 3_500, "{bytes}");
    done.send(Counts::default()).ok().expect("the measurement waits");
}

// ---- the figures

/// Cpu of this thread, the only one, user and system, in milliseconds.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("schedstat");
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.expect("a number") / 1e6
}

/// A size in /proc, in MiB.
fn size(name: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    let kib = line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<f64>();
    kib.expect("a number") / 1024.0
}

/// Bytes of live heap now and at most until now, in MiB.
#[cfg(heap)]
#[expect(clippy::cast_precision_loss, reason = "bytes of a process")]
fn heap() -> Option<[f64; 2]> {
    Some([ALLOCATOR.current_usage(), ALLOCATOR.peak_usage()].map(|bytes| bytes as f64 / (1024.0 * 1024.0)))
}

#[cfg(not(heap))]
fn heap() -> Option<[f64; 2]> {
    None
}

/// One run, as a line of JSON.
async fn measure(reader: &str) {
    let server = Server::new();
    let mut length = String::new();
    server.text.write(&mut length, 1, LISTED, 0);
    let (done, when_done) = oneshot::channel();
    let feed = |done| Feed { state: State::default(), counts: Counts::default(), done: Some(done) };
    let (start, heap_start) = (cpu(), heap());
    match reader {
        "ours" => ours(&server, feed(done)),
        "kube" => drop(tokio::spawn(kube_runtime::<false>(server.clone(), feed(done)))),
        "kube-tolerant" => drop(tokio::spawn(kube_runtime::<true>(server.clone(), feed(done)))),
        _ => drop(tokio::spawn(none(server.clone(), done))),
    }
    server.asked.acquire().await.expect("open").forget();
    // The reader waits for the first event.
    tokio::task::yield_now().await;
    let (listed, heap_listed, most_listed) = (cpu(), heap(), size("VmHWM:"));
    let rss_listed = size("VmRSS:");
    server.open.add_permits(1);
    let Counts { applied, dirty, advanced, .. } = when_done.await.expect("an end");
    let (end, heap_end) = (cpu(), heap());
    let mut figures = json!({
        "count_applied": applied,
        "count_dirty_keys": dirty,
        "count_bookmarks": advanced,
        "pod_bytes": length.len(),
        "cpu_list_ms": listed - start,
        "cpu_watch_ms": end - listed,
        "cpu_ms": end - start,
        "rss_listed_mib": rss_listed,
        "hwm_listed_mib": most_listed,
        "hwm_mib": size("VmHWM:"),
    });
    if let (Some([start, _]), Some([live, peak]), Some([live_end, most]), Some(map)) =
        (heap_start, heap_listed, heap_end, figures.as_object_mut())
    {
        map.insert("heap_listed_mib".to_owned(), json!(live - start));
        map.insert("heap_end_mib".to_owned(), json!(live_end - start));
        map.insert("heap_most_listing_mib".to_owned(), json!(peak - start));
        map.insert("heap_most_mib".to_owned(), json!(most - start));
    }
    println!("{figures}");
}

/// Runs every reader in turn, so many rounds, and prints medians and their ratios to ours.
fn compare(rounds: usize) {
    let program = std::env::current_exe().expect("this program");
    let mut all: BTreeMap<(String, &str), Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        for at in 0..READERS.len() {
            // No reader is always the one that comes after the same other.
            let at = if round.is_multiple_of(2) { at } else { READERS.len() - 1 - at };
            let reader = READERS.get(at).copied().unwrap_or_default();
            let output = std::process::Command::new(&program).arg(reader).output().expect("a run");
            assert!(output.status.success(), "{reader}: {}", String::from_utf8_lossy(&output.stderr));
            let figures: BTreeMap<String, f64> = serde_json::from_slice(&output.stdout).expect("figures");
            for (name, value) in figures {
                all.entry((name, reader)).or_default().push(value);
            }
        }
    }
    let names: std::collections::BTreeSet<&String> = all.keys().map(|(name, _)| name).collect();
    print!("{:<22}", "median");
    for reader in READERS {
        print!(" {reader:>14}");
    }
    println!("  kube/ours  tolerant/ours  (of pairs, least to most)");
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    for name in names {
        let of = |reader| all.get(&(name.clone(), reader)).cloned().unwrap_or_default();
        print!("{name:<22}");
        for reader in READERS {
            print!(" {:>14.1}", median(&mut of(reader)));
        }
        for reader in ["kube", "kube-tolerant"] {
            let mut ratios: Vec<f64> =
                of(reader).iter().zip(of("ours")).map(|(theirs, ours)| theirs / ours).collect();
            let middle = median(&mut ratios);
            let (least, most) = (ratios.first().copied(), ratios.last().copied());
            print!("  {middle:.3} ({:.3}-{:.3})", least.unwrap_or_default(), most.unwrap_or_default());
        }
        println!();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    match std::env::args().nth(1) {
        Some(reader) if READERS.contains(&&*reader) => measure(&reader).await,
        rounds => compare(rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(5)),
    }
}
