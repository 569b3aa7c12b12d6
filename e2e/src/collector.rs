//! A collector of traces: OTLP over gRPC on loopback, like the collector of a cluster.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// A running collector.
pub(crate) struct Collector {
    port: u16,
    spans: Spans,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<(String, Span)>>>);

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Collector {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.context("collector")?;
        let port = listener.local_addr().context("collector")?.port();
        let spans = Spans::default();
        let server = tonic::transport::Server::builder().add_service(TraceServiceServer::new(spans.clone()));
        let task = tokio::spawn(async move {
            // The server ends with the test. A server that fails shows as missing spans.
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.ok();
        });
        Ok(Self { port, spans, task })
    }

    /// The endpoint for traces.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Every span so far, with the service it came from.
    pub(crate) fn spans(&self) -> Vec<(String, Span)> {
        self.spans.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The text of an attribute of a span.
pub(crate) fn attribute(span: &Span, name: &str) -> Option<String> {
    text(&span.attributes, name)
}

fn text(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue], name: &str) -> Option<String> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let value = attributes.iter().find(|a| a.key == name)?.value.as_ref()?.value.as_ref()?;
    match value {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

#[tonic::async_trait]
impl TraceService for Spans {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for resource in request.into_inner().resource_spans {
            let attributes = resource.resource.map(|r| r.attributes).unwrap_or_default();
            let service = text(&attributes, "service.name").unwrap_or_default();
            let scoped = resource.scope_spans.into_iter().flat_map(|s| s.spans);
            spans.extend(scoped.map(|span| (service.clone(), span)));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
