//! The ledgers of a cluster as plain data, for both kinds of output.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dragoman_accounting::cluster::{Claim, ClaimName, ClusterLedger, Pod, Rules};
use dragoman_accounting::ledger::fit::{Fit, Headroom, Refusal};
use dragoman_accounting::ledger::{Bucket, NodeLedger, words};
use dragoman_accounting::pod;
use dragoman_accounting::pod::advice::Advice;
use dragoman_accounting::resource::Resource;
use dragoman_objects::Name;
use dragoman_quantity::QuantityText;
use serde::Serialize;

use crate::cluster::{Dump, Settled, Waiting};
use crate::cost::kubelet;
use crate::devices::{Found, unallocated};
use crate::objects::Objects;

/// Amounts taken from every node, and the nodes where waiting Pods would fit.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub(crate) nodes: Vec<OfNode>,
    /// The number of nodes that there are, shown or not.
    pub(crate) of_nodes: usize,
    pub(crate) pending: Vec<OfPod>,
    /// Objects that do not decode, each with why.
    pub(crate) unreadable: Vec<String>,
    /// Notes for the reader of the dump, for example about objects that it lacks or has twice.
    pub(crate) notes: Vec<String>,
    #[serde(skip)]
    missed: Vec<String>,
    /// Whether nothing of the nodes and Pods that were asked about needs a person.
    #[serde(skip)]
    clear: bool,
}

/// Scope of a report: everything, unless narrowed.
#[derive(Debug, Default)]
pub struct Filter {
    /// Names of nodes; empty for all.
    pub nodes: Vec<String>,
    /// Namespaces of waiting Pods; empty for all.
    pub namespaces: Vec<String>,
    /// `NAMESPACE/NAME` of waiting Pods; empty for all.
    pub pods: Vec<String>,
    /// Only nodes that have promised too much.
    pub overcommitted: bool,
    /// Whether Pods that wait are looked at: each is compared with every node.
    pub waiting: bool,
}

impl Filter {
    fn has_node(&self, name: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|node| node == name)
    }

    /// Says which names of the filter are those of nothing that is there.
    fn misses(&self, dump: &Dump) -> Vec<String> {
        let is_node = |name: &str| dump.ledger.node(name).is_some();
        let is_namespace = |name: &str| dump.pods.keys().any(|(namespace, _)| **namespace == *name);
        let is_pod = |name: &str| {
            let named = name.split_once('/');
            named.is_some_and(|(namespace, name)| dump.pods.contains_key(&(namespace.into(), name.into())))
        };
        let nodes = self.nodes.iter().filter(|name| !is_node(name)).map(|name| ("node", name));
        let spaces = self.namespaces.iter().filter(|name| !is_namespace(name));
        let spaces = spaces.map(|name| ("namespace", name));
        let named = self.pods.iter().filter(|name| !is_pod(name)).map(|name| ("pod", name));
        let missed = nodes.chain(spaces).chain(named);
        missed.map(|(kind, name)| format!("there is no {kind} {name}")).collect()
    }

    /// Says of Pods of the filter that they wait for no node.
    fn settled(&self, dump: &Dump) -> Vec<String> {
        let settled = |named: &String| {
            let (namespace, name) = named.split_once('/')?;
            Some(match dump.pods.get(&(namespace.into(), name.into()))?.as_ref()? {
                Settled::Bound(node) => format!("Pod {named} waits for no node: it is bound to node {node}"),
                Settled::Ended => format!("Pod {named} waits for no node: it has ended"),
            })
        };
        self.pods.iter().filter(|_| self.waiting).filter_map(settled).collect()
    }

    fn has_pod(&self, pod: &Pod) -> bool {
        let (namespace, name) = (&*pod.view.namespace, &*pod.view.name);
        let is_named = |named: &String| named.split_once('/') == Some((namespace, name));
        self.waiting
            && (self.namespaces.is_empty() || self.namespaces.iter().any(|known| known == namespace))
            && (self.pods.is_empty() || self.pods.iter().any(is_named))
    }
}

