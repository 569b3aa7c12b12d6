//! The second part: the same Pods behind the gate, with operator and allocator.

use std::time::Duration;

use anyhow::{bail, ensure};
use dragoman_crds::protocol::GATE;
use dragoman_simcluster::Promises;

use super::cluster::{CPUS, Cluster, NAMESPACE};
use super::figures::{Fullest, Load, summary};
use super::progress::Progress;
use super::{DemoFlags, listen, nothing_is_left, say, seen};
use crate::simulated;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(100);

/// Runs the Pods until all have ended and their claims are gone.
///
/// # Errors
/// A node was promised more than it has, a part of Dragoman has ended, or something is left over.
pub(super) async fn run(flags: &DemoFlags) -> anyhow::Result<()> {
    let cluster = Cluster::start(flags.nodes, flags.seed);
    let kubeconfig = match flags.listen {
        Some(address) => Some(listen(cluster.server(), address, flags.allow_remote).await?),
        None => None,
    };
    say(&format!(
        "2. the same Pods behind the gate {GATE}, which opens when a claim is allocated and there is room"
    ))?;
    if let Some(path) = &kubeconfig {
        say(&format!(
            "   look with: kubectl --kubeconfig {path} -n {NAMESPACE} get pods,resourceclaims --watch\n   \
             what is taken from the nodes: kubectl --kubeconfig {path} get nadcs"
        ))?;
    }
    let [mut operator, mut allocator] = simulated::gated(cluster.server());
    cluster.create_pods(flags.pods, true).await;
    let fullest = tokio::select! {
        done = watch(&cluster, flags.pods as usize) => done?,
        () = operator.ended() => bail!("a part of the operator has ended"),
        () = allocator.ended() => bail!("a part of the allocator has ended"),
    };
    say(&format!("   {}\n", sentence(&fullest)))?;
    let server = cluster.server();
    say(&format!(
        "3. what was written, and what is left\n   {}",
        summary(&server.chronicled(0), &server.writes(0))
    ))?;
    if kubeconfig.is_some() {
        say("the API is served until you press Ctrl-C; create a Pod of your own with the template \"one\"")?;
        std::future::pending::<()>().await;
    }
    drop([operator, allocator]);
    nothing_is_left(&cluster)
}

fn sentence(fullest: &Fullest) -> String {
    let (node, load) = fullest.node().unwrap_or_else(|| ("no node", Load::default()));
    format!(
        "{} of the Pods ran at once. No node was ever over: {} on {node}, the fullest, took {} of its {CPUS} cpus.",
        fullest.at_once(),
        load.words(),
        load.cpus()
    )
}

/// Shows how far everything is until all Pods have ended and their claims are gone.
async fn watch(cluster: &Cluster, pods: usize) -> anyhow::Result<Fullest> {
    let mut progress = Progress::of(pods);
    let (mut fullest, mut promises, mut judged) = (Fullest::default(), Promises::default(), 0);
    let mut is_explained = false;
    loop {
        let history = cluster.server().chronicled(judged);
        for step in &history {
            promises.step(step);
            fullest.step(step);
        }
        judged += history.len();
        if let Some(why) = promises.broken() {
            bail!("the simulated cluster contradicts itself: {why}");
        }
        if let Some((node, load)) = fullest.node() {
            ensure!(
                load.cpus() <= CPUS,
                "{} on {node} took {} of its {CPUS} cpus",
                load.words(),
                load.cpus()
            );
        }
        let (phases, claims) = (cluster.phases(), cluster.claims());
        progress.show(phases, claims)?;
        if !is_explained
            && let Some(node) = fullest.node_now()
            && let Some(pod) = seen::waiting_pod(cluster.server())
        {
            is_explained = true;
            progress.end()?;
            say(&shown(cluster, node, &pod)?)?;
        }
        if phases.ended(pods) >= pods && claims == 0 {
            progress.end()?;
            return Ok(fullest);
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// The ledger of a node while it is full, and why a Pod waits.
fn shown(cluster: &Cluster, node: &str, pod: &str) -> anyhow::Result<String> {
    let ledger = seen::ledger(cluster.server(), node)?;
    let why = seen::explained(cluster.server(), pod)?;
    let indented = |text: &str| {
        text.lines().map(|line| format!("      {line}").trim_end().to_owned() + "\n").collect::<String>()
    };
    Ok(format!(
        "\n   the ledger of {node} now (dragoman account; kubectl get nadcs):\n{}\n   why {pod} waits (kubectl dra explain pod {pod}):\n{}",
        indented(&ledger),
        indented(&why)
    ))
}
