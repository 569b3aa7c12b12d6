//! The number of metric series does not grow with the cluster, and a combination
//! that falls to nothing says 0.

use prometheus_client::registry::Registry;
use serde_json::json;

use super::super::metrics::LifecycleMetrics;
use super::super::snapshot::ConsumerKind;
use super::super::tally::ClaimTally;
use super::*;

fn claim(i: usize) -> Value {
    json!({
        "metadata": {"name": format!("claim-{i}"), "namespace": format!("ns-{}", i % 500), "uid": i.to_string(),
            "resourceVersion": "1", "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"}},
        "spec": {"devices": {"requests": [{"exactly": {"adminAccess": i.is_multiple_of(7)}}]}},
        "status": {"allocation": {}, "reservedFor": [{"resource": format!("kind-{i}"), "name": "x", "uid": i.to_string()}]},
    })
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).expect("text");
    text
}

fn series(registry: &Registry) -> usize {
    text(registry).lines().filter(|line| !line.starts_with('#')).count()
}

#[test]
fn series_are_bounded_and_none_disappears() {
    let mut registry = Registry::default();
    let mut state = State::default();
    let metrics = LifecycleMetrics::register(&mut registry, &state);
    metrics.leads();
    metrics.measure(&state, true, Timestamp::UNIX_EPOCH);
    let empty = series(&registry);
    Fed::<ResourceClaim>::began(&mut state);
    for i in 0..5000 {
        applied::<ResourceClaim>(&mut state, &claim(i));
        for consumer in [ConsumerKind::Pod, ConsumerKind::PodGroup] {
            metrics.created(i.is_multiple_of(3), i.is_multiple_of(7), consumer);
        }
    }
    Fed::<ResourceClaim>::completed(&mut state, "2");
    metrics.measure(&state, true, Timestamp::UNIX_EPOCH);
    let gauge = "dynamic_resource_allocation_resource_claims{allocated=\"true\",admin_access=\"false\",source=\"resource_claim_template\"}";
    assert!(text(&registry).contains(&format!("{gauge} 4285")), "{}", text(&registry));
    assert_eq!(series(&registry), empty);
    Fed::<ResourceClaim>::began(&mut state);
    Fed::<ResourceClaim>::completed(&mut state, "3");
    metrics.measure(&state, true, Timestamp::UNIX_EPOCH);
    assert!(text(&registry).contains(&format!("{gauge} 0")), "{}", text(&registry));
    assert_eq!(series(&registry), empty);
    // A standby has no part in a sum over all replicas.
    metrics.measure(&state, false, Timestamp::UNIX_EPOCH);
    assert!(!text(&registry).contains(gauge), "{}", text(&registry));
}

/// The counts after any history are those of a search through all claims.
#[test]
fn the_tally_is_a_recount() {
    let mut cluster = Cluster::synced();
    let mut drawn = 7_u64;
    let mut draw = |of: u64| {
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (drawn >> 33) % of
    };
    for round in 0..2000 {
        let name = format!("c-{}", draw(20));
        let claim = if draw(2) == 0 { generated(&name, "u") } else { plain(&name) };
        let consumers: &[&str] = if draw(2) == 0 { &["u"] } else { &[] };
        let lent = json!([{"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "j"}]);
        match draw(6) {
            0 => drop(cluster.delete(WatchedKind::Claims, claim)),
            1 => drop(cluster.claim(with(in_use(claim, &[]), "/status/reservedFor", lent))),
            2 => drop(cluster.claim(with(claim, "/spec", json!("does not decode")))),
            3 => drop(cluster.relist(WatchedKind::Claims, vec![claim])),
            _ => drop(cluster.claim(in_use(claim, consumers))),
        }
        let mut recount = ClaimTally::default();
        for (namespace, name, record) in cluster.state.index.claims.iter() {
            recount.changed(namespace, name, None, record.readable().map(|claim| &**claim));
        }
        assert_eq!(cluster.state.tally, recount, "after {round} changes");
    }
}

/// Waits and ends are measured on the objects, whichever process writes them.
#[test]
fn waits_and_ends_are_read_off_the_objects() {
    let mut cluster = Cluster::synced();
    let mut registry = Registry::default();
    let metrics = LifecycleMetrics::register(&mut registry, &cluster.state);
    cluster.pod(running("u"));
    metrics.measure(&cluster.state, true, after(30));
    let line = |name: &str, value: &str| {
        let text = text(&registry);
        assert!(text.lines().any(|line| line == format!("{name} {value}")), "{name} {value}: {text}");
    };
    line("dragoman_pods_waiting_for_claims{reason=\"Pending\"}", "1");
    line("dragoman_pods_waiting_for_claims_oldest_seconds{reason=\"Pending\"}", "30.0");
    // A process that makes no passes does not know what stands in the way.
    metrics.measure(&cluster.state, false, after(30));
    line("dragoman_pods_waiting_for_claims{reason=\"Pending\"}", "0");
    line("dragoman_pods_waiting_for_claims{reason=\"Unjudged\"}", "1");
    cluster.claim(in_use(generated("c", "u"), &["u"]));
    cluster.pod(publishes(running("u"), "c"));
    cluster.pod(publishes(succeeded("u"), "c"));
    // A claim that does not decode for a while is not released.
    cluster.claim(with(generated("c", "u"), "/spec", json!("does not decode")));
    cluster.claim(in_use(generated("c", "u"), &["u"]));
    cluster.claim(in_use(generated("c", "u"), &[]));
    metrics.measure(&cluster.state, false, after(30));
    line("dragoman_pods_waiting_for_claims{reason=\"Pending\"}", "0");
    line("dragoman_pod_claims_published_seconds_count{held_up=\"false\"}", "1");
    line("dragoman_claim_release_seconds_count", "1");
}
