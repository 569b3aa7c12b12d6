//! The rights this controller needs; the ClusterRoles are rendered from here.

use dragoman_machinery::rights::Rule;

/// To see: every mode.
pub const OBSERVE: &[Rule] =
    &[Rule { group: "", resource: "pods", verbs: &["list", "watch"], why: "what their status records" }];

/// To write: from mode assist on.
pub const ASSIST: &[Rule] = &[Rule {
    group: "",
    resource: "pods/status",
    verbs: &["patch"],
    why: "what claims take from the node, as a scheduler in the tree would have written it",
}];
