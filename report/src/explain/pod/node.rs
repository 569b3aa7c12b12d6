//! Obstacles between a Pod and a node.

use dragoman_crds::protocol::shown;
use dragoman_objects::Name;

use super::super::{Verdict, age, devices};
use super::View;
use crate::cost::Cost;

impl View<'_> {
    /// Returns the message of the scheduler, if it refused the Pod.
    pub(super) fn refusal(&self) -> Option<Verdict> {
        let scheduled = self.condition("PodScheduled").filter(|of| &*of.status == "False")?;
        // The condition of a time when the Pod still had a gate.
        if &*scheduled.reason == "SchedulingGated" && self.pod.spec.scheduling_gates.is_empty() {
            return None;
        }
        (!scheduled.message.is_empty()).then(|| {
            Verdict::blocked(
                "Unschedulable",
                format!("the scheduler finds no node for it: {}", shown(&scheduled.message)),
                "the message of the scheduler names what is missing",
            )
        })
    }

    /// Returns why the amounts of its devices keep the Pod from their node, if they do.
    pub(super) fn refused(&self) -> Option<Verdict> {
        if !self.pod.spec.node_name.is_empty() {
            return None;
        }
        let (node, cost) = self.cost()?;
        Some(devices::too_much(&node, &cost.refused()?))
    }

    /// The amounts that the claims of the Pod bring along on its node, or on the one that has their devices.
    pub(super) fn cost(&self) -> Option<(Name, Cost)> {
        let claims = self.claims();
        let allocations = || claims.iter().filter_map(|claim| claim.allocation());
        let selected = || allocations().find_map(|of| of.node_selector.as_ref()?.node().cloned());
        // An allocation of one node may have no selector, and one of network-attached devices suits any node.
        let supply = &self.facts.supply;
        let results = || allocations().flat_map(|of| &of.devices.results);
        let published =
            || results().find_map(|of| supply.place(&of.driver, &of.pool, &of.device)?.1.map(Name::from));
        let own = Some(&self.pod.spec.node_name).filter(|node| !node.is_empty()).cloned();
        let any = || supply.nodes.first().cloned();
        let node = own.or_else(selected).or_else(published).or_else(any)?;
        let claims: Vec<_> =
            claims.into_iter().filter(|claim| claim.status.allocation.is_some()).map(Into::into).collect();
        let cost = self.facts.costs.of(self.pod, &node, &claims);
        Some((node, cost))
    }

    pub(super) fn unscheduled(&self) -> Verdict {
        let (name, claims) = (self.name(), self.claims().len());
        let misplaced = self.misplaced();
        misplaced.or_else(|| self.refusal()).or_else(|| self.binding_conditions()).unwrap_or_else(|| {
            let waits = age(self.pod.metadata.creation_timestamp.as_deref(), self.now);
            let ready = if claims == 0 { "it uses no claims" } else { "its claims are ready" };
            Verdict::blocked(
                "SchedulerSilent",
                format!("Pod {name} has waited for a node for {waits}, {ready}, and no scheduler has said anything about it"),
                "does the scheduler that `spec.schedulerName` names run?",
            )
        })
    }

    /// Returns what keeps the Pod from the node on which the devices of its claims are.
    pub(super) fn misplaced(&self) -> Option<Verdict> {
        let claims = self.claims();
        let nodes = claims.iter().filter_map(|claim| {
            let node = claim.allocation()?.node_selector.as_ref()?.node()?;
            Some((&claim.metadata.name, node))
        });
        let nodes: Vec<_> = nodes.collect();
        let (first, node) = nodes.first()?;
        if let Some((other, elsewhere)) = nodes.iter().find(|(_, of)| of != node) {
            return Some(Verdict::blocked(
                "NoCommonNode",
                format!(
                    "the devices of claim {first} are on node {node}, and those of claim {other} on node {elsewhere}: no node has both for Pod {}",
                    self.name()
                ),
                "free one of the claims: the Pods that use it end, or the claim is deleted and created anew",
            ));
        }
        let (site, placement) = (self.facts.sites.get(&***node)?, self.facts.placements.get(self.key)?);
        let obstacles = self.facts.obstacles(site, self.pod, placement);
        let obstacle = obstacles.first()?;
        Some(Verdict::blocked(
            "NodeUnsuitable",
            format!("its devices are on node {node}, and the node does not take it: {obstacle}"),
            devices::suits(&obstacles.iter().collect::<Vec<_>>()),
        ))
    }

    /// Returns the conditions of a device that the scheduler waits for before it binds the Pod (KEP-5007).
    pub(super) fn binding_conditions(&self) -> Option<Verdict> {
        let claims = self.claims();
        let results = claims.iter().filter_map(|claim| Some((claim, claim.allocation()?)));
        let mut results =
            results.flat_map(|(claim, of)| of.devices.results.iter().map(move |of| (claim, of)));
        let (claim, result) = results.find(|(_, of)| !of.binding_conditions.is_empty())?;
        let conditions: Vec<&str> = result.binding_conditions.iter().map(|of| &**of).collect();
        Some(Verdict::blocked(
            "BindingConditions",
            format!(
                "Pod {} has its devices, and its scheduler binds it once device {} has the conditions {}",
                self.name(),
                result.device,
                conditions.join(", ")
            ),
            format!(
                "the controller of that device sets them in `status.devices` of claim {}; its log says what it waits for",
                claim.metadata.name
            ),
        ))
    }
}
