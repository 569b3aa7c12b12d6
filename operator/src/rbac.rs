//! The ClusterRoles and the Role, rendered from what the parts declare.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dragoman_machinery::rights::Rule;
use dragoman_reconcilers::claim_lifecycle::rights;

/// To say something: every mode.
pub(crate) const EVENTS: &[Rule] = &[Rule {
    group: "events.k8s.io",
    resource: "events",
    verbs: &["create", "patch"],
    why: "tell people what stands in the way",
}];

/// What mode assist needs; without it `auto` is `observe`.
pub(crate) const ASSIST: &[Rule] = rights::OBSERVE;

/// In our own namespace.
pub(crate) const LEASE: &[Rule] = &[
    Rule { group: "coordination.k8s.io", resource: "leases", verbs: &["create"], why: "leader election" },
    Rule {
        group: "coordination.k8s.io",
        resource: "leases",
        verbs: &["get", "patch"],
        why: "leader election, this Lease only",
    },
];

/// The manifest.
pub(crate) fn render() -> String {
    let mut text = String::from(
        "# Rendered by `cargo xtask gen` from the rights that the controllers declare; do not edit.\n",
    );
    let observe = [rights::OBSERVE, EVENTS].concat();
    role(&mut text, "ClusterRole", "dragoman-observe", &observe, None);
    role(&mut text, "ClusterRole", "dragoman-own", rights::OWN, None);
    role(&mut text, "Role", "dragoman-lease", LEASE, Some("dragoman"));
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
