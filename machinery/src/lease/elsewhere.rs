//! Leaders in other namespaces. The Lease keeps two processes of one installation apart; two
//! installations in two namespaces have two Leases, and both lead.
//!
//! Every write is guarded, so that two leaders do no harm; but they double every request, and neither
//! of the two is the one that an engineer believes to run. Anyone may write a Lease of our name into
//! the own namespace, so that what is found here is only said: nothing stops for it.

use std::collections::BTreeMap;
use std::time::Duration;

use dragoman_objects::{Meta, Object};
use tokio::time::{Instant, sleep};

use super::{Leadership, Lease};
use crate::events::{Event, Recorder, Regarding, Severity};
use crate::kind::LEASE;
use crate::metrics::MachineryMetrics;
use crate::watch::{Connection, Failure, Item, Selectors, Source as _, Watched};

/// The time between two looks of a leader. A Lease that was renewed meanwhile has a leader: the longest
/// pause between two renewals is 10 s.
const LOOK: Duration = Duration::from_secs(20);
/// Interval at which a process that does not lead checks whether it leads now: a new leader begins to
/// look within it.
const SOON: Duration = Duration::from_secs(1);
/// Shortest time between two warnings: a user who may write Leases can make them come and go, and
/// rename the holder.
const SAID: Duration = Duration::from_mins(10);
/// The looks in a row that may fail before what is known is forgotten.
const FAILURES: u32 = 3;
/// The leaders that a text names; the others are counted.
const NAMED: usize = 3;
/// The characters of a holder that a text shows: more than a Pod's name, a time and a mode have.
const SHOWN: usize = 120;

impl Object for Lease {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Finds leaders in other namespaces, and says so.
pub struct Elsewhere {
    /// Where Leases are listed.
    pub connection: Connection,
    /// For the Event.
    pub recorder: Recorder,
    /// For the gauge.
    pub metrics: MachineryMetrics,
    /// Namespace of our own Lease.
    pub namespace: String,
    /// Name of every Lease.
    pub name: &'static str,
}

/// Uid and resourceVersion of each held Lease at the look before, by namespace.
type Versions = BTreeMap<String, (String, String)>;

/// Result of one look.
#[derive(Debug, Default, PartialEq, Eq)]
struct Look {
    /// Namespace and holder of every Lease elsewhere that was renewed since the look before.
    leaders: Vec<(String, String)>,
    /// For the next look.
    versions: Versions,
    /// The uid of our own Lease.
    own: Option<String>,
}

impl Look {
    /// Takes a Lease in.
    fn take(&mut self, lease: &Lease, namespace: &str, before: &Versions) {
        let meta = &lease.metadata;
        if &*meta.namespace == namespace {
            self.own = Some(meta.uid.to_string());
            return;
        }
        let Some(holder) = lease.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty()) else {
            return;
        };
        let now = (meta.uid.to_string(), meta.resource_version.to_string());
        let renewed =
            before.get(&*meta.namespace).is_some_and(|(uid, version)| *uid == now.0 && *version != now.1);
        if renewed {
            self.leaders.push((
                meta.namespace.to_string(),
                holder.chars().take(SHOWN).flat_map(char::escape_debug).collect(),
            ));
        }
        self.versions.insert(meta.namespace.to_string(), now);
    }

    /// Names the leaders; nothing if there is none.
    fn in_words(&self) -> Option<String> {
        let named: Vec<String> = self
            .leaders
            .iter()
            .take(NAMED)
            .map(|(namespace, holder)| format!("{namespace} ({holder})"))
            .collect();
        let others = self.leaders.len().saturating_sub(NAMED);
        let others = if others == 0 { String::new() } else { format!(" and {others} more") };
        (!named.is_empty()).then(|| {
            format!(
                "a Lease of the same name is renewed in namespace {}{others}: two installations do every \
                 work twice; remove one",
                named.join(", ")
            )
        })
    }
}

