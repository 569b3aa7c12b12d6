//! Fields whose shape changes from one version of Kubernetes to the next.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Name;

/// A field that may come in a shape that this version of Dragoman does not know. The rest of its
/// object stays readable.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tolerated<T> {
    /// The value of the field.
    Read(T),
    /// The reason why it does not decode.
    Unreadable(Name),
}

impl<T: DeserializeOwned + Default> Tolerated<T> {
    /// Reads JSON; `null` gives the default.
    pub(crate) fn of(text: &RawValue) -> Self {
        match serde_json::from_str::<Option<T>>(text.get()) {
            Ok(value) => Self::Read(value.unwrap_or_default()),
            Err(why) => Self::Unreadable(why.to_string().into()),
        }
    }
}

impl<T: Default> Default for Tolerated<T> {
    fn default() -> Self {
        Self::Read(T::default())
    }
}

impl<T> Tolerated<Vec<T>> {
    /// The elements; none where the field does not decode.
    pub fn items(&self) -> &[T] {
        match self {
            Self::Read(items) => items,
            Self::Unreadable(_) => &[],
        }
    }

    /// Whether the field does not decode.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unreadable(_))
    }
}

impl<'de, T: DeserializeOwned + Default> Deserialize<'de> for Tolerated<T> {
    /// Reads JSON; `null` gives the default.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer).map_err(D::Error::custom)?;
        Ok(Self::of(&text))
    }
}
