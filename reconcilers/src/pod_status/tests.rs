//! Writes of entries into the status of Pods, and when they stop.

use std::sync::LazyLock;
use std::time::Duration;

use dragoman_accounting::claim::allocation::{Device, DeviceResult};
use dragoman_accounting::claim::contribution::{Contribution, Generation, Line, Source};
use dragoman_accounting::claim::footprint::{
    AccountingPolicy, Basis, DeviceCost, Mapping, ResourceFootprint,
};
use dragoman_accounting::cluster::{self, ClaimName, ClaimsOfPod, ClusterLedger, PodClaim, Rules};
use dragoman_accounting::ledger::holder::Scheduler;
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::resource::Resource;
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_machinery::controller::{Keeps, Next, ObjectKey, Outcome, Pass as _};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::{Action, Written};
use dragoman_objects::Pod;
use dragoman_quantity::Decimal;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::index::{PodStatuses, recorded};
use super::pass::{Notice, PublishPass, Purpose};
use super::plan::{Conflict, OwnWrites, Plan, plan};
use super::shape::{self, GENERATIONS};

static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn claims() -> ClaimsOfPod {
    let line = Line::mapping(Resource::Cpu, Decimal::from(2));
    let of = Contribution { source: Source::claim("gpu"), lines: vec![line], ..Contribution::default() };
    ClaimsOfPod { contributions: vec![of], ..ClaimsOfPod::default() }
}

fn mine(times: usize) -> OwnWrites {
    OwnWrites { recorded: Some(7), times, at: Some(*NOW), ..OwnWrites::default() }
}

fn pod(status: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).expect("Pod")
}

#[test]
fn writes_are_remembered_as_long_as_the_index_has_the_pod() {
    let mut index = PodStatuses::default();
    let (key, uid) = (ObjectKey { namespace: "ns".into(), name: "p".into() }, "a".into());
    assert_eq!(index.remember(&key, &uid, |mine| mine.stopped = true), None, "its deletion was seen");
    assert!(index.mine.is_empty());
}

#[test]
fn a_pod_with_an_extended_resource_alone_is_concerned() {
    let pod = |status: Value| {
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "p"},
            "spec": {"nodeName": "n", "containers": []}, "status": status}))
        .expect("Pod")
    };
    let mut index = PodStatuses::default();
    assert_eq!(Keeps::<Pod>::project(&mut index, &pod(json!({}))), None, "it has no claim");
    let extended = json!({"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": []}});
    assert_eq!(Keeps::<Pod>::project(&mut index, &pod(extended)), Some(None), "nothing is recorded yet");
}

#[test]
fn a_pod_without_entries_gets_them_once() {
    assert_eq!(plan(None, Some(claims()), None, *NOW), Plan::Write(claims()));
    assert_eq!(plan(Some(7), Some(claims()), Some(&mine(1)), *NOW), Plan::Rest);
}

#[test]
fn what_another_writer_wrote_first_is_left_alone() {
    assert_eq!(plan(Some(1), Some(claims()), None, *NOW), Plan::Rest);
}

#[test]
fn half_of_the_amounts_is_not_written() {
    let unread = Unaccounted { object: "o".into(), field: "f".into(), resource: None, why: "w".into() };
    let half = ClaimsOfPod { unaccounted: vec![unread], ..claims() };
    assert!(matches!(plan(None, Some(half), None, *NOW), Plan::Wait(_)));
    assert!(matches!(plan(None, None, None, *NOW), Plan::Wait(_)), "the ledger does not know the Pod yet");
}

#[test]
fn claims_that_take_nothing_have_no_entry() {
    let nothing = Contribution { source: Source::claim("gpu"), ..Contribution::default() };
    let claims = ClaimsOfPod { contributions: vec![nothing], ..ClaimsOfPod::default() };
    assert_eq!(plan(None, Some(claims), None, *NOW), Plan::Rest);
}

