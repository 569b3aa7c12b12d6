//! The part of the cluster that concerns devices, at one moment.

mod held;
mod pool;
mod pools;
mod slice;

pub(crate) use held::Held;
pub use pool::contradiction;
pub(crate) use pools::{NodeView, PoolStatus, PoolView, Repels, ViewDevice};
pub(crate) use slice::{PoolKey, PreparedSlice};

use std::collections::BTreeSet;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use dragoman_objects::{Allocation, Attribute, Class, Device, DeviceResult, Name, Slice, TaintRule};
use rpds::HashTrieMapSync;
use rustc_hash::FxHasher;

use self::held::PoolHeld;
use self::pool::PoolSlices;
use crate::gates::Gates;
use crate::input::{Claim, Cluster, Node};
use crate::selectors::Interned;

/// The nodes, slices, classes, claims and taint rules of a cluster at one moment. A snapshot is
/// immutable, cheap to clone, and cheap to derive from another by one object: only the parts that
/// the object touches are rebuilt.
#[derive(Debug, Clone)]
pub struct Snapshot(Arc<State>);

/// A fast hash without protection from collisions: names come from the API server and from drivers,
/// which gain nothing from a collision.
type Map<K, V> = HashTrieMapSync<K, V, BuildHasherDefault<FxHasher>>;

#[derive(Debug, Clone)]
struct State {
    revision: u64,
    family: Arc<Family>,
    nodes: Map<Name, Arc<Node>>,
    classes: Map<Name, Arc<Class>>,
    classes_revision: u64,
    rules: Map<Name, Arc<TaintRule>>,
    claims: Map<Name, Arc<Claim>>,
    slices: Map<Name, Arc<PreparedSlice>>,
    /// The drivers whose devices are not given.
    withheld: Map<Name, ()>,
    pools: Map<PoolKey, PoolSlices>,
    /// Slices with a `nodeName`, by node, with the view that was built of them.
    local: Map<Name, Arc<NodeSlices>>,
    /// Slices without a `nodeName`.
    shared: Map<Name, Arc<PreparedSlice>>,
    /// The revision of the last change that concerns more than one node.
    shared_revision: u64,
    held: Map<PoolKey, Arc<PoolHeld>>,
}

/// The state that all snapshots derived from the same first one share.
#[derive(Debug, Default)]
struct Family {
    interned: Interned,
    next_revision: AtomicU64,
}

/// The slices with the `nodeName` of one node.
#[derive(Debug, Default)]
struct NodeSlices {
    slices: Map<Name, Arc<PreparedSlice>>,
    view: RwLock<Option<Arc<NodeView>>>,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self(Arc::new(State {
            revision: 0,
            family: Arc::default(),
            nodes: Map::default(),
            classes: Map::default(),
            classes_revision: 0,
            rules: Map::default(),
            claims: Map::default(),
            slices: Map::default(),
            withheld: Map::default(),
            pools: Map::default(),
            local: Map::default(),
            shared: Map::default(),
            shared_revision: 0,
            held: Map::default(),
        }))
    }
}

