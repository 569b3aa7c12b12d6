//! Clusters, and the findings about each.

use serde_json::json;

use super::*;

/// A cluster of 1.37 with a driver, in which nothing of Dragoman is installed.
fn good() -> Seen {
    let objects = json!({"kind": "List", "items": [
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "gpu.example",
            "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "a"}]}},
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
    ]});
    let mut facts = Facts::default();
    facts.take_file(std::path::Path::new("f"), &objects.to_string()).expect("objects");
    let served = [
        ("resource.k8s.io/v1", &["resourceclaims", "resourceslices", "deviceclasses"][..]),
        ("resource.k8s.io/v1beta1", &[]),
        ("admissionregistration.k8s.io/v1", &["mutatingadmissionpolicies"]),
        ("dragoman.dev/v1alpha1", &[]),
    ];
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Seen {
        version: Some("v1.37.2".to_owned()),
        served: served.map(|(version, names)| (version.to_owned(), named(names))).into(),
        reads_leases: true,
        gates: Some(BTreeMap::from([(NODE_ALLOCATABLE.to_owned(), true)])),
        kubelets: Some(BTreeMap::from([("v1.37.2".to_owned(), 2)])),
        controller_manager: Some(Leader { holder: "cp_x".to_owned(), renewed: Some(1) }),
        policies: Some(BTreeSet::new()),
        gated: Some(Vec::new()),
        facts,
        ..Seen::default()
    }
}

fn level(seen: &Seen, part: &str) -> (Level, String) {
    let readiness = readiness(seen);
    let found = readiness.findings.into_iter().find(|finding| finding.part == part).expect(part);
    (found.level, found.says)
}

fn ready(seen: &Seen) -> Vec<&'static str> {
    readiness(seen).uses.into_iter().filter(|of| of.ready).map(|of| of.name).collect()
}

#[test]
fn a_cluster_that_is_ready_has_one_step_before_mode_own() {
    let seen = good();
    let found = readiness(&seen);
    assert!(found.findings.iter().all(|finding| finding.level == Level::Ok), "{}", found.in_words());
    assert_eq!(
        ready(&seen),
        ["kubectl dra", "modes observe, assist and auto", "claim gates and the allocator"]
    );
    assert!(!found.is_blocked());
    let own = Leader { holder: "x_own".to_owned(), renewed: Some(2) };
    let owned = Seen { operator: Some(("kube-system".to_owned(), own)), ..good() };
    assert_eq!(ready(&owned).len(), 4, "the operator has found no second writer");
    let made = |age| Seen {
        built_in_made: Some(("a/b".to_owned(), age)),
        operator: Some(("kube-system".to_owned(), Leader { holder: "x_own".to_owned(), renewed: Some(2) })),
        ..good()
    };
    assert_eq!(
        (ready(&made(5)).len(), ready(&made(90_000)).len()),
        (3, 4),
        "an old claim says nothing about now"
    );
    let managed = Seen { controller_manager: None, ..good() };
    assert_eq!(ready(&managed).len(), 3, "a second writer may run unseen");
}

#[track_caller]
fn is(seen: &Seen, part: &str, wanted: Level, words: &str) {
    let (found, says) = level(seen, part);
    assert!(found == wanted && says.contains(words), "{part}: {found:?} {says}");
}

#[test]
fn what_stands_in_the_way_is_said_of_each_part() {
    is(
        &Seen { version: Some("v1.33.4-gke.1".to_owned()), ..good() },
        "Kubernetes",
        Level::Missing,
        "older than 1.34",
    );
    is(
        &Seen { version: Some("v1.40.0".to_owned()), ..good() },
        "Kubernetes",
        Level::Warning,
        "newer than 1.37",
    );
    is(&Seen { version: None, ..good() }, "Kubernetes", Level::Unknown, "could not be read");
    let serving = |version: &str, names: &[&str]| {
        let mut seen = good();
        seen.served.insert("resource.k8s.io/v1".to_owned(), BTreeSet::new());
        seen.served.insert(version.to_owned(), names.iter().map(|name| (*name).to_owned()).collect());
        seen
    };
    let old = || serving("resource.k8s.io/v1beta1", &["resourceclaims"]);
    is(&old(), "DRA", Level::Missing, "only an older version");
    assert!(ready(&old()).is_empty());
    is(&serving("x", &[]), "DRA", Level::Missing, "nor an older version");
    let silent = || Seen { served: BTreeMap::new(), facts: Facts::default(), ..good() };
    for part in ["DRA", "driver", "classes"] {
        is(&silent(), part, Level::Unknown, "could not");
    }
    assert!(ready(&silent()).is_empty(), "the API server did not answer");
    is(
        &Seen { gates: Some(BTreeMap::new()), ..good() },
        "amounts of claims",
        Level::Warning,
        "does not exist",
    );
    is(&Seen { gates: None, ..good() }, "amounts of claims", Level::Unknown, "metrics");
    let mixed = BTreeMap::from([("v1.33.0".to_owned(), 1), ("v1.37.2".to_owned(), 2)]);
    is(&Seen { kubelets: Some(mixed), ..good() }, "nodes", Level::Warning, "1 of 3 nodes");
    is(&Seen { facts: Facts::default(), ..good() }, "driver", Level::Missing, "no driver publishes");
    is(&Seen { facts: Facts::default(), ..good() }, "classes", Level::Missing, "no DeviceClass");
}

#[test]
fn quotas_drivers_and_parts_of_dragoman_that_need_attention() {
    let mut broken = good();
    broken.facts.cluster.slices[0].pool.resource_slice_count = 2;
    is(&broken, "driver", Level::Warning, "nothing is allocated from n (Incomplete)");
    let mut full = good();
    let quota = json!({"status": {"hard": {"gpu.deviceclass.resource.k8s.io/devices": "1"},
        "used": {"gpu.deviceclass.resource.k8s.io/devices": "1"}}});
    let quota = serde_json::from_value(quota).expect("a quota");
    full.facts.quotas.insert(("ml".to_owned(), "q".to_owned()), quota);
    is(&full, "quotas", Level::Warning, "ml/q (1 of 1 devices of DeviceClass gpu)");
    is(&Seen { controller_manager: None, ..good() }, "claims of templates", Level::Unknown, "managed");
    let gone = Leader { holder: "x_assist".to_owned(), renewed: Some(600) };
    is(
        &Seen { operator: Some(("kube-system".to_owned(), gone)), ..good() },
        "Dragoman",
        Level::Warning,
        "10m ago",
    );
    is(&Seen { reads_leases: false, ..good() }, "Dragoman", Level::Unknown, "Leases could not be read");
    is(&Seen { policies: None, ..good() }, "claim gates", Level::Unknown, "could not be read");
    let gated = Some(vec!["ml".to_owned()]);
    is(&Seen { gated, ..good() }, "claim gates", Level::Missing, "their Pods get no gate");
    let some = Some(BTreeSet::from(["dragoman-gate".to_owned()]));
    is(&Seen { policies: some, ..good() }, "claim gates", Level::Missing, "dragoman-gate-enforced");
    let all = Some(POLICIES.iter().map(|name| (*name).to_owned()).collect());
    is(&Seen { policies: all, ..good() }, "claim gates", Level::Ok, "are on in 0 namespaces");
}
