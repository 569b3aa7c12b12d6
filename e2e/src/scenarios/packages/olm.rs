//! The life of an installation by OLM: the operators of OLM run as processes beside the real control plane, a catalog
//! is served on loopback, and Dragoman's Pods run the real binary.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::pods::Pods;
use super::{cluster, done, labelled};
use crate::client::{CLAIMS, LEASES, NAMESPACES, PODS};
use crate::control_plane::{Process, Shape, free_port};
use crate::go;
use crate::manifest;
use crate::objects::Pod;
use crate::scenarios::{Standalone, standalone};
use crate::wait;
use crate::world::{Bench, World, is_our_own};

pub(super) fn all() -> Vec<Standalone> {
    vec![standalone!(olm_installs_upgrades_and_leaves_in_two_namespaces)]
}

const VERSIONS: &str = "/apis/operators.coreos.com/v1alpha1/{}/clusterserviceversions";
const SUBSCRIPTIONS: &str = "/apis/operators.coreos.com/v1alpha1/{}/subscriptions";
const CATALOGS: &str = "/apis/operators.coreos.com/v1alpha1/{}/catalogsources";
const GROUPS: &str = "/apis/operators.coreos.com/v1/{}/operatorgroups";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// The version that is installed, and one that replaces it, made by the test from the same manifests.
const NOW: &str = env!("CARGO_PKG_VERSION");
const NEXT: &str = "99.0.0";

/// OLM in a cluster.
struct Olm<'a> {
    world: &'a World,
    tools: PathBuf,
    /// The port of the catalog.
    port: u16,
    catalog: Option<Process>,
    _operators: [Process; 2],
}

/// In `operators` with every step, then in kube-system.
async fn olm_installs_upgrades_and_leaves_in_two_namespaces(bench: &Bench) -> anyhow::Result<()> {
    let world = cluster(bench, "packages-olm", 8, Shape::default()).await?;
    let pods = Pods::start(&world);
    {
        let mut olm = Olm::start(&world).await?;
        let life = olm.life().await;
        life.with_context(|| format!("of the Pods: {}", pods.failures()))?;
        olm.in_kube_system().await.with_context(|| format!("of the Pods: {}", pods.failures()))?;
    }
    drop(pods);
    world.stop().await
}

impl<'a> Olm<'a> {
    /// Installs the definitions of OLM and starts its two operators.
    async fn start(world: &'a World) -> anyhow::Result<Self> {
        let tools = go::tools(&world.bench.repository, "olm").await?;
        let module = "github.com/operator-framework/operator-lifecycle-manager";
        let directory = go::directory(&world.bench.repository.join("e2e/tools/olm"), module).await?;
        let definitions = directory.join("deploy/chart/crds").display().to_string();
        let apply = ["apply", "--server-side", "--filename", &definitions];
        world.plane.kubectl(&apply, "").await?.map_err(anyhow::Error::msg)?;
        for name in ["olm", "operators"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            world.client.create(NAMESPACES, "", &namespace).await?;
        }
        // An operator that does not find one of the kinds ends.
        let kinds = std::fs::read_dir(&definitions).context("definitions")?.count();
        wait::value("the kinds of OLM are served", async || {
            let ask =
                ["api-resources", "--api-group", "operators.coreos.com", "--no-headers", "--cached=false"];
            let served = world.plane.kubectl(&ask, "").await?.unwrap_or_default();
            // Operators are served in two versions, and listed once.
            Ok((served.lines().count() >= kinds).then_some(()))
        })
        .await?;
        let kubeconfig = format!("KUBECONFIG={}", world.plane.kubeconfig("admin").display());
        let operator = |name: &str, flags: &[String]| {
            let program = tools.join(name).display().to_string();
            let arguments = [&[kubeconfig.clone(), program][..], flags].concat();
            Process::spawn(Path::new("env"), &format!("olm-{name}"), &arguments, &world.directory)
        };
        // Both would listen on 8080; with certificates the second one takes 8443.
        let file = |name: &str| world.directory.join(name).display().to_string();
        let tls = [
            format!("--tls-cert={}", file("apiserver.crt")),
            format!("--tls-key={}", file("apiserver.key")),
            format!("--client-ca={}", file("ca.crt")),
        ];
        let status = "--writeStatusName=".to_owned();
        let operators = [
            operator("olm", &[status.clone(), "--writePackageServerStatusName=".to_owned()])?,
            operator("catalog", &[&[status, "--namespace=olm".to_owned()][..], &tls].concat())?,
        ];
        Ok(Self { world, tools, port: free_port()?, catalog: None, _operators: operators })
    }

