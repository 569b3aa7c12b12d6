//! The Helm chart without a cluster: what it renders, what it refuses, and what its page says.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{IMAGE, copied, done, said};
use crate::control_plane::{Programs, Release};
use crate::go;
use crate::manifest;
use crate::scenarios::{Standalone, standalone};
use crate::world::Bench;

pub(super) fn all() -> Vec<Standalone> {
    vec![
        standalone!(chart_and_overlays_render_the_same_objects),
        standalone!(in_another_namespace_the_chart_names_that_everywhere),
        standalone!(the_chart_refuses_wrong_values_and_says_which),
        standalone!(the_page_of_the_chart_tells_every_value),
        standalone!(a_release_names_its_image_by_digest_everywhere),
    ]
}

/// A release, and the overlay that has the same objects.
struct Same {
    components: &'static [&'static str],
    values: &'static str,
}

const RELEASES: &[Same] = &[
    Same { components: &[], values: "mode=auto" },
    Same { components: &["own"], values: "mode=own" },
    Same {
        components: &["own", "gating", "holders", "allocator"],
        values: "mode=own,gating.enabled=true,holders.enabled=true,allocator.enabled=true",
    },
    Same {
        components: &["own", "gating", "delete-unbound"],
        values: "mode=own,gating.enabled=true,deleteUnbound.enabled=true",
    },
    Same { components: &["guarded-metrics"], values: "metrics.tls.enabled=true" },
    Same { components: &["rules", "dashboards"], values: "rules.enabled=true,dashboards.enabled=true" },
    Same {
        components: &["own", "gating", "holders", "allocator", "guarded-metrics"],
        values: "mode=own,gating.enabled=true,holders.enabled=true,allocator.enabled=true,metrics.tls.enabled=true",
    },
];

/// The labels that a chart adds.
const LABELS: [&str; 4] = [
    "helm.sh/chart",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
];

/// Renders every release and the overlay beside it. What differs is taken out by [`plain`], and nothing else.
async fn chart_and_overlays_render_the_same_objects(bench: &Bench) -> anyhow::Result<()> {
    let helm = go::tools(&bench.repository, "helm").await?.join("helm");
    let kubectl = Programs::provide(&bench.repository, Release::default()).await?.path("kubectl");
    let directory = copied(bench, "packages-chart").await?;
    let chart = directory.join("config/helm/dragoman").display().to_string();
    done(&helm, &["lint", "--strict", &chart]).await?;
    let mut counts = Vec::new();
    for (number, Same { components, values }) in RELEASES.iter().enumerate() {
        let overlay = directory.join(format!("overlay-{number}"));
        let kustomization = components.iter().fold(
            String::from("resources: [../config/base, ../config/drain]\ncomponents:\n"),
            |text, component| format!("{text}- ../config/components/{component}\n"),
        );
        let kustomization = kustomization.trim_end_matches("components:\n").to_owned();
        std::fs::create_dir_all(&overlay).context("overlay")?;
        std::fs::write(overlay.join("kustomization.yaml"), kustomization).context("overlay")?;
        let overlay = done(&kubectl, &["kustomize", &overlay.display().to_string()]).await?;
        let command = ["template", "dragoman", &chart, "--namespace", "kube-system", "--set", values];
        let release = done(&helm, &[&command[..], &IMAGE, &["--kube-version", "1.37"]].concat()).await?;
        let (overlay, release) = (objects(&overlay)?, objects(&release)?);
        let names = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
        ensure!(
            names(&overlay) == names(&release),
            "{values}:\n{:?}\n{:?}",
            names(&overlay),
            names(&release)
        );
        for (name, object) in &overlay {
            ensure!(
                release.get(name) == Some(object),
                "{values}: {name} differs:\noverlay {object}\nchart   {}",
                release.get(name).unwrap_or(&Value::Null)
            );
        }
        counts.push(overlay.len().to_string());
    }
    println!("        objects that are the same: {}", counts.join(", "));
    Ok(())
}

