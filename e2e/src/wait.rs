//! Waits for conditions, never for a fixed time.

use std::time::{Duration, Instant};

use anyhow::bail;

/// The pause between two checks of a condition.
const POLL: Duration = Duration::from_millis(50);

/// Waits until `condition` holds.
pub(crate) async fn until<F: AsyncFnMut() -> bool>(
    what: &str,
    patience: Duration,
    condition: F,
) -> anyhow::Result<()> {
    poll(what, patience, POLL, condition).await
}

/// As [`until`], for conditions that are expensive to check.
pub(crate) async fn slowly<F: AsyncFnMut() -> bool>(
    what: &str,
    patience: Duration,
    condition: F,
) -> anyhow::Result<()> {
    poll(what, patience, POLL * 20, condition).await
}

async fn poll<F: AsyncFnMut() -> bool>(
    what: &str,
    patience: Duration,
    pause: Duration,
    mut condition: F,
) -> anyhow::Result<()> {
    let started = Instant::now();
    while !condition().await {
        if started.elapsed() > patience {
            bail!("waited {} s in vain until {what}", patience.as_secs());
        }
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// Waits until `look` returns a value.
pub(crate) async fn value<T, F: AsyncFnMut() -> anyhow::Result<Option<T>>>(
    what: &str,
    patience: Duration,
    mut look: F,
) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        if let Some(value) = look().await? {
            return Ok(value);
        }
        if started.elapsed() > patience {
            bail!("waited {} s in vain until {what}", patience.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
}
