//! The Kubernetes API server.

mod admission;
mod body;
mod checks;
mod collector;
mod delete;
mod discovery;
mod events;
mod garbage;
mod json_path;
mod load;
pub(crate) mod meta;
mod openapi;
mod quota;
mod read;
mod request;
mod rights;
mod schemas;
mod selector;
mod spelling;
pub(crate) mod status;
mod store;
mod table;
mod tokens;
mod watch;
mod write;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use http::Method;
use serde_json::Value;
use tokio::sync::Notify;

pub use admission::Referee;
pub(crate) use body::PROTOBUF;
pub use load::LoadError;
pub use request::{Query, Request, User};
pub use rights::Refused;
pub use status::Status;
pub use watch::Watch;

use self::read::Pages;
use self::request::Place;
use self::store::Store;
use crate::clock::{Clock, seconds};
use crate::kinds::{Profile, Resource, built_in, is_built_in, verbs_of};
use crate::patch::{Lists, lists_of};
use crate::schema::Schemas;

/// A Kubernetes API server. Clones are cheap and share one server.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    /// Notified after every change that open watches have to see.
    changed: Notify,
    clock: Clock,
}

pub(crate) struct State {
    store: Store,
    profile: Profile,
    referee: Option<Referee>,
    resources: Vec<Arc<Resource>>,
    /// The merge behavior of the lists of custom resources, by storage name.
    lists: BTreeMap<String, Lists>,
    /// The schemas of custom resources.
    schemas: Schemas,
    /// The texts of opaque parameters of claims, by uid: of those that the API server would write in another way.
    spellings: BTreeMap<String, spelling::Spelling>,
    rng: Rng,
    tokens: tokens::Tokens,
    pages: Pages,
    /// The API groups that are not served for the moment.
    vanished: Vec<String>,
    /// The number of restarts.
    life: u64,
    /// The uids of removed owners whose dependents the garbage collector has not visited yet.
    orphaned: VecDeque<String>,
    /// Owners that terminate after their dependents, or orphan them.
    lingering: BTreeSet<store::Key>,
    writes: Vec<Write>,
    refused: VecDeque<Refused>,
}

/// A write that took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The user that wrote.
    pub user: String,
    /// `create`, `update`, `patch`, `delete`.
    pub verb: &'static str,
    /// The plural, followed by a slash and the subresource if there is one.
    pub resource: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The uid of the object.
    pub uid: String,
}

/// A change of an object in the chronicle.
#[derive(Debug, Clone)]
pub struct HistoryStep {
    /// The time of the change.
    pub at: jiff::Timestamp,
    /// `plural.group`, or `plural` in the core group.
    pub resource: String,
    /// The object before the change; `None` if it was created.
    pub before: Option<Arc<Value>>,
    /// The object after the change; `None` if it was removed.
    pub after: Option<Arc<Value>>,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status code.
    pub code: u16,
    /// The body.
    pub body: Body,
}

/// The body of an answer.
#[derive(Debug)]
pub enum Body {
    /// An object.
    Json(Value),
    /// An object in protobuf.
    Protobuf(Vec<u8>),
    /// Plain text.
    Text(String),
    /// The events of a watch, one line each.
    Watch(Box<Watch>),
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        Self { code: status.code, body: Body::Json(status.body()) }
    }
}

impl Answer {
    fn ok(object: Value) -> Self {
        Self { code: 200, body: Body::Json(object) }
    }
}

/// A request to a served resource.
pub(crate) struct Target<'a> {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: String,
    pub(crate) request: &'a Request,
    /// The time of the request, in RFC 3339.
    pub(crate) now: String,
}

