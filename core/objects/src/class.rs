//! `DeviceClass`.

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Meta, Name, Selector, known, or_default};

/// A DeviceClass as the API server sends it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeviceClass {
    /// `metadata`.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Meta,
    /// `spec`, without the name.
    #[serde(deserialize_with = "decided")]
    pub spec: Class,
}

impl DeviceClass {
    /// The class with its name.
    pub fn class(&self) -> Class {
        Class { name: self.metadata.name.clone(), ..self.spec.clone() }
    }
}

/// A field that this version does not know may narrow the class.
fn decided<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Class, D::Error> {
    let Some(text) = Option::<Box<RawValue>>::deserialize(deserializer)? else { return Ok(Class::default()) };
    let class: Class = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
    Ok(Class { unreadable: known::unknown_in(&known::CLASS, &text), ..class })
}

/// Content of a DeviceClass: its `spec` and its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Class {
    /// `metadata.name`.
    #[serde(skip)]
    pub name: Name,
    /// `spec.selectors`: all must hold.
    #[serde(deserialize_with = "or_default")]
    pub selectors: Vec<Selector>,
    /// `spec.config`.
    #[serde(deserialize_with = "or_default")]
    pub config: Vec<Configuration>,
    /// `spec.extendedResourceName`: Pods that request this resource get devices of the class (KEP-5004).
    #[serde(rename = "extendedResourceName")]
    pub extended_resource_name: Option<Name>,
    /// The reason why it cannot be decided what the class selects, if that is so.
    #[serde(skip)]
    pub unreadable: Option<Name>,
}

/// Parameters that only the driver interprets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(default)]
pub struct Configuration {
    /// `opaque`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<OpaqueConfiguration>,
}

/// `opaque` of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(default)]
pub struct OpaqueConfiguration {
    /// `driver`.
    #[serde(deserialize_with = "or_default")]
    pub driver: Name,
    /// `parameters`: an arbitrary object.
    pub parameters: Parameters,
}

pub use parameters::Parameters;

/// Parameters as the original JSON text, because only the driver reads them.
mod parameters {
    use serde::de::Deserializer;
    use serde::ser::Serializer;
    use serde::{Deserialize, Serialize};
    use serde_json::value::RawValue;

    use crate::Name;

    /// JSON text, verbatim.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Parameters(Name);

    impl Default for Parameters {
        fn default() -> Self {
            Self("null".into())
        }
    }

    impl<'de> Deserialize<'de> for Parameters {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            Ok(Self(Box::<RawValue>::deserialize(deserializer)?.get().into()))
        }
    }

    impl Serialize for Parameters {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
            raw.serialize(serializer)
        }
    }
}
