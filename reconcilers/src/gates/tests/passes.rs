//! Decisions and their passes: a world in plain data, and an API server that answers as a test says.

use std::collections::VecDeque;
use std::time::Duration;

use dragoman_accounting::claim::contribution::Generation;
use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_machinery::controller::{Fed, Next, Outcome, Pass as _};
use dragoman_machinery::kind::Watchable;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::watch::decode_item;
use dragoman_machinery::write::Written;
use tokio::time::Instant;

use super::*;
use crate::cluster::Cluster;
use crate::gates::Options;
use crate::gates::decide::{Decided, Look, decide};
use crate::gates::index::Gates;
use crate::gates::memory::Memory;
use crate::gates::pass::{GatePass, Notice, Purpose};
use crate::holders::Holders;

/// State of the controller, without a client.
pub(super) struct World {
    pub(super) index: Gates,
    cluster: Cluster,
    pub(super) assumed: Assumed,
    pub(super) memory: Memory,
    holders: Holders,
    pub(super) options: Options,
    scheduler: Option<Scheduler>,
    pub(super) is_behind: bool,
    pub(super) now: Instant,
}

/// A look, carried out.
pub(super) struct Carried {
    pub(super) sent: Vec<(Purpose, Write)>,
    pub(super) said: Vec<Notice>,
    pub(super) then: Outcome,
}

impl Carried {
    pub(super) fn purposes(&self) -> Vec<Purpose> {
        self.sent.iter().map(|(purpose, _)| purpose.clone()).collect()
    }
}

pub(super) type Answers = VecDeque<Result<Value, Refusal>>;

impl Default for World {
    fn default() -> Self {
        Self {
            index: Gates::default(),
            cluster: Cluster::default(),
            assumed: Assumed::default(),
            memory: Memory::default(),
            holders: Holders::default(),
            options: Options::default(),
            scheduler: None,
            is_behind: false,
            now: Instant::now(),
        }
    }
}

impl World {
    pub(super) fn applied<T: Watchable>(&mut self, object: &Value)
    where
        Gates: Fed<T, Key = ObjectKey>,
        Cluster: Fed<T, Key = ObjectKey>,
    {
        let decoded = || decode_item(object.to_string().as_bytes()).expect("metadata");
        Fed::<T>::applied(&mut self.index, &decoded());
        Fed::<T>::applied(&mut self.cluster, &decoded());
    }

    /// A node of ten cpus, and a device that takes so many of them, or none.
    pub(super) fn with_node(cost: Option<&str>) -> Self {
        let mut world = Self::default();
        world.applied::<Node>(&json!({"metadata": {"name": "n", "uid": "n", "resourceVersion": "1"},
            "status": {"allocatable": {"cpu": "10", "memory": "8Gi", "pods": "110"}}}));
        let cost = cost.map(|cost| json!({"cpu": {"mapping": {"deviceMultiplier": cost}}}));
        let device = json!({"name": "gpu", "nodeAllocatableResources": cost});
        let slice = json!({"metadata": {"name": "s", "uid": "s", "resourceVersion": "1"},
            "spec": {"driver": "d", "nodeName": "n", "devices": [device],
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}});
        world.slice(&slice);
        world
    }

    pub(super) fn slice(&mut self, slice: &Value) {
        let decoded = decode_item(slice.to_string().as_bytes()).expect("metadata");
        Fed::<ResourceSlice>::applied(&mut self.cluster, &decoded);
    }

