//! Lists of claims, devices, pools, Pods and Events: columns for people, typed fields for programs.

mod claims;
mod devices;
mod drain;
mod events;
mod pods;
mod pools;
mod zombies;

use dragoman_objects::{DeviceResult, ResourceClaim};
use jiff::Timestamp;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::explain::age;
use crate::explain::claim::{consumer, first};
use crate::facts::Facts;

pub use self::claims::claims;
pub use self::devices::devices;
pub use self::drain::drained;
pub use self::events::events;
pub use self::pods::waiting;
pub use self::pools::{classes, pools};
pub use self::zombies::zombies;

/// The fields of each command that prints a list.
pub(crate) const COLUMNS_OF_COMMANDS: &[(&str, &[Column])] = &[
    ("claims", claims::COLUMNS),
    ("devices", devices::COLUMNS),
    ("pools", pools::COLUMNS),
    ("pools --by-class", pools::BY_CLASS),
    ("drain", drain::COLUMNS),
    ("reclaim", zombies::COLUMNS),
    ("events", events::COLUMNS),
];
/// The fields of the Pods that `top` shows.
pub(crate) const PODS: &[Column] = pods::COLUMNS;

/// Type of a field in JSON. A value that is not known is `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A string.
    Text,
    /// An integer.
    Number,
    /// A time in RFC 3339; for people its age.
    Time,
    /// An array of strings.
    Texts,
    /// An array of objects with `driver`, `pool`, `device` and `request`.
    Devices,
    /// An array of objects with `apiGroup`, `resource`, `name` and `uid`, as in `status.reservedFor` of a claim.
    Consumers,
}

/// A column of a table for people, and a field of an object for programs.
#[derive(Debug)]
pub struct Column {
    /// The title; empty for a field that is for programs alone.
    pub title: &'static str,
    /// Name of the field.
    pub field: &'static str,
    /// Type of the field.
    pub r#type: Type,
    /// Meaning of the field.
    pub about: &'static str,
}

/// A column; the last argument is its meaning.
const fn column(title: &'static str, field: &'static str, r#type: Type, about: &'static str) -> Column {
    Column { title, field, r#type, about }
}

/// A cell: words for people and a value for programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The words; empty if there is nothing to say.
    pub shown: String,
    /// The value.
    pub value: Value,
}

impl Cell {
    fn text(text: impl Into<String>) -> Self {
        let shown = text.into();
        Self { value: Value::from(shown.clone()), shown }
    }

    /// A number; `None` where it is not known.
    fn number(number: Option<i64>) -> Self {
        let shown = number.map_or_else(|| "?".to_owned(), |number| number.to_string());
        Self { shown, value: number.map_or(Value::Null, Value::from) }
    }

    fn count(count: usize) -> Self {
        Self::number(i64::try_from(count).ok())
    }

    fn texts(texts: Vec<String>) -> Self {
        Self { shown: texts.join(","), value: Value::from(texts) }
    }

    /// A time in RFC 3339, and its age.
    fn time(at: Option<&str>, now: Timestamp) -> Self {
        let shown = age(at, now);
        let value = if shown.is_empty() { Value::Null } else { at.map_or(Value::Null, Value::from) };
        Self { shown, value }
    }

    /// Devices of an allocation; people know their driver.
    fn devices(results: &[DeviceResult]) -> Self {
        let shown: Vec<String> = results.iter().map(|of| format!("{}/{}", of.pool, of.device)).collect();
        let value = results.iter().map(|of| {
            json!({"driver": *of.driver, "pool": *of.pool, "device": *of.device, "request": *of.request})
        });
        Self { shown: shown.join(","), value: value.collect() }
    }

    /// Consumers of claims; people see the first three of each claim.
    fn consumers<'a>(claims: impl IntoIterator<Item = &'a ResourceClaim>) -> Self {
        let claims: Vec<&ResourceClaim> = claims.into_iter().collect();
        let named =
            |claim: &ResourceClaim| claim.status.reserved_for.iter().map(consumer).collect::<Vec<_>>();
        let all = claims.iter().flat_map(|claim| &claim.status.reserved_for);
        let value = all.map(|of| {
            json!({"apiGroup": *of.api_group, "resource": *of.resource, "name": *of.name, "uid": *of.uid})
        });
        let value = value.collect();
        let shown: Vec<String> = claims.iter().map(|claim| first(&named(claim))).collect();
        Self {
            shown: shown.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", "),
            value,
        }
    }

    /// Other words for people than the value.
    fn shown_as(self, shown: impl Into<String>) -> Self {
        Self { shown: shown.into(), ..self }
    }
}

/// Rows of cells, one for each column.
#[derive(Debug, Default)]
pub struct Table {
    /// The columns.
    pub columns: &'static [Column],
    /// The number of columns, counted from the last, that people see only where they ask for more.
    pub wide: usize,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
    /// Resources that could not be read, in sentences.
    pub lacks: Vec<String>,
    /// Whether a table without rows is an answer.
    pub is_complete: bool,
}

impl Table {
    fn of(columns: &'static [Column], wide: usize, rows: Vec<Vec<Cell>>, facts: &Facts) -> Self {
        Self { columns, wide, rows, lacks: facts.partial(), is_complete: facts.is_complete() }
    }

    /// The cell of a row in the column with this field.
    pub fn cell<'a>(&self, row: &'a [Cell], field: &str) -> Option<&'a Cell> {
        row.get(self.columns.iter().position(|column| column.field == field)?)
    }

    /// The columns that people see, with their place in a row.
    pub fn shown(&self, wide: bool) -> impl Iterator<Item = (usize, &'static Column)> {
        let shown = if wide { self.columns.len() } else { self.columns.len().saturating_sub(self.wide) };
        self.columns.iter().enumerate().take(shown).filter(|(_, column)| !column.title.is_empty())
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = |row: &Vec<Cell>| {
            let fields = self.columns.iter().zip(row);
            let fields = fields.map(|(column, cell)| (column.field.to_owned(), cell.value.clone()));
            Value::Object(fields.collect::<Map<_, _>>())
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("items", &self.rows.iter().map(object).collect::<Vec<_>>())?;
        if !self.lacks.is_empty() {
            map.serialize_entry("lacks", &self.lacks)?;
        }
        map.end()
    }
}
