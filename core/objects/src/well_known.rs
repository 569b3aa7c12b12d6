//! Texts that nearly every object of a cluster has: one copy of each for the process. A cluster has tens of thousands of claims,
//! each with the same finalizer and a consumer of the same kind.

use std::sync::LazyLock;

use serde::{Deserialize, Deserializer};

use super::{DELETE_PROTECTION, Name, SCHEDULING_GROUP};

static TEXTS: LazyLock<[Name; 9]> = LazyLock::new(|| {
    let texts =
        [DELETE_PROTECTION, SCHEDULING_GROUP, "pods", "podgroups", "v1", "Pod", "Running", "True", "False"];
    texts.map(Name::from)
});

/// The one copy of a text that many objects have; a copy of its own for any other.
fn shared(text: Name) -> Name {
    TEXTS.iter().find(|known| **known == text).cloned().unwrap_or(text)
}

/// Deserializes a text that many objects have in common. It may be missing or `null`.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    Ok(Option::<Name>::deserialize(deserializer)?.map(shared).unwrap_or_default())
}

/// Deserializes a list of texts that many objects have in common. It may be missing or `null`.
pub(crate) fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Name>, D::Error> {
    let texts = Option::<Vec<Name>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(texts.into_iter().map(shared).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::Meta;

    #[test]
    fn finalizers_of_all_claims_are_one_text() {
        let read = || -> Meta {
            let text = r#"{"finalizers": ["resource.kubernetes.io/delete-protection", "another"]}"#;
            serde_json::from_str(text).expect("metadata")
        };
        let [one, other] = [read(), read()].map(|meta| meta.finalizers);
        let same: Vec<bool> = one.iter().zip(&other).map(|(one, other)| Arc::ptr_eq(one, other)).collect();
        assert_eq!((same, one), (vec![true, false], other));
    }
}