/// With another namespace, other accounts and another name of the allocator no object names those of the overlays, and
/// the policies are those that `dragoman gating` installs there.
async fn in_another_namespace_the_chart_names_that_everywhere(bench: &Bench) -> anyhow::Result<()> {
    let helm = go::tools(&bench.repository, "helm").await?.join("helm");
    let chart = bench.repository.join("config/helm/dragoman").display().to_string();
    let values = "mode=own,gating.enabled=true,holders.enabled=true,deleteUnbound.enabled=true,allocator.enabled=true,\
        metrics.tls.enabled=true,metrics.podMonitor.enabled=true,metrics.serviceMonitor.enabled=true,\
        serviceAccount.name=agent,allocator.serviceAccount.name=chooser,allocator.name=ours,\
        metrics.podMonitor.endpoint.authorization.credentials.name=token,metrics.fromNamespaces.team=monitoring";
    let command = ["template", "dragoman", &chart, "--namespace", "operators", "--kube-version", "1.37"];
    let release = done(&helm, &[&command[..], &IMAGE, &["--set", values]].concat()).await?;
    // The built-in claim controller is in kube-system, wherever Dragoman is.
    let built_in = "'system:serviceaccount:kube-system:resource-claim-controller'";
    let of_system = release.lines().filter(|line| line.contains("kube-system") && !line.contains(built_in));
    let of_system: Vec<&str> = of_system.collect();
    // A gate there could keep the control plane from starting: two policies spare it.
    ensure!(of_system.iter().all(|line| line.trim() == "values: [kube-system, operators]"), "{of_system:?}");
    ensure!(of_system.len() == 2, "{of_system:?}");
    for default in [":dragoman'", ":dragoman-allocator'", "orValue('') == 'dragoman'", "metrics: enabled"] {
        ensure!(!release.contains(default), "{default} is left");
    }
    for named in [
        ":operators:agent'",
        ":operators:chooser'",
        "orValue('') == 'ours'",
        "team: monitoring",
        "name: token",
    ] {
        ensure!(release.contains(named), "{named} is not there");
    }
    let place = ["--namespace", "operators", "--service-account", "agent"];
    let printed = objects(&done(&bench.binary, &[&["gating", "print"][..], &place].concat()).await?)?;
    let release = objects(&release)?;
    ensure!(printed.len() > 10, "only {} policies", printed.len());
    for (name, policy) in printed {
        ensure!(release.get(&name) == Some(&policy), "{name} differs from what `dragoman gating` installs");
    }
    Ok(())
}

/// The packages that `cargo xtask packages` writes have the image by its digest in every overlay, in the
/// chart and in the bundle.
async fn a_release_names_its_image_by_digest_everywhere(bench: &Bench) -> anyhow::Result<()> {
    let image = format!("registry.example/dragoman@sha256:{}", "5e".repeat(32));
    let xtask = std::env::current_exe()?.with_file_name("xtask");
    done(&xtask, &["packages", &image]).await?;
    let packages = bench.repository.join("target/packages");
    let path = |name: &str| packages.join(name).display().to_string();
    let kubectl = Programs::provide(&bench.repository, Release::default()).await?.path("kubectl");
    let helm = go::tools(&bench.repository, "helm").await?.join("helm");
    let mut texts = Vec::new();
    for overlay in ["base", "own", "gated", "drain"] {
        texts.push(done(&kubectl, &["kustomize", &path(overlay)]).await?);
    }
    let values = "mode=own,gating.enabled=true,holders.enabled=true,allocator.enabled=true";
    let command = ["template", "dragoman", &path("helm/dragoman"), "--set", values, "--kube-version", "1.37"];
    texts.push(done(&helm, &command).await?);
    let version = "olm/bundle/manifests/dragoman.clusterserviceversion.yaml";
    texts.push(std::fs::read_to_string(packages.join(version)).context(version)?);
    for text in texts {
        let named = text
            .lines()
            .filter_map(|line| line.split_once("mage: "))
            .map(|(_, image)| image.trim_matches('"'));
        let named: Vec<&str> = named.filter(|image| image.contains("dragoman")).collect();
        ensure!(!named.is_empty() && named.iter().all(|named| *named == image), "{named:?}");
    }
    Ok(())
}

/// The objects of a stream by kind and name, without what the two ways of installation may say differently.
fn objects(text: &str) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut objects = BTreeMap::new();
    for object in manifest::parse(text)? {
        let part =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = [part("/kind"), part("/metadata/namespace"), part("/metadata/name")].join(" ");
        ensure!(objects.insert(name.clone(), plain(object)).is_none(), "{name} is there twice");
    }
    Ok(objects)
}

