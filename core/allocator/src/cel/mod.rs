//! The Common Expression Language in the environment that Kubernetes has for devices
//! (docs/allocator.md 2).
//!
//! The `cel` crate parses and evaluates. This module adds the variable `device`, the function
//! libraries of Kubernetes, a static type check and a limit of costs.

mod check;
mod constants;
mod cost;
mod device;
mod driver;
mod format;
mod lazy;
mod library;
mod pairs;
mod size;
mod types;
mod url;

pub use device::BoundDevice;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cel::common::ast::IdedExpr;
use cel::common::value::CowVal;
use cel::{Context, Env, ExecutionError, Value};
use dragoman_objects::{Attribute, Name};

use self::cost::Meter;
use self::size::Sizes;

/// The largest cost of an evaluation (`CELSelectorExpressionMaxCost`).
pub const COST_LIMIT: u64 = 1_000_000;

/// The cost up to which an expression is evaluated without counting: half a millisecond.
pub(crate) const CHEAP: u64 = 10_000;

/// The message of cel-go.
const EXCEEDED: &str = "actual cost limit exceeded";

/// Go's patterns are smaller, so Kubernetes has no such limit.
const TOO_MANY_PATTERNS: &str = "its patterns are too large together";

/// The largest length of an expression in bytes (`CELSelectorExpressionMaxLength`). It bounds the
/// work of parsing.
pub const LENGTH_LIMIT: usize = 10 * 1024;

/// The largest nesting depth, because the evaluating thread may have a small stack. (Kubernetes
/// allows 250 levels of parentheses, and any number of operators in a row.)
const DEEPEST: usize = 250;
const DEEPEST_WRITTEN: u16 = 250;

/// The stack that parses the longest expression at any depth: some kilobytes for each character, and as many times more
/// where nothing is optimised.
const STACK: usize = if cfg!(debug_assertions) { 512 << 20 } else { 64 << 20 };

/// The purpose of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Selects devices. The expression must yield a boolean.
    Selector,
    /// Computes an attribute.
    DerivedAttribute,
}

/// An expression that cannot be used with any device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CEL compile error: {0}")]
pub struct CompileError(pub Arc<str>);

/// An expression that could not be evaluated for a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CEL runtime error: {0}")]
pub struct EvaluationError(pub Arc<str>);

/// A compiler of expressions.
#[derive(Clone)]
pub struct Compiler(Arc<Env>);

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compiler")
    }
}

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    tree: IdedExpr,
    /// The cost outside of loops.
    once: u64,
    /// The largest possible cost, if it is small. Otherwise the loops are rewritten to count what
    /// they cost.
    most: Option<u64>,
    /// Cost of compiling the literal patterns of the expression, which happens when they are used for the
    /// first time.
    patterns: u64,
    /// The driver of all devices that it can select, if it names one.
    driver: Option<Name>,
    environment: Compiler,
}

impl Default for Compiler {
    fn default() -> Self {
        Self(Arc::new(library::environment()))
    }
}

impl Compiler {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The expression is too long or nested too deeply, cannot be parsed, is ill-typed, does not
    /// suit its purpose, has a constant error, or could exceed the limits of cost or size.
    pub fn compile(&self, text: &str, purpose: Purpose) -> Result<Expression, CompileError> {
        let refused = |why: String| CompileError(why.into());
        if text.len() > LENGTH_LIMIT {
            return Err(refused(format!("the expression is longer than {LENGTH_LIMIT} bytes")));
        }
        // Every level of an expression takes at least one character, so a short expression needs no
        // large stack.
        if text.len() <= DEEPEST {
            return self.compiled(text, purpose);
        }
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().stack_size(STACK);
            let thread = builder.spawn_scoped(scope, || self.compiled(text, purpose));
            let thread = thread.map_err(|why| refused(format!("no room to parse it: {why}")))?;
            thread.join().unwrap_or_else(|_| Err(refused("the parser failed".to_owned())))
        })
    }

    fn compiled(&self, text: &str, purpose: Purpose) -> Result<Expression, CompileError> {
        let refused = |why: String| CompileError(why.into());
        let parser = self.0.parser().max_recursion_depth(DEEPEST_WRITTEN);
        let mut tree = parser.parse(text).map_err(|why| refused(brief(&why.to_string())))?;
        if cost::depth(&tree) > DEEPEST {
            return Err(refused(format!("the expression is nested deeper than {DEEPEST} levels")));
        }
        let given = check::check(&tree).map_err(refused)?;
        check::is_useful(&given, purpose).map_err(refused)?;
        let patterns = constants::check(&tree, &self.0).map_err(refused)?;
        if patterns > COST_LIMIT {
            return Err(refused(TOO_MANY_PATTERNS.to_owned()));
        }
        let sizes = Sizes::of(&tree).map_err(refused)?;
        let (once, most) = cost::costs(&tree, &sizes);
        if once > COST_LIMIT {
            return Err(refused(EXCEEDED.to_owned()));
        }
        let driver = driver::driver(&tree).map(Into::into);
        let is_cheap = most <= CHEAP;
        if !is_cheap {
            cost::count(&mut tree, &sizes);
        }
        cost::replace(&mut tree);
        pairs::instead_of_two_variables(&mut tree);
        lazy::alternatives(&mut tree);
        Ok(Expression {
            tree,
            once,
            most: is_cheap.then_some(most),
            patterns,
            driver,
            environment: self.clone(),
        })
    }
}