#[test]
fn erased_entries_are_put_back_with_an_end() {
    assert_eq!(plan(None, Some(claims()), Some(&mine(1)), *NOW), Plan::Wait(ms(1_000)));
    assert_eq!(plan(None, Some(claims()), Some(&mine(1)), *NOW + ms(1_000)), Plan::Write(claims()));
    assert_eq!(plan(None, Some(claims()), Some(&mine(3)), *NOW + ms(59_999)), Plan::Wait(ms(1)));
    assert_eq!(plan(None, Some(claims()), Some(&mine(4)), *NOW + ms(60_000)), Plan::Stop(Conflict::Erased));
}

#[test]
fn a_second_writer_ends_it() {
    assert_eq!(plan(Some(8), Some(claims()), Some(&mine(1)), *NOW), Plan::Stop(Conflict::Replaced));
    let stopped = OwnWrites { stopped: true, ..mine(1) };
    for recorded in [None, Some(7), Some(8)] {
        assert_eq!(plan(recorded, Some(claims()), Some(&stopped), *NOW), Plan::Rest);
    }
}

/// An apply conflicts with a manager that owns the field and has no entries in it.
#[test]
fn a_field_that_another_manager_owns_is_tried_four_times_and_said() {
    let refused = |times| OwnWrites { recorded: None, owned: true, ..mine(times) };
    assert_eq!(plan(None, Some(claims()), Some(&refused(1)), *NOW), Plan::Wait(ms(1_000)));
    assert_eq!(plan(None, Some(claims()), Some(&refused(4)), *NOW), Plan::Stop(Conflict::Owned));
    // Its entries were on their way: they were there first.
    assert_eq!(plan(Some(8), Some(claims()), Some(&refused(1)), *NOW), Plan::Rest);
}

#[test]
fn a_policy_that_the_field_has_no_place_for_is_said() {
    let mut pooled = claims();
    pooled.contributions[0].lines[0].policy = Some(AccountingPolicy::ConsumeFrom);
    assert_eq!(plan(None, Some(pooled), None, *NOW), Plan::Stop(Conflict::Unrepresentable));
}

#[test]
fn a_mapped_claim_of_several_pods_is_written_into_none() {
    let claim = cluster::Claim {
        namespace: "ns".into(),
        name: "gpu".into(),
        uid: "c".into(),
        results: Some(vec![DeviceResult { driver: "d".into(), ..DeviceResult::default() }]),
        ..cluster::Claim::default()
    };
    let costs = ResourceFootprint {
        mapping: Some(Mapping { basis: Basis::PerDevice, multiplier: Decimal::from(2) }),
        ..ResourceFootprint::default()
    };
    let device =
        Device { cost: DeviceCost { resources: [(Resource::Cpu, costs)].into() }, ..Device::default() };
    let device = cluster::SliceDevice { device, ..cluster::SliceDevice::default() };
    let mut ledger = ClusterLedger::new(Rules::default());
    ledger.put_slice(cluster::Slice {
        driver: "d".into(),
        devices: vec![device],
        ..cluster::Slice::default()
    });
    ledger.put_claim(claim);
    let pod = |uid: &str| cluster::Pod {
        view: PodSpecView {
            namespace: "ns".into(),
            name: uid.into(),
            uid: uid.into(),
            ..PodSpecView::default()
        },
        node: Some("n".into()),
        claims: vec![PodClaim { claim: ClaimName::Named("gpu".into()), ..PodClaim::default() }],
        ..cluster::Pod::default()
    };
    ledger.put_pod(pod("a"));
    assert!(matches!(plan(None, ledger.claims_of_pod("a"), None, *NOW), Plan::Write(_)));
    ledger.put_pod(pod("b"));
    for uid in ["a", "b"] {
        assert!(matches!(plan(None, ledger.claims_of_pod(uid), None, *NOW), Plan::Wait(_)), "{uid}");
    }
}

