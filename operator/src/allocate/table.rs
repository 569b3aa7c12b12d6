//! The answer for people.

use std::collections::BTreeMap;

use super::{Answer, Why};

/// The number of nodes with one reason that are named.
const MOST_NAMED: usize = 3;

/// Renders the devices that the claims get, or the reason for each node on which they get none.
pub(super) fn render(answer: &Answer, claims: &[String]) -> String {
    let claims = claims.join(", ");
    match (&answer.node, &answer.explanation) {
        (_, Some(Why::Error(why))) => format!("{why}\n"),
        (Some(node), _) => {
            let place = answer.aligned_by.as_ref();
            let place = place.map(|(attribute, value)| format!(", aligned by {attribute} {value}"));
            format!("{claims} on node {node}{}\n{}", place.unwrap_or_default(), devices(answer))
        }
        (None, _) if answer.outcome == "noCandidates" => {
            format!("{claims}: there is no node to try (`candidates` is empty)\n")
        }
        (None, explanation) => {
            let mut nodes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            if let Some(Why::Nodes(explanations)) = explanation {
                for (node, why) in explanations {
                    nodes.entry(why.to_string()).or_default().push(node);
                }
            }
            for (node, why) in &answer.node_errors {
                nodes.entry(format!("{why}\n")).or_default().push(node);
            }
            let verdict =
                if answer.outcome == "unknown" { "it is unknown whether a node" } else { "no node" };
            let mut text = format!("{claims}: {verdict} has the devices\n");
            let mut nodes: Vec<_> = nodes.into_iter().collect();
            nodes.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
            for (why, nodes) in nodes {
                text += &format!("{}:\n", named(&nodes));
                why.lines().for_each(|line| text += &format!("  {line}\n"));
            }
            text
        }
    }
}

fn named(nodes: &[&str]) -> String {
    let more = nodes.len().saturating_sub(MOST_NAMED);
    let names = nodes.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
    match (nodes.len(), more) {
        (1, _) => format!("node {names}"),
        (count, 0) => format!("{count} nodes ({names})"),
        (count, more) => format!("{count} nodes ({names} and {more} more)"),
    }
}

const HEAD: [&str; 4] = ["CLAIM", "REQUEST", "DEVICE", "CONSUMES"];
const BECAUSE: &str = "CHOSEN BECAUSE IT";

fn devices(answer: &Answer) -> String {
    let is_best_fit = !answer.chosen_because.is_empty();
    let [claim, request, device, amounts] = HEAD;
    let because = if is_best_fit { BECAUSE } else { "" };
    let mut rows = vec![[claim, request, device, amounts, because].map(str::to_owned)];
    for (claim, allocation) in &answer.allocations {
        for result in &allocation.devices.results {
            let consumed = result.consumed_capacity.iter().map(|(name, amount)| format!("{name}={amount}"));
            let device = format!("{}/{}/{}", result.driver, result.pool, result.device);
            let consumed = consumed.collect::<Vec<_>>().join(",");
            let because = answer.chosen_because.get(&device).cloned().unwrap_or_default();
            rows.push([claim.clone(), result.request.to_string(), device, consumed, because]);
        }
    }
    dragoman_report::columns(&rows)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn nodes_with_one_reason_are_one_paragraph() {
        let node = |number: usize| (format!("n{number}").into(), dragoman_allocator::Explanation::default());
        let explanations: BTreeMap<_, _> = (1..=5).map(node).collect();
        let answer = Answer {
            outcome: "none",
            explanation: Some(Why::Nodes(explanations)),
            node_errors: [("m".into(), "the pool is being updated".to_owned())].into(),
            ..Answer::default()
        };
        let text = render(&answer, &["claim ns/c".to_owned()]);
        let expected = "claim ns/c: no node has the devices\n5 nodes (n1, n2, n3 and 2 more):\nnode m:\n  the pool is being updated\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn best_fit_says_why() {
        let results = serde_json::json!({"devices": {"results": [
            {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "half-1"}]}});
        let allocation: dragoman_objects::Allocation =
            serde_json::from_value(results).expect("an allocation");
        let mut answer = Answer {
            outcome: "solution",
            node: Some("n1".into()),
            allocations: [("ns/c".to_owned(), allocation)].into(),
            ..Answer::default()
        };
        let claims = ["claim ns/c".to_owned()];
        let first = "claim ns/c on node n1\nCLAIM  REQUEST  DEVICE                     CONSUMES\n\
                     ns/c   gpu      gpu.example.com/n1/half-1\n";
        assert_eq!(render(&answer, &claims), first);
        let why = ("gpu.example.com/n1/half-1".to_owned(), "takes 1 other free device away".to_owned());
        answer.chosen_because = [why].into();
        let best = render(&answer, &claims);
        assert!(best.contains("CONSUMES  CHOSEN BECAUSE IT\n"), "{best}");
        assert!(best.ends_with("takes 1 other free device away\n"), "{best}");
    }

    #[test]
    fn devices_that_are_aligned_say_by_what() {
        let place = ("resource.kubernetes.io/numaNode", "1".to_owned());
        let answer = Answer { node: Some("n1".into()), aligned_by: Some(place), ..Answer::default() };
        let text = render(&answer, &["claim ns/c".to_owned()]);
        assert!(
            text.starts_with("claim ns/c on node n1, aligned by resource.kubernetes.io/numaNode 1\n"),
            "{text}"
        );
    }

    #[test]
    fn no_candidate_is_an_answer_of_its_own() {
        let answer = Answer { outcome: "noCandidates", ..Answer::default() };
        let text = render(&answer, &["claim ns/c".to_owned()]);
        assert_eq!(text, "claim ns/c: there is no node to try (`candidates` is empty)\n");
    }
}
