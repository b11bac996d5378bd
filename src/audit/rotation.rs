//! Log files that are rotated by size and removed by number and age, with the names of lumberjack
//! (gopkg.in/natefinch/lumberjack.v2): `audit-2006-01-02T15-04-05.000.log`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::base::clock::Clock;

/// The mode of a new file.
#[cfg(unix)]
const MODE: u32 = 0o600;
/// The form of the time in the name of a file that was rotated away.
const TIME_FORMAT: &str = "%Y-%m-%dT%H-%M-%S.%3f";
const COMPRESSED: &str = ".gz";

/// The limits of a log (`--audit-log-max*`). 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RotationSettings {
    pub max_bytes: u64,
    pub max_age_days: u64,
    pub max_backups: usize,
    pub compress: bool,
}

/// A log file.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    settings: RotationSettings,
    clock: Clock,
    open: Option<(File, u64)>,
    /// The last line is incomplete.
    torn: bool,
}

/// A file that was rotated away.
#[derive(Debug)]
struct Backup {
    path: PathBuf,
    /// Its name without the ending of compressed ones.
    name: String,
    rotated: Timestamp,
}

impl LogFile {
    /// A log at a path, whose folder is made if there is none. Its file must be writable.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path, settings: RotationSettings, clock: Clock) -> io::Result<Self> {
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            crate::base::files::create_private_dir(folder)?;
        }
        drop(append(path)?);
        let mut log = Self {
            path: path.to_owned(),
            settings,
            clock,
            open: None,
            torn: false,
        };
        log.clean_up_in_background();
        Ok(log)
    }

    /// Reports whether it is a file that takes lines at once, unlike a pipe.
    pub fn is_regular(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.is_file())
    }

    /// Writes a line, which ends with a newline, at the end of the log; rotates it first if it
    /// would become too long.
    ///
    /// # Errors
    /// The system's, and that the line is longer than a log may be.
    pub fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        let (max, bytes) = (self.settings.max_bytes, line.len() as u64);
        if max > 0 && bytes > max {
            let why = format!("write length {bytes} exceeds maximum file size {max}");
            return Err(io::Error::other(why));
        }
        let (mut file, mut size) = match self.open.take() {
            Some(open) => open,
            None => {
                let file = append(&self.path)?;
                let size = file.metadata()?.len();
                (file, size)
            }
        };
        if max > 0 && size > 0 && size + bytes > max {
            drop(file);
            self.rotate()?;
            file = append(&self.path)?;
            (size, self.torn) = (0, false);
        }
        if self.torn {
            // What is left of a line that did not fit must not spoil this one.
            file.write_all(b"\n")?;
            (self.torn, size) = (false, size + 1);
        }
        if let Err(why) = file.write_all(line) {
            // The size is read again.
            self.torn = fs::metadata(&self.path).is_ok_and(|now| now.len() > size);
            return Err(why);
        }
        self.open = Some((file, size + bytes));
        Ok(())
    }

    /// Moves the file away, and cleans up.
    fn rotate(&mut self) -> io::Result<()> {
        let (prefix, ending) = self.name_parts();
        let folder = self.folder();
        let mut at = self.clock.now();
        // Upstream loses a file here that was rotated away within the same millisecond.
        let target = loop {
            let time = at.to_zoned(TimeZone::UTC).strftime(TIME_FORMAT).to_string();
            let target = folder.join(format!("{prefix}{time}{ending}"));
            let compressed = folder.join(format!("{prefix}{time}{ending}{COMPRESSED}"));
            if !target.exists() && !compressed.exists() {
                break target;
            }
            at += Duration::from_millis(1);
        };
        let mode = fs::metadata(&self.path)?.permissions();
        fs::rename(&self.path, target)?;
        let file = append(&self.path)?;
        file.set_permissions(mode)?;
        self.clean_up_in_background();
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        match folder.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => folder.to_owned(),
        }
    }

    /// Returns what comes before and behind the time in the names of files that were rotated away.
    fn name_parts(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| {
            part.unwrap_or_default().to_string_lossy().into_owned()
        };
        let ending = match self.path.extension() {
            Some(ending) => format!(".{}", ending.to_string_lossy()),
            None => String::new(),
        };
        (format!("{}-", text(self.path.file_stem())), ending)
    }

    /// Cleans up beside the requests, whose events are written meanwhile.
    fn clean_up_in_background(&mut self) {
        let (prefix, ending) = self.name_parts();
        let cleaner = Cleaner {
            folder: self.folder(),
            prefix,
            ending,
            settings: self.settings,
            now: self.clock.now(),
        };
        let clean = move || {
            if let Err(why) = cleaner.clean_up() {
                tracing::error!("cleaning up audit logs: {why}");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(clean)),
            Err(_) => clean(),
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, MODE);
    options.open(path)
}

/// Removes and compresses files that were rotated away.
struct Cleaner {
    folder: PathBuf,
    prefix: String,
    ending: String,
    settings: RotationSettings,
    now: Timestamp,
}

impl Cleaner {
    /// Removes files that are too many or too old, and compresses the others.
    fn clean_up(&self) -> io::Result<()> {
        let mut kept = Vec::new();
        let (mut names, max) = (Vec::new(), self.settings.max_backups);
        for backup in self.backups()? {
            if !names.contains(&backup.name) {
                names.push(backup.name.clone());
            }
            if (max > 0 && names.len() > max) || self.is_old(&backup) {
                fs::remove_file(&backup.path)?;
            } else {
                kept.push(backup);
            }
        }
        if self.settings.compress {
            for backup in kept {
                compress(&backup.path)?;
            }
        }
        Ok(())
    }

