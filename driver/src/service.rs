//! The gRPC services that kubelet calls, around the pure part.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use futures::{Stream, StreamExt as _};
use tokio::sync::watch;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::claim::ClaimReference;
use crate::prepare::{Claims, Preparer};
use crate::{Driver, health, wire};

/// The calls of kubelet under one name of a service: `PLUGIN`, `HEALTH` or `HEALTH_ALPHA`.
pub(crate) struct Service<D, C, const NAME: u8>(pub(crate) Arc<Preparer<D, C>>);

/// Prepare and unprepare.
pub(crate) const PLUGIN: u8 = 0;
/// Health.
pub(crate) const HEALTH: u8 = 1;
/// Health, as older kubelets ask for it.
pub(crate) const HEALTH_ALPHA: u8 = 2;

impl<D, C> NamedService for Service<D, C, PLUGIN> {
    const NAME: &'static str = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin";
}

impl<D, C> NamedService for Service<D, C, HEALTH> {
    const NAME: &'static str = "v1.DRAResourceHealth";
}

impl<D, C> NamedService for Service<D, C, HEALTH_ALPHA> {
    const NAME: &'static str = "v1alpha1.DRAResourceHealth";
}

impl<D, C, const NAME: u8> Clone for Service<D, C, NAME> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Driver, C: Claims, const NAME: u8> tower::Service<http::Request<Body>> for Service<D, C, NAME> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let preparer = Arc::clone(&self.0);
        Box::pin(async move {
            Ok(match request.uri().path() {
                wire::PREPARE => Grpc::new(ProstCodec::default()).unary(Prepare(preparer), request).await,
                wire::UNPREPARE => Grpc::new(ProstCodec::default()).unary(Unprepare(preparer), request).await,
                path if path.ends_with(wire::WATCH) => {
                    Grpc::new(ProstCodec::default()).server_streaming(Watch(preparer), request).await
                }
                other => Status::unimplemented(other.to_owned()).into_http(),
            })
        })
    }
}

struct Prepare<D, C>(Arc<Preparer<D, C>>);
struct Unprepare<D, C>(Arc<Preparer<D, C>>);
struct Watch<D, C>(Arc<Preparer<D, C>>);

fn references(claims: Vec<wire::Claim>) -> impl Iterator<Item = ClaimReference> {
    claims.into_iter().map(|wire::Claim { namespace, name, uid }| ClaimReference { namespace, name, uid })
}

impl<D: Driver, C: Claims> UnaryService<wire::Claims> for Prepare<D, C> {
    type Response = wire::Prepared;
    type Future = BoxFuture<'static, Result<Response<wire::Prepared>, Status>>;

    fn call(&mut self, request: Request<wire::Claims>) -> Self::Future {
        let preparer = Arc::clone(&self.0);
        Box::pin(async move {
            let each = references(request.into_inner().claims).map(|claim| async {
                let answer = match preparer.prepare(&claim).await {
                    Ok(devices) => wire::PreparedClaim { devices, error: String::new() },
                    Err(error) => wire::PreparedClaim { devices: Vec::new(), error: format!("{error:#}") },
                };
                (claim.uid, answer)
            });
            let claims = futures::future::join_all(each).await.into_iter().collect();
            Ok(Response::new(wire::Prepared { claims }))
        })
    }
}

impl<D: Driver, C: Claims> UnaryService<wire::Claims> for Unprepare<D, C> {
    type Response = wire::Unprepared;
    type Future = BoxFuture<'static, Result<Response<wire::Unprepared>, Status>>;

    fn call(&mut self, request: Request<wire::Claims>) -> Self::Future {
        let preparer = Arc::clone(&self.0);
        Box::pin(async move {
            let each = references(request.into_inner().claims).map(|claim| async {
                let error = preparer.unprepare(&claim).await.err().map(|error| format!("{error:#}"));
                (claim.uid, wire::UnpreparedClaim { error: error.unwrap_or_default() })
            });
            let claims = futures::future::join_all(each).await.into_iter().collect();
            Ok(Response::new(wire::Unprepared { claims }))
        })
    }
}

impl<D: Driver, C: Claims> ServerStreamingService<wire::Empty> for Watch<D, C> {
    type Response = wire::Devices;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<wire::Devices, Status>> + Send>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, _: Request<wire::Empty>) -> Self::Future {
        let mut health = self.0.driver.health();
        // What is known already is said at once.
        health.mark_changed();
        let all = told(health).map(Ok);
        Box::pin(async move { Ok(Response::new(Box::pin(all) as Self::ResponseStream)) })
    }
}

/// Returns the reports for kubelet: each change at once, and the last state again after every
/// [`HEARTBEAT`].
fn told(health: watch::Receiver<Vec<crate::Health>>) -> impl Stream<Item = wire::Devices> + Send {
    futures::stream::unfold(health, |mut health| async {
        let is_closed = tokio::select! {
            outcome = health.changed() => outcome.is_err(),
            () = tokio::time::sleep(HEARTBEAT) => false,
        };
        if is_closed {
            // It never changes any more, and is said all the same.
            tokio::time::sleep(HEARTBEAT).await;
        }
        let told = health::told(&health.borrow_and_update(), now());
        Some((told, health))
    })
}

/// kubelet takes a health that was not said for 30 seconds for unknown.
const HEARTBEAT: Duration = Duration::from_secs(10);

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Healthy;

    #[tokio::test(start_paused = true)]
    async fn health_is_said_at_every_change_and_before_kubelet_forgets_it() {
        let of = |healthy| {
            vec![crate::Health {
                pool: "n".to_owned(),
                device: "d".to_owned(),
                healthy,
                message: String::new(),
            }]
        };
        let (change, mut health) = watch::channel(of(Healthy::Yes));
        health.mark_changed();
        let mut all = std::pin::pin!(told(health));
        let started = tokio::time::Instant::now();
        let mut next =
            async || all.next().await.map(|all| (all.devices[0].health, started.elapsed().as_secs()));
        assert_eq!(next().await, Some((1, 0)), "what is known is said at once");
        assert_eq!(next().await, Some((1, 10)), "again, long before thirty seconds");
        change.send(of(Healthy::No)).expect("a reader");
        assert_eq!(next().await, Some((2, 10)), "a change is said at once");
        drop(change);
        assert_eq!(next().await, Some((2, 20)), "and what never changes any more is still said");
    }
}
