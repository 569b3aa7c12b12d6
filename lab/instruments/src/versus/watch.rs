//! The times at which a watch sees claims appear and disappear.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};

/// The times of one life.
#[derive(Default, Clone, Copy)]
struct Life {
    created: Option<Instant>,
    claimed: Option<Instant>,
    bound: Option<Instant>,
    done: Option<Instant>,
    gone: Option<Instant>,
}

/// Watches Pods and claims of a namespace.
pub(super) struct Clock {
    lives: Arc<Mutex<HashMap<String, Life>>>,
    tasks: [tokio::task::JoinHandle<()>; 2],
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

type Lives = Arc<Mutex<HashMap<String, Life>>>;

fn locked(lives: &Lives) -> MutexGuard<'_, HashMap<String, Life>> {
    lives.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow(api: Api<DynamicObject>, mut note: impl FnMut(&DynamicObject, bool)) {
    let mut events = watch(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => note(&object, false),
            Ok(Event::Delete(object)) => note(&object, true),
            Ok(Event::Init | Event::InitDone) | Err(_) => {}
        }
    }
}

impl Clock {
    pub(super) fn start(client: kube::Client, namespace: &str) -> Self {
        let lives = Lives::default();
        let pod = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        let claim = ApiResource::erase::<k8s_openapi::api::resource::v1::ResourceClaim>(&());
        let pods: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &pod);
        let claims: Api<DynamicObject> = Api::namespaced_with(client, namespace, &claim);
        let noted = lives.clone();
        let pods = tokio::spawn(follow(pods, move |pod, _| {
            let Some(uid) = pod.metadata.uid.clone() else { return };
            let mut lives = locked(&noted);
            let life = lives.entry(uid).or_default();
            life.created.get_or_insert_with(Instant::now);
            if pod.data["spec"]["nodeName"].is_string() {
                life.bound.get_or_insert_with(Instant::now);
            }
            if pod.data["status"]["phase"] == "Succeeded" {
                life.done.get_or_insert_with(Instant::now);
            }
        }));
        let noted = lives.clone();
        let claims = tokio::spawn(follow(claims, move |claim, deleted| {
            let Some(uid) = claim.metadata.owner_references.iter().flatten().map(|o| o.uid.clone()).next()
            else {
                return;
            };
            let mut lives = locked(&noted);
            let life = lives.entry(uid).or_default();
            life.claimed.get_or_insert_with(Instant::now);
            if deleted {
                // The last deletion counts: a claim that is made after completion is part of the life.
                life.gone = Some(Instant::now());
            } else {
                life.gone = None;
            }
        }));
        Self { lives, tasks: [pods, claims] }
    }

    /// The number of lives that are over: the Pod is done and its claim is gone.
    pub(super) fn lives(&self) -> usize {
        locked(&self.lives).values().filter(|l| l.done.is_some() && l.gone.is_some()).count()
    }

    /// The latencies from the Pod's creation to its claim and to its binding, and from its completion to the
    /// claim's end.
    pub(super) fn latencies(&self) -> [Vec<Duration>; 3] {
        let lives = locked(&self.lives);
        let between = |from: fn(&Life) -> Option<Instant>, to: fn(&Life) -> Option<Instant>| {
            lives.values().filter_map(|l| Some(to(l)?.saturating_duration_since(from(l)?))).collect()
        };
        [
            between(|l| l.created, |l| l.claimed),
            between(|l| l.created, |l| l.bound),
            between(|l| l.done, |l| l.gone),
        ]
    }

    /// The time from the first creation to the last binding.
    pub(super) fn until_bound(&self) -> Duration {
        let lives = locked(&self.lives);
        let first = lives.values().filter_map(|life| life.created).min();
        let last = lives.values().filter_map(|life| life.bound).max();
        first.zip(last).map_or(Duration::ZERO, |(first, last)| last.saturating_duration_since(first))
    }
}
