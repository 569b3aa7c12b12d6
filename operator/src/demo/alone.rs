//! The first part: kube-scheduler alone, which knows devices and not what they take from their node.

use std::time::Duration;

use anyhow::bail;

use super::DemoFlags;
use super::cluster::{CPUS, Cluster, DEVICES};
use super::figures::Fullest;
use crate::simulated;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(50);

/// Runs the Pods until as many run at once as there are devices; returns the fullest moments of the nodes. Dragoman makes
/// their claims from the template, in place of kube-controller-manager, and does nothing else.
///
/// # Errors
/// A part of the operator has ended.
pub(super) async fn run(flags: &DemoFlags) -> anyhow::Result<Fullest> {
    let cluster = Cluster::start(flags.nodes, flags.seed);
    let mut operator = simulated::dragoman(cluster.server());
    cluster.create_pods(flags.pods, false).await;
    let pods = flags.pods as usize;
    let most = pods.min(flags.nodes as usize * DEVICES);
    let full = async {
        loop {
            let phases = cluster.phases();
            if phases.running >= most || phases.ended(pods) >= pods {
                return;
            }
            tokio::time::sleep(EVERY).await;
        }
    };
    tokio::select! {
        () = full => {}
        () = operator.ended() => bail!("a part of the operator has ended"),
    }
    Ok(Fullest::of(&cluster.server().chronicled(0)))
}

/// Returns a sentence about the Pods that ran at once, and how far they overcommitted the nodes.
pub(super) fn sentence(fullest: &Fullest) -> String {
    let Some((node, load)) = fullest.node() else { return "1. kube-scheduler alone ran no Pod\n".to_owned() };
    let taken = load.cpus();
    let over = match taken.checked_sub(CPUS) {
        Some(over @ 1..) => format!("{over} more than it has"),
        _ => "which it has: try more Pods".to_owned(),
    };
    format!(
        "1. kube-scheduler alone\n   {} of the Pods run at once. It counts devices, and not what they take from their node:\n   \
         {} on {node} take {taken} of its {CPUS} cpus, {over}; {} of {} nodes are over.\n",
        fullest.at_once(),
        load.words(),
        fullest.nodes_with_more_than(CPUS),
        fullest.nodes()
    )
}