impl Expression {
    /// Whether the expression selects the device.
    ///
    /// # Errors
    /// The evaluation failed or did not yield a boolean.
    pub fn matches(&self, device: &BoundDevice) -> Result<bool, EvaluationError> {
        self.matches_at_cost(device).0
    }

    /// The driver of all devices that the expression can select, if it names one.
    pub(crate) fn driver(&self) -> Option<&Name> {
        self.driver.as_ref()
    }

    /// The largest possible cost of an evaluation: that of a round of [`COST_LIMIT`] at most, and of its patterns.
    pub(crate) fn worst(&self) -> u64 {
        self.most.unwrap_or(COST_LIMIT).saturating_add(self.patterns)
    }

    /// As [`matches`](Self::matches), with the cost: exact for loops, else the largest possible one.
    pub fn matches_at_cost(&self, device: &BoundDevice) -> (Result<bool, EvaluationError>, u64) {
        let (matches, cost) = self.matches_unless(device, None);
        // Without an interrupt there is always a result.
        (matches.unwrap_or_else(|| Err(EvaluationError(EXCEEDED.into()))), cost)
    }

    /// As [`matches`](Self::matches), with the cost. `None` if the flag was set before there was a
    /// result.
    pub(crate) fn matches_unless(
        &self,
        device: &BoundDevice,
        interrupt: Option<Arc<AtomicBool>>,
    ) -> (Evaluated<bool>, u64) {
        self.evaluate(device, interrupt, |value| {
            let value = value.downcast_ref::<cel::common::types::CelBool>();
            value.map(|value| *value.inner())
        })
    }

    /// Returns the attribute that the expression computes.
    ///
    /// # Errors
    /// The evaluation failed or did not yield an attribute.
    pub fn derive(&self, device: &BoundDevice) -> Result<Attribute, EvaluationError> {
        self.derive_unless(device, None).0.unwrap_or_else(|| Err(EvaluationError(EXCEEDED.into())))
    }

    /// As [`derive`](Self::derive), with the cost. `None` if the flag was set before there was a
    /// result.
    pub(crate) fn derive_unless(
        &self,
        device: &BoundDevice,
        interrupt: Option<Arc<AtomicBool>>,
    ) -> (Evaluated<Attribute>, u64) {
        self.evaluate(device, interrupt, device::attribute_of)
    }

    fn evaluate<T>(
        &self,
        device: &BoundDevice,
        interrupt: Option<Arc<AtomicBool>>,
        read: impl FnOnce(&CowVal<'_, '_>) -> Option<T>,
    ) -> (Evaluated<T>, u64) {
        let mut context = Context::with_env(self.environment.0.clone());
        let mut meter = None;
        if self.most.is_none() {
            match Meter::of(&mut context, self.once, interrupt) {
                Ok(added) => meter = Some(added),
                Err(why) => return (Some(Err(failed(&why.to_string()))), self.once),
            }
        }
        let result = self.resolve(device, context, read);
        let cost = meter.as_ref().map_or_else(|| self.most.unwrap_or(self.once), |meter| meter.spent());
        // A logical operator may have swallowed the error of the meter.
        if meter.is_some_and(|meter| meter.was_interrupted()) {
            return (None, cost);
        }
        if cost > COST_LIMIT {
            return (Some(Err(failed(EXCEEDED))), cost);
        }
        (Some(result), cost)
    }

    fn resolve<T>(
        &self,
        device: &BoundDevice,
        mut context: Context<'_, '_>,
        read: impl FnOnce(&CowVal<'_, '_>) -> Option<T>,
    ) -> Result<T, EvaluationError> {
        let device = device.value().map_err(|why| failed(why.as_ref()))?;
        context.add_variable_as_val("device", Box::new(device.clone()));
        let value = Value::resolve_val(&self.tree, &context).map_err(|why| failed(&described(&why)))?;
        read(&value).ok_or_else(|| {
            failed(&format!("CEL result of type {} could not be converted", value.get_type().name()))
        })
    }
}

/// The result of an evaluation. `None` if it was interrupted.
pub(crate) type Evaluated<T> = Option<Result<T, EvaluationError>>;

fn failed(why: &str) -> EvaluationError {
    EvaluationError(brief(why).into())
}

/// The largest length of a message. Messages quote their subject, which may be long.
const LONGEST_MESSAGE: usize = 1024;

fn brief(message: &str) -> String {
    message.chars().take(LONGEST_MESSAGE).collect()
}

/// Returns the message of an error as Kubernetes words it, with a hint.
fn described(why: &ExecutionError) -> String {
    match why {
        ExecutionError::NoSuchKey(key) => format!(
            "no such key: {key} (consider optional chaining: device.attributes[…].?{key}.orValue(…), or has())"
        ),
        why => why.to_string(),
    }
}
