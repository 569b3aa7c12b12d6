//! Flags, and a file with the same names. A flag wins over the file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use dragoman_machinery::mode::Mode;
use dragoman_reconcilers::claim_lifecycle;
use serde::Deserialize;

use crate::controllers::Options;

/// Where the cluster is.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ClusterFlags {
    /// Kubeconfig; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}

/// What Dragoman is asked to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AskedMode {
    /// `assist`, or `observe` where rights are missing.
    Auto,
    /// Only its own objects and Events.
    Observe,
    /// Nothing that the built-in claim controller handles.
    Assist,
    /// Also the whole claim lifecycle; the built-in controller must be off.
    Own,
}

impl AskedMode {
    /// The mode, unless it is to be found out.
    pub(crate) fn settled(self) -> Option<Mode> {
        match self {
            Self::Auto => None,
            Self::Observe => Some(Mode::Observe),
            Self::Assist => Some(Mode::Assist),
            Self::Own => Some(Mode::Own),
        }
    }
}

/// Format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// A JSON object per line.
    Json,
    /// For people.
    Text,
}

/// Flags of `dragoman run`.
#[derive(Debug, Args)]
pub(crate) struct RunFlags {
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// YAML file with the same settings, in camelCase (`adminAddress`).
    #[arg(long)]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Everything that can be set, in a flag or in the file.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// What to write [default: auto].
    #[arg(long, value_enum)]
    mode: Option<AskedMode>,
    /// Where /livez, /readyz and /metrics are served [default: 0.0.0.0:8081].
    #[arg(long)]
    admin_address: Option<SocketAddr>,
    /// Where the indexes can be dumped; loopback only, off by default.
    #[arg(long)]
    dump_address: Option<SocketAddr>,
    /// Keys in work at once [default: 50].
    #[arg(long)]
    workers: Option<usize>,
    /// Requests in flight at once [default: 64].
    #[arg(long)]
    concurrency: Option<usize>,
    /// Namespace of the Lease and of ourselves [default: that of the Pod or context].
    #[arg(long)]
    namespace: Option<String>,
    /// Run without a Lease; for one process on a test bench only.
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    without_lease: Option<bool>,
    /// Create claims with the delete-protection finalizer: one API write less per
    /// Pod, but a namespace of unscheduled Pods cannot be deleted while we are down.
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    born_protected: Option<bool>,
    /// Format of the log [default: json].
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
    /// What is logged, in the syntax of tracing's `EnvFilter` [default: info].
    #[arg(long)]
    log: Option<String>,
    /// OTLP gRPC endpoint for traces; off by default.
    #[arg(long)]
    otlp_endpoint: Option<String>,
}

/// The settings that hold.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub kubeconfig: Option<PathBuf>,
    pub mode: AskedMode,
    pub admin_address: SocketAddr,
    pub dump_address: Option<SocketAddr>,
    pub workers: usize,
    pub concurrency: usize,
    pub namespace: Option<String>,
    pub without_lease: bool,
    pub controllers: Options,
    pub log_format: LogFormat,
    pub log: String,
    pub otlp_endpoint: Option<String>,
}

fn from_file(path: &Path) -> anyhow::Result<Settings> {
    let text = std::fs::read_to_string(path).with_context(|| format!("config {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("config {}", path.display()))
}

impl RunFlags {
    /// Joins flags, file and defaults.
    ///
    /// # Errors
    /// Names the file or the setting that is wrong.
    pub(crate) fn resolve(self) -> anyhow::Result<Config> {
        let file = self.config.as_deref().map(from_file).transpose()?.unwrap_or_default();
        let flags = self.settings;
        let config = Config {
            kubeconfig: self.cluster.kubeconfig,
            mode: flags.mode.or(file.mode).unwrap_or(AskedMode::Auto),
            admin_address: flags
                .admin_address
                .or(file.admin_address)
                .unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 8081))),
            dump_address: flags.dump_address.or(file.dump_address),
            workers: flags.workers.or(file.workers).unwrap_or(50),
            concurrency: flags.concurrency.or(file.concurrency).unwrap_or(64),
            namespace: flags.namespace.or(file.namespace),
            without_lease: flags.without_lease.or(file.without_lease).unwrap_or(false),
            controllers: Options {
                claim_lifecycle: claim_lifecycle::Options {
                    born_protected: flags.born_protected.or(file.born_protected).unwrap_or(false),
                },
            },
            log_format: flags.log_format.or(file.log_format).unwrap_or(LogFormat::Json),
            log: flags.log.or(file.log).unwrap_or_else(|| "info".to_owned()),
            otlp_endpoint: flags.otlp_endpoint.or(file.otlp_endpoint),
        };
        if !(1..=1024).contains(&config.workers) {
            bail!("workers: {} is not between 1 and 1024", config.workers);
        }
        if !(1..=1024).contains(&config.concurrency) {
            bail!("concurrency: {} is not between 1 and 1024", config.concurrency);
        }
        if let Some(address) = config.dump_address.filter(|a| !a.ip().is_loopback()) {
            bail!("dump-address: {address} is not a loopback address");
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        run: RunFlags,
    }

    fn resolve(arguments: &[&str]) -> anyhow::Result<Config> {
        Probe::try_parse_from([&["run"], arguments].concat())?.run.resolve()
    }

    #[test]
    fn a_bad_value_is_refused_with_its_name() {
        for (arguments, name) in [
            (&["--mode", "all"][..], "--mode"),
            (&["--workers", "0"], "workers"),
            (&["--concurrency", "100000"], "concurrency"),
            (&["--admin-address", "nowhere"], "--admin-address"),
            (&["--dump-address", "10.0.0.1:1"], "dump-address"),
            (&["--config", "/does/not/exist"], "/does/not/exist"),
        ] {
            let error = resolve(arguments).expect_err(name);
            assert!(format!("{error:#}").contains(name), "{error:#}");
        }
    }

    #[test]
    fn a_flag_wins_over_the_file_and_unknown_settings_are_refused() {
        let path = std::env::temp_dir().join(format!("dragoman-config-{}.yaml", std::process::id()));
        std::fs::write(&path, "mode: own\nworkers: 3\n").expect("write");
        let file = path.to_str().expect("path");
        let config = resolve(&["--config", file, "--workers", "5"]).expect("config");
        assert_eq!((config.mode, config.workers), (AskedMode::Own, 5));
        std::fs::write(&path, "wrokers: 3\n").expect("write");
        let error = resolve(&["--config", file]).expect_err("unknown");
        assert!(format!("{error:#}").contains("wrokers"), "{error:#}");
        std::fs::remove_file(&path).expect("remove");
    }
}
