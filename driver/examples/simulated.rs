//! A driver of simulated accelerators: memory in shares, halves of a whole, and pinned cpus that it takes of its node. What an author of a
//! driver writes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::Parser;
use dragoman_driver::{
    Allocated, Attribute, Capacity, Claim, ClaimReference, ConsumedCounters, ContainerEdits, CounterSet,
    Device, Driver, Health, Healthy, NodeAllocatable, Options, Pool, Taint, run,
};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

const NAME: &str = "simulated.dragoman.dev";

/// A driver of simulated accelerators.
#[derive(Parser)]
struct Flags {
    /// Name of the Node.
    #[arg(long, env = "NODE_NAME")]
    node: String,
    /// Number of accelerators.
    #[arg(long, env = "DEVICES", default_value_t = 4)]
    devices: usize,
    /// So many of them, the last ones, can be had in shares.
    #[arg(long, env = "SHARED", default_value_t = 0)]
    shared: usize,
    /// So many of them, the first ones, can be had in halves: the whole and its halves share counters.
    #[arg(long, env = "SPLIT", default_value_t = 0)]
    split: usize,
    /// cpus that each of them takes of the node.
    #[arg(long, env = "CPUS", default_value = "0")]
    cpus: String,
    /// A file that names broken accelerators, one in a line.
    #[arg(long, env = "BROKEN")]
    broken: Option<PathBuf>,
    /// kubelet's folder.
    #[arg(long, env = "KUBELET", default_value = "/var/lib/kubelet")]
    kubelet: PathBuf,
    /// Where /metrics is served.
    #[arg(long, env = "ADMIN_ADDRESS")]
    admin_address: Option<std::net::SocketAddr>,
    /// Withdraw the ResourceSlices at the end.
    #[arg(long)]
    withdraw: bool,
}

/// Fields that `opaque.parameters` of a claim may have.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    /// Mode of the accelerator, as containers see it.
    mode: String,
}

struct Simulated {
    devices: watch::Receiver<Vec<Pool>>,
    health: watch::Receiver<Vec<Health>>,
}

impl Driver for Simulated {
    fn devices(&self) -> watch::Receiver<Vec<Pool>> {
        self.devices.clone()
    }

    async fn prepare(&self, claim: &Claim, results: &[Allocated]) -> anyhow::Result<Vec<ContainerEdits>> {
        let mut all = Vec::new();
        for of in results {
            let is_there = self.devices.borrow().iter().any(|pool| {
                pool.name == of.pool && pool.devices.iter().any(|device| device.name == of.device)
            });
            ensure!(
                is_there,
                "{} has accelerator {}/{}, which does not exist",
                claim.reference,
                of.pool,
                of.device
            );
            let mut mode = "plain".to_owned();
            for config in &of.config {
                mode = config.decoded::<Parameters>()?.mode;
            }
            let name = of.device.to_uppercase().replace('-', "_");
            let memory = of.consumed_capacity.get("memory").map_or("all", |memory| memory);
            let env = [(format!("{name}_MODE"), mode), (format!("{name}_MEMORY"), memory.to_owned())];
            all.push(ContainerEdits { env: BTreeMap::from(env), ..ContainerEdits::default() });
        }
        Ok(all)
    }

    async fn unprepare(&self, _: &ClaimReference) -> anyhow::Result<()> {
        Ok(())
    }

    fn health(&self) -> watch::Receiver<Vec<Health>> {
        self.health.clone()
    }
}

/// The accelerators of a node; `broken` are some of them.
fn pool(flags: &Flags, broken: &[&str]) -> Pool {
    let device = |number: usize| {
        let name = format!("accelerator-{number}");
        let taint =
            Taint { key: format!("{NAME}/broken"), effect: "NoExecute".to_owned(), ..Taint::default() };
        let text = |text: &str| Attribute::String(text.to_owned());
        let policy = json!({"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}});
        let cpus = (flags.cpus != "0").then(|| NodeAllocatable::PerDevice(flags.cpus.clone()));
        Device {
            taints: if broken.contains(&&*name) { vec![taint] } else { Vec::new() },
            attributes: BTreeMap::from([
                ("model".to_owned(), text("simulated-1")),
                ("uuid".to_owned(), text(&format!("{}-{number}", flags.node))),
                ("resource.kubernetes.io/pciBusID".to_owned(), text(&format!("0000:{number:02x}:00.0"))),
            ]),
            capacity: BTreeMap::from([(
                "memory".to_owned(),
                Capacity { request_policy: Some(policy), ..Capacity::of("8Gi") },
            )]),
            allow_multiple_allocations: number + flags.shared >= flags.devices,
            node_allocatable: cpus.map(|cpus| ("cpu".to_owned(), cpus)).into_iter().collect(),
            name,
            ..Device::default()
        }
    };
    let mut devices: Vec<Device> = (0..flags.devices).map(device).collect();
    // Only a device that is shared has rules about shares.
    devices.iter_mut().filter(|device| !device.allow_multiple_allocations).for_each(|device| {
        device.capacity.values_mut().for_each(|capacity| capacity.request_policy = None);
    });
    let wholes: Vec<Device> = devices.iter().take(flags.split).cloned().collect();
    devices
        .iter_mut()
        .take(flags.split)
        .for_each(|whole| whole.consumes_counters = takes(&whole.name, "8Gi"));
    for (whole, half) in wholes.iter().flat_map(|whole| [(whole, 0), (whole, 1)]) {
        let mut half = Device { name: format!("{}-half-{half}", whole.name), ..whole.clone() };
        half.capacity.insert("memory".to_owned(), Capacity::of("4Gi"));
        half.consumes_counters = takes(&whole.name, "4Gi");
        devices.push(half);
    }
    let counters =
        wholes.iter().map(|whole| CounterSet { name: whole.name.clone(), counters: memory("8Gi") });
    Pool { name: flags.node.clone(), shared_counters: counters.collect(), devices }
}

fn memory(amount: &str) -> BTreeMap<String, Capacity> {
    BTreeMap::from([("memory".to_owned(), Capacity::of(amount))])
}

fn takes(set: &str, amount: &str) -> Vec<ConsumedCounters> {
    vec![ConsumedCounters { counter_set: set.to_owned(), counters: memory(amount) }]
}

fn health(pool: &Pool) -> Vec<Health> {
    let of = |device: &Device| Health {
        pool: pool.name.clone(),
        device: device.name.clone(),
        healthy: if device.taints.is_empty() { Healthy::Yes } else { Healthy::No },
        message: if device.taints.is_empty() { String::new() } else { "it is broken".to_owned() },
    };
    pool.devices.iter().map(of).collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).init();
    let flags = Flags::parse();
    let first = pool(&flags, &[]);
    let (health_of, told) = watch::channel(health(&first));
    let (devices_of, devices) = watch::channel(vec![first]);
    let mut options = Options::new(NAME, &flags.node);
    (options.kubelet, options.admin_address, options.withdraw) =
        (flags.kubelet.clone(), flags.admin_address, flags.withdraw);
    tokio::spawn(async move {
        loop {
            let text =
                flags.broken.as_ref().map(std::fs::read_to_string).and_then(Result::ok).unwrap_or_default();
            let now = pool(&flags, &text.lines().collect::<Vec<_>>());
            health_of.send_if_modified(|before| std::mem::replace(before, health(&now)) != *before);
            devices_of.send_if_modified(|before| std::mem::replace(before, vec![now]) != *before);
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    });
    let client = kube::Client::try_default().await.context("no API server")?;
    run(Simulated { devices, health: told }, options, client).await
}
