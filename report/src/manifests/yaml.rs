//! YAML as kubectl prints it, and as people write it for kubectl.

use std::borrow::Cow;

use serde_json::Value;

/// Cuts a document into the items of its list and the rest, line by line.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The document without the elements of `items`.
    rest: String,
    /// The item that has begun.
    item: String,
    place: Place,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Outside of `items`.
    #[default]
    Rest,
    /// Behind the line `items:`.
    Begun,
    /// In the items, whose dashes have this indentation.
    Items(usize),
}

impl Lines {
    /// Takes the next line. Returns the item that ended before it.
    pub(super) fn take(&mut self, line: &str) -> Option<String> {
        let text = line.trim();
        let indentation = line.len() - line.trim_start().len();
        let (says_nothing, is_item) = (text.is_empty() || text.starts_with('#'), is_item(text));
        match self.place {
            Place::Rest if line.trim_end() == "items:" => self.place = Place::Begun,
            Place::Begun if is_item => {
                self.place = Place::Items(indentation);
                self.item.push_str(line);
                return None;
            }
            Place::Begun if !says_nothing => self.place = Place::Rest,
            // Lines of a text have a larger indentation than the dash of its item.
            Place::Items(dash) if says_nothing || indentation > dash => {
                self.item.push_str(line);
                return None;
            }
            Place::Items(dash) if is_item && indentation == dash => {
                return Some(std::mem::replace(&mut self.item, line.to_owned()));
            }
            Place::Items(_) => {
                self.place = Place::Rest;
                self.rest.push_str(line);
                return self.end();
            }
            Place::Rest | Place::Begun => {}
        }
        self.rest.push_str(line);
        None
    }

    /// Returns the last item.
    pub(super) fn end(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.item)).filter(|item| !item.is_empty())
    }

    /// The document without its items.
    pub(super) fn rest(&self) -> &str {
        &self.rest
    }
}

/// Whether a line begins an element of a list.
fn is_item(text: &str) -> bool {
    text == "-" || text.starts_with("- ")
}

/// Returns a document as JSON.
///
/// # Errors
/// It is no YAML.
pub(super) fn object(document: &str) -> anyhow::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&parsed::<Value>(document)?)?)
}

/// Returns an element of a list as JSON.
///
/// # Errors
/// It is no YAML.
pub(super) fn item(element: &str) -> anyhow::Result<Vec<u8>> {
    let [item] = parsed::<[Value; 1]>(element)?;
    Ok(serde_json::to_vec(&item)?)
}

fn parsed<T: serde::de::DeserializeOwned>(document: &str) -> anyhow::Result<T> {
    let value = serde_saphyr::from_str_with_options(&endless_quoted(document), options());
    // Below its first line it draws the place, which is not that of the file.
    value.map_err(|why| anyhow::anyhow!("{}", why.to_string().lines().next().unwrap_or_default()))
}

/// YAML as Kubernetes has it: a name `n` or `off` is a name. The files are the user's own, and those of
/// a large cluster are large; nothing is bounded but aliases and depth, of which kubectl prints few.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        strict_booleans: true,
        // Quantities and names are texts; no field of Kubernetes is infinite.
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        budget: serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_total_comment_bytes: usize::MAX,
        },
    }
}

/// Quotes plain scalars that look like a number beyond all numbers, such as the label `12e4567`: kubectl
/// prints them without quotes, because its own library reads them as text.
fn endless_quoted(document: &str) -> Cow<'_, str> {
    let mut quoted: Option<String> = None;
    // The indentation of the line that begins a block scalar: its text is left alone.
    let mut block: Option<usize> = None;
    let mut at = 0;
    for line in document.split_inclusive('\n') {
        let end = at + line.len();
        let text = line.trim_end();
        let indent = text.len() - text.trim_start().len();
        let is_inside = block.is_some_and(|outer| text.is_empty() || indent > outer);
        if !is_inside {
            let value = text.rsplit([' ', '\t']).next().unwrap_or_default();
            let head = text.strip_suffix(value).unwrap_or_default();
            // A line of a folded text has neither a key nor a dash before its last word.
            let is_value = head.trim_end().ends_with([':', '-']);
            // The keys of an item begin behind its dash.
            let dashes = text.trim_start().len() - text.trim_start().trim_start_matches("- ").len();
            block = (is_value && value.starts_with(['|', '>']))
                .then(|| if head.trim_end().ends_with(':') { indent + dashes } else { indent });
            if is_value && is_endless(value) {
                let before = document.get(..at).unwrap_or_default();
                let quoted = quoted.get_or_insert_with(|| before.to_owned());
                quoted.push_str(&format!("{head}\"{value}\"\n"));
                at = end;
                continue;
            }
        }
        if let Some(quoted) = &mut quoted {
            quoted.push_str(line);
        }
        at = end;
    }
    quoted.map_or(Cow::Borrowed(document), Cow::Owned)
}

/// Whether a text is written as a number, and none is that large.
fn is_endless(value: &str) -> bool {
    let digits = value.trim_start_matches(['+', '-']);
    digits.starts_with(|first: char| first.is_ascii_digit())
        && value.parse::<f64>().is_ok_and(f64::is_infinite)
}
