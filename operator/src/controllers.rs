//! The table of controllers, and what it needs as a whole.

use std::sync::Arc;

use dragoman_machinery::controller::ControllerSpec;
use dragoman_machinery::mode::Mode;
use dragoman_machinery::rights::{Rights, Rule, Scope};
use dragoman_reconcilers::cluster::SharedCluster;
use dragoman_reconcilers::{allocation, claim_lifecycle, gates, holders, ledger, pod_status};

/// The name of the Lease, and of every ClusterRole's stem.
pub(crate) const LEASE_NAME: &str = "dragoman";

/// The name of the Lease of the allocator, and of its ClusterRole.
pub(crate) const ALLOCATOR_LEASE: &str = "dragoman-allocator";

/// Controllers that `*` does not stand for. What they need is given by a role of its own
/// (`dragoman rbac NAME`), because the right to patch every Pod is for those who use it.
const OFF_BY_DEFAULT: &[&str] = &["holders", "gates"];

/// What can be chosen about single controllers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) claim_lifecycle: claim_lifecycle::Options,
    pub(crate) ledger: ledger::Options,
    pub(crate) gates: gates::Options,
}

impl Options {
    /// Claims of gated Pods that name no allocator get this one.
    #[cfg(feature = "simulation")]
    pub(crate) fn with_allocator(name: &str) -> Self {
        let mut options = Self::default();
        options.claim_lifecycle.birth.default_allocator = Some(name.into());
        options.gates.default_allocator = Some(name.into());
        options
    }
}

/// Every controller, a row each, around an index of the cluster that others read, too.
pub(crate) fn table(options: Options, cluster: &SharedCluster) -> Vec<ControllerSpec> {
    let (publisher, shared) =
        (Arc::<pod_status::Publisher>::default(), Arc::<holders::SharedHolders>::default());
    vec![
        claim_lifecycle::spec(options.claim_lifecycle),
        ledger::spec(options.ledger, SharedCluster::clone(cluster), Arc::clone(&shared)),
        pod_status::spec(SharedCluster::clone(cluster), Arc::clone(&publisher), Arc::clone(&shared)),
        holders::spec(SharedCluster::clone(cluster), Arc::clone(&publisher), Arc::clone(&shared)),
        gates::spec(options.gates, SharedCluster::clone(cluster), publisher, shared),
    ]
}

/// The table of the process `dragoman allocator`.
pub(crate) fn allocator(options: allocation::Options) -> Vec<ControllerSpec> {
    vec![allocation::spec(options)]
}

/// Leaves the controllers in the table that are `chosen`: `*` stands for all that are on by default, a name
/// for one, and a name behind a minus for one that is off, as in `--controllers` of
/// kube-controller-manager.
///
/// # Errors
/// Names the entry that is no controller, or the controller that another one needs.
pub(crate) fn choose(table: &mut Vec<ControllerSpec>, chosen: &[String]) -> Result<(), String> {
    let known: Vec<&str> = table.iter().map(|spec| spec.name).collect();
    for entry in chosen {
        let name = entry.strip_prefix('-').unwrap_or(entry);
        if name != "*" && !known.contains(&name) {
            return Err(format!("{entry:?} is none of {}", known.join(", ")));
        }
    }
    let has = |entry: &str| chosen.iter().any(|chosen| chosen == entry);
    let is_default = |name: &str| has("*") && !OFF_BY_DEFAULT.contains(&name);
    table.retain(|spec| !has(&format!("-{}", spec.name)) && (has(spec.name) || is_default(spec.name)));
    let is_on = |name: &str| table.iter().any(|spec| spec.name == name);
    for name in ["pod_status", "holders", "gates"] {
        if is_on(name) && !is_on("ledger") {
            return Err(format!("{name} needs ledger"));
        }
    }
    if table.is_empty() { Err("no controller is left".to_owned()) } else { Ok(()) }
}

/// The controllers that run where nothing is chosen.
pub(crate) fn by_default() -> Vec<ControllerSpec> {
    let mut table = table(Options::default(), &SharedCluster::default());
    table.retain(|spec| !OFF_BY_DEFAULT.contains(&spec.name));
    table
}

/// The controllers that are off by default.
pub(crate) fn optional() -> Vec<ControllerSpec> {
    let mut table = table(Options::default(), &SharedCluster::default());
    table.retain(|spec| OFF_BY_DEFAULT.contains(&spec.name));
    table
}

/// The holder of the Lease: a process and its mode.
pub(crate) fn holder(identity: &str, mode: Mode) -> String {
    format!("{identity}_{}", mode.name())
}

/// Whether a holder of the Lease may be in mode own: it does not say that it is in another one.
pub(crate) fn may_own(holder: &str) -> bool {
    let said = holder.rsplit('_').next();
    !Mode::ALL.into_iter().any(|mode| mode != Mode::Own && Some(mode.name()) == said)
}

