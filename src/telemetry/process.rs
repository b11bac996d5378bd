//! What Prometheus wants to know of a process: CPU, memory, open files, start time. Read from /proc
//! when asked for.

use std::fmt::Write;
use std::fs;

/// The kernel's clock ticks per second, fixed at 100 for user space.
const TICKS: f64 = 100.0;
const PAGE_BYTES: f64 = 4096.0;

/// Appends the `process_*` metrics, or nothing where there is no /proc.
pub fn collect(out: &mut String) {
    let Some(usage) = read() else { return };
    for (name, kind, help, value) in [
        (
            "process_cpu_seconds_total",
            "counter",
            "CPU time, user and system, in seconds.",
            usage.cpu_seconds,
        ),
        (
            "process_open_fds",
            "gauge",
            "Open file descriptors.",
            usage.open_files,
        ),
        (
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory in bytes.",
            usage.resident_bytes,
        ),
        (
            "process_start_time_seconds",
            "gauge",
            "When the process started, in seconds since 1970.",
            usage.start_seconds,
        ),
        (
            "process_virtual_memory_bytes",
            "gauge",
            "Virtual memory in bytes.",
            usage.virtual_bytes,
        ),
    ] {
        let _ = writeln!(
            out,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
        );
    }
}

struct Usage {
    cpu_seconds: f64,
    open_files: f64,
    resident_bytes: f64,
    virtual_bytes: f64,
    start_seconds: f64,
}

fn read() -> Option<Usage> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = boot
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    let open_files = fs::read_dir("/proc/self/fd").ok()?.count() as f64;
    parse(&stat, boot, open_files)
}

/// Reads the fields of proc_pid_stat(5). The command's name may hold spaces, so counting starts
/// behind its bracket.
fn parse(stat: &str, boot_seconds: f64, open_files: f64) -> Option<Usage> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<f64> = rest
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0.0))
        .collect();
    // Field 3 of the manual is the first here.
    let field = |number: usize| fields.get(number - 3).copied();
    Some(Usage {
        cpu_seconds: (field(14)? + field(15)?) / TICKS,
        start_seconds: boot_seconds + field(22)? / TICKS,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * PAGE_BYTES,
        open_files,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "7 (a b) c) S 1 1 1 0 -1 4194304 1 0 0 0 150 50 0 0 20 0 4 0 1000 8192 2 0";
        let usage = parse(stat, 100.0, 3.0).expect("a process");
        assert_eq!(
            (
                usage.cpu_seconds,
                usage.start_seconds,
                usage.virtual_bytes,
                usage.resident_bytes
            ),
            (2.0, 110.0, 8192.0, 8192.0)
        );
        assert!(parse("7 (x) S 1", 0.0, 0.0).is_none());
    }
}
