//! Flags and settings of `dragoman allocator`.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};
use dragoman_allocator::{Alignment, Choice, Policy};
use dragoman_reconcilers::{allocation, protocol};
use serde::{Deserialize, Serialize};

use super::{ClusterFlags, Config, ProcessSettings, later_gates, over_file};

/// Flags of `dragoman allocator`.
#[derive(Debug, Args)]
pub(crate) struct AllocatorFlags {
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// YAML file with the same settings, in camelCase (`adminAddress`).
    #[arg(long)]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    settings: WithAllocation,
}

/// Further settings of the allocator.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AllocationSettings {
    /// Name of the allocator: it allocates the claims whose label dragoman.dev/allocator names it [default: dragoman].
    #[arg(long)]
    name: Option<Box<str>>,
    /// Order of nodes that a Pod prefers equally [default: pack].
    #[arg(long, value_enum)]
    order: Option<NodeOrder>,
    /// Which device a claim gets where several free ones of a node satisfy its request [default: best-fit].
    #[arg(long, value_enum)]
    choose: Option<DeviceChoice>,
    /// Whether a Pod gets devices, over all its claims, on one PCIe root or else on one NUMA node, where drivers publish these
    /// [default: preferred].
    #[arg(long, value_enum)]
    align: Option<DeviceAlignment>,
    /// Scheduling gates of other controllers that are opened after that of Dragoman, separated by commas; no devices are taken
    /// for a Pod while any other gate is closed.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    later_gates: Option<Vec<Box<str>>>,
}

/// The settings of the allocator.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WithAllocation {
    #[command(flatten)]
    #[serde(flatten)]
    process: ProcessSettings,
    #[command(flatten)]
    #[serde(flatten)]
    allocation: AllocationSettings,
}

/// The order of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodeOrder {
    /// Nodes with few free devices first.
    Pack,
    /// Nodes with many free devices first.
    Spread,
}

impl From<NodeOrder> for Policy {
    fn from(order: NodeOrder) -> Self {
        match order {
            NodeOrder::Pack => Self::Pack,
            NodeOrder::Spread => Self::Spread,
        }
    }
}

/// The choice among free devices that satisfy a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DeviceChoice {
    /// The first, as kube-scheduler does.
    FirstFit,
    /// The one whose allocation leaves most available: of partitions, shares and whole devices.
    BestFit,
}

impl From<DeviceChoice> for Choice {
    fn from(choice: DeviceChoice) -> Self {
        match choice {
            DeviceChoice::FirstFit => Self::FirstFit,
            DeviceChoice::BestFit => Self::BestFit,
        }
    }
}

/// The alignment of the devices of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DeviceAlignment {
    /// As the devices come.
    None,
    /// Aligned devices, if there are any for the same alternatives of the requests.
    Preferred,
}

impl From<DeviceAlignment> for Alignment {
    fn from(align: DeviceAlignment) -> Self {
        match align {
            DeviceAlignment::None => Self::None,
            DeviceAlignment::Preferred => Self::Preferred,
        }
    }
}

impl AllocatorFlags {
    /// Joins flags, file and defaults: the configuration of the process, and the options of its controller.
    ///
    /// # Errors
    /// Names the file or the setting that is wrong.
    pub(crate) fn resolve(self) -> anyhow::Result<(Config, allocation::Options)> {
        let WithAllocation { process, allocation } = over_file(self.settings, self.config.as_deref())?;
        let default = allocation::Options::default();
        let name = allocation.name.unwrap_or(default.name);
        if !protocol::is_allocator_name(&name) {
            bail!("--name {name:?}: {}", protocol::ALLOCATOR_NAME_RULE);
        }
        let options = allocation::Options {
            name,
            order: allocation.order.map_or(default.order, Into::into),
            choice: allocation.choose.map_or(default.choice, Into::into),
            align: allocation.align.map_or(default.align, Into::into),
            later_gates: later_gates(allocation.later_gates.unwrap_or_default())?,
        };
        Ok((process.resolve(self.cluster)?.checked()?, options))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::AskedMode;
    use super::super::tests::resolve as resolve_operator;
    use super::*;

    #[derive(Parser)]
    struct AllocatorProbe {
        #[command(flatten)]
        allocator: AllocatorFlags,
    }

    #[test]
    fn the_allocator_refuses_settings_of_the_operator() {
        let resolve = |arguments: &[&str]| -> anyhow::Result<Config> {
            Ok(AllocatorProbe::try_parse_from([&["allocator"], arguments].concat())?.allocator.resolve()?.0)
        };
        for flag in
            ["--mode=own", "--reclaim=true", "--controllers=*", "--let-go-after=5", "--ledger-nodes=all"]
        {
            let error = resolve(&[flag]).expect_err(flag);
            assert!(error.to_string().contains("unexpected argument"), "{error:#}");
        }
        let path = std::env::temp_dir().join(format!("dragoman-allocator-{}.yaml", std::process::id()));
        std::fs::write(&path, "workers: 7\nlog: debug\n").expect("write");
        let file = path.to_str().expect("path");
        let config = resolve(&["--config", file, "--log", "warn"]).expect("config");
        assert_eq!((config.workers, &*config.log, config.mode), (7, "warn", AskedMode::Observe));
        std::fs::write(&path, "mode: own\n").expect("write");
        let error = resolve(&["--config", file]).expect_err("of the operator");
        assert!(error.to_string().contains("mode is no setting of this command"), "{error:#}");
        std::fs::remove_file(&path).expect("remove");
    }

    #[test]
    fn the_file_of_the_allocator_has_every_setting_of_it() {
        let options = |arguments: &[&str]| {
            let probe = AllocatorProbe::try_parse_from([&["allocator"], arguments].concat()).expect("flags");
            probe.allocator.resolve().map(|(_, options)| options)
        };
        let path = std::env::temp_dir().join(format!("dragoman-allocation-{}.yaml", std::process::id()));
        let text = "name: gpus\norder: spread\nchoose: first-fit\nalign: none\nlaterGates: [a.example/b]\n";
        std::fs::write(&path, text).expect("write");
        let file = path.to_str().expect("path");
        let by_file = options(&["--config", file]).expect("options");
        let arguments = [
            "--name=gpus",
            "--order=spread",
            "--choose=first-fit",
            "--align=none",
            "--later-gates=a.example/b",
        ];
        assert_eq!(format!("{by_file:?}"), format!("{:?}", options(&arguments).expect("options")));
        assert_ne!(format!("{by_file:?}"), format!("{:?}", options(&[]).expect("options")));
        assert_eq!(*options(&["--config", file, "--name", "others"]).expect("options").name, *"others");
        std::fs::write(&path, "name: A b\n").expect("write");
        let error = options(&["--config", file]).expect_err("no name").to_string();
        assert!(error.contains("--name \"A b\""), "{error}");
        std::fs::remove_file(&path).expect("remove");
    }

    #[test]
    fn gates_of_others_that_come_later_are_known_to_both_processes() {
        let names = ["a.example/b", "held"].map(Box::from);
        let arguments = ["--later-gates", "a.example/b,held"];
        assert_eq!(resolve_operator(&arguments).expect("config").controllers.gates.later_gates, names);
        let probe = AllocatorProbe::try_parse_from([&["allocator"], &arguments[..]].concat()).expect("flags");
        assert_eq!(probe.allocator.resolve().expect("options").1.later_gates, names);
    }
}
