use std::path::Path;

use dragoman_accounting::cluster::Rules;
use serde_json::{Value, json};

use super::*;

fn report(objects: &[Value]) -> Report {
    report_about(objects, &Filter { waiting: true, ..Filter::default() })
}

fn report_about(objects: &[Value], filter: &Filter) -> Report {
    let mut all = Objects::default();
    for object in objects {
        let text = object.to_string();
        manifests::read(Path::new("f"), text.as_bytes(), &mut |found| {
            all.take(found.expect("object")).expect("a Kubernetes object");
        })
        .expect("a text");
    }
    Report::of(all, Rules::default(), filter)
}

fn pod(name: &str, node: &str, cpu: &str) -> Value {
    let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
    let node = if node.is_empty() { Value::Null } else { node.into() };
    json!({"kind": "Pod", "metadata": {"namespace": "ns", "name": name, "uid": name},
        "spec": {"nodeName": node, "containers": containers}, "status": {"phase": "Pending"}})
}

fn node(name: &str, cpu: &str) -> Value {
    json!({"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu}}})
}

/// Returns the cpu that Pods take of the first node.
fn taken(report: &Report) -> &str {
    &report.nodes[0].resources["cpu"].pods.0
}

#[test]
fn items_of_typed_lists_count() {
    let bare = |mut object: Value| {
        object.as_object_mut().expect("an object").remove("kind");
        object
    };
    let nodes = json!({"kind": "NodeList", "apiVersion": "v1", "items": [bare(node("n", "4"))]});
    let pods = [bare(pod("a", "n", "3")), bare(pod("b", "", "2"))];
    let pods = json!({"kind": "PodList", "apiVersion": "v1", "items": pods});
    let text = render(&report(&[json!({"kind": "List", "items": [nodes, pods]})]), true);
    assert!(text.contains("n     cpu       4            3     0        0         0         1\n"), "{text}");
    assert!(text.contains("Pod ns/b on n: 1 of cpu is missing (2 needed, 1 left; Pod ns/a: 3)"), "{text}");
}

#[test]
fn nothing_vanishes_without_a_word() {
    let texts = [
        "NAME READY\npod 1/1\n",
        "{\"metadata\": {}}",
        "[{\"kind\": \"Pod\"}]",
        "{\"kind\": \"Table\", \"rows\": []}",
        "{\"kind\": \"Status\", \"message\": \"Unauthorized\"}",
        "{\"kind\": \"Pod\", \"metadata\": {}}",
    ];
    for text in texts {
        manifests::read(Path::new("f"), text.as_bytes(), &mut |found| {
            let why = found.and_then(|found| Objects::default().take(found)).expect_err(text);
            assert!(format!("{why:#}").starts_with("f:1: "), "{why:#}");
        })
        .expect("a text");
    }
}

#[test]
fn of_two_versions_the_newer_counts_in_any_order() {
    let version = |version: &str, cpu| {
        let mut pod = pod("a", "n", cpu);
        pod["metadata"]["resourceVersion"] = version.into();
        pod
    };
    let (old, new) = (version("9", "1"), version("10", "3"));
    for objects in [[node("n", "4"), old.clone(), new.clone()], [node("n", "4"), new.clone(), old]] {
        let report = report(&objects);
        assert_eq!(taken(&report), "3");
        assert_eq!(
            report.notes,
            [
                "Pod ns/a: in several versions, of which the one of the highest resourceVersion counts, or the last"
            ]
        );
    }
    let same = report(&[node("n", "4"), new.clone(), new]);
    assert_eq!((taken(&same), same.notes.len()), ("3", 0));
}

/// The API server sets requests to limits; a manifest may lack them.
#[test]
fn a_pod_with_limits_alone_requests_them() {
    let limited = |requests: Value| {
        let mut pod = pod("a", "n", "1");
        pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "3"}, "requests": requests});
        pod
    };
    assert_eq!(taken(&report(&[node("n", "4"), limited(Value::Null)])), "3");
    assert_eq!(taken(&report(&[node("n", "4"), limited(json!({"memory": "1Gi"}))])), "3");
    assert_eq!(taken(&report(&[node("n", "4"), limited(json!({"cpu": "2"}))])), "2");
}

