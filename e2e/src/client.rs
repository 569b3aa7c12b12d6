//! A plain JSON client for scenarios, on top of the client of `kube`.

use std::path::Path;

use anyhow::Context as _;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tower::Service;

use crate::wait;

/// A client that sends and returns JSON.
#[derive(Clone)]
pub struct Client {
    /// The client of kube, which has connections and credentials.
    pub kube: kube::Client,
}

/// The DeviceFootprints.
pub const FOOTPRINTS: &str = "/apis/dragoman.dev/v1alpha1/devicefootprints";
/// The path of a collection, in which [`path`] replaces `{}`: ResourceClaims.
pub const CLAIMS: &str = "/apis/resource.k8s.io/v1/{}/resourceclaims";
/// Templates of ResourceClaims.
pub const TEMPLATES: &str = "/apis/resource.k8s.io/v1/{}/resourceclaimtemplates";
/// Leases.
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/{}/leases";
/// Pods.
pub const PODS: &str = "/api/v1/{}/pods";
/// Events.
pub const EVENTS: &str = "/apis/events.k8s.io/v1/{}/events";
/// ResourceSlices.
pub const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
/// Classes of devices.
pub const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
/// Rules that taint devices.
pub const TAINT_RULES: &str = "/apis/resource.k8s.io/v1/devicetaintrules";
/// Namespaces.
pub const NAMESPACES: &str = "/api/v1/namespaces";

/// The path of a collection in `namespace`, or in all namespaces if `namespace` is empty.
pub fn path(collection: &str, namespace: &str) -> String {
    if namespace.is_empty() {
        collection.replace("{}/", "")
    } else {
        collection.replace("{}", &format!("namespaces/{namespace}"))
    }
}

/// An object, or the names in a list.
fn summary(answer: &Value) -> Value {
    let Some(items) = answer["items"].as_array() else { return answer.clone() };
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    json!({"count": items.len(), "names": items.iter().map(name).collect::<Vec<_>>()})
}

impl Client {
    /// A client with the credentials of a kubeconfig. It does not repeat requests.
    ///
    /// # Errors
    /// The file cannot be read, or is no kubeconfig.
    pub async fn from_kubeconfig(path: &Path) -> anyhow::Result<Self> {
        let kubeconfig = Kubeconfig::read_from(path).context("kubeconfig")?;
        let mut config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        Ok(Self { kube: kube::Client::try_from(config)? })
    }

    /// This client as a service for plain HTTP requests.
    pub fn service(
        &self,
    ) -> impl Service<Request<Vec<u8>>, Response = Response<Body>, Error = kube::Error, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static {
        let kube = self.kube.clone();
        tower::service_fn(move |request: Request<Vec<u8>>| {
            let kube = kube.clone();
            async move { kube.send(request.map(Body::from)).await }
        })
    }

    /// Sends a GET and returns the body as text.
    pub async fn text(&self, path: &str) -> anyhow::Result<String> {
        let answer = self.kube.request_text(Request::get(path).body(Vec::new())?).await;
        wait::note(
            || format!("GET {path}"),
            || json!(answer.as_ref().map_or_else(ToString::to_string, Clone::clone)),
        );
        Ok(answer?)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Vec<u8>,
    ) -> Result<Value, kube::Error> {
        let what = || format!("{method} {path}");
        let request = Request::builder().method(&method).uri(path).header("Content-Type", kind).body(body);
        let answer = self.kube.request(request.map_err(kube::Error::HttpError)?).await;
        wait::note(what, || answer.as_ref().map_or_else(|error| json!(error.to_string()), summary));
        answer
    }

    /// Creates an object in a collection.
    pub async fn create(
        &self,
        collection: &str,
        namespace: &str,
        object: &Value,
    ) -> Result<Value, kube::Error> {
        let body = object.to_string().into_bytes();
        self.send(Method::POST, &path(collection, namespace), "application/json", body).await
    }

    /// Creates an object that is given as text, byte by byte.
    pub async fn create_text(
        &self,
        collection: &str,
        namespace: &str,
        text: String,
    ) -> Result<Value, kube::Error> {
        self.send(Method::POST, &path(collection, namespace), "application/json", text.into_bytes()).await
    }

    /// Replaces an object or, with `/status`, a subresource of it, likewise.
    pub async fn replace_text(
        &self,
        collection: &str,
        namespace: &str,
        name: &str,
        text: String,
    ) -> Result<Value, kube::Error> {
        let path = format!("{}/{name}", path(collection, namespace));
        self.send(Method::PUT, &path, "application/json", text.into_bytes()).await
    }

    /// Reads an object; `None` where it does not exist.
    pub async fn get(&self, collection: &str, namespace: &str, name: &str) -> anyhow::Result<Option<Value>> {
        let path = format!("{}/{name}", path(collection, namespace));
        match self.send(Method::GET, &path, "application/json", Vec::new()).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists a collection.
    pub async fn list(&self, collection: &str, namespace: &str) -> anyhow::Result<Vec<Value>> {
        let list =
            self.send(Method::GET, &path(collection, namespace), "application/json", Vec::new()).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Merge-patches an object or, with `/status`, a subresource of it.
    pub async fn merge(
        &self,
        collection: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, kube::Error> {
        self.patch("application/merge-patch+json", collection, namespace, name, patch).await
    }

    /// Patches an object by a strategic merge patch, likewise.
    pub async fn strategic_merge(
        &self,
        collection: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, kube::Error> {
        self.patch("application/strategic-merge-patch+json", collection, namespace, name, patch).await
    }

    /// Patches an object by a JSON patch, likewise.
    pub async fn json_patch(
        &self,
        collection: &str,
        namespace: &str,
        name: &str,
        operations: &Value,
    ) -> Result<Value, kube::Error> {
        self.patch("application/json-patch+json", collection, namespace, name, operations).await
    }

    async fn patch(
        &self,
        content_type: &'static str,
        collection: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, kube::Error> {
        let path = format!("{}/{name}", path(collection, namespace));
        self.send(Method::PATCH, &path, content_type, patch.to_string().into_bytes()).await
    }

    /// Deletes an object with this grace period. An object that is missing or was replaced is no error.
    pub async fn delete(
        &self,
        collection: &str,
        namespace: &str,
        name: &str,
        grace: Option<u32>,
    ) -> anyhow::Result<()> {
        self.delete_options(collection, namespace, name, &json!({"gracePeriodSeconds": grace})).await
    }

    /// Deletes an object with these `DeleteOptions`. An object that is missing or was replaced is no error.
    pub async fn delete_options(
        &self,
        collection: &str,
        namespace: &str,
        name: &str,
        options: &Value,
    ) -> anyhow::Result<()> {
        let path = format!("{}/{name}", path(collection, namespace));
        match self.send(Method::DELETE, &path, "application/json", options.to_string().into_bytes()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Sends a plain HTTP request on loopback and returns the code and the body of the answer.
pub async fn plain_http(port: u16, mut request: Request<String>) -> anyhow::Result<(u16, String)> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    let driver = tokio::spawn(connection);
    request.headers_mut().insert("Host", HeaderValue::from_static("127.0.0.1"));
    let what = request.uri().path().to_owned();
    let response = sender.send_request(request).await?;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    driver.abort();
    let text = String::from_utf8_lossy(&body).into_owned();
    wait::note(|| format!("GET 127.0.0.1:{port}{what}"), || json!(format!("{code} {text}")));
    Ok((code, text))
}
