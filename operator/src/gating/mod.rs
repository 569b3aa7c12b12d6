//! `dragoman gating`: the admission policies of claim gates, for installations whose packaging cannot carry
//! them, and the way out: no policy and no gate of ours is left.

mod enforced;
pub(crate) mod presence;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use dragoman_machinery::api::{Api, Limits, Live, decode};
use dragoman_machinery::connect::{connect, connect_as};
use dragoman_machinery::discovery::{Discovery, Served};
use dragoman_machinery::kind::{ADMISSION_POLICIES, CLAIM_GATE, DRIVER_OWNER, Kind, POD};
use dragoman_machinery::metrics::MachineryMetrics;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::rights::Rule;
use dragoman_machinery::watch::{Item, Source as _, Watched};
use dragoman_machinery::write::{Action, Guard, Write};
use dragoman_objects::{self as objects, Meta};
use dragoman_reconcilers::gates::open;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::Value;

use self::enforced::{Askers, Wanted};
use crate::config::ClusterFlags;

/// Flags of `dragoman gating`.
#[derive(Debug, Args)]
pub(crate) struct GatingFlags {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Action on the policies.
    what: Switch,
    /// Namespace of the operator, which the policies name.
    #[arg(long, default_value = OWN_NAMESPACE)]
    namespace: String,
    /// Service account of the operator, which the policies name.
    #[arg(long, default_value = ACCOUNT)]
    service_account: String,
    /// Seconds that the API server may take until it acts on what it has stored.
    #[arg(long, default_value_t = 120)]
    patience: u64,
    /// Do not look whether the API server acts on it. The look takes the rights to make a namespace, a role, a
    /// ClaimGate and a DriverOwner, and to impersonate.
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    /// Install or update the policies, and wait until the API server enforces them. Namespaces take part by the label
    /// dragoman.dev/gating=enabled.
    On,
    /// Remove the policies of gating, wait until the API server has forgotten them, and remove the gate from every Pod that has
    /// it.
    Off,
    /// Wait until the API server enforces the policies that are there, of whatever package.
    Wait,
    /// Print the policies.
    Print,
}

/// The namespace and the service account of the operator in the shipped policies.
const OWN_NAMESPACE: &str = "kube-system";
const ACCOUNT: &str = "dragoman";

/// Rights that `dragoman gating off` needs in every namespace, beside the removal of policies.
pub(crate) const RIGHTS: &[Rule] =
    &[Rule { group: "", resource: "pods", verbs: &["list", "patch"], why: "open every gate" }];

/// Returns the right to remove policies of a kind.
pub(crate) const fn removal(kind: Kind) -> Rule {
    let why = "remove the policies of claim gates";
    Rule { group: kind.group, resource: kind.plural, verbs: &["get", "delete"], why }
}

/// The names of the shipped policies, by kind.
///
/// # Errors
/// A shipped policy cannot be read.
pub(crate) fn policy_names() -> anyhow::Result<BTreeMap<Kind, Vec<String>>> {
    names_by_kind(&MANIFESTS)
}

/// The names of the policies that every package with claim gates brings, by kind.
///
/// # Errors
/// A shipped policy cannot be read.
pub(crate) fn names_of_gates() -> anyhow::Result<BTreeMap<Kind, Vec<String>>> {
    names_by_kind(&OF_GATES)
}

fn names_by_kind(manifests: &[&str]) -> anyhow::Result<BTreeMap<Kind, Vec<String>>> {
    let mut names = BTreeMap::<Kind, Vec<String>>::new();
    let manifests: Vec<String> = manifests.iter().map(|&manifest| manifest.to_owned()).collect();
    for policy in policies(&manifests)? {
        names.entry(policy.kind).or_default().push(policy.name);
    }
    Ok(names)
}

/// The shipped policies, in the order in which they are removed. The base has those that confine the operator whatever it does: they are
/// installed with those of gating where the packaging could not carry them.
const MANIFESTS: [&str; 8] = {
    let [gate, enforced, owners, drivers, confined] = OF_GATES;
    [gate, enforced, owners, drivers, confined, OF_HOLDERS, OF_DELETIONS, OF_THE_BASE]
};
/// Those that every package with claim gates brings.
const OF_GATES: [&str; 5] = [
    include_str!("../../../config/components/gating/gate.yaml"),
    include_str!("../../../config/components/gating/enforced.yaml"),
    include_str!("../../../config/components/gating/owners.yaml"),
    include_str!("../../../config/components/gating/drivers.yaml"),
    include_str!("../../../config/components/gating/confined.yaml"),
];
const OF_HOLDERS: &str = include_str!("../../../config/components/holders/confined.yaml");
const OF_DELETIONS: &str = include_str!("../../../config/components/delete-unbound/confined.yaml");
/// Those that stay when gating is switched off, if a package has brought them.
const OF_THE_BASE: &str = include_str!("../../../config/base/confined.yaml");
/// The field manager of the policies.
const MANAGER: &str = "dragoman-gating";
/// The API server takes a moment until it knows that a policy is gone: Pods that are created meanwhile
/// still get the gate.
const MOMENT: Duration = Duration::from_secs(1);
/// Most rounds through the Pods. Three rounds that find no gate end them earlier.
const ROUNDS: usize = 30;

