//! Every setting of a process that runs in a cluster can also come from its environment: an installer may
//! be able to set nothing else (a Subscription of OLM has no arguments).

use std::ffi::OsString;

use clap::{Arg, Command};

/// Prefix of the variables of settings.
const PREFIX: &str = "DRAGOMAN_";
/// The commands that a Deployment runs.
const RUNNING: [&str; 2] = ["run", "allocator"];

/// Lets `run` and `allocator` take each of their flags from a variable: `--born-protected` from
/// `DRAGOMAN_BORN_PROTECTED`. A flag wins over its variable, and the variable over the file.
pub(crate) fn readable(command: Command) -> Command {
    let with = |arg: Arg| match arg.get_long().map(variable) {
        // A value is no help to others and may name a host.
        Some(name) => arg.env(name).hide_env_values(true),
        None => arg,
    };
    RUNNING.into_iter().fold(command, |command, name| command.mut_subcommand(name, |it| it.mut_args(with)))
}

/// The variable of a flag.
fn variable(flag: &str) -> String {
    format!("{PREFIX}{}", flag.to_uppercase().replace('-', "_"))
}

/// The variables with our prefix that neither of the commands reads: a typing error, in most cases. They
/// are no error, because Kubernetes sets some that are like them for a Service called `dragoman`.
pub(crate) fn unknown(command: &Command, variables: impl Iterator<Item = OsString>) -> Vec<String> {
    let of = |name| command.find_subcommand(name).into_iter().flat_map(Command::get_arguments);
    let known: Vec<String> =
        RUNNING.into_iter().flat_map(of).filter_map(Arg::get_long).map(variable).collect();
    let ours = variables.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with(PREFIX));
    ours.filter(|name| !known.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Arguments;

    #[test]
    fn every_flag_of_a_running_process_has_a_variable() {
        let command = readable(Arguments::command());
        for name in RUNNING {
            let command = command.find_subcommand(name).expect(name);
            for arg in command.get_arguments().filter(|arg| arg.get_long() != Some("help")) {
                let flag = arg.get_long().expect("a flag");
                assert_eq!(arg.get_env(), Some(variable(flag).as_ref()), "{flag}");
            }
        }
        let run = command.find_subcommand("run").expect("run");
        let mode = run.get_arguments().find(|arg| arg.get_long() == Some("born-protected")).expect("flag");
        assert_eq!(mode.get_env(), Some("DRAGOMAN_BORN_PROTECTED".as_ref()));
    }

    #[test]
    fn a_variable_that_nothing_reads_is_found() {
        let set = ["PATH", "DRAGOMAN_MODE", "DRAGOMAN_NAME", "DRAGOMAN_WROKERS"];
        let found = unknown(&Arguments::command(), set.into_iter().map(OsString::from));
        assert_eq!(found, ["DRAGOMAN_WROKERS"]);
    }
}