    pub(super) fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "ns".into(), name: name.into() }
    }

    /// A gated Pod of one cpu; `change` makes it another one.
    pub(super) fn pod(&mut self, name: &str, version: u64, change: &Value) {
        self.applied::<Pod>(&Self::pod_object(name, version, change));
    }

    pub(super) fn pod_object(name: &str, version: u64, change: &Value) -> Value {
        let claims = json!([{"name": "gpu", "resourceClaimName": format!("{name}-gpu")}]);
        let mut pod = json!({
            "metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": version.to_string(),
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"schedulingGates": [{"name": "dragoman.dev/claims"}], "resourceClaims": claims,
                "containers": [{"name": "main", "resources":
                    {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}}]},
        });
        merge(&mut pod, change);
        pod
    }

    /// The claim of a Pod, allocated on the node and reserved; `change` makes it another one.
    pub(super) fn claim(&mut self, pod: &str, version: u64, change: &Value) {
        let result = json!({"request": "r", "driver": "d", "pool": "n", "device": "gpu"});
        let mut status = ready(&["n"]);
        status["allocation"]["devices"]["results"] = json!([result]);
        status["reservedFor"] = json!([{"resource": "pods", "name": pod, "uid": pod}]);
        let mut claim = json!({
            "metadata": {"namespace": "ns", "name": format!("{pod}-gpu"), "uid": format!("{pod}-claim"),
                "resourceVersion": version.to_string(), "labels": labelled()["labels"]},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
            "status": status,
        });
        merge(&mut claim, change);
        self.applied::<ResourceClaim>(&claim);
    }

    /// Looks at a Pod and carries out what is decided. An answer that is not given echoes the object.
    pub(super) fn look(&mut self, name: &str, mut answers: Answers) -> Carried {
        let key = Self::key(name);
        let (uid, pod) = self.index.pod(&key).expect("the Pod");
        let look = Look {
            key: &key,
            uid: uid.clone(),
            claims: self.index.claims_of("ns", &uid, &pod),
            pod,
            is_current: !self.is_behind,
            now: self.now,
            time: "2026-01-01T01:00:00Z".parse().expect("a time"),
            options: &self.options,
            index: &self.index,
            cluster: &self.cluster,
            scheduler: self.scheduler,
        };
        let Decided { steps, then, .. } =
            decide(&look, &mut self.assumed, &mut self.holders, &mut self.memory);
        let mut pass = GatePass::new(&key, steps, then);
        let (mut sent, mut said) = (Vec::new(), Vec::new());
        let then = loop {
            match pass.next() {
                Next::Rest(then) => break then,
                Next::Read(_) => panic!("nothing is read"),
                Next::Send { write, purpose } => {
                    assert!(sent.len() < pass.most_steps(), "it comes to an end");
                    sent.push((purpose.clone(), (*write).clone()));
                    let answer = answers.pop_front().unwrap_or_else(|| Ok(json!({})));
                    pass.sent(purpose, answer.map(|body| written(&body)));
                }
            }
        };
        for of in pass.report.drain(..) {
            self.memory.learn(&key, &of, self.now);
            if let Notice::Keeps(kept) = &of {
                self.scheduler = Some(kept.map_or(Scheduler::Unaware, Scheduler::Aware));
            }
            said.push(of);
        }
        Carried { sent, said, then }
    }
}