impl Snapshot {
    /// Returns an empty snapshot that keeps the compiled selectors and their verdicts.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let state = State { family: self.0.family.clone(), ..State::clone(&Self::default().0) };
        Self(Arc::new(state)).derived(|_| ())
    }

    /// The revision of the snapshot, unique among all snapshots derived from the same first one.
    pub fn revision(&self) -> u64 {
        self.0.revision
    }

    /// Returns a snapshot that `change` has modified.
    fn derived(&self, change: impl FnOnce(&mut State)) -> Self {
        let mut state = State::clone(&self.0);
        state.revision = state.family.next_revision.fetch_add(1, Ordering::Relaxed) + 1;
        change(&mut state);
        Self(Arc::new(state))
    }

    /// Returns a snapshot with all objects of a cluster added.
    #[must_use]
    pub fn with(&self, cluster: Cluster) -> Self {
        let with = cluster.nodes.into_iter().fold(self.clone(), |with, node| with.with_node(node));
        let with = cluster.taint_rules.into_iter().fold(with, |with, rule| with.with_taint_rule(rule));
        let with = cluster.classes.into_iter().fold(with, |with, class| with.with_class(class));
        let with = cluster.slices.into_iter().fold(with, |with, slice| with.with_slice(slice));
        cluster.claims.into_iter().fold(with, |with, claim| with.with_claim(claim))
    }

    /// Returns a snapshot with this node, replacing one of the same name.
    #[must_use]
    pub fn with_node(&self, node: Node) -> Self {
        self.derived(|state| {
            state.forget_view(&node.name);
            state.nodes.insert_mut(node.name.clone(), Arc::new(node));
        })
    }

    /// Returns a snapshot without the node of this name.
    #[must_use]
    pub fn without_node(&self, name: &str) -> Self {
        self.derived(|state| {
            state.forget_view(name);
            state.nodes.remove_mut(name);
        })
    }

    /// Returns a snapshot with this class, replacing one of the same name.
    #[must_use]
    pub fn with_class(&self, class: Class) -> Self {
        self.derived(|state| {
            state.classes_revision = state.revision;
            state.classes.insert_mut(class.name.clone(), Arc::new(class));
        })
    }

    /// Whether a class stands behind an extended resource (KEP-5004): by its `extendedResourceName`, or by its own name.
    pub fn is_backed(&self, resource: &str) -> bool {
        self.0.classes.values().any(|class| class.is_behind(resource))
    }

    /// Returns a snapshot without the class of this name.
    #[must_use]
    pub fn without_class(&self, name: &str) -> Self {
        self.derived(|state| {
            state.classes_revision = state.revision;
            state.classes.remove_mut(name);
        })
    }

    /// Returns a snapshot with this taint rule, replacing one of the same name.
    #[must_use]
    pub fn with_taint_rule(&self, rule: TaintRule) -> Self {
        self.derived(|state| {
            state.shared_revision = state.revision;
            state.rules.insert_mut(rule.name.clone(), Arc::new(rule));
        })
    }

    /// Returns a snapshot without the taint rule of this name.
    #[must_use]
    pub fn without_taint_rule(&self, name: &str) -> Self {
        self.derived(|state| {
            state.shared_revision = state.revision;
            state.rules.remove_mut(name);
        })
    }

    /// Returns a snapshot with this slice, replacing one of the same name.
    #[must_use]
    pub fn with_slice(&self, slice: Slice) -> Self {
        self.derived(|state| {
            state.remove_slice(&slice.name);
            let prepared = PreparedSlice::new(state.revision, slice, &state.family.interned);
            state.insert_slice(Arc::new(prepared));
        })
    }

    /// Returns a snapshot without the slice of this name.
    #[must_use]
    pub fn without_slice(&self, name: &str) -> Self {
        self.derived(|state| state.remove_slice(name))
    }

    /// Returns the slice of this name.
    pub fn slice(&self, name: &str) -> Option<Slice> {
        let prepared = self.0.slices.get(name)?;
        let devices = prepared.devices.iter().map(|of| Device::clone(&of.device)).collect();
        Some(Slice { devices, ..prepared.slice.clone() })
    }

    /// Returns the names of the devices of a slice.
    pub fn devices_of(&self, slice: &str) -> impl Iterator<Item = Name> {
        let devices = self.0.slices.get(slice).into_iter().flat_map(|slice| &slice.devices);
        devices.map(|of| of.device.name.clone())
    }

    /// Returns a snapshot that gives no device of this driver, or one that does again: another allocator may
    /// own the driver. What claims hold of it stays held.
    #[must_use]
    pub fn withholding(&self, driver: &str, is_withheld: bool) -> Self {
        if self.0.withheld.contains_key(driver) == is_withheld {
            return self.clone();
        }
        self.derived(|state| {
            state.shared_revision = state.revision;
            if is_withheld {
                state.withheld.insert_mut(driver.into(), ());
            } else {
                state.withheld.remove_mut(driver);
            }
        })
    }

    /// The drivers that are withheld and publish devices, in order of their names.
    pub fn withheld(&self) -> Vec<&Name> {
        let publishes = |driver: &&Name| self.0.pools.keys().any(|key| key.driver == **driver);
        let mut drivers: Vec<&Name> = self.0.withheld.keys().filter(publishes).collect();
        drivers.sort();
        drivers
    }

    /// Returns a snapshot with this claim, replacing one of the same uid.
    #[must_use]
    pub fn with_claim(&self, mut claim: Claim) -> Self {
        self.derived(|state| {
            state.release(&claim.uid);
            state.share_names(&mut claim);
            state.hold(claim.allocation.as_ref());
            state.claims.insert_mut(claim.uid.clone(), Arc::new(claim));
        })
    }

    /// Returns a snapshot without the claim of this uid.
    #[must_use]
    pub fn without_claim(&self, uid: &str) -> Self {
        self.derived(|state| {
            state.release(uid);
            state.claims.remove_mut(uid);
        })
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.0.nodes.get(name)
    }

    /// The class of this name.
    pub fn class(&self, name: &str) -> Option<&Arc<Class>> {
        self.0.classes.get(name)
    }

    /// The claim with this uid.
    pub fn claim(&self, uid: &str) -> Option<&Arc<Claim>> {
        self.0.claims.get(uid)
    }

    /// All claims, in no particular order.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<Claim>> {
        self.0.claims.values()
    }

    /// All nodes, in no particular order.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.0.nodes.values()
    }

    /// Returns an attribute of a device in the newest generation of its pool (KEP-5304).
    pub fn attribute(&self, driver: &str, pool: &str, device: &str, name: &str) -> Option<&Attribute> {
        let key = PoolKey { driver: driver.into(), pool: pool.into() };
        let slices = || self.0.pools.get(&key).into_iter().flat_map(PoolSlices::iter);
        let newest = slices().map(|slice| slice.slice.pool.generation).max()?;
        let mut current = slices().filter(|slice| slice.slice.pool.generation == newest);
        let device = current.find_map(|slice| slice.devices.get(slice.place(device)?))?;
        device.device.attribute(driver, name)
    }

    pub(crate) fn interned(&self) -> &Interned {
        &self.0.family.interned
    }

    pub(crate) fn classes_revision(&self) -> u64 {
        self.0.classes_revision
    }

    /// Returns the pools as one node sees them.
    pub(crate) fn view(&self, node: &Arc<Node>, gates: &Gates) -> Arc<NodeView> {
        let state = &self.0;
        let Some(local) = state.local.get(&node.name) else {
            return Arc::new(self.gathered(node, &NodeSlices::default(), gates));
        };
        let revision = |key: &PoolKey| state.pools.get(key).map(PoolSlices::revision);
        let fits = |view: &&Arc<NodeView>| view.serves(state.shared_revision, gates, revision);
        if let Some(view) = local.view.read().unwrap_or_else(PoisonError::into_inner).as_ref().filter(fits) {
            return view.clone();
        }
        let view = Arc::new(self.gathered(node, local, gates));
        *local.view.write().unwrap_or_else(PoisonError::into_inner) = Some(view.clone());
        view
    }

    fn gathered(&self, node: &Node, local: &NodeSlices, gates: &Gates) -> NodeView {
        let state = &self.0;
        let all = local.slices.values().chain(state.shared.values());
        let gathering = pools::Gathering {
            node,
            gates,
            candidates: all.filter(|slice| !state.withheld.contains_key(&slice.key.driver)),
            whole: |key: &PoolKey| Some(state.pools.get(key)?.whole(gates)),
            rules: state.rules.values().collect(),
        };
        let keys: BTreeSet<&PoolKey> = local.slices.values().map(|slice| &slice.key).collect();
        let revision = |key: &PoolKey| Some((key.clone(), state.pools.get(key)?.revision()));
        gathering.view(state.shared_revision, keys.into_iter().filter_map(revision).collect())
    }

    /// Returns the held state of a slice's devices. Empty if none is held.
    pub(crate) fn held(&self, slice: &Arc<PreparedSlice>) -> Arc<[Held]> {
        self.0.held.get(&slice.key).map_or_else(Arc::default, |held| held.of_slice(slice))
    }

    /// Whether every device of a slice is held as a whole.
    pub(crate) fn holds_all(&self, slice: &Arc<PreparedSlice>) -> bool {
        slice.devices.is_empty() || self.0.held.get(&slice.key).is_some_and(|held| held.is_all_of(slice))
    }
}

