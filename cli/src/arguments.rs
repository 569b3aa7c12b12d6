//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::print::Output;

/// Why a Pod waits, and what holds a device.
///
/// Exit code 0: nothing stands in the way. 1: there is no answer, or no such object. 2: a wrong flag. 3: something stands in the way, or there
/// is something to do.
#[derive(Debug, Parser)]
#[command(name = "kubectl dra", bin_name = "kubectl dra", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Where to look, and how to print.
#[derive(Debug, Args)]
#[command(next_help_heading = "For every command")]
pub(crate) struct Place {
    /// Namespace of the object [default: that of the context].
    #[arg(short, long, global = true)]
    pub(crate) namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, global = true)]
    pub(crate) all_namespaces: bool,
    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    pub(crate) context: Option<String>,
    /// Path of the kubeconfig.
    #[arg(long, global = true)]
    pub(crate) kubeconfig: Option<String>,
    /// Format of the output [default: a table for people].
    #[arg(short, long, global = true, value_enum)]
    pub(crate) output: Option<Output>,
    /// Read these files in place of a cluster: objects in JSON or YAML, as `kubectl get` prints them; `-` is standard input.
    #[arg(short = 'f', long = "filename", global = true)]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say why, in one sentence, and show the chain of objects.
    ///
    /// TYPE is `pod`, `claim`, `device`, `node` or `template`, or a name that kubectl has for it. A device is DRIVER/POOL/DEVICE,
    /// POOL/DEVICE or its name.
    #[command(override_usage = "kubectl dra explain TYPE/NAME\n       kubectl dra explain TYPE NAME")]
    Explain {
        /// The object: `pod/trainer`, or `pod trainer`.
        #[arg(required = true, num_args = 1..=2, value_name = "TYPE/NAME")]
        object: Vec<String>,
    },
    /// Say why Pods wait, grouped by cause, the Pod that waits longest first.
    Why,
    /// Say whether the cluster is ready for DRA and for each mode of Dragoman, and what to do where it is not.
    Check,
    /// Print the cluster as one page of HTML: nodes, devices, claims, and the Pods that wait with the reason.
    Report,
    /// List claims: their state, devices and consumers.
    Claims,
    /// List devices: where they are, and what holds them.
    Devices,
    /// List pools: how many devices they have, and how many are free.
    Pools {
        /// Count allocated devices by DeviceClass instead.
        #[arg(long)]
        by_class: bool,
    },
    /// List what Pods and claims take from nodes, and where Pods that wait would fit.
    Ledger {
        /// Only these nodes.
        nodes: Vec<String>,
        /// Only nodes that have promised more than they have.
        #[arg(long)]
        overcommitted: bool,
        /// Also say where this Pod of the namespace, which waits for a node, would fit.
        #[arg(long, value_name = "NAME")]
        pod: Vec<String>,
        /// Use the accounting rules of Kubernetes where they differ from those of Dragoman.
        #[arg(long)]
        in_tree: bool,
    },
    /// Say what a drain of a node would end.
    Drain {
        /// The node.
        node: String,
        /// Without effect: this program drains nothing.
        #[arg(long, hide = true)]
        check: bool,
    },
    /// List claims that hold devices for nothing, each with the evidence.
    Reclaim {
        /// Without effect: this program releases nothing.
        #[arg(long, hide = true)]
        dry_run: bool,
        /// A claim without a consumer counts from this age on, in seconds.
        #[arg(long, default_value_t = 3600)]
        idle_for: i64,
    },
    /// List Events about claims.
    Events,
    /// Show pools and waiting Pods, again and again.
    Top {
        /// Seconds between two looks.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
        interval: u64,
        /// Look once.
        #[arg(long)]
        once: bool,
    },
    /// Print a script that completes `kubectl-dra`, or install the program with which kubectl completes `kubectl dra`.
    Completion {
        /// The shell, or `install` for every shell in which kubectl completes.
        #[arg(value_enum)]
        shell: Completion,
    },
    /// Print the JSON Schema of what `-o json` prints.
    Schema,
}

/// Shells, and the way by which kubectl itself completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Completion {
    /// A script for bash.
    Bash,
    /// A script for zsh.
    Zsh,
    /// A script for fish.
    Fish,
    /// A script for PowerShell.
    Powershell,
    /// A link named `kubectl_complete-dra` beside this program, which kubectl runs.
    Install,
}

/// Type of an object that can be explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Explained {
    Pod,
    Claim,
    Device,
    Node,
    Template,
}

/// The types, and the names by which kubectl and people call them, without an API group.
pub(crate) const TYPES: [(Explained, &[&str]); 5] = [
    (Explained::Pod, &["pod", "pods", "po"]),
    (Explained::Claim, &["claim", "claims", "resourceclaim", "resourceclaims"]),
    (Explained::Device, &["device", "devices"]),
    (Explained::Node, &["node", "nodes", "no"]),
    (Explained::Template, &["template", "templates", "resourceclaimtemplate", "resourceclaimtemplates"]),
];

impl Explained {
    /// Reads `TYPE/NAME`, or `TYPE` and `NAME`.
    ///
    /// # Errors
    /// The type is none of these, or there is no name.
    pub(crate) fn parse(object: &[String]) -> Result<(Self, String), String> {
        let (kind, name) = match object {
            [only] => only.split_once('/').unwrap_or((only, "")),
            [kind, name] => (kind.as_str(), name.as_str()),
            _ => ("", ""),
        };
        let lower = kind.to_lowercase();
        let plain = lower.strip_suffix(".resource.k8s.io").unwrap_or(&lower);
        let found = TYPES.into_iter().find(|(_, names)| names.contains(&plain));
        let Some((found, names)) = found else {
            let known: Vec<&str> = TYPES.iter().filter_map(|(_, names)| names.first().copied()).collect();
            return Err(format!("{kind:?} is no type that can be explained: {}", known.join(", ")));
        };
        let known = names.first().copied().unwrap_or_default();
        if name.is_empty() {
            return Err(format!("which {known}? Write `kubectl dra explain {known}/NAME`"));
        }
        Ok((found, name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_as_kubectl_names_it() {
        let parse = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Explained::parse(&words)
        };
        let is = |kind, name: &str| Ok((kind, name.to_owned()));
        assert_eq!(parse(&["pod/a"]), is(Explained::Pod, "a"));
        assert_eq!(parse(&["Pods", "a"]), is(Explained::Pod, "a"));
        assert_eq!(parse(&["resourceclaims.resource.k8s.io/c"]), is(Explained::Claim, "c"));
        assert_eq!(parse(&["device/d.example/p/x"]), is(Explained::Device, "d.example/p/x"));
        assert_eq!(parse(&["devices", "p/x"]), is(Explained::Device, "p/x"));
        assert_eq!(parse(&["resourceclaimtemplate/t"]), is(Explained::Template, "t"));
        for wrong in [&["pod"][..], &["pod/"], &["pod", ""]] {
            assert_eq!(parse(wrong), Err("which pod? Write `kubectl dra explain pod/NAME`".to_owned()));
        }
        assert_eq!(
            parse(&["deployment/x"]),
            Err("\"deployment\" is no type that can be explained: pod, claim, device, node, template"
                .to_owned())
        );
    }
}
