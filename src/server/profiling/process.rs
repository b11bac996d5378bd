//! The memory and the threads of the process, as the kernel knows them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::time::{Duration, SystemTime};

use super::encode::{Profile, Sampled};

/// The most threads that are listed.
const MAX_THREADS: usize = 10_000;
/// The kernel's clock ticks per second, fixed at 100 for user space.
const TICKS: u64 = 100;

/// A part of a file that is mapped to be run.
#[derive(Clone, Debug)]
pub struct MappedFile {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub path: String,
}

/// Returns the program and the libraries that it is linked with.
pub fn mapped_files() -> Vec<MappedFile> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter_map(mapped_file).collect()
}

fn mapped_file(line: &str) -> Option<MappedFile> {
    let mapped = Mapped::read(line)?;
    let (start, end) = mapped.range?;
    let runs = mapped.permissions.contains('x') && mapped.name.starts_with('/');
    runs.then(|| MappedFile {
        start,
        end,
        offset: mapped.offset,
        path: mapped.name.to_owned(),
    })
}

/// A line of `/proc/self/maps`.
struct Mapped<'a> {
    range: Option<(u64, u64)>,
    permissions: &'a str,
    offset: u64,
    name: &'a str,
}

impl<'a> Mapped<'a> {
    /// `None` for a line that is about a mapping but does not begin one.
    fn read(line: &'a str) -> Option<Self> {
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let mut parts = line.splitn(6, ' ');
        let (range, permissions) = (parts.next()?, parts.next()?);
        let (start, end) = range.split_once('-')?;
        let offset = hex(parts.next()?)?;
        let name = parts.nth(2).unwrap_or_default().trim();
        Some(Self {
            range: hex(start).zip(hex(end)),
            permissions,
            offset,
            name,
        })
    }
}

/// The resident bytes of the process, by what they are mapped for.
fn resident() -> BTreeMap<String, i64> {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let (mut sums, mut kind) = (BTreeMap::new(), String::new());
    for line in maps.lines() {
        if let Some(mapped) = Mapped::read(line) {
            kind = match mapped.name {
                "" => "anonymous memory (the allocator's, and stacks of threads)".to_owned(),
                name => name.to_owned(),
            };
        } else if let Some(kibibytes) = line.strip_prefix("Rss:") {
            let digits = kibibytes.trim().trim_end_matches(" kB");
            let bytes = digits.parse::<i64>().unwrap_or(0) * 1024;
            *sums.entry(kind.clone()).or_default() += bytes;
        }
    }
    sums.retain(|_, bytes| *bytes > 0);
    sums
}

/// Returns the resident memory as a profile.
///
/// # Errors
/// There is no /proc.
pub fn memory_profile() -> Result<Profile, String> {
    let resident = resident();
    if resident.is_empty() {
        return Err("the memory of the process cannot be read: there is no /proc".to_owned());
    }
    let mut profile = Profile::new(&[("inuse_space", "bytes")]);
    profile.set_time(SystemTime::now(), Duration::ZERO, ("space", "bytes"), 1);
    for (kind, bytes) in resident {
        profile.add(Sampled {
            addresses: Vec::new(),
            names: vec![kind],
            values: vec![bytes],
            thread: String::new(),
        });
    }
    Ok(profile)
}

/// Returns the resident memory as text.
pub fn memory_text() -> String {
    let resident = resident();
    let total: i64 = resident.values().sum();
    let mut text = format!("resident memory: {total} bytes\n");
    for (kind, bytes) in resident {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{bytes:>14} {kind}");
    }
    text
}

/// A thread.
struct Thread {
    id: u64,
    name: String,
    state: char,
    cpu_seconds: f64,
}

fn threads() -> Vec<Thread> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    let ids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    let mut threads: Vec<Thread> = ids.take(MAX_THREADS).filter_map(thread).collect();
    threads.sort_by_key(|thread| thread.id);
    threads
}

fn thread(id: u64) -> Option<Thread> {
    let stat = fs::read_to_string(format!("/proc/self/task/{id}/stat")).ok()?;
    // A name may have parentheses itself.
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<u64>().ok());
    Some(Thread {
        id,
        name: name.to_owned(),
        state: rest.chars().next()?,
        cpu_seconds: (ticks(11)? + ticks(12)?) as f64 / TICKS as f64,
    })
}

/// Returns the threads as a profile, by their names.
///
/// # Errors
/// There is no /proc.
pub fn thread_profile() -> Result<Profile, String> {
    let mut by_name: BTreeMap<String, i64> = BTreeMap::new();
    for thread in threads() {
        *by_name.entry(thread.name).or_default() += 1;
    }
    if by_name.is_empty() {
        return Err("the threads of the process cannot be read: there is no /proc".to_owned());
    }
    let mut profile = Profile::new(&[("goroutine", "count")]);
    profile.set_time(SystemTime::now(), Duration::ZERO, ("goroutine", "count"), 1);
    for (name, count) in by_name {
        profile.add(Sampled {
            addresses: Vec::new(),
            names: vec![name],
            values: vec![count],
            thread: String::new(),
        });
    }
    Ok(profile)
}

/// Returns the threads and the figures of the runtime as text.
pub fn thread_text() -> String {
    let threads = threads();
    let metrics = tokio::runtime::Handle::current().metrics();
    let mut text = format!(
        "threads: {}\nworkers: {}\ntasks: {}\ntasks that wait for a worker: {}\n\n",
        threads.len(),
        metrics.num_workers(),
        metrics.num_alive_tasks(),
        metrics.global_queue_depth()
    );
    for thread in threads {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "thread {} [{}] {:.2}s {}",
            thread.id, thread.state, thread.cpu_seconds, thread.name
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read() {
        let line = "55d0a000-55d0b000 r-xp 0000a000 08:01 123    /usr/bin/a program";
        let file = mapped_file(line).expect("a file");
        assert_eq!(
            (file.start, file.end, file.offset, file.path.as_str()),
            (0x55d0_a000, 0x55d0_b000, 0xa000, "/usr/bin/a program")
        );
        for other in [
            "55d0a000-55d0b000 rw-p 0000a000 08:01 123    /usr/bin/a",
            "7ffe1000-7ffe2000 r-xp 00000000 00:00 0      [vdso]",
            "Rss:                 100 kB",
            "VmFlags: rd ex mr mw me",
            "",
        ] {
            assert!(mapped_file(other).is_none(), "{other}");
        }
    }

    #[tokio::test]
    async fn the_process_has_memory_and_threads() {
        assert!(
            memory_text().contains("anonymous memory"),
            "{}",
            memory_text()
        );
        assert!(memory_profile().is_ok_and(|profile| profile.encode().is_ok()));
        assert!(thread_text().contains("thread "), "{}", thread_text());
        assert!(thread_profile().is_ok());
    }
}
