//! Profiles of the CPU: the stacks of running threads, a hundred times for each second of CPU time.

use std::time::{Duration, SystemTime};

use pprof::{ProfilerGuardBuilder, UnresolvedReport};
use tokio::sync::Mutex;

use super::DEFAULT_SECONDS;
use super::encode::{Profile, Sampled};

/// The samples of a second, as in Go.
const HERTZ: i32 = 100;

/// There is one clock for the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Returns the length of a profile that a client asks for; `None` if it could not be answered in
/// time. What is no number is the default, as in Go.
pub fn length(asked: Option<&str>, limit: Duration) -> Option<Duration> {
    let asked = asked.and_then(|text| text.parse::<u64>().ok());
    let seconds = asked
        .filter(|seconds| *seconds > 0)
        .unwrap_or(DEFAULT_SECONDS);
    let length = Duration::from_secs(seconds);
    (length < limit).then_some(length)
}

/// Looks at the process for a while. Ends early, and is over, where the client goes.
///
/// # Errors
/// It is looked at already, or cannot be.
pub async fn profile(length: Duration) -> Result<Profile, String> {
    let Ok(_only) = ONE_AT_A_TIME.try_lock() else {
        return Err("Could not enable CPU profiling: cpu profiling already in use".to_owned());
    };
    let failed = |why: pprof::Error| format!("Could not enable CPU profiling: {why}");
    let begun = SystemTime::now();
    let guard =
        tokio::task::spawn_blocking(|| ProfilerGuardBuilder::default().frequency(HERTZ).build());
    let guard = guard
        .await
        .map_err(|why| why.to_string())?
        .map_err(failed)?;
    tokio::time::sleep(length).await;
    let made = tokio::task::spawn_blocking(move || {
        let report = guard.report().build_unresolved();
        // What follows is not to be in it.
        drop(guard);
        report.map(|report| profile_of(&report, begun, length))
    });
    made.await.map_err(|why| why.to_string())?.map_err(failed)
}

fn profile_of(report: &UnresolvedReport, begun: SystemTime, length: Duration) -> Profile {
    let period = 1_000_000_000 / i64::from(HERTZ);
    let mut profile = Profile::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    profile.set_time(begun, length, ("cpu", "nanoseconds"), period);
    for (frames, count) in &report.data {
        let name = frames.thread_name.get(..frames.thread_name_length);
        let name = String::from_utf8_lossy(name.unwrap_or_default());
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        profile.add(Sampled {
            addresses: frames.frames.iter().filter_map(address).collect(),
            names: Vec::new(),
            values: vec![count, count.saturating_mul(period)],
            thread: name.trim_end_matches('\0').to_owned(),
        });
    }
    profile.resolve();
    profile
}

/// The address of a frame, which its type shows in no other way than `Frame { ip: 1 }`.
fn address(frame: &impl std::fmt::Debug) -> Option<u64> {
    let text = format!("{frame:?}");
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|address| *address != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_bounded_by_the_time_of_the_request() {
        let limit = Duration::from_secs(60);
        for (asked, wanted) in [
            (None, Some(30)),
            (Some("5"), Some(5)),
            (Some("0"), Some(30)),
            (Some("x"), Some(30)),
            (Some("59"), Some(59)),
            (Some("60"), None),
            (Some("18446744073709551615"), None),
        ] {
            assert_eq!(
                length(asked, limit),
                wanted.map(Duration::from_secs),
                "{asked:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_profile_has_the_stacks_of_what_runs() {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = stop.clone();
        let spinning = std::thread::Builder::new()
            .name("spinner".to_owned())
            .spawn(move || {
                while !seen.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::black_box(spin());
                }
            });
        let profile = profile(Duration::from_millis(500))
            .await
            .expect("a profile");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        spinning.expect("a thread").join().expect("its end");
        assert!(profile.has_thread("spinner"));
        assert!(profile.has_function("spin"), "{profile:?}");
        let bytes = profile.encode().expect("bytes");
        assert_eq!(bytes.get(..2), Some(&[0x1f, 0x8b][..]));
    }

    #[inline(never)]
    fn spin() -> u64 {
        (0..10_000_u64).fold(0, |sum, one| std::hint::black_box(sum ^ one))
    }
}
