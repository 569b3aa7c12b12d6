//! The rights this controller needs; the ClusterRoles are rendered from here.

use dragoman_machinery::rights::Rule;

const GROUP: &str = dragoman_crds::crdgen::GROUP;

/// To see and to publish: every mode.
pub const OBSERVE: &[Rule] = &[
    Rule { group: "", resource: "nodes", verbs: &["list", "watch"], why: "what nodes have" },
    Rule { group: "", resource: "pods", verbs: &["list", "watch"], why: "what Pods take from nodes" },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaims",
        verbs: &["list", "watch"],
        why: "the devices of claims",
    },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceslices",
        verbs: &["list", "watch"],
        why: "what devices cost",
    },
    Rule {
        group: GROUP,
        resource: "devicefootprints",
        verbs: &["list", "watch"],
        why: "what devices cost whose slices do not say it",
    },
    Rule {
        group: GROUP,
        resource: "nodeallocatabledraclaimstates",
        verbs: &["create", "delete", "list", "watch"],
        why: "one for each node with claims",
    },
    Rule {
        group: GROUP,
        resource: "nodeallocatabledraclaimstates/status",
        verbs: &["patch"],
        why: "publish the ledger of the node",
    },
];
