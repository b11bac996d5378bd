//! The memory that the process may have.

use std::fs;
use std::path::Path;

/// The limit where the system tells none.
const UNKNOWN_LIMIT: u64 = 4 << 30;
/// The folders of nested control groups that are looked at.
const MAX_DEPTH: usize = 64;

/// Returns the bytes that the process may have: the limit of its control groups, or else what the
/// machine has.
pub fn limit() -> u64 {
    limit_below(Path::new("/"))
}

/// [`limit`] on a system whose files are below `root`.
fn limit_below(root: &Path) -> u64 {
    let machine = read(&root.join("proc/meminfo")).and_then(|text| machine_bytes(&text));
    let group = group_limit(root);
    match (machine, group) {
        (Some(machine), Some(group)) => machine.min(group),
        (one, other) => one.or(other).unwrap_or(UNKNOWN_LIMIT),
    }
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Returns the memory of the machine, from `/proc/meminfo`.
fn machine_bytes(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the least limit of the control groups of the process: of version 2, and of the memory
/// controller of version 1.
fn group_limit(root: &Path) -> Option<u64> {
    let groups = read(&root.join("proc/self/cgroup"))?;
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            some if some.split(',').any(|one| one == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        least_of_parents(&root.join(mount), path, file)
    });
    limits.min()
}

/// Returns the least limit of a group and those around it. In a container the path may be one that
/// only the host knows: then that of the root of the mount counts.
fn least_of_parents(mount: &Path, path: &str, file: &str) -> Option<u64> {
    let group = mount.join(path.trim_start_matches('/'));
    let folders = group.ancestors().take(MAX_DEPTH);
    let inside = folders.filter(|folder| folder.starts_with(mount));
    inside
        .filter_map(|folder| read(&folder.join(file))?.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_machine_and_groups_counts() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        let limit = || limit_below(root.path());
        assert_eq!(limit(), UNKNOWN_LIMIT);
        write("proc/meminfo", "MemFree: 1 kB\nMemTotal:       16384 kB\n");
        assert_eq!(limit(), 16 << 20);
        write("proc/self/cgroup", "0::/pods/one\n");
        write("sys/fs/cgroup/pods/one/memory.max", "max\n");
        assert_eq!(limit(), 16 << 20);
        write("sys/fs/cgroup/pods/memory.max", "8388608\n");
        assert_eq!(limit(), 8 << 20);
        write("proc/self/cgroup", "4:cpu,memory:/known/to/the/host\n");
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "4194304\n");
        assert_eq!(limit(), 4 << 20);
        write(
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        assert_eq!(limit(), 16 << 20);
        write("proc/self/cgroup", "nonsense\n0::/../../etc\n");
        assert_eq!(limit(), 16 << 20);
    }
}
