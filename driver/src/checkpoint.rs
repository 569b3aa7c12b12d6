//! Checkpoint of the prepared claims, in files that survive a crash: one for each claim, written whole or
//! not at all.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::cdi::Spec;
use crate::claim::{Allocated, ClaimReference};

/// The version of the files. A newer one is refused: what it says may mean something else.
const VERSION: u32 = 1;

/// A claim that is prepared, or was about to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    version: u32,
    /// The start of the node in which it was prepared.
    #[serde(default)]
    boot: String,
    pub(crate) claim: ClaimReference,
    pub(crate) devices: Vec<Held>,
    /// Content of the claim's CDI file; absent until the driver has prepared the claim, and again after a
    /// restart of the node.
    pub(crate) spec: Option<Spec>,
}

/// A device of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Held {
    pub(crate) request: String,
    pub(crate) pool: String,
    pub(crate) device: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) share_id: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) admin_access: bool,
}

impl Record {
    pub(crate) fn of(claim: &ClaimReference, allocated: &[Allocated], boot: &str) -> Self {
        let held = |of: &Allocated| Held {
            request: of.request.clone(),
            pool: of.pool.clone(),
            device: of.device.clone(),
            share_id: of.share_id.clone(),
            admin_access: of.admin_access,
        };
        let devices = allocated.iter().map(held).collect();
        Self { version: VERSION, boot: boot.to_owned(), claim: claim.clone(), devices, spec: None }
    }

    /// Pool and name of its devices.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.devices.iter().map(|held| (held.pool.clone(), held.device.clone()))
    }
}

/// The files of a driver.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    directory: PathBuf,
    boot: String,
}

/// Content of the files.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// Claims by uid.
    pub(crate) records: BTreeMap<String, Record>,
    /// Reasons why files are of no use, by the uid of their claim.
    pub(crate) unreadable: BTreeMap<String, String>,
}

impl Checkpoint {
    /// Reads the files in `directory`, which is made if it is missing. After another start of the node than `boot` nothing is
    /// as the driver left it: its claims hold their devices, and are prepared again.
    ///
    /// # Errors
    /// The directory cannot be read or made.
    pub(crate) fn open(directory: PathBuf, boot: String) -> anyhow::Result<(Self, Restored)> {
        let named = || directory.display().to_string();
        std::fs::create_dir_all(&directory).with_context(named)?;
        let mut restored = Restored::default();
        for entry in std::fs::read_dir(&directory).with_context(named)? {
            let path = entry.with_context(named)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.ends_with(TEMPORARY) {
                // A process died while it wrote: nothing was done on the strength of it.
                std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
                continue;
            }
            let Some(uid) = name.strip_suffix(".json") else { continue };
            match read(&path) {
                Ok(mut record) => {
                    if record.boot != boot {
                        record.spec = None;
                    }
                    restored.records.insert(uid.to_owned(), record);
                }
                Err(why) => drop(restored.unreadable.insert(uid.to_owned(), format!("{why:#}"))),
            }
        }
        Ok((Self { directory, boot }, restored))
    }

    /// The start of the node.
    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// Writes what is known of a claim.
    ///
    /// # Errors
    /// It cannot be written: the disk is full, for example. What was there before is there still.
    pub(crate) fn write(&self, record: &Record) -> anyhow::Result<()> {
        write_and_rename(&self.path(&record.claim.uid)?, &serde_json::to_vec(record)?)
    }

    /// Forgets a claim.
    ///
    /// # Errors
    /// Its file cannot be removed.
    pub(crate) fn remove(&self, uid: &str) -> anyhow::Result<()> {
        remove(&self.path(uid)?)
    }

    fn path(&self, uid: &str) -> anyhow::Result<PathBuf> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        ensure!(!uid.is_empty() && uid.len() <= 64 && uid.chars().all(is_plain), "{uid:?} is no uid");
        Ok(self.directory.join(format!("{uid}.json")))
    }
}

fn read(path: &Path) -> anyhow::Result<Record> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let named = || path.display().to_string();
    let text = std::fs::read(path).with_context(named)?;
    let head: Version = serde_json::from_slice(&text).with_context(named)?;
    if head.version > VERSION {
        bail!("{} is of version {}, and this driver knows {VERSION}", path.display(), head.version);
    }
    serde_json::from_slice(&text).with_context(named)
}

/// The end of the names of files that are not whole yet.
pub(crate) const TEMPORARY: &str = ".tmp";

/// Writes a file beside its place, and then puts it there.
pub(crate) fn write_and_rename(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY);
    let temporary = PathBuf::from(temporary);
    let written = || {
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        // The name is on the disk, too, before anything is done on the strength of it.
        path.parent().map_or(Ok(()), |directory| std::fs::File::open(directory)?.sync_all())
    };
    written().map_err(|error: std::io::Error| {
        // What is left of it is in the way of nothing, and is removed at the next start where it cannot be now.
        drop(std::fs::remove_file(&temporary));
        anyhow::Error::new(error).context(format!("cannot write {}", path.display()))
    })
}

/// Removes a file that may be gone already.
pub(crate) fn remove(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(anyhow::Error::new(error).context(format!("cannot remove {}", path.display())))
        }
        _ => Ok(()),
    }
}
