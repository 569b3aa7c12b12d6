//! The combined selectors of a class and a request, and their verdicts on devices. A verdict
//! depends on the content of a device only, so it is computed once and kept for all requests, Pods
//! and nodes.

use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use dragoman_objects::{Attribute, Device, Name};
use dragoman_quantity::capacity::Capacity;
use rustc_hash::{FxHashMap, FxHasher};

use crate::capacity;
use crate::cel::{BoundDevice, CHEAP, CompileError, Compiler, Expression, Purpose};
use crate::search::{MOST_COST, Pace, Stopped};

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
    /// This selector of the class does not hold.
    NotOfClass(usize),
    /// This selector of the request does not hold.
    NotOfRequest(usize),
    /// A selector of the class cannot be compiled or evaluated.
    ClassFailed(usize, Arc<str>),
    /// A selector of the request cannot be compiled or evaluated.
    RequestFailed(usize, Arc<str>),
}

/// The selectors of a class, followed by those of a request.
#[derive(Debug)]
pub(crate) struct Selectors {
    of_class: usize,
    texts: Vec<Name>,
    expressions: Compiled<Vec<Result<Expression, CompileError>>>,
    said: Remembered<Verdict>,
}

impl Selectors {
    /// Evaluates the selectors in order, until the first that does not hold.
    ///
    /// # Errors
    /// The search has to stop, or these expressions are too expensive for it.
    pub(crate) fn say(&self, content: &Content, pace: &Pace) -> Result<Verdict, Unsaid> {
        if self.texts.is_empty() {
            return Ok(Verdict::Selected);
        }
        self.said.of(content, pace, || self.is_costly(), |spent| self.evaluate(content, pace, spent))
    }

    /// Returns the text of a selector of the class or of the request.
    pub(crate) fn text(&self, of_request: bool, number: usize) -> Name {
        let first = if of_request { self.of_class } else { 0 };
        self.texts.get(first + number).cloned().unwrap_or_default()
    }

    /// Whether the fault of a selector lies in its expression, and not in a device.
    pub(crate) fn is_broken(&self, of_request: bool, number: usize) -> bool {
        let first = if of_request { self.of_class } else { 0 };
        self.compiled().get(first + number).is_some_and(Result::is_err)
    }

    /// The first selector that does not compile: whether it is one of the request, its number there, and why.
    pub(crate) fn broken(&self) -> Option<(bool, usize, String)> {
        let mut all = self.compiled().iter().enumerate();
        let (place, why) =
            all.find_map(|(place, compiled)| Some((place, compiled.as_ref().err()?.to_string())))?;
        Some(match place.checked_sub(self.of_class) {
            Some(number) => (true, number, why),
            None => (false, place, why),
        })
    }

    /// The driver of all devices that the selectors let through, if one of them names it.
    pub(crate) fn driver(&self) -> Option<&Name> {
        self.compiled().iter().flatten().find_map(Expression::driver)
    }

    fn compiled(&self) -> &[Result<Expression, CompileError>] {
        self.expressions.of(|compiler| {
            let compile = |text: &Name| compiler.compile(text, Purpose::Selector);
            self.texts.iter().map(compile).collect()
        })
    }

    /// Whether it may take long to compile and evaluate the selectors for one device.
    fn is_costly(&self) -> bool {
        self.expressions.is_long(self.texts.iter().map(|text| text.len()).sum())
            || is_costly(self.compiled().iter().flatten())
    }

    /// Returns `None` if the search is interrupted. Adds the cost to `spent`.
    fn evaluate(&self, content: &Content, pace: &Pace, spent: &mut u64) -> Option<Verdict> {
        let device = BoundDevice::new(content.driver.clone(), content.device.clone());
        for (place, expression) in self.compiled().iter().enumerate() {
            if pace.is_interrupted() {
                return None;
            }
            let holds = match expression {
                Ok(expression) => {
                    let (holds, cost) = expression.matches_unless(&device, pace.interrupt());
                    *spent = spent.saturating_add(cost);
                    holds?.map_err(|why| why.to_string())
                }
                Err(why) => Err(why.to_string()),
            };
            if *spent > MOST_COST {
                // No search affords this verdict, whatever it is.
                return Some(Verdict::NotOfRequest(0));
            }
            let in_request = place.checked_sub(self.of_class);
            match (holds, in_request) {
                (Ok(true), _) => {}
                (Ok(false), None) => return Some(Verdict::NotOfClass(place)),
                (Ok(false), Some(number)) => return Some(Verdict::NotOfRequest(number)),
                (Err(why), None) => return Some(Verdict::ClassFailed(place, why.into())),
                (Err(why), Some(number)) => return Some(Verdict::RequestFailed(number, why.into())),
            }
        }
        Some(Verdict::Selected)
    }
}

/// The expression of a derived attribute, and its results by content.
#[derive(Debug)]
pub(crate) struct Derivation {
    text: Name,
    expression: Compiled<Result<Expression, CompileError>>,
    gave: Remembered<Result<Attribute, Arc<str>>>,
}

impl Derivation {
    /// Returns the attribute of a device, or the error of the expression.
    ///
    /// # Errors
    /// The search has to stop, or the expression is too expensive for it.
    pub(crate) fn of(&self, content: &Content, pace: &Pace) -> Result<Result<Attribute, Arc<str>>, Unsaid> {
        let compiled =
            || self.expression.of(|compiler| compiler.compile(&self.text, Purpose::DerivedAttribute));
        let is_costly = || self.expression.is_long(self.text.len()) || is_costly(compiled());
        self.gave.of(content, pace, is_costly, |spent| {
            let expression = match compiled() {
                Ok(expression) => expression,
                Err(why) => return Some(Err(why.to_string().into())),
            };
            let device = BoundDevice::new(content.driver.clone(), content.device.clone());
            let (attribute, cost) = expression.derive_unless(&device, pace.interrupt());
            *spent = cost;
            Some(attribute?.map_err(|why| why.to_string().into()))
        })
    }
}

