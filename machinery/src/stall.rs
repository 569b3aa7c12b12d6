//! Lateness of the runtime. Everything runs on one thread: a computation that takes long holds up
//! the renewal of the lease and the answers to probes, and no other figure shows it.

use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, sleep};

use crate::metrics::Declare as _;

/// Period of the timer. A stall shorter than this may stay unseen.
const PERIOD: Duration = Duration::from_millis(10);

/// Measures how late a short timer fires.
#[derive(Debug, Clone)]
pub struct StallWatch {
    late: Histogram,
}

impl StallWatch {
    /// Registers `dragoman_runtime_stall_seconds`.
    pub fn register(registry: &mut Registry) -> Self {
        // Timers are exact to a millisecond or two; the lease is lost after ten seconds.
        let buckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
        let late = registry.declare_as(
            "dragoman_runtime_stall_seconds",
            "Seconds by which a timer of 10 ms fires late",
            Histogram::new(buckets),
        );
        Self { late }
    }

    /// Measures for ever.
    pub async fn run(self) {
        loop {
            let began = Instant::now();
            sleep(PERIOD).await;
            self.late.observe(began.elapsed().saturating_sub(PERIOD).as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(registry: &Registry, le: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).expect("encode");
        let name = format!("dragoman_runtime_stall_seconds_bucket{{le=\"{le}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)).expect("bucket").parse().expect("number")
    }

    #[tokio::test(start_paused = true)]
    async fn a_blocked_runtime_shows_as_a_late_timer() {
        let mut registry = Registry::default();
        let watch = tokio::spawn(StallWatch::register(&mut registry).run());
        sleep(Duration::from_secs(1)).await;
        let quiet = count(&registry, "0.005");
        assert!(quiet > 50, "{quiet}");
        assert_eq!(count(&registry, "+Inf"), quiet, "nothing was late");
        // No task runs while the clock goes on.
        tokio::time::advance(Duration::from_millis(700)).await;
        sleep(PERIOD).await;
        assert_eq!(count(&registry, "0.5"), count(&registry, "0.25"));
        assert_eq!(count(&registry, "1.0"), count(&registry, "0.5") + 1);
        watch.abort();
    }
}