    /// Serves a catalog with these versions, each of which replaces the one before.
    async fn serve(&mut self, versions: &[&str]) -> anyhow::Result<()> {
        if let Some(before) = self.catalog.take() {
            before.kill().await?;
        }
        let directory = self.world.directory.join(format!("catalog-{}", versions.len()));
        std::fs::create_dir_all(&directory).context("catalog")?;
        let opm = self.tools.join("opm");
        let mut text = catalog(&self.world.bench.repository, versions)?;
        let mut before = None;
        for version in versions {
            let bundle = bundle(self.world, version, before)?;
            text += &done(&opm, &["render", &bundle, "--output", "yaml"]).await?;
            before = Some(*version);
        }
        std::fs::write(directory.join("catalog.yaml"), text).context("catalog")?;
        done(&opm, &["validate", &directory.display().to_string()]).await?;
        let arguments = ["serve", "--pprof-addr", "", "--termination-log", "", "--port"].map(str::to_owned);
        let arguments = [&arguments[..], &[self.port.to_string(), directory.display().to_string()]].concat();
        self.catalog = Some(Process::spawn(&opm, "opm", &arguments, &self.world.directory)?);
        Ok(())
    }

    /// Subscribes in a namespace.
    async fn subscribe(&self, namespace: &str) -> anyhow::Result<()> {
        let meta = json!({"name": "dragoman", "namespace": namespace});
        let create = async |collection: &str, kind: &str, version: &str, spec: Value| {
            let api = format!("operators.coreos.com/{version}");
            let object = json!({"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec});
            self.world.client.create(collection, namespace, &object).await
        };
        let address = format!("127.0.0.1:{}", self.port);
        create(CATALOGS, "CatalogSource", "v1alpha1", json!({"sourceType": "grpc", "address": address}))
            .await?;
        // For all namespaces.
        create(GROUPS, "OperatorGroup", "v1", json!({})).await?;
        let spec = json!({"channel": "candidate-v0", "name": "dragoman", "source": "dragoman",
            "sourceNamespace": namespace, "installPlanApproval": "Automatic"});
        create(SUBSCRIPTIONS, "Subscription", "v1alpha1", spec).await?;
        Ok(())
    }

    /// Sets the environment of the operator, as a user of OLM does.
    async fn environment(&self, namespace: &str, variables: &[(&str, &str)]) -> anyhow::Result<()> {
        let env: Vec<Value> =
            variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let patch = json!({"spec": {"config": {"env": env}}});
        self.world.client.merge(SUBSCRIPTIONS, namespace, "dragoman", &patch).await?;
        Ok(())
    }

    /// Waits until a version is installed and the one before is gone; prints how long it took.
    async fn succeeded(&self, namespace: &str, version: &str) -> anyhow::Result<()> {
        let (began, before) = (Instant::now(), self.world.plane.audit().writes());
        let name = format!("dragoman.v{version}");
        let what = format!("ClusterServiceVersion {namespace}/{name} has succeeded");
        let mut last = Value::Null;
        let outcome = wait::value(&what, async || {
            let versions = self.world.client.list(VERSIONS, namespace).await?;
            last = versions
                .iter()
                .map(|one| json!([one["metadata"]["name"], one["status"]["phase"], one["status"]["message"]]))
                .collect();
            let is_alone = versions.len() == 1;
            let found = versions.iter().find(|one| one["metadata"]["name"] == *name);
            Ok(found.filter(|one| is_alone && one["status"]["phase"] == "Succeeded").map(drop))
        })
        .await;
        outcome.with_context(|| format!("{last}"))?;
        let writes = self.world.plane.audit().writes() - before;
        println!(
            "        OLM, {namespace}: {name} after {:.1} s, {writes} writes",
            began.elapsed().as_secs_f32()
        );
        Ok(())
    }

    /// Waits until the leader is in a mode.
    async fn mode(&self, namespace: &str, mode: &str) -> anyhow::Result<()> {
        wait::value(&format!("the leader in {namespace} is in mode {mode}"), async || {
            let lease = self.world.client.get(LEASES, namespace, "dragoman").await?;
            let holder = lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned));
            Ok(holder.filter(|holder| holder.ends_with(&format!("_{mode}"))).map(drop))
        })
        .await
    }

