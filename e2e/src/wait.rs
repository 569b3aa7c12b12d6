//! Waits for conditions, never for a fixed time.
//!
//! A wait that ends in vain says what it waited for and what it saw last: the answers that the client got while the
//! condition was checked for the last time.

use std::cell::RefCell;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::Value;

/// The pause between two checks of a condition.
const POLL: Duration = Duration::from_millis(50);

/// The longest wait, in seconds. On two idle cores the longest condition of the scenarios holds after 95 seconds (a
/// Lease that ends, a group that is looked for again); a machine that is ten times slower meets it. No wait has a limit
/// of its own: a limit that is too short makes a slow machine red, and one that is too long costs nothing.
static PATIENCE: AtomicU64 = AtomicU64::new(DEFAULT_PATIENCE);

/// [`PATIENCE`] unless the command line names another.
pub const DEFAULT_PATIENCE: u64 = 15 * 60;

/// The longest of the waits that ended well, in milliseconds.
static LONGEST: AtomicU64 = AtomicU64::new(0);

/// The longest wait.
pub fn patience() -> Duration {
    Duration::from_secs(PATIENCE.load(Ordering::Relaxed))
}

/// Sets the longest wait. Runs that look for planted defects give up sooner.
pub fn set_patience(seconds: u64) {
    PATIENCE.store(seconds, Ordering::Relaxed);
}

/// The longest of the waits that ended well, to be held against [`patience`].
pub fn longest() -> Duration {
    Duration::from_millis(LONGEST.load(Ordering::Relaxed))
}

tokio::task_local! {
    /// Answers that were seen while a condition is checked.
    static SEEN: RefCell<Vec<(String, Value)>>;
}

/// The answers of one check that a report shows; the first ones are dropped.
const SHOWN: usize = 3;
/// The characters of an answer that a report shows.
const SHOWN_CHARACTERS: usize = 1200;

/// Notes what a request saw, for the report of the wait that sent it.
pub fn note(what: impl FnOnce() -> String, seen: impl FnOnce() -> Value) {
    let kept = SEEN.try_with(|all| {
        let mut all = all.borrow_mut();
        if all.len() == SHOWN {
            all.remove(0);
        }
        all.push((what(), seen()));
    });
    // Outside of a wait nothing is kept.
    kept.unwrap_or_default();
}

/// One check, and what it saw.
async fn looked<T>(look: impl Future<Output = T>) -> (T, Vec<(String, Value)>) {
    SEEN.scope(RefCell::default(), async {
        let outcome = look.await;
        (outcome, SEEN.with(RefCell::take))
    })
    .await
}

/// Returns the answers that were seen, for people.
fn shown(seen: &[(String, Value)]) -> String {
    let each = seen.iter().map(|(what, seen)| {
        let mut seen = seen.clone();
        if let Some(metadata) = seen.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        // The status says most, and comes last in an object.
        let status = seen.as_object_mut().and_then(|of| of.remove("status"));
        let status = status.map_or_else(String::new, |status| format!("status {status} of "));
        let text = status + &seen.as_str().map_or_else(|| seen.to_string(), str::to_owned);
        let cut: String = text.chars().take(SHOWN_CHARACTERS).collect();
        format!("\n          {what}: {cut}")
    });
    each.collect()
}

/// Waits until `condition` holds.
pub async fn until<F: AsyncFnMut() -> bool>(what: &str, mut condition: F) -> anyhow::Result<()> {
    poll(what, POLL, async || Ok(condition().await.then_some(()))).await
}

/// As [`until`], for conditions that are expensive to check.
pub async fn slowly<F: AsyncFnMut() -> bool>(what: &str, mut condition: F) -> anyhow::Result<()> {
    poll(what, POLL * 20, async || Ok(condition().await.then_some(()))).await
}

/// Waits until `look` returns a value. Its error ends the wait at once.
pub async fn value<T, F: AsyncFnMut() -> anyhow::Result<Option<T>>>(
    what: &str,
    look: F,
) -> anyhow::Result<T> {
    poll(what, POLL, look).await
}

async fn poll<T, F: AsyncFnMut() -> anyhow::Result<Option<T>>>(
    what: &str,
    pause: Duration,
    mut look: F,
) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        // Boxed: the future of a scenario would have room for every look of its own.
        let (outcome, seen) = looked(Box::pin(look())).await;
        match outcome {
            Ok(Some(value)) => {
                let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                LONGEST.fetch_max(took, Ordering::Relaxed);
                return Ok(value);
            }
            Ok(None) if started.elapsed() <= patience() => {}
            Ok(None) => bail!(
                "expected that {what}; it did not come in {} s\n        last seen:{}",
                started.elapsed().as_secs(),
                shown(&seen)
            ),
            Err(error) => {
                return Err(
                    error.context(format!("while waiting until {what}\n        last seen:{}", shown(&seen)))
                );
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// A pause between two steps of a load. Nothing is concluded from it.
pub async fn apart() {
    tokio::time::sleep(POLL * 2).await;
}

/// Waits for the end of `work`, which is no condition that can be looked at.
pub async fn ended<T>(what: &str, work: impl Future<Output = T>) -> anyhow::Result<T> {
    let Ok(outcome) = tokio::time::timeout(patience(), work).await else {
        bail!("expected that {what}; it did not come in {} s", patience().as_secs());
    };
    Ok(outcome)
}