/// Installs or removes the policies.
///
/// # Errors
/// The API server refuses a request or does not serve a kind of the policies' parameters, or Pods with the gate are left.
pub(crate) async fn gating(flags: &GatingFlags) -> anyhow::Result<()> {
    let (namespace, account) = (&flags.namespace, &flags.service_account);
    for (flag, name) in [("namespace", namespace), ("service-account", account)] {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        ensure!(
            (1..=253).contains(&name.len()) && name.chars().all(is_plain),
            "--{flag} {name:?}: only lowercase letters, digits, - and . can be in such a name"
        );
    }
    let manifests = MANIFESTS.map(|manifest| placed(manifest, namespace, account));
    if flags.what == Switch::Print {
        return crate::print(&manifests.join("---\n"));
    }
    let policies = policies(&manifests)?;
    let mut registry = Registry::default();
    let clients = connect(flags.cluster.kubeconfig.as_deref(), Limits::default(), &mut registry).await?;
    let metrics = MachineryMetrics::register(&mut registry);
    let discovery = Discovery::new(clients.api.clone());
    if matches!(flags.what, Switch::On | Switch::Wait) {
        have_parameters(&discovery).await?;
    }
    let of_the_base = names_of_the_base()?;
    let mut said = String::new();
    let mut names = Vec::new();
    for policy in policies {
        let is_policy = !policy.kind.kind.ends_with("Binding");
        let name = policy.name.clone();
        let stays = of_the_base.contains(&name) && is_of_a_package(&clients.api, &policy).await?;
        let outcome = match flags.what {
            // It is there, and is asked for as well.
            Switch::On if stays => Some(String::new()),
            Switch::Off if stays => None,
            Switch::On => Some(install(&clients.api, &metrics, policy).await?),
            Switch::Wait => is_there(&clients.api, &discovery, &policy).await?.then(String::new),
            Switch::Off | Switch::Print => remove(&clients.api, &metrics, &discovery, policy).await?,
        };
        if let Some(outcome) = outcome {
            said.push_str(&outcome);
            names.extend(is_policy.then_some(name));
        }
    }
    let seen = if flags.no_wait { Ok(String::new()) } else { see(flags, &clients.api, &names).await };
    if flags.what == Switch::Off {
        // The Pods are let go also where it cannot be seen that the policies are forgotten: rounds without a gated Pod
        // show it, too.
        said.push_str(&seen.unwrap_or_else(|why| format!("{why:#}\n")));
        let mut source = Watched::<objects::Pod>::new(clients.watch, POD, discovery);
        let opened = open_all(&clients.api, &metrics, &mut source).await;
        crate::print(&said)?;
        return crate::print(&opened?);
    }
    crate::print(&said)?;
    crate::print(&seen?)
}

/// Requires the kinds of the policies' parameters.
///
/// # Errors
/// A kind is not served, or the API server gives no answer.
async fn have_parameters(discovery: &Discovery) -> anyhow::Result<()> {
    for (kind, without) in [
        (CLAIM_GATE, "every update of a claim would be refused where gating is enforced"),
        (DRIVER_OWNER, "no driver has an owner"),
    ] {
        let name = kind.kind;
        let served = discovery.ask(kind).await.with_context(|| format!("cannot ask for the kind {name}"))?;
        ensure!(
            served == Served::Yes,
            "the kind {name} is not served, and without it {without}: install the definitions that `dragoman crdgen` prints"
        );
    }
    Ok(())
}

/// Waits until the API server acts on what was done about these policies; says so.
///
/// # Errors
/// It was not seen.
async fn see(flags: &GatingFlags, api: &Api, policies: &[String]) -> anyhow::Result<String> {
    let (namespace, account) = (&flags.namespace, &flags.service_account);
    let (wanted, said) = match flags.what {
        Switch::Off => (Wanted::Gone, "the API server has forgotten"),
        _ => (Wanted::Enforced, "the API server enforces"),
    };
    let of_the_base = names_of_the_base()?;
    ensure!(
        flags.what != Switch::Wait || policies.iter().any(|name| !of_the_base.contains(name)),
        "no policy of claim gates is installed"
    );
    if policies.is_empty() {
        return Ok(String::new());
    }
    let operator = format!("system:serviceaccount:{namespace}:{account}");
    let path = flags.cluster.kubeconfig.as_deref();
    let as_user = async |user: &str| {
        // Each client brings metrics of its own.
        let clients = connect_as(path, user, Limits::default(), &mut Registry::default()).await?;
        anyhow::Ok(clients.api)
    };
    let askers = Askers {
        api: api.clone(),
        tenant: as_user(enforced::TENANT).await?,
        operator: as_user(&operator).await?,
        scheduler: as_user(enforced::SCHEDULER).await?,
        account: (namespace.clone(), account.clone()),
    };
    let patience = Duration::from_secs(flags.patience);
    let seen = askers.see(policies, wanted, patience).await;
    seen.context("it is not known whether the API server acts on it yet (--no-wait does not look)")?;
    Ok(format!("{said} {} policies\n", policies.len()))
}

