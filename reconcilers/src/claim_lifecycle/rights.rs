//! The rights this controller needs; the ClusterRoles are rendered from here.

use dragoman_machinery::rights::Rule;

/// To see: every mode.
pub const OBSERVE: &[Rule] = &[
    Rule { group: "", resource: "pods", verbs: &["list", "watch"], why: "consumers and owners of claims" },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaims",
        verbs: &["list", "watch"],
        why: "the claims",
    },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaimtemplates",
        verbs: &["list", "watch"],
        why: "what claims are made of",
    },
    Rule {
        group: "scheduling.k8s.io",
        resource: "podgroups",
        verbs: &["list", "watch"],
        why: "consumers and owners of claims (KEP-5729)",
    },
];

/// To own the life of claims: mode own, beside [`OBSERVE`].
pub const OWN: &[Rule] = &[
    Rule {
        group: "",
        resource: "pods",
        verbs: &["get"],
        why: "proof that a consumer is gone; a last look before reserving",
    },
    Rule { group: "", resource: "pods/status", verbs: &["patch"], why: "names of generated claims" },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaims",
        verbs: &["create", "delete", "get", "patch", "update"],
        why: "create from templates, delete at the end, remove the finalizer; update: claims that take no patch in JSON",
    },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaims/status",
        verbs: &["patch", "update"],
        why: "reservedFor and deallocation",
    },
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaims/binding",
        verbs: &["patch", "update"],
        why: "the same from Kubernetes 1.36 on; inert before",
    },
    Rule {
        group: "scheduling.k8s.io",
        resource: "podgroups",
        verbs: &["get"],
        why: "proof that a consumer is gone",
    },
    Rule {
        group: "scheduling.k8s.io",
        resource: "podgroups/status",
        verbs: &["patch"],
        why: "names of generated claims",
    },
];
