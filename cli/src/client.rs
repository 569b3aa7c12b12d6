//! Requests: get and list, and nothing else.

use dragoman_report::facts::{Facts, List, forbidden};
use http::{Request, StatusCode};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The objects of one request: more cost the API server memory, fewer cost time.
const PAGE: usize = 1000;

/// A resource: its kind, and its path with `{}` for the namespace and a slash.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resource {
    pub(crate) kind: &'static str,
    group: &'static str,
    version: &'static str,
    pub(crate) plural: &'static str,
}

const fn core(kind: &'static str, plural: &'static str) -> Resource {
    Resource { kind, group: "", version: "v1", plural }
}

const fn dra(kind: &'static str, plural: &'static str) -> Resource {
    Resource { kind, group: "resource.k8s.io", version: "v1", plural }
}

pub(crate) const PODS: Resource = core("Pod", "pods");
pub(crate) const NODES: Resource = core("Node", "nodes");
pub(crate) const QUOTAS: Resource = core("ResourceQuota", "resourcequotas");
pub(crate) const EVENTS: Resource = core("Event", "events");
pub(crate) const CLAIMS: Resource = dra("ResourceClaim", "resourceclaims");
pub(crate) const TEMPLATES: Resource = dra("ResourceClaimTemplate", "resourceclaimtemplates");
pub(crate) const SLICES: Resource = dra("ResourceSlice", "resourceslices");
pub(crate) const CLASSES: Resource = dra("DeviceClass", "deviceclasses");
pub(crate) const FOOTPRINTS: Resource = Resource {
    kind: "DeviceFootprint",
    group: "dragoman.dev",
    version: "v1alpha1",
    plural: "devicefootprints",
};
pub(crate) const TAINT_RULES: Resource =
    Resource { version: "v1beta2", ..dra("DeviceTaintRule", "devicetaintrules") };

impl Resource {
    /// A resource of any group.
    pub(crate) const fn of(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self { kind, group, version, plural }
    }

