//! Progress of the Pods: on a terminal one line that changes, elsewhere a line now and then.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::cluster::Phases;

/// Where no terminal is, a line stands for this share of the Pods.
const PARTS: usize = 4;
/// A run is long, and people want to know how long, after this time.
const LONG: Duration = Duration::from_secs(5);

/// The line.
pub(super) struct Progress {
    pods: usize,
    started: Instant,
    is_terminal: bool,
    /// The part that was printed last, where no terminal is.
    part: usize,
    /// The width of the line that stands on the terminal.
    width: usize,
}

impl Progress {
    /// Begins, for so many Pods.
    pub(super) fn of(pods: usize) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        Self { pods, started: Instant::now(), is_terminal, part: 0, width: 0 }
    }

    /// Shows how far they are.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(super) fn show(&mut self, phases: Phases, claims: usize) -> anyhow::Result<()> {
        let text = line(self.pods, phases, claims, self.started.elapsed());
        let part = phases.ended(self.pods) * PARTS / self.pods.max(1);
        let mut out = std::io::stdout().lock();
        if self.is_terminal {
            write!(out, "\r{text:width$}", width = self.width)
                .and_then(|()| out.flush())
                .context("stdout")?;
            self.width = text.chars().count();
        } else if part > self.part {
            self.part = part;
            writeln!(out, "{text}").context("stdout")?;
        }
        Ok(())
    }

    /// Leaves the line.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        if self.is_terminal { super::say("") } else { Ok(()) }
    }
}

fn line(pods: usize, phases: Phases, claims: usize, since: Duration) -> String {
    let ended = phases.ended(pods);
    let waiting = pods.saturating_sub(phases.running + ended);
    let text =
        format!("   {waiting:>6} wait  {:>6} run  {ended:>6} done  {claims:>6} claims", phases.running);
    match rest(pods, ended, since) {
        Some((rate, seconds)) => format!("{text}   {rate} Pods a second, {seconds} s to go"),
        None => text,
    }
}

/// Returns the Pods that end in a second and the seconds that are left; `None` for a short run.
fn rest(pods: usize, ended: usize, since: Duration) -> Option<(u128, u128)> {
    let (left, ended) = (pods.saturating_sub(ended) as u128, ended as u128);
    let elapsed = since.as_millis();
    (since >= LONG && ended > 0 && left > 0)
        .then(|| (ended * 1000 / elapsed, (left * elapsed).div_ceil(ended * 1000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_says_how_long_it_still_takes() {
        assert_eq!(rest(1000, 100, Duration::from_secs(4)), None);
        assert_eq!(rest(1000, 100, Duration::from_secs(10)), Some((10, 90)));
        assert_eq!(rest(1000, 1000, Duration::from_secs(10)), None);
        assert_eq!(rest(1000, 0, Duration::from_secs(10)), None);
    }

    #[test]
    fn pods_that_are_gone_have_ended() {
        let phases = Phases { there: 7, running: 2, succeeded: 3, failed: 1 };
        let text = line(10, phases, 4, Duration::ZERO);
        assert_eq!(
            text.split_whitespace().collect::<Vec<_>>(),
            ["1", "wait", "2", "run", "7", "done", "4", "claims"]
        );
    }
}
