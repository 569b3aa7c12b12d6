//! A live screen: pools, and the Pods that wait for claims.

use std::io::IsTerminal as _;
use std::time::Duration;

use jiff::Timestamp;

use crate::Source;
use crate::explain;
use crate::print::{Screen, print, printable};
use crate::tables;

/// The Pods of the screen: a person reads no more at once.
const PODS: usize = 15;
/// Clears a terminal.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Shows pools and waiting Pods until it is interrupted.
///
/// # Errors
/// Standard output is closed.
pub(crate) async fn run(
    source: &Source,
    namespace: Option<&str>,
    interval: u64,
    once: bool,
) -> anyhow::Result<()> {
    let screen = Screen::new(None);
    loop {
        let (pools, consumers) = (source.pools().await, source.consumers(namespace).await);
        if !once && std::io::stdout().is_terminal() {
            print(CLEAR)?;
        }
        screen.table(&tables::pools(&pools), "no driver publishes devices")?;
        let waits = |pod: &&dragoman_crds::wire::Pod| {
            &*pod.status.phase == "Pending" && !pod.spec.resource_claims.is_empty()
        };
        let waiting: Vec<_> = consumers.pods.values().filter(waits).collect();
        print(&format!("\nPods that wait with claims: {}\n", waiting.len()))?;
        let now = Timestamp::now();
        for pod in waiting.iter().take(PODS) {
            let meta = &pod.metadata;
            let age = explain::age(meta.creation_timestamp.as_deref(), now);
            print(&(printable(&format!("{}/{}   {age}", meta.namespace, meta.name)) + "\n"))?;
        }
        if once {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(interval)).await;
    }
}
