//! In place of the export of traces, where this program was built without it.

use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Identity;

use crate::config::Tracing;

/// There is none.
pub(super) enum Exported {}

impl Exported {
    /// Refuses.
    ///
    /// # Errors
    /// Always: an endpoint that gets nothing would look like a system at rest.
    pub(super) fn start(_: &Tracing, _: &str) -> anyhow::Result<Self> {
        anyhow::bail!("otlp-endpoint: this program was built without the feature `traces`")
    }

    /// Nothing.
    pub(super) fn layer<S: Subscriber>(&self) -> impl Layer<S> + use<S> {
        Identity::new()
    }

    /// Never called.
    pub(super) async fn stop(self) {}
}
