//! Fate of the Pods with claims, and of the claims, when a node is drained.

use super::{Cell, Column, Table, Type, column};
use crate::explain::claim::consumer;
use crate::explain::pod::is_for;
use crate::facts::Facts;
use dragoman_objects::ResourceClaim;

/// Fields of a claim of a Pod on the node.
pub(crate) const COLUMNS: &[Column] = &[
    column("NAMESPACE", "namespace", Type::Text, "Namespace of the Pod and the claim."),
    column("POD", "pod", Type::Text, "Pod that the drain ends."),
    column("CLAIM", "claim", Type::Text, "Claim of the Pod."),
    column("DEVICES", "devices", Type::Devices, "Devices that the claim holds."),
    column("AFTERWARDS", "afterwards", Type::Text, "A sentence that says what becomes of the claim."),
];

/// Lists what a drain of a node would end: Pods with claims, and the fate of their claims.
pub fn drained(facts: &Facts, node: &str) -> Table {
    let mut rows = Vec::new();
    for ((namespace, name), pod) in facts.pods.iter().filter(|(_, pod)| *pod.spec.node_name == *node) {
        let mine = |claim: &ResourceClaim| claim.status.reserved_for.iter().any(|of| is_for(of, pod));
        // Wherever its devices are: those of several nodes go with the Pod as well.
        let claims = facts.claims.iter().filter(|((of, _), _)| of == namespace);
        for ((_, claim_name), claim) in claims.filter(|(_, claim)| mine(claim)) {
            let results = claim.allocation().map_or(&[][..], |of| of.devices.results.as_slice());
            let others = claim.status.reserved_for.len().saturating_sub(1);
            let selector =
                claim.allocation().and_then(|allocation| allocation.node_selector.as_ref()?.node());
            let is_here = selector.is_some_and(|of| **of == *node);
            let this_node = if is_here { ", and with them this node" } else { "" };
            let is_generated =
                claim.metadata.controller.as_ref().is_some_and(|owner| owner.uid == pod.metadata.uid);
            let group = claim.status.reserved_for.iter().find(|of| !of.is_pod()).map(consumer);
            let afterwards = match (is_generated, others) {
                (false, _) if group.is_some() => {
                    format!("the claim keeps its devices for {}{this_node}", group.unwrap_or_default())
                }
                (true, _) => "the claim goes with the Pod; the next Pod gets another one".to_owned(),
                (false, 0) => "the claim stays and gives its devices back".to_owned(),
                (false, 1) => format!("the claim keeps its devices for another consumer{this_node}"),
                (false, others) => {
                    format!("the claim keeps its devices for {others} other consumers{this_node}")
                }
            };
            rows.push(vec![
                Cell::text(namespace),
                Cell::text(name),
                Cell::text(claim_name),
                Cell::devices(results).shown_as(results.len().to_string()),
                Cell::text(afterwards),
            ]);
        }
    }
    Table::of(COLUMNS, 0, rows, facts)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    /// One device that every node can use, and one that is in no slice: the Pod holds them all the same.
    #[test]
    fn a_drain_ends_every_pod_of_the_node_that_claims_are_reserved_for() {
        let claim = |name: &str, device: &str, pod: &str| {
            json!({"kind": "ResourceClaim", "metadata": {"namespace": "ns", "name": name, "uid": name}, "status": {
                "allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "fabric", "device": device}]}},
                "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}]}})
        };
        let pod = |name: &str, node: &str| json!({"kind": "Pod", "metadata": {"namespace": "ns", "name": name, "uid": name}, "spec": {"nodeName": node}});
        let slice = json!({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "d", "allNodes": true,
            "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "one"}]}});
        let items = [
            slice,
            pod("here", "n1"),
            pod("there", "n2"),
            claim("a", "one", "here"),
            claim("b", "in-no-slice", "here"),
            claim("c", "one", "there"),
        ];
        let mut facts = Facts::default();
        facts
            .take_file(Path::new("f"), &json!({"kind": "List", "items": items}).to_string())
            .expect("a list");
        let claims: Vec<String> = drained(&facts, "n1").rows.iter().map(|row| row[2].shown.clone()).collect();
        assert_eq!(claims, ["a", "b"]);
    }
}
