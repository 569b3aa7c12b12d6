//! Ledgers of a whole cluster, from objects in the JSON of the API.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use dragoman_accounting::claim::allocation::Judgement;
use dragoman_accounting::cluster::{Account, Cluster, DeviceFootprint, Index, Rules, Selector};
use dragoman_accounting::ledger::fit::{Fit, Headroom};
use dragoman_accounting::ledger::{Bucket, Charging};
use dragoman_accounting::resource::Resource;
use dragoman_accounting::unaccounted::Unaccounted;
use dragoman_crds::device_footprint::DeviceFootprintSpec;
use dragoman_objects::{Name, Node, Pod, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "16", "memory": "64Gi"}}})
}

/// A Pod with one container, which requests one cpu and names all claims of the Pod.
fn pod(name: &str, node: Option<&str>, claims: &[&str]) -> Value {
    let entries: Vec<Value> =
        claims.iter().map(|claim| json!({"name": claim, "resourceClaimName": claim})).collect();
    let named: Vec<Value> = claims.iter().map(|claim| json!({"name": claim})).collect();
    json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")},
        "spec": {
            "nodeName": node, "resourceClaims": entries,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "claims": named}}],
        },
        "status": {"phase": "Running"},
    })
}

fn claim(name: &str, device: Option<&str>) -> Value {
    let result = |device| json!({"request": "r", "driver": "d", "pool": "p", "device": device});
    let allocation = device.map(|device| json!({"devices": {"results": [result(device)]}}));
    json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")},
        "status": {"allocation": allocation},
    })
}

/// A slice of node `one`: each device is `cpus` cpus.
fn slice(generation: i64, cpus: &str) -> Value {
    let device = |name| json!({"name": name, "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": cpus}}}});
    json!({
        "metadata": {"name": format!("slice-{generation}")},
        "spec": {
            "driver": "d", "nodeName": "one", "pool": {"name": "p", "generation": generation, "resourceSliceCount": 1},
            "devices": [device("a"), device("b")],
        },
    })
}

fn cluster(pods: Vec<Value>, claims: Vec<Value>, slices: Vec<Value>) -> Cluster {
    Cluster {
        nodes: ["one", "two"].map(|name| (&read::<Node>(node(name))).into()).into(),
        pods: pods.into_iter().map(|pod| (&read::<Pod>(pod)).into()).collect(),
        claims: claims.into_iter().map(|claim| (&read::<ResourceClaim>(claim)).into()).collect(),
        slices: slices.into_iter().map(|slice| (&read::<ResourceSlice>(slice)).into()).collect(),
        ..Cluster::default()
    }
}

fn accounts(cluster: &Cluster) -> BTreeMap<Name, Account> {
    Index::new(cluster, Rules::default()).accounts()
}

fn mapped(account: &Account) -> i128 {
    account.ledger.charged(Bucket::Mapping, Resource::Cpu)
}

#[test]
fn a_claim_counts_where_its_pod_is_and_the_newest_generation_of_its_pool_counts() {
    let cluster = cluster(
        vec![pod("x", Some("one"), &["c"]), pod("y", Some("two"), &[])],
        vec![claim("c", Some("a"))],
        vec![slice(1, "2"), slice(2, "4")],
    );
    let accounts = accounts(&cluster);
    assert_eq!((mapped(&accounts["one"]), mapped(&accounts["two"])), (4000, 0));
    assert_eq!(accounts["one"].ledger.headroom(Resource::Cpu), Headroom::Left(11_000));
    assert_eq!(accounts["two"].ledger.headroom(Resource::Cpu), Headroom::Left(15_000));
    assert_eq!(accounts["one"].notices, Vec::<String>::new());
}

#[test]
fn pods_that_are_done_take_nothing_and_nodes_that_are_not_listed_count_too() {
    let mut done = pod("x", Some("one"), &["c"]);
    done["status"]["phase"] = json!("Succeeded");
    let cluster =
        cluster(vec![done, pod("y", Some("ghost"), &[])], vec![claim("c", Some("a"))], vec![slice(1, "4")]);
    let accounts = accounts(&cluster);
    assert_eq!(accounts["one"].ledger.headroom(Resource::Cpu), Headroom::Left(16_000));
    let ghost = &accounts["ghost"].ledger;
    assert_eq!((ghost.requested(Resource::Cpu), ghost.headroom(Resource::Cpu)), (1000, Headroom::Unknown));
}