/// A node.
#[derive(Debug, Serialize)]
pub(crate) struct OfNode {
    pub(crate) name: String,
    pub(crate) resources: BTreeMap<String, OfResource>,
    /// Resources of which more is taken than the node has, in sentences.
    pub(crate) overcommitted: Vec<String>,
    /// Rules about devices and Pods that are broken.
    pub(crate) violations: Vec<String>,
    /// Facts that could not be read.
    pub(crate) unaccounted: Vec<String>,
    pub(crate) notices: Vec<String>,
}

impl OfNode {
    /// Whether more is promised of the node than it can keep, as the condition Overcommitted of the
    /// published ledger has it.
    pub(crate) fn is_overcommitted(&self) -> bool {
        !self.overcommitted.is_empty() || !self.violations.is_empty()
    }
}

/// A resource of a node; amounts as Kubernetes spells quantities.
#[derive(Debug, Serialize)]
pub(crate) struct OfResource {
    pub(crate) allocatable: QuantityText,
    pub(crate) pods: QuantityText,
    pub(crate) mapping: QuantityText,
    pub(crate) overhead: QuantityText,
    pub(crate) reservations: QuantityText,
    /// Absent where it is unknown.
    pub(crate) left: Option<QuantityText>,
}

/// A Pod without a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OfPod {
    pub(crate) pod: String,
    pub(crate) nodes: BTreeMap<String, OnNode>,
    /// Rules of the Pod that decide about nodes too and were not looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_looked_at: Vec<String>,
}

/// Whether a Pod fits on a node.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OnNode {
    /// Absent where it is unknown.
    pub(crate) fits: Option<bool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) missing: BTreeMap<String, Shortage>,
    /// Resources of which the whole node has less than the Pod wants, with what it has.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) never: BTreeMap<String, QuantityText>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unknown: Vec<String>,
    /// Facts about the Pod that are not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unaccounted: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) refused: Vec<String>,
    /// The devices with which it fits, for claims that have none yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) devices: Vec<String>,
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

    /// Adds what is not known of the Pod. What is against the node is so all the same.
    fn doubt(&mut self, facts: impl IntoIterator<Item = String>) {
        let before = self.unaccounted.len();
        self.unaccounted.extend(facts);
        if self.unaccounted.len() > before && self.fits == Some(true) {
            self.fits = None;
        }
    }

    /// Counts the obstacles between a Pod and this node, as a sort key. Refusals and resources of which the
    /// whole node has too little come first, then unknown facts, then missing resources, which the end of
    /// another Pod can free.
    pub(crate) fn obstacles(&self) -> (usize, usize, usize) {
        (
            self.never.len() + self.refused.len(),
            self.unknown.len() + self.unaccounted.len(),
            self.missing.len(),
        )
    }
}

/// A resource that is missing on a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shortage {
    pub(crate) missing: QuantityText,
    /// Amount that the Pod needs.
    pub(crate) needed: QuantityText,
    /// Amount that is left of the node.
    pub(crate) left: QuantityText,
    /// The largest holders, each with its amount.
    pub(crate) held_by: Vec<String>,
}

impl Report {
    /// The report about the cluster of a dump.
    pub fn of(objects: Objects, rules: Rules, filter: &Filter) -> Self {
        let dump = Dump::of(objects, rules);
        let missed = filter.misses(&dump);
        let waiting = dump.waiting.iter().filter(|(_, waiting)| filter.has_pod(&waiting.pod));
        let pending: Vec<OfPod> = waiting.map(|(name, pod)| dump.waiting_pod(name, pod, filter)).collect();
        let of_nodes = dump.ledger.nodes().count();
        let mut nodes = of_nodes_in(&dump.ledger, filter);
        let settled = filter.settled(&dump);
        let Dump { unreadable, mut notes, .. } = dump;
        notes.extend(settled);
        // A node that is not shown counts, too.
        let is_known = unreadable.is_empty() && nodes.iter().all(|node| node.unaccounted.is_empty());
        let fits = |pod: &OfPod| pod.nodes.values().any(|on| on.fits == Some(true));
        let clear = is_known
            && !nodes.iter().any(OfNode::is_overcommitted)
            && (filter.pods.is_empty() || pending.iter().all(fits));
        nodes.retain(|node| !filter.overcommitted || node.is_overcommitted());
        Self { nodes, of_nodes, pending, unreadable, notes, missed, clear }
    }