/// Whether a policy or a binding is there, and something else than this command has written it.
async fn is_of_a_package(api: &Api, policy: &Policy) -> anyhow::Result<bool> {
    match api.read(policy.kind, "", &policy.name).await {
        Ok(Live::Found(body)) => {
            let object: Value = decode(&body).with_context(|| policy.name.clone())?;
            let fields = object.pointer("/metadata/managedFields").and_then(Value::as_array);
            Ok(fields.into_iter().flatten().any(|of| of.get("manager").is_none_or(|name| name != MANAGER)))
        }
        Ok(Live::NotFound) => Ok(false),
        Err(refusal) => Err(refusal).with_context(|| format!("{} {}", policy.kind.kind, policy.name)),
    }
}

/// Whether a policy or a binding is there.
async fn is_there(api: &Api, discovery: &Discovery, policy: &Policy) -> anyhow::Result<bool> {
    let what = || format!("{} {}", policy.kind.kind, policy.name);
    match api.read(policy.kind, "", &policy.name).await {
        Ok(Live::Found(_)) => Ok(true),
        Ok(Live::NotFound) => Ok(false),
        Err(Refusal::Unserved(_)) if discovery.ask(policy.kind).await.with_context(what)? == Served::No => {
            Ok(false)
        }
        Err(refusal) => Err(refusal).with_context(what),
    }
}

