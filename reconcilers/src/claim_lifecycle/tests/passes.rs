//! Whole passes, without a runtime: each step is answered by a table.

use std::time::Duration;

use dragoman_machinery::api::Live;
use dragoman_machinery::controller::{Next, Outcome, Pass};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::Written;
use dragoman_objects::Meta;
use tokio::time::Instant;

use super::super::claim_body::Birth;
use super::super::claim_pass::ClaimPass;
use super::super::consumer_pass::ConsumerPass;
use super::super::key::Subject;
use super::super::reclaim::{At, Reclaim};
use super::super::report::Notice;
use super::*;

/// The answers of an API server to the names of what is written and read.
struct Answers<'a> {
    write: &'a dyn Fn(&Write) -> Result<(), Refusal>,
    read: &'a dyn Fn(&str) -> Result<Live<Vec<u8>>, Refusal>,
}

/// Plays a pass to its end; returns the outcome and every write that was sent.
fn play<P: Pass<State>>(
    state: &State,
    pass: &mut P,
    answers: &Answers<'_>,
    mut tell: impl FnMut(&mut P),
) -> (Outcome, Vec<Write>) {
    let mut sent = Vec::new();
    for steps in 0.. {
        pass.observe(state);
        assert!(steps <= pass.most_steps(), "{steps} steps");
        let next = pass.next();
        tell(pass);
        match next {
            Next::Rest(then) => return (then, sent),
            Next::Read(reads) => {
                for read in reads {
                    let answer = (answers.read)(&read.name);
                    pass.read(&read, answer);
                }
            }
            Next::Send { write, purpose, .. } => {
                let outcome = (answers.write)(&write);
                sent.push(*write);
                pass.sent(purpose, outcome.map(|()| Written { meta: Meta::default(), body: b"{}".to_vec() }));
            }
        }
        tell(pass);
    }
    unreachable!("a pass ends")
}

const GONE: &dyn Fn(&str) -> Result<Live<Vec<u8>>, Refusal> = &|_| Ok(Live::NotFound);

fn found(object: &Value) -> Live<Vec<u8>> {
    Live::Found(Box::new(object.to_string().into_bytes()))
}

/// A cluster with a Pod with so many entries from the template `one`.
fn with_entries(count: usize) -> Cluster {
    let entry = |i| json!({"name": format!("e{i}"), "resourceClaimTemplateName": "one"});
    let entries: Vec<Value> = (0..count).map(entry).collect();
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.pod(with(pod("u"), "/spec/resourceClaims", json!(entries)));
    cluster
}

fn pass_of_pod() -> ConsumerPass {
    ConsumerPass::new(&Key::new(Subject::Pod, "ns", "pod"), &Birth::default(), Instant::now())
}

fn verbs(sent: &[Write]) -> (usize, usize) {
    let count = |verb| sent.iter().filter(|write| write.action.verb() == verb).count();
    (count("create"), count("patch"))
}

#[test]
fn a_pod_with_many_entries_gets_its_claims_in_portions_and_their_names_at_once() {
    let mut cluster = with_entries(100);
    let answers = Answers { write: &|_| Ok(()), read: GONE };
    let (then, sent) = play(&cluster.state, &mut pass_of_pod(), &answers, |_| {});
    assert_eq!((then, verbs(&sent)), (Outcome::After(Duration::ZERO), (64, 0)));
    for write in sent {
        let Action::Create { body } = &write.action else { panic!("{write:?}") };
        let claim: Value = serde_json::from_str(body).expect("claim");
        cluster.claim(with(claim, "/metadata/uid", json!(write.name)));
    }
    let (then, sent) = play(&cluster.state, &mut pass_of_pod(), &answers, |_| {});
    assert_eq!((then, verbs(&sent)), (Outcome::Done, (36, 1)));
    let Action::Apply { body, .. } = &sent[36].action else { panic!("{:?}", sent[36]) };
    assert_eq!(body["status"]["resourceClaimStatuses"].as_array().map(Vec::len), Some(100));
}

#[test]
fn a_template_that_is_too_large_to_be_kept_is_read_once_for_all_claims() {
    let mut cluster = with_entries(5);
    let large = with(template(), "/spec/spec/devices/config", json!("x".repeat(100_000)));
    cluster.apply(WatchedKind::Templates, large.clone());
    let record = cluster.state.index.templates.get("ns", "one").and_then(|record| record.readable());
    assert!(record.is_some_and(|record| record.payload.is_none()), "a tenant's template costs its name");
    let reads = std::cell::Cell::new(0);
    let read = |name: &str| {
        assert_eq!(name, "one");
        reads.set(reads.get() + 1);
        Ok(found(&large))
    };
    let answers = Answers { write: &|_| Ok(()), read: &read };
    let (then, sent) = play(&cluster.state, &mut pass_of_pod(), &answers, |_| {});
    assert_eq!((then, verbs(&sent), reads.get()), (Outcome::Done, (5, 1), 1));
    let Action::Create { body } = &sent[0].action else { panic!("{:?}", sent[0]) };
    assert!(body.len() > 100_000);
}

