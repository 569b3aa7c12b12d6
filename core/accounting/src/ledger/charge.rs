//! From a Pod to what is charged for it.
//!
//! A Pod's total is computed exactly and rounded up once, as kube-scheduler does. Its
//! parts are the steps of that rounding: what the spec takes, then with the first claim,
//! then with the second, …, so that they always add up to the total. What claims bring
//! within a Pod-level request, or within what a resize in place still holds, is no step:
//! the Pod pays for it already.

use std::collections::{BTreeMap, BTreeSet};

use dragoman_quantity::{Decimal, Overflow};

use super::Stage;
use crate::Uid;
use crate::claim::contribution::{Contribution, Generation, Line, Source, number};
use crate::claim::footprint::AccountingPolicy;
use crate::claim::sharing::{Sharing, sharing};
use crate::object::ObjectRef;
use crate::per_resource::Units;
use crate::pod::PodSpecView;
use crate::pod::budget::{Checks, OverBudget, unschedulable};
use crate::pod::policy::{Incompatible, incompatible};
use crate::pod::requests::{Parts, Variant, drawn, parts};
use crate::resource::Resource;
use crate::unaccounted::Unaccounted;

/// A Pod with everything it takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodCharge {
    /// The Pod.
    pub object: ObjectRef,
    /// Stage of the Pod.
    pub stage: Stage,
    /// Amounts that the spec of the Pod takes of the node: its requests, without claims and without what is
    /// drawn from them.
    pub spec: Units,
    /// Claims of the Pod.
    pub claims: Vec<ClaimCharge>,
    /// Amounts that the status of the Pod tells kube-scheduler of its claims (KEP-5517 switched on), by
    /// generation: a kube-scheduler reads only the generation that it knows.
    pub published: Box<[(Generation, Units)]>,
    /// Facts that few Pods have.
    pub rare: Option<Box<Rare>>,
}

/// Facts that few Pods have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rare {
    /// Part of the Pod's requests that is drawn from claims, and not from the node. A scheduler that knows
    /// nothing of claims counts it.
    pub drawn: Units,
    /// The draws, each with its claims.
    pub draws: Vec<Draw>,
    /// Fields of the Pod and its claims that could not be read.
    pub unaccounted: Vec<Unaccounted>,
    /// Accounting policies that cannot be combined.
    pub incompatible: Vec<Incompatible>,
    /// Pod-level resources that its claims exceed. A kube-scheduler that counts claims binds such a Pod nowhere.
    pub over_budget: Vec<OverBudget>,
    /// Amounts that the Pod's claims take by ResourceSlices alone, while the Pod is assumed: a kube-scheduler
    /// that counts claims finds them by itself when it places the Pod.
    pub sliced: Units,
}

/// A claim of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimCharge {
    /// The claim.
    pub object: ObjectRef,
    /// Amounts that count once for the claim, whichever Pods use it.
    pub mapping: Units,
    /// Amounts that count for this use of the claim.
    pub overhead: Units,
    /// Whether other Pods may use it too.
    pub sharing: Sharing,
    /// The accounting policy of its devices, if a DeviceFootprint gives them one.
    pub policy: Option<AccountingPolicy>,
}

/// Requests that are met by claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draw {
    /// The resource.
    pub resource: Resource,
    /// Amount of the draw.
    pub amount: i64,
    /// The claims, together, and how much each has in all.
    pub pools: Vec<(ObjectRef, i64)>,
}

impl PodCharge {
    /// Returns the fields of the Pod and its claims that could not be read.
    pub fn unaccounted(&self) -> &[Unaccounted] {
        self.rare.as_ref().map_or(&[], |rare| &rare.unaccounted)
    }

    /// The Pod-level resources that its claims exceed.
    pub(crate) fn over_budget(&self) -> &[OverBudget] {
        self.rare.as_ref().map_or(&[], |rare| &rare.over_budget)
    }

    /// Returns the draws of the Pod.
    pub(super) fn draws(&self) -> &[Draw] {
        self.rare.as_ref().map_or(&[], |rare| &rare.draws)
    }
}