#[test]
fn pods_without_a_uid_of_their_own_all_count() {
    for uid in ["", "copied"] {
        let copy = |name: &str| {
            let mut pod = pod(name, "n", "1");
            pod["metadata"]["uid"] = uid.into();
            pod
        };
        let report = report(&[node("n", "8"), copy("a"), copy("b"), copy("c"), copy("d")]);
        assert_eq!(taken(&report), "4");
        let notes = "Pod ns/a, Pod ns/b, Pod ns/c and 1 more: without a uid of their own, so that namespace \
                     and name tell them apart";
        assert_eq!(report.notes, [notes]);
    }
}

#[test]
fn a_claim_that_is_held_from_outside_is_said() {
    let claim = json!({"kind": "ResourceClaim", "metadata": {"namespace": "ns", "name": "c", "uid": "u"},
        "status": {"reservedFor": [{"resource": "pods", "name": "a", "uid": "a"},
            {"resource": "pods", "name": "elsewhere", "uid": "e"}]}});
    let report = report(&[node("n", "8"), pod("a", "n", "1"), claim]);
    let note = "ResourceClaim ns/c: reserved for a Pod that is not in the dump, so that it is gone or was not printed";
    assert_eq!(report.notes, [note]);
}

#[test]
fn of_many_nodes_a_waiting_pod_gets_the_nearest() {
    let mut objects: Vec<Value> = (0..9).map(|n| node(&format!("n{n}"), "4")).collect();
    objects.extend((0..9).map(|n| pod(&format!("on-{n}"), &format!("n{n}"), "3")));
    objects.extend([pod("big", "", "5"), pod("small", "", "2")]);
    objects[4] = node("n4", "6");
    let report = report(&objects);
    let text = render(&report, true);
    assert!(text.starts_with("9 of 9 nodes: 0 overcommitted, 0 with facts"), "{text}");
    assert!(text.contains("\n2 waiting Pods: 1 fit on a node\n"), "{text}");
    assert!(text.contains("Pod ns/small: fits on 1 of 9 nodes; the nearest:\nPod ns/small on n4: fits\n"));
    assert!(
        text.contains(
            "the nearest:\nPod ns/big on n4: 2 of cpu is missing (5 needed, 3 left; Pod ns/on-4: 3)\n"
        ),
        "{text}"
    );
    assert_eq!(text.matches("Pod ns/big on ").count(), 3);
    assert_eq!(render(&report, false).matches("Pod ns/big on ").count(), 9);
}

