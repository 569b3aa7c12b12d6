//! The length up to which the requirements of a Pod on its node are evaluated. A tenant writes them, and every look at a node pays for
//! them.

use dragoman_objects::{Affinity, Labels, Name, NodeSelectorRequirement, NodeSelectorTerm, Pod, Toleration};

/// Parts up to which they are evaluated: some microseconds for each node.
pub(super) const MOST_PARTS: usize = 256;
/// Bytes of a text that are one part: a label value has less.
const BYTES: usize = 64;

/// Terms, requirements, values, labels, tolerations, and what it `takes`: host ports and extended resources. A long text is several parts.
pub(super) fn parts(pod: &Pod, takes: usize) -> usize {
    let spec = &pod.spec;
    of_affinity(&spec.affinity) + of_labels(&spec.node_selector) + of_tolerations(&spec.tolerations) + takes
}

fn of_affinity(affinity: &Affinity) -> usize {
    let required = affinity.required().into_iter().flat_map(|selector| &selector.node_selector_terms);
    let preferred = affinity.preferred().iter().map(|term| &term.preference);
    required.chain(preferred).map(of_term).sum()
}

fn of_term(term: &NodeSelectorTerm) -> usize {
    1 + term.match_expressions.iter().chain(&term.match_fields).map(of_requirement).sum::<usize>()
}

fn of_requirement(of: &NodeSelectorRequirement) -> usize {
    of_text(&of.key) + of.values.iter().map(of_text).sum::<usize>()
}

fn of_labels(labels: &Labels) -> usize {
    labels.values().map(of_text).sum()
}

fn of_tolerations(tolerations: &[Toleration]) -> usize {
    tolerations.iter().map(|of| of_text(&of.key) + of.value.len() / BYTES).sum()
}

fn of_text(text: &Name) -> usize {
    1 + text.len() / BYTES
}

/// The same requirements on nodes without the terms that cannot be evaluated: these select nothing. What is left is evaluated without a
/// second look.
pub(super) fn evaluated(affinity: &Affinity) -> Affinity {
    let mut affinity = affinity.to_nodes();
    if let Some(of_nodes) = &mut affinity.node_affinity {
        if let Some(required) = &mut of_nodes.required_during_scheduling_ignored_during_execution {
            required.node_selector_terms.retain(|term| term.check().is_ok());
        }
        of_nodes
            .preferred_during_scheduling_ignored_during_execution
            .retain(|preferred| preferred.preference.check().is_ok());
    }
    affinity
}
