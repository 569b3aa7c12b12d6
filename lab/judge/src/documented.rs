//! Fields of an API as two versions document them, and the differences that a person has signed off.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// A field as a version documents it.
#[derive(Debug, Clone, Deserialize)]
pub struct Field {
    /// The type that has it, and the name of the field in JSON.
    pub field: String,
    /// The type of the field in Go.
    pub r#type: String,
    /// The comment, in one line.
    pub comment: String,
}

impl Field {
    /// Type and comment without what changes nothing: letters and quotes.
    fn meaning(&self) -> (String, String) {
        (self.r#type.clone(), self.comment.replace('`', "").to_lowercase())
    }
}

/// A difference that a person has read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// Digest of type and comment in the newest version.
    pub digest: String,
    /// The consequence for this repository.
    pub why: String,
}

/// Fields by their names.
pub type Fields = BTreeMap<String, Field>;

/// Returns the differences that are not signed off, and what is signed off for nothing; in words.
pub fn unsigned(before: &Fields, after: &Fields, signed: &BTreeMap<String, Signed>) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).chain(signed.keys()).collect();
    let open = names.into_iter().filter_map(|name| {
        let (old, new) = (before.get(name), after.get(name));
        let differs = old.map(Field::meaning) != new.map(Field::meaning);
        let digest = digest(new);
        match signed.get(name) {
            None if !differs => None,
            Some(known) if differs && known.digest == digest && !known.why.is_empty() => None,
            Some(_) if !differs => Some(format!("{name}: signed off, and no difference")),
            _ => {
                let said = |of: Option<&Field>| {
                    of.map_or_else(|| "nothing".to_owned(), |of| format!("{}: {}", of.r#type, of.comment))
                };
                let (old, new) = (said(old), said(new));
                Some(format!("{name}, digest {digest}\n  before: {old}\n  now:    {new}"))
            }
        }
    });
    open.collect()
}

fn digest(of: Option<&Field>) -> String {
    let (kind, comment) = of.map(Field::meaning).unwrap_or_default();
    let digest = Sha256::digest(format!("{kind}\n{comment}"));
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(all: &[(&str, &str, &str)]) -> Fields {
        let field = |(name, kind, comment): &(&str, &str, &str)| Field {
            field: (*name).to_owned(),
            r#type: (*kind).to_owned(),
            comment: (*comment).to_owned(),
        };
        all.iter().map(|of| (of.0.to_owned(), field(of))).collect()
    }

    fn signs(name: &str, of: &Fields) -> BTreeMap<String, Signed> {
        let signed = Signed { digest: digest(of.get(name)), why: "read".to_owned() };
        [(name.to_owned(), signed)].into()
    }

    #[test]
    fn every_difference_has_to_be_signed_off() {
        let before = fields(&[("count", "int64", "Count is the number."), ("old", "string", "")]);
        let none = BTreeMap::new();
        assert!(unsigned(&before, &before, &none).is_empty());
        let spelled = fields(&[("count", "int64", "count is the `number`."), ("old", "string", "")]);
        assert!(unsigned(&before, &spelled, &none).is_empty(), "letters and quotes change nothing");
        for after in [
            fields(&[("count", "int64", "Count is the least number."), ("old", "string", "")]),
            fields(&[("count", "int32", "Count is the number."), ("old", "string", "")]),
            fields(&[("old", "string", "")]),
        ] {
            let open = unsigned(&before, &after, &none);
            assert!(matches!(&open[..], [one] if one.starts_with("count, digest")), "{open:?}");
            assert!(unsigned(&before, &after, &signs("count", &after)).is_empty());
            assert_eq!(unsigned(&before, &after, &signs("count", &before)).len(), 1, "another text was read");
        }
        let added = fields(&[
            ("count", "int64", "Count is the number."),
            ("old", "string", ""),
            ("new", "string", ""),
        ]);
        assert_eq!(unsigned(&before, &added, &none).len(), 1);
        let open = unsigned(&before, &before, &signs("count", &before));
        assert!(matches!(&open[..], [one] if one.ends_with("no difference")), "{open:?}");
        let mut silent = signs("new", &added);
        for signed in silent.values_mut() {
            signed.why.clear();
        }
        assert_eq!(unsigned(&before, &added, &silent).len(), 1, "it does not say what follows");
    }
}
