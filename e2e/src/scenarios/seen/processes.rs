//! Alerts about the processes: the Lease, watches, memory, a slow API server, a second writer.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::OnCall;
use super::incident::Seen;
use crate::client::{LEASES, NAMESPACES};
use crate::control_plane::Shape;
use crate::dragoman::Dragoman;
use crate::objects::Pod;
use crate::proxy::{Harm, Proxy};
use crate::scenarios::{NotRun, faults};
use crate::wait;
use crate::world::{Bench, World};

const DEPLOYMENTS: &str = "/apis/apps/v1/{}/deployments";

/// Brings about one incident after the other.
pub(super) async fn incidents(bench: &Bench) -> anyhow::Result<Seen> {
    let world = World::start(bench, "seen-processes", Shape::default(), 1, 32).await?;
    let proxy = Proxy::start(world.plane.client("operator").await?.kube).await?;
    let on_call = OnCall::start(&world).await?;
    let stage =
        Stage { kubeconfig: proxy.kubeconfig(&world.directory)?, proxy, world: &world, on_call: &on_call };
    let operator = stage.operator().await?;
    on_call.quiet().await?;
    stage.watch_fails(&operator).await?;
    stage.api_server_is_slow(&operator).await?;
    stage.memory(&operator).await?;
    let operator = stage.second_writer(operator).await?;
    stage.leader_elsewhere().await?;
    let operator = stage.lease_flaps(operator).await?;
    let operator = stage.nothing_runs(operator).await?;
    let operator = stage.no_leader(operator).await?;
    stage.kind_is_not_served().await?;
    stage.watch_is_blind(&operator).await?;
    on_call.quiet().await?;
    operator.stop().await?;
    drop(stage);
    let seen = on_call.stop().await?;
    world.stop().await?;
    Ok(seen)
}

/// The cluster, the operator's way to it, and the person on call.
struct Stage<'a> {
    world: &'a World,
    proxy: Proxy,
    kubeconfig: PathBuf,
    on_call: &'a OnCall<'a>,
}

