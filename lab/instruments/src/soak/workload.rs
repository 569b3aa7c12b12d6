//! The script of a run, drawn from a seed: the actions of people and third parties, and restarts.

use std::time::Duration;

use dragoman_simcluster::HOLD;
use fastrand::Rng;
use serde_json::{Value, json};

use dragoman_e2e::objects::Pod;

/// An action on the cluster or on the controller.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Template(String),
    Claim(String),
    Pod(Box<Value>),
    Group(String),
    DeleteGroup(String),
    DeletePod(String),
    /// Deletes a Pod without a grace period.
    Vanish(String),
    /// Removes the scheduling gates of a Pod.
    Release(String),
    /// Deletes the first claim that a Pod's status names.
    DeleteClaimOf(String),
    /// Removes the claim names from a Pod's status.
    WipeStatus(String),
    /// Writes the name of a claim that is not the Pod's into its status.
    Misname(String),
    /// Replaces the claim names in a Pod's status by a value that does not decode.
    Garble(String),
    /// Reserves a claim for a foreign consumer, whose state the controller cannot know.
    Lend(String),
    /// Reserves the first claim that a Pod's status names for a foreign consumer.
    LendClaimOf(String),
    /// Reserves a claim for as many foreign consumers as the API allows.
    Fill(String),
    /// Allocates a claim of a Pod like an allocator that sets no finalizer.
    Allot(String),
    /// Creates a claim as if a controller had made it from a template for a Pod that never was.
    Forge(String),
    /// Sets a Pod's phase to `Failed`, as an eviction does.
    Fail(String),
    /// Kills every instance of the controller, and starts one after this time.
    Crash(Duration),
    /// Starts another instance of the controller. The oldest one stops after this time.
    Takeover(Duration),
    /// A hostile tenant does something in a namespace of its own.
    Attack(Attack),
}

/// Act of a hostile tenant in its namespace, whose quota has room for [`ROOM`] claims.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attack {
    /// Creates so many Pods that all want a claim.
    Crowd(usize),
    /// Creates so many Pods whose template is never created.
    Refused(usize),
    /// Creates a Pod with so many entries.
    Entries(usize),
    /// Changes its template so that nothing about claims is different.
    Touch(u32),
    /// Makes its template large.
    Fatten,
    /// Creates claims as if a controller had made them, for Pods that never were.
    Forge(usize),
    /// Deletes the oldest of its Pods that has a claim, which frees a place.
    Free,
}

/// The claims for which the quota of the hostile tenant has room.
pub(super) const ROOM: usize = 3;

/// The actions, each with its time.
pub(super) type Script = Vec<(Duration, Action)>;

/// The extended resource of the device class.
pub(super) const EXTENDED: &str = "soak.dragoman.dev/device";

/// The cpus that a device takes from its node, in runs that publish it.
pub(super) const CORES: i64 = 2;

/// The time span of a script.
pub(super) const SPAN: Duration = Duration::from_secs(60);

/// The grace period, in seconds, of a Pod that does not stop: more than any run takes.
const RUNS_ON: u32 = 7200;

/// After this time every watch has delivered a deletion timestamp, whatever faults delay it.
pub(super) const LINGERS: Duration = Duration::from_secs(40);

/// The name of a template that is never created.
const NEVER: &str = "never";

/// The properties of a run.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn for itself")]
pub(super) struct Kind {
    /// Pods may run until they are deleted, and foreign consumers may keep their reservations.
    pub(super) holds: bool,
    /// PodGroups are served, and the script creates one.
    pub(super) groups: bool,
    /// There are no faults, and the controller is never restarted.
    pub(super) calm: bool,
    /// Amounts that are taken from nodes are published, too; the value says whether the API server keeps them
    /// in Pod status.
    pub(super) accounts: Option<bool>,
    /// A hostile tenant is at work in another namespace.
    pub(super) tenant: bool,
}

/// An incident in the life of a Pod.
#[derive(Debug, Clone, Copy)]
enum Incident {
    Delete,
    DeleteClaim,
    WipeStatus,
    Fail,
    /// The Pod is removed, and a new Pod soon takes its name.
    Again,
    Misname,
    Release,
    Lend,
    Vanish,
    /// The Pod is deleted, and its status is wiped while it stops.
    WipeAtTheEnd,
    /// The claim of the Pod is deleted, and the Pod's status is wiped once every watch has delivered that.
    Linger,
    Garble,
    Allot,
    /// A user imitates a controller.
    Forge,
}

