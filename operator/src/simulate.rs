//! `dragoman simulate`: what Dragoman would do with a cluster of which there is only a dump.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use dragoman_objects::Name;
use dragoman_report::manifests::{self, Found};
use dragoman_simcluster::{ApiServer, Clock, Profile};
use serde_json::Value;

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
    #[arg(long, default_value = "1.36", value_name = "VERSION")]
    kubernetes: Profile,
}

/// Nothing is written any more when nothing has been for so long.
const QUIET: Duration = Duration::from_millis(1500);

/// Runs it.
///
/// # Errors
/// A file or an object that cannot be loaded, unless those are to be left out.
pub(crate) async fn simulate(flags: &SimulateFlags) -> anyhow::Result<()> {
    let server = ApiServer::new(flags.kubernetes.clone(), Clock::Real, 0);
    let (mut loaded, mut bad) = (0, Vec::new());
    manifests::each(&flags.files, &mut |found| match found.and_then(|found| load(&server, &found)) {
        Ok(()) => loaded += 1,
        Err(why) => bad.push(format!("{why:#}")),
    })?;
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
    let dragoman = simulated::dragoman(server);
    let (mut said, mut decided) = (server.writes(0).len(), 0);
    let mut quiet = tokio::time::Instant::now();
    while !dragoman.synced() || quiet.elapsed() < QUIET {
        let writes = server.writes(said);
        if !writes.is_empty() {
            quiet = tokio::time::Instant::now();
            said += writes.len();
        }
        let ours = writes.iter().filter(|write| write.user == simulated::USER && write.resource != "events");
        for write in ours {
            decided += 1;
            writeln!(out, "  {:<7}{:<24}{}/{}", write.verb, write.resource, write.namespace, write.name)
                .context("stdout")?;
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
            text(&event["note"])
        )
        .context("stdout")?;
    }
    if decided == 0 && events.is_empty() {
        writeln!(out, "  nothing").context("stdout")?;
    }
    Ok(())
}

fn load(server: &ApiServer, found: &Found) -> anyhow::Result<()> {
    let place = &found.place;
    let of = |text: &Option<Name>| text.as_deref().unwrap_or_default().to_owned();
    let (kind, version) = (of(&found.head.kind), of(&found.head.api_version));
    if kind.is_empty() || version.is_empty() {
        bail!("{place}: it is no Kubernetes object: it has no kind or no apiVersion");
    }
    let metadata = found.head.metadata.clone().unwrap_or_default();
    let name = format!("{kind} {}/{}", of(&metadata.namespace), of(&metadata.name));
    server.load(found.object()?).with_context(|| format!("{place}: {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_object_is_named() {
        let server = ApiServer::new(Profile::default(), Clock::Real, 0);
        let loaded = |object: Value| {
            let (mut outcome, text) = (Ok(()), object.to_string());
            manifests::read(std::path::Path::new("f"), text.as_bytes(), &mut |found| {
                outcome = found.and_then(|found| load(&server, &found)).map_err(|why| format!("{why:#}"));
            })
            .expect("a text");
            outcome
        };
        let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b", "uid": "u"}});
        assert_eq!(loaded(pod.clone()), Ok(()));
        assert!(loaded(pod).expect_err("twice").contains("f:1: Pod b/a"));
        assert!(loaded(serde_json::json!({"a": 1})).expect_err("no object").contains("no Kubernetes object"));
        assert!(
            loaded(serde_json::json!({"apiVersion": "v1", "kind": "Toaster", "metadata": {"name": "x"}}))
                .expect_err("unknown")
                .contains("Toaster")
        );
    }
}