    /// Returns sentences about the names of the filter that the dump does not have.
    pub fn missed(&self) -> &[String] {
        &self.missed
    }

    /// Whether nothing of the report needs a person: no node that was asked about has promised more than it has, all that is taken of
    /// these nodes is known, every object of the dump can be read, and each Pod that was asked about by name fits on a node.
    pub fn is_clear(&self) -> bool {
        self.clear
    }

    /// Adds nodes of a ledger that is kept up to date.
    pub fn add(&mut self, ledger: &ClusterLedger, nodes: &[Arc<str>]) {
        let there = nodes.iter().filter_map(|name| Some((name, ledger.node(name)?)));
        self.nodes.extend(there.map(|(name, node)| of_node(ledger, name, node)));
        self.of_nodes = self.nodes.len();
    }
}

impl Dump {
    /// Where a waiting Pod would fit, of the nodes that are asked about.
    fn waiting_pod(&self, name: &str, waiting: &Waiting, filter: &Filter) -> OfPod {
        let Waiting { pod, placement, extended, .. } = waiting;
        let around = self.around(waiting);
        let key = |claim: &str| (pod.view.namespace.clone(), Name::from(claim));
        let is_allocated = |claim: &str| self.allocated.contains(&key(claim));
        let exists = |claim: &str| self.claims.contains(&key(claim));
        let (waits, names) = unallocated(pod, is_allocated, exists);
        // With a claim that is not there it is not known what is asked for.
        let are_there = names.len() == waits.len() && names.iter().all(|name| exists(name));
        let devices = self.devices.as_ref().filter(|_| !names.is_empty() && are_there);
        let claims = devices.map(|devices| (devices, devices.claims(pod)));
        // As if its devices took nothing: where it does not fit then, it does not fit.
        let least: Vec<Claim> = names.iter().map(|name| takes_nothing(&pod.view.namespace, name)).collect();
        let mut without = pod.clone();
        without.claims.retain(|of| of.claim != ClaimName::NotYet);
        let on = |(node, ledger): (&Arc<str>, &NodeLedger)| {
            let mut answer =
                on_node(ledger, ledger.fits(&self.ledger.candidate_with(&without, node, &least)));
            let site = self.sites.get(&**node);
            let obstacles = site.map(|site| site.obstacles(placement, &|_| true)).into_iter().flatten();
            let obstacles = obstacles.chain(site.and_then(|site| around.obstacle(site)));
            answer.forbid(obstacles.map(|obstacle| obstacle.to_string()));
            if answer.fits == Some(true) {
                match claims.as_ref().map(|(devices, claims)| devices.on(claims, pod, &self.ledger, node)) {
                    Some(Found::Fits(devices)) => answer.devices = devices,
                    Some(Found::Refused(fit)) => answer = on_node(ledger, fit),
                    Some(Found::None(why)) => answer.forbid([why]),
                    Some(Found::Unknown(fact)) => answer.doubt([fact]),
                    None => answer.doubt(waits.iter().cloned()),
                }
            }
            // A device plugin says what it has, and that was looked at.
            let unknown = extended.iter().filter(|name| !site.is_some_and(|site| site.has_plugin_for(name)));
            answer.doubt(unknown.map(|name| format!("what extended resource {name} takes")));
            (node.to_string(), answer)
        };
        let nodes = self.ledger.nodes().filter(|(node, _)| filter.has_node(node)).map(on).collect();
        let not_looked_at = placement.not_looked_at().iter().map(|what| (*what).to_owned()).collect();
        OfPod { pod: name.to_owned(), nodes, not_looked_at }
    }
}

