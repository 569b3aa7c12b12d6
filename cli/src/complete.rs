//! Completion as plugins of kubectl do it: kubectl runs `kubectl_complete-dra` with the words so far, and reads a candidate
//! on each line, and a directive on the last one.

use std::os::unix::fs::symlink;

use anyhow::{Context as _, ensure};
use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::arguments::{Completion, Explained, TYPES};
use crate::client::{CLAIMS, Client, NODES, PODS, TEMPLATES};
use dragoman_report::facts::Facts;

/// The name by which kubectl finds the completion.
pub(crate) const NAME: &str = "kubectl_complete-dra";
/// Candidates only, no files.
const NO_FILES: &str = ":4\n";

/// The candidates for the last of `words`.
pub(crate) async fn candidates<C: CommandFactory>(words: &[String]) -> String {
    let (typed, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let plain = without_flags(before);
    let found = match plain.as_slice() {
        [] => subcommands(&C::command()),
        [command] if *command == "explain" => match typed.split_once('/') {
            Some((kind, _)) => {
                let names = names(kind, before).await;
                names.into_iter().map(|name| format!("{kind}/{name}")).collect()
            }
            None => {
                TYPES.iter().filter_map(|(_, names)| names.first().map(|&name| name.to_owned())).collect()
            }
        },
        [command, kind, ..] if *command == "explain" => names(kind, before).await,
        [command, ..] if *command == "drain" => names("node", before).await,
        _ => Vec::new(),
    };
    let found = found.into_iter().filter(|candidate| candidate.starts_with(typed));
    found.map(|candidate| candidate + "\n").collect::<String>() + NO_FILES
}

/// The words that are no flags and no values of flags.
fn without_flags(words: &[String]) -> Vec<&str> {
    const WITH_VALUE: [&str; 8] =
        ["-n", "--namespace", "--context", "--kubeconfig", "-o", "--output", "-f", "--filename"];
    let mut plain = Vec::new();
    let mut is_value = false;
    for word in words.iter().map(String::as_str) {
        if !std::mem::take(&mut is_value) && !word.starts_with('-') {
            plain.push(word);
        }
        is_value = WITH_VALUE.contains(&word);
    }
    plain
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
    let kind = TYPES.iter().find(|(_, names)| names.contains(&kind)).map(|(kind, _)| *kind);
    match kind {
        Some(Explained::Pod) => client.list(&mut facts, PODS, of, "").await,
        Some(Explained::Claim) => client.list(&mut facts, CLAIMS, of, "").await,
        Some(Explained::Template) => client.list(&mut facts, TEMPLATES, of, "").await,
        Some(Explained::Node) => client.list(&mut facts, NODES, None, "").await,
        Some(Explained::Device) | None => {}
    }
    let pods = facts.pods.into_keys().chain(facts.claims.into_keys()).chain(facts.templates.into_keys());
    pods.map(|(_, name)| name).chain(facts.nodes.into_keys()).collect()
}

/// A script that completes this program where it is called by its own name.
pub(crate) fn script<C: CommandFactory>(shell: Completion) -> String {
    let shell = match shell {
        Completion::Zsh => Shell::Zsh,
        Completion::Fish => Shell::Fish,
        Completion::Powershell => Shell::PowerShell,
        Completion::Bash | Completion::Install => Shell::Bash,
    };
    let mut script = Vec::new();
    generate(shell, &mut C::command().bin_name("kubectl-dra"), "kubectl-dra", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Links this program as the one that completes, beside itself.
///
/// # Errors
/// The directory cannot be written, or something else has that name.
pub(crate) fn install() -> anyhow::Result<String> {
    let program = std::env::current_exe().context("the path of this program")?;
    let place = program.with_file_name(NAME);
    // A link whose program is gone is replaced.
    if !place.exists() && place.is_symlink() {
        std::fs::remove_file(&place).with_context(|| place.display().to_string())?;
    }
    if place.exists() {
        let is_ours = place.canonicalize().ok() == program.canonicalize().ok();
        ensure!(is_ours, "{} is there already and is another program", place.display());
    } else {
        symlink(&program, &place).with_context(|| place.display().to_string())?;
    }
    Ok(format!("{} completes `kubectl dra` in every shell in which kubectl completes\n", place.display()))
}
