//! Traces that reach a collector, metrics that have a word on their page, and secrets that are told nowhere.

use anyhow::{Context as _, ensure};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};

use super::{NotRun, Standalone, standalone};
use crate::client::{EVENTS, PODS};
use crate::collector::{Collector, attribute};
use crate::control_plane::{Backend, Shape};
use crate::dragoman::{Dragoman, Start};
use crate::objects::Pod;
use crate::world::{Bench, World};

pub(super) fn alone() -> Vec<Standalone> {
    vec![
        standalone!(traces_reach_a_collector),
        standalone!(every_metric_stands_on_its_page),
        standalone!(secrets_are_told_nowhere),
    ]
}

/// Every reconciliation that sends a request is a span, and its requests are the children of the span, whatever
/// the log level. Spans that are in the buffer at the end are sent.
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
    let looks = dragoman.metric("controller_runtime_reconcile_total", &[]).await?;
    ensure!(dragoman.stop().await?.success(), "the end was not orderly");
    let spans = collector.spans();
    ensure!(spans.iter().all(|(service, _)| service == "dragoman"), "{spans:?}");
    let created = spans.iter().map(|(_, span)| span).find(|span| {
        attribute(span, "http.request.method").as_deref() == Some("POST")
            && attribute(span, "kind").as_deref() == Some("ResourceClaim")
    });
    let created =
        created.with_context(|| format!("no span of the claim's creation among {}", spans.len()))?;
    let parent = spans.iter().map(|(_, span)| span).find(|span| span.span_id == created.parent_span_id);
    let parent = parent.context("the request has no parent")?;
    ensure!(parent.name == "reconcile" && attribute(parent, "result").is_some(), "{parent:?}");
    // The budget of a life in reconciliations and writes, which does not depend on the machine: watches are sent again
    // after a while.
    let count = |mine: &dyn Fn(&Span) -> bool| spans.iter().filter(|(_, span)| mine(span)).count();
    let requests = |kind: &str| {
        count(&|span| {
            attribute(span, "http.request.method").is_some_and(|method| method != "GET")
                && attribute(span, "kind").as_deref() == Some(kind)
        })
    };
    let working = count(&|span| span.name == "reconcile");
    let (claim, pod) = (requests("ResourceClaim"), requests("Pod"));
    println!(
        "        {working} reconciliations with a request, {claim} writes of the claim, {pod} of the Pod"
    );
    ensure!(working <= claim + pod, "{working} reconciliations, some without a request");
    ensure!(looks <= MOST_LOOKS, "{looks} looks at the objects of one life");
    // Four writes of the claim and one of the Pod, and room for two conflicts of each.
    ensure!(claim <= 4 + 2 && pod <= 1 + 2, "{claim} writes of the claim, {pod} of the Pod");
    world.stop().await
}

/// The most reconciliations of Pod and claim in one life. Ten to twelve were seen: about one for each
/// relevant change of the two, and a few that waited until the index saw Dragoman's own writes.
const MOST_LOOKS: f64 = 20.0;

/// Every metric that the operator with all controllers and the allocator serve after a life stands in
/// `docs/metrics.md`, word for word.
async fn every_metric_stands_on_its_page(bench: &Bench) -> anyhow::Result<()> {
    if bench.backend == Backend::Sim {
        return Err(NotRun("simcluster has no admission policies".to_owned()).into());
    }
    let world = World::start(bench, "metrics", Shape::default(), 1, 1).await?;
    let page =
        std::fs::read_to_string(bench.repository.join("docs/metrics.md")).context("docs/metrics.md")?;
    let flags = ["--controllers=*,gates,holders", "--default-allocator=dragoman"];
    world.install("config/gated").await?;
    let operator = world.dragoman("own", &flags).await?;
    let allocator = world.allocator(&[]).await?;
    let ns = world.namespace("metrics").await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "one")).await?;
    world.phase(&ns, "pod", "Succeeded").await?;
    world.claims(&ns, 0).await?;
    let (mut served, mut unknown) = (0, Vec::new());
    for text in [operator.metrics().await?, allocator.metrics().await?] {
        for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
            let (name, help) = line.split_once(' ').context("help")?;
            let name = name.strip_suffix("_total").or_else(|| name.strip_suffix("_info")).unwrap_or(name);
            // The registry puts a full stop behind the help.
            let row = |name: &str| format!("| `{name}` | {} |", help.trim_end_matches('.'));
            let is_there = page.contains(&row(name)) || page.contains(&row(&format!("{name}_info")));
            unknown.extend((!is_there).then(|| row(name)));
            served += 1;
        }
    }
    ensure!(served > 60, "only {served} metrics are served");
    ensure!(unknown.is_empty(), "docs/metrics.md lacks:\n{}", unknown.join("\n"));
    println!("        {served} metrics are served");
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// The operator runs with the token of its service account, and its log says everything that a log can say. Neither the token nor what
/// a tenant wrote into the environment of a container stands in log, metrics, dump or Events.
async fn secrets_are_told_nowhere(bench: &Bench) -> anyhow::Result<()> {
    const OF_TENANT: &str = "hunter2-of-the-tenant";
    if bench.backend == Backend::Sim {
        return Err(NotRun("the stand-ins have no tokens of service accounts".to_owned()).into());
    }
    let world = World::start(bench, "secrets", Shape::default(), 1, 1).await?;
    let asked = ["create", "token", "dragoman", "--namespace", "kube-system"];
    let token = world.plane.kubectl(&asked, "").await?.map_err(anyhow::Error::msg)?;
    let token = token.trim();
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(world.plane.kubeconfig("operator"))?)?;
    config["users"][0]["user"] = json!({"token": token});
    let kubeconfig = world.plane.kubeconfig("operator-by-token");
    std::fs::write(&kubeconfig, config.to_string())?;
    let start = Start { log: "trace", ..world.start_of(kubeconfig, "own", &[]) };
    let dragoman = Dragoman::start(&start).await?;
    let ns = world.namespace("secrets").await?;
    let mut pod = Pod::new("pod").with_template("gpu", "one").object().clone();
    pod["spec"]["containers"][0]["env"] = json!([{"name": "PASSWORD", "value": OF_TENANT}]);
    world.client.create(PODS, &ns, &pod).await?;
    // A Pod that is told about in an Event.
    let mut lacking = Pod::new("lacking").with_template("gpu", "nowhere").object().clone();
    lacking["spec"]["containers"][0]["env"] = pod["spec"]["containers"][0]["env"].clone();
    world.client.create(PODS, &ns, &lacking).await?;
    world.phase(&ns, "pod", "Succeeded").await?;
    world.event(&ns, "lacking", "FailedResourceClaimCreation").await?;
    let events = Value::from(world.client.list(EVENTS, &ns).await?).to_string();
    let (metrics, dump) = (dragoman.metrics().await?, dragoman.dump().await?);
    let log = dragoman.log();
    ensure!(dragoman.stop().await?.success(), "the end was not orderly");
    ensure!(log.contains("pod") && dump.contains("pods:") && events.contains("lacking"), "nothing was told");
    // The signature is what makes a token one.
    let signature = token.rsplit('.').next().context("a token")?;
    for (place, text) in [("log", &log), ("metrics", &metrics), ("dump", &dump), ("Events", &events)] {
        for secret in [signature, OF_TENANT] {
            ensure!(!text.contains(secret), "{secret} stands in the {place}");
        }
    }
    println!("        {} MiB of log, and no secret in it", log.len() >> 20);
    world.stop().await
}
