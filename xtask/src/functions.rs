//! The size limit of functions.

use anyhow::{Context as _, ensure};

use crate::{output, root};

/// The most lines of code in a function, without blank lines and comments.
const MOST_LINES: usize = 60;

/// Checks that no function is too long.
///
/// # Errors
/// Names every function with too many lines of code.
pub(crate) fn check() -> anyhow::Result<()> {
    let mut long = Vec::new();
    let listed = output("git", &["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"])?;
    for file in listed.lines().filter(|file| !is_data(file)) {
        let path = root()?.join(file);
        if !path.exists() {
            continue;
        }
        let text = std::fs::read_to_string(path).with_context(|| file.to_owned())?;
        let above = functions(&text).into_iter().filter(|(_, lines)| *lines > MOST_LINES);
        long.extend(above.map(|(name, lines)| format!("{file}: {name} has {lines} lines of code")));
    }
    ensure!(long.is_empty(), "functions of more than {MOST_LINES} lines of code:\n{}", long.join("\n"));
    Ok(())
}

/// Whether the functions of a file are lists: the cases of a test, or the questions of a chapter.
fn is_data(file: &str) -> bool {
    file.contains("/tests/") || file.contains("/questions/")
}

/// The functions of a source file as rustfmt lays it out, with their lines of code: a function ends
/// at the first closing brace that is indented like its first line.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some(name) = name_of(line) else { continue };
        let indent: String = line.chars().take_while(|c| *c == ' ').collect();
        let end = format!("{indent}}}");
        let body = lines.get(number..).unwrap_or_default();
        let declared =
            body.iter().position(|line| line.ends_with('{') || line.ends_with(';') || line.ends_with('}'));
        // A declaration without a body, or one on a line.
        if declared.and_then(|at| body.get(at)).is_none_or(|line| !line.ends_with('{')) {
            continue;
        }
        let length = body.iter().position(|line| *line == end).map_or(0, |last| last + 1);
        let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        found.push((name, body.iter().take(length).filter(is_code).count()));
    }
    found
}

/// The name of the function that a line begins.
fn name_of(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub") || matches!(*word, "const" | "async" | "unsafe" | "extern" | "\"C\"")
    });
    if words.next()? != "fn" {
        return None;
    }
    let name: String = words.next()?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_code_are_counted() {
        let text = "impl A {\n    pub(crate) async fn a(\n        b: u8,\n    ) -> u8 {\n        // why\n\n        {\n            b\n        }\n    }\n    fn c(&self);\n}\n";
        assert_eq!(functions(text), [("a".to_owned(), 7)]);
    }
}
