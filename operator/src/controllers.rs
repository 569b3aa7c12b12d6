//! Leases, choice and rights of the table of controllers as a whole.

use std::collections::BTreeSet;

use dragoman_machinery::controller::ControllerSpec;
use dragoman_machinery::mode::Mode;
use dragoman_machinery::rights::{Rights, Rule, Scope};

/// The name of the Lease, and of every ClusterRole's stem.
pub(crate) const LEASE_NAME: &str = "dragoman";

/// The name of the Lease of the allocator, and of its ClusterRole.
pub(crate) const ALLOCATOR_LEASE: &str = "dragoman-allocator";

/// Leaves the controllers in the table that are `chosen`: `*` stands for all that are on by default, a name
/// for one, and a name behind a minus for one that is off, as in `--controllers` of
/// kube-controller-manager.
///
/// # Errors
/// Names the entry that is no controller, the controller that another one needs, or a setting in `given` that has no effect
/// because its controller does not run.
pub(crate) fn choose(
    table: &mut Vec<ControllerSpec>,
    chosen: &[String],
    given: &BTreeSet<String>,
) -> Result<(), String> {
    let known: Vec<&str> = table.iter().map(|spec| spec.name).collect();
    for entry in chosen {
        let name = entry.strip_prefix('-').unwrap_or(entry);
        if name != "*" && !known.contains(&name) {
            return Err(format!("{entry:?} is none of {}", known.join(", ")));
        }
    }
    let has = |entry: &str| chosen.iter().any(|chosen| chosen == entry);
    let is_default = |spec: &ControllerSpec| has("*") && spec.on_by_default;
    let runs =
        |spec: &ControllerSpec| !has(&format!("-{}", spec.name)) && (has(spec.name) || is_default(spec));
    for setting in given {
        let declares = |spec: &&ControllerSpec| (spec.settings)().iter().any(|known| known.name == *setting);
        let readers: Vec<&ControllerSpec> = table.iter().filter(declares).collect();
        if !readers.is_empty() && !readers.iter().any(|spec| runs(spec)) {
            let (names, ends) =
                (readers.iter().map(|spec| spec.name), if readers.len() == 1 { "does" } else { "do" });
            let names = names.collect::<Vec<_>>().join(" and ");
            return Err(format!("--{setting} is a setting of {names}, which {ends} not run"));
        }
    }
    table.retain(runs);
    let is_on = |name: &str| table.iter().any(|spec| spec.name == name);
    for ControllerSpec { name, needs, .. } in &*table {
        if let Some(missing) = needs.iter().find(|needed| !is_on(needed)) {
            return Err(format!("{name} needs {missing}"));
        }
    }
    if table.is_empty() { Err("no controller is left".to_owned()) } else { Ok(()) }
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
    if mode >= Mode::Assist {
        let confined = table.iter().flat_map(|spec| (spec.confined)(namespace));
        needed.extend(confined.map(|(scope, rules)| (scope, rules.to_vec())));
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
    use dragoman_reconcilers::table;

    use super::*;

    fn chosen(entries: &str) -> Result<Vec<&'static str>, String> {
        chosen_with(entries, &[])
    }

    fn chosen_with(entries: &str, given: &[&str]) -> Result<Vec<&'static str>, String> {
        let mut table = table::operator(table::Options::default());
        let entries: Vec<String> = entries.split(',').map(str::to_owned).collect();
        choose(&mut table, &entries, &given.iter().map(ToString::to_string).collect())?;
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

    #[test]
    fn a_setting_of_a_controller_that_does_not_run_is_refused() {
        let why = "--let-go-after is a setting of gates, which does not run";
        assert_eq!(chosen_with("*", &["let-go-after", "idle-after"]), Err(why.to_owned()));
        assert!(chosen_with("*,gates", &["let-go-after", "idle-after", "ledger-nodes"]).is_ok());
        let why = "--idle-after is a setting of claim_lifecycle, which does not run";
        assert_eq!(chosen_with("*,-claim_lifecycle", &["idle-after"]), Err(why.to_owned()));
        assert!(chosen_with("*", &["default-allocator"]).is_ok());
        assert!(chosen_with("*,-claim_lifecycle,gates,holders", &["default-allocator"]).is_ok());
        let why = "--default-allocator is a setting of claim_lifecycle and gates, which do not run";
        assert_eq!(chosen_with("ledger", &["default-allocator"]), Err(why.to_owned()));
    }

    #[test]
    fn every_setting_of_the_table_has_one_meaning_and_a_help() {
        let table = table::operator(table::Options::default());
        let mut settings: Vec<_> = table.iter().flat_map(|spec| (spec.settings)()).collect();
        let count = settings.len();
        settings.sort_by(|a, b| a.name.cmp(&b.name));
        // Controllers that share a setting share its declaration.
        settings.dedup();
        assert_eq!((settings.len(), count), (12, 13), "{settings:?}");
        assert!(settings.windows(2).all(|pair| pair[0].name != pair[1].name), "{settings:?}");
        assert!(settings.iter().all(|setting| !setting.help.is_empty()), "{settings:?}");
    }
}
