//! The life of a Helm release on a real control plane, with the real binary under the rights and arguments of the
//! chart.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::pods::Pods;
use super::{IMAGE, cluster, done, labelled, said};
use crate::client::{CLAIMS, FOOTPRINTS, PODS};
use crate::control_plane::Shape;
use crate::go;
use crate::objects::Pod;
use crate::scenarios::{Standalone, ledger, standalone};
use crate::wait;
use crate::world::{Bench, World, claim_name};

pub(super) fn all() -> Vec<Standalone> {
    vec![standalone!(a_helm_release_is_installed_upgraded_rolled_back_and_leaves_nothing)]
}

const RELEASE: &str = "app.kubernetes.io/instance=dragoman";
const STATES: &str = "/apis/dragoman.dev/v1alpha1/nodeallocatabledraclaimstates";
/// Everything: the life of claims, gates, holder Pods, our allocator.
const EVERYTHING: &str = "mode=own,gating.enabled=true,holders.enabled=true,allocator.enabled=true";

/// Helm in the cluster.
pub(super) struct Helm<'a> {
    world: &'a World,
    pods: &'a Pods,
    program: PathBuf,
    namespace: &'static str,
}

/// The kinds of ours: their definitions stay.
const KINDS: usize = 4;

impl<'a> Helm<'a> {
    pub(super) async fn new(world: &'a World, pods: &'a Pods) -> anyhow::Result<Self> {
        let program = go::tools(&world.bench.repository, "helm").await?.join("helm");
        Ok(Self { world, pods, program, namespace: "kube-system" })
    }

    /// Runs a command that waits for what it installs; prints how long it took and what was written.
    pub(super) async fn run(&self, words: &[&str], values: &str) -> anyhow::Result<String> {
        let kubeconfig = self.world.plane.kubeconfig("admin").display().to_string();
        let mut arguments = vec!["--kubeconfig", &kubeconfig, "--namespace", self.namespace];
        arguments.extend(words);
        if let Some(&("install" | "upgrade")) = words.first() {
            arguments.extend(IMAGE);
        }
        if !values.is_empty() {
            arguments.extend(["--set", values]);
        }
        arguments.extend(["--wait", "--timeout", "15m"]);
        let (began, before) = (Instant::now(), self.world.plane.audit().writes());
        let outcome = done(&self.program, &arguments).await;
        let text = outcome.with_context(|| format!("of the Pods: {}", self.pods.failures()))?;
        let writes = self.world.plane.audit().writes() - before;
        println!("        helm {}: {:.1} s, {writes} writes", words.join(" "), began.elapsed().as_secs_f32());
        Ok(text)
    }

    /// The chart as it is shipped.
    pub(super) async fn archive(&self) -> anyhow::Result<String> {
        let directory = self.world.directory.display().to_string();
        let chart = self.world.bench.repository.join("config/helm/dragoman").display().to_string();
        done(&self.program, &["package", &chart, "--destination", &directory]).await?;
        Ok(format!("{directory}/dragoman-{}.tgz", env!("CARGO_PKG_VERSION")))
    }
}

