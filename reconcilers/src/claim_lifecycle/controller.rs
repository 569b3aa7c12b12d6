//! The controller: its part of the kit, and what its passes have to tell.

use std::sync::Arc;

use dragoman_machinery::clock;
use dragoman_machinery::controller::{
    Assembly, Controller, ControllerSpec, Outcome, Reconcile, Running, regarding,
};
use dragoman_machinery::events::Regarding;
use dragoman_machinery::kind::{POD, RESOURCE_CLAIM};
use dragoman_machinery::mode::Mode;
use dragoman_machinery::watch::Watches;
use dragoman_objects::{self as objects, ConsumerReference, OUT_OF_SERVICE};
use jiff::Timestamp;
use tokio::time::Instant;

use super::claim_body::Birth;
use super::claim_pass::ClaimPass;
use super::consumer_pass::ConsumerPass;
use super::key::{Key, Subject};
use super::metrics::LifecycleMetrics;
use super::reclaim::{At, Reclaim, Vanished};
use super::report::Notice;
use super::rights;
use super::second_writer::{SecondWriter, Stop};
use super::snapshot::ConsumerKind;
use super::state::State;
use crate::settings::{DefaultAllocator, declared};

/// Options of the claim lifecycle controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Options for the creation of claims.
    pub birth: Birth,
    /// Options for devices that no consumer uses.
    pub reclaim: Reclaim,
}

/// Returns the row of the claim lifecycle controller in the table of controllers.
pub fn spec(options: Options) -> ControllerSpec {
    ControllerSpec {
        works: |mode| mode == Mode::Own,
        rights: |mode| match mode {
            Mode::Observe => rights::OBSERVE,
            Mode::Assist => &[],
            Mode::Own => rights::OWN,
        },
        settings: || [declared::<super::Settings>(), declared::<DefaultAllocator>()].concat(),
        ..ControllerSpec::new(
            NAME,
            Box::new(move |assembly| ClaimLifecycle::start(assembly, options.clone())),
        )
    }
}

const NAME: &str = "claim_lifecycle";

/// The controller.
pub(super) struct ClaimLifecycle {
    kit: Arc<Controller<State>>,
    options: Options,
    metrics: LifecycleMetrics,
}

impl ClaimLifecycle {
    fn start(assembly: &mut Assembly<'_>, options: Options) -> Arc<dyn Running> {
        // Dashboards know the queue by the name that the built-in controller gives to its own.
        let kit = assembly.controller::<State>(NAME, "resource_claim");
        let metrics = kit.read(|state| LifecycleMetrics::register(assembly.registry, state));
        Self::watch(&kit, &mut assembly.watches);
        if options.reclaim.guard.is_some() {
            kit.update(State::guard);
            kit.watch::<objects::Node>(&mut assembly.watches);
        }
        Arc::new(Self { kit, options, metrics })
    }

    fn watch(kit: &Arc<Controller<State>>, watches: &mut Watches) {
        kit.watch::<objects::Pod>(watches);
        kit.watch::<objects::ResourceClaim>(watches);
        kit.watch::<objects::ResourceClaimTemplate>(watches);
        kit.watch::<objects::PodGroup>(watches);
    }

    fn tell(&self, key: &Key, about: &dyn Fn() -> Regarding, kind: ConsumerKind, said: Notice) {
        let (namespace, name) = (&key.namespace, &key.name);
        match said {
            Notice::Trouble(word) => {
                self.metrics.trouble(word);
                let uid = about().uid;
                self.kit.update(|state| state.waits.blocked(&uid, word));
            }
            Notice::Warning { reason, action, note } => self.kit.warn(about(), reason, action, note),
            Notice::Created { claim, success, admin_access } => {
                self.metrics.created(success, admin_access, kind);
                if success {
                    tracing::info!(%namespace, consumer = %name, claim, "claim created");
                }
            }
            Notice::Reserved { claim } => tracing::debug!(%namespace, pod = %name, claim, "claim reserved"),
            Notice::Step(step) => {
                self.metrics.step(step);
                // "Who deallocated my claim?" is answered by the log.
                tracing::info!(%namespace, claim = %name, ?step, "claim");
            }
            Notice::Vanished(consumer) => {
                // The node may still hold the device (kubernetes/kubernetes#141471).
                self.metrics.abrupt.inc();
                let note = format!(
                    "released for {} {} (uid {}), which was removed while it may have been running: its \
                     node may still hold the device",
                    consumer.resource, consumer.name, consumer.uid
                );
                self.kit.alarm(about(), "ConsumerVanished", "Release", note);
            }
            Notice::Idle { since } => {
                let note = format!(
                    "allocated since {} or earlier and reserved for no consumer: its devices are idle, and no \
                     controller releases them (run with --reclaim to release them)",
                    time(since)
                );
                self.kit.warn(about(), "ClaimIdle", "Reclaim", note);
            }
            Notice::Held { consumer, vanished, until } => {
                self.say_held(key, about, &consumer, vanished, until);
            }
            Notice::Publishing { uid, entry, claim } => {
                self.kit.update(|state| state.witnesses.publishing(&uid, &entry, &claim));
            }
            Notice::Gone(uid) => {
                let now = clock::now();
                self.kit.update(|state| state.evidence.proven_gone(&uid, now));
            }
            Notice::Quota(outcome) => {
                let turn = self.kit.update(|state| state.quota.note(key, outcome, Instant::now()));
                self.kit.enqueue(turn);
            }
        }
    }