impl Stage<'_> {
    /// Starts the operator, and scrapes it under the name of its Pod.
    async fn operator(&self) -> anyhow::Result<Dragoman> {
        let operator = self.world.dragoman_as(self.kubeconfig.clone(), "own", &[]).await?;
        self.on_call.prometheus.scrape("dragoman-0", operator.admin_port()).await?;
        Ok(operator)
    }

    async fn anew(&self, operator: Dragoman) -> anyhow::Result<Dragoman> {
        operator.stop().await?;
        self.operator().await
    }

    /// No alert is about a watch that fails for a moment; a dashboard shows it.
    async fn watch_fails(&self, operator: &Dragoman) -> anyhow::Result<()> {
        self.proxy.harm(Some(Harm::Refuse { paths: vec!["/resourceclaims"] }));
        self.proxy.cut_watches();
        wait::value("a watch has failed", async || {
            Ok((operator.metric("dragoman_watch_failures_total", &[]).await? > 0.0).then_some(()))
        })
        .await?;
        self.proxy.harm(None);
        Ok(())
    }

    /// A right is taken away: watches that are open go on until they are renewed, and then nothing comes any more.
    async fn watch_is_blind(&self, operator: &Dragoman) -> anyhow::Result<()> {
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        let role = self.world.client.get(roles, "", "dragoman-observe").await?.context("role")?;
        let rules = role["rules"].as_array().context("rules")?.iter();
        let fewer: Vec<_> = rules.filter(|rule| rule["resources"][0] != "resourceclaimtemplates").collect();
        ensure!(fewer.len() + 1 == role["rules"].as_array().map_or(0, Vec::len), "{role}");
        self.world.client.merge(roles, "", "dragoman-observe", &json!({"rules": fewer})).await?;
        let admin = address(operator);
        let names = [("RESOURCE", "resourceclaimtemplates"), ("OVERLAY", "config/own"), ("ADMIN", &admin)];
        self.on_call.ends("DragomanWatchBlind", &names, "missing rights: list resourceclaimtemplates").await
    }

    /// A definition is deleted.
    async fn kind_is_not_served(&self) -> anyhow::Result<()> {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.world.client.delete(definitions, "", "devicefootprints.dragoman.dev", None).await?;
        self.on_call.ends("DragomanKindNotServed", &[], "devicefootprints").await
    }

    /// One cause, two alerts: Pods come and go while every request of the operator takes its time.
    async fn api_server_is_slow(&self, operator: &Dragoman) -> anyhow::Result<()> {
        const PODS_AT_ONCE: usize = 20;
        let ns = self.world.namespace("slow").await?;
        let names =
            |prefix: &str| -> Vec<String> { (0..PODS_AT_ONCE).map(|n| format!("{prefix}-{n}")).collect() };
        let (ending, coming) = (names("ending"), names("coming"));
        for name in &ending {
            self.world.pod(&ns, &Pod::new(name).with_template("gpu", "one").held()).await?;
        }
        for name in &ending {
            self.world.phase(&ns, name, "Running").await?;
        }
        self.proxy.harm(Some(Harm::Delay { by: Duration::from_secs(6) }));
        // All at once: the rules look at the last seconds.
        let ends = ending.iter().map(|ending| self.world.let_end(&ns, ending));
        let comes = coming.iter().map(async |coming| {
            let pod = Pod::new(coming).with_template("gpu", "one").gated();
            self.world.pod(&ns, &pod).await.map(drop)
        });
        futures::try_join!(futures::future::try_join_all(ends), futures::future::try_join_all(comes))?;
        let admin = address(operator);
        let names = [("CPU", "500m"), ("ADMIN", admin.as_str())];
        futures::try_join!(
            self.on_call.answer("DragomanClaimsPublishedSlowly", &names, "after"),
            self.on_call.answer("DragomanClaimsReleasedSlowly", &names, "after"),
        )?;
        self.proxy.harm(None);
        self.on_call.ended("DragomanClaimsPublishedSlowly").await?;
        self.on_call.ended("DragomanClaimsReleasedSlowly").await
    }

    /// The process is put into a cgroup with a limit close above what it takes, as a container has one.
    async fn memory(&self, operator: &Dragoman) -> anyhow::Result<()> {
        let group = Group::new()?;
        let resident = operator.metric("process_resident_memory_bytes", &[]).await?;
        group.limit(resident * 1.1)?;
        group.take(operator.pid().context("it has ended")?)?;
        self.on_call
            .answer("DragomanMemoryNearLimit", &[("DEPLOYMENT", "dragoman"), ("LIMIT", "1Gi")], "384Mi")
            .await?;
        group.limit(resident * 4.0)?;
        self.on_call.ended("DragomanMemoryNearLimit").await
    }

    /// The built-in controller is still on.
    async fn second_writer(&self, operator: Dragoman) -> anyhow::Result<Dragoman> {
        let ns = self.world.namespace("second").await?;
        let built_in = self.world.plane.claim_controller(&self.world.plane.kubeconfig("admin"))?;
        let mut number = 0;
        wait::value("the second writer is noticed", async || {
            // The look writes: each Pod is one more that shows the second writer.
            number += 1;
            let name = format!("pod-{number}");
            self.world.pod(&ns, &Pod::new(&name).with_template("gpu", "one").gated()).await?;
            self.world.claim_of(&ns, &name, "gpu").await?;
            Ok((operator.metric("dragoman_second_writer", &[]).await? > 0.0).then_some(()))
        })
        .await?;
        self.on_call.answer("DragomanSecondWriter", &[], "kube-controller-manager").await?;
        built_in.stop().await?;
        let operator = self.anew(operator).await?;
        self.on_call.ended("DragomanSecondWriter").await?;
        Ok(operator)
    }

    async fn leader_elsewhere(&self) -> anyhow::Result<()> {
        let ns = self.world.namespace("elsewhere").await?;
        faults::may_lead_in(self.world, &ns).await?;
        let shipped =
            self.world.client.get(DEPLOYMENTS, "kube-system", "dragoman").await?.context("Deployment")?;
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "dragoman", "labels": shipped["metadata"]["labels"]}, "spec": shipped["spec"]});
        self.world.client.create(DEPLOYMENTS, &ns, &deployment).await?;
        let second = self.world.dragoman("own", &["--namespace", &ns]).await?;
        self.on_call.answer("DragomanLeaderElsewhere", &[("NAMESPACE", &ns)], "elsewhere").await?;
        // No Pod of that Deployment runs here: this process is in its place.
        second.stop().await?;
        self.on_call.ended("DragomanLeaderElsewhere").await
    }

    async fn lease_flaps(&self, mut operator: Dragoman) -> anyhow::Result<Dragoman> {
        for _ in 0..6 {
            operator = self.anew(operator).await?;
        }
        self.on_call
            .ends("DragomanLeaderFlapping", &[("DEPLOYMENT", "dragoman"), ("LIMIT", "1Gi")], "changes")
            .await?;
        Ok(operator)
    }

    async fn nothing_runs(&self, operator: Dragoman) -> anyhow::Result<Dragoman> {
        operator.stop().await?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monitoring"}});
        self.world.client.create(NAMESPACES, "", &namespace).await?;
        self.on_call.answer("DragomanAbsent", &[("MONITORING", "monitoring")], "0/2").await?;
        let operator = self.operator().await?;
        self.on_call.ended("DragomanAbsent").await?;
        Ok(operator)
    }

    /// A process that is gone holds the Lease for an hour.
    async fn no_leader(&self, operator: Dragoman) -> anyhow::Result<Dragoman> {
        operator.stop().await?;
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
        let held = json!({"spec": {"holderIdentity": "gone", "leaseDurationSeconds": 3600,
            "acquireTime": now, "renewTime": now}});
        self.world.client.merge(LEASES, "kube-system", "dragoman", &held).await?;
        let start = self.world.start_of(self.kubeconfig.clone(), "own", &[]);
        let operator = Dragoman::spawn(&start)?;
        self.on_call.prometheus.scrape("dragoman-0", operator.admin_port()).await?;
        self.on_call.ends("DragomanNoLeader", &[("LEASE", "dragoman")], "gone since").await?;
        ensure!(operator.readiness().await?.0 == 200, "it is not ready");
        Ok(operator)
    }
}

