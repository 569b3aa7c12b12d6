//! Pods near a Pod: affinity, anti-affinity, topology spread.

use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_objects::{Name, Node, Pod};
use serde_json::{Value, json};

use super::{Neighbours, NodeView, Nodes, PodKind, Promised, SchedulingConstraints, Seeker};

/// A cluster: a-1 and a-2 in zone a, b-1 in zone b, and c-1 without a zone.
#[derive(Default)]
struct World {
    nodes: BTreeMap<Name, NodeView>,
    neighbours: Neighbours,
    promised: Vec<(Name, Arc<PodKind>)>,
}

impl Nodes for World {
    fn node(&self, name: &str) -> Option<&NodeView> {
        self.nodes.get(name)
    }

    fn nodes(&self) -> Box<dyn Iterator<Item = &NodeView> + '_> {
        Box::new(self.nodes.values())
    }
}

const HOST: &str = "kubernetes.io/hostname";

fn read(pod: &Value) -> Pod {
    serde_json::from_str(&pod.to_string()).expect("a Pod")
}

/// A Pod of a namespace with the labels `app=APP` and `all=1`.
fn pod(namespace: &str, app: &str, spec: &Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": app, "labels": {"app": app, "all": "1"}}, "spec": spec})
}

fn selects(app: &str) -> Value {
    json!({"matchLabels": {"app": app}})
}

