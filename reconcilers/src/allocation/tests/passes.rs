//! Looks and their passes: an index in plain data, and an API server that answers as a test says.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use dragoman_machinery::api::Live;
use dragoman_machinery::controller::{Answer, Next, Outcome, Pass as _, ReadBy};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::{Action, Write, Written};
use dragoman_objects::{Name, PodGroup};
use tokio::time::Instant;

use super::*;
use crate::allocation::Options;
use crate::allocation::gangs::{Attempt, Member, Together, place};
use crate::allocation::look::{Begun, Look, Search};
use crate::allocation::pass::{AllocationPass, Notice, Purpose};
use crate::allocation::turns::{Looked, turn as search_turn};

/// State of the controller, without a client.
pub(super) struct World {
    pub(super) index: Allocation,
    pub(super) decided: InFlightAllocations,
    options: Options,
    pub(super) now: Instant,
}

/// A look, carried out.
pub(super) struct Carried {
    pub(super) sent: Vec<(Purpose, Write)>,
    pub(super) reads: usize,
    pub(super) said: Vec<Notice>,
    pub(super) then: Outcome,
    pub(super) woken: Vec<ObjectKey>,
}

impl Carried {
    pub(super) fn purposes(&self) -> Vec<Purpose> {
        self.sent.iter().map(|(purpose, _)| purpose.clone()).collect()
    }
}

pub(super) type Answers = VecDeque<Result<Value, Refusal>>;

pub(super) fn no_answers() -> (Answers, VecDeque<Answer>) {
    (Answers::new(), VecDeque::new())
}

impl World {
    pub(super) fn of(mut index: Allocation) -> Self {
        index.is_user("allocator".into());
        Self {
            index,
            decided: InFlightAllocations::default(),
            options: Options::default(),
            now: Instant::now(),
        }
    }

