//! The ClusterRoles and the Role, rendered from what the parts declare.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dragoman_machinery::mode::Mode;
use dragoman_machinery::rights::Rule;

use crate::controllers::{self, ELSEWHERE, LEASE, LEASE_NAME, Options};

/// The manifest.
pub(crate) fn render() -> String {
    let mut text = String::from(
        "# Rendered by `cargo xtask gen` from the rights that the controllers declare; do not edit.\n",
    );
    let table = controllers::table(Options::default());
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
