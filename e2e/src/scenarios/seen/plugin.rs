//! `kubectl dra` as kubectl runs it, by a user who may only read.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::client::{CLAIMS, TEMPLATES};
use crate::control_plane::Shape;
use crate::installed;
use crate::objects::{self, Pod};
use crate::scenarios::{Standalone, gates, standalone};
use crate::terminal::{Said, Terminal};
use crate::wait;
use crate::world::{Bench, World};

pub(super) fn all() -> Vec<Standalone> {
    vec![standalone!(kubectl_dra_says_why_and_only_reads)]
}

/// The plugin on the path of a user.
struct Plugin(Terminal);

impl Plugin {
    /// Puts the plugin on the path as a person installs it: a file, beside which its completion is linked.
    fn install(terminal: Terminal) -> anyhow::Result<Self> {
        let plugin = std::env::current_exe()?.with_file_name("kubectl-dra");
        std::fs::copy(&plugin, terminal.programs().join("kubectl-dra"))
            .with_context(|| plugin.display().to_string())?;
        Ok(Self(terminal))
    }

    async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<Said> {
        self.0.run("kubectl", arguments, &[]).await
    }

    /// Runs the plugin. What it prints is kept for people to read.
    async fn dra(&self, arguments: &[&str]) -> anyhow::Result<Said> {
        let said = self.kubectl(&[&["dra"][..], arguments].concat()).await?;
        let kept = format!("$ kubectl dra {}\n{}{}\n", arguments.join(" "), said.out, said.error);
        let name = if arguments.contains(&"json") { "json.txt" } else { "words.txt" };
        let path = self.0.programs().join(name);
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        std::fs::write(&path, before + &kept).with_context(|| path.display().to_string())?;
        Ok(said)
    }

    /// The table or the answer of a command, as JSON; its exit code has to be `code`.
    async fn json(&self, arguments: &[&str], code: i32) -> anyhow::Result<Value> {
        let said = self.dra(&[arguments, &["-o", "json"]].concat()).await?;
        ensure!(said.code == code, "{arguments:?}: {} {}{}", said.code, said.out, said.error);
        serde_json::from_str(&said.out).with_context(|| said.out)
    }

    /// Waits until the plugin says this of an object, to people and to programs.
    async fn explains(
        &self,
        ns: &str,
        kind: &str,
        name: &str,
        reason: &str,
        words: &str,
    ) -> anyhow::Result<()> {
        let asked = ["explain", kind, name, "--namespace", ns];
        let mut last = String::new();
        let what = format!("{name} is {reason}");
        let answered = wait::value(&what, async || {
            let said = self.dra(&[&asked[..], &["-o", "json"]].concat()).await?;
            last = said.out + &said.error;
            let answer: Value = serde_json::from_str(&last).unwrap_or_default();
            let sentence = answer["sentence"].as_str().unwrap_or_default();
            let is_so = answer["reason"] == reason && sentence.contains(words);
            Ok(is_so.then(|| (sentence.to_owned(), answer["blocked"] == true)))
        });
        let (sentence, is_blocked) = answered.await.with_context(|| last)?;
        let said = self.dra(&asked).await?;
        ensure!(said.code == if is_blocked { 3 } else { 0 }, "{name}: {} {}", said.code, said.error);
        // Ages go on between the two.
        ensure!(
            said.out.lines().next().is_some_and(|line| line.contains(words)),
            "{sentence:?}: {}",
            said.out
        );
        ensure!(!said.out.contains('\u{1b}'), "colours without a terminal: {}", said.out);
        Ok(())
    }
}

/// Situations of a real cluster get their verdicts. The user may get and list and nothing else; a user with fewer rights is told
/// what is lacking.
async fn kubectl_dra_says_why_and_only_reads(bench: &Bench) -> anyhow::Result<()> {
    let world = gates::gated(bench, "seen-plugin", Shape::default(), 2).await?;
    let operator = world.dragoman("own", &gates::FLAGS).await?;
    let allocator = world.allocator(&[]).await?;
    let kubectl = |arguments: &'static str| {
        let world = &world;
        async move {
            let arguments: Vec<&str> = arguments.split(' ').collect();
            world.plane.kubectl(&arguments, "").await?.map_err(anyhow::Error::msg)
        }
    };
    kubectl("create serviceaccount reader --namespace kube-system").await?;
    kubectl("create clusterrole reader --verb=get,list --resource=*.*").await?;
    kubectl("create clusterrolebinding reader --clusterrole reader --serviceaccount kube-system:reader")
        .await?;
    let user = world.account("kube-system", "reader").await?;
    let reader = Plugin::install(Terminal::open(&world, user, &[]).await?)?;
    let ns = situations(&world, &reader).await?;
    lists(&reader, &ns).await?;
    fewer_rights(&world, &reader, &ns).await?;
    // What is not a write is a get or a list: the user has no other right.
    let writes = world.plane.audit().writes_of("system:serviceaccount:kube-system:reader");
    ensure!(writes == 0, "{writes} writes of a program that only reads");
    allocator.stop().await?;
    operator.stop().await?;
    world.stop().await
}

