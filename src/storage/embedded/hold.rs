//! Pauses of the writer, during which the file can be copied.

use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;

/// The longest pause: whoever wants a copy has that time, and then writes go on.
pub const LIMIT: Duration = Duration::from_secs(10);

/// A pause of the writer, as the one who asked for it has it. Dropping it ends the pause.
pub struct Hold {
    release: mpsc::Sender<()>,
    unbroken: oneshot::Receiver<bool>,
}

/// The writer's side of a pause.
pub struct Held {
    released: mpsc::Receiver<()>,
    report: oneshot::Sender<bool>,
}

/// Makes both sides of a pause.
pub fn pair() -> (Hold, Held) {
    let (release, released) = mpsc::channel();
    let (report, unbroken) = oneshot::channel();
    (Hold { release, unbroken }, Held { released, report })
}

impl Hold {
    /// Ends the pause, and reports whether it has lasted until now: only then is a copy that was
    /// made meanwhile one of a single moment.
    pub async fn release(self) -> bool {
        let released = self.release.send(()).is_ok();
        released && self.unbroken.await.unwrap_or(false)
    }
}

impl Held {
    /// Waits until the pause ends.
    pub fn wait(self) {
        let released = self.released.recv_timeout(LIMIT).is_ok();
        if !released {
            tracing::warn!("a copy of the store was not made within {LIMIT:?}, or was given up");
        }
        // Nobody may be there to hear it.
        let _ = self.report.send(released);
    }
}