#[test]
fn what_is_not_known_of_a_claim_makes_its_node_unknown() {
    let unknown = |claims: Vec<Value>, slices: Vec<Value>| {
        let cluster = cluster(vec![pod("x", Some("one"), &["c"])], claims, slices);
        let accounts = accounts(&cluster);
        assert_eq!(accounts["two"].ledger.headroom(Resource::Cpu), Headroom::Left(16_000));
        accounts["one"].ledger.headroom(Resource::Cpu) == Headroom::Unknown
    };
    assert!(!unknown(vec![claim("c", Some("a"))], vec![slice(1, "4")]));
    assert!(unknown(vec![claim("c", Some("z"))], vec![slice(1, "4")]), "the device is in no slice");
    assert!(unknown(vec![claim("c", Some("a"))], vec![]), "there is no slice");
    assert!(unknown(vec![claim("c", Some("a"))], vec![slice(1, "-4")]), "the definition makes no sense");
}

/// A user can bind a Pod to any node. A claim that it waits for does not make the node uncertain: the
/// kubelet starts no container without the claim.
#[test]
fn a_claim_that_a_bound_pod_waits_for_takes_nothing_yet() {
    let mut elsewhere = slice(1, "4");
    elsewhere["spec"]["nodeName"] = json!("two");
    for (claims, slices) in [
        (vec![], vec![slice(1, "4")]),
        (vec![claim("c", None)], vec![slice(1, "4")]),
        (vec![claim("c", Some("a"))], vec![elsewhere]),
    ] {
        let cluster = cluster(vec![pod("x", Some("one"), &["c"])], claims, slices);
        let account = &accounts(&cluster)["one"];
        assert_eq!(account.ledger.headroom(Resource::Cpu), Headroom::Left(15_000));
        assert_eq!(account.notices.len(), 1, "{:?}", account.notices);
        // It is not known what a Pod would take that is to be placed.
        let waiting = dragoman_accounting::cluster::Pod { node: None, ..cluster.pods[0].clone() };
        let index = Index::new(&cluster, Rules::default());
        assert_ne!(account.ledger.fits(&index.candidate(&waiting, "one")), Fit::Yes);
    }
}

#[test]
fn what_the_status_records_counts_and_drift_is_said() {
    let mut recorded = pod("x", Some("one"), &["c"]);
    let entry =
        json!({"resourceClaimName": "c", "containers": ["c"], "mapping": [{"name": "cpu", "quantity": "2"}]});
    recorded["status"]["nodeAllocatableResourceClaimStatuses"] = json!([entry]);
    let cluster = |claims| cluster(vec![recorded.clone()], claims, vec![slice(1, "4")]);
    let drifted = cluster(vec![claim("c", Some("a"))]);
    let account = &accounts(&drifted)["one"];
    assert_eq!((mapped(account), account.notices.len()), (2000, 1));
    // The claim no longer exists, but the status records the amount.
    let gone = cluster(vec![]);
    let account = &accounts(&gone)["one"];
    assert_eq!((mapped(account), account.ledger.headroom(Resource::Cpu)), (2000, Headroom::Left(13_000)));
}

fn footprint(selector: Option<&str>) -> DeviceFootprint {
    let spec: DeviceFootprintSpec = read(json!({
        "driver": "d", "resources": {
            "cpu": {"mapping": {"deviceMultiplier": 9}},
            "memory": {"overhead": {"perPod": "1Gi"}, "reservation": {"perDevice": "2Gi"}, "accountingPolicy": "AddPerClaim"},
        },
    }));
    let selector = selector.map(Selector::unevaluated);
    DeviceFootprint {
        name: "f".into(),
        driver: spec.driver.as_str().into(),
        selector,
        cost: spec.cost().unwrap(),
    }
}

