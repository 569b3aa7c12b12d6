//! The search for fields that a shape does not name, in one pass over a text.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Shape::{self, Any, Each, Fields, Map};

/// The paths of the unknown fields of a value.
pub(super) fn all<'de>(shape: &'static Shape, value: impl Deserializer<'de>) -> Vec<String> {
    let mut unknown = Vec::new();
    // What was found before a value that does not decode counts; of that value its reader says what is wrong.
    drop(Search { shape, unknown: &mut unknown }.deserialize(value));
    unknown
}

/// A path below another one.
pub(super) fn joined(parent: &str, path: &str) -> String {
    if parent.is_empty() || path.starts_with('[') {
        format!("{parent}{path}")
    } else {
        format!("{parent}.{path}")
    }
}

/// Looks a value through for unknown fields. Their paths begin at the value.
struct Search<'a> {
    shape: &'static Shape,
    unknown: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Search<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.shape {
            Any => IgnoredAny::deserialize(deserializer).map(drop),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Search<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let shape = if let Each(shape) = self.shape { shape } else { &Any };
        for number in 0.. {
            let before = self.unknown.len();
            if seq.next_element_seed(Search { shape, unknown: self.unknown })?.is_none() {
                break;
            }
            self.unknown
                .iter_mut()
                .skip(before)
                .for_each(|path| *path = joined(&format!("[{number}]"), path));
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(Field(self.shape))? {
            let (shape, name) = match field {
                // `null` is absent.
                Found::Unknown(name) => {
                    self.unknown.extend(map.next_value::<Option<IgnoredAny>>()?.map(|_| name));
                    continue;
                }
                Found::Known(shape, name) => (shape, name),
            };
            let before = self.unknown.len();
            map.next_value_seed(Search { shape, unknown: self.unknown })?;
            // Paths are rare: a key becomes a part of one here, and costs nothing elsewhere.
            let part = || if matches!(self.shape, Map(_)) { format!("[{name}]") } else { name.to_string() };
            self.unknown.iter_mut().skip(before).for_each(|path| *path = joined(&part(), path));
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// The key of a field of a value of this shape.
struct Field(&'static Shape);

/// The meaning of a key.
enum Found<'de> {
    /// A field of this shape, and its key.
    Known(&'static Shape, Cow<'de, str>),
    /// A field that is not known.
    Unknown(String),
}

impl Field {
    fn found(self, key: Cow<'_, str>) -> Found<'_> {
        match self.0 {
            Map(shape) => Found::Known(shape, key),
            Fields(fields) => match fields.iter().find(|(known, _)| **known == *key) {
                Some((known, shape)) => Found::Known(shape, Cow::Borrowed(known)),
                None => Found::Unknown(key.into_owned()),
            },
            Any | Each(_) => Found::Known(&Any, Cow::Borrowed("")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Field {
    type Value = Found<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found<'de>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Field {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Found<'de>, E> {
        Ok(self.found(Cow::Borrowed(key)))
    }

    fn visit_str<E>(self, key: &str) -> Result<Found<'de>, E> {
        Ok(self.found(Cow::Owned(key.to_owned())))
    }
}
