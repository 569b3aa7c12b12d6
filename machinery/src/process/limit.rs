//! The memory limit of the cgroup that a process is in.

/// A limit from here on is none: cgroups of version 1 say so with the largest number of pages.
const UNLIMITED: f64 = 1e18;

/// Returns the limit in bytes. `cgroup` is the text of `/proc/self/cgroup`, and `read` returns the text of a file, empty
/// where there is none. A process without a limit has no value.
///
/// In a container the path of `/proc/self/cgroup` may be that of the host, while the files of the own cgroup stand at the
/// root of the mount: both places are tried.
pub(super) fn of_memory(cgroup: &str, read: impl Fn(&str) -> String) -> Option<f64> {
    let path = |prefix: &str| cgroup.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(prefix));
    let (root, path, file) = match path("memory:") {
        Some(path) => ("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"),
        None => ("/sys/fs/cgroup", path(":")?, "memory.max"),
    };
    let limit = |directory: &str| read(&format!("{root}{directory}/{file}")).trim().parse::<f64>().ok();
    limit(path.trim_end_matches('/')).or_else(|| limit("")).filter(|limit| *limit < UNLIMITED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cgroup: &str, files: &[(&str, &str)]) -> Option<f64> {
        let read = |path: &str| files.iter().find(|(name, _)| *name == path).map_or("", |(_, text)| *text);
        of_memory(cgroup, |path| read(path).to_owned())
    }

    #[test]
    fn both_versions_of_cgroups_are_read() {
        let nested =
            [("/sys/fs/cgroup/kubepods/x/memory.max", "268435456\n"), ("/sys/fs/cgroup/memory.max", "max\n")];
        assert_eq!(of("0::/kubepods/x\n", &nested), Some(268_435_456.0));
        assert_eq!(of("0::/\n", &nested), None, "no limit");
        let first = [("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1048576\n")];
        assert_eq!(of("9:cpu,cpuacct:/\n4:memory:/a\n0::/\n", &first), Some(1_048_576.0));
        let none = [("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(of("4:memory:/a\n", &none), None);
    }

    #[test]
    fn the_path_of_the_host_leads_to_the_root_of_the_mount() {
        let root = [("/sys/fs/cgroup/memory.max", "4096\n")];
        assert_eq!(of("0::/../../kubepods/x\n", &root), Some(4096.0));
        assert_eq!(of("", &root), None, "no cgroup");
    }
}