const INCIDENTS: [Incident; 14] = [
    Incident::Delete,
    Incident::DeleteClaim,
    Incident::WipeStatus,
    Incident::Fail,
    Incident::Again,
    Incident::Misname,
    Incident::Release,
    Incident::Lend,
    Incident::Vanish,
    Incident::WipeAtTheEnd,
    Incident::Linger,
    Incident::Garble,
    Incident::Allot,
    Incident::Forge,
];

/// The common property of the Pods of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taste {
    Mixed,
    /// The Pods share claims.
    Sharing,
    /// The Pods are bound without the scheduler, and share claims.
    ByHand,
    /// The Pods request extended resources.
    Extended,
}

const TASTES: [Taste; 8] = [
    Taste::Mixed,
    Taste::Mixed,
    Taste::Mixed,
    Taste::Mixed,
    Taste::Mixed,
    Taste::Sharing,
    Taste::ByHand,
    Taste::Extended,
];

/// The draws of a whole run. Half of the runs repeat one or two incidents, because some failures need several
/// of a kind.
struct Draw<'a> {
    rng: &'a mut Rng,
    kind: Kind,
    incidents: Option<[Incident; 2]>,
    taste: Taste,
}

/// Draws the script of a run.
pub(super) fn script(rng: &mut Rng, kind: Kind) -> Script {
    let incidents =
        rng.bool().then(|| [any(rng, &INCIDENTS, Incident::Delete), any(rng, &INCIDENTS, Incident::Delete)]);
    let taste = any(rng, &TASTES, Taste::Mixed);
    let mut draw = Draw { rng, kind, incidents, taste };
    let mut script: Script = Vec::new();
    // One template exists from the start, the other is created at a random time.
    script.push((Duration::ZERO, Action::Template("one".to_owned())));
    script.push((draw.at(Duration::ZERO), Action::Template("late".to_owned())));
    draw.shared(&mut script);
    if kind.groups {
        draw.group(&mut script);
    }
    for number in 0..draw.rng.usize(1..=6) {
        draw.life(number, &mut script);
    }
    if !kind.calm {
        draw.ends(&mut script);
    }
    if kind.tenant {
        draw.attacks(&mut script);
    }
    script.sort_by_key(|(when, _)| *when);
    script
}

fn any<T: Copy>(rng: &mut Rng, of: &[T], otherwise: T) -> T {
    of.get(rng.usize(..of.len())).copied().unwrap_or(otherwise)
}

