//! From the watches into the index, and from there into the queue.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use dragoman_crds::wire::{self, Meta};
use dragoman_machinery::kind::POD_GROUPS;
use dragoman_machinery::watch::{Failure, Item, Sink, Watched, drive};
use tokio::time::sleep;

use super::controller::{ClaimLifecycle, Ground};
use super::index::{Index, Kept};
use super::key::Key;

/// A kind that the index keeps.
pub trait Fed: Send + 'static {
    /// Its wire type.
    type Object: wire::Object + Send;
    /// Its place in the index.
    const KEPT: Kept;
    /// Takes in a state; `now` in seconds since the epoch.
    fn applied(index: &mut Index, meta: &Meta, object: Result<Self::Object, String>, now: i64) -> Vec<Key>;
    /// Takes in a deletion.
    fn deleted(index: &mut Index, meta: &Meta) -> Vec<Key>;
}

/// Pods.
pub struct Pods;
/// ResourceClaims.
pub struct Claims;
/// `ResourceClaimTemplates`.
pub struct Templates;
/// PodGroups.
pub struct Groups;

impl Fed for Pods {
    type Object = wire::Pod;
    const KEPT: Kept = Kept::Pods;
    fn applied(index: &mut Index, meta: &Meta, object: Result<wire::Pod, String>, _now: i64) -> Vec<Key> {
        index.pod_applied(meta, object)
    }
    fn deleted(index: &mut Index, meta: &Meta) -> Vec<Key> {
        index.pod_deleted(meta)
    }
}

impl Fed for Claims {
    type Object = wire::ResourceClaim;
    const KEPT: Kept = Kept::Claims;
    fn applied(
        index: &mut Index,
        meta: &Meta,
        object: Result<wire::ResourceClaim, String>,
        now: i64,
    ) -> Vec<Key> {
        index.claim_applied(meta, object, now)
    }
    fn deleted(index: &mut Index, meta: &Meta) -> Vec<Key> {
        index.claim_deleted(meta)
    }
}

impl Fed for Templates {
    type Object = wire::ResourceClaimTemplate;
    const KEPT: Kept = Kept::Templates;
    fn applied(
        index: &mut Index,
        meta: &Meta,
        object: Result<wire::ResourceClaimTemplate, String>,
        _now: i64,
    ) -> Vec<Key> {
        index.template_applied(meta, object)
    }
    fn deleted(index: &mut Index, meta: &Meta) -> Vec<Key> {
        index.template_deleted(meta);
        Vec::new()
    }
}

impl Fed for Groups {
    type Object = wire::PodGroup;
    const KEPT: Kept = Kept::Groups;
    fn applied(
        index: &mut Index,
        meta: &Meta,
        object: Result<wire::PodGroup, String>,
        _now: i64,
    ) -> Vec<Key> {
        index.group_applied(meta, object)
    }
    fn deleted(index: &mut Index, meta: &Meta) -> Vec<Key> {
        index.group_deleted(meta)
    }
}

/// The sink of one kind.
pub struct Feed<F> {
    lifecycle: Arc<ClaimLifecycle>,
    kind: PhantomData<F>,
}

impl<F: Fed> Feed<F> {
    /// Feeds `lifecycle`.
    pub fn new(lifecycle: Arc<ClaimLifecycle>) -> Self {
        Self { lifecycle, kind: PhantomData }
    }

    fn change(&self, change: impl FnOnce(&mut Index) -> Vec<Key>) {
        self.lifecycle.change(F::KEPT, change);
    }
}

impl<F: Fed> Sink for Feed<F> {
    type Object = F::Object;

    fn began(&mut self) {
        self.change(|index| {
            index.began(F::KEPT);
            Vec::new()
        });
    }

    fn applied(&mut self, item: Item<F::Object>) {
        let now = dragoman_machinery::clock::now().as_second();
        if let Err(why) = &item.object {
            tracing::warn!(
                kind = ?F::KEPT, namespace = %item.meta.namespace, name = %item.meta.name, error = %why,
                "object does not decode; it is kept as present and unreadable"
            );
        }
        self.change(|index| F::applied(index, &item.meta, item.object, now));
    }

    fn deleted(&mut self, meta: Meta) {
        self.change(|index| F::deleted(index, &meta));
    }

    fn completed(&mut self, version: &str) {
        self.change(|index| index.completed(F::KEPT, version));
    }

    fn advanced(&mut self, version: &str) {
        self.change(|index| {
            index.advanced(F::KEPT, version);
            Vec::new()
        });
    }

    fn failed(&mut self, failure: &Failure) {
        self.lifecycle.watch_failed(F::KEPT, failure);
    }
}

impl ClaimLifecycle {
    /// Watches PodGroups in whichever version is served, for as long as one is.
    pub async fn watch_groups(self: Arc<Self>) {
        loop {
            let Ground { discovery, watch, journal, .. } = self.ground.clone();
            match discovery.first_served(&POD_GROUPS).await {
                Ok(Some(kind)) => {
                    let source = Watched::new(watch, kind, discovery);
                    let sink = Feed::<Groups>::new(Arc::clone(&self));
                    self.watches_groups(kind);
                    tokio::select! {
                        biased;
                        () = drive(kind.kind, source, sink, journal) => {}
                        () = self.groups_lost.notified() => {}
                    }
                }
                Ok(None) => {
                    self.groups_unserved();
                    // A kind that was there a moment ago is likely to come back: an
                    // upgrade is under way. One that never was may come one day.
                    let vanished = self.read(|index| index.groups_kind.is_some());
                    sleep(Duration::from_secs(if vanished { 15 } else { 180 })).await;
                    discovery.invalidate();
                }
                Err(refusal) => {
                    tracing::warn!(error = %refusal, "cannot ask which PodGroups are served");
                    sleep(Duration::from_secs(5)).await;
                }
            }
        }
    }
}
