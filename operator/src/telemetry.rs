//! Logs and traces. Metrics are served by the admin server and never go this way.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::config::{Config, LogFormat};

/// Keeps the exporter alive.
pub(crate) struct Telemetry(Option<SdkTracerProvider>);

impl Telemetry {
    /// Sends what is still in the buffer.
    pub(crate) async fn stop(self) {
        let Some(provider) = self.0 else { return };
        // It blocks until the exporter is done, and the exporter's connection lives
        // on our one thread.
        let flushed = tokio::task::spawn_blocking(move || provider.shutdown()).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::warn!(?flushed, "the last traces were not sent");
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
    // The two are for different people: how much is logged does not decide what is
    // traced.
    let lines = lines.with_filter(filter);
    let ours =
        |metadata: &tracing::Metadata<'_>| metadata.is_span() && metadata.target().starts_with("dragoman");
    let traces = traces.map(|layer| layer.with_filter(filter_fn(ours)));
    tracing_subscriber::registry().with(lines).with(traces).try_init().context("log")?;
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