#[test]
fn a_pod_with_too_many_entries_gets_none_and_its_author_is_told() {
    let cluster = with_entries(257);
    let mut report = Vec::new();
    let answers = Answers { write: &|_| Ok(()), read: GONE };
    let tell = |pass: &mut ConsumerPass| report.append(&mut pass.take_report());
    let (then, sent) = play(&cluster.state, &mut pass_of_pod(), &answers, tell);
    assert!(then == Outcome::Done && sent.is_empty(), "{then:?} {sent:?}");
    let told = |said: &Notice| matches!(said, Notice::Warning { note, .. } if note.contains("there are 257 entries"));
    assert!(report.iter().any(told), "{report:?}");
}

#[test]
fn a_refused_entry_does_not_hold_up_the_others() {
    let cluster = with_entries(30);
    for refusal in [Refusal::Quota("full".into()), Refusal::Invalid("no".into()), Refusal::Conflict] {
        let mut pass = pass_of_pod();
        let first = |write: &Write| write.name.contains("-e0-") || write.name.contains("-e1-");
        let write = |write: &Write| if first(write) { Err(refusal.clone()) } else { Ok(()) };
        let mut report = Vec::new();
        let tell = |pass: &mut ConsumerPass| report.append(&mut pass.take_report());
        let answers = Answers { write: &write, read: GONE };
        let (then, sent) = play(&cluster.state, &mut pass, &answers, tell);
        let quota = matches!(refusal, Refusal::Quota(_));
        // A quota refuses claims of one template alike: the others are not tried.
        assert_eq!(verbs(&sent), if quota { (1, 0) } else { (30, 1) }, "{refusal}");
        let waits = |said: &Notice| matches!(said, Notice::Quota(outcome) if !outcome.waits.is_empty());
        assert_eq!(report.iter().any(waits), quota, "{then:?}");
    }
}

/// An API server in trouble does not get a request for each of many entries.
#[test]
fn a_pass_ends_when_three_creations_have_failed_for_a_while() {
    let cluster = with_entries(50);
    let down = |_: &Write| Err(Refusal::Transient("500".to_owned()));
    let (then, sent) =
        play(&cluster.state, &mut pass_of_pod(), &Answers { write: &down, read: GONE }, |_| {});
    assert!(matches!(then, Outcome::Failed(_)), "{then:?}");
    assert_eq!(verbs(&sent), (3, 0));
}

#[test]
fn names_that_others_have_are_avoided_and_a_lost_reply_is_looked_at() {
    let cluster = with_entries(1);
    let mut pass = pass_of_pod();
    let tried = std::cell::RefCell::new(Vec::new());
    let write = |write: &Write| {
        let mut tried = tried.borrow_mut();
        tried.push(write.name.clone());
        match tried.len() {
            1 | 2 => Err(Refusal::AlreadyExists),
            3 => Err(Refusal::Transient("lost".into())),
            _ => Ok(()),
        }
    };
    // The first two are of another owner, the third is ours: only its reply was lost.
    let read = |name: &str| {
        let is_third = tried.borrow().get(2).is_some_and(|third| third == name);
        Ok(found(&generated(name, if is_third { "u" } else { "other" })))
    };
    let (then, sent) = play(&cluster.state, &mut pass, &Answers { write: &write, read: &read }, |_| {});
    assert_eq!((then, verbs(&sent)), (Outcome::Done, (3, 1)));
    let names: std::collections::BTreeSet<&String> = sent[..3].iter().map(|write| &write.name).collect();
    assert_eq!(names.len(), 3);
    let Action::Apply { body, .. } = &sent[3].action else { panic!("{:?}", sent[3]) };
    assert_eq!(body["status"]["resourceClaimStatuses"][0]["resourceClaimName"], json!(sent[2].name));
}

#[test]
fn one_consumer_that_cannot_be_read_does_not_keep_the_others() {
    let mut cluster = Cluster::synced();
    cluster.claim(in_use(plain("c"), &[]));
    let consumer = |name: &str| json!({"resource": "pods", "name": name, "uid": name});
    let claim = with(in_use(plain("c"), &[]), "/status/reservedFor", json!(["a", "b", "d"].map(consumer)));
    cluster.claim(claim);
    let read = |name: &str| match name {
        "b" => Ok(found(&json!({"metadata": {"uid": "b", "name": "b"}, "spec": "garbled"}))),
        _ => Ok(Live::NotFound),
    };
    let mut pass = ClaimPass::new(&Key::new(Subject::Claim, "ns", "c"), At::default());
    let write = |_: &Write| Err(Refusal::Conflict);
    let (then, sent) = play(&cluster.state, &mut pass, &Answers { write: &write, read: &read }, |_| {});
    assert!(matches!(then, Outcome::Failed(_)), "{then:?}");
    assert_eq!(operations(&sent[0]), ["remove /status/reservedFor/2", "remove /status/reservedFor/0"]);
    // An API server that does not answer decides nothing.
    let read = |_: &str| Err(Refusal::Transient("down".into()));
    let mut pass = ClaimPass::new(&Key::new(Subject::Claim, "ns", "c"), At::default());
    let (then, sent) = play(&cluster.state, &mut pass, &Answers { write: &write, read: &read }, |_| {});
    assert!(matches!(then, Outcome::Failed(_)) && sent.is_empty(), "{then:?}");
}