    fn is_old(&self, backup: &Backup) -> bool {
        let days = i64::try_from(self.settings.max_age_days).unwrap_or(i64::MAX);
        let age = self.now.duration_since(backup.rotated);
        days > 0 && age > SignedDuration::from_hours(days.saturating_mul(24).min(1 << 40))
    }

    /// Returns the files that were rotated away, the newest first.
    fn backups(&self) -> io::Result<Vec<Backup>> {
        let mut backups = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let file_name = entry.file_name().to_string_lossy().into_owned();
            let name = file_name.strip_suffix(COMPRESSED).unwrap_or(&file_name);
            let time = name
                .strip_prefix(&self.prefix)
                .and_then(|rest| rest.strip_suffix(&self.ending));
            let time = time.and_then(|time| DateTime::strptime(TIME_FORMAT, time).ok());
            let rotated =
                time.and_then(|time| Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp()));
            if let Some(rotated) = rotated {
                backups.push(Backup {
                    path: entry.path(),
                    name: name.to_owned(),
                    rotated,
                });
            }
        }
        backups.sort_by_key(|backup| std::cmp::Reverse(backup.rotated));
        Ok(backups)
    }
}

/// Compresses a file, unless it is already.
fn compress(path: &Path) -> io::Result<()> {
    if path.to_string_lossy().ends_with(COMPRESSED) {
        return Ok(());
    }
    let mut name = path.as_os_str().to_owned();
    name.push(COMPRESSED);
    let target = PathBuf::from(name);
    let written = (|| {
        let mut from = File::open(path)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, MODE);
        let to = options.open(&target)?;
        to.set_permissions(from.metadata()?.permissions())?;
        let mut encoder = GzEncoder::new(to, Compression::default());
        io::copy(&mut from, &mut encoder)?;
        encoder.finish()?.sync_all()
    })();
    match written {
        Ok(()) => fs::remove_file(path),
        Err(why) => {
            // Half of it is of no use; the other error counts.
            let _ = fs::remove_file(&target);
            Err(why)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn clock() -> Clock {
        Clock::manual("2026-01-02T03:04:05.678Z".parse().expect("a time"))
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_log_is_rotated_before_it_is_too_long() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, clock) = (folder.path().join("logs/audit.log"), clock());
        let settings = RotationSettings {
            max_bytes: 10,
            max_backups: 2,
            ..RotationSettings::default()
        };
        let mut log = LogFile::open(&path, settings, clock.clone()).expect("a log");
        assert_eq!(names(&folder.path().join("logs")), ["audit.log"]);
        for line in ["1234\n", "5678\n", "abc\n"] {
            log.write_line(line.as_bytes()).expect("written");
        }
        assert_eq!(fs::read(&path).expect("a log"), b"abc\n");
        let first = folder.path().join("logs/audit-2026-01-02T03-04-05.678.log");
        assert_eq!(fs::read(first).expect("a backup"), b"1234\n5678\n");
        let long = log.write_line(b"12345678901\n").expect_err("too long");
        assert_eq!(
            long.to_string(),
            "write length 12 exceeds maximum file size 10"
        );
        // Within the same millisecond, and later.
        log.write_line(b"12345678\n").expect("written");
        clock.advance(Duration::from_secs(1));
        log.write_line(b"87654321\n").expect("written");
        assert_eq!(
            names(&folder.path().join("logs")),
            [
                "audit-2026-01-02T03-04-05.679.log",
                "audit-2026-01-02T03-04-06.678.log",
                "audit.log"
            ],
            "the oldest goes"
        );
    }

    #[test]
    fn a_log_that_is_there_is_continued() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit");
        fs::write(&path, "12345678\n").expect("a log");
        let settings = RotationSettings {
            max_bytes: 20,
            ..RotationSettings::default()
        };
        let mut log = LogFile::open(&path, settings, clock()).expect("a log");
        log.write_line(b"87654321\n").expect("written");
        assert_eq!(fs::read(&path).expect("a log"), b"12345678\n87654321\n");
        log.write_line(b"x\ny\n").expect("written");
        assert_eq!(
            names(folder.path()),
            ["audit", "audit-2026-01-02T03-04-05.678"]
        );
    }

    #[test]
    fn old_files_go_and_the_others_are_compressed() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in [
            "audit-2025-12-01T00-00-00.000.log",
            "audit-2025-12-30T00-00-00.000.log",
            "audit-2025-12-31T00-00-00.000.log.gz",
            "audit-other.log",
            "other-2025-12-01T00-00-00.000.log",
        ] {
            fs::write(folder.path().join(name), "text").expect("a file");
        }
        let settings = RotationSettings {
            max_bytes: 10,
            max_age_days: 7,
            compress: true,
            ..RotationSettings::default()
        };
        let path = folder.path().join("audit.log");
        LogFile::open(&path, settings, clock()).expect("a log");
        assert_eq!(
            names(folder.path()),
            [
                "audit-2025-12-30T00-00-00.000.log.gz",
                "audit-2025-12-31T00-00-00.000.log.gz",
                "audit-other.log",
                "audit.log",
                "other-2025-12-01T00-00-00.000.log",
            ]
        );
        let compressed = folder.path().join("audit-2025-12-30T00-00-00.000.log.gz");
        let (mut text, file) = (String::new(), File::open(compressed).expect("a file"));
        GzDecoder::new(file)
            .read_to_string(&mut text)
            .expect("gzip");
        assert_eq!(text, "text");
    }

    #[cfg(unix)]
    #[test]
    fn logs_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        LogFile::open(&path, RotationSettings::default(), clock()).expect("a log");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, MODE);
    }
}
