//! The cluster of a scenario, the operator in it, and the operations that scenarios share.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use dragoman_simcluster::{HOLD, Kubelet, Pace, Refusals};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{CLAIMS, Client, EVENTS, NAMESPACES, PODS, SLICES, TEMPLATES};
use crate::control_plane::{Backend, ControlPlane, Entry, Release, Shape, Workloads};
use crate::dragoman::{Dragoman, Start};
use crate::promises::Judge;
use crate::{installed, manifest, objects, wait};

/// The time without writes after which a namespace is at rest.
const QUIET: Duration = Duration::from_secs(3);
/// The longest time of an answer of an API server that is not silent: a third of [`QUIET`].
const PROMPT: Duration = Duration::from_secs(1);

/// The paths and programs that every lane needs.
#[derive(Clone)]
pub struct Bench {
    /// The repository.
    pub repository: PathBuf,
    /// The binary under test.
    pub binary: PathBuf,
    /// The directory for logs.
    pub output: PathBuf,
    /// The kind of control plane.
    pub backend: Backend,
}

/// A cluster for scenarios.
pub struct World {
    /// The paths and programs.
    pub bench: Bench,
    /// The control plane.
    pub plane: ControlPlane,
    /// The release of Kubernetes.
    pub release: Release,
    /// A client with every right.
    pub client: Client,
    /// The Pods that the stand-in for kubelets refused to start.
    pub refusals: Refusals,
    kubelet: JoinSet<()>,
    /// Judges every step of the control plane.
    pub judge: Judge,
    /// Where logs go.
    pub directory: PathBuf,
    namespaces: AtomicU32,
    _in_use: InUse,
}

/// The directories of the clusters that run.
static IN_USE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The directory of a cluster: a second one of its name would remove its files while it runs.
struct InUse(PathBuf);

