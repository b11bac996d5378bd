//! Lines on stderr that show how far a command has come.

use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Counts keys, and tells of them once a second.
pub struct Progress {
    what: &'static str,
    done: u64,
    /// 0 if it is not known.
    total: u64,
    began: Instant,
    told: Instant,
}

impl Progress {
    /// A count of keys for `what`, such as "copied".
    pub fn new(what: &'static str, total: u64) -> Self {
        let now = Instant::now();
        Self {
            what,
            done: 0,
            total,
            began: now,
            told: now,
        }
    }

    /// Counts further keys.
    pub fn add(&mut self, keys: u64) {
        self.done += keys;
        if self.told.elapsed() >= INTERVAL {
            self.told = Instant::now();
            self.tell();
        }
    }

    /// Prints the last line, and returns their number.
    pub fn finish(self) -> u64 {
        self.tell();
        self.done
    }

    fn tell(&self) {
        let (what, done, seconds) = (self.what, self.done, self.began.elapsed().as_secs_f64());
        let of = match self.total {
            0 => String::new(),
            total => format!(" of {total}"),
        };
        // Who closed stderr does not want to know.
        let _ = writeln!(io::stderr(), "{what} {done}{of} keys ({seconds:.1} s)");
    }
}
