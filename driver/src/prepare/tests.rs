use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::claim::Allocated;
use crate::{ContainerEdits, Pool};

/// The claims, and the state in which drivers left the devices: the world outlives the process.
#[derive(Default)]
struct World {
    claims: Mutex<BTreeMap<String, Value>>,
    /// The claims that each device was prepared for and not unprepared.
    prepared: Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// Calls of the driver that end in nothing, from the next one on: the process dies in them.
    dies: AtomicUsize,
    calls: AtomicUsize,
    died: tokio::sync::Notify,
}

#[derive(Clone)]
struct Fake(Arc<World>);

impl Fake {
    fn set(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
        self.0.prepared.lock().expect("lock")
    }

    async fn call(&self) {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        let dies = self.0.dies.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if dies == Ok(1) {
            self.0.died.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

impl Driver for Fake {
    fn devices(&self) -> watch::Receiver<Vec<Pool>> {
        watch::channel(Vec::new()).1
    }

    async fn prepare(&self, claim: &Claim, results: &[Allocated]) -> anyhow::Result<Vec<ContainerEdits>> {
        self.call().await;
        for of in results {
            self.set().entry(of.device.clone()).or_default().insert(claim.reference.uid.clone());
        }
        self.call().await;
        Ok(vec![ContainerEdits::default(); results.len()])
    }

    async fn unprepare(&self, claim: &ClaimReference) -> anyhow::Result<()> {
        self.call().await;
        for claims in self.set().values_mut() {
            claims.remove(&claim.uid);
        }
        self.call().await;
        Ok(())
    }
}

impl Claims for Fake {
    async fn get(&self, claim: &ClaimReference) -> anyhow::Result<Option<Value>> {
        Ok(self.0.claims.lock().expect("lock").get(&claim.name).cloned())
    }
}

struct Node {
    world: Arc<World>,
    places: Places,
}

impl Node {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("dragoman-driver-{}-{number}", std::process::id()));
        let places = Places { state: root.join("state"), cdi: root.join("cdi") };
        Self { world: Arc::default(), places }
    }

    /// A process starts.
    fn driver(&self) -> Preparer<Fake, Fake> {
        let fake = Fake(Arc::clone(&self.world));
        let metrics = Metrics::register(&mut Registry::default());
        Preparer::open(fake.clone(), "d", fake, self.places.clone(), metrics).expect("a driver")
    }

    /// A claim that has these devices; `share` makes them shares.
    fn claim(&self, name: &str, devices: &[&str], share: bool) -> ClaimReference {
        let result = |device: &&str| {
            let mut result = json!({"request": "r", "driver": "d", "pool": "n", "device": device});
            if share {
                result["shareID"] = json!(name);
            }
            result
        };
        let results: Vec<Value> = devices.iter().map(result).collect();
        let object = json!({"metadata": {"uid": format!("uid-{name}")},
            "status": {"allocation": {"devices": {"results": results}}}});
        self.world.claims.lock().expect("lock").insert(name.to_owned(), object);
        let text = |text: &str| text.to_owned();
        ClaimReference { namespace: text("ns"), name: text(name), uid: format!("uid-{name}") }
    }

    fn record(&self, claim: &ClaimReference) -> PathBuf {
        self.places.state.join(format!("claims/{}.json", claim.uid))
    }

    fn files(&self) -> usize {
        [self.places.cdi.clone(), self.places.state.join("claims"), self.places.state.join("attributes")]
            .iter()
            .map(|directory| std::fs::read_dir(directory).map_or(0, Iterator::count))
            .sum()
    }

    fn in_use(&self) -> usize {
        self.world.prepared.lock().expect("lock").values().map(BTreeSet::len).sum()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let root = self.places.state.parent().map(Path::to_owned).expect("a root");
        std::fs::remove_dir_all(root).expect("clean");
    }
}

fn refusal<T: std::fmt::Debug>(outcome: anyhow::Result<T>) -> String {
    format!("{:#}", outcome.expect_err("refused"))
}

#[tokio::test]
async fn a_claim_is_prepared_once_however_often_kubelet_asks() {
    let node = Node::new();
    let (driver, claim) = (node.driver(), node.claim("a", &["1", "2"], false));
    let (first, second) = tokio::join!(driver.prepare(&claim), driver.prepare(&claim));
    let first = first.expect("prepared");
    assert_eq!(first, second.expect("prepared"));
    assert_eq!(node.world.calls.load(Ordering::Relaxed), 2, "one prepare");
    assert_eq!(
        (&first[0].cdi_device_ids, &*first[1].device_name),
        (&vec!["d/claim=uid-a-0".to_owned()], "2")
    );
    // The first carries the file with attributes. CDI takes no device that has nothing.
    assert!(first[1].cdi_device_ids.is_empty());
    // The process ends, and the node restarts: its /run is empty.
    std::fs::remove_dir_all(&node.places.cdi).expect("emptied");
    let driver = node.driver();
    assert!(cdi::path(&node.places.cdi, "d", "uid-a").exists(), "the CDI file is back");
    assert_eq!(driver.prepare(&claim).await.expect("prepared"), first);
    driver.unprepare(&claim).await.expect("unprepared");
    driver.unprepare(&claim).await.expect("twice");
    assert_eq!((node.files(), node.in_use()), (0, 0));
}

#[tokio::test]
async fn no_device_is_prepared_for_two_claims_unless_they_have_shares() {
    let node = Node::new();
    let driver = node.driver();
    let (a, b) = (node.claim("a", &["1"], false), node.claim("b", &["1"], false));
    let (one, other) = tokio::join!(driver.prepare(&a), driver.prepare(&b));
    one.expect("the first");
    assert_eq!(refusal(other), "device n/1 is prepared for ResourceClaim ns/a (uid uid-a)");
    let (c, d) = (node.claim("c", &["2"], true), node.claim("d", &["2"], true));
    driver.prepare(&c).await.expect("a share");
    driver.prepare(&d).await.expect("another share");
    let whole = node.claim("e", &["2"], false);
    assert!(refusal(driver.prepare(&whole).await).contains("device n/2 is prepared for"));
    driver.unprepare(&a).await.expect("unprepared");
    driver.prepare(&b).await.expect("free now");
}

#[tokio::test]
async fn what_kubelet_should_not_ask_for_is_refused_and_nothing_is_left() {
    let node = Node::new();
    let driver = node.driver();
    let mut claim = node.claim("a", &["1"], false);
    claim.name = "gone".to_owned();
    assert_eq!(refusal(driver.prepare(&claim).await), "ResourceClaim ns/gone does not exist");
    let replaced = ClaimReference { uid: "other".to_owned(), name: "a".to_owned(), ..claim };
    assert!(refusal(driver.prepare(&replaced).await).contains("is another one now"));
    let path = ClaimReference { uid: "../../x".to_owned(), ..node.claim("b", &["1"], false) };
    node.world.claims.lock().expect("lock").get_mut("b").expect("b")["metadata"]["uid"] = json!("../../x");
    assert!(refusal(driver.prepare(&path).await).contains("is no uid"));
    assert_eq!((node.files(), node.in_use()), (0, 0));
}

/// A restart of the node undoes the setup of a driver: the driver is asked again, and the devices stay taken
/// meanwhile.
#[tokio::test]
async fn after_a_restart_of_the_node_a_claim_is_prepared_again() {
    let node = Node::new();
    let (a, b) = (node.claim("a", &["1"], false), node.claim("b", &["1"], false));
    node.driver().prepare(&a).await.expect("prepared");
    let text = std::fs::read_to_string(node.record(&a)).expect("a record");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    let boot = record["boot"].as_str().expect("a boot");
    std::fs::write(node.record(&a), text.replace(boot, "the-one-before")).expect("write");
    let driver = node.driver();
    assert!(refusal(driver.prepare(&b).await).contains("is prepared for ResourceClaim ns/a"));
    driver.prepare(&a).await.expect("prepared");
    assert_eq!(node.world.calls.load(Ordering::Relaxed), 4, "the driver is asked again");
}

/// The claim was released and allocated anew while its record was still there.
#[tokio::test]
async fn a_claim_with_other_devices_than_it_was_prepared_with_is_unprepared_first() {
    let node = Node::new();
    let driver = node.driver();
    driver.prepare(&node.claim("a", &["1"], false)).await.expect("prepared");
    let again = node.claim("a", &["2"], false);
    assert!(refusal(driver.prepare(&again).await).contains("it has to be unprepared first"));
    driver.unprepare(&again).await.expect("unprepared");
    assert_eq!(driver.prepare(&again).await.expect("prepared")[0].device_name, "2");
}

/// A file of which a half is lost, or that a newer driver wrote: it may be about any device.
#[tokio::test]
async fn a_record_that_cannot_be_read_stops_prepares_until_its_claim_is_unprepared() {
    let node = Node::new();
    let (a, b) = (node.claim("a", &["1"], false), node.claim("b", &["2"], false));
    node.driver().prepare(&a).await.expect("prepared");
    let whole = std::fs::read_to_string(node.record(&a)).expect("a record");
    let half = whole.get(..whole.len() / 2).expect("ASCII").to_owned();
    for (text, words) in
        [(half, "uid-a.json"), (whole.replace("\"version\":1", "\"version\":2"), "version 2")]
    {
        std::fs::write(node.record(&a), text).expect("write");
        let why = refusal(node.driver().prepare(&b).await);
        assert!(why.contains(words) && why.contains("it is unknown which devices are in use"), "{why}");
        assert!(node.record(&a).exists(), "nothing is lost");
    }
    let driver = node.driver();
    driver.unprepare(&a).await.expect("unprepared");
    driver.prepare(&b).await.expect("prepared");
    assert_eq!(node.in_use(), 1);
}

/// The disk is full: the file beside the record cannot be made.
#[tokio::test]
async fn a_record_that_cannot_be_written_prepares_nothing() {
    let node = Node::new();
    let (driver, claim) = (node.driver(), node.claim("a", &["1"], false));
    let temporary = node.record(&claim).with_extension("json.tmp");
    std::fs::create_dir(&temporary).expect("in the way");
    assert!(refusal(driver.prepare(&claim).await).starts_with("cannot write "));
    assert_eq!(node.in_use(), 0);
    std::fs::remove_dir(&temporary).expect("room again");
    driver.prepare(&claim).await.expect("prepared");
}

/// A thousand claims over four devices, and the process dies in a hundred of its calls: no device is ever prepared for two
/// claims, and in the end nothing is left.
#[tokio::test]
async fn a_thousand_prepares_and_a_hundred_deaths() {
    let node = Node::new();
    let mut random = fastrand::Rng::with_seed(1);
    let (mut driver, mut deaths, mut prepared) = (node.driver(), 0, 0);
    let mut active: Vec<ClaimReference> = Vec::new();
    for number in 0.. {
        if prepared >= 1000 && deaths >= 100 {
            break;
        }
        if random.usize(..8) == 0 {
            node.world.dies.store(random.usize(1..4), Ordering::Relaxed);
        }
        let is_dead = if active.len() >= 3 || (random.bool() && !active.is_empty()) {
            let claim = active.swap_remove(random.usize(..active.len()));
            let ended = tokio::select! {
                outcome = driver.unprepare(&claim) => Some(outcome),
                () = node.world.died.notified() => None,
            };
            // What did not come to its end is asked again.
            active.extend((!matches!(ended, Some(Ok(())))).then_some(claim));
            ended.is_none()
        } else {
            let claim = node.claim(&format!("c{number}"), &[&random.u32(..4).to_string()], false);
            let ended = tokio::select! {
                outcome = driver.prepare(&claim) => Some(outcome.is_ok()),
                () = node.world.died.notified() => None,
            };
            prepared += usize::from(ended == Some(true));
            // A refusal says that the device is in use: nothing was done.
            active.extend((ended != Some(false)).then_some(claim));
            ended.is_none()
        };
        if is_dead {
            deaths += 1;
            driver = node.driver();
        }
        let twice = node.world.prepared.lock().expect("lock").values().any(|claims| claims.len() > 1);
        assert!(!twice, "a device is prepared for two claims after {number} calls");
    }
    node.world.dies.store(0, Ordering::Relaxed);
    for claim in active {
        driver.unprepare(&claim).await.expect("unprepared");
    }
    assert_eq!((node.files(), node.in_use()), (0, 0), "{prepared} prepares, {deaths} deaths");
}
