use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::sync::mpsc;

mod history;

use super::journal::STALE;
use super::*;
use crate::metrics::MachineryMetrics;

/// A source that plays a script and then waits for ever.
struct Script(VecDeque<Answer>);

enum Answer {
    Page(Result<(Vec<(&'static str, &'static str)>, Option<&'static str>, &'static str), Failure>),
    Watch(Vec<Result<Step<MetaOnly>, Failure>>),
    /// A watch that stays open and brings nothing.
    Open,
    NoWatch(Failure),
    /// The version of the newest state.
    Newest(&'static str),
    /// A list that fails after this time.
    Slow(Duration),
}

/// The steps of a watch; without one it stays open and nothing comes.
struct Events(VecDeque<Option<Result<Step<MetaOnly>, Failure>>>);

fn object(name: &str, uid: &str) -> Item<MetaOnly> {
    let object = json!({"metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": "5"}});
    decode_item(object.to_string().as_bytes()).expect("metadata")
}

impl Source for Script {
    type Object = MetaOnly;
    type Events = Events;
    fn place(&self) -> String {
        "/api/v1/pods".to_owned()
    }
    async fn list(
        &mut self,
        _page: Option<&str>,
        each: impl FnMut(Item<MetaOnly>) + Send,
    ) -> Result<Page, Failure> {
        match self.0.pop_front() {
            Some(Answer::Page(page)) => page.map(|(items, next, version)| {
                items.iter().map(|(name, uid)| object(name, uid)).for_each(each);
                Page { next: next.map(str::to_owned), version: version.to_owned() }
            }),
            Some(Answer::Slow(took)) => {
                tokio::time::sleep(took).await;
                Err(Failure::Other("504".to_owned()))
            }
            Some(_) => panic!("the script expects a watch"),
            None => std::future::pending().await,
        }
    }
    async fn newest(&mut self) -> Result<String, Failure> {
        match self.0.front() {
            Some(Answer::Newest(version)) => {
                let version = (*version).to_owned();
                self.0.pop_front();
                Ok(version)
            }
            // The scripts about other things have a store that goes on.
            _ => Ok(u64::MAX.to_string()),
        }
    }
    async fn watch(&mut self, _version: &str, _lasts: Duration) -> Result<Events, Failure> {
        match self.0.pop_front() {
            Some(Answer::Watch(steps)) => Ok(Events(steps.into_iter().map(Some).collect())),
            Some(Answer::Open) => Ok(Events([None].into())),
            Some(Answer::NoWatch(failure)) => Err(failure),
            Some(_) => panic!("the script expects a list"),
            None => std::future::pending().await,
        }
    }
}

impl Watch for Events {
    type Object = MetaOnly;
    async fn next(&mut self) -> Result<Step<MetaOnly>, Failure> {
        match self.0.pop_front() {
            Some(Some(step)) => step,
            Some(None) => std::future::pending().await,
            None => Ok(Step::End),
        }
    }
}

/// An object of which nothing but the metadata is read.
#[derive(Debug, Clone, serde::Deserialize)]
struct MetaOnly {
    #[serde(default)]
    metadata: Meta,
}

