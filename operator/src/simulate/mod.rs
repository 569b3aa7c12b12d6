//! `dragoman simulate`: what Dragoman would do with a cluster of which there is only a dump.

mod changes;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use dragoman_objects::Name;
use dragoman_report::manifests::{self, Found};
use dragoman_report::printable;
use dragoman_simcluster::{ApiServer, Clock, HistoryStep, LoadError, Profile};
use serde_json::{Value, json};

use self::changes::Change;
use crate::simulated;

/// Flags of `dragoman simulate`.
#[derive(Debug, Args)]
pub(crate) struct SimulateFlags {
    /// Files with objects as `kubectl get -o yaml` or `-o json` prints them: one, several, or lists.
    #[arg(short = 'f', long = "filename", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// Skip objects that cannot be loaded, instead of stopping.
    #[arg(long)]
    skip_bad: bool,
    /// The version of Kubernetes the objects come from.
    #[arg(long, default_value = "1.37", value_name = "VERSION")]
    kubernetes: Profile,
}

/// Nothing is written any more when nothing has been for so long.
const QUIET: Duration = Duration::from_millis(1500);

/// Runs it.
///
/// # Errors
/// A file or an object that cannot be loaded, unless those are to be left out.
pub(crate) async fn simulate(flags: &SimulateFlags) -> anyhow::Result<()> {
    let server = ApiServer::new(with_groups(&flags.kubernetes), Clock::Real, 0);
    let (mut loaded, mut bad, mut others) = (0, Vec::new(), BTreeMap::<String, usize>::new());
    let groups = version_of_groups(&flags.kubernetes);
    manifests::each(
        &flags.files,
        &mut |found| match found.and_then(|found| load(&server, groups, &found)) {
            Ok(None) => loaded += 1,
            Ok(Some(kind)) => *others.entry(kind).or_default() += 1,
            Err(why) => bad.push(format!("{why:#}")),
        },
    )?;
    if !others.is_empty() {
        let others = others.iter().map(|(kind, count)| format!("{count} of kind {kind}"));
        let others = others.collect::<Vec<_>>().join(", ");
        writeln!(std::io::stderr(), "left out, because no claim depends on them: {others}")
            .context("stderr")?;
    }
    let mut out = std::io::stdout().lock();
    for why in &bad {
        writeln!(std::io::stderr(), "cannot load {why}").context("stderr")?;
    }
    ensure!(
        bad.is_empty() || flags.skip_bad,
        "{} of {} objects cannot be loaded (--skip-bad leaves them out)",
        bad.len(),
        bad.len() + loaded
    );
    ensure!(loaded > 0, "there is nothing to look at");
    writeln!(out, "{loaded} objects; what dragoman would do in mode own:").context("stdout")?;
    watch(&server, &mut out).await
}

/// Prints what the controllers decide and say, until nothing is written any more.
async fn watch(server: &ApiServer, out: &mut impl std::io::Write) -> anyhow::Result<()> {
    server.chronicle();
    let dragoman = simulated::dragoman(server);
    let (mut said, mut decided) = (0, 0);
    let mut quiet = tokio::time::Instant::now();
    while !dragoman.synced() || quiet.elapsed() < QUIET {
        let steps = server.chronicled(said);
        if !steps.is_empty() {
            quiet = tokio::time::Instant::now();
            said += steps.len();
        }
        for line in steps.iter().flat_map(|step| in_words(server, step)) {
            decided += 1;
            writeln!(out, "  {}", printable(&line)).context("stdout")?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let dump = dragoman.dump();
    for line in dump.lines().filter_map(|line| line.trim_start().strip_prefix("unreadable ")) {
        writeln!(out, "  does not decode, and holds up whatever depends on it: {line}").context("stdout")?;
    }
    let events = server.all("events.events.k8s.io");
    for event in &events {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = &event["regarding"];
        writeln!(
            out,
            "  says   {} about {} {}/{}: {}",
            text(&event["reason"]),
            text(&of["kind"]),
            text(&of["namespace"]),
            text(&of["name"]),
            printable(&text(&event["note"]))
        )
        .context("stdout")?;
    }
    if decided == 0 && events.is_empty() {
        writeln!(out, "  nothing").context("stdout")?;
    }
    Ok(())
}

/// A field of the metadata of an object.
fn named<'a>(object: &'a Value, field: &str) -> &'a str {
    object.pointer(&format!("/metadata/{field}")).and_then(Value::as_str).unwrap_or_default()
}

/// The changes of a step, each with the object.
fn in_words(server: &ApiServer, step: &HistoryStep) -> Vec<String> {
    let change = Change { before: step.before.as_deref(), after: step.after.as_deref() };
    let Some(object) = change.after.or(change.before) else { return Vec::new() };
    let text = |field: &str| named(object, field);
    let pods = server.all("pods");
    let pod = |name: &str| {
        pods.iter().find(|pod| named(pod, "name") == name && named(pod, "namespace") == text("namespace"))
    };
    let (kind, words) = match step.resource.as_str() {
        "resourceclaims.resource.k8s.io" => (
            "claim",
            changes::of_claim(change, |of| changes::fate(of, pod(changes::name(of)).map(|pod| &**pod))),
        ),
        "pods" => ("Pod", changes::of_pod(change)),
        _ => return Vec::new(),
    };
    words.into_iter().map(|words| format!("{kind} {}/{} {words}", text("namespace"), text("name"))).collect()
}

