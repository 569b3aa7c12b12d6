//! The ClusterRoles and the Role, rendered from what the parts declare.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dragoman_machinery::mode::Mode;
use dragoman_machinery::rights::Rule;

use dragoman_reconcilers::allocation;

use crate::controllers::{self, ALLOCATOR_LEASE, ELSEWHERE, LEASE, LEASE_NAME};

const HEAD: &str =
    "# Rendered by `cargo xtask gen` from the rights that the controllers declare; do not edit.\n";

/// What rights are for.
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
}

/// The manifest of a part.
pub(crate) fn render(part: Part) -> String {
    match part {
        Part::Operator => operator(),
        Part::Gates => gates(),
        Part::Holders => holders(),
        Part::DeleteUnbound => delete_unbound(),
        Part::Allocator => allocator(),
    }
}

fn operator() -> String {
    let mut text = String::from(HEAD);
    let table = controllers::by_default();
    for mode in Mode::ALL {
        let added = controllers::added(&table, mode);
        if !added.is_empty() {
            role(&mut text, "ClusterRole", &format!("dragoman-{}", mode.name()), &added, None);
        }
    }
    role(&mut text, "ClusterRole", "dragoman-lease", ELSEWHERE, Some(LEASE_NAME));
    role(&mut text, "Role", "dragoman-lease", LEASE, Some(LEASE_NAME));
    text
}

/// What mode assist has already is not given once more.
fn gates() -> String {
    let known = controllers::rules(&controllers::by_default(), Mode::Assist);
    let is_known = |rule: &Rule| {
        let same = known.iter().filter(|known| (known.group, known.resource) == (rule.group, rule.resource));
        let verbs: Vec<&str> = same.flat_map(|known| known.verbs).copied().collect();
        rule.verbs.iter().all(|verb| verbs.contains(verb))
    };
    let mut rules = controllers::rules(&controllers::optional(), Mode::Own);
    rules.retain(|rule| !is_known(rule));
    let mut text = String::from(HEAD);
    role(&mut text, "ClusterRole", "dragoman-gates", &rules, None);
    text
}

/// In the namespace of the operator, and nowhere else.
fn holders() -> String {
    let mut text = String::from(HEAD);
    role(&mut text, "Role", "dragoman-holders", dragoman_reconcilers::holders::RIGHTS, None);
    text
}

fn delete_unbound() -> String {
    let mut text = String::from(HEAD);
    let rules = dragoman_reconcilers::gates::DELETE_UNBOUND;
    role(&mut text, "ClusterRole", "dragoman-delete-unbound", rules, None);
    text
}

fn allocator() -> String {
    let mut text = String::from(HEAD);
    let table = controllers::allocator(allocation::Options::default());
    let rules = controllers::rules(&table, Mode::Observe);
    role(&mut text, "ClusterRole", ALLOCATOR_LEASE, &rules, None);
    role(&mut text, "ClusterRole", "dragoman-allocator-lease", ELSEWHERE, Some(ALLOCATOR_LEASE));
    role(&mut text, "Role", "dragoman-allocator-lease", LEASE, Some(ALLOCATOR_LEASE));
    text
}

fn role(text: &mut String, kind: &str, name: &str, rules: &[Rule], named: Option<&str>) {
    let namespace = if kind == "Role" { "\n  namespace: kube-system" } else { "" };
    let head = format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}{namespace}\n  labels:\n    app.kubernetes.io/name: dragoman\nrules:\n"
    );
    text.push_str(&head);
    // Several parts may want the same resource: one rule each, with all its reasons.
    let mut merged: BTreeMap<(&str, &str, bool), (Vec<&str>, Vec<&str>)> = BTreeMap::new();
    for rule in rules {
        let create_only = rule.verbs == ["create"];
        let by_name = named.is_some() && !create_only;
        let (verbs, why) = merged.entry((rule.group, rule.resource, by_name)).or_default();
        verbs.extend(rule.verbs);
        why.push(rule.why);
    }
    for ((group, resource, by_name), (mut verbs, why)) in merged {
        verbs.sort_unstable();
        verbs.dedup();
        let verbs = verbs.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(", ");
        let mut rule = format!(
            "  # {}\n  - apiGroups: [{group:?}]\n    resources: [{resource:?}]\n    verbs: [{verbs}]\n",
            why.join("; ")
        );
        if let Some(name) = named.filter(|_| by_name) {
            // Writing into a String cannot fail.
            writeln!(rule, "    resourceNames: [{name:?}]").unwrap_or_default();
        }
        text.push_str(&rule);
    }
}