    pub(super) fn at<T>(&mut self, look: impl FnOnce(&mut Look<'_>) -> T) -> (T, Vec<ObjectKey>) {
        let mut at = Look {
            index: &mut self.index,
            decided: &mut self.decided,
            options: &self.options,
            now: self.now,
            time: "2026-01-01T01:00:00Z".parse().expect("a time"),
            jitter: 0.0,
            steps: Vec::new(),
            woken: Vec::new(),
        };
        let found = look(&mut at);
        (found, at.woken)
    }

    pub(super) fn searched(&mut self, search: &Search<'_>) -> Looked {
        if let Some((members, needed)) = &search.gang {
            return self.placed(members, *needed);
        }
        let mut tried = Tried::default();
        loop {
            match self.at(|look| search_turn(look, &search.of, &search.refused, &mut tried)).0 {
                Ok(Attempted::Decided(decision)) => return Looked::Decided(Box::new(decision)),
                Ok(Attempted::Refused(why)) => return Looked::Refused(why),
                Ok(Attempted::More) => {}
                Ok(Attempted::Aside(long)) => panic!("{long:?}"),
                Err(stop) => return stop.into(),
            }
        }
    }

    fn placed(&mut self, members: &[Member], needed: usize) -> Looked {
        let (mut ids, mut tried) = (|| "share".into(), HashMap::new());
        let time = "2026-01-01T01:00:00Z".parse().expect("a time");
        let gang = Together { members, needed, policy: self.options.order, time };
        match place(&gang, &mut tried, &mut self.index, &mut self.decided, &mut ids) {
            Attempt::Placed(pods) => Looked::Placed(pods),
            Attempt::Failed(_, why) => Looked::Refused(why),
            other => panic!("{other:?}"),
        }
    }

    /// Looks at a Pod and carries out what is decided. A write without an answer echoes an empty object.
    pub(super) fn look(&mut self, number: usize, answers: (Answers, VecDeque<Answer>)) -> Option<Carried> {
        let key = key(number);
        let (begun, mut woken) = self.at(|look| match look.begin(&key) {
            Begun::Steps(of, then) => Ok((look.words(&of), std::mem::take(&mut look.steps), of, then)),
            other => Err(other),
        });
        let (words, steps, of, then) = match begun {
            Ok(planned) => planned,
            Err(Begun::Search(search)) => {
                let looked = self.searched(&search);
                let (planned, more) = self.at(|look| {
                    let (of, then) = look.conclude(*search, looked);
                    (look.words(&of), std::mem::take(&mut look.steps), of, then)
                });
                woken.extend(more);
                planned
            }
            Err(_) => return None,
        };
        let mut pass = AllocationPass::new(&key, &of.uid, words, steps, then);
        let mut outcome = carried_out(&mut pass, answers);
        outcome.woken = woken;
        for said in &outcome.said {
            match said {
                Notice::Writes(claim, version) => self.decided.writes_on(&key, claim, version),
                Notice::NotWritten(claim) => self.decided.refused(&key, claim),
                Notice::GaveBack => self.decided.gave_back(&key, self.now, 0.0),
                _ => {}
            }
        }
        Some(outcome)
    }
}

fn carried_out(pass: &mut AllocationPass, (mut answers, mut reads): (Answers, VecDeque<Answer>)) -> Carried {
    let (mut sent, mut read) = (Vec::new(), 0);
    let then = loop {
        assert!(sent.len() + read <= pass.most_steps(), "it comes to an end");
        match pass.next() {
            Next::Rest(then) => break then,
            Next::Read(which) => {
                let [which] = &which[..] else { panic!("one Pod") };
                assert_eq!(which.by, ReadBy::List, "the allocator may not get Pods");
                read += 1;
                pass.read(which, reads.pop_front().unwrap_or(Ok(Live::NotFound)));
            }
            Next::Send { write, purpose } => {
                sent.push((purpose.clone(), (*write).clone()));
                let answer = answers.pop_front().unwrap_or_else(|| Ok(json!({})));
                pass.sent(purpose, answer.map(|_| written()));
            }
        }
    };
    Carried { sent, reads: read, said: std::mem::take(&mut pass.report), then, woken: Vec::new() }
}

fn written() -> Written {
    let object = json!({"metadata": {"name": "c", "uid": "c", "resourceVersion": "90"}});
    let meta = serde_json::from_value(object["metadata"].clone()).expect("metadata");
    Written { meta, body: object.to_string().into_bytes() }
}

fn version_of(write: &Write) -> &str {
    match &write.action {
        Action::Patch { guard, .. } | Action::Merge { guard, .. } => &guard.resource_version,
        other => panic!("{other:?}"),
    }
}

fn refused(refusal: Refusal) -> (Answers, VecDeque<Answer>) {
    ([Err(refusal)].into(), VecDeque::new())
}

/// The Pod as the API server has it, with its gate or without.
pub(super) fn live(number: usize, uid: &str, is_gated: bool) -> Live<Vec<u8>> {
    let mut pod = pod(number, "1");
    pod["metadata"]["uid"] = json!(uid);
    if !is_gated {
        pod["spec"]["schedulingGates"] = Value::Null;
    }
    Live::Found(Box::new(pod.to_string().into_bytes()))
}

/// A claim of the Pod with devices of the node and the reservation.
pub(super) fn held(number: usize, change: &Value) -> Value {
    let result = json!({"request": "gpu", "driver": DRIVER, "pool": name(0), "device": "gpu-0"});
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name(0)]}]});
    let mut claim = claim(
        number,
        &json!({
            "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}},
            "reservedFor": [{"resource": "pods", "name": format!("p-{number}"), "uid": format!("pod-{number}")}],
        }),
    );
    let metadata = claim["metadata"].as_object_mut().expect("metadata");
    metadata.extend(change.as_object().expect("an object").clone());
    claim
}

