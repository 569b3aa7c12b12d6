//! What has to run for the controller to know what is there.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use dragoman_machinery::kind::{Kind, POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE};
use dragoman_machinery::watch::{Watched, drive};

use super::controller::ClaimLifecycle;
use super::feed::{Claims, Fed, Feed, Pods, Templates};

/// A task that must not end, and its name.
pub type Task = (&'static str, Pin<Box<dyn Future<Output = ()> + Send>>);

impl ClaimLifecycle {
    /// Its watches and its level timer.
    pub fn tasks(self: &Arc<Self>) -> Vec<Task> {
        vec![
            ("watch of pods", self.watch::<Pods>(POD)),
            ("watch of claims", self.watch::<Claims>(RESOURCE_CLAIM)),
            ("watch of templates", self.watch::<Templates>(RESOURCE_CLAIM_TEMPLATE)),
            ("watch of pod groups", Box::pin(Arc::clone(self).watch_groups())),
            ("level timer", Box::pin(Arc::clone(self).level())),
        ]
    }

    fn watch<F: Fed + Sync>(self: &Arc<Self>, kind: Kind) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let ground = &self.ground;
        let source = Watched::new(ground.watch.clone(), kind, ground.discovery.clone());
        Box::pin(drive(kind.kind, source, Feed::<F>::new(Arc::clone(self)), ground.journal.clone()))
    }
}
