use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::trace::{SpanKind, Tracer as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tracing::field::Empty;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

/// Keeps what would be exported.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl Kept {
    fn spans(&self) -> Vec<SpanData> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl SpanProcessor for Kept {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Records the spans that `work` makes, with those of reconciliations without a request left out.
fn exported(sampler: Sampler, work: impl FnOnce()) -> Vec<SpanData> {
    let kept = Kept::default();
    let processor = WithoutIdle(kept.clone());
    let provider = SdkTracerProvider::builder().with_sampler(sampler).with_span_processor(processor).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
    kept.spans()
}

/// A reconciliation, as the workers of the kit make its span.
fn reconcile() -> tracing::Span {
    tracing::debug_span!(
        "reconcile",
        requests = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty
    )
}

#[test]
fn a_look_without_a_request_is_not_exported() {
    let spans = exported(Sampler::AlwaysOn, || {
        drop(reconcile());
        let _working = reconcile().entered();
        tracing::Span::current().record("requests", true);
        drop(tracing::debug_span!("request", otel.name = "get pods", otel.kind = "client").entered());
    });
    let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["get pods", "reconcile"]);
    assert_eq!(spans[0].span_kind, SpanKind::Client);
    assert_eq!(spans[0].parent_span_id, spans[1].span_context.span_id());
}

#[test]
fn a_failure_is_exported_with_its_text() {
    let spans = exported(Sampler::AlwaysOn, || {
        dragoman_machinery::trace::failed(&reconcile(), "the claim is deleted");
    });
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0].status, Status::error("the claim is deleted"));
}

#[test]
fn a_share_of_the_reconciliations_is_sampled_with_their_requests() {
    let both = |share| {
        exported(sampler(share), || {
            for _ in 0..1000 {
                let _working = reconcile().entered();
                tracing::Span::current().record("requests", true);
                drop(tracing::debug_span!("request").entered());
            }
        })
        .len()
    };
    assert_eq!((both(0.0), both(1.0)), (0, 2000));
    let half = both(0.5);
    assert!(half % 2 == 0 && (600..1400).contains(&half), "{half}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_https_endpoint_is_spoken_to_in_tls_when_its_ca_is_named() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("identity");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("listener");
    let port = listener.local_addr().expect("address").port();
    let handshake = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("connection");
        let stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.expect("handshake");
        stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec)
    });
    let ca = std::env::temp_dir().join(format!("dragoman-otlp-ca-{}.pem", std::process::id()));
    std::fs::write(&ca, made.cert.pem()).expect("write");
    let tracing =
        Tracing { endpoint: format!("https://localhost:{port}"), ca: Some(ca.clone()), sampling: None };
    let provider = provider(&tracing, "instance").expect("exporter");
    provider.tracer("test").start("span");
    let flushing = tokio::task::spawn_blocking(move || provider.force_flush());
    let protocol = tokio::time::timeout(Duration::from_secs(20), handshake).await;
    assert_eq!(protocol.expect("in time").expect("server"), Some(b"h2".to_vec()));
    // The server says nothing more.
    drop(flushing.await);
    std::fs::remove_file(&ca).expect("remove");
}
