//! A real control plane on loopback: etcd, kube-apiserver, kube-scheduler,
//! kube-controller-manager, with certificates, RBAC and an audit log of writes.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Release;
use super::audit::{self, Audit};
use super::pki::Pki;
use super::process::{Process, free_port};
use super::programs::Programs;
use super::scheduler::PROTOBUF;
use super::{ALLOCATOR, Election, Garbage, OPERATOR, Scheduling, Shape, Workloads};
use crate::client::{Client, LEASES, plain_http};

/// A running control plane.
pub struct Real {
    shape: Shape,
    programs: Programs,
    directory: PathBuf,
    pki: Pki,
    etcd_port: u16,
    port: u16,
    etcd: Option<Process>,
    apiserver: Option<Process>,
    scheduler: Option<Process>,
    controllers: Option<Process>,
}

impl Real {
    /// Starts one; `directory` must not exist and receives logs and state.
    pub async fn start(repository: &Path, directory: &Path, shape: Shape) -> anyhow::Result<Self> {
        let programs = Programs::provide(repository, shape.release).await?;
        std::fs::create_dir_all(directory).context("directory")?;
        let pki = Pki::create(directory)?;
        let mut plane = Self {
            shape,
            programs,
            directory: directory.to_owned(),
            pki,
            etcd_port: free_port()?,
            port: free_port()?,
            etcd: None,
            apiserver: None,
            scheduler: None,
            controllers: None,
        };
        let server = plane.server();
        plane.pki.kubeconfig("admin", &server, "admin", &["system:masters"])?;
        plane.pki.kubeconfig("scheduler", &server, "system:kube-scheduler", &[])?;
        plane.pki.kubeconfig("controllers", &server, "system:kube-controller-manager", &[])?;
        plane.pki.kubeconfig("operator", &server, OPERATOR, &["system:serviceaccounts"])?;
        plane.pki.kubeconfig("allocator", &server, ALLOCATOR, &["system:serviceaccounts"])?;
        plane.pki.kubeconfig("kubelet", &server, "kubelet", &["system:masters"])?;
        plane.pki.kubeconfig("node", &server, "system:node:node-0", &["system:nodes"])?;
        plane.start_etcd()?;
        plane.start_apiserver().await?;
        plane.start_controllers()?;
        plane.start_scheduler()?;
        Ok(plane)
    }

    fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The kubeconfig of `admin`, `operator`, `allocator` or `kubelet`.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.pki.path(&format!("{user}.kubeconfig"))
    }

    /// Host and port of the API server.
    pub fn address(&self) -> (String, u16) {
        ("127.0.0.1".to_owned(), self.port)
    }

    /// A client as `user`.
    pub async fn client(&self, user: &str) -> anyhow::Result<Client> {
        Client::from_kubeconfig(&self.kubeconfig(user)).await
    }

    /// The audit log.
    pub fn audit(&self) -> Audit {
        Audit::File(self.directory.join("audit.log"))
    }

    /// Pids of the programs, by name.
    pub fn pids(&self) -> Vec<(&'static str, u32)> {
        [
            ("etcd", &self.etcd),
            ("kube-apiserver", &self.apiserver),
            ("kube-scheduler", &self.scheduler),
            ("kube-controller-manager", &self.controllers),
        ]
        .into_iter()
        .filter_map(|(name, process)| Some((name, process.as_ref()?.pid()?)))
        .collect()
    }

    /// The path of one of the programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.path(name)
    }

    fn start_etcd(&mut self) -> anyhow::Result<()> {
        let peer = free_port()?;
        let url = |port| format!("http://127.0.0.1:{port}");
        let arguments = vec![
            format!("--data-dir={}", self.directory.join("etcd").display()),
            format!("--listen-client-urls={}", url(self.etcd_port)),
            format!("--advertise-client-urls={}", url(self.etcd_port)),
            format!("--listen-peer-urls={}", url(peer)),
            format!("--initial-advertise-peer-urls={}", url(peer)),
            format!("--initial-cluster=default={}", url(peer)),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        self.etcd = Some(self.spawn("etcd", &arguments)?);
        Ok(())
    }

    async fn start_apiserver(&mut self) -> anyhow::Result<()> {
        let policy = self.pki.path("audit-policy.yaml");
        std::fs::write(&policy, audit::POLICY).context("audit policy")?;
        let file = |name: &str| self.pki.path(name).display().to_string();
        let mut arguments = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port),
            format!("--tls-cert-file={}", file("apiserver.crt")),
            format!("--tls-private-key-file={}", file("apiserver.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("sa.pub")),
            format!("--service-account-signing-key-file={}", file("sa.key")),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            // Pods and claims are created faster here than by any real cluster.
            "--max-mutating-requests-inflight=1000".to_owned(),
            "--max-requests-inflight=2000".to_owned(),
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", self.directory.join("audit.log").display()),
            "--audit-log-maxsize=4000".to_owned(),
            "--audit-log-mode=blocking".to_owned(),
            "--shutdown-delay-duration=0s".to_owned(),
        ];
        if self.shape.pod_groups {
            let version = self.shape.release.pod_groups();
            arguments.push(format!("--runtime-config=scheduling.k8s.io/{version}=true"));
        }
        if self.shape.workloads == Workloads::OnRealNode {
            arguments.extend([
                format!("--kubelet-client-certificate={}", file("admin.crt")),
                format!("--kubelet-client-key={}", file("admin.key")),
                "--kubelet-preferred-address-types=InternalIP".to_owned(),
                "--enable-admission-plugins=NodeRestriction".to_owned(),
            ]);
        }
        if crate::node::is_inside() {
            // The only network there has no default route.
            arguments.push(format!("--advertise-address={}", crate::node::ADDRESS));
        }
        if !self.shape.accounts {
            arguments.push("--disable-admission-plugins=ServiceAccount".to_owned());
        }
        arguments.extend(self.shape.gates());
        arguments.extend(self.shape.emulation());
        let mut apiserver = self.spawn("kube-apiserver", &arguments)?;
        let admin = self.client("admin").await?;
        let ready = async || admin.text("/readyz").await.is_ok_and(|text| text == "ok");
        apiserver.until("the API server is ready", ready).await?;
        self.apiserver = Some(apiserver);
        Ok(())
    }

    fn start_scheduler(&mut self) -> anyhow::Result<()> {
        if self.shape.scheduler == Scheduling::Absent {
            return Ok(());
        }
        self.scheduler = Some(self.shape.start_scheduler(&self.programs, &self.directory, PROTOBUF)?);
        Ok(())
    }

    fn start_controllers(&mut self) -> anyhow::Result<()> {
        let kubeconfig = self.kubeconfig("controllers").display().to_string();
        let file = |name: &str| self.pki.path(name).display().to_string();
        let mut controllers = vec![
            "garbage-collector-controller",
            "namespace-controller",
            "serviceaccount-controller",
            "resourcequota-controller",
        ];
        if self.shape.built_in {
            controllers.push("resourceclaim-controller");
        }
        if self.shape.workloads != Workloads::OfScenarios {
            controllers.extend(["deployment-controller", "replicaset-controller", "job-controller"]);
        }
        // The Leases of nodes that do not exist are not renewed.
        if self.shape.workloads == Workloads::OnRealNode {
            controllers.extend([
                "node-lifecycle-controller",
                "taint-eviction-controller",
                "pod-garbage-collector-controller",
                "disruption-controller",
            ]);
        }
        if self.shape.accounts {
            controllers.extend(["root-ca-certificate-publisher-controller", "daemonset-controller"]);
        }
        controllers.extend(self.shape.controllers);
        if self.shape.pod_groups {
            controllers.push("podgroup-protection-controller");
        }
        if self.shape.release == Release::V1_37 {
            controllers.push("device-taint-eviction-controller");
        }
        let mut arguments = self.shape.controllers(&kubeconfig, &controllers)?;
        arguments.extend([
            "--use-service-account-credentials".to_owned(),
            format!("--service-account-private-key-file={}", file("sa.key")),
            format!("--root-ca-file={}", file("ca.crt")),
        ]);
        self.controllers = Some(self.spawn("kube-controller-manager", &arguments)?);
        Ok(())
    }

    /// Starts the controllers anew, with or without the built-in claim controller.
    pub async fn restart_controllers(&mut self, built_in: bool) -> anyhow::Result<()> {
        if let Some(process) = self.controllers.take() {
            process.stop().await?;
        }
        self.shape.built_in = built_in;
        self.start_controllers()
    }

    /// Kills kube-scheduler, and starts it again. The Lease of the killed process would have to run out first.
    pub async fn restart_scheduler(&mut self) -> anyhow::Result<()> {
        if let Some(process) = self.scheduler.take() {
            process.kill().await?;
        }
        if self.shape.election == Election::Lease {
            self.client("admin").await?.delete(LEASES, "kube-system", "kube-scheduler", None).await?;
        }
        self.start_scheduler()
    }

    /// Starts the built-in claim controller by itself, as the user of a kubeconfig.
    pub fn claim_controller(&self, kubeconfig: &Path) -> anyhow::Result<Process> {
        let kubeconfig = kubeconfig.display().to_string();
        let arguments = self.shape.controllers(&kubeconfig, &["resourceclaim-controller"])?;
        let program = self.program("kube-controller-manager");
        Process::spawn(&program, "claim-controller", &arguments, &self.directory)
    }

    /// Starts the API server anew, changed.
    pub async fn restart_apiserver(&mut self, change: impl FnOnce(&mut Shape)) -> anyhow::Result<()> {
        if let Some(process) = self.apiserver.take() {
            process.kill().await?;
        }
        change(&mut self.shape);
        self.start_apiserver().await
    }

    /// Has etcd forget all old versions, and the API server all past events with its cache.
    pub async fn forget_history(&mut self) -> anyhow::Result<()> {
        let said = self.ask_etcd("kv/range", &json!({"key": "AA=="})).await?;
        let revision = said["header"]["revision"].as_str().context("etcd says no revision")?.to_owned();
        self.ask_etcd("kv/compaction", &json!({"revision": revision, "physical": true})).await?;
        self.restart_apiserver(|_| {}).await
    }

    /// Where a copy of the store is kept.
    fn backup(&self) -> PathBuf {
        self.directory.join("etcd-backup")
    }

    /// Copies the store, while etcd is stopped for a moment.
    pub async fn back_up(&mut self) -> anyhow::Result<()> {
        if let Some(process) = self.etcd.take() {
            process.stop().await?;
        }
        copy(&self.directory.join("etcd"), &self.backup())?;
        self.start_etcd()
    }

    /// Stops the API server, and puts the copy in the place of the store.
    pub async fn lose_the_store(&mut self) -> anyhow::Result<()> {
        for process in [self.apiserver.take(), self.etcd.take()].into_iter().flatten() {
            process.kill().await?;
        }
        let store = self.directory.join("etcd");
        std::fs::remove_dir_all(&store).context("etcd data")?;
        std::fs::rename(self.backup(), &store).context("etcd data")
    }

    /// Starts what [`Self::lose_the_store`] has stopped.
    pub async fn restore(&mut self) -> anyhow::Result<()> {
        self.start_etcd()?;
        self.start_apiserver().await
    }

    async fn ask_etcd(&self, what: &str, body: &Value) -> anyhow::Result<Value> {
        let request = http::Request::post(format!("/v3/{what}")).body(body.to_string())?;
        let (_, answer) = plain_http(self.etcd_port, request).await?;
        serde_json::from_str(&answer).with_context(|| format!("etcd: {answer}"))
    }

    fn spawn(&self, program: &str, arguments: &[String]) -> anyhow::Result<Process> {
        // A collector that lets the heap grow to five times what lives took a quarter off the processor time of five scenarios (70 to
        // 53 s).
        let variable = (self.shape.garbage == Garbage::Seldom).then_some(("GOGC", "400"));
        Process::spawn_with(&self.program(program), program, arguments, &self.directory, variable)
    }

    /// Stops everything. The API server would drain for a minute; nothing is worth
    /// that here.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        for process in
            [self.scheduler.take(), self.controllers.take(), self.apiserver.take(), self.etcd.take()]
                .into_iter()
                .flatten()
        {
            process.kill().await?;
        }
        std::fs::remove_dir_all(self.directory.join("etcd")).context("etcd data")
    }
}

/// Copies a directory with all that is in it.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to).context("a copy")?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry.context("an entry")?;
        let target = to.join(entry.file_name());
        if entry.file_type().context("an entry")?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target).with_context(|| target.display().to_string())?;
        }
    }
    Ok(())
}