#[test]
fn a_claim_is_protected_then_allocated_on_the_version_after_that() {
    let mut world = World::of(cluster(1, 1));
    comes(&mut world.index, 0, "1");
    let first = world.look(0, no_answers()).expect("it is decided on");
    let claim: Name = "claim-0".into();
    let allocate = Purpose::Allocate(claim.clone(), "c-0".into(), "node-00000".into());
    assert_eq!(first.purposes(), vec![Purpose::Protect(claim.clone()), allocate]);
    let [(_, protect), (_, allocate)] = &first.sent[..] else { panic!("two") };
    assert_eq!((version_of(protect), version_of(allocate)), ("2", "90"));
    assert_eq!(first.then, Outcome::Done);
    let Action::Patch { operations, .. } = &allocate.action else { panic!("{allocate:?}") };
    let allocation = operations.iter().find(|of| of["path"] == "/status/allocation").expect("an allocation");
    assert_eq!(
        allocation["value"]["allocationTimestamp"], "2026-01-01T01:00:00Z",
        "kube-scheduler adds none"
    );
    let said = [
        Notice::Writes(claim, "90".into()),
        Notice::Allocated("c-0".into(), "node-00000".into()),
        Notice::AllAllocated,
    ];
    assert_eq!(first.said, said);
}

#[test]
fn a_write_without_an_answer_is_repeated_as_it_was() {
    let mut world = World::of(cluster(2, 1));
    comes(&mut world.index, 0, "1");
    let lost = Refusal::Transient("lost".to_owned());
    let first = world.look(0, ([Ok(json!({})), Err(lost)].into(), VecDeque::new())).expect("decided");
    assert!(matches!(first.then, Outcome::Failed(_)));
    let again = world.look(0, no_answers()).expect("it stands");
    let body = |of: &Carried| of.sent.last().map(|(_, write)| write.action.clone());
    let operations = |of: &Carried| match body(of) {
        Some(Action::Patch { operations, .. }) => operations,
        other => panic!("{other:?}"),
    };
    assert_eq!(operations(&first), operations(&again), "the same devices");
}

#[test]
fn what_the_api_server_refuses_is_said_and_its_devices_are_free() {
    let mut world = World::of(cluster(1, 1));
    comes(&mut world.index, 0, "1");
    let no = Refusal::Rbac("another owner".to_owned());
    let first = world.look(0, ([Ok(json!({})), Err(no)].into(), VecDeque::new())).expect("decided");
    assert_eq!(first.purposes().last(), Some(&Purpose::Verdict));
    let says =
        |said: &Notice| matches!(said, Notice::Warning("Refused", why) if why.ends_with("another owner"));
    assert!(first.said.contains(&Notice::NotWritten("claim-0".into())) && first.said.iter().any(says));
    assert!(!first.said.contains(&Notice::AllAllocated));
    assert!(matches!(first.then, Outcome::Failed(_)), "it is tried again later");
    assert!(world.decided.overlay.assumes("claim-0").is_none());
}

#[test]
fn nothing_is_written_after_the_claim_was_deleted() {
    let mut world = World::of(cluster(1, 1));
    comes(&mut world.index, 0, "1");
    let gone = world.look(0, refused(Refusal::NotFound)).expect("decided");
    assert_eq!((gone.purposes(), gone.then), (vec![Purpose::Protect("claim-0".into())], Outcome::Done));
}

#[test]
fn a_pod_behind_another_of_its_shape_waits_and_is_told_once() {
    let mut world = World::of(cluster(1, 1));
    comes(&mut world.index, 0, "99");
    comes(&mut world.index, 1, "99");
    let first = world.look(0, no_answers()).expect("it is refused");
    assert_eq!(first.purposes(), vec![Purpose::Verdict]);
    let behind = world.look(1, no_answers()).expect("it is behind");
    assert_eq!((behind.purposes(), behind.woken), (vec![Purpose::Verdict], vec![key(0)]));
    assert!(matches!(&behind.said[..], [Notice::Warning("NoNode", why)] if why.ends_with("comes first")));
    let told = r#"{"reason":"NoNode","message":"full","nodes":1,"time":"2026-01-01T00:00:00Z"}"#;
    let mut known = claim(1, &json!({}));
    known["metadata"]["annotations"] = json!({"dragoman.dev/verdict": told});
    known["metadata"]["resourceVersion"] = json!("3");
    applied::<ResourceClaim>(&mut world.index, &known);
    assert_eq!(world.look(1, no_answers()).expect("it is behind").purposes(), vec![]);
    // The first one ends: the next is looked at.
    let mut ended = pod(0, "99");
    ended["status"] = json!({"phase": "Failed"});
    ended["metadata"]["resourceVersion"] = json!("2");
    applied::<Pod>(&mut world.index, &ended);
    let (_, woken) = world.at(|look| matches!(look.begin(&key(0)), Begun::Rests));
    assert_eq!(woken, vec![key(1)]);
}

