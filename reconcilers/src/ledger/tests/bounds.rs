//! Limits of what is published: users of one namespace write the names.

use dragoman_crds::node_allocatable_dra_claim_state::PublishedClaim;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::*;
use crate::ledger::metrics::LedgerMetrics;

#[test]
fn claims_beyond_the_limit_are_summed() {
    let mut cluster = Cluster::default();
    applied::<Node>(&mut cluster, &node("n", "4000"));
    let devices: Vec<String> = (0..300).map(|i| format!("d{i}")).collect();
    applied::<ResourceSlice>(&mut cluster, &slice(&devices));
    for device in &devices {
        let name = format!("claim-{device}");
        applied::<ResourceClaim>(&mut cluster, &claim(&name, device));
        applied::<Pod>(&mut cluster, &pod(&format!("pod-{device}"), "n", "0", &[&name]));
    }
    let content = NodeReport::of(cluster.ledger(), "n").expect("account");
    assert_eq!(content.status.claims.len(), 256);
    let others = content.status.other_claims.expect("others");
    assert_eq!((others.count, &*others.amounts["cpu"].0), (44, "88"));
    assert_eq!(&*content.status.requested_by_claims.mapping["cpu"].0, "600");
}

/// Names of 250 characters: an object of all of them would be refused as too large, or fill the store of the API server.
#[test]
fn names_of_claims_are_bounded() {
    const CLAIMS: usize = 100;
    let mut cluster = Cluster::default();
    applied::<Node>(&mut cluster, &node("n", "4000"));
    let devices: Vec<String> = (0..CLAIMS).map(|i| format!("d{i}")).collect();
    applied::<ResourceSlice>(&mut cluster, &slice(&devices));
    let long = |word: &str| format!("{word}-{}", "x".repeat(249 - word.len()));
    for device in &devices {
        let name = long(device);
        let mut named = claim(&name, device);
        named["metadata"]["uid"] = json!(format!("uid-{device}"));
        applied::<ResourceClaim>(&mut cluster, &named);
        for number in 0..16 {
            applied::<Pod>(&mut cluster, &pod(&long(&format!("{device}-{number}")), "n", "0", &[&name]));
        }
    }
    let status = NodeReport::of(cluster.ledger(), "n").expect("account").status;
    let of_claim = |claim: &PublishedClaim| {
        let pods: usize = claim.consumers.iter().map(String::len).sum();
        claim.namespace.len() + claim.name.len() + claim.uid.len() + pods
    };
    let bytes: usize = status.claims.iter().map(of_claim).sum();
    assert!((200 << 10..=256 << 10).contains(&bytes), "{bytes} bytes of names");
    let others = status.other_claims.expect("others").count;
    assert_eq!(status.claims.len() + usize::try_from(others).expect("a count"), CLAIMS);
}

/// A tenant may name any resource in a Pod.
#[test]
fn a_resource_that_only_pods_name_has_no_series() {
    let mut cluster = ordinary();
    let mut other = pod("other", "n", "1", &[]);
    other["spec"]["containers"][0]["resources"]["requests"]["hugepages-64Ki"] = json!("64Ki");
    applied::<Pod>(&mut cluster, &other);
    let mut registry = Registry::default();
    let metrics = LedgerMetrics::register(&mut registry);
    metrics.measure(&cluster, true);
    let mut text = String::new();
    encode(&mut text, &registry).expect("text");
    assert!(text.contains("resource=\"cpu\""), "{text}");
    assert!(!text.contains("hugepages-64Ki"), "{text}");
}

#[test]
fn a_claim_of_many_pods_names_few_of_them() {
    let mut cluster = Cluster::default();
    applied::<Node>(&mut cluster, &node("n", "4"));
    applied::<ResourceSlice>(&mut cluster, &slice(&["one".to_owned()]));
    applied::<ResourceClaim>(&mut cluster, &claim("a", "one"));
    for i in 0..100 {
        applied::<Pod>(&mut cluster, &pod(&format!("p{i}"), "n", "0", &["a"]));
    }
    let content = NodeReport::of(cluster.ledger(), "n").expect("account");
    assert_eq!(content.status.claims[0].consumers.len(), 16);
    let overcommitted = &content.findings[0];
    assert_eq!(overcommitted.reason, "RulesBroken", "its devices are for one Pod: {overcommitted:?}");
}

#[test]
fn sizes_of_huge_pages_do_not_crowd_out_memory() {
    let mut cluster = ordinary();
    let mut hostile = pod("hostile", "n", "0", &[]);
    for i in 0..20 {
        let size = format!("hugepages-{}Ki", 4 << i);
        hostile["spec"]["containers"][0]["resources"]["requests"][size] = json!("1Gi");
    }
    applied::<Pod>(&mut cluster, &hostile);
    let content = NodeReport::of(cluster.ledger(), "n").expect("account");
    assert_eq!(content.status.allocatable.len(), 16);
    assert_eq!(&*content.status.headroom["memory"].0, "8Gi");
}
