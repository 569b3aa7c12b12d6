//! Completion as plugins of kubectl do it: kubectl runs `kubectl_complete-dra` with the words so far, and reads a candidate
//! on each line, and a directive on the last one.

use std::os::unix::fs::symlink;

use anyhow::{Context as _, ensure};
use clap::CommandFactory;

use crate::client::{CLAIMS, Client, NODES, PODS, TEMPLATES};
use dragoman_report::facts::Facts;

/// The name by which kubectl finds the completion.
pub(crate) const NAME: &str = "kubectl_complete-dra";
/// Candidates only, no files.
const NO_FILES: &str = ":4\n";

/// The candidates for the last of `words`.
pub(crate) async fn candidates<C: CommandFactory>(words: &[String]) -> String {
    let (typed, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let found = match before {
        [] => subcommands(&C::command()),
        [command] if command == "explain" => {
            let command = C::command();
            command.find_subcommand("explain").map(subcommands).unwrap_or_default()
        }
        [command, kind, ..] if command == "explain" => names(kind, before).await,
        [command, ..] if command == "drain" => names("node", before).await,
        _ => Vec::new(),
    };
    let found = found.into_iter().filter(|candidate| candidate.starts_with(typed));
    found.map(|candidate| candidate + "\n").collect::<String>() + NO_FILES
}

fn subcommands(command: &clap::Command) -> Vec<String> {
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    visible
        .map(|sub| {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            format!("{}\t{}", sub.get_name(), about.lines().next().unwrap_or_default())
        })
        .collect()
}

/// Names of objects; none where they cannot be read: completion never fails.
async fn names(kind: &str, words: &[String]) -> Vec<String> {
    let Ok(client) = Client::connect(None, None).await else { return Vec::new() };
    let given = words
        .iter()
        .zip(words.iter().skip(1))
        .find(|(flag, _)| matches!(flag.as_str(), "-n" | "--namespace"));
    let namespace = given.map_or_else(|| client.namespace.clone(), |(_, namespace)| namespace.clone());
    let mut facts = Facts::default();
    let of = Some(namespace.as_str());
    match kind {
        "pod" => client.list(&mut facts, PODS, of, "").await,
        "claim" => client.list(&mut facts, CLAIMS, of, "").await,
        "template" => client.list(&mut facts, TEMPLATES, of, "").await,
        "node" => client.list(&mut facts, NODES, None, "").await,
        _ => {}
    }
    let pods = facts.pods.into_keys().chain(facts.claims.into_keys()).chain(facts.templates.into_keys());
    pods.map(|(_, name)| name).chain(facts.nodes.into_keys()).collect()
}

/// Links this program as the one that completes, beside itself.
///
/// # Errors
/// The directory cannot be written, or something else has that name.
pub(crate) fn install() -> anyhow::Result<String> {
    let program = std::env::current_exe().context("the path of this program")?;
    let place = program.with_file_name(NAME);
    if place.exists() {
        let is_ours = place.canonicalize().ok() == program.canonicalize().ok();
        ensure!(is_ours, "{} is there already and is another program", place.display());
    } else {
        symlink(&program, &place).with_context(|| place.display().to_string())?;
    }
    Ok(format!("{} completes `kubectl dra` in every shell in which kubectl completes\n", place.display()))
}
