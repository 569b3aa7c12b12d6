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
use dragoman_simcluster::{ApiServer, Clock, Door, Profile, User};
use prometheus_client::registry::Registry;

#[tokio::test(start_paused = true)]
async fn two_controllers_share_watches_and_families() {
    let clock = Clock::runtime();
    dragoman_machinery::clock::bind(clock.now());
    let server = ApiServer::new(Profile::default(), clock, 1);
    let door = Door::new(server, User::admin());
    let mut registry = Registry::default();
    let clients = within(&door, Limits::default(), &mut registry);
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