/// Brings about what makes Pods wait, and asks about each.
async fn situations(world: &World, plugin: &Plugin) -> anyhow::Result<String> {
    let ns = world.namespace("why").await?;
    let pods = |name: &str| Pod::new(name);
    let changed = |name: &str, pointer: &str, value: Value| {
        let mut template = objects::template(name);
        let exactly = &mut template["spec"]["spec"]["devices"]["requests"][0]["exactly"];
        exactly[pointer] = value;
        template
    };
    world.client.create(TEMPLATES, &ns, &changed("tpu", "deviceClassName", json!("tpu"))).await?;
    world.client.create(TEMPLATES, &ns, &changed("nine", "count", json!(9))).await?;
    let mut zone = pods("zone").with_template("gpu", "one").object().clone();
    zone["spec"]["nodeSelector"] = json!({"zone": "nowhere"});
    let mut large = pods("large").with_template("gpu", "one").object().clone();
    large["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "50"});
    let mut held = pods("queued").with_template("gpu", "one").object().clone();
    held["spec"]["schedulingGates"] = json!([{"name": "queue.example/wait"}]);
    let mut huge = pods("huge").object().clone();
    huge["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "50"});
    for pod in [zone, large, held, huge] {
        world.client.create(crate::client::PODS, &ns, &pod).await?;
    }
    for (name, template) in [("untemplated", "missing"), ("classless", "tpu"), ("greedy", "nine")] {
        world.pod(&ns, &pods(name).with_template("gpu", template)).await?;
    }
    world.pod(&ns, &pods("claimless").with_claim("gpu", "missing")).await?;
    world.pod(&ns, &pods("running").with_template("gpu", "one").held()).await?;
    world.phase(&ns, "running", "Running").await?;
    for (pod, reason, words) in [
        ("untemplated", "TemplateMissing", "Pod untemplated waits: template why-0/missing does not exist"),
        ("claimless", "ClaimMissing", "claim why-0/missing does not exist"),
        ("classless", "ClassMissing", "DeviceClass \"tpu\""),
        ("greedy", "NoDevicesFree", "wants 9 devices"),
        ("zone", "NoNodeTakesThePod", "zone"),
        ("large", "Unschedulable", "Insufficient cpu"),
        ("queued", "ForeignGate", "queue.example/wait"),
        ("running", "Running", "with 1 claim"),
    ] {
        plugin.explains(&ns, "pod", pod, reason, words).await?;
    }
    gated(world, plugin).await?;
    let claim =
        crate::world::claim_name(&world.phase(&ns, "running", "Running").await?, "gpu").context("claim")?;
    plugin.explains(&ns, "claim", &claim, "InUse", "for Pod running").await?;
    plugin.explains(&ns, "template", "one", "TemplateReady", "used by 4 Pods").await?;
    let claim = world.client.get(CLAIMS, &ns, &claim).await?.context("claim")?;
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    let text = |field: &str| result[field].as_str().unwrap_or_default().to_owned();
    let device = format!("{}/{}", text("pool"), text("device"));
    plugin.explains(&ns, "device", &device, "Taken", "for Pod running").await?;
    plugin.explains(&ns, "node", &text("pool"), "HasFree", "publishes 4 devices").await?;
    Ok(ns)
}

/// A Pod behind the gate: what the operator says of it is what the plugin says.
async fn gated(world: &World, plugin: &Plugin) -> anyhow::Result<()> {
    let ns = gates::namespace(world, "gated", "enabled").await?;
    let mut pod = Pod::new("cpus").with_template("gpu", "one").object().clone();
    pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "6"});
    world.client.create(crate::client::PODS, &ns, &pod).await?;
    plugin.explains(&ns, "pod", "cpus", "GateClosed", "the node is too small: cpu").await
}

fn items(table: &Value) -> Vec<Value> {
    table["items"].as_array().cloned().unwrap_or_default()
}

