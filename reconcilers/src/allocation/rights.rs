//! The rights this controller needs; its ClusterRole is rendered from here.

use dragoman_machinery::rights::Rule;

/// Everything: it runs in a process of its own.
pub(super) const ALL: &[Rule] = &[
    Rule { group: "", resource: "pods", verbs: &["list", "watch"], why: "gated Pods, and what others take" },
    Rule { group: "", resource: "nodes", verbs: &["list", "watch"], why: "nodes to choose from" },
    Rule {
        group: "",
        resource: "persistentvolumeclaims",
        verbs: &["list", "watch"],
        why: "where the volumes of gated Pods can be used",
    },
    Rule {
        group: "",
        resource: "persistentvolumes",
        verbs: &["list", "watch"],
        why: "where the volumes of gated Pods can be used",
    },
    Rule {
        group: "storage.k8s.io",
        resource: "storageclasses",
        verbs: &["list", "watch"],
        why: "where volumes are made",
    },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaims",
        verbs: &["get", "list", "patch", "update", "watch"],
        why: "claims to allocate; the finalizer and the verdict; get and update: claims that take no patch in JSON",
    },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaims/status",
        verbs: &["patch", "update"],
        why: "allocations and reservations",
    },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaims/binding",
        verbs: &["patch", "update"],
        why: "allocations and reservations",
    },
    Rule { group: "resource.k8s.io", resource: "resourceslices", verbs: &["list", "watch"], why: "devices" },
    Rule {
        group: "resource.k8s.io",
        resource: "deviceclasses",
        verbs: &["list", "watch"],
        why: "what requests mean",
    },
    Rule {
        group: "resource.k8s.io",
        resource: "devicetaintrules",
        verbs: &["list", "watch"],
        why: "taints of devices",
    },
    Rule {
        group: "scheduling.k8s.io",
        resource: "podgroups",
        verbs: &["list", "watch"],
        why: "how many Pods of a group start at once",
    },
    Rule {
        group: "dragoman.dev",
        resource: "devicefootprints",
        verbs: &["list", "watch"],
        why: "what devices cost their node",
    },
    Rule {
        group: "dragoman.dev",
        resource: "driverowners",
        verbs: &["list", "watch"],
        why: "the drivers whose devices kube-scheduler does not allocate",
    },
];
