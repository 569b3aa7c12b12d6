//! The toy controller of CONTRIBUTING.md runs on a simulated cluster.

#![expect(clippy::indexing_slicing, reason = "a test: clippy knows only functions marked as such")]
#![expect(unreachable_pub, reason = "the toy is explained in CONTRIBUTING.md")]

mod toy;

use std::time::Duration;

use dragoman_machinery::api::Limits;
use dragoman_machinery::connect::within;
use dragoman_machinery::controller::Embedded;
use dragoman_simcluster::{ApiHandle, ApiServer, Clock, Profile, Request, User};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

fn ask(door: &ApiHandle, method: http::Method, path: &str, object: &Value) {
    let body = if object.is_null() { Vec::new() } else { object.to_string().into_bytes() };
    let answer = door.ask(Request { method, path: path.to_owned(), body, ..Request::default() });
    assert!((200..300).contains(&answer.code), "{path}: {}", answer.code);
}

fn counts(server: &ApiServer) -> Vec<Value> {
    let pods = server.all("pods");
    pods.iter().map(|pod| pod["metadata"]["annotations"][toy::CLAIMS].clone()).collect()
}

/// Waits until the annotations of the Pods say this.
async fn until(server: &ApiServer, wanted: &[&str]) {
    while counts(server) != wanted {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn pod(name: &str, claims: usize) -> Value {
    let claims: Vec<Value> =
        (0..claims).map(|n| json!({"name": format!("c{n}"), "resourceClaimName": format!("c{n}")})).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}], "resourceClaims": claims}})
}

#[tokio::test(start_paused = true)]
async fn it_counts_claims_and_writes_only_what_is_new() {
    const PODS: &str = "/api/v1/namespaces/ns/pods";
    let clock = Clock::runtime();
    dragoman_machinery::clock::bind(clock.now());
    let server = ApiServer::new(Profile::default(), clock, 1);
    let door = ApiHandle::new(server.clone(), User::admin());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
    ask(&door, http::Method::POST, "/api/v1/namespaces", &namespace);
    ask(&door, http::Method::POST, PODS, &pod("a", 0));
    let mut registry = Registry::default();
    let clients = within(&door, Limits::default(), &mut registry);
    let running = Embedded::start(&clients, &mut registry, 4, &[toy::spec()]);
    until(&server, &["0"]).await;
    ask(&door, http::Method::POST, PODS, &pod("b", 2));
    until(&server, &["0", "2"]).await;
    let now = json!({"gracePeriodSeconds": 0});
    ask(&door, http::Method::DELETE, &format!("{PODS}/a"), &now);
    until(&server, &["2"]).await;
    // The level timer looks at everything, and there is nothing to write.
    let written = server.writes(0).len();
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(server.writes(0).len(), written);

    let dump = running.dump();
    assert!(dump.contains("pods: 1 objects, 0 unreadable"), "{dump}");
    running.measure();
    let mut metrics = String::new();
    prometheus_client::encoding::text::encode(&mut metrics, &registry).expect("text");
    assert!(metrics.contains("dragoman_objects{controller=\"toy\",kind=\"Pod\",state=\"readable\"} 1"));
}
