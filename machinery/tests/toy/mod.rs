//! The smallest controller: it counts the Pods of every Node in an annotation of the Node.
//! CONTRIBUTING.md ("Add a controller") leads through it.

use std::collections::BTreeMap;
use std::sync::Arc;

use dragoman_crds::wire;
use dragoman_machinery::controller::{
    Controller, ControllerSpec, Index, Keeps, Kinds, Left, Place, Reconcile, Verdict,
};
use dragoman_machinery::kind::{Kind, NODE, POD};
use dragoman_machinery::mode::Mode;
use dragoman_machinery::queue::Keyed;
use dragoman_machinery::rights::Rule;
use dragoman_machinery::watch::{Record, Store, StoreState};
use dragoman_machinery::write::{Action, Guard, Write};

pub const PODS_OF_NODE: &str = "toy.dragoman.dev/pods";

// 1. The key: what is worked on, and which goes first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeKey(Arc<str>);

impl Keyed for NodeKey {
    type Rank = ();
    fn rank(&self) {}
}

// 2. The index: a store for each kind, and the keys that a change makes dirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watched {
    Nodes,
    Pods,
}

impl Kinds for Watched {
    const ALL: &'static [Self] = &[Self::Nodes, Self::Pods];
    fn kind(self) -> Kind {
        match self {
            Self::Nodes => NODE,
            Self::Pods => POD,
        }
    }
}

#[derive(Default)]
pub struct Toy {
    nodes: Store<NodeFacts>,
    pods: Store<Arc<str>>,
    counts: BTreeMap<Arc<str>, usize>,
}

#[derive(Clone)]
pub struct NodeFacts {
    guard: Guard,
    says: Option<String>,
}

impl Index for Toy {
    type Key = NodeKey;
    type Watched = Watched;
    fn store(&self, watched: Watched) -> &dyn StoreState {
        match watched {
            Watched::Nodes => &self.nodes,
            Watched::Pods => &self.pods,
        }
    }
    fn all_keys(&self) -> Vec<NodeKey> {
        self.nodes.iter().map(|(_, name, _)| NodeKey(Arc::clone(name))).collect()
    }
}

impl Keeps<wire::Node> for Toy {
    type Projection = NodeFacts;
    const WATCHED: Watched = Watched::Nodes;
    fn store_mut(&mut self) -> &mut Store<NodeFacts> {
        &mut self.nodes
    }
    fn project(&mut self, node: &wire::Node, _now: i64) -> NodeFacts {
        let meta = &node.metadata;
        let guard = Guard { uid: meta.uid.to_string(), resource_version: meta.resource_version.to_string() };
        NodeFacts { guard, says: meta.annotation(PODS_OF_NODE).map(ToString::to_string) }
    }
    fn changed(&mut self, place: &Place, _old: Option<&NodeFacts>, _new: Option<&NodeFacts>) -> Vec<NodeKey> {
        vec![NodeKey(Arc::clone(&place.name))]
    }
    fn removed(&mut self, _: &Arc<str>, _: &Arc<str>, _: &Record<NodeFacts>, _: Left) -> Vec<NodeKey> {
        Vec::new()
    }
}

impl Keeps<wire::Pod> for Toy {
    type Projection = Arc<str>;
    const WATCHED: Watched = Watched::Pods;
    fn store_mut(&mut self) -> &mut Store<Arc<str>> {
        &mut self.pods
    }
    fn project(&mut self, pod: &wire::Pod, _now: i64) -> Arc<str> {
        (*pod.spec.node_name).into()
    }
    fn changed(&mut self, _: &Place, old: Option<&Arc<str>>, new: Option<&Arc<str>>) -> Vec<NodeKey> {
        if old == new {
            return Vec::new();
        }
        old.into_iter().for_each(|node| *self.counts.entry(Arc::clone(node)).or_default() -= 1);
        new.into_iter().for_each(|node| *self.counts.entry(Arc::clone(node)).or_default() += 1);
        old.into_iter().chain(new).cloned().map(NodeKey).collect()
    }
    fn removed(&mut self, _: &Arc<str>, _: &Arc<str>, last: &Record<Arc<str>>, _: Left) -> Vec<NodeKey> {
        let node = last.readable();
        node.into_iter().for_each(|node| *self.counts.entry(Arc::clone(node)).or_default() -= 1);
        node.cloned().map(NodeKey).into_iter().collect()
    }
}

// 3. The plan: a pure function from plain data to the next write, if there is one.
fn plan(name: &str, node: &NodeFacts, pods: usize) -> Option<Write> {
    let wanted = pods.to_string();
    let annotations = [(PODS_OF_NODE.to_owned(), Some(wanted.clone()))].into();
    let action = Action::Merge { guard: node.guard.clone(), labels: BTreeMap::new(), annotations };
    (node.says.as_ref() != Some(&wanted)).then(|| Write::new(NODE, "", name, action))
}

struct PodsOfNodes(Arc<Controller<Toy>>);

impl Reconcile for PodsOfNodes {
    type Index = Toy;
    fn controller(&self) -> &Arc<Controller<Toy>> {
        &self.0
    }
    async fn reconcile(&self, key: &NodeKey) -> Verdict {
        let write = self.0.read(|toy| {
            let node = toy.nodes.get("", &key.0)?.readable()?;
            plan(&key.0, node, toy.counts.get(&key.0).copied().unwrap_or_default())
        });
        let Some(write) = write else { return Verdict::Done };
        match self.0.send(key, Watched::Nodes, &write).await {
            Ok(_) => Verdict::Done,
            Err(refusal) => Verdict::Failed(refusal.to_string()),
        }
    }
}

// 4. The rights, declared beside the code that uses them.
const SEE: &[Rule] = &[
    Rule { group: "", resource: "nodes", verbs: &["list", "watch"], why: "what is annotated" },
    Rule { group: "", resource: "pods", verbs: &["list", "watch"], why: "what is counted" },
];
const WRITE: &[Rule] = &[Rule { group: "", resource: "nodes", verbs: &["patch"], why: "the count" }];

// 5. The row in the table of controllers.
pub fn spec() -> ControllerSpec {
    ControllerSpec {
        name: "toy",
        works: |mode| mode >= Mode::Assist,
        rights: |mode| match mode {
            Mode::Observe => SEE,
            Mode::Assist => WRITE,
            Mode::Own => &[],
        },
        start: Box::new(|assembly| {
            let kit = assembly.controller::<Toy>("toy", "toy");
            kit.watch::<wire::Node>(&mut assembly.watches);
            kit.watch::<wire::Pod>(&mut assembly.watches);
            Arc::new(PodsOfNodes(kit))
        }),
    }
}
