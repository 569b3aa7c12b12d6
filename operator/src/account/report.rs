//! The ledgers of a cluster as plain data, for both kinds of output.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_accounting::cluster::{Account, ClusterLedger, Index, Pod, Rules};
use dragoman_accounting::ledger::fit::{Fit, Headroom};
use dragoman_accounting::ledger::{Bucket, NodeLedger, words};
use dragoman_accounting::resource::Resource;
use serde::Serialize;

use dragoman_reconcilers::placement::Placement;

use super::devices::unallocated;
use super::dump::Dump;

/// What is taken from every node, and where waiting Pods would fit.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) nodes: Vec<OfNode>,
    /// The number of nodes that there are, shown or not.
    pub(super) of_nodes: usize,
    pub(super) pending: Vec<OfPod>,
    /// Objects that do not decode, each with why.
    pub(super) unreadable: Vec<String>,
    /// What is missing in the dump or stands there twice.
    pub(super) notes: Vec<String>,
}

/// What a report is about: everything, unless narrowed.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// Names of nodes; empty for all.
    pub(super) nodes: Vec<String>,
    /// Namespaces of waiting Pods; empty for all.
    pub(super) namespaces: Vec<String>,
    /// `NAMESPACE/NAME` of waiting Pods; empty for all.
    pub(super) pods: Vec<String>,
    /// Only nodes that have promised too much, and no Pods.
    pub(super) overcommitted: bool,
}

impl Filter {
    fn has_node(&self, name: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|node| node == name)
    }

    /// Says which names of the filter are those of nothing that is there.
    fn misses(&self, has_node: impl Fn(&str) -> bool, pods: &[Pod]) -> Vec<String> {
        let in_namespace = |name: &String| pods.iter().any(|pod| *pod.view.namespace == **name);
        let is_pod = |name: &String| {
            let named = name.split_once('/');
            pods.iter().any(|pod| named == Some((&*pod.view.namespace, &*pod.view.name)))
        };
        let nodes = self.nodes.iter().filter(|name| !has_node(name)).map(|name| ("node", name));
        let spaces =
            self.namespaces.iter().filter(|name| !in_namespace(name)).map(|name| ("namespace", name));
        let named = self.pods.iter().filter(|name| !is_pod(name)).map(|name| ("pod", name));
        let missed = nodes.chain(spaces).chain(named);
        missed.map(|(flag, name)| format!("--{flag} {name}: there is no such thing in the dump")).collect()
    }

    fn has_pod(&self, pod: &Pod) -> bool {
        let (namespace, name) = (&*pod.view.namespace, &*pod.view.name);
        let is_named = |named: &String| named.split_once('/') == Some((namespace, name));
        !self.overcommitted
            && (self.namespaces.is_empty() || self.namespaces.iter().any(|known| known == namespace))
            && (self.pods.is_empty() || self.pods.iter().any(is_named))
    }
}

/// A node.
#[derive(Debug, Serialize)]
pub(super) struct OfNode {
    pub(super) name: String,
    pub(super) resources: BTreeMap<String, OfResource>,
    /// What is taken beyond what the node has.
    pub(super) overcommitted: Vec<String>,
    /// Rules about devices and Pods that are broken.
    pub(super) violations: Vec<String>,
    /// Facts that could not be read.
    pub(super) unaccounted: Vec<String>,
    pub(super) notices: Vec<String>,
}

impl OfNode {
    /// Whether more is promised of the node than it can keep, as the condition Overcommitted of the
    /// published ledger has it.
    pub(super) fn is_overcommitted(&self) -> bool {
        !self.overcommitted.is_empty() || !self.violations.is_empty()
    }
}

/// A resource of a node; amounts as Kubernetes spells quantities.
#[derive(Debug, Serialize)]
pub(super) struct OfResource {
    pub(super) allocatable: String,
    pub(super) pods: String,
    pub(super) mapping: String,
    pub(super) overhead: String,
    pub(super) reservations: String,
    /// Absent where it is unknown.
    pub(super) left: Option<String>,
}

/// A Pod without a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OfPod {
    pub(super) pod: String,
    pub(super) nodes: BTreeMap<String, OnNode>,
    /// What decides about nodes too, and was not looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) not_looked_at: Vec<String>,
}

/// Whether a Pod fits on a node.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OnNode {
    /// Absent where it is unknown.
    pub(super) fits: Option<bool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) missing: BTreeMap<String, Missing>,
    /// Resources of which the whole node has less than the Pod wants, with what it has.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) never: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unknown: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) refused: Vec<String>,
}

impl OnNode {
    /// Adds what a scheduler has against the node.
    fn forbid(&mut self, obstacles: impl IntoIterator<Item = String>) {
        let before = self.refused.len();
        self.refused.extend(obstacles);
        if self.refused.len() > before {
            self.fits = Some(false);
        }
    }

    /// How much stands between a Pod and this node: first what nobody can mend by ending another Pod,
    /// then what is unknown, then the number of missing resources.
    pub(super) fn obstacles(&self) -> (usize, usize, usize) {
        (self.never.len() + self.refused.len(), self.unknown.len(), self.missing.len())
    }
}

/// A resource that is missing on a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Missing {
    pub(super) missing: String,
    /// The largest holders, each with its amount.
    pub(super) held_by: Vec<String>,
}