/// The consumers that ended leave in a write of their own. After it the claim is held as before.
#[test]
fn a_claim_is_held_after_others_have_left_it() {
    let mut cluster = Cluster::default();
    cluster.state.guard();
    for watched in [WatchedKind::Pods, WatchedKind::Claims, WatchedKind::Templates, WatchedKind::Groups] {
        cluster.relist(watched, Vec::new());
    }
    let reserved_for = |names: &[&str]| {
        let consumer = |name: &&str| json!({"resource": "pods", "name": name, "uid": name});
        let consumers: Vec<Value> = names.iter().map(consumer).collect();
        with(in_use(plain("c"), &[]), "/status/reservedFor", json!(consumers))
    };
    cluster.claim(reserved_for(&["vanished", "ended"]));
    let chosen = Reclaim { guard: Some(Duration::from_secs(60)), ..Reclaim::default() };
    let mut pass = ClaimPass::new(&Key::new(Subject::Claim, "ns", "c"), At { chosen, now: NOW });
    pass.observe(&cluster.state);
    let Next::Read(reads) = pass.next() else { panic!("no question") };
    pass.read(&reads[0], Ok(Live::NotFound));
    pass.read(&reads[1], Ok(found(&succeeded("ended"))));
    let Next::Send { write, purpose } = pass.next() else { panic!("no write") };
    assert_eq!(operations(&write), ["remove /status/reservedFor/1"]);
    let body = cluster.stamp(reserved_for(&["vanished"])).to_string().into_bytes();
    pass.sent(purpose, Ok(Written { meta: Meta::default(), body }));
    pass.observe(&cluster.state);
    let Next::Rest(then) = pass.next() else { panic!("a write") };
    assert_eq!((then, pass.is_held), (Outcome::After(Duration::from_secs(60)), Some(true)));
    // An API server that does not answer ends no hold.
    let mut pass = ClaimPass::new(&Key::new(Subject::Claim, "ns", "c"), At { chosen, now: NOW });
    let read = |_: &str| Err(Refusal::Transient("down".into()));
    let write = |_: &Write| Ok(());
    let (then, _) = play(&cluster.state, &mut pass, &Answers { write: &write, read: &read }, |_| {});
    assert!(matches!(then, Outcome::Failed(_)) && pass.is_held.is_none(), "{then:?}");
}

#[test]
fn what_rests_on_a_live_read_is_looked_at_again() {
    let again = Outcome::After(dragoman_machinery::expectations::PATIENCE);
    let write = |_: &Write| Ok(());
    // A claim is reserved for a Pod that the index does not know; the Pod is there.
    let mut cluster = Cluster::synced();
    cluster.claim(in_use(plain("c"), &["u"]));
    let read = |_: &str| Ok(found(&running("u")));
    let mut pass = ClaimPass::new(&Key::new(Subject::Claim, "ns", "c"), At::default());
    let (then, sent) = play(&cluster.state, &mut pass, &Answers { write: &write, read: &read }, |_| {});
    assert!(then == again && sent.is_empty(), "{then:?} {sent:?}");
    // A Pod names a claim that the index does not know; the claim is there.
    let mut cluster = Cluster::synced();
    cluster.apply(WatchedKind::Templates, template());
    cluster.pod(publishes(pod("u"), "c"));
    let read = |_: &str| Ok(found(&generated("c", "u")));
    let (then, sent) =
        play(&cluster.state, &mut pass_of_pod(), &Answers { write: &write, read: &read }, |_| {});
    assert!(then == again && sent.is_empty(), "{then:?} {sent:?}");
}

/// A second operator saw the Pod end, and deleted its claim; this one has seen only the claim go.
#[test]
fn a_lost_claim_of_a_pod_that_has_ended_gets_no_successor() {
    let mut cluster = with_entries(1);
    cluster.pod(publishes(pod("u"), "lost"));
    let successors_with = |live: Value| {
        let read = |name: &str| Ok(if name == "pod" { found(&live) } else { Live::NotFound });
        let answers = Answers { write: &|_| Ok(()), read: &read };
        let (then, sent) = play(&cluster.state, &mut pass_of_pod(), &answers, |_| {});
        assert_eq!(then, Outcome::Done);
        verbs(&sent)
    };
    assert_eq!(successors_with(pod("u")), (1, 1));
    assert_eq!(successors_with(pod("another")), (0, 0));
    assert_eq!(successors_with(succeeded("u")), (0, 0));
    let deleted = with(pod("u"), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    assert_eq!(successors_with(deleted), (0, 0));
}
