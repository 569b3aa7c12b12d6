//! The selectors of a class and a request together, and what they say of devices. What they
//! say depends on the content of a device only, so it is found out once, however many
//! requests, Pods and nodes ask.

use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use dragoman_quantity::capacity::Capacity;
use rustc_hash::{FxHashMap, FxHasher};

use crate::capacity;
use crate::cel::{BoundDevice, CompileError, Compiler, Expression, Purpose};
use crate::input::{Attribute, Device, Name};

/// What selectors see of a device. Devices with the same content share one.
#[derive(Debug)]
pub(crate) struct Content {
    id: u64,
    driver: Name,
    device: Arc<Device>,
    /// In the order of their names.
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

/// What the selectors say of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All hold.
    Selected,
    /// One of the class does not.
    NotOfClass,
    /// One of the request does not.
    NotOfRequest,
    /// One of the class cannot be compiled or evaluated.
    ClassFailed(usize, Arc<str>),
    /// One of the request cannot be compiled or evaluated.
    RequestFailed(usize, Arc<str>),
}

/// Selectors of a class, then of a request.
#[derive(Debug)]
pub(crate) struct Selectors {
    of_class: usize,
    expressions: Vec<Result<Expression, CompileError>>,
    said: RwLock<FxHashMap<u64, Verdict>>,
}

impl Selectors {
    /// What they say of a device: in order, until the first that does not hold.
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

/// The expression of a derived attribute, and what it gave for devices.
#[derive(Debug)]
pub(crate) struct Derivation {
    expression: Result<Expression, CompileError>,
    gave: RwLock<FxHashMap<u64, Result<Attribute, Arc<str>>>>,
}

impl Derivation {
    /// The attribute of a device, or why there is none.
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

/// More is forgotten, all at once: a cache that is too small is slow, never wrong.
const MOST_REMEMBERED: usize = 1 << 20;
/// Sets of selectors that are kept compiled.
const MOST_COMPILED: usize = 4096;

/// All contents and all selectors that are in use, each once.
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
    /// Looked through for what is gone when there are so many.
    sweep_at: usize,
}

impl Interned {
    /// The content of a device.
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

    /// The selectors of a class and a request.
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

    /// The expression of a derived attribute.
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
