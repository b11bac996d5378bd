//! The `process_*` metrics: CPU, memory, open files, start time, read from /proc on demand.

use std::fs;

use prometheus::proto::{self, MetricFamily, MetricType};

use super::metrics::family;

/// The kernel's clock ticks per second, fixed at 100 for user space.
const TICKS: f64 = 100.0;
const PAGE_BYTES: f64 = 4096.0;

/// Returns the metrics of this process; none where there is no /proc.
pub fn families() -> Vec<MetricFamily> {
    let Some(usage) = read() else {
        return Vec::new();
    };
    let mut cpu = (proto::Counter::default(), proto::Metric::default());
    cpu.0.set_value(usage.cpu_seconds);
    cpu.1.set_counter(cpu.0);
    let gauge = |name, help, value| {
        let mut gauge = proto::Gauge::default();
        gauge.set_value(value);
        family(
            name,
            help,
            MetricType::GAUGE,
            vec![proto::Metric::from_gauge(gauge)],
        )
    };
    vec![
        family(
            "process_cpu_seconds_total",
            "Total user and system CPU time spent in seconds.",
            MetricType::COUNTER,
            vec![cpu.1],
        ),
        gauge(
            "process_open_fds",
            "Number of open file descriptors.",
            usage.open_files,
        ),
        gauge(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            usage.resident_bytes,
        ),
        gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            usage.start_seconds,
        ),
        gauge(
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes.",
            usage.virtual_bytes,
        ),
    ]
}

/// Returns the time at which this process began, in seconds since the Unix epoch; `None` where
/// there is no /proc.
pub fn start_seconds() -> Option<f64> {
    read().map(|usage| usage.start_seconds)
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

/// Reads the fields of proc_pid_stat(5). The command's name may contain spaces, so fields are
/// counted from the bracket that closes it.
fn parse(stat: &str, boot_seconds: f64, open_files: f64) -> Option<Usage> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<f64> = rest
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0.0))
        .collect();
    // The first of these is field 3 of the manual.
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
    fn fields_are_read_after_the_command_name() {
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