/// The lists say the same as the objects.
async fn lists(plugin: &Plugin, ns: &str) -> anyhow::Result<()> {
    let claims = items(&plugin.json(&["claims", "-n", ns], 0).await?);
    ensure!(claims.iter().filter(|claim| claim["state"] == "InUse").count() == 1, "{claims:?}");
    let devices = items(&plugin.json(&["devices"], 0).await?);
    ensure!(
        devices.len() == 8 && devices.iter().filter(|of| of["state"] == "Taken").count() == 1,
        "{devices:?}"
    );
    let pools = items(&plugin.json(&["pools"], 0).await?);
    let free: u64 = pools.iter().filter_map(|pool| pool["free"].as_u64()).sum();
    ensure!(pools.len() == 2 && free == 7, "{pools:?}");
    let classes = items(&plugin.json(&["pools", "--by-class"], 0).await?);
    ensure!(classes.iter().any(|of| of["class"] == "e2e" && of["allocated"] == 1), "{classes:?}");
    let taken = devices.iter().find(|of| of["state"] == "Taken").context("taken")?;
    let node = taken["node"].as_str().context("node")?.to_owned();
    let drain = items(&plugin.json(&["drain", &node], 0).await?);
    ensure!(drain.len() == 1 && drain[0]["pod"] == "running", "{drain:?}");
    ensure!(items(&plugin.json(&["events", "-A"], 0).await?).len() > 1, "no Events");
    ledger(plugin, ns).await?;
    let none = plugin.dra(&["reclaim", "-A"]).await?;
    ensure!(none.code == 0 && none.out.starts_with("no claim holds devices for nothing"), "{}", none.out);
    let top = plugin.dra(&["top", "--once", "-A"]).await?;
    ensure!(top.code == 0 && top.out.contains("Pods that wait with claims: 8"), "{}", top.out);
    for (arguments, words) in [
        (&["drain"][..], "<NODE>"),
        (&["explain", "deployment/x"], "no type that can be explained"),
        (&["claims", "-o", "html"], "html"),
    ] {
        let said = plugin.dra(arguments).await?;
        ensure!(said.code == 2 && said.error.contains(words), "{arguments:?}: {}", said.error);
    }
    ensure!(
        plugin.kubectl(&["plugin", "list"]).await?.out.contains("kubectl-dra"),
        "kubectl does not find it"
    );
    more(plugin, ns).await?;
    let installed = plugin.dra(&["completion", "install"]).await?;
    ensure!(installed.code == 0, "{}", installed.error);
    let words = plugin.kubectl(&["__complete", "dra", "explain", "pod", "--namespace", ns, "run"]).await?;
    let words = words.out + &plugin.kubectl(&["__complete", "dra", "ex"]).await?.out;
    ensure!(words.contains("explain\t"), "{words}");
    Ok(())
}

/// Pods by cause, what the cluster is ready for, the page, and the other ways to ask.
async fn more(plugin: &Plugin, ns: &str) -> anyhow::Result<()> {
    let why = plugin.json(&["why", "-n", ns], 3).await?;
    ensure!(why["pods"].as_u64() > Some(1), "{why}");
    for reason in ["NoDevicesFree", "NoNodeTakesThePod", "ForeignGate"] {
        ensure!(items(&why).iter().any(|of| of["reason"] == reason), "{reason} is not in {why}");
    }
    let check = plugin.json(&["check"], 0).await?;
    let part = |name: &str| {
        let mut findings = check["findings"].as_array().into_iter().flatten();
        findings.find(|of| of["part"] == name).cloned().unwrap_or_default()
    };
    for (name, level) in
        [("Kubernetes", "ok"), ("DRA", "ok"), ("driver", "ok"), ("Dragoman", "ok"), ("claim gates", "ok")]
    {
        ensure!(part(name)["level"] == level, "{name}: {check}");
    }
    let page = plugin.dra(&["report", "-A"]).await?;
    ensure!(
        page.code == 0 && page.out.starts_with("<!DOCTYPE html>") && page.out.contains("running"),
        "{}",
        page.error
    );
    let slash = plugin.json(&["explain", "pods/running", "-n", ns], 0).await?;
    ensure!(slash["reason"] == "Running", "{slash}");
    for shell in ["bash", "zsh", "fish"] {
        let script = plugin.dra(&["completion", shell]).await?;
        ensure!(script.code == 0 && script.out.contains("kubectl-dra"), "{shell}: {}", script.error);
    }
    let schema = plugin.dra(&["schema"]).await?;
    ensure!(schema.code == 0 && schema.out.contains("\"$defs\""), "{}", schema.error);
    Ok(())
}

