//! The documents of a text, cut into objects while they are read.

use std::io::{self, BufRead};

use anyhow::{Context as _, anyhow, bail};
use dragoman_objects::Cutter;
use dragoman_objects::Name;
use serde_json::Value;

use super::usual::usual;
use super::yaml::{self, Lines};
use super::{Found, PartialObjectMetadata, broken};

/// Takes the next object.
type Each<'a> = &'a mut dyn FnMut(anyhow::Result<Found>);

/// The documents of a text.
pub(super) struct Documents<'a, R> {
    /// The name of the file, for people.
    file: &'a str,
    text: R,
    /// The number of the line that comes next.
    line: usize,
    /// The blanks before the next byte in its line.
    indentation: String,
}

impl<'a, R: BufRead> Documents<'a, R> {
    pub(super) fn new(file: &'a str, text: R) -> Self {
        Self { file, text, line: 1, indentation: String::new() }
    }

    /// Hands the objects of the next document to `each`. Returns whether there was one.
    ///
    /// # Errors
    /// The text cannot be read.
    pub(super) fn next(&mut self, each: Each<'_>) -> io::Result<bool> {
        while let Some(first) = self.text.fill_buf()?.first().copied() {
            match first {
                b'\n' => {
                    self.text.consume(1);
                    self.line += 1;
                    self.indentation.clear();
                }
                blank if blank.is_ascii_whitespace() => {
                    self.text.consume(1);
                    self.indentation.push(char::from(blank));
                }
                b'{' | b'[' => return self.json(each).map(|()| true),
                _ if self.yaml(each)? => return Ok(true),
                // A line between two documents.
                _ => {}
            }
        }
        Ok(false)
    }

    /// Reads a JSON value. Others may follow it.
    fn json(&mut self, each: Each<'_>) -> io::Result<()> {
        self.indentation.clear();
        let mut list = List::at(format!("{}:{}", self.file, self.line));
        let mut cutter = Cutter::default();
        while !cutter.is_complete() {
            let chunk = self.text.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            let cut = cutter.feed(chunk, &mut |item, before| {
                // The list up to here, closed, as far as it names its kind.
                let of = || serde_json::from_slice(&[before, b"]}"].concat()).ok().and_then(items);
                list.item(item.into(), of, each);
                Ok(())
            });
            let length = match cut {
                Ok(taken) => taken,
                Err(why) => {
                    each(Err(anyhow!("{}: {why}", list.place)));
                    // Nothing that follows has a place of its own.
                    io::copy(&mut self.text, &mut io::sink())?;
                    return Ok(());
                }
            };
            self.line += chunk.iter().take(length).filter(|byte| **byte == b'\n').count();
            self.text.consume(length);
        }
        list.end(cutter.rest().into(), each);
        Ok(())
    }

    /// Reads YAML to the end of its document. Returns whether it has content.
    fn yaml(&mut self, each: Each<'_>) -> io::Result<bool> {
        let mut list = List::at(format!("{}:{}", self.file, self.line));
        let (mut lines, mut line) = (Lines::default(), std::mem::take(&mut self.indentation));
        while self.text.read_line(&mut line)? > 0 {
            self.line += 1;
            if is_mark(&line) {
                break;
            }
            let ended = lines.take(&line);
            list.yaml_item(ended, lines.rest(), each);
            line.clear();
        }
        let ended = lines.end();
        list.yaml_item(ended, lines.rest(), each);
        if lines.rest().trim().is_empty() {
            return Ok(false);
        }
        match yaml::object(lines.rest()) {
            // A document of comments.
            Ok(rest) if rest == b"null" && list.count == 0 => return Ok(false),
            Ok(rest) => list.end(rest.into(), each),
            Err(why) => each(Err(why.context(broken(&list.place)))),
        }
        Ok(true)
    }
}

/// Whether a line separates two documents. A comment may follow the mark.
fn is_mark(line: &str) -> bool {
    let Some(after) = line.strip_prefix("---") else { return false };
    after.trim().is_empty() || after.starts_with([' ', '\t']) && after.trim_start().starts_with('#')
}

/// The object that is read: perhaps a list, whose items come first.
struct List {
    place: String,
    /// The kind of the items of a typed list: they do not say again what they are.
    of: Option<PartialObjectMetadata>,
    count: usize,
    /// Items that came before the kind of their list.
    early: Vec<(String, Box<[u8]>)>,
}

