//! Panics: each is logged once, with its location, and within a request also with that request.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{self, AssertUnwindSafe, Location, PanicHookInfo};
use std::pin::Pin;
use std::sync::Once;

use parking_lot::Mutex;

/// The longest message and backtrace that are kept of a panic, in bytes.
const MAX_MESSAGE: usize = 1024;
const MAX_BACKTRACE: usize = 16 * 1024;
/// Places of which a backtrace is logged, once each: symbols take time and memory.
const MAX_TRACED: usize = 32;

/// Files and lines.
static TRACED: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());

thread_local! {
    /// True while this thread runs something that is [`guard`]ed.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    /// The report of the hook on a panic that is about to be caught.
    static SEEN: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// A report of a panic.
#[derive(Clone, Debug, Default)]
pub struct Panic {
    pub message: String,
    /// `file:line:column`; empty where it is not known.
    pub location: String,
    /// Of the first panic at a place only.
    pub backtrace: String,
}

/// Installs a panic hook that logs panics instead of writing them to stderr: at once, or in the
/// [`guard`] around what panics.
pub fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| panic::set_hook(Box::new(hook)));
}

fn hook(info: &PanicHookInfo<'_>) {
    let panic = Panic {
        message: message(info.payload()),
        location: info.location().map(ToString::to_string).unwrap_or_default(),
        backtrace: backtrace(info.location()),
    };
    if GUARDED.get() {
        // An inner value means that the one before was not caught: it is the cause of this one.
        SEEN.with_borrow_mut(|seen| {
            seen.get_or_insert(panic);
        });
        return;
    }
    let thread = std::thread::current();
    let Panic {
        message,
        location,
        backtrace,
    } = panic;
    tracing::error!(
        location,
        backtrace,
        "panic in thread {}: {message}",
        thread.name().unwrap_or("without a name")
    );
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    text.get(..text.floor_char_boundary(MAX_MESSAGE))
        .unwrap_or_default()
        .to_owned()
}

/// The backtrace, for the first panic at a place.
fn backtrace(location: Option<&Location<'_>>) -> String {
    let Some(location) = location else {
        return String::new();
    };
    {
        let mut traced = TRACED.lock();
        let known = traced
            .iter()
            .any(|(file, line)| file == location.file() && *line == location.line());
        if known || traced.len() >= MAX_TRACED {
            return String::new();
        }
        traced.push((location.file().to_owned(), location.line()));
    }
    let mut trace = Backtrace::force_capture().to_string();
    trace.truncate(trace.floor_char_boundary(MAX_BACKTRACE));
    trace
}

/// Runs a future; the error describes its panic, which the caller logs. The caller pins it, because
/// an `async fn` that takes a future by value has room for it twice.
///
/// # Errors
/// It panicked.
pub async fn guard<F: Future>(mut future: Pin<&mut F>) -> Result<F::Output, Panic> {
    poll_fn(|cx| {
        let outer = GUARDED.replace(true);
        let polled = panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        GUARDED.set(outer);
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(payload) => {
                let seen = SEEN.take();
                std::task::Poll::Ready(Err(seen.unwrap_or_else(|| Panic {
                    message: message(payload.as_ref()),
                    ..Panic::default()
                })))
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn a_guarded_panic_is_known_to_the_caller() {
        install();
        let mut traces = Vec::new();
        for round in 0..3 {
            let panics = pin!(async move {
                tokio::task::yield_now().await;
                assert!(round > 9, "round {round}");
            });
            let panic = guard(panics).await.expect_err("a panic");
            assert_eq!(panic.message, format!("round {round}"));
            assert!(panic.location.starts_with(file!()), "{}", panic.location);
            traces.push(panic.backtrace);
        }
        assert!(!traces[0].is_empty() && traces[0].len() <= MAX_BACKTRACE);
        assert!(
            traces[1].is_empty() && traces[2].is_empty(),
            "one backtrace is enough"
        );
        assert_eq!(guard(pin!(async { 7 })).await.expect("no panic"), 7);
    }

    #[tokio::test]
    async fn resumed_panics_are_logged_without_a_location() {
        let panics = pin!(async { panic::resume_unwind(Box::new("from elsewhere")) });
        let resumed: Result<(), Panic> = guard(panics).await;
        assert_eq!(resumed.expect_err("a panic").message, "from elsewhere");
    }
}
