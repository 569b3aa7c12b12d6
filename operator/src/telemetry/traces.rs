//! The export of traces by OTLP.

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
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use crate::config::Tracing;

/// The exporter, which sends spans in portions.
pub(super) struct Exported(SdkTracerProvider);

impl Exported {
    /// Starts it. `instance` is this process.
    ///
    /// # Errors
    /// The endpoint is no URL, or the file of --otlp-ca is of no use.
    pub(super) fn start(tracing: &Tracing, instance: &str) -> anyhow::Result<Self> {
        provider(tracing, instance).map(Self)
    }

    /// Returns the layer that hands the spans of this program to the exporter.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let ours = |metadata: &tracing::Metadata<'_>| {
            metadata.is_span() && metadata.target().starts_with("dragoman")
        };
        tracing_opentelemetry::layer().with_tracer(self.0.tracer("dragoman")).with_filter(filter_fn(ours))
    }

    /// Sends what is still in the buffer.
    pub(super) async fn stop(self) {
        // It blocks until the exporter is done, and the exporter's connection lives
        // on our one thread.
        let flushed = tokio::task::spawn_blocking(move || self.0.shutdown()).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::warn!(?flushed, "the last traces were not sent");
        }
    }
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
