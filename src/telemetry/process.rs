//! The `process_*` metrics: CPU, memory, files, start time, network; read from /proc on demand.

use std::fs;

use prometheus::proto::{MetricFamily, MetricType};

use super::samples::{family, float_metric};

/// The kernel's clock ticks per second, fixed at 100 for user space.
const TICKS: f64 = 100.0;
const PAGE_BYTES: f64 = 4096.0;

/// Returns the metrics of this process; none where there is no /proc.
pub fn families() -> Vec<MetricFamily> {
    let Some(usage) = read() else {
        return Vec::new();
    };
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let network = fs::read_to_string("/proc/self/net/netstat").unwrap_or_default();
    let (counter, gauge) = (MetricType::COUNTER, MetricType::GAUGE);
    [
        (
            "process_cpu_seconds_total",
            "Total user and system CPU time spent in seconds.",
            counter,
            Some(usage.cpu_seconds),
        ),
        (
            "process_max_fds",
            "Maximum number of open file descriptors.",
            gauge,
            limit(&limits, "Max open files"),
        ),
        (
            "process_network_receive_bytes_total",
            "Number of bytes received by the process over the network.",
            counter,
            octets(&network, "InOctets"),
        ),
        (
            "process_network_transmit_bytes_total",
            "Number of bytes sent by the process over the network.",
            counter,
            octets(&network, "OutOctets"),
        ),
        (
            "process_open_fds",
            "Number of open file descriptors.",
            gauge,
            Some(usage.open_files),
        ),
        (
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            gauge,
            Some(usage.resident_bytes),
        ),
        (
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            gauge,
            Some(usage.start_seconds),
        ),
        (
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes.",
            gauge,
            Some(usage.virtual_bytes),
        ),
        (
            "process_virtual_memory_max_bytes",
            "Maximum amount of virtual memory available in bytes.",
            gauge,
            limit(&limits, "Max address space"),
        ),
    ]
    .into_iter()
    .filter_map(|(name, help, kind, value)| {
        Some(family(
            name,
            help,
            kind,
            vec![float_metric(kind, &[], value?)],
        ))
    })
    .collect()
}

/// The soft limit of a resource in the text of `/proc/self/limits`. No limit is the largest number.
fn limit(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse().ok(),
    }
}

/// A count of bytes in the text of `/proc/self/net/netstat`, which has a line of names before each
/// line of numbers.
fn octets(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("IpExt: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|known| known == name)?;
    numbers.split(' ').nth(at)?.parse().ok()
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

    #[test]
    fn limits_and_network_are_read() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096  files\nMax address space         unlimited            unlimited            bytes\n";
        assert_eq!(limit(limits, "Max open files"), Some(1024.0));
        assert_eq!(limit(limits, "Max address space"), Some(u64::MAX as f64));
        assert_eq!(limit(limits, "Max cpu time"), None);
        let network =
            "TcpExt: InOctets\nTcpExt: 1\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 12 34\n";
        assert_eq!(octets(network, "InOctets"), Some(12.0));
        assert_eq!(octets(network, "OutOctets"), Some(34.0));
        assert_eq!(octets("IpExt: InOctets\n", "InOctets"), None);
    }
}
