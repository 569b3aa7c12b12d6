//! `dragoman drain`: leave nothing behind that needs us.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use dragoman_crds::crdgen::GROUP;
use dragoman_crds::node_allocatable_dra_claim_state::NodeAllocatableDRAClaimState;
use dragoman_machinery::api::{Api, Call, Limits, Live, decode};
use dragoman_machinery::connect::connect;
use dragoman_machinery::discovery::Discovery;
use dragoman_machinery::kind::{
    DEPLOYMENT, Kind, LEASE, NODE_ALLOCATABLE_DRA_CLAIM_STATE, POD, RESOURCE_CLAIM, Watchable,
};
use dragoman_machinery::lease::live_holder;
use dragoman_machinery::metrics::MachineryMetrics;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::rights::Rule;
use dragoman_machinery::watch::{Failure, Item, Selectors, Source as _, WatchClient, Watched};
use dragoman_machinery::write::{Action, Guard, Write};
use dragoman_objects::{self as objects, Meta, Object};
use dragoman_reconcilers::claim_lifecycle::drain::{Claim, DrainAction, action};
use dragoman_reconcilers::holders;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::config::ClusterFlags;
use crate::controllers::{ALLOCATOR_LEASE, LEASE_NAME, may_own};

/// Flags of `dragoman drain`.
#[derive(Debug, Args)]
pub(crate) struct DrainFlags {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Namespace of the Lease that a running dragoman holds.
    #[arg(long, default_value = "kube-system")]
    namespace: String,
    /// Deployments of that namespace, separated by commas, that are scaled to zero first.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    scale_down: Vec<String>,
}

/// Rights that the command needs in every namespace.
pub(crate) const RIGHTS: &[Rule] = &[
    Rule {
        group: "resource.k8s.io",
        resource: "resourceclaims",
        verbs: &["get", "list", "patch", "update"],
        why: "remove the finalizer of claims that nothing holds",
    },
    Rule {
        group: GROUP,
        resource: "nodeallocatabledraclaimstates",
        verbs: &["list", "delete"],
        why: "ledgers that are not kept any more",
    },
    Rule { group: "", resource: "pods", verbs: &["list"], why: "holder Pods" },
];

/// Rights that the command needs in the namespace of the operator: these for the operator's own Leases
/// only, [`OF_DEPLOYMENTS`] for its own Deployments only, [`OF_PODS`] for all Pods there.
pub(crate) const OF_LEASES: &[Rule] = &[Rule {
    group: "coordination.k8s.io",
    resource: "leases",
    verbs: &["get", "delete"],
    why: "see whether dragoman runs; remove a Lease that nothing holds",
}];
/// See [`OF_LEASES`].
pub(crate) const OF_DEPLOYMENTS: &[Rule] = &[Rule {
    group: "apps",
    resource: "deployments/scale",
    verbs: &["get", "patch"],
    why: "scale dragoman to zero",
}];
/// See [`OF_LEASES`].
pub(crate) const OF_PODS: &[Rule] =
    &[Rule { group: "", resource: "pods", verbs: &["delete"], why: "holder Pods" }];

/// A Pod has 75 seconds to give its Lease up, and a Lease that was not given up runs out after 15.
const STOPS_WITHIN: Duration = Duration::from_mins(2);
/// Most repeated looks at objects that changed between reading and writing.
const AGAIN: usize = 5;
/// Interval between looks at the Lease meanwhile, and between attempts to scale a Deployment.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct PartialObjectMetadata {
    metadata: Meta,
}

/// The cluster that is left.
struct Cluster {
    api: Api,
    watch: WatchClient,
    discovery: Discovery,
    metrics: MachineryMetrics,
    /// Namespace of the operator.
    namespace: String,
}

/// Outcome for a kind of leftovers.
#[derive(Default)]
struct Report {
    /// Number of the objects that were freed or removed, or were gone already.
    done: usize,
    /// A line for each of the others.
    others: Vec<String>,
    /// Number of the failures among `others`.
    failed: usize,
    /// The objects that changed between reading and writing.
    changed: Vec<String>,
}

impl Report {
    fn take(&mut self, name: &str, outcome: Result<impl Sized, Refusal>) {
        match outcome {
            Ok(_) | Err(Refusal::NotFound | Refusal::Replaced) => self.done += 1,
            Err(Refusal::Conflict) => self.changed.push(name.to_owned()),
            Err(refusal) => {
                self.failed += 1;
                self.others.push(format!("failed: {name}: {refusal}"));
            }
        }
    }
}

