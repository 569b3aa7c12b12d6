//! Loops over two variables: `all(i, v, …)`, `transformMap(k, v, …)` and others. The evaluator
//! supports loops over one variable only; `cel::pairs` rewrites these loops.

use std::collections::HashMap;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue,
    MapEntryExpr, MapExpr, operators,
};
use cel::common::types::{
    CelBool, CelInt, CelList, CelMap, CelMapKey, CelString, CelUInt, LIST_TYPE, MAP_TYPE,
};
use cel::common::value::{CowVal, Val};
use cel::parser::{Macro, MacroExprHelper, ParseError};
use cel::{DeclarationError, Env, ExecutionError};

use super::Arguments;

/// The function that converts a list to pairs of index and element, or a map to pairs of key and
/// value. A pair is a list of two.
pub(in crate::cel) const PAIRS: &str = "@pairs";
/// The function that merges a list of maps into one map.
const MERGED: &str = "@merged";

/// The accumulator of a loop.
const RESULT: &str = "@result";

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(PAIRS, "@pairs(list)", vec![LIST_TYPE], |given| elements(&Arguments(PAIRS, &given)))?;
    env.add_overload(PAIRS, "@pairs(map)", vec![MAP_TYPE], |given| entries(&Arguments(PAIRS, &given)))?;
    env.add_overload(MERGED, "@merged(list)", vec![LIST_TYPE], |given| merged(&Arguments(MERGED, &given)))?;
    for kind in [Kind::All, Kind::Exists, Kind::ExistsOne, Kind::List, Kind::Map, Kind::MapEntry] {
        for name in kind.names() {
            env.add_macro(Macro::receiver(*name, 3, kind.expander()))?;
            if matches!(kind, Kind::List | Kind::Map | Kind::MapEntry) {
                env.add_macro(Macro::receiver(*name, 4, kind.expander()))?;
            }
        }
    }
    Ok(())
}

type Given<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn list<'b, 'v>(items: Vec<Box<dyn Val + 'v>>) -> CowVal<'b, 'v> {
    CowVal::Owned(Box::new(CelList::from(items)))
}

fn pair<'v>(key: Box<dyn Val + 'v>, value: Box<dyn Val + 'v>) -> Box<dyn Val + 'v> {
    Box::new(CelList::from(vec![key, value]))
}

fn elements<'b, 'v>(given: &Arguments<'_, 'b, 'v>) -> Given<'b, 'v> {
    let place = |place: usize| Box::new(CelInt::from(i64::try_from(place).unwrap_or(i64::MAX)));
    let items = given.list(0)?.into_iter().enumerate();
    Ok(list(items.map(|(number, item)| pair(place(number), item.clone_as_boxed())).collect()))
}

fn entries<'b, 'v>(given: &Arguments<'_, 'b, 'v>) -> Given<'b, 'v> {
    let map = given.any(0)?.as_indexer().ok_or_else(|| given.failed("not a map"))?;
    let mut pairs = Vec::new();
    for key in given.list(0)? {
        pairs.push(pair(key.clone_as_boxed(), map.get(key)?.into_owned()));
    }
    Ok(list(pairs))
}

fn merged<'b, 'v>(given: &Arguments<'_, 'b, 'v>) -> Given<'b, 'v> {
    let mut all: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = HashMap::new();
    for map in given.list(0)? {
        let not_a_map = || given.failed("not a map");
        let mut keys = map.as_iterable().ok_or_else(not_a_map)?.iter();
        let values = map.as_indexer().ok_or_else(not_a_map)?;
        while let Some(key) = keys.next() {
            let name = key_of(key).ok_or_else(|| given.failed("unsupported key type"))?;
            if all.insert(name, values.get(key)?.into_owned()).is_some() {
                return Err(given.failed("insert failed: a key already exists"));
            }
        }
    }
    Ok(CowVal::Owned(Box::new(CelMap::from(all))))
}