/// Gives an object without a uid one by its name, and references without a uid that of the object that they name: in a dump without uids
/// a claim is reserved for the Pod of that name.
fn give_uids(object: &mut Value) {
    let namespace = named(object, "namespace").to_owned();
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let uid = |kind: &str, name: &str| json!(format!("{kind} {namespace}/{name}"));
    let of_object = uid(&kind, named(object, "name"));
    let lacks = |of: &Value| of.get("uid").and_then(Value::as_str).unwrap_or_default().is_empty();
    let text = |of: &Value, field: &str| of.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let give = |of: Option<&mut Value>, uid: Value| {
        if let Some(fields) = of.and_then(Value::as_object_mut) {
            fields.insert("uid".to_owned(), uid);
        }
    };
    if object.get("metadata").is_some_and(lacks) {
        give(object.get_mut("metadata"), of_object);
    }
    for (path, field) in [("/status/reservedFor", "resource"), ("/metadata/ownerReferences", "kind")] {
        let references = object.pointer_mut(path).and_then(Value::as_array_mut);
        for of in references.into_iter().flatten().filter(|of| lacks(of)) {
            let kind = match text(of, field).as_str() {
                "pods" => "Pod".to_owned(),
                "podgroups" => "PodGroup".to_owned(),
                other => other.to_owned(),
            };
            let uid = uid(&kind, &text(of, "name"));
            give(Some(of), uid);
        }
    }
}

/// The profile of a cluster that may have PodGroups with claims of their own.
fn with_groups(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    profile.on.extend(["GenericWorkload", "DRAWorkloadResourceClaims"].map(str::to_owned));
    profile
}

/// The version in which a profile serves PodGroups.
fn version_of_groups(profile: &Profile) -> &'static str {
    if profile.minor <= 36 { "scheduling.k8s.io/v1alpha2" } else { "scheduling.k8s.io/v1beta1" }
}

/// Loads an object. Returns its kind if no claim depends on objects of that kind.
/// PodGroups are loaded as `groups`, the version that is served.
fn load(server: &ApiServer, groups: &str, found: &Found) -> anyhow::Result<Option<String>> {
    let place = &found.place;
    let of = |text: &Option<Name>| text.as_deref().unwrap_or_default().to_owned();
    let (kind, version) = (of(&found.head.kind), of(&found.head.api_version));
    if kind.is_empty() || version.is_empty() {
        bail!("{place}: it is no Kubernetes object: it has no kind or no apiVersion");
    }
    let metadata = found.head.metadata.clone().unwrap_or_default();
    let name = format!("{kind} {}/{}", of(&metadata.namespace), of(&metadata.name));
    let mut object = found.object()?;
    if kind == "PodGroup" && version.starts_with("scheduling.k8s.io/") {
        object.as_object_mut().map(|fields| fields.insert("apiVersion".to_owned(), json!(groups)));
    }
    give_uids(&mut object);
    match server.load(object) {
        Ok(()) => Ok(None),
        // What says something about devices is not left out in silence.
        Err(LoadError::UnknownKind { .. }) if !version.starts_with("resource.k8s.io/") => Ok(Some(kind)),
        Err(why) => Err(why).with_context(|| format!("{place}: {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_uids_names_say_which_object_is_meant() {
        let mut pod = json!({"kind": "Pod", "metadata": {"namespace": "ns", "name": "p"}});
        let mut claim = json!({"kind": "ResourceClaim", "metadata": {"namespace": "ns", "name": "c",
            "ownerReferences": [{"kind": "Pod", "name": "p"}, {"kind": "Pod", "name": "q", "uid": "u"}]},
            "status": {"reservedFor": [{"resource": "pods", "name": "p"}]}});
        give_uids(&mut pod);
        give_uids(&mut claim);
        let uid = &pod["metadata"]["uid"];
        assert_eq!((uid, &claim["status"]["reservedFor"][0]["uid"]), (&json!("Pod ns/p"), uid));
        assert_eq!(&claim["metadata"]["ownerReferences"][0]["uid"], uid);
        assert_eq!(claim["metadata"]["ownerReferences"][1]["uid"], json!("u"));
    }

    #[test]
    fn what_is_no_object_is_named() {
        let server = ApiServer::new(with_groups(&Profile::default()), Clock::Real, 0);
        let loaded = |object: Value| {
            let (mut outcome, text) = (Ok(None), object.to_string());
            manifests::read(std::path::Path::new("f"), text.as_bytes(), &mut |found| {
                outcome = found
                    .and_then(|found| load(&server, version_of_groups(&Profile::default()), &found))
                    .map_err(|why| format!("{why:#}"));
            })
            .expect("a text");
            outcome
        };
        let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b", "uid": "u"}});
        assert_eq!(loaded(pod.clone()), Ok(None));
        assert!(loaded(pod).expect_err("twice").contains("f:1: Pod b/a"));
        assert!(loaded(serde_json::json!({"a": 1})).expect_err("no object").contains("no Kubernetes object"));
        let other = |version: &str| serde_json::json!({"apiVersion": version, "kind": "Toaster", "metadata": {"name": "x"}});
        assert_eq!(loaded(other("dragoman.dev/v1alpha1")), Ok(Some("Toaster".to_owned())));
        assert!(loaded(other("resource.k8s.io/v1")).expect_err("unknown").contains("Toaster"));
        let group = serde_json::json!({"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "b"}});
        assert_eq!(loaded(group), Ok(None), "of whatever version");
    }
}
