//! The names of the claim gate protocol, and what its parties write (docs/protocol.md).
//!
//! Labels and annotations are written by tenants. Everything read here is bounded in size and number,
//! and can harm only the Pod and the claim that carry it.

use dragoman_objects::{Condition, Meta, Name, Named};
use serde::{Deserialize, Serialize};

/// The scheduling gate of a Pod whose claims have to be allocated first.
pub const GATE: &str = "dragoman.dev/claims";
/// The condition that says what a gated Pod waits for.
pub const CLAIMS_READY: &str = "dragoman.dev/ClaimsReady";
/// The reason of that condition on a Pod whose gate was opened because it had everything.
pub const SAYS_RELEASED: &str = "Released";
/// The reason of that condition on such a Pod that kube-scheduler cannot bind.
pub const NOT_BOUND: &str = "NotBound";
/// The annotation that a Pod gets with the opening of its gate, in one write: every claim was allocated and reserved for it. A later
/// leader knows by it what the Pod has lost since. Its value is the uid of the Pod: annotations are copied, and the copy was not released.
pub const RELEASED: &str = "dragoman.dev/released";
/// The label of a claim that names its allocator.
pub const ALLOCATOR: &str = "dragoman.dev/allocator";
/// Whether the condition of a Pod says that its gate was opened because it had everything. A Pod without a gate whose condition
/// still says what it waited for may have been let go: kube-scheduler allocates for that one.
pub fn says_released(conditions: &[Condition]) -> bool {
    let says = |of: &Condition| matches!(&*of.reason, SAYS_RELEASED | NOT_BOUND);
    conditions.iter().any(|of| &*of.r#type == CLAIMS_READY && says(of))
}

/// Rule for the name of an allocator, for people.
pub const ALLOCATOR_NAME_RULE: &str = "the name of an allocator is the value of a label: at most 63 letters, digits, '-', '_' and '.', \
     the first and the last a letter or a digit";

/// Whether a label can name this allocator.
pub fn is_allocator_name(name: &str) -> bool {
    let is_end = |at: Option<char>| at.is_some_and(|of| of.is_ascii_alphanumeric());
    let is_inner = |of: char| of.is_ascii_alphanumeric() || matches!(of, '-' | '_' | '.');
    name.len() <= 63
        && is_end(name.chars().next())
        && is_end(name.chars().last())
        && name.chars().all(is_inner)
}

/// Prefix of the annotations that are gates before allocation.
pub const ALLOCATION_GATES: &str = "allocation-gates.dragoman.dev/";
/// Prefix of the annotations that are gates after allocation.
pub const RELEASE_GATES: &str = "release-gates.dragoman.dev/";
/// The annotation in which an allocator says why it could not allocate a claim.
pub const VERDICT: &str = "dragoman.dev/verdict";
/// The annotation in which the operator says which allocations it refused.
pub const REJECTIONS: &str = "dragoman.dev/rejections";

/// The closed gates of a claim that are kept; the others are counted.
const GATES: usize = 8;
/// The characters of a text of another party that are shown.
const SHOWN: usize = 256;
/// The rejections that a claim keeps.
const NEWEST: usize = 8;
/// The longest annotation that is read.
const READ: usize = 8 << 10;

/// A closed gate of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedGate {
    /// Name of the gate, without the prefix.
    pub gate: Name,
    /// Reason that the owner of the gate gives.
    pub reason: Name,
}

/// Scheduling gates of other controllers that are opened after ours, by the word of an administrator. Every other gate comes
/// first: its controller may keep the Pod for days, and no devices are taken for that time.
pub type LaterGates = Vec<Box<str>>;

/// Returns the first scheduling gate of a Pod that has to be open before devices are taken for it.
pub fn earlier_gate<'a>(gates: &'a [Named], later: &LaterGates) -> Option<&'a Name> {
    let is_earlier = |gate: &&Name| ***gate != *GATE && later.iter().all(|later| **later != ***gate);
    gates.iter().map(|gate| &gate.name).find(is_earlier)
}

/// Returns the closed gates of a claim with this prefix, in the order of their names.
pub fn closed_gates(meta: &Meta, prefix: &str) -> Vec<ClosedGate> {
    let gates = meta.annotations().filter_map(|(key, reason)| Some((key.strip_prefix(prefix)?, reason)));
    let mut gates: Vec<ClosedGate> =
        gates.map(|(gate, reason)| ClosedGate { gate: gate.into(), reason: shown(reason) }).collect();
    gates.sort_by(|a, b| a.gate.cmp(&b.gate));
    if gates.len() > GATES {
        let others = gates.len() - GATES + 1;
        gates.truncate(GATES - 1);
        gates.push(ClosedGate { gate: format!("{others} others").into(), reason: Name::default() });
    }
    gates
}

/// The annotation of a Pod that names the attribute which all its devices have to share, such as `resource.kubernetes.io/pcieRoot`.
pub const ALIGNED_BY: &str = "dragoman.dev/aligned-by";