fn key_of(key: &dyn Val) -> Option<CelMapKey<'static>> {
    if let Some(key) = key.downcast_ref::<CelString<'_>>() {
        Some(CelMapKey::String(key.inner().to_owned().into()))
    } else if let Some(key) = key.downcast_ref::<CelInt>() {
        Some(CelMapKey::Int(*key))
    } else if let Some(key) = key.downcast_ref::<CelUInt>() {
        Some(CelMapKey::UInt(*key))
    } else {
        key.downcast_ref::<CelBool>().map(|key| CelMapKey::Bool(*key))
    }
}

/// The macro of a loop.
#[derive(Clone, Copy)]
enum Kind {
    All,
    Exists,
    ExistsOne,
    List,
    Map,
    MapEntry,
}

type Expanded = Result<Option<IdedExpr>, ParseError>;

impl Kind {
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::All => &["all"],
            Self::Exists => &["exists"],
            Self::ExistsOne => &["existsOne", "exists_one"],
            Self::List => &["transformList"],
            Self::Map => &["transformMap"],
            Self::MapEntry => &["transformMapEntry"],
        }
    }

    fn expander(
        self,
    ) -> impl Fn(&mut MacroExprHelper<'_>, &mut Option<IdedExpr>, &mut Vec<IdedExpr>) -> Expanded {
        move |helper, target, arguments| {
            let (first, second) = names(helper, arguments)?;
            let Some(range) = target.take() else { return Ok(None) };
            let parts = arguments.drain(..).skip(2).collect();
            Ok(self.expanded(&mut Nodes(helper), range, first, second, parts))
        }
    }

    /// Expands a macro. `parts` are the arguments after the variables: an optional condition, then
    /// the expression for each element.
    fn expanded(
        self,
        nodes: &mut Nodes<'_, '_>,
        iter_range: IdedExpr,
        iter_var: String,
        second: String,
        mut parts: Vec<IdedExpr>,
    ) -> Option<IdedExpr> {
        let each = parts.pop()?;
        let fold = match self {
            Self::All => nodes.all(each),
            Self::Exists => nodes.exists(each),
            Self::ExistsOne => {
                // The expression is the condition under which an element counts.
                parts.push(each);
                nodes.exactly_one()
            }
            Self::List => nodes.gathered(each),
            Self::MapEntry => nodes.merged(each),
            Self::Map => {
                let key = nodes.ident(&iter_var);
                let entry = nodes.map(key, each);
                nodes.merged(entry)
            }
        };
        let loop_step = match parts.pop() {
            Some(condition) => {
                let so_far = nodes.result();
                nodes.call(operators::CONDITIONAL, vec![condition, fold.step, so_far])
            }
            None => fold.step,
        };
        Some(nodes.node(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range,
            iter_var,
            iter_var2: Some(second),
            accu_var: RESULT.to_owned(),
            accu_init: fold.init,
            loop_cond: fold.condition,
            loop_step,
            result: fold.result,
        }))))
    }
}

/// Returns the names of the two variables.
fn names(helper: &MacroExprHelper<'_>, arguments: &[IdedExpr]) -> Result<(String, String), ParseError> {
    let name = |argument: Option<&IdedExpr>| match argument {
        Some(IdedExpr { expr: Expr::Ident(name), .. }) => Ok(name.clone()),
        other => {
            let id = other.map_or(0, |other| other.id);
            Err(helper.new_error(id, "argument must be a simple name"))
        }
    };
    let (first, second) = (name(arguments.first())?, name(arguments.get(1))?);
    if first == second {
        let id = arguments.get(1).map_or(0, |argument| argument.id);
        return Err(helper.new_error(id, format!("duplicate variable name: {first}")));
    }
    Ok((first, second))
}

/// The accumulation of a loop, without the condition on its elements.
struct Fold {
    /// The accumulator before the first element.
    init: IdedExpr,
    /// The condition under which the loop continues.
    condition: IdedExpr,
    /// The accumulator after an element.
    step: IdedExpr,
    /// The value of the loop.
    result: IdedExpr,
}

