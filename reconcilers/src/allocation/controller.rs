//! The controller: its part of the kit.

use dragoman_crds::driver_owner::DriverOwner;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dragoman_allocator::{Alignment, Choice, Policy};
use dragoman_crds::device_footprint::DeviceFootprint;
use dragoman_machinery::api::{Live, decode};
use dragoman_machinery::clock;
use dragoman_machinery::controller::{
    Assembly, Controller, ControllerSpec, Index as _, LiveRead, ObjectKey, Outcome, ReadBy, Reconcile,
    Running, regarding,
};
use dragoman_machinery::kind::{Kind, POD, RESOURCE_CLAIM, RESOURCE_SLICES};
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::rights::user_of;
use dragoman_objects::{
    DeviceClass, DeviceTaintRule, Name, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodGroup,
    ResourceClaim, ResourceSlice, StorageClass,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::allowance::Allowances;
use super::contested::Withheld;
use super::in_flight::InFlightAllocations;
use super::index::{Allocation, NamedClaim};
use super::look::{Begun, Look, SHARED, Subject};
use super::metrics::{AllocationMetrics, DecisionOutcome};
use super::pass::{AllocationPass, Notice};
use super::rights;
use super::undecidable::{KINDS, Part};
use dragoman_crds::protocol::LaterGates;

/// Options of the allocation controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The name of the allocator: it allocates the claims whose label names it.
    pub name: Box<str>,
    /// The order of nodes that a Pod likes equally.
    pub order: Policy,
    /// The order in which the devices of a node are tried.
    pub choice: Choice,
    /// Whether devices of a Pod that are close to each other are preferred.
    pub align: Alignment,
    /// The gates of other controllers that are opened after that of the protocol.
    pub later_gates: LaterGates,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "dragoman".into(),
            order: Policy::Pack,
            choice: Choice::BestFit,
            align: Alignment::Preferred,
            later_gates: LaterGates::new(),
        }
    }
}

/// Returns the row of the allocation controller in the table of the process `dragoman allocator`.
pub fn spec(options: Options) -> ControllerSpec {
    ControllerSpec {
        rights: |mode| match mode {
            dragoman_machinery::mode::Mode::Observe => rights::ALL,
            _ => &[],
        },
        settings: crate::settings::declared::<super::Settings>,
        ..ControllerSpec::new(NAME, Box::new(move |assembly| Allocator::start(assembly, options.clone())))
    }
}

const NAME: &str = "allocation";
/// Time after which what is not understood is reported again: an Event is kept for an hour.
const AGAIN: Duration = Duration::from_mins(30);

/// The controller.
pub(super) struct Allocator {
    pub(super) kit: Arc<Controller<Allocation>>,
    pub(super) options: Options,
    /// Decisions that the index does not show yet. A decision is made under the lock, so that nothing is
    /// given twice.
    pub(super) decided: Mutex<InFlightAllocations>,
    /// Time that long searches may still take, by namespace.
    pub(super) allowances: Mutex<Allowances>,
    /// One long search runs at a time.
    pub(super) aside: Semaphore,
    metrics: AllocationMetrics,
    /// When all that is not understood was reported last.
    told: Mutex<Instant>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Allocator {
    fn start(assembly: &mut Assembly<'_>, options: Options) -> Arc<dyn Running> {
        let metrics = AllocationMetrics::register(assembly.registry);
        let kit = assembly.controller::<Allocation>(NAME, NAME);
        kit.update(|index| {
            index.accounts.namespace = Arc::clone(&assembly.context.namespace);
            index.later.clone_from(&options.later_gates);
            (index.choice, index.align) = (options.choice, options.align);
            index.allocator = Some((&*options.name).into());
        });
        let watches = &mut assembly.watches;
        kit.watch::<Node>(watches);
        kit.watch::<ResourceSlice>(watches);
        kit.watch::<DeviceClass>(watches);
        kit.watch::<DeviceTaintRule>(watches);
        kit.watch::<DeviceFootprint>(watches);
        kit.watch::<DriverOwner>(watches);
        kit.watch::<StorageClass>(watches);
        kit.watch::<PersistentVolume>(watches);
        kit.watch::<PersistentVolumeClaim>(watches);
        kit.watch::<ResourceClaim>(watches);
        kit.watch::<PodGroup>(watches);
        kit.watch::<Pod>(watches);
        Arc::new(Self {
            kit,
            options,
            decided: Mutex::default(),
            allowances: Mutex::default(),
            aside: Semaphore::new(1),
            metrics,
            told: Mutex::new(Instant::now()),
        })
    }

    /// Looks at the index and at what is decided; the Pods that this wakes are looked at next.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Look<'_>) -> T) -> T {
        let (found, woken, withheld, undecidable) = {
            let mut decided = locked(&self.decided);
            self.kit.update(|index| {
                let (withheld, undecidable) = (index.settle_pools(), index.undecidable.news());
                let (decided, options) = (&mut *decided, &self.options);
                let (now, time) = (Instant::now(), clock::now());
                let (steps, woken) = (Vec::new(), Vec::new());
                let jitter = fastrand::f64();
                let mut at = Look { index, decided, options, now, time, jitter, steps, woken };
                let found = look(&mut at);
                (found, at.woken, withheld, undecidable)
            })
        };
        self.kit.enqueue(woken);
        withheld.into_iter().for_each(|withheld| self.say_withheld(&withheld));
        undecidable.into_iter().for_each(|(kind, name, part)| self.say_undecidable(kind, &name, part));
        found
    }