/// Expressions that are compiled when they are used for the first time, because that may take long.
#[derive(Debug)]
struct Compiled<T>(Compiler, OnceLock<T>);

impl<T> Compiled<T> {
    fn new(compiler: &Compiler) -> Self {
        Self(compiler.clone(), OnceLock::new())
    }

    fn of(&self, compile: impl FnOnce(&Compiler) -> T) -> &T {
        self.1.get_or_init(|| compile(&self.0))
    }

    /// Whether something of this size has still to be compiled, and is not short.
    fn is_long(&self, bytes: usize) -> bool {
        bytes > SHORT && self.1.get().is_none()
    }
}

/// Expressions of this length in bytes are short: they are compiled where they are needed.
const SHORT: usize = 256;

/// Whether the evaluation of these expressions for one device may take more than half a millisecond.
fn is_costly<'a>(expressions: impl IntoIterator<Item = &'a Expression>) -> bool {
    let worst = expressions.into_iter().map(Expression::worst).fold(0, u64::saturating_add);
    worst > CHEAP
}

/// The reason why expressions say nothing about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsaid {
    /// The search has to stop.
    Stopped(Stopped),
    /// All expressions of the Pod on this node cost more than [`MOST_COST`] together.
    TooExpensive,
}

/// The results of expressions by content, and what each cost.
#[derive(Debug)]
struct Remembered<T>(RwLock<FxHashMap<u64, (T, u64)>>);

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Clone> Remembered<T> {
    /// Returns the result for a content. `evaluate` is called if it is not known. It returns `None`
    /// if the search is interrupted, and adds the cost.
    fn of(
        &self,
        content: &Content,
        pace: &Pace,
        is_costly: impl FnOnce() -> bool,
        evaluate: impl FnOnce(&mut u64) -> Option<T>,
    ) -> Result<T, Unsaid> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let remembered = known.get(&content.id).cloned();
        drop(known);
        let (result, cost) = if let Some(remembered) = remembered {
            remembered
        } else {
            pace.may_evaluate(is_costly).map_err(Unsaid::Stopped)?;
            let mut cost = 0;
            let result = evaluate(&mut cost);
            pace.evaluated(cost);
            let result = result.ok_or(Unsaid::Stopped(Stopped::Interrupt))?;
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MOST_REMEMBERED {
                known.clear();
            }
            known.insert(content.id, (result.clone(), cost));
            (result, cost)
        };
        let address = std::ptr::from_ref(self).addr();
        if pace.affords(address, content.id, cost) { Ok(result) } else { Err(Unsaid::TooExpensive) }
    }
}

/// The size at which a cache of results is cleared. A cleared cache costs time, never correctness.
const MOST_REMEMBERED: usize = 1 << 20;
/// The number of sets of selectors at which the cache is cleared.
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
    /// Returns the shared content of a device, and the device, which shares what the content has.
    pub(crate) fn content(&self, driver: &Name, mut device: Device) -> (Arc<Content>, Arc<Device>) {
        let mut hasher = FxHasher::default();
        driver.hash(&mut hasher);
        device.attributes.hash(&mut hasher);
        device.capacity.hash(&mut hasher);
        device.allow_multiple_allocations.hash(&mut hasher);
        let hash = hasher.finish();
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        let same = contents.by_hash.get(&hash).into_iter().flatten();
        if let Some(known) = same.filter_map(Weak::upgrade).find(|known| known.is(driver, &device)) {
            device.attributes = Arc::clone(&known.device.attributes);
            device.capacity = Arc::clone(&known.device.capacity);
            return (known, Arc::new(device));
        }
        let device = Arc::new(device);
        contents.next += 1;
        let content = Arc::new(Content {
            id: contents.next,
            driver: driver.clone(),
            device: device.clone(),
            capacities: capacity::capacities(&device),
        });
        if contents.by_hash.len() >= contents.sweep_at {
            contents.by_hash.retain(|_, all| {
                all.retain(|content| content.strong_count() > 0);
                !all.is_empty()
            });
            contents.sweep_at = (2 * contents.by_hash.len()).max(1024);
        }
        contents.by_hash.entry(hash).or_default().push(Arc::downgrade(&content));
        (content, device)
    }

    /// Returns the selectors of a class and a request.
    pub(crate) fn selectors(&self, of_class: Vec<Name>, of_request: Vec<Name>) -> Arc<Selectors> {
        let mut known = self.selectors.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (of_class, of_request);
        if let Some(selectors) = known.get(&key) {
            return selectors.clone();
        }
        if known.len() >= MOST_COMPILED {
            known.clear();
        }
        let selectors = Arc::new(Selectors {
            of_class: key.0.len(),
            texts: key.0.iter().chain(&key.1).cloned().collect(),
            expressions: Compiled::new(&self.compiler),
            said: Remembered::default(),
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
        let expression = Compiled::new(&self.compiler);
        let derivation = Arc::new(Derivation { text: text.clone(), expression, gave: Remembered::default() });
        known.insert(text.clone(), derivation.clone());
        derivation
    }
}
