//! Flags, and a file with the same names. A flag, or the variable of its name, wins over the file.

mod allocation;

pub(crate) use self::allocation::AllocatorFlags;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, bail};
use clap::{Args, ValueEnum};
use dragoman_machinery::mode::Mode;
use dragoman_reconcilers::table;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where the cluster is.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ClusterFlags {
    /// Kubeconfig; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}

/// Mode that Dragoman is asked to run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
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

/// Settings of every process that runs in a cluster, in a flag, a variable or the file.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ProcessSettings {
    /// Where /livez, /readyz and /metrics are served [default: 0.0.0.0:8081].
    #[arg(long)]
    admin_address: Option<SocketAddr>,
    /// Certificate of the admin port in PEM; with it the port speaks TLS, and /metrics is for those who
    /// may `get` the URL /metrics (needs the ClusterRole system:auth-delegator).
    #[arg(long)]
    admin_tls_cert: Option<PathBuf>,
    /// Key of that certificate in PEM.
    #[arg(long)]
    admin_tls_key: Option<PathBuf>,
    /// Where the indexes can be dumped; loopback only, off by default.
    #[arg(long)]
    dump_address: Option<SocketAddr>,
    /// Concurrent reconciliations of each controller; one namespace has at most half of them [default: 128].
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
    /// Format of the log [default: json].
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
    /// Filter of the log, in the syntax of tracing's `EnvFilter` [default: info].
    #[arg(long)]
    log: Option<String>,
    /// OTLP gRPC endpoint for traces, http or https; off by default.
    #[arg(long)]
    otlp_endpoint: Option<String>,
    /// Certificates in PEM by which an https endpoint is verified, besides those of the machine.
    #[arg(long)]
    otlp_ca: Option<PathBuf>,
    /// Share of the reconciliations that are traced, from 0 to 1 [default: the environment variables
    /// of OpenTelemetry, or all].
    #[arg(long)]
    trace_sampling: Option<f64>,
}

/// Further settings of the operator.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OperatorSettings {
    /// Mode, which decides what is written [default: auto].
    #[arg(long, value_enum)]
    mode: Option<AskedMode>,
    /// Controllers that run, separated by commas: * for all but gates and holders, NAME for one, -NAME for one that is
    /// off [default: *].
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    controllers: Option<Vec<String>>,
    #[command(flatten)]
    #[serde(flatten)]
    table: table::Settings,
}

/// The settings of the operator.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    #[command(flatten)]
    #[serde(flatten)]
    process: ProcessSettings,
    #[command(flatten)]
    #[serde(flatten)]
    operator: OperatorSettings,
}

/// Where traces go.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "traces"), expect(dead_code, reason = "nothing is exported without the feature"))]
pub(crate) struct Tracing {
    pub endpoint: String,
    /// Certificates in PEM, besides those of the machine.
    pub ca: Option<PathBuf>,
    /// Share of the reconciliations, if it is not left to the environment.
    pub sampling: Option<f64>,
}

/// The files that make the admin port speak TLS, in PEM.
#[derive(Debug, Clone)]
pub(crate) struct AdminTls {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The settings that hold.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub kubeconfig: Option<PathBuf>,
    pub mode: AskedMode,
    pub admin_address: SocketAddr,
    pub admin_tls: Option<AdminTls>,
    pub dump_address: Option<SocketAddr>,
    pub workers: usize,
    pub concurrency: usize,
    pub namespace: Option<String>,
    pub without_lease: bool,
    pub chosen: Vec<String>,
    /// The settings of controllers that are set, by the names of their flags.
    pub given: BTreeSet<String>,
    pub controllers: table::Options,
    pub log_format: LogFormat,
    pub log: String,
    pub tracing: Option<Tracing>,
}

/// Lays settings over those of a file.
///
/// # Errors
/// Names the file, and the setting that it may not have or that does not decode.
fn over_file<T>(flags: T, path: Option<&Path>) -> anyhow::Result<T>
where
    T: Default + Serialize + DeserializeOwned,
{
    let Some(path) = path else { return Ok(flags) };
    let in_file = || format!("config {}", path.display());
    let text = std::fs::read_to_string(path).with_context(in_file)?;
    let file: Map<String, Value> = serde_saphyr::from_str(&text).with_context(in_file)?;
    let known = serde_json::to_value(T::default()).with_context(in_file)?;
    for (name, value) in &file {
        if known.get(name).is_none() {
            bail!("{}: {name} is no setting of this command", in_file());
        }
        // Alone, so that the error is about this one.
        let alone = Value::from(Map::from_iter([(name.clone(), value.clone())]));
        serde_json::from_value::<T>(alone).with_context(|| format!("{}: {name}", in_file()))?;
    }
    let mut all = file;
    if let Value::Object(flags) = serde_json::to_value(flags).with_context(in_file)? {
        all.extend(flags.into_iter().filter(|(_, value)| !value.is_null()));
    }
    serde_json::from_value(all.into()).with_context(in_file)
}

