//! A list that is read while it arrives.

/// Cuts the text of a list into its items and the rest, chunk by chunk.
///
/// A page of 500 Pods, each with the 256 KiB of annotations that the API allows, has 125 MiB. Only one
/// item is held at a time.
#[derive(Debug, Default)]
pub(super) struct Cutter {
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
    /// Takes the next `chunk` and hands every item that it completes to `each`.
    ///
    /// # Errors
    /// What `each` returns, or that an element of `items` is not an object.
    pub(super) fn feed(
        &mut self,
        chunk: &[u8],
        each: &mut impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        for byte in chunk {
            let before = self.place;
            self.step(*byte)?;
            match (before, self.place) {
                (Place::Item, Place::Between) => {
                    self.item.push(*byte);
                    each(&self.item)?;
                    self.item.clear();
                }
                (_, Place::Item) => self.item.push(*byte),
                (Place::Between, Place::Between) => {}
                _ => self.rest.push(*byte),
            }
        }
        Ok(())
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
                    Place::Item | Place::Rest => {}
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

    /// The list without its items: JSON, once the list has arrived completely.
    pub(super) fn rest(&self) -> &[u8] {
        &self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The items and the rest of `list`, which arrives in chunks of `size` bytes.
    fn cut(list: &str, size: usize) -> Result<(Vec<String>, String), String> {
        let (mut cutter, mut items) = (Cutter::default(), Vec::new());
        for chunk in list.as_bytes().chunks(size) {
            cutter.feed(chunk, &mut |item| {
                items.push(String::from_utf8(item.to_vec()).map_err(|e| e.to_string())?);
                Ok(())
            })?;
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
