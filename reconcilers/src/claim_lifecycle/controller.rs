//! The controller: its part of the kit, and what its passes have to tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dragoman_crds::wire;
use dragoman_machinery::controller::{
    Assembly, Controller, ControllerSpec, Reconcile, Running, Verdict, regarding,
};
use dragoman_machinery::events::Regarding;
use dragoman_machinery::kind::{POD, RESOURCE_CLAIM};
use dragoman_machinery::mode::Mode;
use dragoman_machinery::queue::MAX_DELAY;
use dragoman_machinery::watch::Watches;

use super::claim_pass::ClaimPass;
use super::consumer_pass::ConsumerPass;
use super::index::Index;
use super::key::{Key, Subject};
use super::metrics::LifecycleMetrics;
use super::report::Said;
use super::rights;
use super::snapshot::ConsumerKind;

/// What can be chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Create claims with the delete-protection finalizer: one write less per
    /// life, but a namespace of unscheduled Pods hangs in deletion while we are down.
    pub born_protected: bool,
}

/// Its row in the table of controllers.
pub fn spec(options: Options) -> ControllerSpec {
    ControllerSpec {
        name: NAME,
        works: |mode| mode == Mode::Own,
        rights: |mode| match mode {
            Mode::Observe => rights::OBSERVE,
            Mode::Assist => &[],
            Mode::Own => rights::OWN,
        },
        start: Box::new(move |assembly| ClaimLifecycle::start(assembly, options)),
    }
}

const NAME: &str = "claim_lifecycle";

/// How long after a claim of its namespace went a creation that a quota refused is tried again.
const QUICK: Duration = Duration::from_secs(2);

/// The controller.
pub(super) struct ClaimLifecycle {
    kit: Arc<Controller<Index>>,
    options: Options,
    metrics: LifecycleMetrics,
    /// A second full writer was found and said.
    yielded: AtomicBool,
}

impl ClaimLifecycle {
    fn start(assembly: &mut Assembly<'_>, options: Options) -> Arc<dyn Running> {
        let metrics = LifecycleMetrics::register(assembly.registry);
        // Dashboards know the queue by the name that the built-in controller gives to its own.
        let kit = assembly.controller::<Index>(NAME, "resource_claim");
        Self::watch(&kit, &mut assembly.watches);
        Arc::new(Self { kit, options, metrics, yielded: AtomicBool::new(false) })
    }

    fn watch(kit: &Arc<Controller<Index>>, watches: &mut Watches) {
        kit.watch::<wire::Pod>(watches);
        kit.watch::<wire::ResourceClaim>(watches);
        kit.watch::<wire::ResourceClaimTemplate>(watches);
        kit.watch::<wire::PodGroup>(watches);
    }

    fn tell(&self, key: &Key, about: &dyn Fn() -> Regarding, kind: ConsumerKind, said: Said) {
        let (namespace, name) = (&key.namespace, &key.name);
        match said {
            Said::Trouble(reason) => self.metrics.trouble(reason),
            Said::Warning { reason, action, note } => self.kit.warn(about(), reason, action, note),
            Said::Created { claim, success, admin_access } => {
                self.metrics.created(success, admin_access, kind);
                if success {
                    tracing::debug!(%namespace, consumer = %name, claim, "claim created");
                }
            }
            Said::Reserved { claim } => tracing::debug!(%namespace, pod = %name, claim, "claim reserved"),
            Said::Step(step) => {
                self.metrics.step(step);
                tracing::debug!(%namespace, claim = %name, ?step, "claim");
            }
            Said::Vanished(consumer) => {
                // The node may still hold the device (kubernetes/kubernetes#141471).
                self.metrics.abrupt.inc();
                let note = format!(
                    "released for {} {} (uid {}), which was removed while it may have been running: its \
                     node may still hold the device",
                    consumer.resource, consumer.name, consumer.uid
                );
                self.kit.alarm(about(), "ConsumerVanished", "Release", note);
            }
            Said::Gone(uid) => self.kit.note(|index| index.proven_gone(&uid)),
            Said::QuotaPassed => self.kit.note(|index| index.quota.passed(key)),
            // The verdict depends on it: see `reconcile_consumer`.
            Said::QuotaRefused => {}
        }
    }