/// # Errors
/// One of the two files is missing.
fn admin_tls(certificate: Option<PathBuf>, key: Option<PathBuf>) -> anyhow::Result<Option<AdminTls>> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(AdminTls { certificate, key })),
        (None, None) => Ok(None),
        (Some(_), None) => bail!("admin-tls-key: is needed with admin-tls-cert"),
        (None, Some(_)) => bail!("admin-tls-cert: is needed with admin-tls-key"),
    }
}

impl RunFlags {
    /// Joins flags, file and defaults.
    ///
    /// # Errors
    /// Names the file or the setting that is wrong.
    pub(crate) fn resolve(self) -> anyhow::Result<Config> {
        let Settings { process, operator } = over_file(self.settings, self.config.as_deref())?;
        let config = Config {
            mode: operator.mode.unwrap_or(AskedMode::Auto),
            chosen: operator.controllers.unwrap_or_else(all),
            given: operator.table.given(),
            controllers: operator.table.options().map_err(Error::msg)?,
            ..process.resolve(self.cluster)?
        };
        config.checked()
    }
}

fn all() -> Vec<String> {
    vec!["*".to_owned()]
}

impl ProcessSettings {
    /// The configuration of a process that has no other settings. Its controllers work in every mode, and declare their rights
    /// for the first.
    ///
    /// # Errors
    /// Names the setting that is missing.
    fn resolve(self, cluster: ClusterFlags) -> anyhow::Result<Config> {
        Ok(Config {
            kubeconfig: cluster.kubeconfig,
            mode: AskedMode::Observe,
            admin_address: self.admin_address.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 8081))),
            admin_tls: admin_tls(self.admin_tls_cert, self.admin_tls_key)?,
            dump_address: self.dump_address,
            workers: self.workers.unwrap_or(128),
            concurrency: self.concurrency.unwrap_or(64),
            namespace: self.namespace,
            without_lease: self.without_lease.unwrap_or(false),
            chosen: all(),
            given: BTreeSet::new(),
            controllers: table::Options::default(),
            log_format: self.log_format.unwrap_or(LogFormat::Json),
            log: self.log.unwrap_or_else(|| "info".to_owned()),
            tracing: self.otlp_endpoint.map(|endpoint| Tracing {
                endpoint,
                ca: self.otlp_ca,
                sampling: self.trace_sampling,
            }),
        })
    }
}

impl Config {
    /// # Errors
    /// Names the setting that is wrong.
    fn checked(self) -> anyhow::Result<Self> {
        let config = self;
        if !(1..=1024).contains(&config.workers) {
            bail!("workers: {} is not between 1 and 1024", config.workers);
        }
        if !(1..=1024).contains(&config.concurrency) {
            bail!("concurrency: {} is not between 1 and 1024", config.concurrency);
        }
        let sampling = config.tracing.as_ref().and_then(|tracing| tracing.sampling);
        if let Some(share) = sampling.filter(|share| !(0.0..=1.0).contains(share)) {
            bail!("trace-sampling: {share} is not between 0 and 1");
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

    #[test]
    fn attributes_of_devices_are_labels_of_a_metric_that_is_served() {
        let labels = |arguments: &[&str]| resolve(arguments).expect("config").controllers.ledger.pod_devices;
        assert_eq!((labels(&[]), labels(&["--pod-device-info"])), (None, Some(vec![])));
        let both = labels(&["--pod-device-info", "--pod-device-attributes=uuid,index"]);
        assert_eq!(both.map(|labels| labels.len()), Some(2));
        for (wrong, words) in [
            (&["--pod-device-attributes=uuid"][..], "--pod-device-attributes: needs --pod-device-info"),
            (&["--pod-device-info", "--pod-device-attributes=a b"], "no name of an attribute"),
        ] {
            let why = resolve(wrong).expect_err(words).to_string();
            assert!(why.contains(words), "{why}");
        }
    }

    pub(super) fn resolve(arguments: &[&str]) -> anyhow::Result<Config> {
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
            (&["--admin-tls-cert", "tls.crt"], "admin-tls-key"),
            (&["--otlp-endpoint", "http://a", "--trace-sampling", "2"], "trace-sampling"),
            (&["--idle-after", "1"], "idle-after"),
            (&["--later-gates", "a.example/b,dragoman.dev/claims"], "later-gates"),
            (&["--later-gates", "no name"], "later-gates"),
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
        std::fs::write(&path, "adminTlsCert: tls.crt\n").expect("write");
        let error = resolve(&["--config", file]).expect_err("half of a pair");
        assert!(format!("{error:#}").contains("admin-tls-key"), "{error:#}");
        std::fs::write(&path, "wrokers: 3\n").expect("write");
        let error = resolve(&["--config", file]).expect_err("unknown");
        assert!(format!("{error:#}").contains("wrokers"), "{error:#}");
        std::fs::write(&path, "idleAfter: soon\n").expect("write");
        let error = resolve(&["--config", file]).expect_err("no number");
        assert!(format!("{error:#}").contains("idleAfter: invalid type"), "{error:#}");
        std::fs::write(&path, "").expect("write");
        assert_eq!(resolve(&["--config", file]).expect("an empty file").workers, 128);
        std::fs::remove_file(&path).expect("remove");
    }
}
