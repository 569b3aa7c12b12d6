//! Whether the policies of claim gates are installed, all of them: without the one that gives Pods the gate, Pods start past it;
//! without another, tenants take the gate off.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dragoman_machinery::admin::Check;
use dragoman_machinery::api::{Api, Live};
use dragoman_machinery::discovery::{Discovery, Served};
use dragoman_machinery::kind::Kind;
use dragoman_machinery::metrics::Declare as _;
use dragoman_machinery::refusal::Refusal;
use dragoman_machinery::rights::Rule;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Time between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_mins(1);
/// The same while one of them is missing: an installation that is under way is soon complete.
const WHILE_INCOMPLETE: Duration = Duration::from_secs(5);

/// Returns the right to look whether a policy of a kind is there.
pub(crate) const fn right(kind: Kind) -> Rule {
    let why = "report a policy of claim gates that is missing";
    Rule { group: kind.group, resource: kind.plural, verbs: &["get"], why }
}

/// The result of the last look.
#[derive(Clone)]
pub(crate) struct Presence {
    names: Arc<BTreeMap<Kind, Vec<String>>>,
    installed: Family<Vec<(&'static str, String)>, Gauge>,
    verdict: Arc<Mutex<Result<(), String>>>,
}

impl Presence {
    /// Starts with the names of policies by kind. Nothing is known to be missing yet.
    pub(crate) fn register(names: BTreeMap<Kind, Vec<String>>, registry: &mut Registry) -> Self {
        Self {
            names: Arc::new(names),
            installed: registry.declare("dragoman_gating_policy_installed", "1 for each policy of claim gates, and for its binding, that is installed; 0 for one that is not"),
            verdict: Arc::new(Mutex::new(Ok(()))),
        }
    }

    /// A check that fails while some of the policies are installed and others are not.
    pub(crate) fn check(&self) -> Check {
        let presence = self.clone();
        Box::new(move || presence.verdict().clone())
    }

    /// Looks again and again.
    pub(crate) async fn keep(self, api: Api, discovery: Discovery) {
        loop {
            let verdict = match self.look(&api, &discovery).await {
                Ok(found) => verdict(&found),
                Err(refusal @ Refusal::Rbac(_)) => Err(format!("missing right to read policies: {refusal}")),
                Err(refusal) => {
                    tracing::warn!(%refusal, "cannot look for the policies of claim gates");
                    tokio::time::sleep(WHILE_INCOMPLETE).await;
                    continue;
                }
            };
            let pause = if verdict.is_ok() { BETWEEN_LOOKS } else { WHILE_INCOMPLETE };
            let before = std::mem::replace(&mut *self.verdict(), verdict.clone());
            if before != verdict
                && let Err(why) = verdict
            {
                tracing::error!(why);
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn verdict(&self) -> MutexGuard<'_, Result<(), String>> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which of the policies are there.
    async fn look(&self, api: &Api, discovery: &Discovery) -> Result<BTreeMap<String, bool>, Refusal> {
        let mut found = BTreeMap::new();
        for (kind, names) in &*self.names {
            for name in names {
                let there = match api.read(*kind, "", name).await {
                    Ok(Live::Found(_)) => true,
                    Ok(Live::NotFound) => false,
                    // Before 1.36 the API server does not serve MutatingAdmissionPolicy. A 404 alone may come from what stands before it.
                    Err(Refusal::Unserved(why)) => match discovery.ask(*kind).await? {
                        Served::No => false,
                        Served::Yes => return Err(Refusal::Unserved(why)),
                    },
                    Err(refusal) => return Err(refusal),
                };
                let labels = vec![("kind", kind.kind.to_owned()), ("name", name.clone())];
                self.installed.get_or_create(&labels).set(i64::from(there));
                found.insert(format!("{} {name}", kind.kind), there);
            }
        }
        Ok(found)
    }
}

/// Judges what was found. Where none of them is installed, gating is off, and the gate stands in a Pod if its author has written it.
fn verdict(found: &BTreeMap<String, bool>) -> Result<(), String> {
    let missing: Vec<&str> = found.iter().filter(|(_, there)| !**there).map(|(name, _)| &**name).collect();
    if missing.is_empty() || missing.len() == found.len() {
        return Ok(());
    }
    let (count, all) = (missing.len(), found.len());
    Err(format!(
        "{count} of {all} policies of claim gates are missing: {}; install them again with the package, or by `dragoman gating on`",
        missing.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_policies_without_the_others_are_reported_and_none_at_all_are_not() {
        let judged = |there: [bool; 2]| {
            let names = ["MutatingAdmissionPolicy a", "ValidatingAdmissionPolicy b"];
            verdict(&names.map(str::to_owned).into_iter().zip(there).collect())
        };
        assert_eq!((judged([true, true]), judged([false, false])), (Ok(()), Ok(())));
        let missing = judged([false, true]).expect_err("one is missing");
        assert!(
            missing.starts_with("1 of 2 policies of claim gates are missing: MutatingAdmissionPolicy a;"),
            "{missing}"
        );
    }
}