impl Object for MetaOnly {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A sink over a real store; says when the script has come to its end.
struct Recorder {
    store: Arc<Mutex<Store<()>>>,
    removed: Arc<Mutex<Vec<String>>>,
    completed: mpsc::UnboundedSender<String>,
}

impl Sink for Recorder {
    type Object = MetaOnly;
    fn name(&self) -> String {
        "recorder".to_owned()
    }
    fn serving(&mut self, _kind: Kind) {}
    fn began(&mut self) {
        self.store.lock().unwrap().begin(0);
    }
    fn applied(&mut self, item: &Item<Self::Object>) {
        let body = match item {
            Item::Readable(_) => Body::Readable(()),
            Item::Unreadable { unread, .. } => Body::Unreadable(unread.clone().into()),
        };
        self.store.lock().unwrap().insert(item.meta(), body);
    }
    fn deleted(&mut self, meta: &Meta) {
        if let Some(removed) = self.store.lock().unwrap().remove(meta) {
            self.removed.lock().unwrap().push(removed.name.to_string());
        }
    }
    fn completed(&mut self, version: &str) {
        for removed in self.store.lock().unwrap().complete(version) {
            self.removed.lock().unwrap().push(removed.name.to_string());
        }
        self.completed.send(version.to_owned()).unwrap();
    }
    fn advanced(&mut self, version: &str) {
        self.store.lock().unwrap().advance(version);
        self.completed.send(version.to_owned()).unwrap();
    }
    fn failed(&mut self, _failure: &Failure) {}
}

/// Plays the script until `until` has been reached; returns names left, names removed.
async fn play(script: Vec<Answer>, until: &str) -> (Vec<String>, Vec<String>) {
    let (left, removed, _) = play_with_journal(script, until).await;
    (left, removed)
}

/// As [`play`]; also what the journal says.
async fn play_with_journal(script: Vec<Answer>, until: &str) -> (Vec<String>, Vec<String>, String) {
    let store = Arc::new(Mutex::new(Store::default()));
    let removed = Arc::new(Mutex::new(Vec::new()));
    let (completed, mut reached) = mpsc::unbounded_channel();
    let sink = Recorder { store: store.clone(), removed: removed.clone(), completed };
    let mut registry = prometheus_client::registry::Registry::default();
    let journal = Journal::new(MachineryMetrics::register(&mut registry));
    let driver = tokio::spawn(drive("Pod", Script(script.into()), sink, journal.clone()));
    loop {
        // On the paused clock: a driver that rests for an hour has come to the end of the script.
        let at = tokio::time::timeout(Duration::from_hours(1), reached.recv()).await;
        let at = at.expect("the script ended before").expect("the driver ended before");
        if at == until {
            break;
        }
    }
    driver.abort();
    let mut left: Vec<_> = store.lock().unwrap().iter().map(|(_, n, _)| n.to_string()).collect();
    left.sort();
    let mut removed = removed.lock().unwrap().clone();
    removed.sort();
    (left, removed, journal.dump())
}

#[tokio::test(start_paused = true)]
async fn the_journal_says_what_became_of_a_watch() {
    let script = vec![
        Answer::Page(Ok((vec![("a", "1")], None, "10"))),
        Answer::Watch(vec![Ok(Step::Applied(object("b", "2"))), Err(Failure::Expired)]),
        Answer::Page(Err(Failure::Other("no route".to_owned()))),
        Answer::Page(Ok((vec![], None, "20"))),
    ];
    let (_, _, journal) = play_with_journal(script, "20").await;
    let line =
        "/api/v1/pods for recorder: 3 complete lists begun, watch opened 1 times, 1 events, the last at ";
    assert!(journal.starts_with(line), "{journal}");
    assert!(journal.contains(", 1 failures, the last at "), "{journal}");
    assert!(journal.ends_with(": no route\n"), "{journal}");
}

/// A driver of `script`, and its journal.
fn driven(script: Vec<Answer>) -> (tokio::task::JoinHandle<()>, Journal) {
    driven_with(script, MachineryMetrics::default())
}

fn driven_with(script: Vec<Answer>, metrics: MachineryMetrics) -> (tokio::task::JoinHandle<()>, Journal) {
    let (completed, reached) = mpsc::unbounded_channel();
    // Nothing waits for what is reached.
    std::mem::forget(reached);
    let sink = Recorder { store: Arc::default(), removed: Arc::default(), completed };
    let journal = Journal::new(metrics);
    (tokio::spawn(drive("Pod", Script(script.into()), sink, journal.clone())), journal)
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_blind_from_its_end_until_it_is_open_again() {
    let began = tokio::time::Instant::now();
    let script = vec![
        Answer::Page(Err(Failure::Other("down".to_owned()))),
        Answer::Page(Ok((vec![("a", "1")], None, "10"))),
        Answer::Watch(vec![Ok(Step::Bookmark("11".to_owned())), Err(Failure::Other("down".to_owned()))]),
        Answer::NoWatch(Failure::Expired),
        Answer::Page(Ok((vec![("a", "1")], Some("t"), "10"))),
        Answer::Page(Err(Failure::Other("down".to_owned()))),
        Answer::Page(Ok((vec![("a", "1")], None, "10"))),
        Answer::Open,
    ];
    let (driver, journal) = driven(script);
    tokio::task::yield_now().await;
    assert_eq!(journal.blind(), Some(began), "it has never been open");
    while journal.blind() == Some(began) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Neither failures nor the pages of a list move the begin.
    let since = journal.blind().expect("closed");
    assert!(began < since);
    while let Some(still) = journal.blind() {
        assert_eq!(still, since);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(since.elapsed() > Duration::from_millis(250), "it failed twice in between");
    driver.abort();
}

/// A new leader asks for it: what the one before wrote must not be missing.
#[tokio::test(start_paused = true)]
async fn a_watch_shows_on_demand_that_nothing_is_missing() {
    let began = tokio::time::Instant::now();
    let script = vec![
        Answer::Page(Ok((vec![("a", "1")], None, "10"))),
        Answer::Open,
        // It breaks off: that shows nothing.
        Answer::Watch(vec![Ok(Step::Cut)]),
        Answer::Watch(vec![Ok(Step::Applied(object("b", "2")))]),
        Answer::Open,
    ];
    let (driver, journal) = driven(script);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(journal.is_renewed(), "nothing was asked for");
    journal.renew();
    assert!(!journal.is_renewed(), "the list began before");
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(!journal.is_renewed(), "the watch broke off");
    while !journal.is_renewed() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // A pause for one watch that brought nothing, and none for watches that are short on purpose.
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(journal.dump().contains(", 1 failures"), "{}", journal.dump());
    driver.abort();
}

/// Events of the time in which the API server was away may come a moment after the watch is open again.
#[tokio::test(start_paused = true)]
async fn a_watch_that_was_cut_off_has_caught_up_when_the_next_one_has_ended() {
    let list = || Answer::Page(Ok((vec![("a", "1")], None, "10")));
    let (driver, journal) = driven(vec![list(), Answer::Watch(vec![Ok(Step::Cut)]), Answer::Open]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(journal.blind(), None, "it is open again");
    assert!(!journal.has_caught_up(), "and nothing has come");
    driver.abort();
    for gap in [Answer::Watch(vec![Ok(Step::Cut)]), Answer::NoWatch(Failure::Other("down".to_owned()))] {
        let script =
            vec![list(), gap, Answer::Watch(vec![Ok(Step::Applied(object("b", "2")))]), Answer::Open];
        let (driver, journal) = driven(script);
        while journal.has_caught_up() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(journal.dump().contains(" 0 events"), "{}", journal.dump());
        while !journal.has_caught_up() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(journal.dump().contains(" 1 events"), "{}", journal.dump());
        driver.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn the_age_of_the_last_progress_is_known_and_makes_unready() {
    let script = vec![
        Answer::Page(Ok((vec![("a", "1")], None, "10"))),
        Answer::Watch(vec![Ok(Step::Bookmark("11".to_owned()))]),
        Answer::Open,
    ];
    let mut registry = prometheus_client::registry::Registry::default();
    let (driver, journal) = driven_with(script, MachineryMetrics::register(&mut registry));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((journal.blind(), journal.ready()), (None, Ok(())));
    // The watch is open all the time; only nothing comes.
    tokio::time::sleep(STALE).await;
    assert_eq!(journal.blind(), None);
    assert_eq!(journal.ready(), Err("nothing has come for 61 s from the watch of Pod".to_owned()));
    journal.measure();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    assert!(text.contains("dragoman_watch_last_progress_seconds{kind=\"Pod\"} 61.0"), "{text}");
    driver.abort();
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_makes_nothing_blind() {
    let journal = Journal::new(MachineryMetrics::default());
    journal.expect("PodGroup", String::new());
    assert!(journal.blind().is_some());
    journal.unserved("PodGroup", String::new());
    assert_eq!(journal.blind(), None);
    tokio::time::sleep(Duration::from_mins(1)).await;
    journal.expect("PodGroup", String::new());
    assert_eq!(journal.blind(), Some(tokio::time::Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn a_relist_that_breaks_off_half_way_deletes_nothing_and_keeps_nothing_stale() {
    let (left, removed) = play(
        vec![
            Answer::Page(Ok((vec![("a", "1"), ("b", "2"), ("c", "3")], None, "10"))),
            Answer::NoWatch(Failure::Expired),
            // The first page of a relist arrives, the second does not.
            Answer::Page(Ok((vec![("a", "1")], Some("t"), "20"))),
            Answer::Page(Err(Failure::Other("broke off".into()))),
            // Then a complete one that lacks b.
            Answer::Page(Ok((vec![("a", "1")], Some("t"), "30"))),
            Answer::Page(Ok((vec![("c", "3")], None, "30"))),
        ],
        "30",
    )
    .await;
    assert_eq!(left, ["a", "c"]);
    assert_eq!(removed, ["b"]);
}

/// Such a server is asked a few times a minute, not thousands of times a second.
#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_are_not_opened_in_a_loop() {
    let begun = tokio::time::Instant::now();
    let mut script = vec![Answer::Page(Ok((vec![], None, "10")))];
    script.extend((0..20).map(|_| Answer::Watch(vec![])));
    script.push(Answer::Watch(vec![Ok(Step::Bookmark("11".to_owned()))]));
    play(script, "11").await;
    assert!(begun.elapsed() > Duration::from_mins(4), "{:?}", begun.elapsed());
    let begun = tokio::time::Instant::now();
    let mut script = Vec::new();
    for _ in 0..20 {
        script.extend([Answer::Page(Ok((vec![], None, "10"))), Answer::NoWatch(Failure::Expired)]);
    }
    script.push(Answer::Page(Ok((vec![], None, "20"))));
    play(script, "20").await;
    assert!(begun.elapsed() > Duration::from_mins(4), "{:?}", begun.elapsed());
}

/// An overloaded server is not asked for everything again as soon as it has failed.
#[tokio::test(start_paused = true)]
async fn lists_that_fail_after_any_time_are_repeated_ever_more_slowly() {
    let begun = tokio::time::Instant::now();
    let mut script: Vec<_> = (0..14).map(|_| Answer::Slow(Duration::from_secs(3))).collect();
    script.push(Answer::Page(Ok((vec![], None, "10"))));
    play(script, "10").await;
    assert!(begun.elapsed() > Duration::from_mins(2), "{:?}", begun.elapsed());
}

/// Lists that complete, but leave no time for a watch, are failures as well.
#[tokio::test(start_paused = true)]
async fn the_pause_grows_until_a_watch_brings_something() {
    let begun = tokio::time::Instant::now();
    let mut script = Vec::new();
    for _ in 0..14 {
        script.extend([Answer::Page(Ok((vec![], None, "10"))), Answer::Slow(Duration::from_secs(3))]);
        // The list completed; the watch that follows it does not open.
        script.insert(script.len() - 1, Answer::NoWatch(Failure::Expired));
    }
    script.push(Answer::Page(Ok((vec![], None, "20"))));
    play(script, "20").await;
    assert!(begun.elapsed() > Duration::from_mins(4), "{:?}", begun.elapsed());
}

/// The server continues from a newer state: every object is known then, but changes in between were
/// not seen, so that another list follows.
#[tokio::test(start_paused = true)]
async fn a_list_goes_on_behind_an_expired_page() {
    let expired = || Answer::Page(Err(Failure::PageExpired("newer".to_owned())));
    let script = vec![
        Answer::Page(Ok((vec![("a", "1")], None, "5"))),
        Answer::NoWatch(Failure::Expired),
        Answer::Page(Ok((vec![("b", "2")], Some("t"), "10"))),
        expired(),
        Answer::Page(Ok((vec![("c", "3")], None, "20"))),
    ];
    // As far as the older of the two states.
    let (left, removed) = play(script, "10").await;
    assert_eq!((left, removed), (vec!["b".to_owned(), "c".to_owned()], vec!["a".to_owned()]));
    let script = vec![
        Answer::Page(Ok((vec![("b", "2")], Some("t"), "10"))),
        expired(),
        Answer::Page(Ok((vec![("c", "3")], None, "20"))),
        // Not a watch: the script would panic.
        Answer::Page(Ok((vec![("b", "2"), ("c", "3")], None, "30"))),
        Answer::Watch(vec![Ok(Step::Bookmark("31".to_owned()))]),
    ];
    assert_eq!(play(script, "31").await.0, ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_pages_always_expire_is_not_asked_in_a_loop() {
    let begun = tokio::time::Instant::now();
    let mut script = Vec::new();
    for _ in 0..14 {
        script.push(Answer::Page(Ok((vec![], Some("t"), "10"))));
        script.extend((0..2).map(|_| Answer::Page(Err(Failure::PageExpired("t".to_owned())))));
    }
    script.push(Answer::Page(Ok((vec![], None, "20"))));
    play(script, "20").await;
    assert!(begun.elapsed() > Duration::from_mins(1), "{:?}", begun.elapsed());
}

#[test]
fn what_a_server_asks_for_is_capped() {
    let asked = Failure::Throttled(Some(Duration::from_hours(1)));
    assert_eq!(pause_after(1, &asked), Duration::from_mins(1));
    assert_eq!(pause_after(1, &Failure::Throttled(Some(Duration::from_secs(40)))), Duration::from_secs(40));
}

#[tokio::test(start_paused = true)]
async fn expiry_in_mid_watch_relists() {
    let (left, removed) = play(
        vec![
            Answer::Page(Ok((vec![("a", "1")], None, "10"))),
            Answer::Watch(vec![Ok(Step::Applied(object("b", "2"))), Err(Failure::Expired)]),
            Answer::Page(Ok((vec![("b", "2")], None, "30"))),
        ],
        "30",
    )
    .await;
    assert_eq!(left, ["b"]);
    assert_eq!(removed, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_without_a_name_is_not_skipped_but_relisted() {
    let nameless = Failure::Undecodable("object without name or uid".to_owned());
    let (left, removed) = play(
        vec![
            Answer::Page(Ok((vec![("a", "1"), ("b", "2")], None, "10"))),
            // It may have been the end of b.
            Answer::Watch(vec![Err(nameless), Ok(Step::Bookmark("12".into()))]),
            Answer::Page(Ok((vec![("a", "1")], None, "20"))),
        ],
        "20",
    )
    .await;
    assert_eq!((left, removed), (vec!["a".to_owned()], vec!["b".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_late_delete_of_a_namesake_leaves_the_new_object() {
    let (left, removed) = play(
        vec![
            Answer::Page(Ok((vec![("a", "new")], None, "10"))),
            Answer::Watch(vec![Ok(Step::Deleted(object("a", "old"))), Ok(Step::Bookmark("11".into()))]),
        ],
        "11",
    )
    .await;
    assert_eq!(left, ["a"]);
    assert!(removed.is_empty());
}

#[test]
fn an_object_that_does_not_decode_is_present_and_unreadable() {
    let of = |spec: serde_json::Value, phase: &str| {
        let pod = json!({"metadata": {"name": "a", "uid": "1"}, "spec": spec, "status": {"phase": phase}});
        let item: Item<dragoman_objects::Pod> =
            decode_item(pod.to_string().as_bytes()).expect("metadata decodes");
        let Item::Unreadable { unread, .. } = &item else { panic!("{item:?}") };
        assert_eq!((&*item.meta().name, unread.why.is_empty()), ("a", false));
        (unread.node.as_deref().map(str::to_owned), item)
    };
    let node_of = |spec| of(spec, "Running");
    let on_n = json!({"resourceClaims": "x", "nodeName": "n"});
    assert_eq!(node_of(on_n.clone()).0.as_deref(), Some("n"));
    assert_eq!(of(on_n, "Failed").0, None, "it has ended");
    assert_eq!(node_of(json!({"resourceClaims": "x", "nodeName": ["n"]})).0, None);
    assert_eq!(node_of(json!("x")).0, None);
    let (_, item) = node_of(json!({"resourceClaims": "x"}));

    let mut store = Store::default();
    store.insert(item.meta(), Body::Readable(1));
    assert_eq!(store.count(), (1, 0));
    store.insert(item.meta(), Body::Unreadable(Unread { why: "no".into(), node: None }.into()));
    assert_eq!(store.count(), (1, 1));
    assert!(store.get("", "a").expect("present").readable().is_none());
    store.begin(0);
    assert_eq!(store.complete("9").len(), 1);
    assert_eq!(store.count(), (0, 0));
}

#[test]
fn an_object_without_a_name_is_a_failure_not_an_absence() {
    assert!(decode_item::<MetaOnly>(br#"{"metadata": {}}"#).is_err());
}