    /// Installed, given mode own by environment and binding, upgraded, left.
    async fn life(&mut self) -> anyhow::Result<()> {
        let (world, ns) = (self.world, "operators");
        self.serve(&[NOW]).await?;
        self.subscribe(ns).await?;
        self.succeeded(ns, NOW).await?;
        self.mode(ns, "assist").await?;

        self.environment(ns, &[("DRAGOMAN_MODE", "own"), ("DRAGOMAN_BORN_PROTECTED", "true")]).await?;
        // The right is given by hand; until then the new Pod is not ready, and the old one stays.
        wait::value("a Pod of mode own names the missing rights", async || {
            let pods = world.client.list(PODS, ns).await?;
            let is_new =
                |pod: &&Value| pod["spec"]["containers"][0]["env"].to_string().contains("DRAGOMAN_MODE");
            let mut unready = pods.iter().filter(is_new).filter_map(unready);
            Ok(unready.find(|why| why.contains("create resourceclaims")).map(drop))
        })
        .await?;
        self.bind(ns, "dragoman-own").await?;
        self.mode(ns, "own").await?;
        self.succeeded(ns, NOW).await?;
        let user = world.namespace("olm").await?;
        world.pod(&user, &Pod::new("pod").with_template("gpu", "one")).await?;
        world.phase(&user, "pod", "Succeeded").await?;

        self.serve(&[NOW, NEXT]).await?;
        self.succeeded(ns, NEXT).await?;
        self.mode(ns, "own").await?;
        world.pod(&user, &Pod::new("after").with_template("gpu", "one")).await?;
        world.phase(&user, "after", "Succeeded").await?;
        world.pod(&user, &Pod::new("waits").with_template("gpu", "one").gated()).await?;
        let claim = world.claim_of(&user, "waits", "gpu").await?;
        ensure!(claim["metadata"]["finalizers"].is_array(), "not born protected: {claim}");
        self.leave(ns, NEXT).await?;
        let name = claim["metadata"]["name"].as_str().context("name")?;
        let claim = world.client.get(CLAIMS, &user, name).await?.context("claim")?;
        ensure!(claim["metadata"]["finalizers"].is_null(), "{claim}");
        Ok(())
    }

    /// In kube-system as well.
    async fn in_kube_system(&mut self) -> anyhow::Result<()> {
        self.serve(&[NOW]).await?;
        self.subscribe("kube-system").await?;
        self.succeeded("kube-system", NOW).await?;
        self.mode("kube-system", "assist").await?;
        self.leave("kube-system", NOW).await
    }

    async fn bind(&self, namespace: &str, role: &str) -> anyhow::Result<()> {
        let account = format!("{namespace}:dragoman");
        let words =
            ["create", "clusterrolebinding", role, "--clusterrole", role, "--serviceaccount", &account];
        self.world.plane.kubectl(&words, "").await?.map_err(anyhow::Error::msg)?;
        Ok(())
    }

