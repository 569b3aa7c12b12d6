//! The rights this controller needs.

use dragoman_machinery::rights::Rule;

/// In every namespace, for the Lease of kube-scheduler.
pub const OF_THE_SCHEDULER: &[Rule] = &[Rule {
    group: "coordination.k8s.io",
    resource: "leases",
    verbs: &["list", "watch"],
    why: "see that another kube-scheduler leads, Leases of this name only",
}];

/// To make holder Pods, to resize them, and to remove them.
pub const RIGHTS: &[Rule] = &[
    Rule {
        group: "",
        resource: "pods",
        verbs: &["create", "delete"],
        why: "holder Pods, this namespace only",
    },
    Rule {
        group: "",
        resource: "pods/resize",
        verbs: &["patch"],
        why: "raise and lower holder Pods, this namespace only",
    },
];