/// The nodes that are asked about.
fn of_nodes_in(ledger: &ClusterLedger, filter: &Filter) -> Vec<OfNode> {
    let undeclared = ledger.undeclared();
    let advice = advice(ledger);
    let nodes = ledger.nodes().filter(|(name, _)| filter.has_node(name));
    let nodes = nodes.map(|(name, node)| {
        let mut of = of_node(ledger, name, node);
        let here = undeclared.range((&**name, "")..).take_while(|((node, _), _)| *node == &**name);
        of.notices.extend(here.map(|((_, driver), devices)| not_declared(driver, *devices)));
        of.notices.extend(advice.get(&**name).into_iter().flatten().cloned());
        of
    });
    nodes.collect()
}

/// Advice to the authors of Pods with claims, by node.
fn advice(ledger: &ClusterLedger) -> BTreeMap<&str, Vec<String>> {
    let mut of_nodes: BTreeMap<&str, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for (node, pod) in ledger.pods_with_claims() {
        // Sums that no amount can be are said elsewhere, and so are budgets.
        let all = pod::advice::advice(&pod, kubelet(&pod)).unwrap_or_default().into_iter();
        for of in all.filter(|of| of.is_warning() && !matches!(of, Advice::OverBudget(_))) {
            of_nodes.entry(node).or_default().entry(of.to_string()).or_default().push(pod.object());
        }
    }
    // The Pods of one template get the same advice.
    let in_words = |(advice, mut pods): (String, Vec<String>)| {
        pods.sort();
        let first = pods.first().map_or("", String::as_str);
        match pods.len() {
            0 | 1 => format!("{first}: {advice}"),
            several => format!("{first} and {} more: {advice}", several - 1),
        }
    };
    let of_nodes = of_nodes.into_iter();
    of_nodes.map(|(node, advice)| (node, advice.into_iter().map(in_words).collect())).collect()
}

/// Explains zeros in the column MAPPING: no declaration says what a device of the driver takes of its node.
fn not_declared(driver: &str, devices: usize) -> String {
    let devices = if devices == 1 { "1 device".to_owned() } else { format!("{devices} devices") };
    format!(
        "{devices} of driver {driver} in use, and nothing declares what a device takes of its node: a DeviceFootprint does"
    )
}

fn of_node(cluster: &ClusterLedger, name: &str, ledger: &NodeLedger) -> OfNode {
    let of = |resource: Resource| (resource.to_string(), of_resource(ledger, resource));
    OfNode {
        name: name.to_owned(),
        resources: ledger.resources().into_iter().map(of).collect(),
        overcommitted: words::shortages(ledger, 5),
        violations: ledger.violations().iter().map(ToString::to_string).collect(),
        // A fact that concerns several resources is one sentence.
        unaccounted: ledger
            .unaccounted()
            .map(ToString::to_string)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        notices: cluster.notices(name).map(ToString::to_string).collect(),
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

/// A claim whose devices take nothing.
fn takes_nothing(namespace: &str, name: &str) -> Claim {
    Claim { namespace: namespace.into(), name: name.into(), results: Some(Vec::new()), ..Claim::default() }
}

fn on_node(ledger: &NodeLedger, fit: Fit) -> OnNode {
    match fit {
        Fit::Yes => OnNode { fits: Some(true), ..OnNode::default() },
        Fit::Missing(missing) => {
            let of = |resource| {
                let (missing, held_by) = (missing.get(resource), holders(ledger, resource));
                let left = match ledger.headroom(resource) {
                    Headroom::Left(left) => left,
                    Headroom::Unknown => 0,
                };
                let [missing, needed, left] = [missing, left + missing, left].map(|of| amount(resource, of));
                (resource.to_string(), Shortage { missing, needed, left, held_by })
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
            let mut answer = OnNode { fits: Some(true), ..OnNode::default() };
            for refusal in why {
                match refusal {
                    Refusal::Unaccounted(fact) => answer.doubt([fact.to_string()]),
                    other => answer.forbid([other.to_string()]),
                }
            }
            answer
        }
    }
}

/// The largest holders of a resource.
fn holders(ledger: &NodeLedger, resource: Resource) -> Vec<String> {
    words::holders(ledger, resource, 5)
}

/// An amount in the units of a node.
fn amount(resource: Resource, count: i128) -> QuantityText {
    words::quantity(resource, count)
}