impl InUse {
    fn of(directory: &Path) -> anyhow::Result<Self> {
        let is_new = IN_USE.lock().unwrap_or_else(PoisonError::into_inner).insert(directory.to_owned());
        anyhow::ensure!(is_new, "two clusters have the directory {} at the same time", directory.display());
        Ok(Self(directory.to_owned()))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        IN_USE.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

tokio::task_local! {
    /// The directories of the clusters that a scenario has started.
    static DIRECTORIES: RefCell<Vec<PathBuf>>;
}

/// Runs a scenario that starts clusters; returns its outcome and where their logs are.
pub async fn logs_of<T>(scenario: impl Future<Output = T>) -> (T, Vec<PathBuf>) {
    DIRECTORIES
        .scope(RefCell::default(), async {
            let outcome = scenario.await;
            (outcome, DIRECTORIES.with(RefCell::take))
        })
        .await
}

impl World {
    /// Starts a cluster of `shape` with `nodes` nodes of `devices` devices each, and installs `config/own`.
    pub async fn start(
        bench: &Bench,
        name: &str,
        shape: Shape,
        nodes: usize,
        devices: usize,
    ) -> anyhow::Result<Self> {
        let world = Self::bare(bench, name, shape, nodes, devices).await?;
        world.install("config/own").await?;
        Ok(world)
    }

    /// Starts a cluster in which nothing of Dragoman is installed.
    pub async fn bare(
        bench: &Bench,
        name: &str,
        shape: Shape,
        nodes: usize,
        devices: usize,
    ) -> anyhow::Result<Self> {
        let directory = bench.output.join(name);
        // A lane names its directory itself.
        DIRECTORIES.try_with(|all| all.borrow_mut().push(directory.clone())).unwrap_or_default();
        let in_use = InUse::of(&directory)?;
        if directory.exists() {
            std::fs::remove_dir_all(&directory).context("old logs")?;
        }
        let (release, has_node) = (shape.release, shape.workloads == Workloads::OnRealNode);
        let plane = ControlPlane::start(bench.backend, &bench.repository, &directory, shape).await?;
        let client = plane.client("admin").await?;
        client.create("/apis/resource.k8s.io/v1/deviceclasses", "", &objects::class()).await?;
        for i in 0..nodes {
            add_node(&client, &format!("node-{i}"), devices).await?;
        }
        let kubelets = Kubelet::over_http(plane.client("kubelet").await?.service(), Pace::at_once(), 1)
            .sparing(is_our_own);
        let refusals = kubelets.refusals();
        let mut kubelet = JoinSet::new();
        if !has_node {
            kubelet.spawn(kubelets.run());
        }
        let judge = Judge::start(&client);
        let bench = bench.clone();
        let namespaces = AtomicU32::new(0);
        Ok(Self {
            bench,
            plane,
            release,
            client,
            refusals,
            kubelet,
            judge,
            directory,
            namespaces,
            _in_use: in_use,
        })
    }

    /// Starts the operator with its own rights.
    pub async fn dragoman(&self, mode: &str, flags: &[&str]) -> anyhow::Result<Dragoman> {
        self.dragoman_as(self.plane.kubeconfig("operator"), mode, flags).await
    }

    /// Starts the operator with the credentials of a kubeconfig.
    pub async fn dragoman_as(
        &self,
        kubeconfig: PathBuf,
        mode: &str,
        flags: &[&str],
    ) -> anyhow::Result<Dragoman> {
        Dragoman::start(&self.start_of(kubeconfig, mode, flags)).await
    }

    /// The arguments of a start of the operator in this cluster.
    pub fn start_of<'a>(&'a self, kubeconfig: PathBuf, mode: &'a str, flags: &'a [&'a str]) -> Start<'a> {
        let log = "info,dragoman_machinery=debug,dragoman_reconcilers=debug";
        let (binary, directory) = (&self.bench.binary, &self.directory);
        Start { command: "run", binary, directory, kubeconfig, mode: Some(mode), log, flags }
    }

    /// Starts the reference allocator with its own rights.
    pub async fn allocator(&self, flags: &[&str]) -> anyhow::Result<Dragoman> {
        Dragoman::start(&self.allocator_start(flags)).await
    }

    /// The arguments of a start of the reference allocator.
    pub fn allocator_start<'a>(&'a self, flags: &'a [&'a str]) -> Start<'a> {
        let start = self.start_of(self.plane.kubeconfig("allocator"), "", flags);
        Start { command: "allocator", mode: None, ..start }
    }

    /// Installs a directory of the shipped manifests, on a real control plane with kubectl, so that Dragoman has exactly
    /// the shipped rights. Unless workloads run, a Deployment makes no Pod. Returns once the API server acts on what was
    /// installed.
    pub async fn install(&self, directory: &str) -> anyhow::Result<()> {
        let directory = self.bench.repository.join(directory);
        let objects = manifest::overlay(&directory)?;
        if self.plane.is_simulated() {
            // Rights are looked up with each request there, and there are no admission policies.
            let is_policy = |object: &&Value| object["apiVersion"] == "admissionregistration.k8s.io/v1";
            let served: Vec<Value> = objects.iter().filter(|object| !is_policy(object)).cloned().collect();
            manifest::apply(&self.client, &served).await?;
        } else {
            let directory = directory.display().to_string();
            self.plane.kubectl(&["apply", "-k", &directory], "").await?.map_err(anyhow::Error::msg)?;
            installed::rights(&self.client, &objects).await?;
        }
        installed::kinds(&self.client, &objects).await
    }

    /// Writes a kubeconfig with the token of a service account.
    pub async fn account(&self, namespace: &str, account: &str) -> anyhow::Result<PathBuf> {
        self.account_with(account, &["create", "token", account, "--namespace", namespace]).await
    }

    /// Writes a kubeconfig with the token of a service account whose Pod is on a node.
    pub async fn account_on(&self, namespace: &str, account: &str, node: &str) -> anyhow::Result<PathBuf> {
        let bound = ["--bound-object-kind", "Node", "--bound-object-name", node];
        let ask = [&["create", "token", account, "--namespace", namespace][..], &bound].concat();
        self.account_with(account, &ask).await
    }