/// "fits" means that a scheduler could bind the Pod there, as far as one node and one Pod tell.
#[test]
fn a_pod_fits_only_where_a_scheduler_would_let_it_run() {
    let mut cordoned = node("cordoned", "8");
    cordoned["spec"] = json!({"unschedulable": true});
    let mut full = node("full", "8");
    full["status"]["allocatable"]["pods"] = json!("1");
    let mut picky = pod("picky", "", "1");
    picky["spec"]["nodeSelector"] = json!({"zone": "a"});
    let of_team = json!({"topologyKey": "zone", "namespaceSelector": {"matchLabels": {"team": "a"}}});
    picky["spec"]["affinity"] =
        json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [of_team]}});
    let mut alone = pod("alone", "", "1");
    alone["spec"]["topologySpreadConstraints"] = json!([{"labelSelector": {}, "topologyKey": "zone", "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule"}]);
    let objects = [cordoned, full, node("free", "8"), pod("a", "full", "1"), pod("b", "", "1"), picky, alone];
    let text = render(&report(&objects), true);
    for line in [
        "Pod ns/b on cordoned: the node is cordoned\n",
        "Pod ns/b on free: fits\n",
        "Pod ns/b on full: the node has its 1 Pods\n",
        "Pod ns/picky on free: the node does not have the label zone=a (nodeSelector)\n",
        "Pod ns/picky: not looked at: Pod affinity\n",
        "Pod ns/alone on free: the node does not have the label zone (topologyKey)\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn a_claim_without_devices_is_tried_where_the_dump_says_what_it_means() {
    let mut waiting = pod("w", "", "1");
    waiting["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    let claim = json!({"kind": "ResourceClaim", "metadata": {"namespace": "ns", "name": "c", "uid": "c"}, "spec": {
        "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 8}}]}}});
    let slice = json!({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "gpu.example.com",
        "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "d"}]}});
    let class = json!({"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}});
    let objects = [node("n", "8"), waiting, claim, slice, class];
    let known = render(&report(&objects), true);
    assert!(known.contains("Pod ns/w on n: "), "{known}");
    assert!(known.contains("request r of claim ns/c wants 8 devices, 1 suitable"), "{known}");
    // Without its class it is not known what the request means.
    let unknown = render(&report(&objects[..4]), true);
    assert!(
        unknown.contains("Pod ns/w on n: it is unknown: ResourceClaim ns/c is not allocated\n"),
        "{unknown}"
    );
}

/// Zero is not the same as not known.
#[test]
fn devices_of_which_nothing_says_what_they_take_are_named() {
    let device = |name: &str| json!({"name": name});
    let slice = json!({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "gpu.example.com", "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "devices": [device("a"), device("b"), device("c")]}});
    let result =
        |device: &str| json!({"request": "r", "driver": "gpu.example.com", "pool": "n", "device": device});
    let claim = json!({"kind": "ResourceClaim", "metadata": {"namespace": "ns", "name": "c", "uid": "c"}, "spec": {},
        "status": {"allocation": {"devices": {"results": [result("a"), result("b")]}}}});
    let footprint = json!({"kind": "DeviceFootprint", "apiVersion": "dragoman.dev/v1alpha1", "metadata": {"name": "f"},
        "spec": {"driver": "gpu.example.com", "resources": {"cpu": {"overhead": {"perPod": "100m"}}}}});
    let objects = [node("n", "8"), node("other", "8"), slice, claim, footprint];
    let said = "2 devices of driver gpu.example.com in use, and nothing declares what a device takes of its node: a DeviceFootprint does";
    let of =
        |objects: &[Value]| report(objects).nodes.into_iter().map(|node| node.notices).collect::<Vec<_>>();
    assert_eq!(of(&objects[..4]), [vec![said.to_owned()], vec![]]);
    assert_eq!(of(&objects), [Vec::<String>::new(), vec![]], "it says so");
    assert_eq!(of(&objects[..3]), [Vec::<String>::new(), vec![]], "none is in use");
}

/// A Pod whose claim has no devices yet is not one that does not fit. Where it fits the devices are named; where it does not, what is
/// against the first devices that there are; and what is certain is said although the claim is not known.
#[test]
fn a_pod_that_waits_for_devices_is_told_where_it_fits_and_with_which() {
    let waiting = |cpu: &str, claim: &Value| {
        let mut pod = pod("w", "", cpu);
        pod["spec"]["resourceClaims"] = json!([claim]);
        pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
        pod
    };
    let named = json!({"name": "gpu", "resourceClaimName": "c"});
    let slice = |node: &str, costs: [&str; 2]| {
        let device = |name: &str, cost: &str| json!({"name": name, "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": cost}}}});
        json!({"kind": "ResourceSlice", "metadata": {"name": node}, "spec": {"driver": "gpu.example.com", "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": [device("a", costs[0]), device("b", costs[1])]}})
    };
    let claim = json!({"kind": "ResourceClaim", "metadata": {"namespace": "ns", "name": "c", "uid": "c"}, "spec": {
        "devices": {"requests": [{"name": "r", "firstAvailable": [
            {"name": "none", "deviceClassName": "gpu", "selectors": [{"cel": {"expression": "false"}}]},
            {"name": "any", "deviceClassName": "gpu"}]}]}}});
    let class = json!({"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}});
    let cluster = |pod: Value| {
        let slices = [slice("dear", ["30", "40"]), slice("mixed", ["30", "3"])];
        let mut objects =
            vec![node("bare", "8"), node("dear", "8"), node("mixed", "8"), pod, claim.clone(), class.clone()];
        objects.extend(slices);
        report(&objects)
    };
    let fits = |report: &Report| {
        report.pending[0].nodes.iter().map(|(node, on)| (node.clone(), on.fits)).collect::<Vec<_>>()
    };
    let of = |fits: [Option<bool>; 3]| {
        ["bare", "dear", "mixed"].map(str::to_owned).into_iter().zip(fits).collect::<Vec<_>>()
    };
    let all = cluster(waiting("5", &named));
    assert_eq!(fits(&all), of([Some(false), Some(false), Some(true)]));
    let text = render(&all, true);
    for line in [
        "Pod ns/w on dear: the node has 8 of cpu\n",
        "Pod ns/w on mixed: fits, with gpu.example.com/mixed/b for request r/any of claim c\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    // It is not known yet what a claim of a template will take, or one that is not there.
    for claim in [
        json!({"name": "gpu", "resourceClaimTemplateName": "t"}),
        json!({"name": "gpu", "resourceClaimName": "x"}),
    ] {
        assert_eq!(fits(&cluster(waiting("5", &claim))), of([None; 3]), "{claim}");
        assert_eq!(fits(&cluster(waiting("9", &claim))), of([Some(false); 3]), "{claim}");
    }
}

/// 5 of 4 cpus: what a reader sees in the column LEFT is also said, filtered by and counted.
#[test]
fn a_node_with_less_than_nothing_left_is_overcommitted() {
    let objects = [node("n", "4"), pod("a", "n", "3"), pod("b", "n", "2"), node("free", "4")];
    let all = report(&objects);
    let text = render(&all, true);
    let line = "n: overcommitted: 1 of cpu more is taken than the node has (Pod ns/a: 3, Pod ns/b: 2)\n";
    assert!(text.contains(line), "{text}");
    let over: Vec<&str> =
        all.nodes.iter().filter(|node| node.is_overcommitted()).map(|node| &*node.name).collect();
    assert_eq!(over, ["n"]);
}

#[test]
fn a_pod_that_waits_for_no_node_is_said_to() {
    let notes = |pod: Value| {
        let filter = Filter { waiting: true, pods: vec!["ns/p".to_owned()], ..Filter::default() };
        report_about(&[node("n", "4"), pod], &filter).notes
    };
    assert_eq!(notes(pod("p", "n", "1")), ["Pod ns/p waits for no node: it is bound to node n"]);
    let mut ended = pod("p", "n", "1");
    ended["status"]["phase"] = json!("Succeeded");
    assert_eq!(notes(ended), ["Pod ns/p waits for no node: it has ended"]);
    assert!(notes(pod("p", "", "1")).is_empty());
}

/// Scripts read the exit code: what is not known is no reason to go on.
#[test]
fn a_report_is_clear_where_all_is_known_and_fits() {
    let of = |objects: &[Value], pods: &[&str]| {
        let pods = pods.iter().map(|name| (*name).to_owned()).collect();
        report_about(objects, &Filter { waiting: true, pods, ..Filter::default() }).is_clear()
    };
    let full = [node("n", "4"), pod("a", "n", "3"), pod("b", "", "2")];
    assert!(of(&full, &[]), "a Pod waits, as Pods do");
    assert!(!of(&full, &["ns/b"]), "the Pod in question fits nowhere");
    let wide = [node("n", "4"), pod("a", "n", "3"), pod("b", "", "1")];
    assert!(of(&wide, &["ns/b"]));
    let claim = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
    let mut open = pod("b", "", "1");
    open["spec"]["resourceClaims"] = claim;
    assert!(!of(&[node("n", "4"), open], &["ns/b"]), "what its claim takes is not known");
    assert!(!of(&[node("n", "4"), pod("a", "n", "5")], &[]), "overcommitted");
    let slice = json!({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": 7});
    assert!(!of(&[node("n", "4"), slice.clone()], &[]), "a slice that cannot be read");
    let shown = Filter { overcommitted: true, ..Filter::default() };
    assert!(!report_about(&[node("n", "4"), slice], &shown).is_clear(), "a node that is not shown");
    let full = [node("n", "4"), pod("a", "n", "5"), node("free", "4")];
    let one = |name: &str| Filter { nodes: vec![name.to_owned()], ..Filter::default() };
    assert!(report_about(&full, &one("free")).is_clear() && !report_about(&full, &one("n")).is_clear());
}

#[test]
fn pods_with_claims_alone_are_told_once_for_each_node() {
    let bare = |name: &str| {
        json!({"kind": "Pod", "metadata": {"namespace": "ns", "name": name, "uid": name}, "spec": {"nodeName": "n",
            "containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": format!("{name}-gpu")}]}})
    };
    let claim = |name: &str, device: &str| {
        json!({"kind": "ResourceClaim", "metadata": {"namespace": "ns", "name": format!("{name}-gpu"), "uid": format!("{name}-gpu")},
            "status": {"allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "n", "device": device}]}},
                "reservedFor": [{"resource": "pods", "name": name, "uid": name}]}})
    };
    let cost = json!({"cpu": {"mapping": {"deviceMultiplier": "2"}}});
    let devices: Vec<Value> =
        ["0", "1"].map(|name| json!({"name": name, "nodeAllocatableResources": cost})).into();
    let slice = json!({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "devices": devices}});
    let report = report(&[node("n", "8"), slice, bare("a"), claim("a", "0"), bare("b"), claim("b", "1")]);
    let notices = &report.nodes[0].notices;
    let words = "Pod ns/a and 1 more: no cpu and no memory are requested beside the claims: BestEffort";
    assert!(notices.iter().any(|notice| notice.starts_with(words)), "{notices:?}");
}