/// The verdict on the first Pod says nothing of what was said of the others before the last of them came.
#[test]
fn every_pod_of_a_gang_says_that_there_is_no_room() {
    let mut world = World::of(cluster(1, 1));
    let group = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "g", "resourceVersion": "1"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}});
    applied::<PodGroup>(&mut world.index, &group);
    let comes = |world: &mut World, number: usize| {
        let mut member = pod(number, "99");
        member["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
        applied::<ResourceClaim>(&mut world.index, &claim(number, &json!({})));
        applied::<Pod>(&mut world.index, &member);
    };
    comes(&mut world, 0);
    comes(&mut world, 1);
    let waits = world.look(1, no_answers()).expect("it waits");
    assert!(matches!(&waits.said[..], [Notice::Warning("GangIncomplete", _)]), "{:?}", waits.said);
    comes(&mut world, 2);
    // Nothing is known of the first one yet.
    let behind = world.look(2, no_answers()).expect("it is behind");
    assert_eq!((behind.purposes(), behind.woken), (vec![], vec![key(0)]));
    let first = world.look(0, no_answers()).expect("it is refused");
    assert_eq!((first.purposes(), first.woken), (vec![Purpose::Verdict], vec![key(1), key(2)]));
    for number in [1, 2] {
        let behind = world.look(number, no_answers()).expect("it is behind");
        assert_eq!((behind.purposes(), behind.woken), (vec![Purpose::Verdict], vec![key(0)]));
        assert!(
            matches!(&behind.said[..], [Notice::Warning("NoNode", why)] if why.ends_with("Pod p-0 says what is missing"))
        );
    }
    // The verdict names the Pod that comes first now.
    let mut told = claim(2, &json!({}));
    let verdict = |first: &str| {
        let why = format!(
            "the Pods of its PodGroup get devices at once or not at all, and Pod {first} says what is missing"
        );
        json!({"reason": "NoNode", "message": why, "nodes": 1, "time": "2026-01-01T00:00:00Z"}).to_string()
    };
    for (version, first, wanted) in [("7", "p-0", vec![]), ("8", "p-9", vec![Purpose::Verdict])] {
        told["metadata"]["annotations"] = json!({"dragoman.dev/verdict": verdict(first)});
        told["metadata"]["resourceVersion"] = json!(version);
        applied::<ResourceClaim>(&mut world.index, &told);
        assert_eq!(world.look(2, no_answers()).expect("it is behind").purposes(), wanted, "{first}");
    }
    // Otherwise they would wake each other without end.
    assert_eq!(world.look(0, no_answers()).expect("it is refused").woken, []);
}

#[test]
fn pods_that_share_a_claim_do_not_write_over_each_other() {
    let mut world = World::of(cluster(1, 1));
    let mut said = claim(0, &json!({}));
    // The time of every look.
    let verdict = r#"{"reason":"NoNode","message":"full","nodes":1,"time":"2026-01-01T00:59:50Z"}"#;
    said["metadata"]["annotations"] = json!({"dragoman.dev/verdict": verdict});
    applied::<ResourceClaim>(&mut world.index, &said);
    let mut member = pod(0, "1");
    member["spec"]["schedulingGroup"] = json!({"podGroupName": "not-there"});
    applied::<Pod>(&mut world.index, &member);
    let waits = world.look(0, no_answers()).expect("it waits");
    assert!(matches!(&waits.said[..], [Notice::Warning("GangIncomplete", _)]), "{:?}", waits.said);
    assert_eq!(waits.purposes(), vec![]);
    // One whose time is still to come is of a clock that was set back, and would stay until that time.
    said["metadata"]["annotations"] = json!({"dragoman.dev/verdict": verdict.replace("00:59", "02:59")});
    said["metadata"]["resourceVersion"] = json!("7");
    applied::<ResourceClaim>(&mut world.index, &said);
    assert_eq!(world.look(0, no_answers()).expect("it waits").purposes(), vec![Purpose::Verdict]);
}