/// `spec` with one required term.
fn term(kind: &str, app: &str, key: &str, more: &Value) -> Value {
    let mut term = json!({"labelSelector": selects(app), "topologyKey": key});
    term.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn apart(app: &str, key: &str) -> Value {
    term("podAntiAffinity", app, key, &json!({}))
}

fn near(app: &str, key: &str) -> Value {
    term("podAffinity", app, key, &json!({}))
}

/// `spec` with one topology spread constraint over zones.
fn spread(app: &str, skew: u8, more: &Value) -> Value {
    let mut of = json!({"labelSelector": selects(app), "topologyKey": "zone", "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule"});
    of.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({"topologySpreadConstraints": [of]})
}

impl World {
    fn new() -> Self {
        let mut world = Self::default();
        for (name, zone) in [("a-1", "a"), ("a-2", "a"), ("b-1", "b"), ("c-1", "")] {
            let mut node = json!({"metadata": {"name": name, "labels": {HOST: name, "zone": zone}}});
            if zone.is_empty() {
                node["metadata"]["labels"] = json!({HOST: name});
            }
            if name == "b-1" {
                node["spec"]["taints"] = json!([{"key": "gpu", "effect": "NoSchedule"}]);
            }
            world.nodes.insert(name.into(), (&serde_json::from_value::<Node>(node).expect("a Node")).into());
        }
        world
    }

    fn with(mut self, node: &str, pod: &Value) -> Self {
        let kind = self.neighbours.kind(&read(pod));
        self.neighbours.add(&node.into(), &kind);
        self
    }

    /// The nodes that take a Pod, as far as other Pods decide.
    fn takes(&self, asked: &Value) -> Vec<&str> {
        let all = self.judged(asked).into_iter();
        all.filter(|(_, why)| why.is_none()).map(|(node, _)| node).collect()
    }

    /// Each node with its obstacle.
    fn judged(&self, asked: &Value) -> Vec<(&str, Option<String>)> {
        let asked = read(asked);
        let (kind, constraints) = (PodKind::of(&asked), SchedulingConstraints::from(&asked));
        assert_eq!(constraints.not_looked_at(), [""; 0]);
        let seeker = Seeker { kind: &kind, constraints: &constraints };
        let around = self.neighbours.around(seeker, &self.promised, self);
        let repulsion = self.neighbours.repulsion(&kind, self.promised.iter().map(|(_, kind)| kind));
        let all =
            self.nodes.iter().map(|(name, node)| (&**name, around.obstacle(node).map(|why| why.to_string())));
        let all: Vec<_> = all.collect();
        // Where nothing concerns the Pod, no one asks.
        assert!(
            constraints.terms().is_some() || repulsion.is_some() || all.iter().all(|(_, why)| why.is_none())
        );
        all
    }
}

#[test]
fn anti_affinity_keeps_pods_apart() {
    let world = World::new().with("a-1", &pod("ns", "db", &json!({})));
    assert_eq!(world.takes(&pod("ns", "web", &apart("db", HOST))), ["a-2", "b-1", "c-1"]);
    assert_eq!(
        world.takes(&pod("ns", "web", &apart("db", "zone"))),
        ["b-1", "c-1"],
        "a node without a zone is in none"
    );
    assert_eq!(world.takes(&pod("ns", "web", &apart("other", HOST))).len(), 4);
    assert_eq!(world.takes(&pod("other", "web", &apart("db", HOST))).len(), 4, "of its own namespace");
    let said = world.judged(&pod("ns", "web", &apart("db", "zone")));
    let why = "a Pod that the required Pod anti-affinity excludes runs in the same zone";
    assert_eq!(said[0].1.as_deref(), Some(why));
}

#[test]
fn the_anti_affinity_of_other_pods_holds_as_well() {
    let world = World::new().with("a-1", &pod("ns", "db", &apart("web", "zone")));
    assert_eq!(world.takes(&pod("ns", "web", &json!({}))), ["b-1", "c-1"]);
    assert_eq!(world.takes(&pod("ns", "other", &json!({}))).len(), 4);
    assert_eq!(world.takes(&pod("other", "web", &json!({}))).len(), 4);
    let said = world.judged(&pod("ns", "web", &json!({})));
    assert_eq!(
        said[1].1.as_deref(),
        Some("the anti-affinity of another Pod in the same zone excludes the Pod")
    );
    // A Pod that has its devices and waits counts like one that runs.
    let mut world = World::new();
    let promised = Arc::new(PodKind::of(&read(&pod("ns", "db", &apart("web", HOST)))));
    world.promised.push(("a-2".into(), promised));
    assert_eq!(world.takes(&pod("ns", "web", &json!({}))), ["a-1", "b-1", "c-1"]);
    // Where the Pod that repels ends, nothing is left of it.
    let mut world = World::new();
    let kind = world.neighbours.kind(&read(&pod("ns", "db", &apart("web", HOST))));
    world.neighbours.add(&"a-1".into(), &kind);
    world.neighbours.remove(&"a-1".into(), &kind);
    assert_eq!(world.takes(&pod("ns", "web", &json!({}))).len(), 4);
    assert!(world.neighbours.is_empty());
}

#[test]
fn affinity_asks_for_pods_nearby() {
    let world = World::new().with("a-1", &pod("ns", "db", &json!({})));
    assert_eq!(world.takes(&pod("ns", "web", &near("db", HOST))), ["a-1"]);
    assert_eq!(world.takes(&pod("ns", "web", &near("db", "zone"))), ["a-1", "a-2"]);
    let said = world.judged(&pod("ns", "web", &near("db", "zone")));
    assert_eq!(
        said[2].1.as_deref(),
        Some("no Pod that the required Pod affinity asks for runs in the same zone")
    );
    assert_eq!(said[3].1.as_deref(), Some("the node does not have the label zone (topologyKey)"));
    assert_eq!(world.takes(&pod("ns", "web", &near("none", "zone"))), [""; 0]);
    // The first of those that ask for each other may go anywhere in a domain, the next one to it.
    assert_eq!(world.takes(&pod("ns", "web", &near("web", "zone"))), ["a-1", "a-2", "b-1"]);
    let world = world.with("b-1", &pod("ns", "web", &near("web", "zone")));
    assert_eq!(world.takes(&pod("ns", "web", &near("web", "zone"))), ["b-1"]);
    // A Pod counts if it meets all terms.
    let mut both = near("db", "zone");
    let terms = &mut both["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    terms.as_array_mut().expect("terms").push(json!({"labelSelector": selects("web"), "topologyKey": HOST}));
    assert_eq!(world.takes(&pod("ns", "x", &both)), [""; 0]);
}

#[test]
fn terms_name_namespaces() {
    let world = World::new().with("a-1", &pod("prod", "db", &json!({})));
    let of = |more: Value| world.takes(&pod("ns", "web", &term("podAntiAffinity", "db", HOST, &more))).len();
    assert_eq!(of(json!({"namespaces": ["prod", "test"]})), 3);
    assert_eq!(of(json!({"namespaces": ["test"]})), 4);
    assert_eq!(of(json!({"namespaceSelector": {}})), 3, "all");
    let named =
        |name: &str| json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}});
    assert_eq!((of(named("prod")), of(named("test"))), (3, 4));
    // Labels of namespaces are not read.
    let by_team = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}});
    let asked = read(&pod("ns", "web", &term("podAffinity", "db", HOST, &by_team)));
    assert_eq!(SchedulingConstraints::from(&asked).not_looked_at(), ["Pod affinity"]);
}

