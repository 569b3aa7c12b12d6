//! Logs and traces. Metrics are served by the admin server and never go this way.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::config::{Config, LogFormat};

/// Keeps the exporter alive; flushes when dropped.
pub(crate) struct Telemetry(Option<SdkTracerProvider>);

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(provider) = &self.0
            && let Err(error) = provider.shutdown()
        {
            tracing::debug!(%error, "traces not flushed");
        }
    }
}

/// Sets up the log and, where asked for, the export of traces.
///
/// # Errors
/// Names the setting that is wrong.
pub(crate) fn start(config: &Config) -> anyhow::Result<Telemetry> {
    let filter = EnvFilter::try_new(&config.log).context("log")?;
    let terminal = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(terminal);
    let lines = match config.log_format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Text => lines.boxed(),
    };
    let provider = config.otlp_endpoint.as_deref().map(exporter).transpose()?;
    let traces = provider.as_ref().map(|p| tracing_opentelemetry::layer().with_tracer(p.tracer("dragoman")));
    tracing_subscriber::registry().with(filter).with(lines).with(traces).try_init().context("log")?;
    Ok(Telemetry(provider))
}

fn exporter(endpoint: &str) -> anyhow::Result<SdkTracerProvider> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .context("otlp-endpoint")?;
    let resource = Resource::builder().with_service_name("dragoman").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}
