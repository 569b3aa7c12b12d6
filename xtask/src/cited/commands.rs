//! Command lines in documents: each command, subcommand and flag exists.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::{Task, root};

/// Every command of this repository, in words (`dragoman run`), with its flags.
pub(super) struct Commands(BTreeMap<String, BTreeSet<String>>);

/// Other spellings of programs.
const SPELLINGS: [(&str, &str); 4] = [
    ("target/debug/dragoman ", "dragoman "),
    ("target/release/dragoman ", "dragoman "),
    ("./dragoman ", "dragoman "),
    ("kubectl-dra ", "kubectl dra "),
];
/// Programs that are looked at.
const PROGRAMS: [&str; 3] = ["kubectl dra", "cargo xtask", "dragoman"];

impl Commands {
    /// Those of the programs, from the page that `cargo xtask gen` writes, and those of `cargo xtask`.
    pub(super) fn read() -> anyhow::Result<Self> {
        let page = "docs/commands.md";
        let mut commands = Self::of_page(&std::fs::read_to_string(root()?.join(page)).context(page)?);
        commands.put("cargo xtask", &Task::command());
        Ok(commands)
    }

    /// Each heading is a command; what stands under it has its flags.
    pub(super) fn of_page(page: &str) -> Self {
        let mut commands = BTreeMap::<String, BTreeSet<String>>::new();
        let mut at = String::new();
        for line in page.lines() {
            if let Some(heading) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim()) {
                heading.clone_into(&mut at);
                commands.entry(at.clone()).or_default();
            } else {
                commands.entry(at.clone()).or_default().extend(flags(line));
            }
        }
        Self(commands)
    }

    fn put(&mut self, name: &str, command: &clap::Command) {
        let long = command.get_arguments().filter_map(|argument| argument.get_long());
        self.0.insert(name.to_owned(), long.map(|flag| format!("--{flag}")).collect());
        for below in command.get_subcommands() {
            self.put(&format!("{name} {}", below.get_name()), below);
        }
    }

    /// The fault of a command line, or of one of several that are joined; nothing where it is none of ours.
    pub(super) fn wrong(&self, line: &str) -> Option<String> {
        line.split(['|', ';', '&']).find_map(|part| self.wrong_alone(bare(part)))
    }

    fn wrong_alone(&self, line: &str) -> Option<String> {
        let spelled = |(other, ours): &(&str, &str)| Some(format!("{ours}{}", line.strip_prefix(other)?));
        let line = SPELLINGS.iter().find_map(spelled).unwrap_or_else(|| line.to_owned());
        let program = PROGRAMS
            .into_iter()
            .find(|program| line.strip_prefix(program).is_some_and(|rest| rest.starts_with(' ')))?;
        let mut command = program.to_owned();
        let mut flags_of = self.0.get(&command)?.clone();
        let mut is_command = true;
        for word in line.get(program.len()..)?.split_whitespace() {
            if word == "--" {
                break;
            }
            let below = format!("{command} {word}");
            if let Some(flags) = self.0.get(&below).filter(|_| is_command) {
                flags_of.extend(flags.iter().cloned());
                command = below;
                continue;
            }
            let has_commands = self.0.keys().any(|known| known.starts_with(&format!("{command} ")));
            if is_command && has_commands && is_name(word) {
                return Some(format!("{command} has no command {word}"));
            }
            is_command = false;
            if let Some(flag) = flags(word).next().filter(|_| word.starts_with("--"))
                && !flags_of.contains(&flag)
                && !matches!(&*flag, "--help" | "--version")
            {
                return Some(format!("{command} has no flag {flag}"));
            }
        }
        None
    }
}

/// A command without its prompt, `sudo`, and variables in front.
fn bare(part: &str) -> &str {
    let mut part = part.trim().trim_start_matches("$ ");
    while let Some((_, rest)) = part.split_once(' ').filter(|(first, _)| {
        let is_variable =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        *first == "sudo" || first.split_once('=').is_some_and(|(name, _)| is_variable(name))
    }) {
        part = rest.trim_start();
    }
    part
}

/// The long flags in a text.
fn flags(text: &str) -> impl Iterator<Item = String> {
    let is_of_a_flag = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.split(move |c: char| !is_of_a_flag(c))
        .filter(|word| {
            word.strip_prefix("--").is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
        })
        .map(str::to_owned)
}

/// Whether it could be the name of a command.
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

/// The command lines in the code blocks of a text, each with the line where it begins. A backslash at the end goes on with the next.
pub(super) fn in_blocks(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut in_block, mut open) = (Vec::<(usize, String)>::new(), false, false);
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            (in_block, open) = (!in_block, false);
        } else if in_block {
            let (part, goes_on) =
                line.trim_end().strip_suffix('\\').map_or((line, false), |part| (part, true));
            // What follows is a remark.
            let part = part.split(" #").next().unwrap_or_default().trim();
            match found.last_mut().filter(|_| open) {
                Some((_, whole)) => whole.extend([" ", part]),
                None => found.push((number + 1, part.to_owned())),
            }
            open = goes_on;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands() -> Commands {
        let page = "# Commands\n\n## dragoman\n\n  -h, --help\n\n### dragoman run\n\n      --mode <MODE>\n\n## kubectl dra\n\n  -n, --namespace\n\n### kubectl dra explain\n\n  -f, --filename\n";
        let mut commands = Commands::of_page(page);
        commands.put("cargo xtask", &Task::command());
        commands
    }

    #[test]
    fn a_command_line_that_is_wrong_is_found() {
        let commands = commands();
        for right in [
            "dragoman run --mode=own",
            "target/debug/dragoman run --mode own",
            "kubectl dra explain pod web -n team --namespace team",
            "kubectl get pods --watch",
            "kubectl get pods -o yaml | kubectl dra explain -f -",
            "cargo xtask test --real",
            "dragoman --version",
        ] {
            assert_eq!(commands.wrong(right), None, "{right}");
        }
        for (wrong, why) in [
            ("dragoman run --mod=own", "dragoman run has no flag --mod"),
            ("dragoman runs", "dragoman has no command runs"),
            ("kubectl-dra explain --mode own", "kubectl dra explain has no flag --mode"),
            ("kubectl get pods | kubectl dra explan", "kubectl dra has no command explan"),
            ("DRAGOMAN_MODE=own sudo dragoman run --mod x", "dragoman run has no flag --mod"),
            ("cargo xtask bench lifecycl", "cargo xtask bench has no command lifecycl"),
            ("cargo xtask test --reel", "cargo xtask test has no flag --reel"),
        ] {
            assert_eq!(commands.wrong(wrong).as_deref(), Some(why));
        }
    }

    #[test]
    fn a_command_in_a_block_may_have_several_lines_and_a_remark() {
        let text = "a\n```sh\none \\\n  --two\nthree # four\n```\nfive\n";
        assert_eq!(in_blocks(text), [(3, "one --two".to_owned()), (5, "three".to_owned())]);
    }
}
