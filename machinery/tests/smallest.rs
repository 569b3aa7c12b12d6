//! The toy controller of CONTRIBUTING.md runs on a simulated cluster.

#![expect(clippy::indexing_slicing, reason = "a test: clippy knows only functions marked as such")]
#![expect(unreachable_pub, reason = "the toy is explained in CONTRIBUTING.md")]

mod toy;

use std::time::Duration;

use dragoman_machinery::api::Limits;
use dragoman_machinery::connect::within;
use dragoman_machinery::controller::Embedded;
use dragoman_simcluster::{ApiServer, Clock, Door, Profile, Request, User};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

fn ask(door: &Door, method: http::Method, path: &str, object: &Value) {
    let body = if object.is_null() { Vec::new() } else { object.to_string().into_bytes() };
    let answer = door.ask(Request { method, path: path.to_owned(), body, ..Request::default() });
    assert!((200..300).contains(&answer.code), "{path}: {}", answer.code);
}

fn counts(server: &ApiServer) -> Vec<Value> {
    let nodes = server.all("nodes");
    nodes.iter().map(|node| node["metadata"]["annotations"][toy::PODS_OF_NODE].clone()).collect()
}

/// Waits until the annotations of the nodes say this.
async fn until(server: &ApiServer, wanted: &[&str]) {
    while counts(server) != wanted {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_counts_pods_and_writes_only_what_is_new() {
    let clock = Clock::runtime();
    dragoman_machinery::clock::bind(clock.now());
    let server = ApiServer::new(Profile::default(), clock, 1);
    let door = Door::new(server.clone(), User::admin());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
    ask(&door, http::Method::POST, "/api/v1/namespaces", &namespace);
    for name in ["a", "b"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        ask(&door, http::Method::POST, "/api/v1/nodes", &node);
    }
    let mut registry = Registry::default();
    let clients = within(&door, Limits::default(), &mut registry);
    let running = Embedded::start(&clients, &mut registry, 4, &[toy::spec()]);
    until(&server, &["0", "0"]).await;
    for name in ["one", "two"] {
        let spec = json!({"nodeName": "a", "containers": [{"name": "c", "image": "i"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        ask(&door, http::Method::POST, "/api/v1/namespaces/ns/pods", &pod);
    }
    until(&server, &["2", "0"]).await;
    let now = json!({"gracePeriodSeconds": 0});
    ask(&door, http::Method::DELETE, "/api/v1/namespaces/ns/pods/one", &now);
    until(&server, &["1", "0"]).await;
    // The level timer looks at everything, and there is nothing to write.
    let written = server.writes(0).len();
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(server.writes(0).len(), written);

    let dump = running.dump();
    assert!(dump.contains("nodes: 2 objects, 0 unreadable"), "{dump}");
    running.measure();
    let mut metrics = String::new();
    prometheus_client::encoding::text::encode(&mut metrics, &registry).expect("text");
    assert!(metrics.contains("dragoman_objects{controller=\"toy\",kind=\"Pod\",state=\"readable\"} 1"));
}
