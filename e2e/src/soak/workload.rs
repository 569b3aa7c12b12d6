//! What people do to a cluster, from a seed.

use std::time::Duration;

use dragoman_simcluster::HOLD;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::objects::Pod;

/// Something that somebody does.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Template(String),
    Claim(String),
    Pod(Box<Value>),
    Group(String),
    DeleteGroup(String),
    DeletePod(String),
    /// Removes a Pod from the API without waiting for its node.
    Vanish(String),
    /// Opens the gate.
    Release(String),
    /// Deletes the claim that a Pod's status names first.
    DeleteClaimOf(String),
    /// Drops the names of claims from a Pod's status.
    WipeStatus(String),
    /// Names a claim in a Pod's status that is not the Pod's.
    Misname(String),
    /// Writes into a Pod's status what nobody can read.
    Garble(String),
    /// Reserves a claim for somebody of whom the controller cannot know anything.
    Lend(String),
    /// The same for the claim that a Pod's status names first.
    LendClaimOf(String),
    /// Reserves a claim for as many of those as it takes.
    Fill(String),
    /// Allocates a claim of a Pod, as an allocator does that knows no finalizers.
    Allot(String),
    /// Sets a Pod's phase, as whoever evicts it does.
    Fail(String),
    /// The controller is killed, and is back after so long.
    Crash(Duration),
    /// Another instance of the controller begins, and the first goes on for so long.
    Takeover(Duration),
}

/// An action, and when.
pub(super) type Script = Vec<(Duration, Action)>;

/// What classes stand for beside their name.
pub(super) const EXTENDED: &str = "soak.dragoman.dev/device";

/// Within this everything happens.
pub(super) const SPAN: Duration = Duration::from_secs(60);

/// A Pod that does not want to stop has so long: more than any run takes.
const RUNS_ON: u32 = 7200;

/// What is on its way out for so long is known to be by everybody, whatever is late.
pub(super) const LINGERS: Duration = Duration::from_secs(40);

/// The template that never comes.
const NEVER: &str = "never";

/// What kind of run it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// Pods may run until somebody ends them, and keep their devices.
    pub(super) holds: bool,
    /// There are PodGroups.
    pub(super) groups: bool,
    /// Nothing goes wrong, and the controller lives as long as the cluster.
    pub(super) calm: bool,
}

/// What happens to a Pod after it was made.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Delete,
    DeleteClaim,
    WipeStatus,
    Fail,
    /// The name is used again, soon.
    Again,
    Misname,
    Release,
    Lend,
    Vanish,
    /// It is told to stop, and its status is wiped while it stops.
    WipeAtTheEnd,
    /// Its claim is told to go, and its status is wiped when everybody has seen that.
    Linger,
    Garble,
    Allot,
}

const DEEDS: [Deed; 13] = [
    Deed::Delete,
    Deed::DeleteClaim,
    Deed::WipeStatus,
    Deed::Fail,
    Deed::Again,
    Deed::Misname,
    Deed::Release,
    Deed::Lend,
    Deed::Vanish,
    Deed::WipeAtTheEnd,
    Deed::Linger,
    Deed::Garble,
    Deed::Allot,
];

/// What the Pods of a run are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taste {
    Mixed,
    /// They share claims.
    Sharing,
    /// They are put on nodes past the scheduler, and share claims.
    ByHand,
    /// They ask for extended resources.
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

/// What is drawn for a whole run: half of them repeat one or two deeds, since some harm takes
/// several of a kind.
struct Draw<'a> {
    rng: &'a mut Rng,
    kind: Kind,
    deeds: Option<[Deed; 2]>,
    taste: Taste,
}

/// Everything that is done in a run.
pub(super) fn script(rng: &mut Rng, kind: Kind) -> Script {
    let deeds = rng.bool().then(|| [any(rng, &DEEDS, Deed::Delete), any(rng, &DEEDS, Deed::Delete)]);
    let taste = any(rng, &TASTES, Taste::Mixed);
    let mut draw = Draw { rng, kind, deeds, taste };
    let mut script: Script = Vec::new();
    // One template is there from the start, the other comes whenever it comes.
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
    script.sort_by_key(|(when, _)| *when);
    script
}

