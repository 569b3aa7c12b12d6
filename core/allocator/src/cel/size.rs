//! Upper bounds of the sizes of values, computed before evaluation. An expression whose values may
//! grow without bounds is refused, as the API server refuses an expression with a high estimated
//! cost. A value of unknown size counts as the largest attribute that the API allows.

use std::collections::HashMap;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use super::cost::is_range;
use super::library::LONGEST_RANGE;

/// The largest size of a value, in bytes.
pub(super) const MOST: u64 = 4 << 20;
/// The limits of the API: bytes of a string attribute, and values of a list attribute.
const TEXT: u64 = 64;
const VALUES: u64 = 48;
/// The overhead of a list element.
const ELEMENT: u64 = 80;

/// The upper bounds of a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// The size in bytes, including elements.
    pub(super) bytes: u64,
    /// The number of elements of a list or a map.
    pub(super) items: u64,
    /// The size of one element in bytes.
    item: u64,
}

impl Size {
    const UNKNOWN: Self = Self { bytes: TEXT, items: VALUES, item: TEXT };

    fn scalar(bytes: u64) -> Self {
        Self { bytes, items: 0, item: 0 }
    }

    /// Returns the bounds of an element about which nothing else is known.
    fn element(self) -> Self {
        let bytes = self.item.max(TEXT);
        Self { bytes, items: (bytes / ELEMENT).max(VALUES), item: bytes }
    }

    fn or(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.max(other.bytes),
            items: self.items.max(other.items),
            item: self.item.max(other.item),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            items: self.items.saturating_add(other.items),
            item: self.item.max(other.item),
        }
    }
}

/// The sizes of all parts of an expression, by id.
#[derive(Default)]
pub(super) struct Sizes {
    known: HashMap<u64, Size>,
    names: Vec<(String, Size)>,
}

impl Sizes {
    /// # Errors
    /// A value may exceed the largest size, or the template of `format` is not a literal.
    pub(super) fn of(tree: &IdedExpr) -> Result<Self, String> {
        let mut sizes = Self::default();
        sizes.size(tree)?;
        Ok(sizes)
    }

    pub(super) fn get(&self, part: &IdedExpr) -> Size {
        self.known.get(&part.id).copied().unwrap_or(Size::UNKNOWN)
    }

