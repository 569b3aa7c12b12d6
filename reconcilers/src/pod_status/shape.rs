//! The write of entries in each generation of the field, and what became of it.

use std::collections::BTreeSet;

use dragoman_accounting::claim::contribution::{Contribution, Generation, Line};
use dragoman_accounting::pod::PodSpecView;
use dragoman_accounting::resource::Resource;
use dragoman_accounting::wire::pod_status::{to_1_36, to_1_37, to_1_38};
use dragoman_machinery::api::decode;
use dragoman_machinery::kind::POD;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::write::{Action, Write, Written};
use dragoman_objects::{Name, Pod};
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

/// Parts the contributions of a Pod's claims into those that an API server takes which keeps `generation`, and the rest. It refuses all
/// entries of a Pod for one that it does not take. `extended`: the Pod's claim for extended resources.
pub(crate) fn parted(
    contributions: &[Contribution],
    extended: Option<&str>,
    generation: Generation,
) -> (Vec<Contribution>, Vec<Contribution>) {
    // 1.37.2 takes claims that an entry of the spec stands for, and cpu, memory and huge pages (measured).
    let takes = |of: &Contribution, line: &Line| {
        extended != Some(&*of.source.name)
            && (generation != Generation::V1_37 || line.resource != Resource::EphemeralStorage)
    };
    let part = |is_wanted: bool| {
        let part = contributions.iter().map(|of| {
            let lines = of.lines.iter().filter(|line| takes(of, line) == is_wanted).cloned().collect();
            Contribution { lines, ..of.clone() }
        });
        part.filter(|of| !of.lines.is_empty()).collect()
    };
    (part(true), part(false))
}

/// Says in words what a kube-scheduler does not count of these contributions; `None` if holder Pods hold all
/// of it.
pub(crate) fn uncounted(rest: &[Contribution], holders: bool) -> Option<String> {
    let lines = rest.iter().flat_map(|of| of.lines.iter().map(|line| (&of.source.name, line.resource)));
    let lines: BTreeSet<(&Name, Resource)> =
        lines.filter(|(_, resource)| !(holders && resource.resizable())).collect();
    let words: Vec<String> =
        lines.into_iter().map(|(claim, resource)| format!("{resource} of claim {claim}")).collect();
    let why = "the API server takes no such entry in the status of a Pod";
    (!words.is_empty())
        .then(|| format!("a kube-scheduler that counts claims does not count {}: {why}", words.join(", ")))
}

/// Outcome of the write of entries in a generation.
#[derive(Debug)]
pub(crate) enum Publication {
    /// The API server keeps them; the Pod as it is now.
    Kept(Box<Pod>),
    /// The API server knows the field and drops it.
    Dropped,
    /// The API server does not have the field at all.
    Undeclared(Refusal),
    /// The API server refuses the write for another reason.
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

/// Message about a field that the API server kept, and keeps no longer.
pub(crate) const DROPPED: &str = "the API server has dropped the field since it was asked";

/// Whether the answer to a write has the entries of this generation.
fn is_kept(answer: &Pod, generation: Generation) -> bool {
    let contributions = PodSpecView::of(answer, &mut Vec::new()).contributions;
    contributions.iter().any(|of| of.recorded == Some(generation))
}