/// Computes what a Pod takes from its node. `unaccounted`: what could not be read of it
/// so far; it goes into the charge.
pub fn charge(pod: &PodSpecView, stage: Stage, variant: Variant, unaccounted: Vec<Unaccounted>) -> PodCharge {
    let mut rare = Rare { unaccounted, ..Rare::default() };
    let mut charge = PodCharge {
        object: ObjectRef::new("Pod", &pod.namespace, &pod.name, &pod.uid),
        stage,
        spec: Units::default(),
        claims: pod.contributions.iter().map(|claim| uncharged(pod, claim)).collect(),
        published: Box::default(),
        rare: None,
    };
    for resource in pod.resources() {
        if let Err(overflow) = enter(pod, resource, variant, &mut charge, &mut rare) {
            rare.unaccounted.push(Unaccounted {
                object: pod.object().into(),
                field: "spec".into(),
                resource: Some(resource),
                why: overflow.to_string().into(),
            });
        }
    }
    rare.incompatible = incompatible(pod);
    // A sum that does not fit into a decimal is unaccounted already.
    rare.over_budget = unschedulable(pod, Checks::V1_37).unwrap_or_default();
    charge.published = published(pod);
    if stage == Stage::Assumed {
        rare.sliced = sliced(pod);
    }
    charge.claims = once(charge.claims);
    charge.rare = (rare != Rare::default()).then(|| Box::new(rare));
    charge
}

/// A claim may come in several pieces: two entries of the Pod, or two of its status.
fn once(mut claims: Vec<ClaimCharge>) -> Vec<ClaimCharge> {
    claims.sort_by(|a, b| a.object.cmp(&b.object));
    claims.dedup_by(|piece, claim| {
        let same = piece.object == claim.object;
        if same {
            claim.mapping.combine(&piece.mapping, |sum, more| *sum = sum.saturating_add(more));
            claim.overhead.combine(&piece.overhead, |sum, more| *sum = sum.saturating_add(more));
            if piece.sharing == Sharing::OnePod {
                claim.sharing = Sharing::OnePod;
            }
        }
        same
    });
    claims
}

fn uncharged(pod: &PodSpecView, claim: &Contribution) -> ClaimCharge {
    ClaimCharge {
        object: object(pod, claim),
        mapping: Units::default(),
        overhead: Units::default(),
        sharing: sharing(claim),
        policy: claim.lines.iter().find_map(|line| line.policy),
    }
}

fn object(pod: &PodSpecView, claim: &Contribution) -> ObjectRef {
    ObjectRef::new(&claim.source.kind, &pod.namespace, &claim.source.name, &key(pod, claim))
}

/// The uid of a claim; where only its name is known, that with its namespace.
fn key(pod: &PodSpecView, claim: &Contribution) -> Uid {
    let Source { api_group, kind, name, uid } = &claim.source;
    uid.clone().unwrap_or_else(|| Uid::from(format!("{api_group} {kind} {}/{name}", pod.namespace)))
}

/// Returns the amounts that a kube-scheduler of each generation adds for the status of the Pod.
fn published(pod: &PodSpecView) -> Box<[(Generation, Units)]> {
    let generations: BTreeSet<Generation> = pod.recorded.iter().filter_map(|claim| claim.recorded).collect();
    let read = |generation: Generation| {
        let read = pod.recorded.iter().filter(|claim| claim.recorded == Some(generation));
        (generation, added(&PodSpecView { contributions: read.cloned().collect(), ..pod.clone() }))
    };
    generations.into_iter().map(read).collect()
}

/// Returns the amounts that a kube-scheduler adds for ResourceSlices.
fn sliced(pod: &PodSpecView) -> Units {
    let known = |claim: &Contribution| Contribution {
        lines: claim.lines.iter().filter(|line| !line.local).cloned().collect(),
        ..claim.clone()
    };
    added(&PodSpecView { contributions: pod.contributions.iter().map(known).collect(), ..pod.clone() })
}

/// Returns the amounts that a kube-scheduler adds to the requests of a Pod for its claims.
fn added(pod: &PodSpecView) -> Units {
    let added = |resource: Resource| {
        // A sum that cannot be held was said when the claims were charged.
        let Parts { seen, all, .. } = parts(pod, resource, Variant::WholeLife).ok()?;
        Some((resource, units(resource, all) - units(resource, seen)))
    };
    pod.resources().filter_map(added).collect()
}