    /// The way out that the page of the bundle tells.
    async fn leave(&self, namespace: &str, version: &str) -> anyhow::Result<()> {
        let world = self.world;
        let client = &world.client;
        let kubeconfig = world.plane.kubeconfig("admin").display().to_string();
        let flags = ["--kubeconfig", &kubeconfig, "--namespace", namespace];
        let gating = async |what| done(&world.bench.binary, &[&["gating", what][..], &flags].concat()).await;
        ensure!(gating("on").await?.contains("dragoman-gate is installed"), "no policy");
        ensure!(gating("off").await?.contains("dragoman-gate is removed"), "no policy was there");
        client.delete(SUBSCRIPTIONS, namespace, "dragoman", None).await?;
        client.delete(VERSIONS, namespace, &format!("dragoman.v{version}"), None).await?;
        client.delete(CATALOGS, namespace, "dragoman", None).await?;
        client.delete(GROUPS, namespace, "dragoman", None).await?;
        wait::value("the Pods are gone", async || {
            let pods = client.list(PODS, namespace).await?;
            Ok((!pods.iter().any(is_our_own)).then_some(()))
        })
        .await?;
        let drained = done(&world.bench.binary, &[&["drain"][..], &flags].concat()).await?;
        ensure!(drained.starts_with("finalizer removed from"), "{drained}");
        client.delete(BINDINGS, "", "dragoman-own", None).await?;
        let left = labelled(world, "app.kubernetes.io/name=dragoman").await?;
        let expected = |name: &String| {
            // What OLM does not delete with a ClusterServiceVersion.
            ["CustomResourceDefinition /", "ClusterRole /dragoman-", "PriorityClass /", "Role "]
                .iter()
                .any(|kind| name.starts_with(kind))
        };
        ensure!(left.iter().all(expected), "{left:?}");
        ensure!(client.get(LEASES, namespace, "dragoman").await?.is_none(), "the Lease is left");
        Ok(())
    }
}

/// Why a Pod is not ready.
fn unready(pod: &Value) -> Option<&str> {
    let mut conditions = pod["status"]["conditions"].as_array()?.iter();
    conditions.find(|of| of["type"] == "Ready" && of["status"] == "False")?["message"].as_str()
}

/// The package and the channel of the repository, with an entry for each version.
fn catalog(repository: &Path, versions: &[&str]) -> anyhow::Result<String> {
    let text =
        std::fs::read_to_string(repository.join("config/olm/catalog/package.yaml")).context("catalog")?;
    let mut objects = manifest::parse(&text)?;
    let channel = objects.last_mut().context("channel")?;
    let mut entries = Vec::new();
    let mut before = Value::Null;
    for version in versions {
        let name = json!(format!("dragoman.v{version}"));
        let mut entry = json!({"name": name});
        if !before.is_null() {
            entry["replaces"] = before;
        }
        before = name;
        entries.push(entry);
    }
    channel["entries"] = entries.into();
    let texts: Vec<String> = objects.iter().map(|object| format!("---\n{object}\n")).collect();
    Ok(texts.concat())
}

/// A directory with the bundle of the repository, as another version that replaces one where that is asked for.
fn bundle(world: &World, version: &str, replaces: Option<&str>) -> anyhow::Result<String> {
    let from = world.bench.repository.join("config/olm/bundle");
    let to = world.directory.join(format!("bundle-{version}"));
    for part in ["manifests", "metadata"] {
        std::fs::create_dir_all(to.join(part)).context("bundle")?;
        for entry in std::fs::read_dir(from.join(part)).context("bundle")? {
            let entry = entry?;
            let text = std::fs::read_to_string(entry.path()).context("bundle")?;
            let mut object: Value = serde_saphyr::from_str(&text)?;
            if object["kind"] == "ClusterServiceVersion" {
                object["metadata"]["name"] = json!(format!("dragoman.v{version}"));
                object["spec"]["version"] = json!(version);
                if let Some(before) = replaces {
                    object["spec"]["replaces"] = json!(format!("dragoman.v{before}"));
                    let deployment = &mut object["spec"]["install"]["spec"]["deployments"][0];
                    deployment["spec"]["template"]["spec"]["containers"][0]["image"] =
                        json!(format!("dragoman:{version}"));
                }
            }
            std::fs::write(to.join(part).join(entry.file_name()), object.to_string()).context("bundle")?;
        }
    }
    Ok(to.display().to_string())
}
