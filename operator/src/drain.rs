//! `dragoman drain`: leave nothing behind that needs us.

use anyhow::{Context as _, bail};
use clap::Args;
use dragoman_crds::wire;
use dragoman_machinery::api::Limits;
use dragoman_machinery::connect::connect;
use dragoman_machinery::discovery::Discovery;
use dragoman_machinery::kind::RESOURCE_CLAIM;
use dragoman_machinery::lease::live_holder;
use dragoman_machinery::metrics::MachineryMetrics;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::watch::{Item, Source as _, Watched};
use dragoman_reconcilers::claim_lifecycle::drain::{Claim, DrainAction, action};
use prometheus_client::registry::Registry;

use crate::config::ClusterFlags;
use crate::controllers::{LEASE_NAME, may_own};

/// Flags of `dragoman drain`.
#[derive(Debug, Args)]
pub(crate) struct DrainFlags {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Namespace of the Lease that a running dragoman holds.
    #[arg(long, default_value = "kube-system")]
    namespace: String,
}

/// Removes the delete-protection finalizer from every claim that nothing holds and
/// lists the others.
///
/// # Errors
/// Dragoman runs in mode own and would protect claims again, the cluster cannot be read, or a claim
/// could not be changed.
pub(crate) async fn drain(flags: &DrainFlags) -> anyhow::Result<()> {
    let mut registry = Registry::default();
    let clients = connect(flags.cluster.kubeconfig.as_deref(), Limits::default(), &mut registry).await?;
    let lease = format!("{}/{LEASE_NAME}", flags.namespace);
    let holder = live_holder(&clients.api, &flags.namespace, LEASE_NAME).await;
    let holder =
        holder.with_context(|| format!("cannot tell from the Lease {lease} whether dragoman runs"))?;
    if let Some(holder) = holder.filter(|holder| may_own(holder)) {
        bail!(
            "dragoman runs: {holder} renews the Lease {lease}. It would make protected claims while this \
             command removes finalizers: scale its Deployment to zero first, or run it in another mode"
        );
    }
    let metrics = MachineryMetrics::register(&mut registry);
    let discovery = Discovery::new(clients.api.clone());
    let mut source = Watched::<wire::ResourceClaim>::new(clients.watch, RESOURCE_CLAIM, discovery);
    let (mut freed, mut held, mut unreadable, mut failed) = (0, Vec::new(), Vec::new(), Vec::new());
    let mut page = None;
    loop {
        let mut items = Vec::new();
        let each = |item| items.push(item);
        let list = source.list(page.as_deref(), each).await.context("cannot list claims")?;
        for item in items {
            let name = format!("{}/{}", item.meta().namespace, item.meta().name);
            let Item::Readable(claim) = item else {
                unreadable.push(name);
                continue;
            };
            match action(&Claim::from(claim)) {
                DrainAction::Unprotected => {}
                DrainAction::Held(by) => held.push(format!("{name}: {by}")),
                DrainAction::Free(write) => match write.send(&clients.api, &metrics).await {
                    Ok(_) | Err(Refusal::NotFound) => freed += 1,
                    Err(refusal) => failed.push(format!("{name}: {refusal}")),
                },
            }
        }
        match list.next {
            Some(token) => page = Some(token),
            None => break,
        }
    }
    let mut text = format!("finalizer removed from {freed} claims\n");
    for (what, names) in [("still held", &held), ("does not decode", &unreadable), ("failed", &failed)] {
        for name in names {
            text.push_str(&format!("{what}: {name}\n"));
        }
    }
    crate::print(&text)?;
    // What was made by a leader that came meanwhile may have been missed.
    let holder = live_holder(&clients.api, &flags.namespace, LEASE_NAME).await.context("the Lease")?;
    if let Some(holder) = holder.filter(|holder| may_own(holder)) {
        bail!("dragoman was started meanwhile ({holder}): run drain again when it is down");
    }
    anyhow::ensure!(failed.is_empty(), "{} claims could not be changed; run drain again", failed.len());
    Ok(())
}