#[test]
fn every_generation_and_a_field_that_does_not_decode_is_an_entry() {
    assert_eq!(recorded(&pod(&json!({}))), None);
    assert_eq!(recorded(&pod(&json!({"nodeAllocatableResourceClaimStatuses": []}))), None);
    let of = |status: Value| recorded(&pod(&status)).expect("an entry");
    let v1_36 = of(json!({"nodeAllocatableResourceClaimStatuses":
        [{"resourceClaimName": "gpu", "resources": {"cpu": "2"}}]}));
    let v1_37 = of(json!({"nodeAllocatableResourceClaimStatuses":
        [{"resourceClaimName": "gpu", "mapping": [{"name": "cpu", "quantity": "2"}]}]}));
    let other = of(json!({"nodeAllocatableResourceClaimStatuses":
        [{"resourceClaimName": "gpu", "mapping": [{"name": "cpu", "quantity": "3"}]}]}));
    let unreadable = of(json!({"nodeAllocatableResourceClaimStatuses": "none"}));
    assert!(v1_36 != v1_37 && v1_37 != other && unreadable != other);
}

/// The outcome of a pass: the writes with what they are for, what was learnt, and the outcome.
type Carried = (Vec<(Purpose, bool)>, Vec<Notice>, Outcome);

fn carried_out(known: Option<Scheduler>, answers: Vec<Result<Value, Refusal>>) -> Carried {
    let (key, uid) = (ObjectKey { namespace: "ns".into(), name: "p".into() }, "p".into());
    let mut pass = PublishPass::new(&key, &uid, &claims().contributions, known).expect("it can be written");
    let (mut answers, mut sent) = (answers.into_iter(), Vec::new());
    let then = loop {
        assert!(sent.len() <= pass.most_steps(), "it comes to an end");
        match pass.next() {
            Next::Rest(then) => break then,
            Next::Read(_) => panic!("nothing is read"),
            Next::Send { write, purpose } => {
                sent.push((purpose, write.dry_run));
                let answer = answers.next().unwrap_or_else(|| Ok(json!({})));
                pass.sent(purpose, answer.map(|status| written(&status)));
            }
        }
    };
    (sent, std::mem::take(&mut pass.report), then)
}

fn written(status: &Value) -> Written {
    let pod = json!({"metadata": {"name": "p", "uid": "p", "resourceVersion": "2"}, "status": status});
    let meta = serde_json::from_value(pod["metadata"].clone()).expect("metadata");
    Written { meta, body: pod.to_string().into_bytes() }
}

fn kept() -> Value {
    json!({"nodeAllocatableResourceClaimStatuses":
        [{"resourceClaimName": "gpu", "mapping": [{"name": "cpu", "quantity": "2"}]}]})
}

const AWARE: Option<Scheduler> = Some(Scheduler::Aware(Generation::V1_37));
const PUBLISH: (Purpose, bool) = (Purpose::Publish(Generation::V1_37), false);

#[test]
fn the_first_pod_of_a_process_asks_and_publishes_in_the_next_look() {
    let ask = |generation| (Purpose::Ask(generation), true);
    let found = carried_out(None, vec![Ok(json!({})), Ok(kept())]);
    let says = vec![Notice::Keeps(Some(Generation::V1_37))];
    let at_once = Outcome::After(std::time::Duration::ZERO);
    assert_eq!(found, (vec![ask(Generation::V1_38), ask(Generation::V1_37)], says, at_once.clone()));
    let (sent, said, then) = carried_out(None, Vec::new());
    assert_eq!((sent.len(), said, then), (3, vec![Notice::Keeps(None)], at_once));
    let owned = carried_out(None, vec![Err(Refusal::OwnedByAnother("kubelet".to_owned()))]);
    assert_eq!((owned.0.len(), owned.1), (1, vec![Notice::OwnedByAnother]));
    let lost = carried_out(None, vec![Err(Refusal::Throttled)]);
    assert_eq!((lost.0.len(), lost.1), (1, vec![]), "no answer says nothing");
    assert!(matches!(lost.2, Outcome::Failed(_)));
}