    /// Says that the devices of a slice are those of another node.
    fn say_withheld(&self, (slice, why): &Withheld) {
        tracing::warn!(%slice, why, "slice ignored");
        let uid = self.kit.read(|index| index.slices.get("", slice).map(|record| record.uid.clone()));
        let about = regarding(RESOURCE_SLICES[0], "", slice, &uid.unwrap_or_default());
        self.kit.warn(about, "PoolOfAnotherNode", "Allocate", why.clone());
    }

    /// Whether all that is not understood is to be reported again.
    fn is_due(&self) -> bool {
        let mut told = locked(&self.told);
        let is_due = told.elapsed() > AGAIN;
        if is_due {
            *told = Instant::now();
        }
        is_due
    }

    /// Reports that a part of an object is not understood.
    fn say_undecidable(&self, kind: Kind, name: &str, Part { uid, why }: Part) {
        tracing::warn!(kind = kind.kind, %name, %why, "not understood");
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        self.kit.warn(regarding(kind, namespace, name, &uid), "Undecidable", "Allocate", why.to_string());
    }

    /// The pass about a Pod, with the steps of a look.
    fn pass<'a>(look: &mut Look<'_>, of: Subject<'a>, then: Outcome) -> (Subject<'a>, AllocationPass) {
        let (words, steps) = (look.words(&of), std::mem::take(&mut look.steps));
        let pass = AllocationPass::new(of.key, &of.uid, words, steps, then);
        (of, pass)
    }

    /// Learns as which user this process allocates.
    async fn ask_for_user(&self) -> Result<(), Outcome> {
        let account = user_of(&self.kit.context.api).await;
        let account = account.map_err(|refusal| Outcome::Failed(refusal.into()))?.as_str().into();
        let woken = self.kit.update(|index| index.is_user(account));
        self.kit.enqueue(woken);
        Ok(())
    }

    /// Reads the requests of claims for a search; returns the uids of the claims that were read. The time is that of the namespace, like
    /// that of a long search: its Pods may be woken often.
    async fn lend(&self, namespace: &Arc<str>, claims: &[NamedClaim]) -> Result<Vec<Name>, Outcome> {
        let began = Instant::now();
        locked(&self.allowances).of(namespace, began).map_err(Outcome::After)?;
        let read = self.read_requests(namespace, claims).await;
        locked(&self.allowances).spend(namespace, began.elapsed(), Instant::now());
        let read = read.map_err(|refusal| Outcome::refused(&refusal))?;
        self.kit.update(|index| read.iter().for_each(|claim| index.lend(claim)));
        Ok(read.into_iter().map(|claim| claim.metadata.uid).collect())
    }

    async fn read_requests(
        &self,
        namespace: &str,
        claims: &[NamedClaim],
    ) -> Result<Vec<ResourceClaim>, Refusal> {
        let mut read = Vec::new();
        for claim in claims {
            let (kind, by) = (RESOURCE_CLAIM, ReadBy::Get);
            let what = LiveRead { kind, namespace: namespace.to_owned(), name: claim.name.to_string(), by };
            if let Live::Found(body) = self.kit.read_live(&what).await? {
                read.push(decode::<ResourceClaim>(&body)?);
            }
        }
        Ok(read)
    }

    /// Takes in what a pass has to tell, and passes on what is for people.
    fn learn(&self, of: &Subject<'_>, said: Notice) {
        let ObjectKey { namespace, name: pod } = of.key;
        match said {
            Notice::Warning(reason, message) => {
                self.kit.warn(regarding(POD, namespace, pod, &of.uid), reason, "Allocate", message);
            }
            Notice::Writes(claim, version) => locked(&self.decided).writes_on(of.key, &claim, &version),
            Notice::NotWritten(claim) => locked(&self.decided).refused(of.key, &claim),
            Notice::Allocated(claim, node) => {
                tracing::info!(%namespace, %pod, %claim, %node, "claim allocated");
            }
            Notice::AllAllocated => self.metrics.decided(DecisionOutcome::Allocated),
            Notice::NoNode => self.metrics.decided(DecisionOutcome::Refused),
            // The other Pods of its gang would wake it at once.
            Notice::NotStored => {
                locked(&self.decided).rests_again(of.key, Instant::now(), fastrand::f64());
            }
            Notice::GaveBack => {
                self.metrics.decided(DecisionOutcome::GivenBack);
                locked(&self.decided).gave_back(of.key, Instant::now(), fastrand::f64());
            }
        }
    }
}

