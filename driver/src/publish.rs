//! Publishes the devices as ResourceSlices, and keeps them as they have to be.

use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use futures::{FutureExt as _, StreamExt as _};
use http::{Method, Request};
use kube::api::ApiResource;
use kube::core::DynamicObject;
use kube::{Api, Client};
use kube_runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::claim::ClaimReference;
use crate::device::Pool;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::prepare::Claims;
use crate::slices::{Change, Publisher, Sent, Shape, text};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
/// Between two attempts; a failure doubles it up to a minute.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);
/// However quiet the watch is, after so long everything is compared.
const LEVEL: Duration = Duration::from_secs(600);

/// The API server, as the driver uses it.
#[derive(Clone)]
pub(crate) struct Server(pub(crate) Client);

impl Server {
    /// Sends a request; `None` if the object does not exist.
    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Option<Value>> {
        let what = || format!("{method} {path}");
        let request = Request::builder().method(&method).uri(path).header("content-type", "application/json");
        let body = body.map(Value::to_string).unwrap_or_default();
        match self.0.request::<Value>(request.body(body.into_bytes()).with_context(what)?).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error).with_context(what),
        }
    }

    /// The publisher: its Node has to be there, and the version of the API server decides about shapes.
    ///
    /// # Errors
    /// There is no such Node, or the API server does not answer.
    pub(crate) async fn publisher(&self, driver: &str, node: &str) -> anyhow::Result<Publisher> {
        let object = self.send(Method::GET, &format!("/api/v1/nodes/{node}"), None).await?;
        let object = object.with_context(|| format!("there is no Node {node}"))?;
        let uid = text(&object, "/metadata/uid").to_owned();
        let version = self.send(Method::GET, "/version", None).await?.unwrap_or_default();
        let minor: String = text(&version, "/minor").chars().take_while(char::is_ascii_digit).collect();
        let shape = if minor.parse().is_ok_and(|minor: u32| minor <= 36) {
            Shape::Mappings
        } else {
            Shape::Resources
        };
        Ok(Publisher { driver: driver.to_owned(), node: node.to_owned(), node_uid: uid, shape })
    }

    async fn slices(&self, driver: &str, node: &str) -> anyhow::Result<Vec<Value>> {
        let path = format!("{SLICES}?fieldSelector=spec.driver%3D{driver}%2Cspec.nodeName%3D{node}");
        let list =
            self.send(Method::GET, &path, None).await?.context("the API server serves no ResourceSlices")?;
        Ok(list.get("items").and_then(Value::as_array).cloned().unwrap_or_default())
    }

    async fn make(&self, change: Change, sent: &mut Sent) -> anyhow::Result<()> {
        match change {
            Change::Create(slice) => {
                let answer = self.send(Method::POST, SLICES, Some(&slice)).await?.unwrap_or_default();
                sent.answered(slice.get("spec").cloned().unwrap_or_default(), &answer);
            }
            Change::Update { slice, wanted } => {
                let path = format!("{SLICES}/{}", text(&slice, "/metadata/name"));
                let answer = self.send(Method::PUT, &path, Some(&slice)).await?.context("it is gone")?;
                sent.answered(wanted, &answer);
            }
            Change::Delete { name, uid, version } => {
                let options = json!({"preconditions": {"uid": uid, "resourceVersion": version}});
                self.send(Method::DELETE, &format!("{SLICES}/{name}"), Some(&options)).await?;
            }
        }
        Ok(())
    }
}

/// The code of an answer that is an error.
fn code(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref::<kube::Error>()? {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

impl Events for Server {
    async fn write(&self, event: &Value) -> anyhow::Result<()> {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", text(event, "/metadata/namespace"));
        match self.send(Method::POST, &path, Some(event)).await {
            // An earlier process of the driver has told it in this hour.
            Err(error) if code(&error) == Some(409) => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}

impl Claims for Server {
    async fn get(&self, claim: &ClaimReference) -> anyhow::Result<Option<Value>> {
        let ClaimReference { namespace, name, .. } = claim;
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}");
        self.send(Method::GET, &path, None).await
    }
}

/// Keeps the slices of a node as `pools` says, until it is dropped.
pub(crate) async fn publish(
    server: Server,
    driver: String,
    node: String,
    mut pools: watch::Receiver<Vec<Pool>>,
    metrics: Metrics,
) {
    let resource = ApiResource {
        group: "resource.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "resource.k8s.io/v1".to_owned(),
        kind: "ResourceSlice".to_owned(),
        plural: "resourceslices".to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(server.0.clone(), &resource);
    let fields = format!("spec.driver={driver},spec.nodeName={node}");
    // Only that something changed counts: what is there is listed.
    let changes = watcher(api, watcher::Config::default().fields(&fields)).default_backoff();
    let mut changes = pin!(changes);
    let (mut pause, mut sent, mut is_final) = (PAUSE, Sent::default(), false);
    loop {
        let wanted = pools.borrow_and_update().clone();
        let devices = wanted.iter().map(|pool| pool.devices.len()).sum::<usize>();
        metrics.devices.set(i64::try_from(devices).unwrap_or(i64::MAX));
        let wait = match bring_about(&server, &driver, &node, &wanted, &mut sent, &metrics).await {
            Ok(()) => {
                pause = PAUSE;
                LEVEL
            }
            Err(error) => {
                metrics.slice_failures.inc();
                tracing::warn!("ResourceSlices are not up to date: {error:#}");
                pause = (pause * 2).min(LONGEST);
                pause
            }
        };
        // After a failure its own writes, which the watch brings, are no reason to try again before the time.
        let is_late = wait < LEVEL;
        tokio::select! {
            // An error: the driver never changes its devices any more.
            outcome = pools.changed(), if !is_final => is_final = outcome.is_err(),
            _ = changes.next(), if !is_late => {
                // A list has an event for each slice, and an update of a pool has several: they are one reason to look.
                tokio::time::sleep(PAUSE).await;
                while let Some(Some(_)) = changes.next().now_or_never() {}
            }
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn bring_about(
    server: &Server,
    driver: &str,
    node: &str,
    pools: &[Pool],
    sent: &mut Sent,
    metrics: &Metrics,
) -> anyhow::Result<()> {
    let publisher = server.publisher(driver, node).await?;
    let observed = server.slices(driver, node).await?;
    for change in publisher.changes(pools, &observed, sent) {
        server.make(change, sent).await?;
        metrics.slice_writes.inc();
    }
    Ok(())
}

/// Removes every slice of the driver on the node: it is being uninstalled.
///
/// # Errors
/// The API server does not answer.
pub(crate) async fn withdraw(server: &Server, driver: &str, node: &str) -> anyhow::Result<()> {
    let publisher = server.publisher(driver, node).await?;
    let mut sent = Sent::default();
    for change in publisher.changes(&[], &server.slices(driver, node).await?, &sent) {
        server.make(change, &mut sent).await?;
    }
    Ok(())
}