/// To say something: every mode.
const EVENTS: &[Rule] = &[Rule {
    group: "events.k8s.io",
    resource: "events",
    verbs: &["create", "patch"],
    why: "tell people what stands in the way",
}];

/// In our own namespace.
pub(crate) const LEASE: &[Rule] = &[
    Rule { group: "coordination.k8s.io", resource: "leases", verbs: &["create"], why: "leader election" },
    Rule {
        group: "coordination.k8s.io",
        resource: "leases",
        verbs: &["get", "update"],
        why: "leader election, this Lease only",
    },
];

/// In every namespace, for Leases of our name. Nothing depends on it: a process without this right is
/// ready, and says once that it does not see other installations.
pub(crate) const ELSEWHERE: &[Rule] = &[Rule {
    group: "coordination.k8s.io",
    resource: "leases",
    verbs: &["list"],
    why: "notice an installation in another namespace, Leases of this name only",
}];

/// The rules that a mode adds to those of the modes before; what another controller has there already
/// is not added once more.
pub(crate) fn added(table: &[ControllerSpec], mode: Mode) -> Vec<Rule> {
    let declared = |mode| table.iter().flat_map(move |spec| (spec.rights)(mode)).copied();
    let before: Vec<Rule> = Mode::ALL.into_iter().filter(|each| *each < mode).flat_map(declared).collect();
    let is_covered = |rule: &Rule| {
        let same = before.iter().filter(|known| (known.group, known.resource) == (rule.group, rule.resource));
        let verbs: Vec<&str> = same.flat_map(|known| known.verbs).copied().collect();
        rule.verbs.iter().all(|verb| verbs.contains(verb))
    };
    let mut rules: Vec<Rule> = declared(mode).filter(|rule| !is_covered(rule)).collect();
    if mode == Mode::Assist {
        rules.extend(table.iter().flat_map(|spec| spec.asked));
    }
    if mode == Mode::Observe {
        rules.extend(EVENTS);
    }
    rules
}

/// The rules of a mode, beside the Lease.
pub(crate) fn rules(table: &[ControllerSpec], mode: Mode) -> Vec<Rule> {
    let modes = Mode::ALL.into_iter().filter(|each| *each <= mode);
    modes.flat_map(|each| added(table, each)).collect()
}

/// Everything that a process in a namespace needs in a mode; `lease` is the name of its Lease, if it takes
/// one.
pub(crate) fn rights(
    table: &[ControllerSpec],
    mode: Mode,
    namespace: &str,
    lease: Option<&'static str>,
) -> Rights {
    let mut needed = vec![(Scope::default(), rules(table, mode))];
    if mode >= Mode::Assist && table.iter().any(|spec| spec.name == "holders") {
        let scope = Scope { namespace: Some(namespace.to_owned()), name: None };
        needed.push((scope, holders::RIGHTS.to_vec()));
        let scope = Scope { namespace: None, name: Some(holders::SCHEDULER.1) };
        needed.push((scope, holders::OF_THE_SCHEDULER.to_vec()));
    }
    needed.extend(lease.map(|name| {
        let scope = Scope { namespace: Some(namespace.to_owned()), name: Some(name) };
        (scope, LEASE.to_vec())
    }));
    Rights::new(needed)
}

/// Whether any controller writes in a mode, so that the Lease is needed.
pub(crate) fn works(table: &[ControllerSpec], mode: Mode) -> bool {
    table.iter().any(|spec| (spec.works)(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(entries: &str) -> Result<Vec<&'static str>, String> {
        let mut table = table(Options::default(), &SharedCluster::default());
        choose(&mut table, &entries.split(',').map(str::to_owned).collect::<Vec<_>>())?;
        Ok(table.iter().map(|spec| spec.name).collect())
    }

    #[test]
    fn controllers_are_chosen_as_those_of_kube_controller_manager() {
        assert_eq!(chosen("*"), Ok(vec!["claim_lifecycle", "ledger", "pod_status"]));
        assert_eq!(chosen("*,gates"), Ok(vec!["claim_lifecycle", "ledger", "pod_status", "gates"]));
        assert_eq!(chosen("*,-pod_status"), Ok(vec!["claim_lifecycle", "ledger"]));
        assert_eq!(chosen("claim_lifecycle"), Ok(vec!["claim_lifecycle"]));
        assert_eq!(chosen("*,-ledger"), Err("pod_status needs ledger".to_owned()));
        assert_eq!(chosen("-ledger"), Err("no controller is left".to_owned()));
        assert_eq!(chosen("gates"), Err("gates needs ledger".to_owned()));
        let why = "\"legder\" is none of claim_lifecycle, ledger, pod_status, holders, gates";
        assert_eq!(chosen("*,legder"), Err(why.to_owned()));
    }
}