/// Removes the delete-protection finalizer from every claim that nothing holds and lists the others. Where no
/// dragoman runs any more, ledgers and holder Pods go, too.
///
/// # Errors
/// Dragoman runs in mode own and would protect claims again, the cluster cannot be read, or something could not
/// be changed.
pub(crate) async fn drain(flags: &DrainFlags) -> anyhow::Result<()> {
    let mut registry = Registry::default();
    let clients = connect(flags.cluster.kubeconfig.as_deref(), Limits::default(), &mut registry).await?;
    let cluster = Cluster {
        discovery: Discovery::new(clients.api.clone()),
        metrics: MachineryMetrics::register(&mut registry),
        namespace: flags.namespace.clone(),
        api: clients.api,
        watch: clients.watch,
    };
    for name in &flags.scale_down {
        cluster.scale_down(name).await.with_context(|| format!("Deployment {}/{name}", flags.namespace))?;
    }
    let holder = cluster.holder(!flags.scale_down.is_empty()).await?;
    if let Some(holder) = holder.as_deref().filter(|holder| may_own(holder)) {
        bail!(
            "dragoman runs: {holder} renews the Lease {}/{LEASE_NAME}. It would make protected claims while this \
             command removes finalizers: scale its Deployment to zero first (--scale-down), or run it in another mode",
            flags.namespace
        );
    }
    let claims = again(async || cluster.free_claims().await).await?;
    let mut text = format!("finalizer removed from {} claims\n", claims.done);
    let (mut failed, mut others) = (claims.failed, claims.others);
    if let Some(holder) = &holder {
        text.push_str(&format!("ledgers and holder Pods stay: {holder} keeps them\n"));
    } else {
        cluster.remove_leases().await?;
        let ledgers = again(async || cluster.remove_ledgers().await).await?;
        let pods = again(async || cluster.remove_holders().await).await?;
        text.push_str(&format!("removed {} ledgers of nodes and {} holder Pods\n", ledgers.done, pods.done));
        failed += ledgers.failed + pods.failed;
        others.extend(ledgers.others.into_iter().chain(pods.others));
    }
    others.iter().for_each(|line| text.push_str(&format!("{line}\n")));
    crate::print(&text)?;
    // What was made by a leader that came meanwhile may have been missed.
    let came = live_holder(&cluster.api, &flags.namespace, LEASE_NAME).await.context("the Lease")?;
    if let Some(came) = came.filter(|came| may_own(came) || holder.is_none()) {
        bail!("dragoman was started meanwhile ({came}): run drain again when it is down");
    }
    anyhow::ensure!(failed == 0, "{failed} objects could not be changed; run drain again");
    Ok(())
}

/// Looks at leftovers until none has changed between reading and writing. A user who changes an object again and again
/// keeps that one, and does not make the whole fail.
async fn again(look: impl AsyncFn() -> anyhow::Result<Report>) -> anyhow::Result<Report> {
    let mut report = look().await?;
    for _ in 0..AGAIN {
        if report.changed.is_empty() {
            break;
        }
        let done = report.done;
        report = look().await?;
        report.done += done;
    }
    let changed = std::mem::take(&mut report.changed);
    report.others.extend(changed.into_iter().map(|name| format!("changes again and again: {name}")));
    Ok(report)
}

impl Cluster {
    /// The holder of the Lease. One that is being stopped is given the time to give it up.
    async fn holder(&self, is_stopped: bool) -> anyhow::Result<Option<String>> {
        let end = Instant::now() + STOPS_WITHIN;
        loop {
            let holder = live_holder(&self.api, &self.namespace, LEASE_NAME).await.with_context(|| {
                format!("cannot tell from the Lease {}/{LEASE_NAME} whether dragoman runs", self.namespace)
            })?;
            if holder.is_none() || !is_stopped || Instant::now() >= end {
                return Ok(holder);
            }
            sleep(LOOK).await;
        }
    }

    /// Scales a Deployment to zero. One that does not exist has no Pods. The right to change the Deployment itself would be one to run
    /// any image in the namespace of the system.
    async fn scale_down(&self, name: &str) -> anyhow::Result<()> {
        let scale = Some("scale");
        loop {
            let path = DEPLOYMENT.object_path(&self.namespace, name, scale);
            let body = match self.api.send(&Call::get(DEPLOYMENT, path, name)).await {
                Ok(body) => body,
                Err(Refusal::NotFound) => return Ok(()),
                Err(other) => return Err(other.into()),
            };
            let guard = Guard::of(&decode::<PartialObjectMetadata>(&body)?.metadata);
            // A Scale of zero has no such field.
            let operations = vec![json!({"op": "add", "path": "/spec/replicas", "value": 0})];
            let action = Action::Patch { subresource: scale, guard, operations };
            match self.send(DEPLOYMENT, &self.namespace, name, action).await {
                // Its controller writes its status again and again.
                Err(Refusal::Conflict) => sleep(LOOK).await,
                outcome => return outcome.map_err(anyhow::Error::from),
            }
        }
    }