#[test]
fn pods_are_spread_over_domains() {
    let db = || pod("ns", "db", &json!({}));
    let world = World::new().with("a-1", &db());
    let takes = |world: &World, more: Value| world.takes(&pod("ns", "db", &spread("db", 1, &more))).join(" ");
    assert_eq!(takes(&world, json!({})), "b-1", "c-1 has no zone");
    assert_eq!(world.takes(&pod("ns", "db", &spread("db", 2, &json!({})))), ["a-1", "a-2", "b-1"]);
    assert_eq!(
        world.takes(&pod("ns", "web", &spread("db", 1, &json!({})))),
        ["a-1", "a-2", "b-1"],
        "it does not count"
    );
    assert_eq!(world.takes(&pod("other", "db", &spread("db", 1, &json!({})))), ["a-1", "a-2", "b-1"]);
    let said = world.judged(&pod("ns", "db", &spread("db", 1, &json!({}))));
    assert_eq!(said[0].1.as_deref(), Some("the Pod would exceed maxSkew 1 of its topology spread over zone"));
    // With fewer domains than asked for, the least is zero.
    let even = World::new().with("a-1", &db()).with("b-1", &db());
    assert_eq!(takes(&even, json!({})), "a-1 a-2 b-1");
    assert_eq!(takes(&even, json!({"minDomains": 3})), "");
    // The domains of nodes that the Pod cannot use do not count, unless it says so.
    assert_eq!(takes(&world, json!({"nodeTaintsPolicy": "Honor"})), "a-1 a-2 b-1");
    let only_a = |policy: &str| {
        let mut spec = spread("db", 1, &json!({"nodeAffinityPolicy": policy}));
        spec["nodeSelector"] = json!({"zone": "a"});
        world.takes(&pod("ns", "db", &spec)).join(" ")
    };
    assert_eq!((only_a("Honor").as_str(), only_a("Ignore").as_str()), ("a-1 a-2 b-1", "b-1"));
    // A Pod that is being deleted does not count any more, and preferences do not at all.
    let mut ending = db();
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(takes(&World::new().with("a-1", &ending), json!({})), "a-1 a-2 b-1");
    let soft = spread("db", 1, &json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    assert_eq!(world.takes(&pod("ns", "db", &soft)).len(), 4);
}

#[test]
fn keys_of_labels_narrow_a_spread() {
    let of = |hash: &str, spec: &Value| {
        let mut pod = pod("ns", "db", spec);
        pod["metadata"]["labels"]["pod-template-hash"] = json!(hash);
        pod
    };
    let world = World::new().with("a-1", &of("old", &json!({})));
    let spec = spread("db", 1, &json!({"matchLabelKeys": ["pod-template-hash", "none"]}));
    assert_eq!(world.takes(&of("new", &spec)), ["a-1", "a-2", "b-1"]);
    assert_eq!(world.takes(&of("old", &spec)), ["b-1"]);
}

/// The nodes that are left for a Pod where others with topology spread are promised the node a-1.
fn left_beside(world: &World, promised: &Value, asked: &Value) -> String {
    let [promised, asked] = [promised, asked].map(|pod| {
        let pod = read(pod);
        (Arc::new(PodKind::of(&pod)), SchedulingConstraints::from(&pod))
    });
    let ((kind, constraints), (own, own_constraints)) = (promised, asked);
    let node: Name = "a-1".into();
    let beside = [(node.clone(), Arc::clone(&kind))];
    let mut around =
        world.neighbours.around(Seeker { kind: &own, constraints: &own_constraints }, &beside, world);
    let promised = [Promised { asks: &constraints, on: vec![&node] }];
    world.neighbours.spare(&mut around, &own, &promised, &beside, world);
    let left = world.nodes.iter().filter(|(_, node)| around.obstacle(node).is_none());
    left.map(|(name, _)| &**name).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_promised_pod_keeps_its_place_in_the_spread() {
    let db = || pod("ns", "db", &json!({}));
    let spread = |skew, more: Value| pod("ns", "db", &spread("db", skew, &more));
    let (empty, full) = (World::new(), World::new().with("a-1", &db()).with("b-1", &db()));
    assert_eq!(left_beside(&empty, &spread(1, json!({})), &db()), "b-1 c-1", "two and none");
    assert_eq!(left_beside(&empty, &spread(2, json!({})), &db()), "a-1 a-2 b-1 c-1");
    assert_eq!(left_beside(&full, &spread(1, json!({})), &db()), "b-1 c-1", "three and one");
    let one_more = World::new().with("b-1", &db());
    assert_eq!(left_beside(&one_more, &spread(1, json!({})), &db()), "a-1 a-2 b-1 c-1", "two and one");
    for other in [pod("ns", "web", &json!({})), pod("other", "db", &json!({}))] {
        assert_eq!(left_beside(&empty, &spread(1, json!({})), &other), "a-1 a-2 b-1 c-1", "not counted");
    }
    // Where its zone is the only one, the least grows with the Pod.
    let mut alone = spread(1, json!({}));
    alone["spec"]["nodeSelector"] = json!({"zone": "a"});
    assert_eq!(left_beside(&empty, &alone, &db()), "a-1 a-2 b-1 c-1");
    // It does not count the Pods of nodes that it cannot use.
    let mut on_a_1 = spread(1, json!({"minDomains": 2}));
    on_a_1["spec"]["nodeSelector"] = json!({HOST: "a-1"});
    assert_eq!(left_beside(&empty, &on_a_1, &db()), "a-2 b-1 c-1");
    alone["spec"]["topologySpreadConstraints"][0]["minDomains"] = json!(2);
    assert_eq!(left_beside(&empty, &alone, &db()), "b-1 c-1");
    // A Pod that does not count itself leaves as many as it is.
    let mut outside = spread(1, json!({}));
    outside["metadata"]["labels"]["app"] = json!("web");
    assert_eq!(left_beside(&empty, &outside, &db()), "a-1 a-2 b-1 c-1");
    assert_eq!(left_beside(&World::new().with("a-2", &db()), &outside, &db()), "b-1 c-1");
}

/// Pods that differ in labels that no requirement is about are judged alike.
#[test]
fn requirements_say_nothing_about_other_labels() {
    let of = |index: &str| {
        let mut pod = pod("ns", "db", &apart("db", HOST));
        pod["metadata"]["labels"]["index"] = json!(index);
        SchedulingConstraints::from(&read(&pod))
    };
    assert_eq!(format!("{:?}", of("1")), format!("{:?}", of("2")));
}

/// A tenant has as many Pods with anti-affinity as it likes: beyond a number they concern no other namespace, and all Pods of a
/// controller count once.
#[test]
fn the_terms_of_a_namespace_are_bounded() {
    let everywhere = |app: &str| term("podAntiAffinity", app, HOST, &json!({"namespaceSelector": {}}));
    let mut world = World::new();
    let mut comes = |number: usize, spec: &Value| {
        let mut pod = pod("loud", "loud", spec);
        pod["metadata"]["labels"]["index"] = json!(number.to_string());
        let kind = world.neighbours.kind(&read(&pod));
        world.neighbours.add(&"a-1".into(), &kind);
    };
    // These are all of one controller.
    (0..1_000).for_each(|number| comes(number, &everywhere("app-0")));
    let repelled = |neighbours: &Neighbours, namespace: &str| {
        let asked = (0..1_000).map(|number| pod(namespace, &format!("app-{number}"), &json!({})));
        let kinds = asked.map(|pod| PodKind::of(&read(&pod)));
        kinds.filter(|kind| neighbours.repulsion(kind, std::iter::empty()).is_some()).count()
    };
    (0..10).for_each(|number| comes(number, &everywhere(&format!("app-{number}"))));
    assert_eq!(repelled(&world.neighbours, "quiet"), 10);
    let mut comes = |number: usize| {
        let kind = world.neighbours.kind(&read(&pod("loud", "loud", &everywhere(&format!("app-{number}")))));
        world.neighbours.add(&"a-1".into(), &kind);
    };
    (10..1_000).for_each(&mut comes);
    assert_eq!((repelled(&world.neighbours, "quiet"), repelled(&world.neighbours, "loud")), (16, 128));
}

/// A tenant writes terms and labels without a bound.
#[test]
fn terms_and_labels_are_bounded() {
    let many = |count: usize| {
        let one = json!({"labelSelector": selects("db"), "topologyKey": HOST});
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": vec![one; count]}}})
    };
    let constraints = |spec: &Value| SchedulingConstraints::from(&read(&pod("ns", "web", spec)));
    assert!(constraints(&many(40)).terms().is_some());
    let over = constraints(&many(15_000));
    assert!(over.terms().is_none());
    assert_eq!(over.not_looked_at(), ["Pod anti-affinity"]);
    assert!(!PodKind::of(&read(&pod("ns", "web", &many(15_000)))).repels());
    let values: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let long =
        json!({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}});
    assert_eq!(constraints(&spread("db", 1, &long)).not_looked_at(), ["topology spread"]);
    let mut fat = pod("ns", "fat", &json!({}));
    fat["metadata"]["labels"] =
        (0..5_000).map(|n| (format!("k{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    assert!(format!("{:?}", PodKind::of(&read(&fat))).len() < 4_000);
}
