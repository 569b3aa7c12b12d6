//! A list that is read while it arrives.

/// Cuts the text of a JSON object into the elements of its field `items` and the rest, chunk by chunk.
///
/// A page of 500 Pods, each with the 256 KiB of annotations that the API allows, has 125 MiB, and a dump
/// of a cluster has gigabytes. Only one item is held at a time.
#[derive(Debug, Default)]
pub struct Cutter {
    /// The list without the elements of `items`.
    rest: Vec<u8>,
    /// The item that has begun.
    item: Vec<u8>,
    /// Brackets that are open.
    depth: usize,
    place: Place,
    within: Within,
}

/// The place in the list.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Outside of `items`.
    #[default]
    Rest,
    /// In `items`, before, between or behind its elements.
    Between,
    /// In an element of `items`.
    Item,
    /// Behind the list.
    End,
}

/// Brackets count outside of strings only.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Within {
    #[default]
    Structure,
    Text,
    /// In a string, behind a backslash.
    Escape,
}

/// Depth of the elements of `items`: in the list and in the array.
const ELEMENTS: usize = 2;

impl Cutter {
    /// Takes the next `chunk` and hands every item that it completes to `each`, with the text of the list
    /// before the items. Returns how much of the chunk belongs to the list; bytes are left over behind its
    /// end.
    ///
    /// # Errors
    /// What `each` returns, or that an element of `items` is not an object.
    pub fn feed(
        &mut self,
        chunk: &[u8],
        each: &mut impl FnMut(&[u8], &[u8]) -> Result<(), String>,
    ) -> Result<usize, String> {
        let mut left = chunk;
        while self.place != Place::End {
            let (plain, from) = left.split_at(self.plain(left));
            self.keep(plain);
            let Some((byte, behind)) = from.split_first() else { return Ok(chunk.len()) };
            let before = self.place;
            self.step(*byte)?;
            match (before, self.place) {
                (Place::Item, Place::Between) => {
                    self.item.push(*byte);
                    each(&self.item, &self.rest)?;
                    // The room of a large item is given back.
                    self.item.clear();
                    self.item.shrink_to(ORDINARY);
                }
                (_, Place::Item) => self.item.push(*byte),
                (Place::Between, Place::Between) => {}
                _ => self.rest.push(*byte),
            }
            left = behind;
        }
        Ok(chunk.len() - left.len())
    }

    /// The number of bytes at the beginning of `chunk` that change nothing but the item or the rest.
    fn plain(&self, chunk: &[u8]) -> usize {
        let first = match (self.within, self.place) {
            (Within::Escape, _) | (_, Place::Between | Place::End) => return 0,
            (Within::Text, _) => memchr::memchr2(b'"', b'\\', chunk),
            (Within::Structure, _) => {
                chunk.iter().position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']'))
            }
        };
        first.unwrap_or(chunk.len())
    }

    fn keep(&mut self, plain: &[u8]) {
        let part = if self.place == Place::Item { &mut self.item } else { &mut self.rest };
        part.extend_from_slice(plain);
    }

    fn step(&mut self, byte: u8) -> Result<(), String> {
        match (self.within, byte) {
            (Within::Escape, _) => self.within = Within::Text,
            (Within::Text, b'\\') => self.within = Within::Escape,
            (Within::Text, b'"') => self.within = Within::Structure,
            (Within::Text, _) => {}
            (Within::Structure, _) => self.structure(byte)?,
        }
        Ok(())
    }

    fn structure(&mut self, byte: u8) -> Result<(), String> {
        let element = self.place == Place::Between;
        match byte {
            b'{' | b'[' => {
                if element && byte == b'{' {
                    self.place = Place::Item;
                } else if byte == b'[' && self.depth + 1 == ELEMENTS && self.behind_items() {
                    self.place = Place::Between;
                }
                self.depth += 1;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                match self.place {
                    Place::Item if self.depth == ELEMENTS => self.place = Place::Between,
                    Place::Between => self.place = Place::Rest,
                    Place::Rest if self.depth == 0 => self.place = Place::End,
                    Place::Item | Place::Rest | Place::End => {}
                }
            }
            b'"' => self.within = Within::Text,
            _ => {}
        }
        let separates = byte == b',' || byte.is_ascii_whitespace();
        if element && self.place == Place::Between && !separates {
            return Err("an item of the list is not an object".to_owned());
        }
        Ok(())
    }

    /// Whether the rest ends with the key `items` and its colon. A value that reads like it ends with a
    /// quotation mark instead.
    fn behind_items(&self) -> bool {
        let key = self.rest.trim_ascii_end().strip_suffix(b":").map(<[u8]>::trim_ascii_end);
        key.and_then(|key| key.strip_suffix(b"\"items\"")).is_some_and(|before| !before.ends_with(b"\\"))
    }

    /// Whether the list has arrived completely.
    pub fn is_complete(&self) -> bool {
        self.place == Place::End
    }

    /// The list without its items: JSON, once the list has arrived completely. What follows it is not
    /// part of it.
    pub fn rest(&self) -> &[u8] {
        &self.rest
    }
}

