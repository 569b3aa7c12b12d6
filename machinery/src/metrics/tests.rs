use super::*;

#[test]
fn known_label_sets_start_at_zero() {
    let mut registry = Registry::default();
    ClientMetrics::register(&mut registry, "h");
    let metrics = MachineryMetrics::register(&mut registry);
    metrics.watched("Pod");
    metrics.write("Pod", "patch", "Done");
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("encode");
    for line in [
        "dragoman_client_repetitions_total{verb=\"PATCH\",host=\"h\"} 0",
        "dragoman_watch_events_total{kind=\"Pod\"} 0",
        "dragoman_relists_total{kind=\"Pod\"} 0",
        "dragoman_watch_failures_total{kind=\"Pod\",reason=\"Forbidden\"} 0",
        "dragoman_watch_failures_total{kind=\"Pod\",reason=\"WentBack\"} 0",
        "dragoman_writes_total{kind=\"Pod\",verb=\"patch\",outcome=\"Done\"} 1",
        "dragoman_writes_total{kind=\"Pod\",verb=\"patch\",outcome=\"Invalid\"} 0",
        "dragoman_events_dropped_total 0",
    ] {
        assert!(text.lines().any(|each| each == line), "{line} is not in\n{text}");
    }
}