#[test]
fn what_became_of_a_publication_is_learnt() {
    let (sent, said, then) = carried_out(AWARE, vec![Ok(kept())]);
    assert!(matches!(said[..], [Notice::Written(Some(_))]), "{said:?}");
    assert_eq!((sent, then), (vec![PUBLISH], Outcome::Done));
    let (_, said, then) = carried_out(AWARE, vec![Ok(json!({}))]);
    assert_eq!(said, vec![Notice::Changed], "the field was dropped");
    assert!(matches!(then, Outcome::Failed(_)));
    let undeclared = Refusal::Invalid("field not declared in schema".to_owned());
    assert_eq!(carried_out(AWARE, vec![Err(undeclared)]).1, vec![Notice::Changed]);
    let owned = carried_out(AWARE, vec![Err(Refusal::OwnedByAnother("kubelet".to_owned()))]);
    assert_eq!(owned.1, vec![Notice::OwnedByAnother]);
    assert_eq!(carried_out(AWARE, vec![Err(Refusal::NotFound)]).2, Outcome::Done, "its watch says so soon");
}

/// The policy that confines the operator in the status of Pods knows the field of every generation.
#[test]
fn every_field_that_is_written_is_let_through() {
    let policy = include_str!("../../../config/base/confined.yaml");
    for generation in GENERATIONS {
        let write =
            shape::write("ns", "pod", &"u".into(), &claims().contributions, generation).expect("a write");
        let Action::Apply { body, .. } = write.action else { panic!("it is no apply") };
        let fields: Vec<&String> = body["status"].as_object().expect("a status").keys().collect();
        assert_eq!(fields.len(), 1, "{body}");
        assert!(fields.iter().all(|field| policy.contains(&format!("'{field}'"))), "{body}");
    }
}

/// 1.37.2 refuses all entries of a Pod for one that it does not take.
#[test]
fn what_the_api_server_does_not_take_is_left_out_and_said() {
    let of = |claim: &str, resources: &[Resource]| {
        let lines = resources.iter().map(|resource| Line::mapping(*resource, Decimal::from(1)));
        Contribution { source: Source::claim(claim), lines: lines.collect(), ..Contribution::default() }
    };
    let (cpu, storage) = (Resource::Cpu, Resource::EphemeralStorage);
    let all = vec![of("a", &[cpu, storage]), of("extended", &[cpu]), of("c", &[storage])];
    let parted = |generation| shape::parted(&all, Some("extended"), generation);
    let (taken, rest) = parted(Generation::V1_37);
    assert_eq!(taken, vec![of("a", &[cpu])]);
    assert_eq!(rest, vec![of("a", &[storage]), of("extended", &[cpu]), of("c", &[storage])]);
    assert_eq!(parted(Generation::V1_36).0, vec![of("a", &[cpu, storage]), of("c", &[storage])]);
    let said = |holders| shape::uncounted(&rest, holders).expect("something is left");
    assert!(said(false).contains("cpu of claim extended"), "{}", said(false));
    assert!(
        !said(true).contains("cpu") && said(true).contains("ephemeral-storage of claim c"),
        "{}",
        said(true)
    );
    assert_eq!(shape::uncounted(&[of("extended", &[cpu])], true), None, "a holder holds it");
}

/// Whether a generation is kept does not depend on what the devices of this Pod take.
#[test]
fn one_asks_with_an_amount_that_every_generation_takes() {
    let line = Line::mapping(Resource::EphemeralStorage, Decimal::from(1));
    let of = Contribution { source: Source::claim("gpu"), lines: vec![line], ..Contribution::default() };
    let (key, uid) = (ObjectKey { namespace: "ns".into(), name: "p".into() }, "p".into());
    let mut inquiry = super::Inquiry::new(&key, &uid, &of).expect("it can be written");
    while let Some((_, write)) = inquiry.next() {
        let Action::Apply { body, .. } = write.action else { panic!("it is no apply") };
        assert!(write.dry_run && body.to_string().contains("cpu"), "{body}");
        assert!(!body.to_string().contains("ephemeral"), "{body}");
    }
}