    fn size(&mut self, tree: &IdedExpr) -> Result<Size, String> {
        let size = match &tree.expr {
            Expr::Literal(LiteralValue::String(text)) => Size::scalar(text.inner().len() as u64),
            Expr::Literal(LiteralValue::Bytes(bytes)) => Size::scalar(bytes.inner().len() as u64),
            Expr::Literal(_) | Expr::Unspecified | Expr::Struct(_) => Size::scalar(8),
            Expr::Ident(name) => {
                let known = self.names.iter().rev().find(|(known, _)| known == name);
                known.map_or(Size::UNKNOWN, |(_, size)| *size)
            }
            Expr::Select(select) => self.size(&select.operand)?.element(),
            Expr::List(list) => self.all(list.elements.iter())?,
            Expr::Map(map) => {
                let entries = map.entries.iter().filter_map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => Some([&entry.key, &entry.value]),
                    EntryExpr::StructField(_) => None,
                });
                self.all(entries.flatten())?
            }
            Expr::Call(call) => self.call(call)?,
            Expr::Comprehension(comprehension) => self.comprehension(comprehension)?,
        };
        if size.bytes > MOST {
            return Err(format!("a value could take more than {MOST} bytes"));
        }
        // Macros give several parts the same id. The largest size counts.
        let known = self.known.entry(tree.id).or_insert(size);
        *known = known.or(size);
        Ok(size)
    }

    fn all<'a>(&mut self, parts: impl Iterator<Item = &'a IdedExpr>) -> Result<Size, String> {
        let mut all = Size::scalar(0);
        for part in parts {
            let size = self.size(part)?;
            all = all.and(Size { bytes: size.bytes.saturating_add(ELEMENT), items: 1, item: size.bytes });
        }
        Ok(all)
    }

    fn call(&mut self, call: &CallExpr) -> Result<Size, String> {
        let mut given = Vec::with_capacity(call.args.len() + 1);
        for part in call.target.as_deref().into_iter().chain(&call.args) {
            given.push(self.size(part)?);
        }
        let size = |place: usize| given.get(place).copied().unwrap_or_else(|| Size::scalar(0));
        let (first, second, third) = (size(0), size(1), size(2));
        Ok(match call.func_name.as_str() {
            operators::ADD => first.and(second),
            operators::CONDITIONAL => second.or(third),
            operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT => first.element(),
            "replace" => {
                // The replacement may occur before, between and after all characters.
                let more = first.bytes.saturating_add(1).saturating_mul(third.bytes);
                Size::scalar(first.bytes.saturating_add(more))
            }
            "join" => {
                let between = first.items.saturating_mul(second.bytes);
                Size::scalar(first.bytes.saturating_add(between))
            }
            // The target of a qualified call is the first part of its name.
            "quote" => Size::scalar(first.bytes.max(second.bytes).saturating_mul(2).saturating_add(2)),
            "format" => formatted(call, first, second)?,
            "split" | "findAll" => {
                // The parts together have the size of the text.
                let items = first.bytes.saturating_add(1);
                let bytes = items.saturating_mul(ELEMENT).saturating_add(first.bytes);
                Size { bytes, items, item: first.bytes }
            }
            "range" if is_range(call) => {
                let literal = match call.args.first().map(|size| &size.expr) {
                    Some(Expr::Literal(LiteralValue::Int(size))) => u64::try_from(*size.inner()).ok(),
                    _ => None,
                };
                let most = u64::from(LONGEST_RANGE);
                let items = literal.unwrap_or(most).min(most);
                Size { bytes: items.saturating_mul(ELEMENT), items, item: 8 }
            }
            "flatten" => Size { items: first.items.max(1).saturating_mul(first.element().items), ..first },
            name if is_truth(name) => Size::scalar(8),
            _ => given.iter().fold(Size::scalar(TEXT), |all, size| all.or(*size)),
        })
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Result<Size, String> {
        let range = self.size(&comprehension.iter_range)?;
        let before = self.size(&comprehension.accu_init)?;
        let depth = self.names.len();
        let mut all = before;
        if range.items > 0 {
            // The growth in each round: the step with an empty accumulator.
            self.names.push((comprehension.accu_var.clone(), Size::scalar(0)));
            for name in std::iter::once(&comprehension.iter_var).chain(&comprehension.iter_var2) {
                self.names.push((name.clone(), range.element()));
            }
            self.size(&comprehension.loop_cond)?;
            let each = self.size(&comprehension.loop_step)?;
            self.names.truncate(depth);
            let rounds = |of: u64| of.saturating_mul(range.items);
            all = if gathers(&comprehension.loop_step) {
                before.and(Size { bytes: rounds(each.bytes), items: rounds(each.items), item: each.item })
            } else {
                before.or(each)
            };
        }
        self.names.push((comprehension.accu_var.clone(), all));
        let result = self.size(&comprehension.result);
        self.names.truncate(depth);
        result
    }
}

/// Whether a loop step adds to the accumulator, perhaps under a condition.
fn gathers(step: &IdedExpr) -> bool {
    match &step.expr {
        Expr::Call(call) if call.func_name == operators::CONDITIONAL => call.args.iter().any(gathers),
        Expr::Call(call) => call.func_name == operators::ADD,
        _ => false,
    }
}

/// Whether an operator yields a boolean.
fn is_truth(operator: &str) -> bool {
    matches!(
        operator,
        operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::NOT_STRICTLY_FALSE
            | operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::IN
    )
}

/// Returns the bounds of a formatted text. A clause of the template may give a number of digits.
fn formatted(call: &CallExpr, template: Size, arguments: Size) -> Result<Size, String> {
    let Some(Expr::Literal(LiteralValue::String(text))) = call.target.as_ref().map(|target| &target.expr)
    else {
        return Err("only a literal text can be formatted".to_owned());
    };
    let digits = text.inner().split(|character: char| !character.is_ascii_digit());
    let digits = digits.filter(|digits| !digits.is_empty());
    let wide: u64 = digits.map(|digits| digits.parse().unwrap_or(MOST)).fold(0, u64::saturating_add);
    // Hexadecimal digits double the size of a value, and a number has at most a hundred characters.
    let values = arguments.bytes.saturating_mul(2).saturating_add(arguments.items.saturating_mul(100));
    Ok(Size::scalar(template.bytes.saturating_add(values).saturating_add(wide)))
}
