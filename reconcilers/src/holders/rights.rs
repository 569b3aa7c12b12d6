//! The rights this controller needs in its own namespace, and nowhere else.

use dragoman_machinery::rights::Rule;

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
