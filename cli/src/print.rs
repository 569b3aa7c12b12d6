//! Answers and tables on a terminal, and as JSON and YAML.

use std::io::{IsTerminal as _, Write as _};

use anyhow::Context as _;
use clap::ValueEnum;
use dragoman_report::explain::Answer;
use dragoman_report::lists::{Cell, Table};
use dragoman_report::readiness::Readiness;
use dragoman_report::why::Why;
use dragoman_report::{Report, printable, render};
use serde::Serialize;

/// Format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people, with every column.
    Wide,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
    /// A page for browsers, of `report` alone.
    Html,
}

/// Where text goes, and whether it may have colours.
pub(crate) struct Screen {
    output: Option<Output>,
    colours: bool,
}

impl Screen {
    /// Colours are for terminals, unless `NO_COLOR` is set.
    pub(crate) fn new(output: Option<Output>) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { output, colours: wanted && output.is_none() && std::io::stdout().is_terminal() }
    }

    /// Whether it is for browsers.
    pub(crate) fn is_html(&self) -> bool {
        self.output == Some(Output::Html)
    }

    /// Whether it is for programs.
    pub(crate) fn is_structured(&self) -> bool {
        matches!(self.output, Some(Output::Json | Output::Yaml))
    }

    /// Prints an answer.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(crate) fn answer(&self, answer: &Answer) -> anyhow::Result<()> {
        match self.structured(answer)? {
            Some(text) => print(&text),
            None => print(&self.in_words(answer)),
        }
    }

    /// Prints a table, or that it is empty.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(crate) fn table(&self, table: &Table, nothing: &str) -> anyhow::Result<()> {
        if let Some(text) = self.structured(table)? {
            return print(&text);
        }
        let mut text = match (table.rows.is_empty(), table.lacks.is_empty()) {
            (true, true) => format!("{nothing}\n"),
            (true, false) => String::new(),
            (false, _) => self.columns(table),
        };
        table.lacks.iter().for_each(|lack| text.push_str(&format!("partial: {}\n", printable(lack))));
        print(&text)
    }

    /// Prints why Pods wait. `place` says which Pods.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(crate) fn why(&self, why: &Why, place: &str) -> anyhow::Result<()> {
        match self.structured(why)? {
            Some(text) => print(&text),
            None => print(&why.in_words(place)),
        }
    }

    /// Prints what a cluster is ready for.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(crate) fn readiness(&self, readiness: &Readiness) -> anyhow::Result<()> {
        match self.structured(readiness)? {
            Some(text) => print(&text),
            None => print(&readiness.in_words()),
        }
    }

    /// Prints what is taken from nodes.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(crate) fn report(&self, report: &Report) -> anyhow::Result<()> {
        match self.structured(report)? {
            Some(text) => print(&text),
            None => render(report, self.output != Some(Output::Wide))
                .lines()
                .try_for_each(|line| print(&(printable(line) + "\n"))),
        }
    }

    /// The text of a value for programs; `None` where it is for people.
    ///
    /// # Errors
    /// It has no YAML.
    pub(crate) fn structured(&self, value: &impl Serialize) -> anyhow::Result<Option<String>> {
        match self.output {
            Some(Output::Json) => Ok(Some(serde_json::to_string_pretty(value)? + "\n")),
            Some(Output::Yaml) => Ok(Some(serde_saphyr::to_string(value).context("YAML")?)),
            Some(Output::Wide | Output::Html) | None => Ok(None),
        }
    }

    fn in_words(&self, answer: &Answer) -> String {
        let colour = if answer.verdict.blocked { "\u{1b}[33m" } else { "\u{1b}[32m" };
        let words = answer.in_words();
        // The first line is the sentence.
        let (sentence, rest) = words.split_once('\n').unwrap_or((&words, ""));
        format!("{}\n{rest}", self.coloured(colour, sentence))
    }

    fn columns(&self, table: &Table) -> String {
        let wide = self.output == Some(Output::Wide);
        let columns: Vec<_> = table.shown(wide).collect();
        let cell = |row: &Vec<Cell>, place: usize| {
            let text = row.get(place).map(|cell| cut(&printable(&cell.shown))).unwrap_or_default();
            if text.is_empty() { "-".to_owned() } else { text }
        };
        let mut rows: Vec<Vec<String>> = vec![columns.iter().map(|(_, of)| of.title.to_owned()).collect()];
        rows.extend(
            table.rows.iter().map(|row| columns.iter().map(|(place, _)| cell(row, *place)).collect()),
        );
        let width = |number: usize| {
            rows.iter().filter_map(|row| row.get(number)).map(|text| text.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns.len()).map(|number| width(number).unwrap_or_default()).collect();
        let line = |row: &Vec<String>| {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(text, width)| format!("{text:width$}")).collect();
            format!("{}\n", cells.join("   ").trim_end())
        };
        rows.iter().map(line).collect()
    }

    fn coloured(&self, colour: &str, text: &str) -> String {
        if self.colours { format!("{colour}{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// The most characters of a cell: one long message would move every row of its column.
const CELL: usize = 200;

fn cut(text: &str) -> String {
    match text.char_indices().nth(CELL) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Writes to standard output; a reader that is gone (`| head`) is no error.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("standard output"),
    }
}

#[cfg(test)]
mod tests {
    use dragoman_report::lists::{Column, Type};

    use super::*;

    #[test]
    fn a_long_message_does_not_move_its_column() {
        const COLUMNS: &[Column] =
            &[Column { title: "MESSAGE", field: "message", r#type: Type::Text, about: "The message." }];
        let row = |text: &str| vec![Cell { shown: text.to_owned(), value: text.into() }];
        let rows = vec![row(&"x".repeat(70_000)), row("short")];
        let table = Table { columns: COLUMNS, rows, ..Table::default() };
        let text = Screen { output: None, colours: false }.columns(&table);
        assert_eq!(text.lines().map(|line| line.chars().count()).max(), Some(CELL + 1));
    }
}
