//! `dragoman demo`: the whole system on a laptop, and what kube-scheduler alone would do there.

#![expect(clippy::indexing_slicing, reason = "reading a field of JSON that is not there gives null")]

mod alone;
mod cluster;
mod figures;
mod gated;
mod progress;
mod seen;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::Args;
use dragoman_simcluster::{ApiServer, Listening, User};

use self::cluster::{CPUS, CPUS_OF_DEVICE, CPUS_OF_NEIGHBOUR, Cluster, DEVICES, NAMESPACE, ROOM};

/// Flags of `dragoman demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoFlags {
    /// Pods that live through their lives, each with a claim from a template.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pods: u32,
    /// Simulated nodes with eight devices each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes: u32,
    /// Serve the API here while it runs and until it is stopped, for kubectl; port 0 is any.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Allow an address in --listen that is not on loopback.
    #[arg(long)]
    allow_remote: bool,
    /// Run the cluster alone, without Pods, operator and allocator: a place to try an allocator of your own, by hand or
    /// with `dragoman conformance`. It serves the API until it is stopped.
    #[arg(long, conflicts_with = "pods")]
    sandbox: bool,
    /// Seed for all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Reads an address with a port.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "it has to be ADDRESS:PORT, for example 127.0.0.1:0 for any port".to_owned())
}

/// Where a sandbox listens unless --listen says so.
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Prints a line.
fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("stdout")
}

/// Runs it.
///
/// # Errors
/// The address of --listen is of no use, or something is left over at the end.
pub(crate) async fn demo(flags: &DemoFlags) -> anyhow::Result<()> {
    tokio::select! {
        outcome = shown(flags) => outcome,
        stopped = tokio::signal::ctrl_c() => {
            stopped.context("signal")?;
            say("\nstopped: nothing is left, because everything ran in this process")
        }
    }
}

async fn shown(flags: &DemoFlags) -> anyhow::Result<()> {
    if flags.sandbox {
        return sandbox(flags).await;
    }
    let (pods, nodes) = (flags.pods as usize, flags.nodes as usize);
    say(&format!(
        "{nodes} nodes of {CPUS} cpus with {DEVICES} devices each. A device takes {CPUS_OF_DEVICE} cpus of its node, so \
         that {ROOM} of them have room, {} on all nodes.\n{pods} Pods, each with a claim from a template for one device, and between \
         them {} ordinary Pods of neighbours, with {CPUS_OF_NEIGHBOUR} cpus each.\n",
        nodes * ROOM,
        cluster::neighbours(flags.pods)
    ))?;
    say(&alone::sentence(&alone::run(flags).await?))?;
    gated::run(flags).await
}

/// Runs the cluster alone until it is stopped.
async fn sandbox(flags: &DemoFlags) -> anyhow::Result<()> {
    let cluster = Cluster::start(flags.nodes, flags.seed);
    let path = listen(cluster.server(), flags.listen.unwrap_or(ANY_PORT), flags.allow_remote).await?;
    say(&format!(
        "A cluster of {} nodes without operator and allocator, with kube-scheduler's, kubelet's and a driver's stand-ins.\n\
         look:                 kubectl --kubeconfig {path} -n {NAMESPACE} get resourceslices,pods\n\
         judge an allocator:   dragoman conformance --allocator NAME --kubeconfig {path}\n\
         run ours:             dragoman allocator --kubeconfig {path}\n\
         It is served until you press Ctrl-C.",
        flags.nodes
    ))?;
    std::future::pending().await
}

/// The file of a kubeconfig; it goes when this is dropped, because its cluster goes then.
struct KubeconfigFile(PathBuf);

impl Drop for KubeconfigFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

impl std::fmt::Display for KubeconfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.display().fmt(f)
    }
}

/// Opens the port, and writes a kubeconfig for it.
async fn listen(
    server: &ApiServer,
    address: SocketAddr,
    allow_remote: bool,
) -> anyhow::Result<KubeconfigFile> {
    let listening = Listening::open(server.clone(), address, allow_remote, &[User::admin()]).await;
    let listening = listening.context("--listen")?;
    let kubeconfig = listening.kubeconfig("admin").context("kubeconfig")?;
    let path = std::env::temp_dir().join(format!("dragoman-demo-{}.kubeconfig", listening.address().port()));
    let mut options = std::fs::OpenOptions::new();
    // One of an earlier demo; whatever else is there is not written into.
    std::fs::remove_file(&path).ok();
    options.write(true).create_new(true);
    // It holds a token.
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&path).with_context(|| path.display().to_string())?;
    file.write_all(kubeconfig.to_string().as_bytes()).context("kubeconfig")?;
    tokio::spawn(listening.serve());
    Ok(KubeconfigFile(path))
}

/// Fails where claims are left over.
fn nothing_is_left(cluster: &Cluster) -> anyhow::Result<()> {
    let left = cluster.claims();
    ensure!(left == 0, "{left} claims are left over");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// README promises this of the demo. The second part fails where a node takes more than it has.
    #[tokio::test]
    async fn kube_scheduler_alone_overcommits_nodes_and_the_gate_does_not() {
        let flags =
            DemoFlags { pods: 40, nodes: 2, listen: None, allow_remote: false, sandbox: false, seed: 1 };
        let alone = alone::run(&flags).await.expect("it runs");
        assert!(alone.nodes_with_more_than(CPUS) > 0, "{}", alone::sentence(&alone));
        gated::run(&flags).await.expect("no node is over, and nothing is left");
    }
}
