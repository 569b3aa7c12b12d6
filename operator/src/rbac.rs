//! The ClusterRoles and the Role, rendered from what the parts declare.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dragoman_machinery::mode::Mode;
use dragoman_machinery::rights::Rule;
use dragoman_reconcilers::{allocation, table};

use crate::controllers::{self, ALLOCATOR_LEASE, ELSEWHERE, LEASE, LEASE_NAME};
use crate::{drain, gating};

const HEAD: &str =
    "# Rendered by `cargo xtask gen` from the rights that the controllers declare; do not edit.\n";

/// Part of Dragoman that rights are for.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Part {
    /// The operator, a role for each mode.
    Operator,
    /// The controller of claim gates, beside those of mode assist.
    Gates,
    /// The controller of holder Pods, beside those of mode assist.
    Holders,
    /// To delete Pods that cannot be bound, where `--delete-unbound-after` asks for it.
    DeleteUnbound,
    /// The reference allocator.
    Allocator,
    /// The job that runs before an uninstallation: `dragoman drain` and `dragoman gating off`.
    Drain,
}

/// The manifest of a part.
///
/// # Errors
/// A shipped policy cannot be read.
pub(crate) fn render(part: Part) -> anyhow::Result<String> {
    Ok(match part {
        Part::Operator => operator(),
        Part::Gates => gates()?,
        Part::Holders => holders(),
        Part::DeleteUnbound => delete_unbound(),
        Part::Allocator => allocator(),
        Part::Drain => drain()?,
    })
}

fn operator() -> String {
    let mut text = String::from(HEAD);
    let table = table::by_default(table::Options::default());
    for mode in Mode::ALL {
        let added = controllers::added(&table, mode);
        if !added.is_empty() {
            role(&mut text, "ClusterRole", &format!("dragoman-{}", mode.name()), &added, &[]);
        }
    }
    role(&mut text, "ClusterRole", "dragoman-lease", ELSEWHERE, &[LEASE_NAME.to_owned()]);
    role(&mut text, "Role", "dragoman-lease", LEASE, &[LEASE_NAME.to_owned()]);
    text
}

/// Renders the ClusterRole of the controllers that are off by default. Rules that mode assist has already
/// are not given once more.
fn gates() -> anyhow::Result<String> {
    let known = controllers::rules(&table::by_default(table::Options::default()), Mode::Assist);
    let is_known = |rule: &Rule| {
        let same = known.iter().filter(|known| (known.group, known.resource) == (rule.group, rule.resource));
        let verbs: Vec<&str> = same.flat_map(|known| known.verbs).copied().collect();
        rule.verbs.iter().all(|verb| verbs.contains(verb))
    };
    let mut optional = table::operator(table::Options::default());
    optional.retain(|spec| !spec.on_by_default);
    let mut rules = controllers::rules(&optional, Mode::Own);
    rules.retain(|rule| !is_known(rule));
    let mut text = String::from(HEAD);
    role(&mut text, "ClusterRole", "dragoman-gates", &rules, &[]);
    for (kind, names) in gating::names_of_gates()? {
        add(&mut text, &[gating::presence::right(kind)], &names);
    }
    Ok(text)
}

/// Pods in the namespace of the operator, and nowhere else.
fn holders() -> String {
    let mut text = String::from(HEAD);
    let (_, lease) = dragoman_reconcilers::holders::SCHEDULER;
    let of_the_scheduler = dragoman_reconcilers::holders::OF_THE_SCHEDULER;
    role(&mut text, "ClusterRole", "dragoman-holders", of_the_scheduler, &[lease.to_owned()]);
    role(&mut text, "Role", "dragoman-holders", dragoman_reconcilers::holders::RIGHTS, &[]);
    text
}

fn delete_unbound() -> String {
    let mut text = String::from(HEAD);
    let rules = dragoman_reconcilers::gates::DELETE_UNBOUND;
    role(&mut text, "ClusterRole", "dragoman-delete-unbound", rules, &[]);
    text
}

