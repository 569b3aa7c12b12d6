//! The write of entries in each generation of the field, and what became of it.

use dragoman_accounting::claim::contribution::{Contribution, Generation};
use dragoman_accounting::wire::pod_status::{to_1_36, to_1_37, to_1_38};
use dragoman_crds::wire::{Name, Pod};
use dragoman_machinery::api::decode;
use dragoman_machinery::kind::POD;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::{Action, Write, Written};
use serde_json::{Value, json};

/// The generations that a released API server may keep, newest first.
pub(super) const GENERATIONS: [Generation; 3] = [Generation::V1_38, Generation::V1_37, Generation::V1_36];
/// The field manager of the entries.
const MANAGER: &str = "dragoman-pod-status";

/// The write of these contributions into the status of a Pod.
///
/// # Errors
/// The amounts do not fit into the generation; the text is for people.
pub(crate) fn write(
    namespace: &str,
    name: &str,
    uid: &Name,
    contributions: &[Contribution],
    generation: Generation,
) -> Result<Write, String> {
    let (field, entries): (&str, Value) = match generation {
        Generation::V1_38 => (
            "additionalNodeAllocatableResources",
            json!(to_1_38(contributions).map_err(|why| why.to_string())?.0),
        ),
        Generation::V1_37 => (
            "nodeAllocatableResourceClaimStatuses",
            json!(to_1_37(contributions).map_err(|why| why.to_string())?.0),
        ),
        Generation::V1_36 => (
            "nodeAllocatableResourceClaimStatuses",
            json!(to_1_36(contributions).map_err(|why| why.to_string())?.0),
        ),
        Generation::Draft => return Err("the draft of KEP-5517 was never released".to_owned()),
    };
    let body = json!({
        "apiVersion": POD.api_version(), "kind": POD.kind,
        "metadata": {"namespace": namespace, "name": name, "uid": uid},
        "status": {field: entries},
    });
    // Entries that another writer has put there meanwhile are not replaced.
    let action = Action::Apply { subresource: Some("status"), manager: MANAGER, force: false, body };
    Ok(Write::new(POD, namespace, name, action))
}

/// What became of the write of entries in a generation.
#[derive(Debug)]
pub(crate) enum Publication {
    /// The API server keeps them; the Pod as it is now.
    Kept(Box<Pod>),
    /// The API server knows the field and drops it.
    Dropped,
    /// The API server does not have the field at all.
    Undeclared(Refusal),
    /// It is refused for another reason.
    Refused(Refusal),
}

impl Publication {
    pub(crate) fn of(generation: Generation, outcome: Result<Written, Refusal>) -> Self {
        match outcome.and_then(|answer| decode::<Pod>(&answer.body)) {
            Ok(pod) if is_kept(&pod, generation) => Self::Kept(Box::new(pod)),
            Ok(_) => Self::Dropped,
            Err(Refusal::Invalid(why)) if why.contains("field not declared in schema") => {
                Self::Undeclared(Refusal::Invalid(why))
            }
            Err(refusal) => Self::Refused(refusal),
        }
    }
}

/// What is said of a field that the API server kept, and keeps no longer.
pub(crate) const DROPPED: &str = "the API server has dropped the field since it was asked";

/// Whether the answer to a write has the entries of this generation.
fn is_kept(answer: &Pod, generation: Generation) -> bool {
    let contributions = answer.resources(&mut Vec::new()).contributions;
    contributions.iter().any(|of| of.recorded == Some(generation))
}