    /// `GROUP/VERSION`.
    pub(crate) fn version_of_group(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    fn path(&self, namespace: Option<&str>) -> String {
        let Self { group, version, plural, .. } = self;
        let api =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace {
            Some(namespace) => format!("{api}/namespaces/{namespace}/{plural}"),
            None => format!("{api}/{plural}"),
        }
    }

    /// As RBAC and `kubectl` spell it.
    fn spelled(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Lack {
    NotFound,
    Forbidden,
    /// The API server did not answer: a sentence.
    Other(String),
}

/// A client of the user.
pub(crate) struct Client {
    kube: kube::Client,
    /// The namespace of the context.
    pub(crate) namespace: String,
}

impl Client {
    /// Connects as kubectl does.
    ///
    /// # Errors
    /// There is no usable kubeconfig.
    pub(crate) async fn connect(kubeconfig: Option<&str>, context: Option<&str>) -> anyhow::Result<Self> {
        let options =
            KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
        let config = match kubeconfig {
            Some(path) => {
                // Paths in it are relative to its directory.
                let file = Kubeconfig::read_from(path)
                    .map_err(|error| anyhow::anyhow!("kubeconfig {path}: {}", root(&error)))?;
                kube::Config::from_custom_kubeconfig(file, &options).await
            }
            None if context.is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
                // In a Pod, unless it has a kubeconfig of its own.
                return Self::of(kube::Config::infer().await.map_err(|error| unusable(&error))?);
            }
            None => kube::Config::from_kubeconfig(&options).await,
        };
        Self::of(config.map_err(|error| unusable(&error))?)
    }

    fn of(config: kube::Config) -> anyhow::Result<Self> {
        let namespace = config.default_namespace.clone();
        let kube = kube::Client::try_from(config).map_err(|error| unusable(&error))?;
        Ok(Self { kube, namespace })
    }

    /// Reads one object into the facts; `false` where there is none.
    pub(crate) async fn get(
        &self,
        facts: &mut Facts,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> anyhow::Result<bool> {
        match self.text(&format!("{}/{name}", resource.path(namespace)), "get", resource).await {
            Ok(text) => {
                let object: &RawValue = serde_json::from_str(&text).map_err(|error| {
                    let why = format!("{} {name} is unreadable: {error}", resource.plural);
                    facts.lacks.push(why.clone());
                    anyhow::Error::msg(why)
                })?;
                facts.take(resource.kind, object);
                Ok(true)
            }
            Err(Lack::NotFound) => Ok(false),
            Err(Lack::Forbidden) => {
                facts.forbid(namespace, resource.spelled());
                anyhow::bail!(forbidden(&[&resource.spelled()], namespace))
            }
            Err(Lack::Other(why)) => {
                facts.lacks.push(why.clone());
                anyhow::bail!(why)
            }
        }
    }

    /// Reads all objects of a resource into the facts. What is lacking is noted there, and the answer is partial.
    pub(crate) async fn list(
        &self,
        facts: &mut Facts,
        resource: Resource,
        namespace: Option<&str>,
        selector: &str,
    ) {
        self.each(facts, resource, namespace, selector, |facts, object| facts.take(resource.kind, object))
            .await;
    }

    /// Reads which claims hold devices.
    pub(crate) async fn list_holders(&self, facts: &mut Facts) {
        self.each(facts, CLAIMS, None, "", Facts::take_holder).await;
    }

    /// Hands all objects of a resource to `take`.
    pub(crate) async fn each(
        &self,
        facts: &mut Facts,
        resource: Resource,
        namespace: Option<&str>,
        selector: &str,
        mut take: impl FnMut(&mut Facts, &RawValue),
    ) {
        let mut next = String::new();
        loop {
            let path = format!("{}?limit={PAGE}{selector}{next}", resource.path(namespace));
            let text = match self.text(&path, "list", resource).await {
                Ok(text) => text,
                // Taint rules are served from Kubernetes 1.36 on, behind a gate before; footprints where Dragoman is.
                Err(Lack::NotFound) if [TAINT_RULES.kind, FOOTPRINTS.kind].contains(&resource.kind) => return,
                Err(Lack::NotFound) => {
                    facts.lacks.push(format!(
                        "the API server does not serve {}: Kubernetes 1.34 or newer does",
                        resource.spelled()
                    ));
                    return;
                }
                Err(Lack::Forbidden) => {
                    facts.forbid(namespace, resource.spelled());
                    return;
                }
                Err(Lack::Other(why)) => {
                    facts.lacks.push(why);
                    return;
                }
            };
            let list: List<'_> = match serde_json::from_str(&text) {
                Ok(list) => list,
                Err(error) => {
                    facts.lacks.push(format!("the list of {} is unreadable: {error}", resource.plural));
                    return;
                }
            };
            list.items.iter().for_each(|item| take(facts, item));
            match list.metadata.r#continue.filter(|token| !token.is_empty()) {
                Some(token) => next = format!("&continue={}", encoded(&token)),
                None => return,
            }
        }
    }

    /// Reads a document that is no object, for example `/version`.
    pub(crate) async fn document(&self, path: &str) -> Result<String, Lack> {
        self.answer(path, &format!("get {path}")).await
    }

    async fn text(&self, path: &str, verb: &str, resource: Resource) -> Result<String, Lack> {
        self.answer(path, &format!("{verb} {}", resource.spelled())).await
    }

    async fn answer(&self, path: &str, what: &str) -> Result<String, Lack> {
        let failed = |why: String| Lack::Other(format!("cannot {what}: {why}"));
        let request = Request::get(path).body(Body::empty()).map_err(|error| failed(error.to_string()))?;
        let answer = self.kube.send(request).await.map_err(|error| failed(root(&error)))?;
        let code = answer.status();
        let body = answer.into_body().collect_bytes().await.map_err(|error| failed(root(&error)))?;
        let text = String::from_utf8(body.to_vec()).map_err(|error| failed(error.to_string()))?;
        match code {
            StatusCode::OK => Ok(text),
            StatusCode::NOT_FOUND => Err(Lack::NotFound),
            StatusCode::FORBIDDEN => Err(Lack::Forbidden),
            StatusCode::UNAUTHORIZED => {
                Err(failed("the API server does not know you: log in again".to_owned()))
            }
            _ => Err(failed(format!("the API server answered {code}: {}", message(&text)))),
        }
    }
}

/// One sentence for a kubeconfig that is not there or of no use.
fn unusable(error: &(dyn std::error::Error + 'static)) -> anyhow::Error {
    anyhow::anyhow!(
        "there is no usable kubeconfig ({}): set KUBECONFIG or name a file with --kubeconfig; with --filename no cluster is asked",
        root(error)
    )
}

/// The innermost cause of an error: what a person can act on.
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
}

fn message(text: &str) -> String {
    serde_json::from_str::<Status>(text).unwrap_or_default().message
}

/// Everything but what a URL may hold anywhere (RFC 3986, 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent encoding of a value of a query.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}