/// Installed to observe, upgraded to everything, rolled back, upgraded again and left, while Pods live.
async fn a_helm_release_is_installed_upgraded_rolled_back_and_leaves_nothing(
    bench: &Bench,
) -> anyhow::Result<()> {
    let mut world = cluster(bench, "packages-helm", 8, Shape::default()).await?;
    let pods = Pods::start(&world);
    {
        let helm = Helm::new(&world, &pods).await?;
        let archive = helm.archive().await?;
        let notes = helm.run(&["install", "dragoman", &archive], "mode=observe").await?;
        ensure!(notes.contains("runs in namespace kube-system in mode observe"), "{notes}");
        let ns = world.namespace("helm").await?;
        let waits = Pod::new("waits").with_template("gpu", "one");
        world.pod(&ns, &waits).await?;
        observes(&world, &ns, "waits").await?;

        let notes = helm.run(&["upgrade", "dragoman", &archive], EVERYTHING).await?;
        ensure!(notes.contains("--controllers=*,-resourceclaim-controller"), "{notes}");
        world.phase(&ns, "waits", "Succeeded").await?;
        gated_life(&world, "helm-gated").await?;
        second_release_is_refused(&helm, &archive).await?;

        // Revision 1 only observes, and has the rights for that.
        helm.run(&["rollback", "dragoman", "1"], "").await?;
        let bindings = labelled(&world, RELEASE).await?;
        ensure!(!bindings.contains(&"ClusterRoleBinding /dragoman-own".to_owned()), "{bindings:?}");
        world.pod(&ns, &Pod::new("again").with_template("gpu", "one")).await?;
        observes(&world, &ns, "again").await?;

        helm.run(&["upgrade", "dragoman", &archive], &format!("{EVERYTHING},extraArgs={{--born-protected}}"))
            .await?;
        world.phase(&ns, "again", "Succeeded").await?;
        leaving(&helm).await?;
    }
    world.plane.restart_controllers(true).await?;
    let ns = world.namespace("after").await?;
    world.pod(&ns, &Pod::new("pod").with_template("gpu", "one")).await?;
    world.phase(&ns, "pod", "Succeeded").await?;
    world.claims(&ns, 0).await?;
    drop(pods);
    world.stop().await
}

/// An operator that observes reports a Pod without a claim, and makes none.
async fn observes(world: &World, namespace: &str, pod: &str) -> anyhow::Result<()> {
    wait::value("the operator observes", async || {
        let leases = "/apis/coordination.k8s.io/v1/{}/leases";
        let lease = world.client.get(leases, "kube-system", "dragoman").await?;
        let holder = lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned));
        Ok(holder.filter(|holder| holder.ends_with("_observe")))
    })
    .await?;
    world.rest(namespace).await?;
    let found = world.client.get(PODS, namespace, pod).await?.context("Pod")?;
    ensure!(claim_name(&found, "gpu").is_none(), "it has a claim: {found}");
    Ok(())
}

/// A gated Pod gets its devices from our allocator, and ends.
async fn gated_life(world: &World, name: &str) -> anyhow::Result<()> {
    let ns = super::super::gated_namespace(world, name).await?;
    let pod = world.pod(&ns, &Pod::new("gated").with_template("device", "one")).await?;
    ensure!(pod["spec"]["schedulingGates"][0]["name"] == "dragoman.dev/claims", "it has no gate: {pod}");
    world.phase(&ns, "gated", "Succeeded").await?;
    let allocators = world.plane.audit().entries(&ns);
    ensure!(allocators.iter().any(|entry| entry.party() == "allocator"), "the allocator wrote nothing");
    Ok(())
}

/// One cluster has one Dragoman: Helm says whose the objects are.
async fn second_release_is_refused(helm: &Helm<'_>, archive: &str) -> anyhow::Result<()> {
    let kubeconfig = helm.world.plane.kubeconfig("admin").display().to_string();
    let arguments = ["--kubeconfig", &kubeconfig, "--namespace", "default", "install", "second", archive];
    let Err(said) = said(&helm.program, &[&arguments[..], &IMAGE].concat()).await? else {
        anyhow::bail!("it is installed twice")
    };
    ensure!(said.contains("exists and cannot be imported"), "{said}");
    Ok(())
}

fn is_holder(pod: &Value) -> bool {
    pod["metadata"]["labels"]["app.kubernetes.io/component"] == "holder"
}

