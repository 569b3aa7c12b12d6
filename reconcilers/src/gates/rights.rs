//! The rights this controller needs; the ClusterRoles are rendered from here.

use dragoman_machinery::rights::Rule;

/// To see: every mode.
pub(super) const OBSERVE: &[Rule] = &[
    Rule { group: "", resource: "pods", verbs: &["list", "watch"], why: "gated Pods" },
    Rule {
        group: "",
        resource: "nodes",
        verbs: &["list", "watch"],
        why: "which nodes an allocation selects",
    },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaims",
        verbs: &["list", "watch"],
        why: "what gated Pods wait for",
    },
    Rule {
        group: "resource.k8s.io",
        resource: "deviceclasses",
        verbs: &["list", "watch"],
        why: "whether an allocation gives what was asked for",
    },
];

/// To delete Pods that cannot be bound, where that is asked for.
pub const DELETE_UNBOUND: &[Rule] = &[Rule {
    group: "",
    resource: "pods",
    verbs: &["delete"],
    why: "delete Pods that were released for a node that cannot take them",
}];

/// To open gates: from mode assist on.
pub(super) const ASSIST: &[Rule] = &[
    Rule {
        group: "",
        resource: "pods",
        verbs: &["patch"],
        why: "remove the scheduling gate dragoman.dev/claims",
    },
    Rule {
        group: "",
        resource: "pods/status",
        verbs: &["patch"],
        why: "the condition dragoman.dev/ClaimsReady, and the same words in the message of a Pod that waits",
    },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaims",
        verbs: &["get", "patch", "update"],
        why: "the label of the default allocator, and rejections; get and update: claims that take no patch in JSON",
    },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaims/status",
        verbs: &["patch", "update"],
        why: "give back allocations that do not fit on their node",
    },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaims/binding",
        verbs: &["patch", "update"],
        why: "give back allocations that do not fit on their node",
    },
];