    async fn account_with(&self, account: &str, ask: &[&str]) -> anyhow::Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt as _;
        let token = self.plane.kubectl(ask, "").await?.map_err(anyhow::Error::msg)?;
        let (host, port) = self.plane.address();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster":
                {"server": format!("https://{host}:{port}"), "certificate-authority": self.plane.authority()}}],
            "users": [{"name": account, "user": {"token": token.trim()}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": account}}],
        });
        let path = self.directory.join(format!("{account}.kubeconfig"));
        std::fs::write(&path, kubeconfig.to_string()).context("kubeconfig")?;
        // Only its owner reads it, as a kubelet has it.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).context("kubeconfig")?;
        Ok(path)
    }

    /// Creates a namespace for a scenario, with the template `one`.
    pub async fn namespace(&self, scenario: &str) -> anyhow::Result<String> {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", scenario.replace('_', "-"));
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.client.create(NAMESPACES, "", &namespace).await?;
        self.client.create(TEMPLATES, &name, &objects::template("one")).await?;
        Ok(name)
    }

    /// Creates a quota named `claims` with these limits, and waits until it is in force: one without a status admits nothing.
    pub async fn quota(&self, namespace: &str, hard: &[(&str, usize)]) -> anyhow::Result<()> {
        const QUOTAS: &str = "/api/v1/{}/resourcequotas";
        let hard: BTreeMap<&str, String> =
            hard.iter().map(|(name, most)| (*name, most.to_string())).collect();
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "claims"}, "spec": {"hard": hard}});
        self.client.create(QUOTAS, namespace, &quota).await?;
        let counted = async || {
            let quota = self.client.get(QUOTAS, namespace, "claims").await?.context("quota")?;
            Ok(quota["status"]["hard"].is_object().then_some(()))
        };
        wait::value("the quota is in force", counted).await
    }

    /// Creates a Pod.
    pub async fn pod(&self, namespace: &str, pod: &objects::Pod) -> anyhow::Result<Value> {
        Ok(self.client.create(PODS, namespace, pod.object()).await?)
    }

    /// Waits until the Pod is in `phase`.
    pub async fn phase(&self, namespace: &str, pod: &str, phase: &str) -> anyhow::Result<Value> {
        let what = format!("the Pod {namespace}/{pod} is {phase}");
        let look = async || {
            let pod = self.client.get(PODS, namespace, pod).await?;
            Ok(pod.filter(|pod| pod["status"]["phase"] == phase))
        };
        wait::value(&what, look).await
    }

    /// Waits until the Pod's status names the claim of `entry` and the claim exists.
    pub async fn claim_of(&self, namespace: &str, pod: &str, entry: &str) -> anyhow::Result<Value> {
        let what = format!("the Pod {namespace}/{pod} has a claim for {entry}");
        wait::value(&what, async || {
            let Some(pod) = self.client.get(PODS, namespace, pod).await? else { return Ok(None) };
            match claim_name(&pod, entry) {
                Some(name) => self.client.get(CLAIMS, namespace, &name).await,
                None => Ok(None),
            }
        })
        .await
    }

    /// Waits until a claim satisfies `condition`.
    pub async fn claim_until(
        &self,
        namespace: &str,
        claim: &str,
        what: &str,
        condition: impl Fn(Option<&Value>) -> bool,
    ) -> anyhow::Result<()> {
        let what = format!("the claim {namespace}/{claim} {what}");
        wait::value(&what, async || {
            let claim = self.client.get(CLAIMS, namespace, claim).await?;
            Ok(condition(claim.as_ref()).then_some(()))
        })
        .await
    }

    /// Waits until the namespace has exactly `count` claims.
    pub async fn claims(&self, namespace: &str, count: usize) -> anyhow::Result<Vec<Value>> {
        let what = format!("the namespace {namespace} has {count} claims");
        wait::value(&what, async || {
            let claims = self.client.list(CLAIMS, namespace).await?;
            Ok((claims.len() == count).then_some(claims))
        })
        .await
    }

    /// Waits for an Event about `name` with `reason`; returns its note.
    pub async fn event(&self, namespace: &str, name: &str, reason: &str) -> anyhow::Result<String> {
        self.event_with(namespace, name, reason, &[]).await
    }

    /// As [`Self::event`]; the note has all these words. Another Event may come first: watches are independent of each other.
    pub async fn event_with(
        &self,
        namespace: &str,
        name: &str,
        reason: &str,
        words: &[&str],
    ) -> anyhow::Result<String> {
        let what = format!("there is an Event {reason} about {namespace}/{name} with {words:?}");
        wait::value(&what, async || {
            let events = self.client.list(EVENTS, namespace).await?;
            let about = events.iter().filter(|e| e["regarding"]["name"] == name && e["reason"] == reason);
            let mut notes = about.filter_map(|e| e["note"].as_str());
            Ok(notes.find(|note| words.iter().all(|word| note.contains(word))).map(str::to_owned))
        })
        .await
    }

    /// Waits until nothing has been written in the namespace for a while in which the API server answered promptly, and
    /// returns every write. Time in which it was silent itself shows nothing.
    ///
    /// # Errors
    /// The namespace does not come to rest: the error has the last writes.
    pub async fn rest(&self, namespace: &str) -> anyhow::Result<Vec<Entry>> {
        let started = std::time::Instant::now();
        let (mut last, mut since) = (usize::MAX, started);
        loop {
            let asked = std::time::Instant::now();
            let answer = self.client.get(NAMESPACES, "", namespace).await;
            let is_prompt = answer.is_ok() && asked.elapsed() <= PROMPT;
            let entries = self.plane.audit().entries(namespace);
            if entries.len() != last || !is_prompt {
                (last, since) = (entries.len(), std::time::Instant::now());
            }
            if since.elapsed() >= QUIET {
                return Ok(entries);
            }
            anyhow::ensure!(
                started.elapsed() < wait::patience(),
                "{namespace} never comes to rest: {last} writes, the last ones {:?}",
                entries
                    .iter()
                    .rev()
                    .take(6)
                    .map(|e| format!("{} {}", e.party(), e.what()))
                    .collect::<Vec<_>>()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Ends a held Pod and waits until it has succeeded.
    pub async fn let_end(&self, namespace: &str, pod: &str) -> anyhow::Result<()> {
        let release = json!({"metadata": {"annotations": {HOLD: null}}});
        self.client.merge(PODS, namespace, pod, &release).await?;
        self.phase(namespace, pod, "Succeeded").await?;
        Ok(())
    }

    /// Stops everything; fails if a device was promised twice in the meantime.
    pub async fn stop(self) -> anyhow::Result<()> {
        let verdict = self.judge.verdict();
        drop(self.kubelet);
        self.plane.stop().await?;
        verdict
    }
}

/// The claim that a Pod's status names for `entry`.
pub fn claim_name(pod: &Value, entry: &str) -> Option<String> {
    let statuses = pod["status"]["resourceClaimStatuses"].as_array()?;
    let status = statuses.iter().find(|s| s["name"] == entry)?;
    status["resourceClaimName"].as_str().map(str::to_owned)
}

/// Whether a Pod is one of Dragoman's own Deployments and Jobs. The stand-in for kubelets would let it succeed.
pub fn is_our_own(pod: &Value) -> bool {
    pod["spec"]["serviceAccountName"].as_str().is_some_and(|account| account.starts_with("dragoman"))
}

/// Adds a ready node with devices.
pub async fn add_node(client: &Client, name: &str, devices: usize) -> anyhow::Result<()> {
    client.create("/api/v1/nodes", "", &objects::node(name)).await?;
    // Admission taints every new node. The controller that would remove the taint does not run.
    client.merge("/api/v1/nodes", "", name, &json!({"spec": {"taints": null}})).await?;
    let status = json!({"status": objects::node(name)["status"]});
    client.merge("/api/v1/nodes", "", &format!("{name}/status"), &status).await?;
    client.create(SLICES, "", &objects::slice(name, devices)).await?;
    Ok(())
}