#[test]
fn footprints_say_what_slices_do_not() {
    let mut cluster = cluster(
        vec![pod("x", Some("one"), &["c"]), pod("y", None, &["b"])],
        vec![claim("c", Some("a")), claim("b", Some("b"))],
        vec![slice(1, "4")],
    );
    cluster.footprints = vec![footprint(None)];
    let index = Index::new(&cluster, Rules::default());
    let accounts = index.accounts();
    let ledger = &accounts["one"].ledger;
    assert_eq!(mapped(&accounts["one"]), 4000, "the slice says it");
    assert_eq!(ledger.charged(Bucket::Overhead, Resource::Memory), 1 << 30);
    // Both devices are allocated, so both reservations are held.
    assert_eq!(ledger.charged(Bucket::Reservation, Resource::Memory), 4 << 30);
    let waiting = cluster.pods.iter().find(|pod| pod.node.is_none()).unwrap();
    assert_eq!(ledger.fits(&index.candidate(waiting, "one")), Fit::Yes);
    // The device of its claim is not on the other node.
    assert!(matches!(accounts["two"].ledger.fits(&index.candidate(waiting, "two")), Fit::Refused(_)));
    // No evaluation is handed in, so the device may cost any amount.
    cluster.footprints = vec![footprint(Some("device.attributes['d'].big"))];
    let accounts = self::accounts(&cluster);
    assert_eq!(accounts["one"].ledger.headroom(Resource::Cpu), Headroom::Unknown);
}