/// A builder of expressions.
struct Nodes<'h, 'p>(&'h mut MacroExprHelper<'p>);

impl Nodes<'_, '_> {
    fn node(&mut self, expr: Expr) -> IdedExpr {
        self.0.next_expr(expr)
    }

    fn ident(&mut self, name: &str) -> IdedExpr {
        self.node(Expr::Ident(name.to_owned()))
    }

    /// The accumulator.
    fn result(&mut self) -> IdedExpr {
        self.ident(RESULT)
    }

    fn truth(&mut self, truth: bool) -> IdedExpr {
        self.node(Expr::Literal(LiteralValue::Boolean(truth.into())))
    }

    fn number(&mut self, number: i64) -> IdedExpr {
        self.node(Expr::Literal(LiteralValue::Int(number.into())))
    }

    fn list(&mut self, elements: Vec<IdedExpr>) -> IdedExpr {
        self.node(Expr::List(ListExpr::new(elements)))
    }

    fn map(&mut self, key: IdedExpr, value: IdedExpr) -> IdedExpr {
        let id = self.truth(true).id;
        let entry = EntryExpr::MapEntry(MapEntryExpr { key, value, optional: false });
        self.node(Expr::Map(MapExpr { entries: vec![IdedEntryExpr { id, expr: entry }] }))
    }

    fn call(&mut self, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        self.node(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
    }

    /// The accumulator with an element added.
    fn gather(&mut self, element: IdedExpr) -> IdedExpr {
        let (so_far, element) = (self.result(), self.list(vec![element]));
        self.call(operators::ADD, vec![so_far, element])
    }

    /// The condition of a loop that ends early. The loop does not end if `condition` is an error.
    fn not_strictly_false(&mut self, condition: IdedExpr) -> IdedExpr {
        self.call(operators::NOT_STRICTLY_FALSE, vec![condition])
    }

    /// The fold of `all`. The loop ends with the first element for which `each` is false.
    fn all(&mut self, each: IdedExpr) -> Fold {
        let result = self.result();
        let so_far = self.result();
        let condition = self.not_strictly_false(so_far);
        let so_far = self.result();
        let init = self.truth(true);
        let step = self.call(operators::LOGICAL_AND, vec![so_far, each]);
        Fold { init, condition, step, result }
    }

    /// The fold of `exists`. The loop ends with the first element for which `each` is true.
    fn exists(&mut self, each: IdedExpr) -> Fold {
        let result = self.result();
        let so_far = self.result();
        let not = self.call(operators::LOGICAL_NOT, vec![so_far]);
        let condition = self.not_strictly_false(not);
        let so_far = self.result();
        let init = self.truth(false);
        let step = self.call(operators::LOGICAL_OR, vec![so_far, each]);
        Fold { init, condition, step, result }
    }

    /// The fold of `existsOne`: counts the elements and compares their number with one.
    fn exactly_one(&mut self) -> Fold {
        let result = self.result();
        let (so_far, one) = (self.result(), self.number(1));
        let step = self.call(operators::ADD, vec![so_far, one]);
        let one = self.number(1);
        let result = self.call(operators::EQUALS, vec![result, one]);
        Fold { init: self.number(0), condition: self.truth(true), step, result }
    }

    /// The fold of `transformList`: a list with `each` of every element.
    fn gathered(&mut self, each: IdedExpr) -> Fold {
        let result = self.result();
        Fold { init: self.list(vec![]), condition: self.truth(true), step: self.gather(each), result }
    }

    /// The fold of `transformMap` and `transformMapEntry`: one map with the entries of all maps `each`.
    fn merged(&mut self, each: IdedExpr) -> Fold {
        let list = self.gathered(each);
        Fold { result: self.call(MERGED, vec![list.result]), ..list }
    }
}