/// A policy of the manifests.
struct Policy {
    kind: Kind,
    name: String,
    object: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartialObjectMetadata {
    api_version: String,
    kind: String,
    metadata: Meta,
}

/// A shipped manifest for an operator in another namespace, or with another service account.
fn placed(manifest: &str, namespace: &str, account: &str) -> String {
    // A gate could keep the Pods of the control plane and of the operator from starting.
    let spared = if namespace == OWN_NAMESPACE { String::new() } else { format!(", {namespace}") };
    manifest
        .replace(
            &format!("'system:serviceaccount:{OWN_NAMESPACE}:{ACCOUNT}'"),
            &format!("'system:serviceaccount:{namespace}:{account}'"),
        )
        .replace(&format!("'{OWN_NAMESPACE}'"), &format!("'{namespace}'"))
        .replace(&format!("values: [{OWN_NAMESPACE}]"), &format!("values: [{OWN_NAMESPACE}{spared}]"))
}

/// The names of the policies of the base; their bindings have the same.
fn names_of_the_base() -> anyhow::Result<BTreeSet<String>> {
    Ok(policies(&[OF_THE_BASE.to_owned()])?.into_iter().map(|policy| policy.name).collect())
}

fn policies(manifests: &[String]) -> anyhow::Result<Vec<Policy>> {
    let documents = manifests.iter().flat_map(|manifest| manifest.split("\n---\n"));
    let policy = |document: &str| {
        let object: Value = serde_saphyr::from_str(document).context("a shipped policy")?;
        let head: PartialObjectMetadata =
            serde_json::from_value(object.clone()).context("a shipped policy")?;
        let is_it = |of: &&Kind| of.kind == head.kind && of.api_version() == head.api_version;
        let kind = ADMISSION_POLICIES.iter().find(is_it).context("a shipped policy of another kind")?;
        Ok(Policy { kind: *kind, name: head.metadata.name.to_string(), object })
    };
    documents.map(policy).collect()
}

async fn install(api: &Api, metrics: &MachineryMetrics, policy: Policy) -> anyhow::Result<String> {
    let Policy { kind, name, object } = policy;
    let action = Action::Apply { subresource: None, manager: MANAGER, force: true, body: object };
    let what = format!("{} {name}", kind.kind);
    match Write::new(kind, "", name, action).send(api, metrics).await {
        Ok(_) => Ok(format!("{what} is installed\n")),
        Err(Refusal::Unserved(_)) => {
            anyhow::bail!(
                "{what}: the API server does not serve {}: it takes Kubernetes 1.36",
                kind.api_version()
            )
        }
        Err(refusal) => Err(refusal).context(what),
    }
}

/// Removes a policy or a binding; says so, unless it is not there.
async fn remove(
    api: &Api,
    metrics: &MachineryMetrics,
    discovery: &Discovery,
    policy: Policy,
) -> anyhow::Result<Option<String>> {
    let Policy { kind, name, .. } = policy;
    let what = format!("{} {name}", kind.kind);
    let meta = match api.read(kind, "", &name).await {
        Ok(Live::Found(body)) => {
            decode::<PartialObjectMetadata>(&body).with_context(|| what.clone())?.metadata
        }
        Ok(Live::NotFound) => return Ok(None),
        // Before 1.36 there is no such kind, and so no policy.
        Err(Refusal::Unserved(_))
            if discovery.ask(kind).await.with_context(|| what.clone())? == Served::No =>
        {
            return Ok(None);
        }
        Err(refusal) => return Err(refusal).context(what),
    };
    let write = Write::new(kind, "", name, Action::Delete { guard: Guard::of(&meta) });
    match write.send(api, metrics).await {
        Ok(_) => Ok(Some(format!("{what} is removed\n"))),
        Err(Refusal::NotFound | Refusal::Replaced) => Ok(None),
        Err(refusal) => Err(refusal).context(what),
    }
}

/// Opens the gate of every Pod, until none is found any more; says how many there were. A user who goes on creating Pods
/// with the gate does not make it fail.
async fn open_all(
    api: &Api,
    metrics: &MachineryMetrics,
    source: &mut Watched<objects::Pod>,
) -> anyhow::Result<String> {
    let mut opened = 0;
    let mut failed = BTreeMap::new();
    let mut quiet = 0;
    for _ in 0..ROUNDS {
        let writes = gated(source).await?;
        if writes.is_empty() {
            quiet += 1;
            if quiet > 2 {
                break;
            }
        }
        failed.clear();
        for write in writes {
            let name = format!("{}/{}", write.namespace, write.name);
            match write.send(api, metrics).await {
                Ok(_) => opened += 1,
                Err(Refusal::NotFound | Refusal::Replaced | Refusal::Conflict) => {}
                Err(refusal) => drop(failed.insert(name, refusal.to_string())),
            }
        }
        tokio::time::sleep(MOMENT).await;
    }
    let failed: Vec<String> = failed.iter().take(10).map(|(name, why)| format!("{name}: {why}")).collect();
    ensure!(failed.is_empty(), "Pods keep the gate: {}", failed.join("; "));
    let mut said = format!("gate removed from {opened} Pods\n");
    if quiet == 0 {
        // Without the policy a Pod has the gate because its author wrote it, and keeps back nothing but itself.
        said.push_str(
            "Pods with the gate are still created: by their authors, or another installation is at work\n",
        );
    }
    Ok(said)
}

/// The writes that open the gate of every Pod that has it.
async fn gated(source: &mut Watched<objects::Pod>) -> anyhow::Result<Vec<Write>> {
    let (mut writes, mut page) = (Vec::new(), None);
    loop {
        let each = |item| {
            if let Item::Readable(pod) = item {
                writes.extend(open(&pod));
            }
        };
        let list = source.list(page.as_deref(), each).await.context("cannot list Pods")?;
        match list.next {
            Some(token) => page = Some(token),
            None => return Ok(writes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_policy_is_of_a_known_kind_and_has_a_binding() {
        let policies = policies(&MANIFESTS.map(str::to_owned)).expect("policies");
        let names = |binding: bool| {
            let of = policies.iter().filter(|policy| policy.kind.kind.ends_with("Binding") == binding);
            of.map(|policy| policy.name.clone()).collect::<Vec<_>>()
        };
        assert!(!names(true).is_empty());
        assert_eq!(names(true), names(false));
    }

    #[test]
    fn in_another_namespace_the_policies_name_that() {
        for manifest in MANIFESTS {
            assert_eq!(placed(manifest, OWN_NAMESPACE, ACCOUNT), manifest);
            let placed = placed(manifest, "operators", "agent");
            let code = placed.lines().filter(|line| !line.trim_start().starts_with('#'));
            let left: Vec<&str> = code.filter(|line| line.contains(OWN_NAMESPACE)).collect();
            // The control plane is spared as well, and its claim controller keeps its account.
            let stays = |line: &&str| {
                line.trim() == "values: [kube-system, operators]"
                    || line.contains(":resource-claim-controller'")
            };
            assert!(left.iter().all(stays), "{left:?}");
            let [before, after] =
                [(manifest, ":dragoman'"), (&placed, "system:serviceaccount:operators:agent'")]
                    .map(|(text, account)| text.matches(account).count());
            assert_eq!(before, after, "{placed}");
            assert!(!placed.contains(":dragoman'"), "{placed}");
        }
    }
}
