//! Logs and traces. Metrics are served by the admin server and never go this way.

#[cfg(feature = "traces")]
mod traces;
#[cfg(not(feature = "traces"))]
#[path = "telemetry/without_traces.rs"]
mod traces;

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::config::{Config, LogFormat};

/// Keeps the exporter alive.
pub(crate) struct Telemetry(Option<traces::Exported>);

impl Telemetry {
    /// Sends what is still in the buffer.
    pub(crate) async fn stop(self) {
        if let Some(exported) = self.0 {
            exported.stop().await;
        }
    }
}

/// Sets up the log and, where asked for, the export of traces. `instance` is this process.
///
/// # Errors
/// Names the setting that is wrong.
pub(crate) fn start(config: &Config, instance: &str) -> anyhow::Result<Telemetry> {
    let filter = EnvFilter::try_new(&config.log).context("log")?;
    let terminal = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(terminal);
    let lines = match config.log_format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Text => lines.boxed(),
    };
    let exported =
        config.tracing.as_ref().map(|tracing| traces::Exported::start(tracing, instance)).transpose()?;
    // The two are for different people: how much is logged does not decide what is
    // traced.
    let lines = lines.with_filter(filter);
    let traces = exported.as_ref().map(traces::Exported::layer);
    tracing_subscriber::registry().with(lines).with(traces).try_init().context("log")?;
    Ok(Telemetry(exported))
}
