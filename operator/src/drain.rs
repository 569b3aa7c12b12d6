//! `dragoman drain`: leave nothing behind that needs us.

use std::io::Write as _;

use anyhow::Context as _;
use dragoman_crds::wire;
use dragoman_machinery::api::Limits;
use dragoman_machinery::connect::connect;
use dragoman_machinery::discovery::Discovery;
use dragoman_machinery::kind::RESOURCE_CLAIM;
use dragoman_machinery::metrics::MachineryMetrics;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::watch::{Item, Source as _, Watched};
use dragoman_reconcilers::claim_lifecycle::drain::{Claim, DrainAction, action};
use prometheus_client::registry::Registry;

use crate::config::ClusterFlags;

/// Removes the delete-protection finalizer from every claim that nothing holds and
/// lists the others.
///
/// # Errors
/// The cluster cannot be read, or a claim could not be changed.
pub(crate) async fn drain(flags: &ClusterFlags) -> anyhow::Result<()> {
    let mut registry = Registry::default();
    let clients = connect(flags.kubeconfig.as_deref(), Limits::default(), &mut registry).await?;
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
    std::io::stdout().write_all(text.as_bytes()).context("stdout")?;
    anyhow::ensure!(failed.is_empty(), "{} claims could not be changed; run drain again", failed.len());
    Ok(())
}
