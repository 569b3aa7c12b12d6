//! The kubelet of Dragoman's own Pods. It runs the real binary as a package says: with the arguments, the
//! environment and the service account of the Pod, in an empty root directory, as an unprivileged user; and it
//! reports the Pod as ready when the readiness probe says so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{Client, PODS, plain_http};
use crate::control_plane::{Process, free_port};
use crate::wait;
use crate::world::{World, is_our_own};

/// The directory with the credentials of the service account in a Pod.
const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";

/// Runs Dragoman's Pods until it is dropped.
pub(super) struct Pods {
    failures: Arc<Mutex<Vec<String>>>,
    _work: JoinSet<()>,
}

/// Facts and files of the node that its Pods need.
struct Node {
    client: Client,
    binary: PathBuf,
    authority: PathBuf,
    /// Host and port of the API server.
    server: (String, u16),
    /// Where the root directories and logs of Pods are.
    directory: PathBuf,
}

/// A Pod that was started.
struct Running {
    /// The containers that are still to run before the last one; the first one runs.
    containers: Vec<Value>,
    process: Process,
    port: u16,
    /// Status that was reported last.
    reported: Value,
}

impl Pods {
    pub(super) fn start(world: &World) -> Self {
        let node = Node {
            client: world.client.clone(),
            binary: world.bench.binary.clone(),
            authority: world.plane.authority(),
            server: world.plane.address(),
            directory: world.directory.join("pods"),
        };
        let failures = Arc::<Mutex<Vec<String>>>::default();
        let (mut work, said) = (JoinSet::new(), Arc::clone(&failures));
        work.spawn(async move {
            let mut running = BTreeMap::new();
            loop {
                if let Err(error) = node.look(&mut running).await {
                    said.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{error:#}"));
                }
                wait::apart().await;
            }
        });
        Self { failures, _work: work }
    }

    /// Returns the failures so far, for the text of a failure.
    pub(super) fn failures(&self) -> String {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }
}

impl Node {
    /// Looks at every Pod once.
    async fn look(&self, running: &mut BTreeMap<String, Running>) -> anyhow::Result<()> {
        let pods = self.client.list(PODS, "").await?;
        let ours = pods.iter().filter(|pod| is_our_own(pod) && pod["spec"]["nodeName"].is_string());
        for pod in ours {
            let uid = pod["metadata"]["uid"].as_str().context("uid")?;
            let is_deleted = pod["metadata"]["deletionTimestamp"].is_string();
            match running.remove(uid) {
                Some(process) if is_deleted => {
                    process.process.stop().await?;
                    self.remove(pod).await?;
                }
                Some(mut process) => {
                    let goes_on = self.probe(pod, &mut process).await?;
                    running.extend(goes_on.then(|| (uid.to_owned(), process)));
                }
                None if is_deleted => self.remove(pod).await?,
                None if pod["status"]["phase"] == "Pending" => {
                    let container = |of: &str| pod["spec"][of].as_array().cloned().unwrap_or_default();
                    let containers = [container("initContainers"), container("containers")].concat();
                    let (process, port) = self.run(pod, containers.first().context("containers")?).await?;
                    let running_pod = Running { containers, process, port, reported: Value::Null };
                    running.insert(uid.to_owned(), running_pod);
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Reports how a Pod is, with the words of its readiness probe, and starts its next container; false when the
    /// Pod has ended.
    async fn probe(&self, pod: &Value, running: &mut Running) -> anyhow::Result<bool> {
        if let Some(ended) = running.process.ended()? {
            let is_last = running.containers.len() == 1;
            if !ended.success() || is_last {
                let phase = if ended.success() { "Succeeded" } else { "Failed" };
                self.report(pod, running, phase, Some("it has ended")).await?;
                ensure!(
                    ended.success(),
                    "{}: {ended}: {}",
                    pod["metadata"]["name"],
                    running.process.output()
                );
                return Ok(false);
            }
            running.containers.remove(0);
            let next = running.containers.first().context("containers")?;
            (running.process, running.port) = self.run(pod, next).await?;
            return Ok(true);
        }
        let container = running.containers.first().context("containers")?;
        let unready = match container["readinessProbe"]["httpGet"]["path"].as_str() {
            Some(path) => {
                let request = http::Request::get(path).body(String::new())?;
                match plain_http(running.port, request).await {
                    Ok((200, _)) => None,
                    Ok((_, why)) => Some(why),
                    Err(error) => Some(error.to_string()),
                }
            }
            None => None,
        };
        self.report(pod, running, "Running", unready.as_deref()).await?;
        Ok(true)
    }

    async fn report(
        &self,
        pod: &Value,
        running: &mut Running,
        phase: &str,
        unready: Option<&str>,
    ) -> anyhow::Result<()> {
        let ready = if unready.is_none() { "True" } else { "False" };
        let conditions = ["Ready", "ContainersReady"]
            .map(|of| json!({"type": of, "status": ready, "message": unready.unwrap_or_default()}));
        let status = json!({"phase": phase, "conditions": conditions});
        if running.reported != status {
            let (namespace, name) = named(pod)?;
            let patch = json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": status});
            self.client.merge(PODS, namespace, &format!("{name}/status"), &patch).await?;
            running.reported = status;
        }
        Ok(())
    }

    async fn remove(&self, pod: &Value) -> anyhow::Result<()> {
        let (namespace, name) = named(pod)?;
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}});
        self.client.delete_options(PODS, namespace, name, &options).await
    }

    /// Starts a container of a Pod; returns the port of its endpoints, too.
    async fn run(&self, pod: &Value, container: &Value) -> anyhow::Result<(Process, u16)> {
        let (namespace, name) = named(pod)?;
        let account = pod["spec"]["serviceAccountName"].as_str().context("service account")?;
        let root = self.directory.join(name);
        provide(&root, &self.binary, &self.authority, namespace, &self.token(namespace, account).await?)?;
        let port = free_port()?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a text");
        let mut environment = vec![
            format!("KUBERNETES_SERVICE_HOST={}", self.server.0),
            format!("KUBERNETES_SERVICE_PORT={}", self.server.1),
            format!("HOSTNAME={name}"),
            // The Pods of this machine share one network.
            format!("DRAGOMAN_ADMIN_ADDRESS=127.0.0.1:{port}"),
        ];
        for variable in container["env"].as_array().into_iter().flatten() {
            environment.push(format!("{}={}", text(&variable["name"])?, text(&variable["value"])?));
        }
        let mut arguments = inside(&root, environment)?;
        for argument in container["args"].as_array().into_iter().flatten() {
            arguments.push(text(argument)?);
        }
        Ok((Process::spawn(Path::new("env"), name, &arguments, &self.directory)?, port))
    }

    /// A token of a service account, as a kubelet asks for it.
    async fn token(&self, namespace: &str, account: &str) -> anyhow::Result<String> {
        let accounts = format!("/api/v1/{{}}/serviceaccounts/{account}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let answer = self.client.create(&accounts, namespace, &request).await?;
        Ok(answer["status"]["token"].as_str().context("token")?.to_owned())
    }
}

fn named(object: &Value) -> anyhow::Result<(&str, &str)> {
    let of = |field: &str| object["metadata"][field].as_str().with_context(|| field.to_owned());
    Ok((of("namespace")?, of("name")?))
}

/// Fills the root directory of a container: the binary, and the volume of its service account.
pub(crate) fn provide(
    root: &Path,
    binary: &Path,
    authority: &Path,
    namespace: &str,
    token: &str,
) -> anyhow::Result<()> {
    let account = root.join(ACCOUNT);
    std::fs::create_dir_all(&account).context("root")?;
    std::fs::copy(binary, root.join("dragoman")).context("binary")?;
    std::fs::write(account.join("token"), token).context("token")?;
    std::fs::write(account.join("namespace"), namespace).context("namespace")?;
    std::fs::copy(authority, account.join("ca.crt")).context("ca.crt")?;
    Ok(())
}

/// Whether a binary needs nothing around it.
pub(crate) fn is_static(binary: &Path) -> anyhow::Result<bool> {
    let head = std::fs::read(binary).context("binary")?;
    Ok(!String::from_utf8_lossy(head.get(..4096).unwrap_or(&head)).contains("/ld-linux"))
}

/// The arguments of `env` that run `/dragoman` in `root` with an environment and nothing else around it, as an
/// unprivileged user.
pub(crate) fn inside(root: &Path, environment: Vec<String>) -> anyhow::Result<Vec<String>> {
    use std::os::unix::fs::MetadataExt as _;
    let root = root.display().to_string();
    let superuser = std::fs::metadata("/proc/self").context("/proc/self")?.uid() == 0;
    // An unprivileged user needs a user namespace to change the root directory.
    let enter: &[&str] = if superuser {
        &["chroot", "--userspec=65532:65532", &root, "/dragoman"]
    } else {
        &["unshare", "--user", "--map-root-user", "chroot", &root, "/dragoman"]
    };
    let path = format!("PATH={}", std::env::var("PATH").unwrap_or_default());
    let start = ["-i".to_owned(), path].into_iter().chain(environment);
    Ok(start.chain(enter.iter().map(|argument| (*argument).to_owned())).collect())
}
