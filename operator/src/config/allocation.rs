//! Flags and settings of `dragoman allocator`.

use std::path::PathBuf;

use anyhow::Error;
use clap::Args;
use dragoman_reconcilers::allocation;
use serde::{Deserialize, Serialize};

use super::{ClusterFlags, Config, ProcessSettings, over_file};

/// Flags of `dragoman allocator`.
#[derive(Debug, Args)]
pub(crate) struct AllocatorFlags {
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// YAML file with the same settings, in camelCase (`adminAddress`).
    #[arg(long)]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    settings: AllocatorSettings,
}

/// The settings of the allocator.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AllocatorSettings {
    #[command(flatten)]
    #[serde(flatten)]
    process: ProcessSettings,
    #[command(flatten)]
    #[serde(flatten)]
    allocation: allocation::Settings,
}

impl AllocatorFlags {
    /// Joins flags, file and defaults: the configuration of the process, and the options of its controller.
    ///
    /// # Errors
    /// Names the file or the setting that is wrong.
    pub(crate) fn resolve(self) -> anyhow::Result<(Config, allocation::Options)> {
        let AllocatorSettings { process, allocation } = over_file(self.settings, self.config.as_deref())?;
        let options = allocation.options().map_err(Error::msg)?;
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