/// A message that changes soon after it was written is written once that may be: what it says is over.
#[test]
fn a_message_that_changes_is_written_in_the_end() {
    let mut world = World::of(cluster(1, 1));
    let mut said = claim(0, &json!({}));
    let verdict = r#"{"reason":"NoNode","message":"full","nodes":1,"time":"2026-01-01T00:59:50Z"}"#;
    said["metadata"]["annotations"] = json!({"dragoman.dev/verdict": verdict});
    applied::<ResourceClaim>(&mut world.index, &said);
    applied::<Pod>(&mut world.index, &pod(0, "99"));
    let soon = world.look(0, no_answers()).expect("it is refused");
    assert_eq!((soon.purposes(), soon.then), (vec![], Outcome::After(Duration::from_secs(20))));
    // A Pod that shares the claim may have another message.
    let mut other = pod(1, "99");
    other["spec"]["resourceClaims"] = pod(0, "99")["spec"]["resourceClaims"].clone();
    applied::<Pod>(&mut world.index, &other);
    assert_eq!(world.look(0, no_answers()).expect("it is refused").then, Outcome::Done);
}

/// All its claims have devices, and the node of one that another Pod uses has no room for it.
#[test]
fn a_pod_that_has_no_room_beside_another_says_so() {
    let mut world = World::of(cluster(1, 1));
    let mut shared = held(0, &json!({}));
    shared["status"]["reservedFor"] = json!([{"resource": "pods", "name": "other", "uid": "other"}]);
    applied::<ResourceClaim>(&mut world.index, &shared);
    applied::<Pod>(&mut world.index, &pod(0, "99"));
    let refused = world.look(0, no_answers()).expect("it is refused");
    assert_eq!(refused.purposes(), vec![], "a verdict is about a claim without devices");
    assert!(
        matches!(&refused.said[..], [Notice::NoNode, Notice::Warning("NoNode", _)]),
        "{:?}",
        refused.said
    );
}

#[test]
fn a_pod_that_lost_its_devices_rests() {
    let mut world = World::of(cluster(1, 1));
    applied::<ResourceClaim>(&mut world.index, &held(0, &json!({})));
    applied::<Pod>(&mut world.index, &pod(0, "1"));
    assert_eq!(world.look(0, no_answers()).expect("it has its devices").then, Outcome::Done);
    let mut lost = claim(0, &json!({}));
    lost["metadata"]["resourceVersion"] = json!("9");
    applied::<ResourceClaim>(&mut world.index, &lost);
    let rests = world.look(0, no_answers()).expect("it needs devices");
    assert_eq!(rests.purposes(), vec![], "another party would take them again at once");
    assert!(matches!(rests.then, Outcome::After(rest) if rest >= Duration::from_secs(1)));
    world.now += Duration::from_secs(2);
    assert!(!world.look(0, no_answers()).expect("it needs devices").sent.is_empty());
}

/// The owner of a driver is a user, and this process does not know yet which user it is.
#[test]
fn nothing_is_decided_before_the_allocator_knows_itself() {
    let mut index = cluster(1, 1);
    comes(&mut index, 0, "1");
    let mut world = World {
        index,
        decided: InFlightAllocations::default(),
        options: Options::default(),
        now: Instant::now(),
    };
    let (is_nameless, _) = world.at(|look| matches!(look.begin(&key(0)), Begun::Nameless));
    assert!(is_nameless);
}

#[test]
fn two_pods_that_share_a_claim_are_decided_on_one_after_the_other() {
    let mut world = World::of(cluster(1, 1));
    comes(&mut world.index, 0, "1");
    let mut other = pod(1, "1");
    other["spec"]["resourceClaims"][0]["resourceClaimName"] = json!("c-0");
    applied::<Pod>(&mut world.index, &other);
    world.look(0, no_answers()).expect("it is decided on");
    let second = world.look(1, no_answers()).expect("it waits");
    assert_eq!((second.purposes(), second.then), (vec![], Outcome::After(Duration::from_millis(200))));
}