impl Reconcile for Allocator {
    type Index = Allocation;

    fn controller(&self) -> &Arc<Controller<Allocation>> {
        &self.kit
    }

    fn missing_kind(&self) -> Option<Kind> {
        self.kit.read(Allocation::missing_kind)
    }

    async fn reconcile(&self, key: &ObjectKey) -> Outcome {
        let look = || {
            self.look(|look| match look.begin(key) {
                Begun::Steps(of, then) => Ok(Self::pass(look, of, then)),
                other => Err(other),
            })
        };
        let mut begun = look();
        if matches!(begun, Err(Begun::Nameless)) {
            if let Err(failed) = self.ask_for_user().await {
                return failed;
            }
            begun = look();
        }
        let mut lent = Vec::new();
        if let Err(Begun::Lacks(claims)) = &begun {
            lent = match self.lend(&key.namespace, claims).await {
                Ok(lent) => lent,
                Err(then) => return then,
            };
            begun = look();
        }
        let planned = match begun {
            Ok(planned) => Ok(planned),
            Err(Begun::Search(search)) => {
                let looked = self.search(&search).await;
                Ok(self.look(|look| {
                    let (of, then) = look.conclude(*search, looked);
                    Self::pass(look, of, then)
                }))
            }
            // The claim has been replaced meanwhile, or a search that has ended needed it, too.
            Err(Begun::Lacks(_)) => Err(Outcome::After(SHARED)),
            Err(Begun::Rests | Begun::Nameless | Begun::Steps(..)) => Err(Outcome::Done),
        };
        if !lent.is_empty() {
            self.kit.update(|index| lent.iter().for_each(|uid| index.take_back(uid)));
        }
        let (of, mut pass) = match planned {
            Ok(planned) => planned,
            Err(then) => return then,
        };
        let learn = |pass: &mut AllocationPass| {
            std::mem::take(&mut pass.report).into_iter().for_each(|said| self.learn(&of, said));
        };
        self.kit.carry_out(key, &mut pass, learn).await
    }

    /// Before the first decision, every Pod that has its devices and no node yet is charged.
    fn on_elected(&self) {
        self.look(|look| {
            *look.decided = InFlightAllocations::default();
            for key in look.index.all_keys() {
                let Some((uid, pod)) = look.index.pod(&key) else { continue };
                let Some(claims) = look.index.claims_of(&key.namespace, &pod) else { continue };
                if claims.iter().all(|claim| claim.is_reserved_for(&uid)) {
                    look.assume(&key, &pod, &claims);
                }
            }
        });
    }

    fn remembers(&self) -> Vec<String> {
        locked(&self.decided).describe()
    }

    fn measure(&self) {
        // Where no Pod waits, nothing else looks at slices. A standby says nothing of them.
        if self.kit.works() {
            if self.is_due() {
                self.kit.update(|index| index.undecidable.again());
            }
            self.look(|_| ());
        }
        let (waiting, ignored) = self.kit.read(|index| (index.shapes.waiting(), index.contested.len()));
        self.metrics.measure(waiting, ignored);
        for kind in KINDS {
            self.metrics.undecidable(kind, self.kit.read(|index| index.undecidable.count(kind)));
        }
    }
}