impl Elsewhere {
    /// Looks for as long as the process runs, while it leads.
    pub async fn run(self, leadership: Leadership) {
        let Connection { client, discovery, .. } = &self.connection;
        let fields = format!("metadata.name={}", self.name);
        let mut source = Watched::<Lease>::new(client.clone(), LEASE, discovery.clone())
            .selecting(Selectors { fields, ..Selectors::default() });
        let mut before = Versions::new();
        let (mut said, mut failures) = (None::<Instant>, 0);
        let mut pause = SOON;
        loop {
            sleep(pause).await;
            let leads = leadership.holds();
            pause = if leads { LOOK } else { SOON };
            if !leads || failures > FAILURES {
                self.metrics.leaders_elsewhere.set(0);
                before.clear();
            }
            if !leads {
                continue;
            }
            match look(&mut source, &self.namespace, &before).await {
                Ok(look) => {
                    self.metrics.leaders_elsewhere.set(i64::try_from(look.leaders.len()).unwrap_or(i64::MAX));
                    let is_due = said.is_none_or(|said| said.elapsed() >= SAID);
                    if let Some(note) = look.in_words().filter(|_| is_due) {
                        tracing::warn!(lease = self.name, "{note}");
                        self.say(look.own, note);
                        said = Some(Instant::now());
                    }
                    (before, failures) = (look.versions, 0);
                }
                Err(error) => {
                    if failures == 0 {
                        tracing::warn!(%error, "cannot look for leaders in other namespaces");
                    }
                    failures += 1;
                }
            }
        }
    }

    fn say(&self, own: Option<String>, note: String) {
        let regarding = Regarding {
            kind: LEASE,
            namespace: self.namespace.clone(),
            name: self.name.to_owned(),
            uid: own.unwrap_or_default(),
        };
        let (severity, reason, action) = (Severity::Warning, "LeaderElsewhere", "LeaderElection");
        self.recorder.alarm(Event { regarding, severity, reason, action, note });
    }
}

/// Lists every Lease of our name.
async fn look(source: &mut Watched<Lease>, namespace: &str, before: &Versions) -> Result<Look, Failure> {
    let (mut look, mut page) = (Look::default(), None);
    loop {
        let each = |item| {
            // A Lease that does not decode is none that a Dragoman renews.
            if let Item::Readable(lease) = item {
                look.take(&lease, namespace, before);
            }
        };
        match source.list(page.as_deref(), each).await?.next {
            Some(token) => page = Some(token),
            None => return Ok(look),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;

    fn seen(before: &Versions, leases: &[(&str, &str, &str)]) -> Look {
        let mut look = Look::default();
        for (namespace, version, holder) in leases {
            let lease = json!({
                "metadata": {"name": "dragoman", "namespace": namespace, "uid": format!("u-{namespace}"),
                             "resourceVersion": version},
                "spec": {"holderIdentity": holder},
            });
            look.take(&Lease::deserialize(lease).expect("lease"), "kube-system", before);
        }
        look
    }

    #[test]
    fn a_lease_that_is_renewed_elsewhere_has_a_leader() {
        let first =
            seen(&Versions::new(), &[("kube-system", "7", "me"), ("b", "1", "pod-1_own"), ("c", "1", "old")]);
        assert_eq!((first.in_words(), first.own.as_deref()), (None, Some("u-kube-system")));
        let second =
            seen(&first.versions, &[("kube-system", "8", "me"), ("b", "2", "pod-1_own"), ("c", "1", "old")]);
        assert_eq!(second.leaders, [("b".to_owned(), "pod-1_own".to_owned())]);
        let note = second.in_words().expect("a leader");
        assert!(
            note.starts_with("a Lease of the same name is renewed in namespace b (pod-1_own): two"),
            "{note}"
        );
        // One that was given up, and one that was made anew.
        let third = seen(&second.versions, &[("b", "3", ""), ("c", "1", "old")]);
        assert_eq!(third.in_words(), None);
        assert_eq!(seen(&third.versions, &[("b", "4", "again")]).in_words(), None);
    }

    #[test]
    fn many_leases_and_long_holders_are_a_short_text() {
        let names: Vec<String> = (0..1_000).map(|n| format!("n{n}")).collect();
        let holder = "x".repeat(100_000);
        let at = |version| names.iter().map(move |name| (&**name, version)).collect::<Vec<_>>();
        let leases = |version| {
            at(version).into_iter().map(|(name, version)| (name, version, &*holder)).collect::<Vec<_>>()
        };
        let first = seen(&Versions::new(), &leases("1"));
        let note = seen(&first.versions, &leases("2")).in_words().expect("leaders");
        assert!(note.len() < 1_024 && note.contains("and 997 more"), "{note}");
    }
}
