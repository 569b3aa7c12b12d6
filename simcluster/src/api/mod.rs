//! The API server.

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
mod read;
mod request;
mod rights;
mod selector;
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

/// A Kubernetes API server. Cheap to clone: clones are doors to the same one.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    /// Told after every change.
    changed: Notify,
    clock: Clock,
}

pub(crate) struct State {
    store: Store,
    profile: Profile,
    resources: Vec<Arc<Resource>>,
    /// Lists of custom resources, by what they are stored as.
    lists: BTreeMap<String, Lists>,
    /// Schemas of custom resources.
    schemas: Schemas,
    rng: Rng,
    tokens: tokens::Tokens,
    pages: Pages,
    /// Groups that are not served for the moment.
    vanished: Vec<String>,
    /// How often it was started anew.
    life: u64,
    /// Owners that are gone, whose dependents nobody has looked at yet.
    bereft: VecDeque<String>,
    /// Owners that end before or without what they own.
    lingering: BTreeSet<store::Key>,
    writes: Vec<Write>,
    refused: VecDeque<Refused>,
}

/// A write that took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Who wrote.
    pub user: String,
    /// `create`, `update`, `patch`, `delete`.
    pub verb: &'static str,
    /// Plural, with the subresource behind a slash.
    pub resource: String,
    /// Namespace; empty in the cluster.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Which object of this name.
    pub uid: String,
}

/// Something that has happened to an object.
#[derive(Debug, Clone)]
pub struct Chronicled {
    /// When.
    pub at: jiff::Timestamp,
    /// `plural.group`, or `plural` in the core group.
    pub resource: String,
    /// The object before.
    pub before: Option<Arc<Value>>,
    /// The object after.
    pub after: Option<Arc<Value>>,
}

/// What comes back.
#[derive(Debug)]
pub struct Answer {
    /// HTTP code.
    pub code: u16,
    /// Body.
    pub body: Body,
}

/// The body of an answer.
#[derive(Debug)]
pub enum Body {
    /// An object.
    Json(Value),
    /// Plain text.
    Text(String),
    /// Lines for as long as they are read.
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

/// A request to a resource that is served.
pub(crate) struct Target<'a> {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    /// Empty for the object itself.
    pub(crate) subresource: String,
    pub(crate) request: &'a Request,
    /// RFC 3339.
    pub(crate) now: String,
}

impl ApiServer {
    /// An empty cluster with the namespaces that every cluster has.
    pub fn new(profile: Profile, clock: Clock, seed: u64) -> Self {
        let state = State {
            store: Store::default(),
            resources: built_in(&profile).into_iter().map(Arc::new).collect(),
            profile,
            lists: BTreeMap::new(),
            schemas: Schemas::default(),
            rng: Rng::with_seed(seed),
            tokens: BTreeMap::new(),
            pages: Pages::default(),
            vanished: Vec::new(),
            life: 0,
            bereft: VecDeque::new(),
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
        // A name of something in a namespace needs the namespace.
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

    /// Writes that took effect, from the one with this number on.
    pub fn writes(&self, from: usize) -> Vec<Write> {
        self.state().writes.get(from..).unwrap_or_default().to_vec()
    }

    /// The last requests that were refused for want of a right.
    pub fn refused(&self) -> Vec<Refused> {
        self.state().refused.iter().cloned().collect()
    }

    /// Forgets what was refused.
    pub fn forget_refused(&self) {
        self.state().refused.clear();
    }

    /// Starts anew under another profile: what it serves changes, what is kept stays, and open
    /// watches end.
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

    /// Forgets all history, as etcd does now and then.
    pub fn compact(&self) {
        self.state().store.compact();
    }

    /// Lets an API group vanish, or come back; watches of what vanishes end.
    pub fn vanish(&self, group: &str, vanished: bool) {
        let mut state = self.state();
        state.vanished.retain(|known| known != group);
        if vanished {
            state.vanished.push(group.to_owned());
        }
        drop(state);
        self.shared.changed.notify_waiters();
    }

    /// All objects of a resource as they are kept.
    pub fn all(&self, qualified: &str) -> Vec<Arc<Value>> {
        self.state().store.list(qualified, None).map(|(_, object)| object.clone()).collect()
    }

    /// How many objects of a resource there are.
    pub fn count(&self, qualified: &str) -> usize {
        self.state().store.count(qualified)
    }

    /// From now on everything that happens is remembered.
    pub fn chronicle(&self) {
        self.state().store.chronicle(self.shared.clock);
    }

    /// The steps that have happened, without the first `since`. An object that is new has no state
    /// before, one that is gone none after.
    pub fn chronicled(&self, since: usize) -> Vec<Chronicled> {
        let state = self.state();
        let told = |(at, stored_as, change): &store::Told| Chronicled {
            at: *at,
            resource: stored_as.clone(),
            before: change.before.clone(),
            after: (change.happened != store::Happened::Deleted).then(|| change.object.clone()),
        };
        state.store.chronicled().iter().skip(since).map(told).collect()
    }

    /// The time in the cluster.
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
    /// Whether anything of a group is served in a version.
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

    /// How the lists of a resource are merged.
    fn lists_of(&self, resource: &Resource) -> Lists {
        self.lists.get(&resource.stored_as()).cloned().unwrap_or_else(|| lists_of(&resource.kind))
    }

    /// A new uid, of the form of a random one.
    fn uid(&mut self) -> String {
        let text = format!("{:032x}", self.rng.u128(..));
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default().to_owned();
        format!("{}-{}-4{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
    }
}
