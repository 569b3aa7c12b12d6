//! Which kinds the API serves.
//!
//! A kind that is not served must never be mistaken for one without objects, and
//! API servers of two versions may answer in turn during an upgrade. So the
//! answer has an age and is asked for again on every suspicion.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use crate::api::{Api, Call, decode};
use crate::kind::Kind;
use crate::refusal::Refusal;

/// Time for which an answer is believed without a reason to doubt it.
const FRESH: Duration = Duration::from_mins(3);

/// Whether a kind is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// The API server serves the kind.
    Yes,
    /// The API server said that it does not serve the kind.
    No,
}

/// Orders API versions as Kubernetes does: `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`; what is none is
/// lower than all.
fn rank(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    for (stability, word) in [(1, "alpha"), (2, "beta")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((stability, major.parse().ok()?, minor.parse().ok()?));
        }
    }
    Some((3, rest.parse().ok()?, 0))
}

/// Discovery with a short memory. Cheap to clone.
#[derive(Clone)]
pub struct Discovery {
    api: Api,
    known: Arc<Mutex<HashMap<String, (Instant, Vec<String>)>>>,
}

impl Discovery {
    /// Asks through `api`.
    pub fn new(api: Api) -> Self {
        Self { api, known: Arc::default() }
    }

    /// Whether `kind` is served, asked now.
    ///
    /// # Errors
    /// As for [`Discovery::serves`].
    pub async fn ask(&self, kind: Kind) -> Result<Served, Refusal> {
        self.known().remove(&kind.version_path());
        self.serves(kind).await
    }

    /// Whether `kind` is served, from an answer of the last few minutes.
    ///
    /// # Errors
    /// The API server gave no usable answer: the kind is unknown, neither served
    /// nor absent.
    pub async fn serves(&self, kind: Kind) -> Result<Served, Refusal> {
        #[derive(Deserialize)]
        struct List {
            #[serde(default)]
            resources: Vec<Resource>,
        }
        #[derive(Deserialize)]
        struct Resource {
            name: String,
        }
        let path = kind.version_path();
        let known = self.known().get(&path).filter(|(asked, _)| asked.elapsed() < FRESH).cloned();
        let resources = if let Some((_, resources)) = known {
            resources
        } else {
            // Not under the lock: a group whose server hangs must not hold up the others.
            let resources = match self.api.send(&Call::get(kind, path.clone(), "")).await {
                Ok(body) => decode::<List>(&body)?.resources.into_iter().map(|r| r.name).collect(),
                // A group version that is not there answers 404 with empty details.
                Err(Refusal::Unserved(_)) => Vec::new(),
                Err(other) => return Err(other),
            };
            self.known().insert(path, (Instant::now(), Vec::clone(&resources)));
            resources
        };
        Ok(if resources.iter().any(|r| r == kind.plural) { Served::Yes } else { Served::No })
    }

    /// The first of `kinds` that is served. Where none is, the kind in a version that is not known
    /// here, newest first: a release of Kubernetes may serve it in that version alone. A kind of our own in
    /// such a version has a meaning that is not known here.
    ///
    /// # Errors
    /// As for [`Discovery::serves`].
    pub async fn first_served(&self, kinds: &[Kind]) -> Result<Option<Kind>, Refusal> {
        for kind in kinds {
            if self.serves(*kind).await? == Served::Yes {
                return Ok(Some(*kind));
            }
        }
        let has_other_versions = |kind: &&Kind| !kind.group.is_empty() && !kind.is_own();
        let Some(newest) = kinds.first().filter(has_other_versions) else { return Ok(None) };
        for version in self.versions(*newest).await? {
            // An older one than those that are known has other fields.
            if rank(&version) <= rank(newest.version) {
                continue;
            }
            let kind = newest.in_version(&version);
            if self.serves(kind).await? == Served::Yes {
                tracing::warn!(%kind, version, "served in a version alone that is newer than this program");
                return Ok(Some(kind));
            }
        }
        Ok(None)
    }

    /// The versions in which the group of `kind` is served, in the order of the API server: newest
    /// first.
    async fn versions(&self, kind: Kind) -> Result<Vec<String>, Refusal> {
        #[derive(Deserialize)]
        struct Group {
            #[serde(default)]
            versions: Vec<Version>,
        }
        #[derive(Deserialize)]
        struct Version {
            version: String,
        }
        match self.api.send(&Call::get(kind, format!("/apis/{}", kind.group), "")).await {
            Ok(body) => Ok(decode::<Group>(&body)?.versions.into_iter().map(|v| v.version).collect()),
            Err(Refusal::Unserved(_)) => Ok(Vec::new()),
            Err(other) => Err(other),
        }
    }

    /// Something did not fit what is known: the next question is asked anew.
    pub fn invalidate(&self) {
        self.known().clear();
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, (Instant, Vec<String>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