impl State {
    fn forget_view(&mut self, node: &str) {
        let Some(local) = self.local.get(node) else {
            // The entry of a node without local slices stores its view.
            self.local.insert_mut(node.into(), Arc::default());
            return;
        };
        let anew = Arc::new(NodeSlices { slices: local.slices.clone(), view: RwLock::default() });
        self.local.insert_mut(node.into(), anew);
    }

    fn insert_slice(&mut self, slice: Arc<PreparedSlice>) {
        let name = slice.slice.name.clone();
        self.change_slices_of_node(&slice, |slices| slices.insert_mut(name.clone(), slice.clone()));
        let pool = self.pools.get(&slice.key).cloned().unwrap_or_default();
        self.put_pool(&slice.key, pool.with(&slice, self.revision));
        self.slices.insert_mut(name, slice);
    }

    fn remove_slice(&mut self, name: &str) {
        let Some(slice) = self.slices.get(name).cloned() else { return };
        self.slices.remove_mut(name);
        self.change_slices_of_node(&slice, |slices| {
            slices.remove_mut(name);
        });
        if let Some(pool) = self.pools.get(&slice.key) {
            let pool = pool.without(&slice, self.revision);
            self.put_pool(&slice.key, pool);
        }
    }

    /// Puts a changed pool in its place. The completeness of a pool depends on all of its slices: the
    /// views of their nodes see from its revision that they are out of date, and every view does where
    /// a slice belongs to no single node.
    fn put_pool(&mut self, key: &PoolKey, pool: PoolSlices) {
        if pool.is_shared() {
            self.shared_revision = self.revision;
        }
        if pool.is_empty() {
            self.pools.remove_mut(key);
        } else {
            self.pools.insert_mut(key.clone(), pool);
        }
    }

