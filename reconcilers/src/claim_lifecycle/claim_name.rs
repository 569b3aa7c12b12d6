//! Deterministic names of generated claims.
//!
//! The stem is the one the built-in controller builds; where that lets the API
//! server append five random characters, these five are computed. Creating a
//! claim twice is then AlreadyExists, however late our index is, however many
//! instances run, and whatever became of the reply to the first attempt.
//!
//! Four characters come from a hash of consumer uid, entry, predecessor and salt;
//! the fifth is a check over the uid, the entry and the four. So [`is_ours`] can
//! tell our names from random ones without remembering any: a second writer's
//! claim passes by chance once in 27 times, one of ours always.

use sha2::{Digest as _, Sha256};

/// The alphabet of generated names in Kubernetes: no vowels, no look-alikes.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Characters appended to the stem.
const SUFFIX: usize = 5;
/// The longest stem; with the suffix a name has at most 62 characters.
const STEM: usize = 57;

/// Inputs of [`claim_name`] that change for a further claim of the same entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Generation<'a> {
    /// Name of the claim that was lost, if any: its successor needs another name,
    /// because it may still be terminating.
    pub predecessor: Option<&'a str>,
    /// Raised when the name belongs to another object.
    pub salt: u32,
}

/// The name of the claim for `entry` of the Pod or PodGroup `consumer`.
pub fn claim_name(consumer: &str, uid: &str, entry: &str, generation: Generation<'_>) -> String {
    let salt = generation.salt.to_be_bytes();
    let parts = [uid, entry, generation.predecessor.unwrap_or_default()];
    let digest = hash(&parts, &salt);
    let mut name = stem(consumer, entry);
    let body: String = digest.iter().take(SUFFIX - 1).map(|byte| letter(*byte)).collect();
    name.push_str(&body);
    name.push(check(uid, entry, &body));
    name
}

/// Whether [`claim_name`] could have made `name` for this uid and entry.
pub fn is_ours(name: &str, uid: &str, entry: &str) -> bool {
    let Some(start) = name.len().checked_sub(SUFFIX) else { return false };
    let Some(suffix) = name.get(start..) else { return false };
    let Some((body, last)) = suffix.split_at_checked(SUFFIX - 1) else { return false };
    last.chars().eq([check(uid, entry, body)])
}

fn stem(consumer: &str, entry: &str) -> String {
    let full = consumer.len() + entry.len() + 2;
    if full <= STEM {
        return format!("{consumer}-{entry}-");
    }
    // Both parts are cut in proportion. Names of Kubernetes are ASCII, so bytes
    // are characters; anything else is refused by the API server anyway.
    let part = |text: &str| -> String { text.chars().take(STEM * text.len() / full).collect() };
    // A dot right before the dash would make the name invalid for ever.
    format!("{}-{}", part(consumer).trim_end_matches('.'), part(entry))
}

fn check(uid: &str, entry: &str, body: &str) -> char {
    hash(&[uid, entry, body], b"check").first().map_or('b', |byte| letter(*byte))
}

fn hash(parts: &[&str], tail: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        // Lengths keep ("ab", "c") and ("a", "bc") apart.
        hasher.update(part.len().to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.update(tail);
    hasher.finalize().into()
}

fn letter(byte: u8) -> char {
    let index = usize::from(byte) % ALPHABET.len();
    ALPHABET.get(index).map_or('b', |byte| char::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn name(consumer: &str, entry: &str) -> String {
        claim_name(consumer, "uid", entry, Generation::default())
    }

    fn valid(name: &str) -> bool {
        name.len() <= 253
            && name.split('.').all(|label| {
                !label.is_empty()
                    && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                    && !label.starts_with('-')
                    && !label.ends_with('-')
            })
    }

    #[test]
    fn stems_are_those_of_the_built_in_controller() {
        assert!(name("pod", "gpu").starts_with("pod-gpu-"));
        assert_eq!(name("pod", "gpu").len(), "pod-gpu-".len() + 5);
        // 60 + 3 + 2 = 65 > 57: floor(57·60/65) = 52 and floor(57·3/65) = 2.
        let long = "a".repeat(60);
        assert_eq!(stem(&long, "gpu"), format!("{}-gp", "a".repeat(52)));
        assert_eq!(stem(&"a".repeat(51), "gpux"), format!("{}-gpux-", "a".repeat(51)));
    }

    #[test]
    fn a_dot_at_the_cut_does_not_make_an_invalid_name() {
        for cut in 1..80 {
            let consumer = format!("{}.{}", "a".repeat(cut), "b".repeat(81 - cut));
            assert!(valid(&name(&consumer, "accelerator")), "{consumer}");
        }
    }

    #[test]
    fn what_decides_a_name_changes_it() {
        let generation = |predecessor, salt| Generation { predecessor, salt };
        let names: HashSet<_> = [
            claim_name("p", "1", "a", generation(None, 0)),
            claim_name("p", "2", "a", generation(None, 0)),
            claim_name("p", "1", "a", generation(Some("p-a-xxxxx"), 0)),
            claim_name("p", "1", "a", generation(None, 1)),
        ]
        .into();
        assert_eq!(names.len(), 4);
        assert_eq!(name("p", "a"), name("p", "a"));
    }

    #[test]
    fn our_names_are_recognised_and_random_ones_mostly_not() {
        let mut foreign = 0;
        for i in 0..1000_u32 {
            let uid = format!("uid-{i}");
            let generation = Generation { predecessor: Some("x"), salt: i % 3 };
            assert!(is_ours(&claim_name("pod", &uid, "gpu", generation), &uid, "gpu"));
            let random: String = hash(&[&uid], b"random").iter().take(5).map(|b| letter(*b)).collect();
            foreign += u32::from(is_ours(&format!("pod-gpu-{random}"), &uid, "gpu"));
        }
        // One in 27 is 37 of 1000.
        assert!((15..75).contains(&foreign), "{foreign}");
        assert!(!is_ours("abc", "uid", "gpu"));
    }
}
