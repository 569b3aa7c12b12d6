//! Two runs that use one directory at the same time would destroy each other's work.

use std::fs::{File, TryLockError};
use std::path::Path;

use anyhow::{Context as _, bail};

/// The file in a directory that its user locks.
const NAME: &str = ".lock";

/// Takes the directory for this process, until the file is dropped or the process ends.
///
/// # Errors
/// Another process has it.
pub fn lock(directory: &Path) -> anyhow::Result<File> {
    let path = directory.join(NAME);
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another run uses {}: wait until it has ended", directory.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// As [`lock`], but waits until the other process has ended.
pub async fn lock_in_turn(directory: &Path) -> anyhow::Result<File> {
    if let Ok(file) = lock(directory) {
        return Ok(file);
    }
    println!("another run uses {}: waiting until it has ended", directory.display());
    let file = File::create(directory.join(NAME)).context("lock")?;
    tokio::task::spawn_blocking(move || file.lock().map(|()| file)).await?.context("lock")
}
