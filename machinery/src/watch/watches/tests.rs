use dragoman_crds::device_footprint::DeviceFootprint;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dragoman_objects::{Pod, PodGroup, StorageClass};
use tokio::sync::mpsc;

use super::*;
use crate::metrics::MachineryMetrics;
use crate::watch::fake;

/// Says when a list is complete.
struct Lists(mpsc::UnboundedSender<Kind>, Option<Kind>);

impl Sink for Lists {
    type Object = PodGroup;
    fn name(&self) -> String {
        "lists".to_owned()
    }
    fn serving(&mut self, kind: Kind) {
        self.1 = Some(kind);
    }
    fn began(&mut self) {}
    fn applied(&mut self, _item: &Item<PodGroup>) {}
    fn deleted(&mut self, _meta: &Meta) {}
    fn completed(&mut self, _version: &str) {
        if let Some(kind) = self.1 {
            self.0.send(kind).ok();
        }
    }
    fn advanced(&mut self, _version: &str) {}
    fn failed(&mut self, _failure: &Failure) {}
}

/// The first version of PodGroups whose list completes on a server that answers with `answer(path,
/// seconds since the start)`.
async fn listed(answer: fn(&str, u64) -> (u16, &'static str)) -> Kind {
    let began = tokio::time::Instant::now();
    let (client, discovery) = fake::server(move |path| answer(path, began.elapsed().as_secs()));
    let journal = Journal::new(MachineryMetrics::default());
    let (completed, mut lists) = mpsc::unbounded_channel();
    let mut watches = Watches::default();
    watches.feed(Selectors::default(), Lists(completed, None));
    let tasks = watches.open(&Connection { client, discovery, journal });
    let tasks: Vec<_> = tasks.into_iter().map(|task| tokio::spawn(task.future)).collect();
    let first = tokio::time::timeout(Duration::from_hours(1), lists.recv()).await;
    let first = first.expect("within an hour").expect("a list");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    first
}

const LIST: &str = r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#;
const SERVED: &str = r#"{"resources":[{"name":"podgroups"}]}"#;
const NOT_THERE: &str = r#"{"kind":"Status","status":"Failure","reason":"NotFound","details":{},"code":404}"#;

#[tokio::test(start_paused = true)]
async fn an_account_that_may_not_ask_what_is_served_finds_out_by_listing() {
    let kind = listed(|path, _| match path {
        "/apis/scheduling.k8s.io/v1alpha2/podgroups" => (200, LIST),
        path if path.ends_with("/podgroups") => (404, NOT_THERE),
        _ => (403, r#"{"kind":"Status","reason":"Forbidden","code":403}"#),
    })
    .await;
    assert_eq!(kind.version, "v1alpha2");
}

/// An API group that is installed while its Pods wait is found soon, not after minutes.
#[tokio::test(start_paused = true)]
async fn a_kind_that_was_not_served_at_the_start_is_found_within_half_a_minute() {
    let began = tokio::time::Instant::now();
    listed(|path, seconds| match path {
        _ if seconds < 8 => (404, NOT_THERE),
        path if path.ends_with("/podgroups") => (200, LIST),
        _ => (200, SERVED),
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// A release may serve a kind in a version alone that is newer than this program.
#[tokio::test(start_paused = true)]
async fn a_version_that_is_not_known_here_is_found_by_its_group() {
    let kind = listed(|path, _| match path {
        "/apis/scheduling.k8s.io" => (200, r#"{"versions":[{"version":"v1"},{"version":"v1beta1"}]}"#),
        "/apis/scheduling.k8s.io/v1" => (200, SERVED),
        "/apis/scheduling.k8s.io/v1/podgroups" => (200, LIST),
        _ => (404, NOT_THERE),
    })
    .await;
    assert_eq!((kind.version, kind.plural), ("v1", "podgroups"));
}

/// A version that is known is taken even where a newer one is served beside it: its fields are known.
#[tokio::test(start_paused = true)]
async fn a_known_version_is_preferred() {
    let kind = listed(|path, _| match path {
        "/apis/scheduling.k8s.io" => (200, r#"{"versions":[{"version":"v1"},{"version":"v1alpha2"}]}"#),
        "/apis/scheduling.k8s.io/v1" | "/apis/scheduling.k8s.io/v1alpha2" => (200, SERVED),
        path if path.ends_with("/podgroups") => (200, LIST),
        _ => (404, NOT_THERE),
    })
    .await;
    assert_eq!(kind.version, "v1alpha2");
}

/// Takes nothing in, says when a list is complete, and counts how often the kind is said to be one that may not be read.
struct Complete<T> {
    lists: mpsc::UnboundedSender<()>,
    forbidden: Arc<AtomicUsize>,
    kind: PhantomData<fn(T)>,
}

impl<T> Complete<T> {
    fn new(lists: mpsc::UnboundedSender<()>) -> Self {
        Self { lists, forbidden: Arc::default(), kind: PhantomData }
    }
}

impl<T: Watchable> Sink for Complete<T> {
    type Object = T;
    fn name(&self) -> String {
        "complete".to_owned()
    }
    fn serving(&mut self, _kind: Kind) {}
    fn began(&mut self) {}
    fn applied(&mut self, _item: &Item<T>) {}
    fn deleted(&mut self, _meta: &Meta) {}
    fn completed(&mut self, _version: &str) {
        self.lists.send(()).ok();
    }
    fn advanced(&mut self, _version: &str) {}
    fn failed(&mut self, _failure: &Failure) {}
    fn forbidden(&mut self) {
        self.forbidden.fetch_add(1, Ordering::Relaxed);
    }
}

/// The definitions of our own kinds may be applied later, or be gone. A process without them leads all the same,
/// and finds them soon after they have come.
#[tokio::test(start_paused = true)]
async fn a_kind_of_ours_that_is_not_defined_makes_no_leader_blind() {
    const DEFINED: u64 = 3_600;
    let began = tokio::time::Instant::now();
    let (client, discovery) = fake::server(move |path| match path {
        _ if began.elapsed().as_secs() < DEFINED => (404, NOT_THERE),
        path if path.ends_with("/devicefootprints") => (200, LIST),
        _ => (200, r#"{"resources":[{"name":"devicefootprints"}]}"#),
    });
    let journal = Journal::new(MachineryMetrics::default());
    let (completed, mut lists) = mpsc::unbounded_channel();
    let mut watches = Watches::default();
    watches.feed(Selectors::default(), Complete::<DeviceFootprint>::new(completed));
    let tasks = watches.open(&Connection { client, discovery, journal: journal.clone() });
    let tasks: Vec<_> = tasks.into_iter().map(|task| tokio::spawn(task.future)).collect();
    sleep(Duration::from_secs(DEFINED)).await;
    assert_eq!(journal.blind(), None, "a kind that is not served does not count");
    assert!(journal.is_renewed(), "nor does a new leader wait for it");
    lists.recv().await.expect("a list");
    assert!(began.elapsed() <= Duration::from_secs(DEFINED + 16), "{:?}", began.elapsed());
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Whether a process that may not list a kind for an hour is blind then, and the time after which it has a list once it may.
async fn refused<T: Watchable>() -> (bool, Duration) {
    const ALLOWED: u64 = 3_600;
    let began = tokio::time::Instant::now();
    let plural = T::NEWEST.plural;
    let (client, discovery) = fake::server(move |path| match path {
        path if !path.ends_with(plural) && plural == "pods" => (200, r#"{"resources":[{"name":"pods"}]}"#),
        path if !path.ends_with(plural) => (200, r#"{"resources":[{"name":"storageclasses"}]}"#),
        _ if began.elapsed().as_secs() < ALLOWED => {
            (403, r#"{"kind":"Status","status":"Failure","reason":"Forbidden","code":403}"#)
        }
        _ => (200, LIST),
    });
    let journal = Journal::new(MachineryMetrics::default());
    let (completed, mut lists) = mpsc::unbounded_channel();
    let mut watches = Watches::default();
    watches.feed(Selectors::default(), Complete::<T>::new(completed));
    let tasks = watches.open(&Connection { client, discovery, journal: journal.clone() });
    let tasks: Vec<_> = tasks.into_iter().map(|task| tokio::spawn(task.future)).collect();
    // Between two tries.
    sleep(Duration::from_secs(ALLOWED - 1)).await;
    let mut blind = false;
    for _ in 0..30 {
        blind |= journal.blind().is_some_and(|since| since.elapsed() > Duration::from_secs(20));
        sleep(Duration::from_millis(30)).await;
    }
    lists.recv().await.expect("a list");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    (blind, began.elapsed().saturating_sub(Duration::from_secs(ALLOWED)))
}

/// An upgrade may bring a kind along whose right comes later. A leader would free its Lease after 30 seconds of blindness.
#[tokio::test(start_paused = true)]
async fn a_kind_that_may_not_be_read_makes_no_leader_blind_unless_nothing_works_without_it() {
    let (blind, found) = refused::<StorageClass>().await;
    assert!(!blind && found <= Duration::from_secs(25), "{blind} {found:?}");
    assert!(refused::<Pod>().await.0, "another process may have the right");
}

/// An API server that has just started refuses for a moment what it allows soon. Nothing is forgotten for that.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_refused_for_a_moment_is_none_that_is_forbidden() {
    for (seconds, forbidden) in [(2, false), (60, true)] {
        let began = tokio::time::Instant::now();
        let (client, discovery) = fake::server(move |path| match path {
            path if !path.ends_with("storageclasses") => {
                (200, r#"{"resources":[{"name":"storageclasses"}]}"#)
            }
            _ if began.elapsed().as_secs() < seconds => {
                (403, r#"{"kind":"Status","status":"Failure","reason":"Forbidden","code":403}"#)
            }
            _ => (200, LIST),
        });
        let journal = Journal::new(MachineryMetrics::default());
        let (completed, mut lists) = mpsc::unbounded_channel();
        let sink = Complete::<StorageClass>::new(completed);
        let count = Arc::clone(&sink.forbidden);
        let mut watches = Watches::default();
        watches.feed(Selectors::default(), sink);
        let tasks = watches.open(&Connection { client, discovery, journal });
        let tasks: Vec<_> = tasks.into_iter().map(|task| tokio::spawn(task.future)).collect();
        lists.recv().await.expect("a list");
        assert_eq!(count.load(Ordering::Relaxed) > 0, forbidden, "{seconds} s");
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// A kind of ours in a version that is not known here may mean anything.
#[tokio::test(start_paused = true)]
async fn a_kind_of_ours_is_not_read_in_a_version_that_is_not_known() {
    let (_, discovery) = fake::server(|path| match path {
        "/apis/dragoman.dev" => (200, r#"{"versions":[{"version":"v1"}]}"#),
        "/apis/dragoman.dev/v1" => (200, r#"{"resources":[{"name":"devicefootprints"}]}"#),
        _ => (404, NOT_THERE),
    });
    assert_eq!(discovery.first_served(DeviceFootprint::KINDS).await, Ok(None));
}
