//! Resources that the process takes from its machine, under the names that client libraries of
//! Prometheus use; the memory limit has a name of ours. They are read from `/proc` and the cgroup at
//! every scrape. A value that cannot be read is left out.

mod limit;

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

/// Clock ticks of a second in `/proc`: the kernel's interface has it fixed on all architectures for
/// which there are images.
const TICKS: f64 = 100.0;

/// Registers `process_*` and `dragoman_build_info`.
pub fn register(registry: &mut Registry) {
    let build = Family::<Vec<(&'static str, &'static str)>, Gauge>::default();
    let labels = vec![("version", env!("CARGO_PKG_VERSION")), ("arch", std::env::consts::ARCH)];
    build.get_or_create(&labels).set(1);
    registry.register("dragoman_build_info", "1, with the version of this process", build);
    registry.register_collector(Box::new(Process));
}

#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let seen = Seen::now();
        if let Some(seconds) = seen.cpu_seconds {
            let (name, help) = ("process_cpu_seconds", "Seconds of user and system time spent");
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(seconds).encode(metric)?;
        }
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory", seen.resident_bytes),
            ("process_virtual_memory_bytes", "Virtual memory", seen.virtual_bytes),
            ("dragoman_memory_limit_bytes", "Memory limit of the container", seen.limit_bytes),
            ("process_open_fds", "Open file descriptors", seen.open_files),
            ("process_max_fds", "Most file descriptors that may be open", seen.most_files),
            ("process_start_time_seconds", "Start of the process since the epoch", seen.started),
        ] {
            let Some(value) = value else { continue };
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        Ok(())
    }
}

/// Values of `/proc`, and the memory limit of the cgroup.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<f64>,
    virtual_bytes: Option<f64>,
    limit_bytes: Option<f64>,
    open_files: Option<f64>,
    most_files: Option<f64>,
    /// Seconds since the epoch.
    started: Option<f64>,
}

impl Seen {
    fn now() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let open = std::fs::read_dir("/proc/self/fd").map(Iterator::count);
        Self {
            // The directory itself is open while it is read.
            #[expect(clippy::cast_precision_loss, reason = "a small count")]
            open_files: open.ok().map(|count| count.saturating_sub(1) as f64),
            limit_bytes: limit::of_memory(&text("/proc/self/cgroup"), text),
            ..Self::parse(
                &text("/proc/self/stat"),
                &text("/proc/self/status"),
                &text("/proc/self/limits"),
                &text("/proc/stat"),
            )
        }
    }

    /// Takes apart the texts of `/proc/self/stat`, `status` and `limits`, and of `/proc/stat`.
    fn parse(stat: &str, status: &str, limits: &str, machine: &str) -> Self {
        // The name of the program, in parentheses, may hold spaces and parentheses.
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        // `man 5 proc` counts from 1, and the state, which comes first here, is the third.
        let ticks = |number: usize| fields.split(' ').nth(number - 3)?.parse::<f64>().ok();
        let after = |text: &str, name: &str, word: usize| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().nth(word)?.parse::<f64>().ok()
        };
        let booted = after(machine, "btime", 0);
        Self {
            cpu_seconds: ticks(14).zip(ticks(15)).map(|(user, system)| (user + system) / TICKS),
            resident_bytes: after(status, "VmRSS:", 0).map(|kib| kib * 1024.0),
            virtual_bytes: after(status, "VmSize:", 0).map(|kib| kib * 1024.0),
            limit_bytes: None,
            open_files: None,
            most_files: after(limits, "Max open files", 0),
            started: booted.zip(ticks(22)).map(|(booted, began)| booted + began / TICKS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_proc_are_read_by_their_fields() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 12345 999 88 1844674407";
        let status = "Name:\tdragoman\nVmSize:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let limits =
            "Limit    Soft Limit   Hard Limit   Units\nMax open files            1024   4096   files\n";
        let expected = Seen {
            cpu_seconds: Some(3.0),
            resident_bytes: Some(1_048_576.0),
            virtual_bytes: Some(2_097_152.0),
            limit_bytes: None,
            open_files: None,
            most_files: Some(1024.0),
            started: Some(1_000_123.45),
        };
        assert_eq!(Seen::parse(stat, status, limits, "cpu 1 2\nbtime 1000000\n"), expected);
        assert_eq!(Seen::parse("", "", "", ""), Seen::default());
    }

    #[test]
    fn this_process_has_memory_files_and_a_past() {
        let mut registry = Registry::default();
        register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("encode");
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.expect(name).parse().expect(name)
        };
        assert!(value("process_resident_memory_bytes") > 1_000_000.0);
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        #[expect(clippy::cast_precision_loss, reason = "seconds since the epoch")]
        let now = jiff::Timestamp::now().as_second() as f64;
        let started = value("process_start_time_seconds");
        assert!(started <= now + 1.0 && started > now - 3600.0, "{started}, {now}");
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(text.contains("dragoman_build_info{version=\""), "{text}");
    }
}