    async fn reconcile_claim(&self, key: &Key) -> Verdict {
        let mut pass = ClaimPass::new(key);
        let tell = |pass: &mut ClaimPass| {
            let report = std::mem::take(&mut pass.report);
            let claim = || regarding(RESOURCE_CLAIM, &key.namespace, &key.name, pass.uid());
            report.into_iter().for_each(|said| self.tell(key, &claim, ConsumerKind::Pod, said));
        };
        self.kit.carry_out(key, &mut pass, tell).await
    }

    async fn reconcile_consumer(&self, key: &Key) -> Verdict {
        let kind = match key.subject {
            Subject::PodGroup => ConsumerKind::PodGroup,
            Subject::Pod | Subject::Claim => ConsumerKind::Pod,
        };
        let mut pass = ConsumerPass::new(key, self.options.born_protected);
        let mut waits = Verdict::Done;
        let tell = |pass: &mut ConsumerPass| {
            let report = std::mem::take(&mut pass.report);
            let about = || match pass.consumer() {
                Some((kind, of)) => regarding(kind, &of.namespace, &of.name, &of.uid),
                None => regarding(POD, &key.namespace, &key.name, ""),
            };
            // Noted at once: a claim of the namespace may go while the pass is under way.
            if report.contains(&Said::QuotaRefused) {
                let soon = self.kit.note(|index| index.quota.refused(key));
                waits = Verdict::After(if soon { QUICK } else { MAX_DELAY });
            }
            report.into_iter().for_each(|said| self.tell(key, &about, kind, said));
        };
        let verdict = self.kit.carry_out(key, &mut pass, tell).await;
        verdict.most_urgent(waits)
    }

    /// Stops all writes once a second full writer is proven.
    fn yield_to_second_writer(&self) -> bool {
        if self.yielded.load(Ordering::Relaxed) {
            return true;
        }
        let Some(found) = self.kit.read(|index| index.witness.found.clone()) else { return false };
        self.yielded.store(true, Ordering::Relaxed);
        self.kit.cease();
        tracing::error!(
            namespace = found.namespace,
            claim = found.claim,
            "another process creates claims from templates: all lifecycle writes stop until restart"
        );
        let claim = |index: &Index| {
            index.claims.get(&found.namespace, &found.claim).map(|record| record.uid.to_string())
        };
        let uid = self.kit.read(claim).unwrap_or_default();
        let about = regarding(RESOURCE_CLAIM, &found.namespace, &found.claim, &uid);
        let note = "this claim was created from a template by another process while dragoman runs in \
                    mode own; dragoman stops creating, releasing and deleting claims until it is \
                    restarted (is the built-in resourceclaim-controller switched on?)";
        self.kit.alarm(about, "SecondWriter", "StopLifecycleWrites", note.to_owned());
        true
    }
}

impl Reconcile for ClaimLifecycle {
    type Index = Index;

    fn controller(&self) -> &Arc<Controller<Index>> {
        &self.kit
    }

    async fn reconcile(&self, key: &Key) -> Verdict {
        if self.yield_to_second_writer() {
            return Verdict::Done;
        }
        match key.subject {
            Subject::Claim => self.reconcile_claim(key).await,
            Subject::Pod | Subject::PodGroup => self.reconcile_consumer(key).await,
        }
    }

    fn leads_since(&self, now: i64) {
        self.kit.note(|index| index.witness.leading_since = Some(now));
    }

    fn measure(&self, now: i64) {
        self.kit.read(|index| self.metrics.measure(index, now));
    }
}