/// The ledger is that of a dump, and says why a Pod fits nowhere.
async fn ledger(plugin: &Plugin, ns: &str) -> anyhow::Result<()> {
    let live = plugin.json(&["ledger"], 0).await?;
    let kinds = "nodes,pods,resourceclaims,resourceslices,devicefootprints";
    let dump = plugin.kubectl(&["get", kinds, "--all-namespaces", "--output", "yaml"]).await?;
    let file = plugin.0.programs().join("dump.yaml");
    std::fs::write(&file, dump.out).with_context(|| file.display().to_string())?;
    let file = file.to_str().context("a path")?;
    let dumped = plugin.json(&["ledger", "--filename", file], 0).await?;
    ensure!(live["nodes"] == dumped["nodes"], "{live} and of the dump {dumped}");
    let taken = &live["nodes"][0]["resources"]["cpu"];
    ensure!(
        live["nodes"].as_array().is_some_and(|all| all.len() == 2) && taken["allocatable"] == "8",
        "{live}"
    );
    let of_dump = items(&plugin.json(&["claims", "-f", file], 0).await?);
    let of_namespace = items(&plugin.json(&["claims", "-f", file, "-n", ns], 0).await?);
    let of_another = plugin.dra(&["claims", "-f", file, "-n", "kube-system"]).await?;
    ensure!(
        !of_namespace.is_empty()
            && of_namespace.len() < of_dump.len()
            && of_namespace.iter().all(|claim| claim["namespace"] == ns)
            && of_another.out.starts_with("there are no claims in namespace kube-system"),
        "{of_dump:?} {}",
        of_another.out
    );
    let absent = plugin.json(&["explain", "pod", "absent", "-n", ns], 1).await?;
    ensure!(absent["reason"] == "PodMissing", "{absent}");
    let huge = plugin.dra(&["ledger", "node-0", "--pod", "huge", "--namespace", ns]).await?;
    let words = format!("Pod {ns}/huge on node-0: the node has 8 of cpu");
    ensure!(huge.code == 3 && huge.out.contains(&words), "{} {}", huge.out, huge.error);
    let absent = plugin.dra(&["ledger", "--pod", "absent", "--namespace", ns]).await?;
    let is_said = absent.code == 1 && absent.error.contains("there is no pod");
    ensure!(is_said, "{} {} {}", absent.code, absent.out, absent.error);
    Ok(())
}

/// A tenant sees its own namespace: the answer says what it lacks, and how to get it.
async fn fewer_rights(world: &World, reader: &Plugin, ns: &str) -> anyhow::Result<()> {
    for arguments in [
        &["create", "serviceaccount", "tenant", "--namespace", ns][..],
        &[
            "create",
            "role",
            "tenant",
            "--namespace",
            ns,
            "--verb=get,list",
            "--resource=pods,events,resourceclaims.resource.k8s.io",
        ],
        &[
            "create",
            "rolebinding",
            "tenant",
            "--namespace",
            ns,
            "--role",
            "tenant",
            &format!("--serviceaccount={ns}:tenant"),
        ],
    ] {
        world.plane.kubectl(arguments, "").await?.map_err(anyhow::Error::msg)?;
    }
    let user = format!("system:serviceaccount:{ns}:tenant");
    for (group, resource) in [("", "pods"), ("", "events"), ("resource.k8s.io", "resourceclaims")] {
        let list = json!({"namespace": ns, "verb": "list", "group": group, "resource": resource});
        installed::may(&world.client, &user, &list).await?;
    }
    let tenant = Plugin(reader.0.of_another(world.account(ns, "tenant").await?));
    let running = tenant.json(&["explain", "pod", "running", "-n", ns], 0).await?;
    ensure!(running["reason"] == "Running", "{running}");
    let greedy = tenant.json(&["explain", "pod", "greedy", "-n", ns], 3).await?;
    ensure!(
        greedy["reason"] == "Unknown" && greedy["lacks"].as_array().is_some_and(|all| all.len() == 1),
        "{greedy}"
    );
    let said = tenant.dra(&["explain", "pod", "greedy", "-n", ns]).await?;
    let lack = "partial: you may not read deviceclasses.resource.k8s.io, devicetaintrules.resource.k8s.io, nodes, resourceclaims.resource.k8s.io, resourceslices.resource.k8s.io of the cluster; an administrator gives that right";
    ensure!(said.out.contains(lack), "{}", said.out);
    let ledger = tenant.dra(&["ledger"]).await?;
    let lack = "error: amounts are not known without everything: you may not read ";
    ensure!(ledger.code == 1 && ledger.error.starts_with(lack), "{}", ledger.error);
    let devices = tenant.dra(&["devices"]).await?;
    ensure!(
        devices.code == 1 && devices.out.contains("you may not read"),
        "{} {}",
        devices.code,
        devices.out
    );
    let other = tenant.dra(&["explain", "pod", "x", "-n", "kube-system"]).await?;
    ensure!(
        other.code == 1 && other.error.contains("you may not read pods in namespace kube-system"),
        "{}",
        other.error
    );
    Ok(())
}
