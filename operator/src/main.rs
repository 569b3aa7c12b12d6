//! The `dragoman` binary: wiring only.

mod account;
mod allocate;
mod config;
mod conformance;
mod controllers;
mod crdgen;
#[cfg(feature = "simulation")]
mod demo;
mod drain;
mod environment;
mod gating;
mod rbac;
mod run;
#[cfg(feature = "simulation")]
mod simulate;
#[cfg(feature = "simulation")]
mod simulated;
mod telemetry;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

// One thread and many small short-lived objects: what this allocator is made for.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The control plane of Dynamic Resource Allocation outside the Kubernetes tree.
#[derive(Debug, Parser)]
#[command(name = "dragoman", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controllers.
    Run(Box<config::RunFlags>),
    /// Run the reference allocator: devices and nodes for the claims of gated Pods.
    Allocator(Box<config::AllocatorFlags>),
    /// Make the cluster independent of Dragoman, before it is uninstalled.
    ///
    /// Removes the delete-protection finalizer from every claim that is neither allocated nor reserved, and lists what is still
    /// allocated. The step before uninstalling, scaling to zero or leaving mode own.
    Drain(drain::DrainFlags),
    /// Install the admission policies of claim gates, or remove them and every gate of ours.
    Gating(gating::GatingFlags),
    /// Say whether an allocator keeps the claim gate protocol.
    ///
    /// Plays the operator and a workload against it, on nodes and devices of its own.
    Conformance(conformance::ConformanceFlags),
    /// Watch everything at work on a simulated cluster in this process.
    #[cfg(feature = "simulation")]
    Demo(demo::DemoFlags),
    /// Show what Dragoman would do in mode own with the objects of a dump.
    #[cfg(feature = "simulation")]
    Simulate(simulate::SimulateFlags),
    /// Print what Pods and claims take from every node of a dump, and what fits.
    Account(account::AccountFlags),
    /// Print which devices claims would get.
    Allocate(allocate::AllocateFlags),
    /// Print the ClusterRoles, rendered from what the controllers declare.
    Rbac {
        /// Part of Dragoman that the roles are for.
        #[arg(default_value = "operator")]
        part: rbac::Part,
    },
    /// Print the CustomResourceDefinitions of our own kinds.
    Crdgen,
}

/// Parses the command line and the environment; ends the process where they are wrong or help is asked for.
fn arguments() -> Arguments {
    let mut command = environment::readable(Arguments::command());
    let matches = command.get_matches_mut();
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
}

// One thread: what there is to compute fits it many times over, and waking others
// for each answer cost a fifth of our cpu.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = |()| ExitCode::SUCCESS;
    let outcome = match arguments().command {
        Command::Run(flags) => run::run(*flags).await.map(done),
        Command::Allocator(flags) => run::allocator(*flags).await.map(done),
        Command::Drain(flags) => drain::drain(&flags).await.map(done),
        Command::Gating(flags) => gating::gating(&flags).await.map(done),
        Command::Conformance(flags) => conformance::conformance(&flags).await,
        #[cfg(feature = "simulation")]
        Command::Demo(flags) => demo::demo(&flags).await.map(done),
        #[cfg(feature = "simulation")]
        Command::Simulate(flags) => simulate::simulate(&flags).await.map(done),
        Command::Account(flags) => account::account(&flags),
        Command::Allocate(flags) => allocate::run(&flags),
        Command::Rbac { part } => rbac::render(part).and_then(|text| print(&text)).map(done),
        Command::Crdgen => crdgen::render().and_then(|text| print(&text)).map(done),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            // Also where no log is set up yet, and for people who see only the last
            // line of a dead container.
            use std::io::Write as _;
            let line = format!("dragoman: {error:#}\n");
            if std::io::stderr().write_all(line.as_bytes()).is_err() {
                return ExitCode::from(2);
            }
            ExitCode::FAILURE
        }
    }
}

/// The exit code of an answer that is no, or that is not known: a claim without devices, a node that is overcommitted. An error
/// is 1, and a wrong flag 2.
pub(crate) const NO: u8 = 3;

/// Prints a text for people or programs. A reader that closes the pipe, as `head` does, has read what it
/// wanted.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("stdout"),
    }
}
