//! Two controllers in one process: one watch per kind, and every family of metrics printed once.

#![expect(unreachable_pub, reason = "the toy is explained in CONTRIBUTING.md")]

#[path = "../../machinery/tests/toy/mod.rs"]
mod toy;

use std::collections::BTreeMap;
use std::time::Duration;

use dragoman_machinery::api::Limits;
use dragoman_machinery::connect::within;
use dragoman_machinery::controller::Embedded;
use dragoman_reconcilers::claim_lifecycle::{self, Options};
use dragoman_simcluster::{ApiHandle, ApiServer, Clock, Profile, Request, User};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn two_controllers_share_watches_and_families() {
    let clock = Clock::runtime();
    dragoman_machinery::clock::bind(clock.now());
    let server = ApiServer::new(Profile::default(), clock, 1);
    let handle = ApiHandle::new(server, User::admin());
    let mut registry = Registry::default();
    let clients = within(&handle, Limits::default(), &mut registry);
    let table = [claim_lifecycle::spec(Options::default()), toy::spec()];
    let running = Embedded::start(&clients, &mut registry, 4, &table);
    while !running.synced() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.measure();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    let mut families = BTreeMap::new();
    for family in text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()) {
        *families.entry(family).or_insert(0) += 1;
    }
    let twice: Vec<_> = families.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty() && families.len() > 20, "{twice:?} of {}", families.len());
    for controller in ["claim_lifecycle", "toy"] {
        let pods =
            format!("dragoman_objects{{controller=\"{controller}\",kind=\"Pod\",state=\"readable\"}} 0");
        assert!(text.contains(&pods), "{text}");
    }
    // One watch feeds both.
    assert!(text.contains("dragoman_relists_total{kind=\"Pod\"} 1"), "{text}");
}

fn create(handle: &ApiHandle, path: &str, object: &Value) {
    let (method, body) = (http::Method::POST, object.to_string().into_bytes());
    let answer = handle.ask(Request { method, path: path.to_owned(), body, ..Request::default() });
    assert_eq!(answer.code, 201, "{path}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_many_entries_costs_one_pass() {
    const ENTRIES: usize = 60;
    let clock = Clock::runtime();
    dragoman_machinery::clock::bind(clock.now());
    let server = ApiServer::new(Profile::default(), clock, 1);
    let handle = ApiHandle::new(server.clone(), User::admin());
    let class =
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}});
    create(&handle, "/apis/resource.k8s.io/v1/deviceclasses", &class);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
    create(&handle, "/api/v1/namespaces", &namespace);
    let requests = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]);
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "one"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    });
    create(&handle, "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaimtemplates", &template);
    let entry = |i| json!({"name": format!("e{i}"), "resourceClaimTemplateName": "one"});
    let entries: Vec<Value> = (0..ENTRIES).map(entry).collect();
    let containers = json!([{"name": "main", "image": "none"}]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"},
        "spec": {"containers": containers, "resourceClaims": entries},
    });
    create(&handle, "/api/v1/namespaces/ns/pods", &pod);
    let mut registry = Registry::default();
    let clients = within(&handle, Limits::default(), &mut registry);
    let table = [claim_lifecycle::spec(Options::default())];
    let _running = Embedded::start(&clients, &mut registry, 4, &table);
    let named = || {
        let pods = server.all("pods");
        let statuses =
            pods.first().and_then(|pod| pod.pointer("/status/resourceClaimStatuses")?.as_array().cloned());
        statuses.map_or(0, |statuses| statuses.len())
    };
    while named() < ENTRIES {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    let errors = "controller_runtime_reconcile_errors_total{controller=\"claim_lifecycle\"} 0";
    assert!(text.contains(errors), "{text}");
}