impl Draw<'_> {
    /// Draws a time from `from` to the end of the span.
    fn at(&mut self, from: Duration) -> Duration {
        from + SPAN.saturating_sub(from).mul_f64(self.rng.f64())
    }

    /// Draws a time within five seconds after `from`.
    fn soon(&mut self, from: Duration) -> Duration {
        from + Duration::from_millis(self.rng.u64(..5_000))
    }

    fn incident(&mut self) -> Incident {
        match self.incidents {
            Some(incidents) if self.rng.u32(..4) > 0 => any(self.rng, &incidents, Incident::Delete),
            _ => any(self.rng, &INCIDENTS, Incident::Delete),
        }
    }

    fn shared(&mut self, script: &mut Script) {
        for number in 0..self.rng.usize(..3) {
            let (name, made) = (format!("shared-{number}"), self.at(Duration::ZERO));
            script.push((made, Action::Claim(name.clone())));
            let when = self.at(made);
            match self.rng.u32(..8) {
                0 | 1 if self.kind.holds => script.push((when, Action::Lend(name))),
                2 if self.kind.holds => script.push((when, Action::Fill(name))),
                _ => {}
            }
        }
    }

    fn group(&mut self, script: &mut Script) {
        // The PodGroup may be created before its Pods or after them.
        let made = if self.rng.bool() { Duration::ZERO } else { self.at(Duration::ZERO) };
        script.push((made, Action::Group("group".to_owned())));
        if self.rng.u32(..3) == 0 {
            script.push((self.at(made), Action::DeleteGroup("group".to_owned())));
        }
    }

    /// Draws the life of one Pod.
    fn life(&mut self, number: usize, script: &mut Script) {
        let mut name = format!("pod-{number}");
        if self.rng.u32(..10) == 0 {
            // The names of its claims are truncated, at a dot or beside one.
            name.push_str(&".x".repeat(self.rng.usize(60..=120)));
        }
        let begins = self.at(Duration::ZERO);
        script.push((begins, Action::Pod(Box::new(self.pod(&name)))));
        for _ in 0..self.rng.usize(..3) {
            let (when, name) = (self.at(begins), name.clone());
            let action = match self.incident() {
                Incident::Delete => Action::DeletePod(name),
                Incident::DeleteClaim => Action::DeleteClaimOf(name),
                Incident::WipeStatus => Action::WipeStatus(name),
                Incident::Fail => Action::Fail(name),
                Incident::Again => {
                    let gone = if self.rng.bool() { Action::Vanish } else { Action::DeletePod };
                    script.push((when, gone(name.clone())));
                    let again = self.soon(when);
                    script.push((again, Action::Pod(Box::new(self.pod(&name)))));
                    continue;
                }
                Incident::Misname => Action::Misname(name),
                Incident::Lend if self.kind.holds => Action::LendClaimOf(name),
                Incident::Vanish => Action::Vanish(name),
                Incident::WipeAtTheEnd => {
                    script.push((when, Action::DeletePod(name.clone())));
                    script.push((self.soon(when), Action::WipeStatus(name)));
                    continue;
                }
                Incident::Linger => {
                    script.push((when, Action::DeleteClaimOf(name.clone())));
                    script.push((when + LINGERS, Action::WipeStatus(name)));
                    continue;
                }
                Incident::Garble => {
                    script.push((when, Action::Garble(name.clone())));
                    // A Pod that keeps such a status keeps its devices, too.
                    if !self.kind.holds || self.rng.bool() {
                        script.push((self.at(when), Action::WipeStatus(name)));
                    }
                    continue;
                }
                Incident::Allot => Action::Allot(name),
                Incident::Forge => Action::Forge(name),
                Incident::Release | Incident::Lend => Action::Release(name),
            };
            script.push((when, action));
        }
    }

    /// Draws what the hostile tenant does, and when.
    fn attacks(&mut self, script: &mut Script) {
        for _ in 0..self.rng.usize(1..=4) {
            let attack = match self.rng.u32(..6) {
                0 => Attack::Crowd(self.rng.usize(5..40)),
                1 => Attack::Refused(self.rng.usize(5..40)),
                2 => Attack::Entries(self.rng.usize(2..80)),
                3 => Attack::Entries(1_100),
                4 => Attack::Fatten,
                _ => Attack::Forge(self.rng.usize(1..10)),
            };
            script.push((self.at(Duration::ZERO), Action::Attack(attack)));
        }
        for second in 0..self.rng.u32(..30) {
            script.push((Duration::from_secs(second.into()), Action::Attack(Attack::Touch(second))));
        }
        for _ in 0..self.rng.usize(..4) {
            script.push((self.at(Duration::ZERO), Action::Attack(Attack::Free)));
        }
    }

    /// Draws crashes and takeovers of the controller.
    fn ends(&mut self, script: &mut Script) {
        for _ in 0..self.rng.usize(..3) {
            let when = self.at(Duration::ZERO);
            let action = if self.rng.u32(..3) == 0 {
                Action::Takeover(Duration::from_millis(self.rng.u64(..20_000)))
            } else {
                Action::Crash(Duration::from_millis(self.rng.u64(..10_000)))
            };
            script.push((when, action));
        }
    }

    fn pod(&mut self, name: &str) -> Value {
        let (taste, rng) = (self.taste, &mut *self.rng);
        let mut pod = Pod::new(name);
        for entry in 0..rng.usize(..4) {
            let entry = format!("entry-{entry}");
            let shares = matches!(taste, Taste::Sharing | Taste::ByHand) && rng.bool();
            pod = match rng.u32(..12) {
                0 | 1 => pod.with_template(&entry, "late"),
                2 => pod.with_template(&entry, NEVER),
                3 | 4 => pod.with_claim(&entry, &format!("shared-{}", rng.usize(..2))),
                _ if shares => pod.with_claim(&entry, &format!("shared-{}", rng.usize(..2))),
                _ => pod.with_template(&entry, "one"),
            };
        }
        if rng.u32(..6) == 0 {
            pod = pod.gated();
        } else if rng.u32(..8) == 0 || (taste == Taste::ByHand && rng.bool()) {
            pod = pod.on("node-0");
        }
        if self.kind.groups && rng.bool() {
            pod = pod.in_group("group");
        }
        let mut pod = pod.object().clone();
        pod["spec"]["terminationGracePeriodSeconds"] = json!(rng.u32(..4));
        if self.kind.holds && rng.u32(..3) == 0 {
            // The Pod runs until it is deleted. With the long grace period a plain deletion does not stop it.
            pod["metadata"]["annotations"] = json!({HOLD: ""});
            if rng.bool() {
                pod["spec"]["terminationGracePeriodSeconds"] = json!(RUNS_ON);
            }
        }
        if rng.u32(..6) == 0 || (taste == Taste::Extended && rng.bool()) {
            pod["spec"]["containers"][0]["resources"] = json!({"limits": {EXTENDED: "1"}});
        }
        if self.kind.accounts.is_some() {
            let cpu = format!("{}m", 250 * rng.u32(..5));
            pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": cpu});
        }
        pod
    }
}