fn allocator() -> String {
    let mut text = String::from(HEAD);
    let table = table::allocator(allocation::Options::default());
    let rules = controllers::rules(&table, Mode::Observe);
    role(&mut text, "ClusterRole", ALLOCATOR_LEASE, &rules, &[]);
    role(&mut text, "ClusterRole", "dragoman-allocator-lease", ELSEWHERE, &[ALLOCATOR_LEASE.to_owned()]);
    role(&mut text, "Role", "dragoman-allocator-lease", LEASE, &[ALLOCATOR_LEASE.to_owned()]);
    text
}

fn drain() -> anyhow::Result<String> {
    let mut text = String::from(HEAD);
    let everywhere = [drain::RIGHTS, gating::RIGHTS].concat();
    role(&mut text, "ClusterRole", "dragoman-drain", &everywhere, &[]);
    for (kind, names) in gating::policy_names()? {
        add(&mut text, &[gating::removal(kind)], &names);
    }
    role(&mut text, "Role", "dragoman-drain", drain::OF_PODS, &[]);
    // The Deployments have the names of their Leases.
    let names = [LEASE_NAME, ALLOCATOR_LEASE].map(str::to_owned);
    add(&mut text, drain::OF_LEASES, &names);
    add(&mut text, drain::OF_DEPLOYMENTS, &names);
    Ok(text)
}

/// A role; `named` are the only objects that its rules are for, if they are not for all.
fn role(text: &mut String, kind: &str, name: &str, rules: &[Rule], named: &[String]) {
    let namespace = if kind == "Role" { "\n  namespace: kube-system" } else { "" };
    let head = format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}{namespace}\n  labels:\n    app.kubernetes.io/name: dragoman\nrules:\n"
    );
    text.push_str(&head);
    add(text, rules, named);
}

/// Adds rules to the role that was begun last.
fn add(text: &mut String, rules: &[Rule], named: &[String]) {
    // Several parts may want the same resource: one rule each, with all its reasons.
    let mut merged: BTreeMap<(&str, &str, bool), (Vec<&str>, Vec<&str>)> = BTreeMap::new();
    for rule in rules {
        let create_only = rule.verbs == ["create"];
        let by_name = !named.is_empty() && !create_only;
        let (verbs, why) = merged.entry((rule.group, rule.resource, by_name)).or_default();
        verbs.extend(rule.verbs);
        if !why.contains(&rule.why) {
            why.push(rule.why);
        }
    }
    for ((group, resource, by_name), (mut verbs, why)) in merged {
        verbs.sort_unstable();
        verbs.dedup();
        let quoted = |all: &[&str]| all.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ");
        let mut rule = format!(
            "  # {}\n  - apiGroups: [{group:?}]\n    resources: [{resource:?}]\n    verbs: [{}]\n",
            why.join("; "),
            quoted(&verbs)
        );
        if by_name {
            let named: Vec<&str> = named.iter().map(String::as_str).collect();
            // Writing into a String cannot fail.
            writeln!(rule, "    resourceNames: [{}]", quoted(&named)).unwrap_or_default();
        }
        text.push_str(&rule);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_role_evicts_pods_and_three_delete_some() {
        let parts =
            [Part::Operator, Part::Gates, Part::Holders, Part::DeleteUnbound, Part::Allocator, Part::Drain];
        for part in parts {
            let roles = render(part).expect("roles");
            assert!(!roles.contains("eviction"), "{part:?}");
            let documents: Vec<serde_json::Value> =
                roles.split("\n---\n").filter_map(|document| serde_saphyr::from_str(document).ok()).collect();
            assert!(!documents.is_empty(), "{part:?}");
            let all = documents.iter().flat_map(|role| role["rules"].as_array().into_iter().flatten());
            let has = |rule: &&serde_json::Value, field: &str, word: &str| {
                rule[field].as_array().into_iter().flatten().any(|known| known == word)
            };
            let mut deletes =
                all.filter(|rule| has(rule, "resources", "pods") && has(rule, "verbs", "delete"));
            let may = matches!(part, Part::Holders | Part::DeleteUnbound | Part::Drain);
            assert_eq!(deletes.next().is_some(), may, "{part:?}");
        }
    }
}