fn any<T: Copy>(rng: &mut Rng, of: &[T], otherwise: T) -> T {
    of.get(rng.usize(..of.len())).copied().unwrap_or(otherwise)
}

impl Draw<'_> {
    /// Some time from `from` on.
    fn at(&mut self, from: Duration) -> Duration {
        from + SPAN.saturating_sub(from).mul_f64(self.rng.f64())
    }

    /// Some time soon after `from`.
    fn soon(&mut self, from: Duration) -> Duration {
        from + Duration::from_millis(self.rng.u64(..5_000))
    }

    fn deed(&mut self) -> Deed {
        match self.deeds {
            Some(deeds) if self.rng.u32(..4) > 0 => any(self.rng, &deeds, Deed::Delete),
            _ => any(self.rng, &DEEDS, Deed::Delete),
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
        // It may be there before its Pods or after them.
        let made = if self.rng.bool() { Duration::ZERO } else { self.at(Duration::ZERO) };
        script.push((made, Action::Group("group".to_owned())));
        if self.rng.u32(..3) == 0 {
            script.push((self.at(made), Action::DeleteGroup("group".to_owned())));
        }
    }

    /// What becomes of one Pod.
    fn life(&mut self, number: usize, script: &mut Script) {
        let mut name = format!("pod-{number}");
        if self.rng.u32(..10) == 0 {
            // Its claims have names that are cut, at a dot or beside it.
            name.push_str(&".x".repeat(self.rng.usize(60..=120)));
        }
        let begins = self.at(Duration::ZERO);
        script.push((begins, Action::Pod(Box::new(self.pod(&name)))));
        for _ in 0..self.rng.usize(..3) {
            let (when, name) = (self.at(begins), name.clone());
            let action = match self.deed() {
                Deed::Delete => Action::DeletePod(name),
                Deed::DeleteClaim => Action::DeleteClaimOf(name),
                Deed::WipeStatus => Action::WipeStatus(name),
                Deed::Fail => Action::Fail(name),
                Deed::Again => {
                    let gone = if self.rng.bool() { Action::Vanish } else { Action::DeletePod };
                    script.push((when, gone(name.clone())));
                    let again = self.soon(when);
                    script.push((again, Action::Pod(Box::new(self.pod(&name)))));
                    continue;
                }
                Deed::Misname => Action::Misname(name),
                Deed::Lend if self.kind.holds => Action::LendClaimOf(name),
                Deed::Vanish => Action::Vanish(name),
                Deed::WipeAtTheEnd => {
                    script.push((when, Action::DeletePod(name.clone())));
                    script.push((self.soon(when), Action::WipeStatus(name)));
                    continue;
                }
                Deed::Linger => {
                    script.push((when, Action::DeleteClaimOf(name.clone())));
                    script.push((when + LINGERS, Action::WipeStatus(name)));
                    continue;
                }
                Deed::Garble => {
                    script.push((when, Action::Garble(name.clone())));
                    // Who stays so keeps devices for ever.
                    if !self.kind.holds || self.rng.bool() {
                        script.push((self.at(when), Action::WipeStatus(name)));
                    }
                    continue;
                }
                Deed::Allot => Action::Allot(name),
                Deed::Release | Deed::Lend => Action::Release(name),
            };
            script.push((when, action));
        }
    }

    /// What becomes of the controller.
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
            // It runs until somebody ends it, who may have to insist.
            pod["metadata"]["annotations"] = json!({HOLD: ""});
            if rng.bool() {
                pod["spec"]["terminationGracePeriodSeconds"] = json!(RUNS_ON);
            }
        }
        if rng.u32(..6) == 0 || (taste == Taste::Extended && rng.bool()) {
            pod["spec"]["containers"][0]["resources"] = json!({"limits": {EXTENDED: "1"}});
        }
        pod
    }
}