/// Takes out the declared differences: a chart says which release an object belongs to, what is a hook and what
/// stays; it names the pull policy and the scheme of probes that the API server fills in; and flags have no order.
fn plain(mut object: Value) -> Value {
    if let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.retain(|label, _| !LABELS.contains(&label.as_str()));
    }
    if let Some(meta) = object.pointer_mut("/metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.retain(|key, _| !key.starts_with("helm.sh/"));
        if annotations.is_empty() {
            meta.remove("annotations");
        }
    }
    for of in ["containers", "initContainers"] {
        let containers =
            object.pointer_mut(&format!("/spec/template/spec/{of}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            if container.get("imagePullPolicy").is_some_and(|policy| policy == "IfNotPresent") {
                container.remove("imagePullPolicy");
            }
            if let Some(args) = container.get_mut("args").and_then(Value::as_array_mut) {
                // The first one is the command.
                args.get_mut(1..).unwrap_or_default().sort_by_key(ToString::to_string);
            }
            for probe in ["livenessProbe", "readinessProbe"] {
                let get = container.get_mut(probe).and_then(|probe| probe.get_mut("httpGet"));
                if let Some(get) = get.and_then(Value::as_object_mut)
                    && get.get("scheme").is_some_and(|scheme| scheme == "HTTP")
                {
                    get.remove("scheme");
                }
            }
        }
    }
    object
}

/// Values that no cluster takes are refused before one is asked.
async fn the_chart_refuses_wrong_values_and_says_which(bench: &Bench) -> anyhow::Result<()> {
    let helm = go::tools(&bench.repository, "helm").await?.join("helm");
    let chart = bench.repository.join("config/helm/dragoman").display().to_string();
    for (values, version, complaint) in [
        ("mode=ownn", "1.37", "'/mode': value must be one of 'auto', 'observe', 'assist', 'own'"),
        ("replicas=0", "1.37", "'/replicas': minimum: got 0, want 1"),
        ("image.digest=sha256:12", "1.37", "'/image/digest'"),
        ("mod=own", "1.37", "additional properties 'mod' not allowed"),
        ("allocator.order=fastest", "1.37", "'/allocator/order'"),
        ("allocator.choose=worst-fit", "1.37", "'/allocator/choose'"),
        ("allocator.align=required", "1.37", "'/allocator/align'"),
        ("serviceAccount.name=a'b", "1.37", "'/serviceAccount/name'"),
        ("allocator.name=a'b", "1.37", "'/allocator/name'"),
        ("drain.timeoutSeconds=5", "1.37", "'/drain/timeoutSeconds'"),
        ("mode=own", "1.33", "chart requires kubeVersion: >=1.34.0-0"),
        ("rules.enabled=true,rules.for.DragomanGone=5m", "1.37", "rules: there is no alert DragomanGone"),
        ("rules.for.DragomanAbsent=soon", "1.37", "'/rules/for/DragomanAbsent'"),
        ("gating.enabled=true", "1.35", "gating.enabled: Kubernetes v1.35 has no MutatingAdmissionPolicy"),
        ("deleteUnbound.enabled=true", "1.37", "deleteUnbound.enabled: needs gating.enabled"),
    ] {
        let command = ["template", "dragoman", &chart, "--set", values, "--kube-version", version];
        let Err(said) = said(&helm, &[&command[..], &IMAGE].concat()).await? else {
            anyhow::bail!("{values} is taken")
        };
        ensure!(said.contains(complaint), "{values}: {said}");
    }
    let Err(said) = said(&helm, &["template", "dragoman", &chart, "--kube-version", "1.37"]).await? else {
        anyhow::bail!("the chart is installed without an image")
    };
    ensure!(said.contains("image.repository: name your image"), "{said}");
    Ok(())
}

/// The page of the chart is generated, and has a word about every value. The version is that of the workspace.
async fn the_page_of_the_chart_tells_every_value(bench: &Bench) -> anyhow::Result<()> {
    let docs = go::tools(&bench.repository, "helm").await?.join("helm-docs");
    let directory = copied(bench, "packages-page").await?;
    let chart = directory.join("config/helm/dragoman");
    done(&docs, &["--chart-search-root", &chart.display().to_string()]).await?;
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let rendered = chart.join("README.md");
    let page = read(&rendered)?;
    let stands = read(&bench.repository.join("config/helm/dragoman/README.md"))?;
    ensure!(page == stands, "config/helm/dragoman/README.md is out of date: copy {}", rendered.display());
    let empty: Vec<&str> =
        page.lines().filter(|line| line.starts_with("| ") && line.ends_with("|  |")).collect();
    ensure!(empty.is_empty(), "values without a word: {empty:?}");
    let chart: Value = serde_saphyr::from_str(&read(&chart.join("Chart.yaml"))?)?;
    for field in ["version", "appVersion"] {
        ensure!(chart[field] == env!("CARGO_PKG_VERSION"), "Chart.yaml: {field} is {}", chart[field]);
    }
    Ok(())
}