/// Charges one resource.
fn enter(
    pod: &PodSpecView,
    resource: Resource,
    variant: Variant,
    charge: &mut PodCharge,
    rare: &mut Rare,
) -> Result<(), Overflow> {
    let Parts { seen, own, all, policed } = parts(pod, resource, variant)?;
    rare.draws.extend(draws(pod, resource)?);
    let (mut sum, mut known) = (own, units(resource, own));
    let mut step = |amount: Decimal| -> Result<i64, Overflow> {
        sum = sum.checked_add(amount)?.min(all).max(own);
        let before = known;
        known = units(resource, sum);
        Ok(known - before)
    };
    // First what is charged to the claims: a Pod that shares one says all of it.
    for (claim, charge) in pod.contributions.iter().zip(&mut charge.claims) {
        charge.mapping.set(resource, step(mapping(claim, resource)?)?);
    }
    for (claim, charge) in pod.contributions.iter().zip(&mut charge.claims) {
        charge.overhead.set(resource, step(overhead(claim, resource)?)?);
    }
    // What a scheduler counts besides is charged to the Pod: overhead that is in kubelet's totals, too, or claims of which nothing
    // is known here.
    let rest = if policed { 0 } else { units(resource, all) - known };
    let taken = units(resource, own) + rest;
    charge.spec.set(resource, taken);
    if units(resource, seen) != taken {
        rare.drawn.set(resource, units(resource, seen) - taken);
    }
    Ok(())
}

fn is_for_the_claim(line: &Line) -> bool {
    matches!(line.policy, None | Some(AccountingPolicy::AddPerClaim | AccountingPolicy::ConsumeFrom))
}

fn mapping(claim: &Contribution, resource: Resource) -> Result<Decimal, Overflow> {
    let lines = claim.of(resource).filter(|line| is_for_the_claim(line));
    Decimal::checked_sum(lines.filter_map(|line| line.mapping))
}

/// At most what the use of a claim costs: how much of it really counts is up to the
/// containers.
fn overhead(claim: &Contribution, resource: Resource) -> Result<Decimal, Overflow> {
    let (named, uses) = (number(claim.containers.len())?, number(claim.containers.len().max(1))?);
    let mut sum = Decimal::ZERO;
    for line in claim.of(resource) {
        sum = sum.checked_add(line.per_pod.unwrap_or_default())?;
        sum = sum.checked_add(line.per_container.unwrap_or_default().checked_mul(named)?)?;
        if !is_for_the_claim(line) {
            sum = sum.checked_add(line.mapping.unwrap_or_default().checked_mul(uses)?)?;
        }
    }
    Ok(sum)
}

/// The draws of a Pod: one for each combination of pools that its containers name.
fn draws(pod: &PodSpecView, resource: Resource) -> Result<Vec<Draw>, Overflow> {
    let is_pool = |line: &&Line| line.policy == Some(AccountingPolicy::ConsumeFrom);
    let mut pools: Vec<(&Contribution, ObjectRef, Decimal)> = Vec::new();
    for claim in &pod.contributions {
        if claim.of(resource).any(|line| is_pool(&line)) {
            let all = claim.of(resource).filter(is_pool).filter_map(|line| line.mapping);
            pools.push((claim, object(pod, claim), Decimal::checked_sum(all)?));
        }
    }
    if pools.is_empty() {
        return Ok(Vec::new());
    }
    let mut combinations: BTreeMap<BTreeSet<&ObjectRef>, BTreeSet<&str>> = BTreeMap::new();
    for container in pod.all_containers() {
        let named = pools.iter().filter(|(claim, ..)| claim.containers.contains(&container.name));
        let named: BTreeSet<&ObjectRef> = named.map(|(_, pool, _)| pool).collect();
        if !named.is_empty() {
            combinations.entry(named).or_default().insert(&container.name);
        }
    }
    let mut draws = Vec::new();
    for (named, containers) in combinations {
        let amount = drawn(pod, resource, |container| containers.contains(&*container.name))?;
        let mut from = Vec::new();
        for pool in named {
            let pieces = pools.iter().filter(|(_, known, _)| known == pool).map(|(.., all)| *all);
            from.push((pool.clone(), units(resource, Decimal::checked_sum(pieces)?)));
        }
        draws.push(Draw { resource, amount: units(resource, amount), pools: from });
    }
    Ok(draws)
}

/// An amount as it is charged: rounded up, and at most what an `i64` holds. Nothing on a
/// computer is larger, whatever the spec of a Pod says.
pub fn units(resource: Resource, amount: Decimal) -> i64 {
    let most = i128::from(i64::MAX);
    let count = amount.rounded_up(resource.unit()).unwrap_or(most).clamp(0, most);
    i64::try_from(count).unwrap_or(i64::MAX)
}
