//! What people see of us from outside the cluster's API.

use anyhow::{Context as _, ensure};
use opentelemetry_proto::tonic::trace::v1::Span;

use super::{Standalone, standalone};
use crate::collector::{Collector, attribute};
use crate::control_plane::Shape;
use crate::dragoman::{Dragoman, Start};
use crate::objects::Pod;
use crate::world::{Bench, PATIENCE, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![standalone!(traces_reach_a_collector)]
}

/// Every reconciliation is a span, and the requests it makes are its children. The
/// log level has no say in that. What is still in the buffer at the end is sent.
async fn traces_reach_a_collector(bench: &Bench) -> anyhow::Result<()> {
    let world = World::start(bench, "traces", Shape::default(), 1, 1).await?;
    let collector = Collector::start().await?;
    let endpoint = collector.endpoint();
    let flags = ["--otlp-endpoint", &endpoint];
    let start = world.start_of(world.plane.kubeconfig("operator"), "own", &flags);
    let dragoman = Dragoman::start(&Start { log: "error", ..start }).await?;
    let ns = world.namespace("traces").await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "one")).await?;
    world.phase(&ns, "pod", "Succeeded").await?;
    world.claims(&ns, 0).await?;
    world.rest(&ns).await?;
    let stopped = std::time::Instant::now();
    ensure!(dragoman.stop().await?.success(), "the end was not orderly");
    ensure!(stopped.elapsed() < PATIENCE / 4, "it hung on its traces");
    let spans = collector.spans();
    ensure!(spans.iter().all(|(service, _)| service == "dragoman"), "{spans:?}");
    let created = spans.iter().map(|(_, span)| span).find(|span| {
        span.name == "request"
            && attribute(span, "http.request.method").as_deref() == Some("POST")
            && attribute(span, "kind").as_deref() == Some("ResourceClaim")
    });
    let created =
        created.with_context(|| format!("no span of the claim's creation among {}", spans.len()))?;
    let parent = spans.iter().map(|(_, span)| span).find(|span| span.span_id == created.parent_span_id);
    let parent = parent.context("the request has no parent")?;
    ensure!(parent.name == "reconcile" && attribute(parent, "result").is_some(), "{parent:?}");
    // The budget of a life: what it may cost us in looks and in requests, whatever the
    // machine. Five requests are its writes; what is left is the Lease and our rights.
    let count = |kind: Option<&str>, name: &str| {
        let mine =
            |s: &&Span| s.name == name && kind.is_none_or(|k| attribute(s, "kind").as_deref() == Some(k));
        spans.iter().map(|(_, span)| span).filter(mine).count()
    };
    let (looks, claim, pod) =
        (count(None, "reconcile"), count(Some("ResourceClaim"), "request"), count(Some("Pod"), "request"));
    println!("        {looks} looks, {claim} requests about the claim, {pod} about the Pod");
    ensure!(looks <= MOST_LOOKS, "{looks} looks at the objects of one life");
    // Four writes of the claim and one of the Pod, discovery before each list and watch,
    // and room for two that meet a conflict.
    ensure!(claim <= 4 + 2 + 2 && pod <= 1 + 2 + 2, "{claim} requests about the claim, {pod} about the Pod");
    world.stop().await
}

/// Looks at Pod and claim in one life: ten to twelve were seen, about one for each change
/// of the two that matters and a few that had to wait for our own writes to come back.
const MOST_LOOKS: usize = 20;