/// The attribute that all devices of a Pod have to share; none where its annotation is missing or empty.
pub fn aligned_by(pod: &Meta) -> Option<Name> {
    pod.annotation(ALIGNED_BY).filter(|attribute| !attribute.is_empty()).map(|attribute| shown(attribute))
}

/// Returns the beginning of a text of another party.
pub fn shown(text: &str) -> Name {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

/// An allocation that the operator refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// The node.
    pub node: String,
    /// The reason, for people: the amounts that were missing.
    pub reason: String,
    /// The revision of the ledger of the node.
    pub revision: i64,
    /// The time, RFC 3339.
    pub time: String,
}

/// Returns the rejections of a claim, oldest first. A text that is too long or does not parse has none.
pub fn rejections(meta: &Meta) -> Vec<Rejection> {
    let text = meta.annotation(REJECTIONS).filter(|text| text.len() <= READ);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Returns the annotation with one more rejection. Only the newest are kept.
pub fn with_rejection(mut rejections: Vec<Rejection>, new: Rejection) -> String {
    rejections.push(Rejection { reason: shown(&new.reason).to_string(), ..new });
    let old = rejections.len().saturating_sub(NEWEST);
    serde_json::to_string(rejections.get(old..).unwrap_or_default()).unwrap_or_default()
}

/// The reason why an allocator could not allocate a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// The number of nodes that were looked at.
    #[serde(default)]
    pub nodes: usize,
    /// The time, RFC 3339.
    pub time: String,
    /// Seconds after `time` until the allocator looks again, where it does not wait for a change.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "retryAfterSeconds")]
    pub retry_after: Option<u64>,
}

/// Returns the verdict of a claim, if there is one that parses.
pub fn verdict(meta: &Meta) -> Option<Verdict> {
    let text = meta.annotation(VERDICT).filter(|text| text.len() <= READ)?;
    let verdict: Verdict = serde_json::from_str(text).ok()?;
    Some(Verdict {
        message: shown(&verdict.message).to_string(),
        reason: shown(&verdict.reason).to_string(),
        ..verdict
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meta(annotations: &serde_json::Value) -> Meta {
        serde_json::from_value(json!({"name": "c", "annotations": annotations})).expect("metadata")
    }

    /// An allocator takes no Pod that was let go for one that was released: kube-scheduler allocates for it.
    #[test]
    fn a_condition_says_of_released_pods_alone_that_they_were() {
        let says = |r#type: &str, reason: &str| {
            let condition = json!([{"type": r#type, "status": "False", "reason": reason}]);
            says_released(&serde_json::from_value::<Vec<Condition>>(condition).expect("conditions"))
        };
        assert!(says(CLAIMS_READY, "Released") && says(CLAIMS_READY, "NotBound"));
        // The last two of a gate that was opened a moment ago: the condition is older.
        for other in ["LetGo", "NoAllocator", "NotAllocated", "NotReserved"] {
            assert!(!says(CLAIMS_READY, other), "{other}");
        }
        assert!(!says("PodScheduled", "Released"));
    }

    #[test]
    fn gates_are_bounded_in_number_and_size() {
        let one = meta(&json!({"release-gates.dragoman.dev/quota": "x".repeat(10_000), "other": "y"}));
        let gates = closed_gates(&one, RELEASE_GATES);
        assert_eq!((gates.len(), &*gates[0].gate), (1, "quota"));
        assert!(gates[0].reason.len() < 300);
        assert!(closed_gates(&one, ALLOCATION_GATES).is_empty());
        let many: serde_json::Map<_, _> =
            (0..100).map(|n| (format!("{RELEASE_GATES}g-{n:03}"), json!("closed"))).collect();
        let gates = closed_gates(&meta(&many.into()), RELEASE_GATES);
        assert_eq!(gates.len(), GATES);
        assert_eq!(&*gates[GATES - 1].gate, "93 others");
    }

    #[test]
    fn annotations_that_do_not_parse_or_are_large_say_nothing() {
        let large = "r".repeat(20_000);
        let rejection = json!({"node": "n", "reason": large, "revision": 1, "time": ""});
        let large = [json!([rejection]).to_string(), rejection.to_string()];
        for text in ["{", "7", &large[0], &large[1]] {
            let meta = meta(&json!({"dragoman.dev/rejections": text, "dragoman.dev/verdict": text}));
            assert_eq!((rejections(&meta), verdict(&meta)), (Vec::new(), None), "{text}");
        }
    }

    #[test]
    fn the_newest_rejections_are_kept() {
        let mut text = "[]".to_owned();
        for number in 0..20 {
            let meta = meta(&json!({"dragoman.dev/rejections": text}));
            let new = Rejection {
                node: format!("n{number}"),
                reason: "r".repeat(5_000),
                revision: number,
                time: String::new(),
            };
            text = with_rejection(rejections(&meta), new);
        }
        let kept = rejections(&meta(&json!({"dragoman.dev/rejections": text})));
        assert_eq!(kept.iter().map(|kept| kept.revision).collect::<Vec<_>>(), (12..20).collect::<Vec<_>>());
    }
}