/// The address of a process for the commands of runbooks; no kubelet forwards a port here.
pub(super) fn address(process: &Dragoman) -> String {
    format!("http://127.0.0.1:{}", process.admin_port())
}

/// A cgroup for one process, with a memory limit. It goes with the last process that is in it.
struct Group {
    directory: PathBuf,
    limit: &'static str,
}

impl Group {
    /// # Errors
    /// Not run where cgroups cannot be made.
    fn new() -> anyhow::Result<Self> {
        let first = PathBuf::from("/sys/fs/cgroup/memory");
        let (root, limit) = if first.is_dir() {
            (first, "memory.limit_in_bytes")
        } else {
            (PathBuf::from("/sys/fs/cgroup"), "memory.max")
        };
        let directory = root.join(format!("dragoman-e2e-{}", std::process::id()));
        let made = std::fs::create_dir_all(&directory);
        made.map_err(|error| NotRun(format!("{}: {error}", directory.display())))?;
        Ok(Self { directory, limit })
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes")]
    fn limit(&self, bytes: f64) -> anyhow::Result<()> {
        std::fs::write(self.directory.join(self.limit), (bytes as u64).to_string()).context("limit")
    }

    fn take(&self, pid: u32) -> anyhow::Result<()> {
        std::fs::write(self.directory.join("cgroup.procs"), pid.to_string()).context("cgroup")
    }
}