impl Report {
    /// The report about a cluster.
    pub(super) fn of(dump: Dump, rules: Rules, filter: &Filter) -> Self {
        let Dump { cluster, unreadable, mut notes, sites, placements, devices } = dump;
        let index = Index::new(&cluster, rules);
        let mut accounts = index.accounts();
        let count = accounts.len();
        notes.extend(filter.misses(|node| accounts.keys().any(|name| **name == *node), &cluster.pods));
        accounts.retain(|name, _| filter.has_node(name));
        let is_pending = |pod: &&Pod| pod.node.is_none() && !pod.done && filter.has_pod(pod);
        let pending = cluster.pods.iter().filter(is_pending);
        let allocated: BTreeSet<(&str, &str)> = cluster
            .claims
            .iter()
            .filter(|claim| claim.results.is_some())
            .map(|claim| (&*claim.namespace, &*claim.name))
            .collect();
        let missing =
            |pod: &Pod| unallocated(pod, |claim| allocated.contains(&(&*pod.view.namespace, claim)));
        let on_nodes = |pod: &Pod| {
            let devices = devices.as_ref().filter(|_| !missing(pod).is_empty());
            let claims = devices.map(|devices| (devices, devices.claims(pod)));
            accounts
                .iter()
                .map(|(name, account)| {
                    let mut answer = on_node(&index, account, pod, name);
                    let placement = placements.get(&pod.view.object());
                    let site = sites.get(&**name);
                    let obstacles = placement.zip(site).map(|(pod, site)| site.obstacles(pod));
                    answer.forbid(obstacles.into_iter().flatten().map(|obstacle| obstacle.to_string()));
                    answer
                        .forbid(claims.as_ref().and_then(|(devices, claims)| devices.against(claims, name)));
                    (name.to_string(), answer)
                })
                .collect()
        };
        let of_pod = |pod: &Pod| {
            let name = pod.view.object();
            let looked_at = placements.get(&name).map(Placement::not_looked_at);
            let not_looked_at = looked_at.into_iter().flatten().map(str::to_owned);
            let unknown = missing(pod).into_iter().map(|claim| {
                let what = if devices.is_some() { "what its devices will take" } else { "devices" };
                format!("{what} for {claim}")
            });
            let not_looked_at = not_looked_at.chain(unknown).collect();
            OfPod { nodes: on_nodes(pod), pod: name, not_looked_at }
        };
        let pending = pending.map(of_pod).collect();
        let nodes = accounts.iter().map(|(name, account)| of_node(name, account));
        let nodes = nodes.filter(|node| !filter.overcommitted || node.is_overcommitted()).collect();
        Self { nodes, of_nodes: count, pending, unreadable, notes }
    }
}

impl Report {
    /// The report about the nodes of a ledger that is kept up to date.
    pub(super) fn of_ledger(ledger: &ClusterLedger) -> Self {
        let accounts = ledger.accounts();
        let nodes = accounts.iter().map(|(name, account)| of_node(name, account)).collect();
        Self {
            of_nodes: accounts.len(),
            nodes,
            pending: Vec::new(),
            unreadable: Vec::new(),
            notes: Vec::new(),
        }
    }
}

fn of_node(name: &str, Account { ledger, notices }: &Account) -> OfNode {
    let of = |resource: Resource| (resource.to_string(), of_resource(ledger, resource));
    OfNode {
        name: name.to_owned(),
        resources: ledger.resources().into_iter().map(of).collect(),
        overcommitted: words::shortages(ledger, 5),
        violations: ledger.violations().iter().map(ToString::to_string).collect(),
        unaccounted: ledger.unaccounted().map(ToString::to_string).collect(),
        notices: notices.iter().map(ToString::to_string).collect(),
    }
}

fn of_resource(ledger: &NodeLedger, resource: Resource) -> OfResource {
    let charged = |bucket| amount(resource, ledger.charged(bucket, resource));
    OfResource {
        allocatable: amount(resource, ledger.allocatable(resource).into()),
        pods: charged(Bucket::Pods),
        mapping: charged(Bucket::Mapping),
        overhead: charged(Bucket::Overhead),
        reservations: charged(Bucket::Reservation),
        left: match ledger.headroom(resource) {
            Headroom::Left(left) => Some(amount(resource, left)),
            Headroom::Unknown => None,
        },
    }
}

fn on_node(index: &Index, account: &Account, pod: &Pod, name: &str) -> OnNode {
    let ledger = &account.ledger;
    match ledger.fits(&index.candidate(pod, name)) {
        Fit::Yes => OnNode { fits: Some(true), ..OnNode::default() },
        Fit::Missing(missing) => {
            let of = |resource| {
                let missing = amount(resource, missing.get(resource));
                (resource.to_string(), Missing { missing, held_by: holders(ledger, resource) })
            };
            let missing = missing.iter().map(|(resource, _)| of(resource)).collect();
            OnNode { fits: Some(false), missing, ..OnNode::default() }
        }
        Fit::Never(never) => {
            let has = |resource: &Resource| {
                (resource.to_string(), amount(*resource, ledger.allocatable(*resource).into()))
            };
            OnNode { fits: Some(false), never: never.iter().map(has).collect(), ..OnNode::default() }
        }
        Fit::Unknown(unknown) => {
            OnNode { unknown: unknown.iter().map(ToString::to_string).collect(), ..OnNode::default() }
        }
        Fit::Refused(why) => {
            let refused = why.iter().map(ToString::to_string).collect();
            OnNode { fits: Some(false), refused, ..OnNode::default() }
        }
    }
}

/// The largest holders of a resource.
fn holders(ledger: &NodeLedger, resource: Resource) -> Vec<String> {
    words::holders(ledger, resource, 5)
}

/// An amount in the units of a node.
fn amount(resource: Resource, count: i128) -> String {
    words::quantity(resource, count).0.to_string()
}