impl ApiServer {
    /// Creates a cluster with the namespaces that every cluster has, and no other objects.
    pub fn new(profile: Profile, clock: Clock, seed: u64) -> Self {
        let state = State {
            store: Store::default(),
            resources: built_in(&profile).into_iter().map(Arc::new).collect(),
            profile,
            referee: None,
            lists: BTreeMap::new(),
            schemas: Schemas::default(),
            spellings: BTreeMap::new(),
            rng: Rng::with_seed(seed),
            tokens: BTreeMap::new(),
            pages: Pages::default(),
            vanished: Vec::new(),
            life: 0,
            orphaned: VecDeque::new(),
            lingering: BTreeSet::new(),
            writes: Vec::new(),
            refused: VecDeque::new(),
        };
        let shared = Shared { state: Mutex::new(state), changed: Notify::new(), clock };
        let server = Self { shared: Arc::new(shared) };
        for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let body =
                serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            server.answer(&Request {
                method: Method::POST,
                path: "/api/v1/namespaces".to_owned(),
                body: body.to_string().into_bytes(),
                user: User::admin(),
                ..Request::default()
            });
        }
        server
    }

    /// Answers a request.
    pub fn answer(&self, request: &Request) -> Answer {
        let answer = self.try_answer(request).unwrap_or_else(Answer::from);
        if request.method != Method::GET {
            self.shared.changed.notify_waiters();
        }
        answer
    }

    fn try_answer(&self, request: &Request) -> Result<Answer, Status> {
        let place = Place::of(&request.path);
        let mut state = self.state();
        if let Some(user) = state.speaks_for(request)? {
            drop(state);
            return self.try_answer(&Request { user, impersonated: None, ..request.clone() });
        }
        state.authorize(&place, request)?;
        let Place::Resource { group, version, namespace, plural, name, subresource } = place else {
            return discovery::answer(&state, &place, request);
        };
        if !state.serves(&group, &version) {
            return Ok(Answer { code: 404, body: Body::Text("404 page not found\n".to_owned()) });
        }
        let resource = state.resource(&group, &version, &plural).ok_or_else(Status::unserved)?;
        let subresource = subresource.unwrap_or_default();
        let known = subresource.is_empty() || resource.subresources.contains(&subresource);
        if !known && !is_built_in(&resource) {
            return Err(Status::not_found(&resource, &name.unwrap_or_default()));
        }
        // An object of a namespaced resource is addressed in its namespace.
        let placed = !resource.namespaced || namespace.is_some() || name.is_none();
        if !known || !placed || (!resource.namespaced && namespace.is_some()) {
            return Err(Status::unserved());
        }
        let now = seconds(self.shared.clock.now());
        let target = Target { resource, namespace, name, subresource, request, now };
        if target.request.method == Method::GET && request.query.is_on("watch") {
            return Watch::open(self.shared.clone(), &state, &target)
                .map(|watch| Answer { code: 200, body: Body::Watch(Box::new(watch)) });
        }
        state.answer(&target)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// Returns the writes that took effect, from index `from` on.
    pub fn writes(&self, from: usize) -> Vec<Write> {
        self.state().writes.get(from..).unwrap_or_default().to_vec()
    }

    /// Returns the most recent requests that RBAC refused.
    pub fn refused(&self) -> Vec<Refused> {
        self.state().refused.iter().cloned().collect()
    }

    /// Clears the refused requests.
    pub fn forget_refused(&self) {
        self.state().refused.clear();
    }

    /// From now on a referee is asked about every write of the status of a claim.
    pub fn admit_by(&self, referee: Referee) {
        self.state().referee = Some(referee);
    }

    /// The version of Kubernetes, and its feature gates.
    pub(crate) fn profile(&self) -> Profile {
        self.state().profile.clone()
    }

    /// Restarts the server with another profile. Stored objects and custom resources stay; history is
    /// compacted, and open watches end.
    pub fn restart(&self, profile: Profile) {
        let mut state = self.state();
        let custom = state.resources.iter().filter(|known| state.lists.contains_key(&known.stored_as()));
        let custom: Vec<Arc<Resource>> = custom.cloned().collect();
        state.resources = built_in(&profile).into_iter().map(Arc::new).chain(custom).collect();
        state.profile = profile;
        state.life += 1;
        state.store.compact();
        drop(state);
        self.shared.changed.notify_waiters();
    }

    /// Compacts the history, as etcd does periodically.
    pub fn compact(&self) {
        self.state().store.compact();
    }

    /// Stops serving an API group, or serves it again. Watches of its resources end.
    pub fn vanish(&self, group: &str, vanished: bool) {
        let mut state = self.state();
        state.vanished.retain(|known| known != group);
        if vanished {
            state.vanished.push(group.to_owned());
        }
        drop(state);
        self.shared.changed.notify_waiters();
    }

    /// Returns all objects of a resource as they are stored.
    pub fn all(&self, qualified: &str) -> Vec<Arc<Value>> {
        self.state().store.list(qualified, None).map(|(_, object)| object.clone()).collect()
    }

    /// Returns the number of objects of a resource.
    pub fn count(&self, qualified: &str) -> usize {
        self.state().store.count(qualified)
    }

    /// Starts to record every change.
    pub fn chronicle(&self) {
        self.state().store.chronicle(self.shared.clock);
    }

    /// The steps that have happened, without the first `since`. An object that is new has no state
    /// before, one that is gone none after.
    pub fn chronicled(&self, since: usize) -> Vec<HistoryStep> {
        let state = self.state();
        let told = |(at, stored_as, change): &store::Told| HistoryStep {
            at: *at,
            resource: stored_as.clone(),
            before: change.before.clone(),
            after: (change.happened != store::Happened::Deleted).then(|| change.object.clone()),
        };
        state.store.chronicled().iter().skip(since).map(told).collect()
    }

    /// Returns the time in the cluster.
    pub fn now(&self) -> jiff::Timestamp {
        self.shared.clock.now()
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether any resource of this group and version is served.
    fn serves(&self, group: &str, version: &str) -> bool {
        let mut served = self.resources.iter().filter(|_| !self.vanished.iter().any(|gone| gone == group));
        served.any(|resource| resource.group == group && resource.version == version)
    }

    fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let served = |resource: &&Arc<Resource>| {
            resource.group == group
                && resource.version == version
                && resource.plural == plural
                && !self.vanished.contains(&resource.group)
        };
        self.resources.iter().find(served).cloned()
    }

    fn answer(&mut self, target: &Target<'_>) -> Result<Answer, Status> {
        if !target.resource.verbs.is_empty() {
            return rights::review(self, target);
        }
        let method = &target.request.method;
        let verb = match *method {
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            _ => "delete",
        };
        if !target.subresource.is_empty() && !verbs_of(&target.subresource).contains(&verb) {
            return Err(Status::method_not_allowed());
        }
        match (method, &target.name) {
            (&Method::GET, Some(_)) => self.get(target),
            (&Method::GET, None) => self.list(target),
            (&Method::POST, None) => self.create(target),
            (&Method::POST, Some(_)) if target.subresource == "binding" => self.bind(target),
            (&Method::POST, Some(_)) if target.subresource == "token" => self.issue(target),
            (&Method::PUT, Some(_)) => self.replace(target),
            (&Method::PATCH, Some(_)) => self.patch(target),
            (&Method::DELETE, Some(_)) => self.delete(target),
            (&Method::DELETE, None) => self.delete_collection(target),
            _ => Err(Status::method_not_allowed()),
        }
    }

    /// The merge behavior of the lists of a resource.
    fn lists_of(&self, resource: &Resource) -> Lists {
        self.lists.get(&resource.stored_as()).cloned().unwrap_or_else(|| lists_of(&resource.kind))
    }

    /// Draws a new uid in the format of a version 4 UUID.
    fn uid(&mut self) -> String {
        let text = format!("{:032x}", self.rng.u128(..));
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default().to_owned();
        format!("{}-{}-4{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
    }
}