/// Uninstalls the release while a claim is born protected, a claim is in use, and a Pod has the gate.
async fn leaving(helm: &Helm<'_>) -> anyhow::Result<()> {
    let world = helm.world;
    let ns = super::super::gated_namespace(world, "leaving").await?;
    // Each device takes cpus, so that there are ledgers and holder Pods.
    world.client.create(FOOTPRINTS, "", &ledger::footprint("cores", "3")).await?;
    let uses = Pod::new("uses").with_template("device", "one").held();
    world.pod(&ns, &uses).await?;
    let uses = world.phase(&ns, "uses", "Running").await?;
    let holders = async || {
        let pods = world.client.list(PODS, "kube-system").await?;
        Ok::<_, anyhow::Error>(pods.iter().filter(|pod| is_holder(pod)).count())
    };
    wait::value("a holder Pod holds what the claim takes, and a ledger says it", async || {
        let ledgers = world.client.list(STATES, "").await?;
        Ok((holders().await? == 1 && !ledgers.is_empty()).then_some(()))
    })
    .await?;
    // Its claim is made, and no node takes it: its gate stays closed.
    let mut waits = Pod::new("waits").with_template("device", "one").object().clone();
    waits["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "nowhere"});
    world.client.create(PODS, &ns, &waits).await?;
    let claim = world.claim_of(&ns, "waits", "device").await?;
    ensure!(claim["metadata"]["finalizers"].is_array(), "not born protected: {claim}");

    // A Job that fails deletes nothing, and the next one does.
    let quota = ["create", "quota", "no-jobs", "--hard=count/jobs.batch=0", "--namespace", "kube-system"];
    world.plane.kubectl(&quota, "").await?.map_err(anyhow::Error::msg)?;
    wait::value("the quota counts Jobs", async || {
        let quota = world.client.get("/api/v1/{}/resourcequotas", "kube-system", "no-jobs").await?;
        Ok(quota.filter(|quota| quota["status"]["used"]["count/jobs.batch"].is_string()))
    })
    .await?;
    let refused = helm.run(&["uninstall", "dragoman"], "").await;
    let Err(complaint) = refused else { anyhow::bail!("it is uninstalled without its Job") };
    ensure!(format!("{complaint:#}").contains("exceeded quota: no-jobs"), "{complaint:#}");
    ensure!(labelled(world, RELEASE).await?.len() > 30, "something is deleted");
    world.client.delete("/api/v1/{}/resourcequotas", "kube-system", "no-jobs", None).await?;
    helm.run(&["uninstall", "dragoman"], "").await?;
    // Pods go after their Deployment or Job: the garbage collector deletes them.
    for selector in [RELEASE, "app.kubernetes.io/name in (dragoman,dragoman-allocator,dragoman-drain)"] {
        wait::value("only definitions are left", async || {
            let left = labelled(world, selector).await?;
            let are_definitions = left.iter().all(|name| name.starts_with("CustomResourceDefinition"));
            Ok((are_definitions && left.len() == KINDS).then_some(()))
        })
        .await?;
    }
    ensure!(world.client.list(STATES, "").await?.is_empty(), "ledgers are left");
    ensure!(holders().await? == 0, "a holder Pod is left");
    let leases = world.client.list("/apis/coordination.k8s.io/v1/{}/leases", "kube-system").await?;
    let names: Vec<&Value> = leases.iter().map(|lease| &lease["metadata"]["name"]).collect();
    ensure!(
        !names.iter().any(|name| name.as_str().is_some_and(|name| name.starts_with("dragoman"))),
        "{names:?}"
    );
    let waits = world.client.get(PODS, &ns, "waits").await?.context("Pod")?;
    ensure!(waits["spec"]["schedulingGates"].is_null(), "it keeps the gate: {waits}");
    let claim = world.client.get(CLAIMS, &ns, claim["metadata"]["name"].as_str().context("name")?).await?;
    let claim = claim.context("the claim of a Pod that waits is gone")?;
    ensure!(claim["metadata"]["finalizers"].is_null(), "{claim}");
    // What runs is left alone.
    let name = claim_name(&uses, "device").context("claim")?;
    let claim = world.client.get(CLAIMS, &ns, &name).await?.context("claim")?;
    ensure!(claim["status"]["reservedFor"][0]["name"] == "uses", "{claim}");
    Ok(())
}
