//! Keeps the file of the embedded store small: it is written anew when most of it is free.

use std::sync::Arc;
use std::time::Duration;

use crate::base::supervise::FailureTracker;
use crate::server::shutdown::Shutdown;
use crate::storage::Storage;
use crate::storage::embedded::Embedded;

/// The time between two looks at the file.
const INTERVAL: Duration = Duration::from_secs(60);
/// Files below this size are left alone.
const MIN_BYTES: u64 = 64 << 20;
/// The file may be larger than what is in use by this factor: pages are not full, and what was
/// superseded is kept for a while.
const FACTOR: u64 = 4;

/// Looks at the file from time to time until the server ends.
pub async fn run(store: Arc<Embedded>, shutdown: Shutdown) {
    let rewriting = FailureTracker::new("rewriting the file of the embedded store");
    // The size that the last rewrite has left: less is not to be had.
    let mut least = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = shutdown.stopped() => return,
        }
        let (Ok(usage), Ok(size)) = (store.usage(), store.size().await) else {
            continue;
        };
        if !is_worthwhile(size, usage.in_use.unsigned_abs(), least) {
            continue;
        }
        match store.defragment().await {
            Ok(()) => rewriting.record_success(),
            Err(error) => rewriting.record_failure(&error.to_string()),
        }
        least = store.size().await.unwrap_or(size);
        tracing::info!("the file of the embedded store had {size} bytes, and has {least} now");
    }
}

/// Reports whether a file of `size` bytes is to be written anew, if `in_use` are needed, and the
/// last rewrite has left `least`.
fn is_worthwhile(size: u64, in_use: u64, least: u64) -> bool {
    size >= MIN_BYTES && size / FACTOR > in_use && size / 2 >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_files_with_much_free_are_written_anew_and_not_in_vain() {
        let mb = 1 << 20;
        for (size, in_use, least, expected) in [
            (63 * mb, 0, 0, false),
            (64 * mb, 0, 0, true),
            (100 * mb, 25 * mb, 0, false),
            (100 * mb, 24 * mb, 0, true),
            (100 * mb, 10 * mb, 60 * mb, false),
            (100 * mb, 10 * mb, 50 * mb, true),
        ] {
            assert_eq!(is_worthwhile(size, in_use, least), expected, "{size}");
        }
    }
}