#[test]
fn rules_can_be_those_of_the_tree() {
    let mut looked_at = claim("c", Some("a"));
    looked_at["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = json!(true);
    let cluster = cluster(
        vec![pod("x", Some("one"), &["c"]), pod("y", Some("one"), &["c"])],
        vec![looked_at],
        vec![slice(1, "4")],
    );
    let of = |charging, judgement| {
        let rules = Rules { charging, judgement, ..Rules::default() };
        mapped(&Index::new(&cluster, rules).accounts()["one"])
    };
    assert_eq!(of(Charging::PerClaim, Judgement::Ours), 0);
    assert_eq!(of(Charging::PerClaim, Judgement::Upstream), 4000);
    assert_eq!(of(Charging::InTree, Judgement::Upstream), 8000);
}

#[test]
fn entries_that_need_no_claim_and_claims_of_extended_resources() {
    let mut extended = pod("x", Some("one"), &[]);
    extended["spec"]["resourceClaims"] = json!([{"name": "none", "resourceClaimTemplateName": "t"}]);
    extended["status"]["resourceClaimStatuses"] = json!([{"name": "none"}]);
    extended["status"]["extendedResourceClaimStatus"] = json!({"resourceClaimName": "c"});
    let cluster = cluster(vec![extended], vec![claim("c", Some("a"))], vec![slice(1, "4")]);
    let account = &accounts(&cluster)["one"];
    assert_eq!((mapped(account), account.ledger.headroom(Resource::Cpu)), (4000, Headroom::Left(11_000)));
}

#[test]
fn a_claim_that_is_not_made_yet_is_not_nothing() {
    let mut waiting = pod("x", None, &[]);
    waiting["spec"]["resourceClaims"] = json!([{"name": "c", "resourceClaimTemplateName": "t"}]);
    let cluster = cluster(vec![waiting], vec![], vec![slice(1, "4")]);
    let index = Index::new(&cluster, Rules::default());
    let accounts = index.accounts();
    let answer = accounts["one"].ledger.fits(&index.candidate(&cluster.pods[0], "one"));
    assert!(matches!(answer, Fit::Refused(_)), "{answer:?}");
}

#[test]
fn one_claim_under_two_names_is_one_claim() {
    let mut twice = pod("x", Some("one"), &["c"]);
    twice["spec"]["resourceClaims"] =
        json!([{"name": "c", "resourceClaimName": "c"}, {"name": "d", "resourceClaimName": "c"}]);
    let cluster = cluster(vec![twice], vec![claim("c", Some("a"))], vec![slice(1, "4")]);
    assert_eq!(mapped(&accounts(&cluster)["one"]), 4000);
}

#[test]
fn what_contradicts_itself_is_unknown_in_any_order() {
    let unknown =
        |cluster: &Cluster| accounts(cluster)["one"].ledger.headroom(Resource::Cpu) == Headroom::Unknown;
    let mut other = slice(1, "2");
    other["metadata"]["name"] = json!("other");
    for slices in [vec![slice(1, "4"), other.clone()], vec![other, slice(1, "4")]] {
        assert!(unknown(&cluster(vec![pod("x", Some("one"), &["c"])], vec![claim("c", Some("a"))], slices)));
    }
    let mut several = cluster(vec![], vec![claim("c", Some("a"))], vec![slice(1, "4")]);
    several.footprints = vec![footprint(None), DeviceFootprint { name: "g".into(), ..footprint(None) }];
    assert!(!unknown(&several), "they say the same");
    if let Some(costs) = several.footprints[1].cost.resources.get_mut(&Resource::Memory) {
        costs.reservation = None;
    }
    // No Pod uses the claim, but the driver may hold something for its device.
    assert!(unknown(&several));
}

#[test]
fn what_cannot_be_read_at_all_makes_its_nodes_unknown() {
    let mut cluster = cluster(vec![], vec![], vec![]);
    let unread = |object: &str| Unaccounted {
        object: object.into(),
        field: "".into(),
        resource: None,
        why: "?".into(),
    };
    cluster.unread = vec![(Some("one".into()), unread("ResourceSlice s"))];
    let of = |cluster: &Cluster| {
        let accounts = accounts(cluster);
        ["one", "two"].map(|node| accounts[node].ledger.headroom(Resource::Cpu) == Headroom::Unknown)
    };
    assert_eq!(of(&cluster), [true, false]);
    cluster.unread = vec![(None, unread("DeviceFootprint f"))];
    assert_eq!(of(&cluster), [true, true]);
}

/// kube-scheduler refuses the Pod on every node if it counts claims (judged by `dragoman-e2e` on 1.37.2). A bound Pod keeps its charge.
#[test]
fn claims_beyond_the_pod_level_resources_fit_nowhere() {
    let with = |node: Option<&str>, resources: &Value| {
        let mut pod = pod("pod", node, &["c"]);
        pod["spec"]["resources"] = resources.clone();
        if !resources["limits"].is_null() {
            pod["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "2"});
        }
        let cluster = Cluster {
            nodes: vec![(&read::<Node>(self::node("one"))).into()],
            pods: vec![(&read::<Pod>(pod)).into()],
            claims: vec![(&read::<ResourceClaim>(claim("c", Some("a")))).into()],
            slices: vec![(&read::<ResourceSlice>(slice(1, "4"))).into()],
            ..Cluster::default()
        };
        let index = Index::new(&cluster, Rules::default());
        let Account { ledger, notices } = index.accounts().remove("one").unwrap();
        (ledger.fits(&index.candidate(&cluster.pods[0], "one")), notices)
    };
    let refused = |resources: &Value| match with(None, resources).0 {
        Fit::Refused(refusals) => refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        fit => format!("{fit:?}"),
    };
    let said = "spec.resources.requests[cpu] is 4, but containers and claims request 5";
    assert_eq!(refused(&json!({"requests": {"cpu": "4"}})), said);
    assert_eq!(refused(&json!({"requests": {"cpu": "5"}})), "Yes");
    assert_eq!(refused(&json!({"requests": {"memory": "1Gi"}})), "Yes", "nothing is said of cpus");
    assert_eq!(refused(&json!({})), "Yes");
    let (_, notices) = with(Some("one"), &json!({"requests": {"cpu": "4"}}));
    assert_eq!(notices, [format!("Pod ns/pod: {said}")]);
    let (_, notices) = with(Some("one"), &json!({"requests": {"cpu": "5"}, "limits": {"cpu": "5"}}));
    let limit = "Pod ns/pod: spec.resources.limits[cpu] is 5, but container \"c\" with its claims may use 6";
    assert_eq!(notices, [limit], "a container of two cpus with a device of four");
}

/// An API server may be newer than this version. What cannot be read takes an unknown amount; what can be read counts.
#[test]
fn what_a_later_version_wrote_is_in_doubt_and_the_rest_counts() {
    let mut later = pod("p", Some("one"), &["c"]);
    later["status"]["nodeAllocatableResourceClaimStatuses"] = json!({"of": "a later version"});
    let fields = dragoman_accounting::cluster::Pod::from(&read::<Pod>(later)).unaccounted;
    assert_eq!(
        fields.iter().map(|unread| &*unread.field).collect::<Vec<_>>(),
        ["status.nodeAllocatableResourceClaimStatuses"]
    );

    let unread = |status: Value| {
        let mut claim = claim("c", None);
        claim["status"] = status;
        dragoman_accounting::cluster::Claim::from(&read::<ResourceClaim>(claim))
    };
    let allocation = unread(json!({"allocation": {"devices": {"results": "later"}}}));
    assert!(allocation.results.is_none() && allocation.unread.unwrap().starts_with("status.allocation: "));
    let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "a", "later": 1});
    let found = unread(json!({"allocation": {"devices": {"results": [result]}}}));
    assert_eq!((found.results.map(|results| results.len()), found.unread.is_some()), (Some(1), true));

    // A share is a share, whatever else is said of it.
    let mut share = result.clone();
    share["shareID"] = json!("s");
    share["consumedCapacity"] = json!({"memory": "1Gi", "huge": "1e1001"});
    let shared = unread(json!({"allocation": {"devices": {"results": [share]}}})).results.unwrap();
    assert!(shared[0].shared && shared[0].consumed.as_ref().is_some_and(|of| of.len() == 1), "{shared:?}");

    // Selectors see what is known of a device beside an attribute of a type that is not known.
    let mut newer = slice(1, "4");
    newer["spec"]["devices"][0]["attributes"] = json!({"model": {"string": "x"}, "links": {"newerType": 1}});
    let newer = dragoman_accounting::cluster::Slice::from(&read::<ResourceSlice>(newer));
    let attributes: BTreeMap<Name, dragoman_objects::Attribute> =
        serde_json::from_str(&newer.devices[0].attributes).unwrap();
    assert_eq!(attributes["model"], dragoman_objects::Attribute::String("x".into()));
    assert_eq!(attributes["links"], dragoman_objects::Attribute::Unknown);

    // Counters that can be read are drawn.
    let mut drawing = slice(1, "4");
    drawing["spec"]["devices"][0]["consumesCounters"] =
        json!([{"counterSet": "s", "counters": {"c": {"value": "1"}}, "later": 1}]);
    let drawing = dragoman_accounting::cluster::Slice::from(&read::<ResourceSlice>(drawing));
    assert_eq!(drawing.devices[0].counters.len(), 1);

    // Of a device with a number that no integer holds it is not known what it takes by that number.
    let mut huge = slice(1, "4");
    huge["spec"]["devices"][0]["nodeAllocatableResources"] =
        json!({"memory": {"mapping": {"capacityKey": "memory", "capacityMultiplier": "1"}}});
    huge["spec"]["devices"][0]["capacity"] = json!({"memory": {"value": "9".repeat(39)}});
    let index =
        accounts(&cluster(vec![pod("p", Some("one"), &["c"])], vec![claim("c", Some("a"))], vec![huge]));
    let why: Vec<String> = index["one"].ledger.unaccounted().map(ToString::to_string).collect();
    assert!(
        why.len() == 1 && why[0].contains("the number is too large") && why[0].contains("ns/c"),
        "{why:?}"
    );

    // A device of which a field is not known takes what it says.
    let mut new = slice(1, "4");
    new["spec"]["devices"][0]["later"] = json!(1);
    let ledgers = |slice: Value, claims: Vec<Value>| {
        accounts(&cluster(vec![pod("p", Some("one"), &["c"])], claims, vec![slice]))
    };
    let known = ledgers(slice(1, "4"), vec![claim("c", Some("a"))]);
    assert_eq!(ledgers(new, vec![claim("c", Some("a"))]), known);
    // Where a result is not known, its device takes what it says, and more may be taken.
    let mut of_later = claim("c", Some("a"));
    of_later["status"]["allocation"]["devices"]["results"][0]["later"] = json!(1);
    let ledger = &ledgers(slice(1, "4"), vec![of_later])["one"].ledger;
    assert_eq!(
        ledger.charged(Bucket::Mapping, Resource::Cpu),
        known["one"].ledger.charged(Bucket::Mapping, Resource::Cpu)
    );
    assert_eq!(ledger.unaccounted().count(), 1);
}