    fn change_slices_of_node(
        &mut self,
        slice: &Arc<PreparedSlice>,
        change: impl FnOnce(&mut Map<Name, Arc<PreparedSlice>>),
    ) {
        let Some(node) = slice.node_name() else {
            self.shared_revision = self.revision;
            change(&mut self.shared);
            return;
        };
        let mut slices = self.local.get(node).map(|local| local.slices.clone()).unwrap_or_default();
        change(&mut slices);
        self.local.insert_mut(node.clone(), Arc::new(NodeSlices { slices, view: RwLock::default() }));
    }

    fn release(&mut self, uid: &str) {
        let Some(claim) = self.claims.get(uid).cloned() else { return };
        self.change_held(claim.allocation.as_ref(), false);
    }

    /// Lets an allocation share the names of pools with their slices.
    fn share_names(&self, claim: &mut Claim) {
        for result in claim.allocation.iter_mut().flat_map(|of| &mut of.devices.results) {
            let key = PoolKey { driver: result.driver.clone(), pool: result.pool.clone() };
            if let Some((known, _)) = self.pools.get_key_value(&key) {
                result.driver.clone_from(&known.driver);
                result.pool.clone_from(&known.pool);
            }
        }
    }

    fn hold(&mut self, allocation: Option<&Allocation>) {
        self.change_held(allocation, true);
    }

    fn change_held(&mut self, allocation: Option<&Allocation>, more: bool) {
        let results = allocation.into_iter().flat_map(|allocation| &allocation.devices.results);
        let holds = |result: &&DeviceResult| result.admin_access != Some(true);
        for result in results.filter(holds) {
            let key = PoolKey { driver: result.driver.clone(), pool: result.pool.clone() };
            let held = self.held.get(&key).cloned().unwrap_or_default().changed(result, more);
            if held.is_empty() {
                self.held.remove_mut(&key);
            } else {
                self.held.insert_mut(key, Arc::new(held));
            }
        }
    }
}