pub(super) fn merge(object: &mut Value, change: &Value) {
    match (object, change) {
        (Value::Object(object), Value::Object(change)) => {
            for (key, value) in change {
                merge(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (object, change) => *object = change.clone(),
    }
}

fn written(body: &Value) -> Written {
    let mut object = json!({"metadata": {"name": "o", "uid": "o", "resourceVersion": "90"}});
    merge(&mut object, body);
    let meta = serde_json::from_value(object["metadata"].clone()).expect("metadata");
    Written { meta, body: object.to_string().into_bytes() }
}

pub(super) fn nominated(node: &str) -> Value {
    json!({"status": {"nominatedNodeName": node}})
}

pub(super) fn nominate() -> Purpose {
    Purpose::Nominate(Some("n".into()))
}

pub(super) fn refused(refusal: Refusal) -> Answers {
    [Err(refusal)].into()
}

const AT_ONCE: Outcome = Outcome::After(Duration::ZERO);

#[test]
fn a_pod_is_nominated_then_settles_then_its_gate_is_opened() {
    let mut world = World::with_node(None);
    world.pod("p", 1, &json!({}));
    world.claim("p", 1, &json!({}));
    let first = world.look("p", [Ok(nominated("n"))].into());
    assert_eq!((first.purposes(), &first.then), (vec![nominate()], &AT_ONCE));
    world.pod("p", 2, &nominated("n"));
    let second = world.look("p", Answers::new());
    assert_eq!(second.purposes(), vec![], "kube-scheduler has not seen the nomination yet");
    assert_eq!(second.then, Outcome::After(Duration::from_millis(250)));
    world.now += Duration::from_millis(250);
    let third = world.look("p", Answers::new());
    assert_eq!(third.purposes(), vec![Purpose::Open(Opened::Released, None)]);
    assert_eq!(
        world.assumed.node_of(&World::key("p")),
        Some(&Name::from("n")),
        "its room is kept until it is bound"
    );
}

#[test]
fn a_nomination_that_is_refused_or_dropped_does_not_hold_a_pod_up() {
    for answer in [Err(Refusal::Rbac("no".to_owned())), Err(Refusal::Invalid("no".to_owned())), Ok(json!({}))]
    {
        let mut world = World::with_node(None);
        world.pod("p", 1, &json!({}));
        world.claim("p", 1, &json!({}));
        let first = world.look("p", [answer].into());
        assert_eq!((first.purposes(), &first.then), (vec![nominate()], &AT_ONCE));
        // However late the next look is.
        world.now += Duration::from_mins(1);
        assert_eq!(world.look("p", Answers::new()).purposes(), vec![]);
        world.now += Duration::from_mins(1);
        let opened = world.look("p", Answers::new()).purposes();
        assert_eq!(opened, vec![Purpose::Open(Opened::Released, None)]);
    }
}

/// P7: its devices are not kept from others for ever.
#[test]
fn devices_without_the_attribute_are_taken_back_after_five_minutes() {
    let mut world = World::with_node(None);
    let asks = json!({"metadata": {"annotations": {"dragoman.dev/attributes": "bus: gpu/r/bus"}}});
    world.pod("p", 1, &asks);
    world.claim("p", 1, &json!({}));
    let takes_back = |carried: &Carried| {
        carried.purposes().iter().any(|purpose| matches!(purpose, Purpose::Reject(_) | Purpose::TakeOut(_)))
    };
    let first = world.look("p", Answers::new());
    assert!(matches!(&first.said[..], [Notice::Warning(Reason::AttributeMissing, ..)]), "{:?}", first.said);
    assert!(!takes_back(&first), "the driver may publish it in a moment");
    world.now += Duration::from_secs(299);
    assert!(!takes_back(&world.look("p", Answers::new())));
    world.now += Duration::from_secs(1);
    let back = world.look("p", Answers::new());
    assert!(takes_back(&back), "{:?}", back.purposes());
    assert_eq!(world.assumed.len(), 0);
}

#[test]
fn a_nomination_that_has_no_answer_is_tried_again() {
    let mut world = World::with_node(None);
    world.pod("p", 1, &json!({}));
    world.claim("p", 1, &json!({}));
    let lost = world.look("p", refused(Refusal::Transient("lost".to_owned())));
    assert!(matches!(lost.then, Outcome::Failed(_)), "{:?}", lost.then);
    assert_eq!(world.look("p", Answers::new()).purposes(), vec![nominate()]);
}

#[test]
fn a_nomination_that_another_leader_has_taken_back_is_left_to_it() {
    let mut world = World::with_node(None);
    world.pod("p", 1, &json!({}));
    world.claim("p", 1, &json!({}));
    world.look("p", [Ok(nominated("n"))].into());
    world.pod("p", 3, &json!({}));
    world.now += Duration::from_millis(100);
    let left = world.look("p", Answers::new());
    assert_eq!(
        (left.purposes(), left.then),
        (vec![], Outcome::After(Duration::from_millis(900))),
        "both would write as fast as the API server answers"
    );
}

/// The generation is asked once, newest first; the amounts are published before the gate is opened.
#[test]
fn what_claims_take_is_published_before_the_gate_is_opened() {
    let mut world = World::with_node(Some("2"));
    world.pod("p", 1, &nominated("n"));
    world.claim("p", 1, &json!({}));
    let entry = json!({"resourceClaimName": "p-gpu", "mapping": [{"name": "cpu", "quantity": "2"}]});
    let kept = json!({"status": {"nodeAllocatableResourceClaimStatuses": [entry]}});
    let asked = world.look("p", [Ok(json!({})), Ok(kept.clone())].into());
    assert_eq!(asked.purposes(), [Generation::V1_38, Generation::V1_37].map(Purpose::Ask));
    assert!(asked.sent.iter().all(|(_, write)| write.dry_run), "nothing is stored");
    assert_eq!((asked.said, asked.then), (vec![Notice::Keeps(Some(Generation::V1_37))], AT_ONCE));
    let published = world.look("p", [Ok(kept)].into());
    assert_eq!(published.purposes(), vec![Purpose::Publish(Generation::V1_37)]);
    assert!(published.sent.iter().all(|(_, write)| !write.dry_run));
    assert_eq!((published.said, published.then), (vec![Notice::Published], AT_ONCE));
}

/// 1.37.2 refuses an entry with ephemeral storage: the rest is published, and the Pod is released with a word.
#[test]
fn what_the_status_has_no_place_for_keeps_no_gate_closed() {
    let mut world = World::with_node(Some("2"));
    world.scheduler = Some(Scheduler::Aware(Generation::V1_37));
    let amounts = json!({"cpu": "10", "memory": "8Gi", "pods": "110", "ephemeral-storage": "10Gi"});
    world.applied::<Node>(&json!({"metadata": {"name": "n", "uid": "n", "resourceVersion": "2"},
        "status": {"allocatable": amounts}}));
    let cost = |amount: &str| json!({"mapping": {"deviceMultiplier": amount}});
    let device = json!({"name": "gpu",
        "nodeAllocatableResources": {"cpu": cost("2"), "ephemeral-storage": cost("1Gi")}});
    let slice = json!({"metadata": {"name": "s", "uid": "s", "resourceVersion": "2"},
        "spec": {"driver": "d", "nodeName": "n", "devices": [device],
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}});
    world.slice(&slice);
    world.pod("p", 1, &nominated("n"));
    world.claim("p", 1, &json!({}));
    let published = world.look("p", Answers::new());
    let Some((Purpose::Publish(_), write)) = published.sent.first() else { panic!("{:?}", published.sent) };
    let Action::Apply { body, .. } = &write.action else { panic!("it is no apply") };
    assert!(!body.to_string().contains("ephemeral") && body.to_string().contains("cpu"), "{body}");
    let entry = json!({"resourceClaimName": "p-gpu", "mapping": [{"name": "cpu", "quantity": "2"}]});
    let mut recorded = json!({"status": {"nodeAllocatableResourceClaimStatuses": [entry]}});
    merge(&mut recorded, &nominated("n"));
    world.pod("p", 2, &recorded);
    world.look("p", Answers::new());
    world.now += Duration::from_mins(1);
    let released = world.look("p", Answers::new());
    assert_eq!(released.purposes(), vec![Purpose::Open(Opened::Released, None)]);
    assert!(
        released.said.iter().any(|said| matches!(said, Notice::Warning(Reason::NotPublished, "Release", why)
        if why.contains("ephemeral-storage of claim p-gpu"))),
        "{:?}",
        released.said
    );
}

#[test]
fn a_field_that_is_dropped_again_is_asked_for_again_and_opens_no_gate() {
    for answer in [Ok(json!({})), Err(Refusal::Invalid("field not declared in schema".to_owned()))] {
        let mut world = World::with_node(Some("2"));
        world.scheduler = Some(Scheduler::Aware(Generation::V1_37));
        world.pod("p", 1, &nominated("n"));
        world.claim("p", 1, &json!({}));
        let dropped = world.look("p", [answer].into());
        assert_eq!(dropped.said, vec![Notice::Changed]);
        assert!(matches!(dropped.then, Outcome::Failed(_)), "{:?}", dropped.then);
    }
}

#[test]
fn an_inquiry_that_ends_without_an_answer_says_nothing_about_the_api_server() {
    let mut world = World::with_node(Some("2"));
    world.pod("p", 1, &nominated("n"));
    world.claim("p", 1, &json!({}));
    let lost = world.look("p", [Ok(json!({})), Err(Refusal::Throttled)].into());
    assert_eq!((lost.sent.len(), lost.said), (2, vec![]));
    let about_this_pod = Refusal::Invalid("another webhook".to_owned());
    let refused = world.look("p", [Ok(json!({})), Err(about_this_pod), Ok(json!({}))].into());
    assert_eq!((refused.sent.len(), refused.said), (3, vec![]));
    let none = world.look("p", Answers::new());
    assert_eq!(none.said, vec![Notice::Keeps(None)], "all three were dropped");
}

/// Each claim gets the rejection first; the write that takes the Pod out is guarded by the version after that.
#[test]
fn an_allocation_that_does_not_fit_is_rejected_and_given_back() {
    let mut world = World::with_node(Some("10"));
    world.pod("p", 1, &json!({}));
    world.claim("p", 1, &json!({}));
    let claim: Name = "p-claim".into();
    let all = vec![Purpose::Reject(claim.clone()), Purpose::Confirm, Purpose::TakeOut(claim.clone())];
    let rejected = world.look("p", Answers::new());
    assert_eq!(rejected.purposes(), all);
    let [(_, reject), (_, confirm), (_, out)] = &rejected.sent[..] else { panic!("three") };
    assert!(matches!(&reject.action, Action::Merge { guard, .. } if guard.resource_version == "1"));
    assert!(confirm.dry_run, "it changes nothing");
    assert!(matches!(&out.action, Action::Patch { guard, .. } if guard.resource_version == "90"));
    assert!(
        matches!(&rejected.said[..], [Notice::TakesOut(_, version), Notice::Refused(..), Notice::Rejected,
        Notice::Warning(Reason::DoesNotFit, "Reject", why)] if **version == *"90" && why.contains("too small"))
    );
    assert_eq!(world.assumed.len(), 0, "it takes no room");
}

/// kube-scheduler would bind the Pod nowhere: it keeps no devices, whichever node they are on.
#[test]
fn an_allocation_beyond_the_pod_level_resources_is_given_back() {
    let look = |cpu: &str| {
        let mut world = World::with_node(Some("4"));
        world.pod("p", 1, &json!({"spec": {"resources": {"requests": {"cpu": cpu}}}}));
        world.claim("p", 1, &json!({}));
        (world.look("p", [Ok(nominated("n"))].into()), world.assumed.len())
    };
    let (rejected, assumed) = look("4");
    let out = Purpose::TakeOut("p-claim".into());
    assert_eq!(rejected.purposes().last(), Some(&out));
    assert!(matches!(rejected.said.last(), Some(Notice::Warning(Reason::OverBudget, "Reject", why))
        if why.ends_with("spec.resources.requests[cpu] is 4, but containers and claims request 5")));
    assert_eq!(assumed, 0, "it takes no room");
    assert_eq!(look("5").0.purposes(), vec![nominate()], "the budget has room for both");
}

#[test]
fn nothing_is_taken_from_a_pod_whose_gate_may_be_open() {
    let mut world = World::with_node(Some("10"));
    world.pod("p", 1, &json!({}));
    world.claim("p", 1, &json!({}));
    let opened = world.look("p", [Ok(json!({})), Err(Refusal::Conflict)].into());
    assert_eq!(opened.purposes().last(), Some(&Purpose::Confirm));
    assert_eq!(opened.said, vec![]);
}

/// The answer to the write that takes a Pod out may be lost: the Pod is not released with that claim meanwhile.
#[test]
fn a_claim_that_a_pod_may_have_lost_is_taken_again_before_anything_else() {
    let taken = |answer: Result<Value, Refusal>| {
        let mut world = World::with_node(Some("10"));
        world.pod("p", 1, &json!({}));
        world.claim("p", 1, &json!({}));
        world.look("p", [Ok(json!({})), Ok(json!({})), answer].into());
        // The index shows the rejection, or nothing yet; now the Pod would fit.
        world.claim("p", 90, &json!({}));
        let node = json!({"metadata": {"name": "n", "uid": "n", "resourceVersion": "2"},
            "status": {"allocatable": {"cpu": "20", "memory": "8Gi", "pods": "110"}}});
        world.applied::<Node>(&node);
        let again = world.look("p", Answers::new()).purposes();
        world.claim("p", 91, &json!({}));
        (again, world.look("p", Answers::new()).purposes())
    };
    let again = vec![Purpose::Confirm, Purpose::TakeOut("p-claim".into())];
    let goes_on = vec![nominate()];
    let (first, then) = taken(Err(Refusal::Transient("lost".to_owned())));
    assert_eq!(first, again);
    assert_eq!(then, goes_on, "the index has a later version: it was reserved again");
    assert_eq!(
        taken(Err(Refusal::Conflict)).0,
        again,
        "the conflict may be with the write whose answer was lost"
    );
    let (first, _) = taken(Err(Refusal::Invalid("no".to_owned())));
    assert_eq!(first, goes_on, "it was refused and had no effect");
}

#[test]
fn room_is_given_to_one_of_two_pods() {
    let mut world = World::with_node(None);
    for pod in ["a", "b"] {
        let main =
            json!({"name": "main", "resources": {"requests": {"cpu": "6"}, "claims": [{"name": "gpu"}]}});
        world.pod(pod, 1, &json!({"spec": {"containers": [main]}}));
        // It asks for nothing: both would have the same device.
        world.claim(pod, 1, &json!({"spec": null, "status": {"allocation": {"devices": {"results": []}}}}));
    }
    assert_eq!(world.look("a", Answers::new()).purposes(), vec![nominate()]);
    let second = world.look("b", Answers::new()).purposes();
    assert_eq!(second.first(), Some(&Purpose::Reject("b-claim".into())), "the room is promised to the first");
    assert_eq!(world.look("a", Answers::new()).said, vec![], "it keeps what it has");
}

#[test]
fn a_pod_that_loses_a_claim_loses_its_nomination_then_what_was_published() {
    let mut world = World::with_node(Some("2"));
    world.scheduler = Some(Scheduler::Aware(Generation::V1_37));
    let entry = json!({"resourceClaimName": "p-gpu", "mapping": [{"name": "cpu", "quantity": "2"}]});
    let recorded = json!({"status": {"nodeAllocatableResourceClaimStatuses": [entry]}});
    let mut both = recorded.clone();
    merge(&mut both, &nominated("n"));
    world.pod("p", 1, &both);
    world.claim("p", 1, &json!({"status": {"allocation": null, "reservedFor": []}}));
    let first = world.look("p", Answers::new());
    assert_eq!((first.purposes(), first.then), (vec![Purpose::Nominate(None)], AT_ONCE));
    world.pod("p", 2, &recorded);
    assert_eq!(world.look("p", Answers::new()).purposes(), vec![Purpose::Withdraw]);
    assert_eq!(world.look("p", Answers::new()).purposes(), vec![], "what is left is of others");
    world.now += Duration::from_secs(2);
    assert_eq!(world.look("p", Answers::new()).purposes(), vec![Purpose::Condition]);
}

#[test]
fn a_claim_on_its_way_out_is_given_back() {
    let mut world = World::with_node(None);
    world.pod("p", 1, &json!({}));
    world.claim("p", 1, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let back = world.look("p", Answers::new()).purposes();
    assert_eq!(back, vec![Purpose::Confirm, Purpose::TakeOut("p-claim".into())]);
}

#[test]
fn a_gate_stays_closed_while_a_watch_catches_up() {
    let mut world = World::with_node(None);
    world.pod("p", 1, &nominated("n"));
    world.claim("p", 1, &json!({}));
    world.look("p", Answers::new());
    (world.now, world.is_behind) = (world.now + Duration::from_millis(250), true);
    let behind = world.look("p", Answers::new());
    assert_eq!((behind.purposes(), behind.then), (vec![], Outcome::After(Duration::from_millis(250))));
    world.is_behind = false;
    assert_eq!(world.look("p", Answers::new()).purposes(), vec![Purpose::Open(Opened::Released, None)]);
}

#[test]
fn a_release_is_sent_once_and_at_once() {
    let mut world = World::with_node(None);
    world.pod("p", 1, &nominated("n"));
    world.claim("p", 1, &json!({}));
    world.look("p", Answers::new());
    world.now += Duration::from_millis(250);
    let looked = world.look("p", Answers::new());
    let (_, write) = looked.sent.first().expect("a write");
    assert_eq!(looked.purposes(), vec![Purpose::Open(Opened::Released, None)]);
    assert!(write.once, "before a repetition the node may fill up unseen");
    let mut world = World::with_node(None);
    world.pod("q", 1, &json!({}));
    world.claim("q", 1, &json!({"metadata": {"labels": null}, "status": null}));
    let looked = world.look("q", Answers::new());
    assert_eq!(looked.purposes(), vec![Purpose::Open(Opened::NoAllocator, None), Purpose::Condition]);
    assert!(!looked.sent[0].1.once, "it depends on nothing that changes");
}

#[test]
fn a_pod_without_an_allocator_is_released_or_labelled() {
    let mut world = World::with_node(None);
    world.pod(
        "p",
        1,
        &json!({"status": {"conditions":
        [{"type": "dragoman.dev/ClaimsReady", "status": "False", "reason": "ClaimMissing"}]}}),
    );
    world.claim("p", 1, &json!({"metadata": {"labels": null}, "status": null}));
    assert_eq!(
        world.look("p", Answers::new()).purposes(),
        vec![Purpose::Open(Opened::NoAllocator, None), Purpose::Condition],
        "its condition says so, too"
    );
    world.options.default_allocator = Some("ours".into());
    assert_eq!(world.look("p", Answers::new()).purposes(), vec![Purpose::Label]);
}
