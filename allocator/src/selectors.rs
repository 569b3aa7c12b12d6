//! The combined selectors of a class and a request, and their verdicts on devices. A verdict
//! depends on the content of a device only, so it is computed once and kept for all requests, Pods
//! and nodes.

use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use dragoman_quantity::capacity::Capacity;
use rustc_hash::{FxHashMap, FxHasher};

use crate::capacity;
use crate::cel::{BoundDevice, CompileError, Compiler, Expression, Purpose};
use crate::input::{Attribute, Device, Name};

/// The part of a device that selectors see. Devices with equal content share one value.
#[derive(Debug)]
pub(crate) struct Content {
    id: u64,
    driver: Name,
    device: Arc<Device>,
    /// Sorted by name.
    pub(crate) capacities: Box<[(Name, Capacity)]>,
}

impl Content {
    fn is(&self, driver: &str, device: &Device) -> bool {
        *self.driver == *driver
            && self.device.attributes == device.attributes
            && self.device.capacity == device.capacity
            && self.device.allow_multiple_allocations == device.allow_multiple_allocations
    }
}

/// The result of the selectors for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All selectors hold.
    Selected,
    /// A selector of the class does not hold.
    NotOfClass,
    /// A selector of the request does not hold.
    NotOfRequest,
    /// A selector of the class cannot be compiled or evaluated.
    ClassFailed(usize, Arc<str>),
    /// A selector of the request cannot be compiled or evaluated.
    RequestFailed(usize, Arc<str>),
}

/// The selectors of a class, followed by those of a request.
#[derive(Debug)]
pub(crate) struct Selectors {
    of_class: usize,
    expressions: Vec<Result<Expression, CompileError>>,
    said: RwLock<FxHashMap<u64, Verdict>>,
}

impl Selectors {
    /// Evaluates the selectors in order, until the first that does not hold.
    pub(crate) fn say(&self, content: &Content) -> Verdict {
        if self.expressions.is_empty() {
            return Verdict::Selected;
        }
        let said = self.said.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = said.get(&content.id) {
            return verdict.clone();
        }
        drop(said);
        let verdict = self.evaluate(content);
        let mut said = self.said.write().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MOST_REMEMBERED {
            said.clear();
        }
        said.insert(content.id, verdict.clone());
        verdict
    }

    fn evaluate(&self, content: &Content) -> Verdict {
        let device = BoundDevice::new(content.driver.clone(), content.device.clone());
        for (place, expression) in self.expressions.iter().enumerate() {
            let holds = match expression {
                Ok(expression) => expression.matches(&device).map_err(|why| why.to_string()),
                Err(why) => Err(why.to_string()),
            };
            let in_request = place.checked_sub(self.of_class);
            match (holds, in_request) {
                (Ok(true), _) => {}
                (Ok(false), None) => return Verdict::NotOfClass,
                (Ok(false), Some(_)) => return Verdict::NotOfRequest,
                (Err(why), None) => return Verdict::ClassFailed(place, why.into()),
                (Err(why), Some(place)) => return Verdict::RequestFailed(place, why.into()),
            }
        }
        Verdict::Selected
    }
}

/// The expression of a derived attribute, and its results by content.
#[derive(Debug)]
pub(crate) struct Derivation {
    expression: Result<Expression, CompileError>,
    gave: RwLock<FxHashMap<u64, Result<Attribute, Arc<str>>>>,
}

impl Derivation {
    /// Returns the attribute of a device, or the error of the expression.
    pub(crate) fn of(&self, content: &Content) -> Result<Attribute, Arc<str>> {
        let gave = self.gave.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(attribute) = gave.get(&content.id) {
            return attribute.clone();
        }
        drop(gave);
        let attribute = match &self.expression {
            Ok(expression) => {
                let device = BoundDevice::new(content.driver.clone(), content.device.clone());
                expression.derive(&device).map_err(|why| why.to_string().into())
            }
            Err(why) => Err(why.to_string().into()),
        };
        let mut gave = self.gave.write().unwrap_or_else(PoisonError::into_inner);
        if gave.len() >= MOST_REMEMBERED {
            gave.clear();
        }
        gave.insert(content.id, attribute.clone());
        attribute
    }
}

/// The size at which a cache of results is cleared. A cleared cache costs time, never correctness.
const MOST_REMEMBERED: usize = 1 << 20;
/// The number of compiled sets of selectors at which the cache is cleared.
const MOST_COMPILED: usize = 4096;

/// All contents, selectors and derivations in use, each once.
#[derive(Debug, Default)]
pub(crate) struct Interned {
    compiler: Compiler,
    contents: Mutex<Contents>,
    selectors: Mutex<FxHashMap<(Vec<Name>, Vec<Name>), Arc<Selectors>>>,
    derivations: Mutex<FxHashMap<Name, Arc<Derivation>>>,
}

#[derive(Debug, Default)]
struct Contents {
    by_hash: FxHashMap<u64, Vec<Weak<Content>>>,
    next: u64,
    /// The number of hashes at which dropped contents are removed.
    sweep_at: usize,
}

impl Interned {
    /// Returns the shared content of a device.
    pub(crate) fn content(&self, driver: &Name, device: &Arc<Device>) -> Arc<Content> {
        let mut hasher = FxHasher::default();
        driver.hash(&mut hasher);
        device.attributes.hash(&mut hasher);
        device.capacity.hash(&mut hasher);
        device.allow_multiple_allocations.hash(&mut hasher);
        let hash = hasher.finish();
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        let same = contents.by_hash.get(&hash).into_iter().flatten();
        if let Some(known) = same.filter_map(Weak::upgrade).find(|known| known.is(driver, device)) {
            return known;
        }
        contents.next += 1;
        let content = Arc::new(Content {
            id: contents.next,
            driver: driver.clone(),
            device: device.clone(),
            capacities: capacity::capacities(device),
        });
        if contents.by_hash.len() >= contents.sweep_at {
            contents.by_hash.retain(|_, all| {
                all.retain(|content| content.strong_count() > 0);
                !all.is_empty()
            });
            contents.sweep_at = (2 * contents.by_hash.len()).max(1024);
        }
        contents.by_hash.entry(hash).or_default().push(Arc::downgrade(&content));
        content
    }

    /// Returns the compiled selectors of a class and a request.
    pub(crate) fn selectors(&self, of_class: Vec<Name>, of_request: Vec<Name>) -> Arc<Selectors> {
        let mut known = self.selectors.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (of_class, of_request);
        if let Some(selectors) = known.get(&key) {
            return selectors.clone();
        }
        if known.len() >= MOST_COMPILED {
            known.clear();
        }
        let compile = |text: &Name| self.compiler.compile(text, Purpose::Selector);
        let selectors = Arc::new(Selectors {
            of_class: key.0.len(),
            expressions: key.0.iter().chain(&key.1).map(compile).collect(),
            said: RwLock::default(),
        });
        known.insert(key, selectors.clone());
        selectors
    }

    /// Returns the compiled expression of a derived attribute.
    pub(crate) fn derivation(&self, text: &Name) -> Arc<Derivation> {
        let mut known = self.derivations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(derivation) = known.get(text) {
            return derivation.clone();
        }
        if known.len() >= MOST_COMPILED {
            known.clear();
        }
        let expression = self.compiler.compile(text, Purpose::DerivedAttribute);
        let derivation = Arc::new(Derivation { expression, gave: RwLock::default() });
        known.insert(text.clone(), derivation.clone());
        derivation
    }
}