/// Bytes of an item whose room is kept for the next.
const ORDINARY: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// The items and the rest of `list`, which arrives in chunks of `size` bytes.
    fn cut(list: &str, size: usize) -> Result<(Vec<String>, String), String> {
        let (mut cutter, mut items) = (Cutter::default(), Vec::new());
        for chunk in list.as_bytes().chunks(size) {
            let taken = cutter.feed(chunk, &mut |item, _| {
                items.push(String::from_utf8(item.to_vec()).map_err(|e| e.to_string())?);
                Ok(())
            })?;
            assert_eq!(taken, chunk.len(), "nothing is left over");
        }
        Ok((items, String::from_utf8(cutter.rest().to_vec()).map_err(|e| e.to_string())?))
    }

    #[test]
    fn every_chunk_size_cuts_the_same() {
        let list = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","items":[{"no":1}]},"x":"\"items\":[","items":[{"a":"}]\\"},{"q":"\"}"},{"items":[{"b":[]}],"s":"\"items\":[{"} , {}],"y":["items",[]]}"#;
        let rest = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","items":[{"no":1}]},"x":"\"items\":[","items":[],"y":["items",[]]}"#;
        let items = [r#"{"a":"}]\\"}"#, r#"{"q":"\"}"}"#, r#"{"items":[{"b":[]}],"s":"\"items\":[{"}"#, "{}"];
        for size in 1..=list.len() {
            let (found, left) = cut(list, size).expect("a list");
            assert_eq!(found, items, "{size}");
            assert_eq!(left, rest, "{size}");
        }
    }

    #[test]
    fn what_follows_a_list_is_left_over() {
        let (mut cutter, mut none) = (Cutter::default(), |_: &[u8], _: &[u8]| Err("an item".to_owned()));
        assert_eq!(cutter.feed(br#" {"a": "}"#, &mut none), Ok(9));
        assert!(!cutter.is_complete());
        assert_eq!(cutter.feed(br#""} {"b": 1}"#, &mut none), Ok(2));
        assert!(cutter.is_complete());
        assert_eq!(cutter.feed(b"more", &mut none), Ok(0));
        assert_eq!(cutter.rest(), br#" {"a": "}"}"#);
    }

    #[test]
    fn lists_without_items_have_none() {
        for list in [r#"{"items":[]}"#, r#"{"items":null}"#, r#"{"metadata":{}}"#, r#"{ "items" : [ ] }"#] {
            let (items, rest) = cut(list, 3).expect("a list");
            assert!(items.is_empty(), "{list}");
            assert!(serde_json::from_str::<serde_json::Value>(&rest).is_ok(), "{rest}");
        }
    }

    #[test]
    fn an_item_that_is_not_an_object_is_an_error() {
        for list in
            [r#"{"items":[null]}"#, r#"{"items":["{}"]}"#, r#"{"items":[[{}]]}"#, r#"{"items":[{},7]}"#]
        {
            assert_eq!(cut(list, 4), Err("an item of the list is not an object".to_owned()), "{list}");
        }
    }

    #[test]
    fn what_breaks_off_is_not_json() {
        let (items, rest) = cut(r#"{"items":[{"a":1},{"b":"#, 5).expect("so far");
        assert_eq!(items, [r#"{"a":1}"#]);
        assert!(serde_json::from_str::<serde_json::Value>(&rest).is_err(), "{rest}");
    }
}
