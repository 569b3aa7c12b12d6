//! The API server's audit log: the honest count of who wrote what.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Context as _;
use dragoman_simcluster::{ApiServer, Refused, Write};
use serde::Deserialize;

/// Writes only, without bodies, and everything the operator asks for.
pub(super) const POLICY: &str = r"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
  - level: Metadata
    verbs: [create, update, patch, delete, deletecollection]
  - level: Metadata
    users:
      - system:serviceaccount:kube-system:dragoman
      - system:serviceaccount:kube-system:dragoman-allocator
  - level: None
";

/// The log: a file of the real API server, or what simcluster remembers.
#[derive(Clone)]
pub enum Audit {
    /// The file that the API server writes.
    File(PathBuf),
    /// simcluster.
    Sim(ApiServer),
}

/// A write.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The verb.
    pub verb: String,
    /// The user who wrote.
    pub user: User,
    /// The object.
    #[serde(default)]
    pub object_ref: ObjectRef,
    /// The answer.
    #[serde(default)]
    pub response_status: ResponseStatus,
}

#[derive(Debug, Clone, Deserialize)]
pub struct User {
    pub username: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ObjectRef {
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ResponseStatus {
    pub code: u16,
}

impl From<Write> for Entry {
    fn from(write: Write) -> Self {
        let code = if write.verb == "create" { 201 } else { 200 };
        let Write { user, verb, resource, namespace, name, .. } = write;
        Self::new(user, verb.to_owned(), &resource, namespace, name, code)
    }
}

impl From<Refused> for Entry {
    fn from(refused: Refused) -> Self {
        let Refused { user, verb, resource, namespace, name } = refused;
        Self::new(user, verb, &resource, namespace, name, 403)
    }
}

impl Entry {
    fn new(
        username: String,
        verb: String,
        resource: &str,
        namespace: String,
        name: String,
        code: u16,
    ) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, subresource) = (resource.to_owned(), subresource.to_owned());
        Self {
            verb,
            user: User { username },
            object_ref: ObjectRef { resource, subresource, namespace, name },
            response_status: ResponseStatus { code },
        }
    }

    /// The party behind it, in a word.
    pub fn party(&self) -> &str {
        match self.user.username.as_str() {
            super::OPERATOR => "dragoman",
            super::ALLOCATOR => "allocator",
            "system:kube-scheduler" => "kube-scheduler",
            "system:serviceaccount:kube-system:resource-claim-controller" => "built-in claim controller",
            name if name.starts_with("system:serviceaccount:kube-system:") => "other controllers",
            "admin" | "kubelet" => "test",
            other => other,
        }
    }

    /// Verb and resource, for example `patch resourceclaims/status`.
    pub fn what(&self) -> String {
        let ObjectRef { resource, subresource, .. } = &self.object_ref;
        let slash = if subresource.is_empty() { "" } else { "/" };
        format!("{} {resource}{slash}{subresource}", self.verb)
    }

    /// Whether the API server did what the request asked for.
    pub fn took_effect(&self) -> bool {
        self.response_status.code < 300
    }

    /// Whether the object's version refused the write. On a busy machine a party may see an object late; it writes again when it
    /// has seen it.
    pub fn was_late(&self) -> bool {
        self.response_status.code == 409
    }
}

impl Audit {
    /// The lines of the file.
    fn text(&self) -> String {
        match self {
            Self::File(path) => std::fs::read_to_string(path).unwrap_or_default(),
            Self::Sim(_) => String::new(),
        }
    }

    /// Every request that was refused to a user for want of a right.
    pub fn refusals(&self, user: &str) -> Vec<Entry> {
        if let Self::Sim(server) = self {
            let refused = server.refused().into_iter().map(Entry::from);
            return refused.filter(|entry| entry.user.username == user).collect();
        }
        let text = self.text();
        let forbidden = text.lines().filter(|line| line.contains("\"code\":403"));
        forbidden
            .filter_map(|line| serde_json::from_str::<Entry>(line).ok())
            .filter(|entry| entry.user.username == user)
            .collect()
    }

    /// The number of writes that a user tried, allowed or not.
    pub fn writes_of(&self, user: &str) -> usize {
        let user = format!("\"username\":{user:?}");
        self.text().lines().filter(|line| line.contains(&user)).count()
    }

    /// The number of writes so far.
    pub fn writes(&self) -> usize {
        if let Self::Sim(server) = self {
            return server.writes(0).len();
        }
        let reads = ["get", "list", "watch"].map(|verb| format!("\"verb\":{verb:?}"));
        self.text().lines().filter(|line| !reads.iter().any(|read| line.contains(read))).count()
    }

    /// Starts the log anew.
    pub fn forget(&self) -> anyhow::Result<()> {
        match self {
            Self::File(path) => {
                std::fs::OpenOptions::new().write(true).truncate(true).open(path).context("audit log")?;
            }
            Self::Sim(server) => server.forget_refused(),
        }
        Ok(())
    }

    /// Names of the claims in `namespace` that the garbage collector deleted.
    pub fn collected_claims(&self, namespace: &str) -> BTreeSet<String> {
        let entries = self.entries(namespace).into_iter();
        let collected = entries.filter(|entry| {
            entry.what() == "delete resourceclaims"
                && entry.user.username == "system:serviceaccount:kube-system:generic-garbage-collector"
        });
        collected.map(|entry| entry.object_ref.name).collect()
    }

    /// All writes about `namespace`, in order.
    pub fn entries(&self, namespace: &str) -> Vec<Entry> {
        if let Self::Sim(server) = self {
            let writes = server.writes(0).into_iter().filter(|write| write.namespace == namespace);
            return writes.map(Entry::from).collect();
        }
        let text = self.text();
        text.lines()
            .filter(|line| line.contains(namespace))
            .filter_map(|line| serde_json::from_str::<Entry>(line).ok())
            .filter(|entry| entry.object_ref.namespace == namespace)
            .filter(|entry| !matches!(entry.verb.as_str(), "get" | "list" | "watch"))
            .collect()
    }
}
