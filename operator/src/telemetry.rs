//! Logs and traces. Metrics are served by the admin server and never go this way.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use opentelemetry::trace::{Status, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, Sampler, SdkTracerProvider, Span, SpanData, SpanProcessor,
};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::config::{Config, LogFormat, Tracing};

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
    let tracing = config.tracing.as_ref();
    let provider = tracing.map(|tracing| provider(tracing, instance)).transpose()?;
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

fn provider(tracing: &Tracing, instance: &str) -> anyhow::Result<SdkTracerProvider> {
    let exporter = exporter(&tracing.endpoint, tracing.ca.as_deref())?;
    let resource = Resource::builder()
        .with_service_name("dragoman")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("service.instance.id", instance.to_owned()))
        .build();
    let processor = WithoutIdle(BatchSpanProcessor::builder(exporter).build());
    let builder = SdkTracerProvider::builder().with_span_processor(processor).with_resource(resource);
    Ok(match tracing.sampling {
        Some(share) => builder.with_sampler(sampler(share)).build(),
        // The environment variables of OpenTelemetry, or everything.
        None => builder.build(),
    })
}

/// Traces a share of the reconciliations, with all requests of each.
fn sampler(share: f64) -> Sampler {
    Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(share)))
}

/// The exporter for an endpoint. One with `https` is verified by the certificates of the machine, and
/// by those of `ca`: the image has none of its own.
///
/// # Errors
/// The endpoint is no URL, or the file is of no use.
fn exporter(endpoint: &str, ca: Option<&Path>) -> anyhow::Result<SpanExporter> {
    let mut exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
    if endpoint.starts_with("https://") {
        let mut tls = ClientTlsConfig::new().with_enabled_roots();
        if let Some(ca) = ca {
            let pem = std::fs::read(ca).with_context(|| format!("otlp-ca {}", ca.display()))?;
            tls = tls.ca_certificate(Certificate::from_pem(pem));
        }
        exporter = exporter.with_tls_config(tls);
    }
    exporter.build().context("otlp-endpoint")
}

/// Leaves out reconciliations that sent no request and did not fail: each look of the level timer at
/// an object at rest would otherwise be a span, and crowd the others out of the buffer.
#[derive(Debug)]
struct WithoutIdle<P>(P);

fn is_idle(span: &SpanData) -> bool {
    let sent = span.attributes.iter().any(|attribute| attribute.key.as_str() == "requests");
    span.name == "reconcile" && !sent && !matches!(span.status, Status::Error { .. })
}

impl<P: SpanProcessor> SpanProcessor for WithoutIdle<P> {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.0.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if !is_idle(&span) {
            self.0.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

#[cfg(test)]
mod tests;
