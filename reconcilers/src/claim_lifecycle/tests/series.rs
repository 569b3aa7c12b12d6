//! The number of metric series does not grow with the cluster, and a combination
//! that falls to nothing says 0.

use prometheus_client::registry::Registry;
use serde_json::json;

use super::super::metrics::LifecycleMetrics;
use super::super::snapshot::ConsumerKind;
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
    let metrics = LifecycleMetrics::register(&mut registry);
    let mut state = State::default();
    metrics.measure(&state, 0);
    let empty = series(&registry);
    Fed::<ResourceClaim>::began(&mut state);
    for i in 0..5000 {
        applied::<ResourceClaim>(&mut state, &claim(i));
        for consumer in [ConsumerKind::Pod, ConsumerKind::PodGroup] {
            metrics.created(i.is_multiple_of(3), i.is_multiple_of(7), consumer);
        }
    }
    Fed::<ResourceClaim>::completed(&mut state, "2");
    metrics.measure(&state, 0);
    let gauge = "dynamic_resource_allocation_resource_claims{allocated=\"true\",admin_access=\"false\",source=\"resource_claim_template\"}";
    assert!(text(&registry).contains(&format!("{gauge} 4285")), "{}", text(&registry));
    // Two by two by two creations of claims; everything else was there before.
    assert_eq!(series(&registry), empty + 8);
    Fed::<ResourceClaim>::began(&mut state);
    Fed::<ResourceClaim>::completed(&mut state, "3");
    metrics.measure(&state, 0);
    assert!(text(&registry).contains(&format!("{gauge} 0")), "{}", text(&registry));
    assert_eq!(series(&registry), empty + 8);
}