    fn say_held(
        &self,
        key: &Key,
        about: &dyn Fn() -> Regarding,
        consumer: &ConsumerReference,
        vanished: Vanished,
        until: Timestamp,
    ) {
        let place =
            vanished.node.as_deref().map_or_else(|| "its node".to_owned(), |name| format!("node {name}"));
        if self.kit.update(|state| state.held.insert(&key.namespace, &key.name, &consumer.uid, vanished)) {
            let note = format!(
                "held for {} {} (uid {}), which disappeared without a confirmed end: {place} may still hold the \
                 device; released once the node is gone or has the taint {OUT_OF_SERVICE}, or at {}",
                consumer.resource,
                consumer.name,
                consumer.uid,
                time(until)
            );
            self.kit.alarm(about(), "DevicesHeld", "Hold", note);
        }
    }

    async fn reconcile_claim(&self, key: &Key) -> Outcome {
        let at = At { chosen: self.options.reclaim, now: clock::now() };
        let mut pass = ClaimPass::new(key, at);
        let tell = |pass: &mut ClaimPass| {
            let report = std::mem::take(&mut pass.report);
            let claim = || regarding(RESOURCE_CLAIM, &key.namespace, &key.name, pass.uid());
            report.into_iter().for_each(|said| self.tell(key, &claim, ConsumerKind::Pod, said));
        };
        let then = self.kit.carry_out(key, &mut pass, tell).await;
        // A pass that failed has decided nothing: the hold goes on as it began.
        if self.options.reclaim.guard.is_some() && pass.is_held == Some(false) {
            self.kit.update(|state| state.held.remove(&key.namespace, &key.name));
        }
        then
    }

    async fn reconcile_consumer(&self, key: &Key) -> Outcome {
        let kind = match key.subject {
            Subject::PodGroup => ConsumerKind::PodGroup,
            Subject::Pod | Subject::Claim => ConsumerKind::Pod,
        };
        let mut pass = ConsumerPass::new(key, &self.options.birth, Instant::now());
        let tell = |pass: &mut ConsumerPass| {
            let report = pass.take_report();
            let about = || match pass.consumer() {
                Some((kind, of)) => regarding(kind, &of.namespace, &of.name, &of.uid),
                None => regarding(POD, &key.namespace, &key.name, ""),
            };
            report.into_iter().for_each(|said| self.tell(key, &about, kind, said));
        };
        self.kit.carry_out(key, &mut pass, tell).await
    }

    /// Says where a second full writer was noticed, once for each namespace and pause.
    fn say_second_writers(&self, now: Timestamp) {
        if self.kit.read(|state| !state.witnesses.has_unsaid()) {
            return;
        }
        for SecondWriter { namespace, claim, .. } in self.kit.update(|state| state.witnesses.unsaid()) {
            let everything = matches!(self.kit.read(|state| state.witnesses.stop(now)), Stop::Everything(_));
            let what = if everything { "claims" } else { "claims of this namespace" };
            tracing::error!(
                %namespace,
                %claim,
                "another process creates claims from templates: nothing is written about {what} for ten minutes"
            );
            let uid =
                |state: &State| state.index.claims.get(&namespace, &claim).map(|claim| claim.uid.to_string());
            let uid = self.kit.read(uid).unwrap_or_default();
            let note = format!(
                "another process created this claim from a template and published it while dragoman runs in \
                 mode own; dragoman pauses its writes about {what} for ten minutes (is the \
                 built-in resourceclaim-controller switched on?)"
            );
            let about = regarding(RESOURCE_CLAIM, &namespace, &claim, &uid);
            self.kit.alarm(about, "SecondWriter", "StopLifecycleWrites", note);
        }
    }
}

/// A time as objects of Kubernetes have it.
fn time(of: Timestamp) -> String {
    of.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Reconcile for ClaimLifecycle {
    type Index = State;

    fn controller(&self) -> &Arc<Controller<State>> {
        &self.kit
    }

    async fn reconcile(&self, key: &Key) -> Outcome {
        let now = clock::now();
        self.say_second_writers(now);
        if self.kit.read(|state| state.witnesses.stops(&key.namespace, now)) {
            if key.subject == Subject::Pod {
                self.kit.update(|state| state.stopped_by_second_writer(key));
            }
            // The level timer looks at it again.
            return Outcome::Done;
        }
        match key.subject {
            Subject::Claim => self.reconcile_claim(key).await,
            Subject::Pod | Subject::PodGroup => self.reconcile_consumer(key).await,
        }
    }

    fn on_elected(&self) {
        self.metrics.leads();
        self.kit.update(|state| state.witnesses.on_elected(clock::now()));
    }

    fn degraded_reason(&self) -> Option<String> {
        match self.kit.read(|state| state.witnesses.stop(clock::now())) {
            Stop::Namespaces(_) => None,
            Stop::Everything(count) => Some(format!(
                "another process creates claims from templates in {count} namespaces: nothing is written \
                 about claims (is the built-in resourceclaim-controller switched on?)"
            )),
        }
    }

    fn measure(&self) {
        let leads = self.kit.works();
        self.kit.read(|state| self.metrics.measure(state, leads, clock::now()));
    }
}