impl List {
    fn at(place: String) -> Self {
        Self { place, of: None, count: 0, early: Vec::new() }
    }

    /// Takes the next item. `of` reads the kind of the list, if that comes before the items.
    fn item(&mut self, text: Box<[u8]>, of: impl FnOnce() -> Option<PartialObjectMetadata>, each: Each<'_>) {
        let place = format!("{}: item {}", self.place, self.count);
        self.count += 1;
        let head = match head(&place, &text) {
            Ok(head) => head,
            Err(why) => return each(Err(why)),
        };
        if head.kind.is_some() {
            return object(place, head, text, each);
        }
        self.of = self.of.take().or_else(of);
        match &self.of {
            Some(of) => object(place, named(of, head), text, each),
            None => self.early.push((place, text)),
        }
    }

    fn yaml_item(&mut self, item: Option<String>, before: &str, each: Each<'_>) {
        let Some(item) = item else { return };
        match yaml::item(&item) {
            Ok(text) => {
                let before = || serde_json::from_slice(&yaml::object(before).ok()?).ok();
                self.item(text.into(), || before().and_then(items), each);
            }
            Err(why) => {
                let place = format!("{}: item {}", self.place, self.count);
                self.count += 1;
                each(Err(why.context(broken(&place))));
            }
        }
    }

    /// The object has ended; `rest` is its text without the items.
    fn end(self, rest: Box<[u8]>, each: Each<'_>) {
        let head = match head(&self.place, &rest) {
            Ok(head) => head,
            Err(why) => return each(Err(why)),
        };
        if self.count == 0 {
            return object(self.place, head, rest, each);
        }
        let Some(of) = items(head.clone()) else {
            let kind = head.kind.unwrap_or_default();
            return each(Err(anyhow!("{}: a {kind:?} with items, which only lists have", self.place)));
        };
        for (place, text) in self.early {
            match self::head(&place, &text) {
                Ok(head) => object(place, named(&of, head), text, each),
                Err(why) => each(Err(why)),
            }
        }
    }
}

/// Hands an object on, or the items of a list that was read as a whole.
fn object(place: String, head: PartialObjectMetadata, text: Box<[u8]>, each: Each<'_>) {
    let Some(of) = items(head.clone()) else { return each(Ok(usual(Found { place, head, text }))) };
    let items = serde_json::from_slice::<Value>(&text).map_err(anyhow::Error::from).and_then(|mut list| {
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => bail!("{place}: a {} without items", head.kind.unwrap_or_default()),
        }
    });
    match items {
        Ok(items) => items.into_iter().enumerate().for_each(|(number, item)| {
            let (place, text) = (format!("{place}: item {number}"), item.to_string().into_bytes());
            match self::head(&place, &text) {
                Ok(head) => object(place, named(&of, head), text.into(), each),
                Err(why) => each(Err(why)),
            }
        }),
        Err(why) => each(Err(why)),
    }
}

/// The kind of the items of a list; `None` for what is no list, and for a list of any kind.
fn items(list: PartialObjectMetadata) -> Option<PartialObjectMetadata> {
    let kind = list.kind?.strip_suffix("List").map(Name::from)?;
    Some(PartialObjectMetadata { kind: Some(kind), api_version: list.api_version, metadata: None })
}

/// The head of an item, with the kind of its list where it has none.
fn named(of: &PartialObjectMetadata, item: PartialObjectMetadata) -> PartialObjectMetadata {
    // The items of a plain `List` say what they are.
    let is_typed = item.kind.is_none() && of.kind.as_deref() != Some("");
    if is_typed { PartialObjectMetadata { metadata: item.metadata, ..of.clone() } } else { item }
}

/// # Errors
/// The text is no JSON.
fn head(place: &str, text: &[u8]) -> anyhow::Result<PartialObjectMetadata> {
    if text.trim_ascii_start().starts_with(b"{") {
        return serde_json::from_slice(text).with_context(|| broken(place));
    }
    // Whatever it is, it has no kind.
    serde_json::from_slice::<serde::de::IgnoredAny>(text).with_context(|| broken(place))?;
    Ok(PartialObjectMetadata::default())
}
