//! The resource usage of a process, from `/proc`.

use std::time::Duration;

use anyhow::Context as _;

/// The resource usage of a process.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// CPU time since the start of the process.
    pub cpu: Duration,
    /// Resident memory now, in KiB.
    pub resident: u64,
    /// The peak of the resident memory, in KiB.
    pub peak: u64,
}

impl Usage {
    /// Reads the usage of a process.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        // Clock ticks are 1/100 s on every Linux that Rust supports.
        const TICK: Duration = Duration::from_millis(10);
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("/proc")?;
        // The name may contain blanks. The fields after it are counted from 3.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks =
            |field: usize| fields.get(field - 3).and_then(|f| f.parse::<u32>().ok()).context("/proc/stat");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("/proc")?;
        let memory = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse().ok())
        };
        // A process that has ended and was not waited for has no memory.
        let ended = || format!("process {pid} has ended: its log says why");
        let (resident, peak) = (memory("VmRSS:").with_context(ended)?, memory("VmHWM:").with_context(ended)?);
        Ok(Self { cpu: TICK * (ticks(14)? + ticks(15)?), resident, peak })
    }
}