    async fn free_claims(&self) -> anyhow::Result<Report> {
        let mut report = Report::default();
        self.each::<objects::ResourceClaim>(RESOURCE_CLAIM, "", async |item| {
            let name = format!("{}/{}", item.meta().namespace, item.meta().name);
            let Item::Readable(claim) = item else {
                report.others.push(format!("does not decode: {name}"));
                return;
            };
            match action(&Claim::from(claim)) {
                DrainAction::Unprotected => {}
                DrainAction::Held(by) => report.others.push(format!("still held: {name}: {by}")),
                DrainAction::Free(write) => report.take(&name, write.send(&self.api, &self.metrics).await),
            }
        })
        .await?;
        Ok(report)
    }

    /// Removes the Leases that no process holds: an empty one is of no use to the next installation.
    async fn remove_leases(&self) -> anyhow::Result<()> {
        for name in [LEASE_NAME, ALLOCATOR_LEASE] {
            let lease = || format!("Lease {}/{name}", self.namespace);
            let body = match self.api.read(LEASE, &self.namespace, name).await.with_context(lease)? {
                Live::Found(body) => body,
                Live::NotFound => continue,
            };
            let meta = decode::<PartialObjectMetadata>(&body).with_context(lease)?.metadata;
            if live_holder(&self.api, &self.namespace, name).await.with_context(lease)?.is_none() {
                match self.remove(LEASE, &meta).await {
                    // Renewed meanwhile: it is in use.
                    Ok(()) | Err(Refusal::NotFound | Refusal::Replaced | Refusal::Conflict) => {}
                    Err(refusal) => return Err(refusal).with_context(lease),
                }
            }
        }
        Ok(())
    }

    async fn remove_ledgers(&self) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let kind = NODE_ALLOCATABLE_DRA_CLAIM_STATE;
        self.each::<NodeAllocatableDRAClaimState>(kind, "", async |item| {
            let meta = item.meta();
            report.take(&format!("ledger of {}", meta.name), self.remove(kind, meta).await);
        })
        .await?;
        Ok(report)
    }

    async fn remove_holders(&self) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let (key, value) = holders::COMPONENT;
        self.each::<objects::Pod>(POD, &format!("{key}={value}"), async |item| {
            // The label alone is no proof: tenants may set it on Pods of theirs.
            if let Item::Readable(pod) = item
                && holders::is_holder(&pod, &self.namespace)
                && pod.metadata.name.starts_with("holder-")
                && !pod.metadata.deleting
            {
                let meta = &pod.metadata;
                report.take(&format!("holder Pod {}", meta.name), self.remove(POD, meta).await);
            }
        })
        .await?;
        Ok(report)
    }

    async fn remove(&self, kind: Kind, meta: &Meta) -> Result<(), Refusal> {
        let action = Action::Delete { guard: Guard::of(meta) };
        self.send(kind, &meta.namespace, &meta.name, action).await
    }

    async fn send(&self, kind: Kind, namespace: &str, name: &str, action: Action) -> Result<(), Refusal> {
        Write::new(kind, namespace, name, action).send(&self.api, &self.metrics).await.map(drop)
    }

    /// Calls `each` for every object of a kind that has the labels; for none where one of our kinds is not installed.
    async fn each<T: Watchable + Object>(
        &self,
        kind: Kind,
        labels: &str,
        mut each: impl AsyncFnMut(Item<T>),
    ) -> anyhow::Result<()> {
        let selectors = Selectors { labels: labels.to_owned(), ..Selectors::default() };
        let source = Watched::<T>::new(self.watch.clone(), kind, self.discovery.clone());
        let mut source = source.selecting(selectors);
        let mut page = None;
        loop {
            let mut items = Vec::new();
            let next = match source.list(page.as_deref(), |item| items.push(item)).await {
                Ok(list) => list.next,
                // Our own kinds may not be installed. That claims are not served is no proof that there are none.
                Err(Failure::Unserved) if kind.group == GROUP => return Ok(()),
                Err(failure) => return Err(failure).with_context(|| format!("cannot list {}", kind.plural)),
            };
            for item in items {
                each(item).await;
            }
            match next {
                Some(token) => page = Some(token),
                None => return Ok(()),
            }
        }
    }
}
