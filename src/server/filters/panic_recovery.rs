//! Answers requests whose handling panics (apiserver `server/filters/wrap.go`).

use std::pin::pin;

use http::{HeaderValue, Response};

use super::{Filter, FilterContext, Next, request_log};
use crate::endpoints::body::Body;
use crate::endpoints::{Request, respond};
use crate::telemetry::panics::{self, Panic};

/// The maximum length of a logged user name, in bytes.
const MAX_LOGGED_NAME: usize = 256;

/// Logs and counts a panic, and answers 500.
pub struct PanicRecovery;

impl Filter for PanicRecovery {
    async fn handle<N: Next>(ctx: &mut FilterContext<'_>) -> Response<Body> {
        let panic = match panics::guard(pin!(N::handle(ctx))).await {
            Ok(response) => return response,
            Err(panic) => panic,
        };
        log(&ctx.request, &ctx.audit_id, &panic);
        if let Some(audit) = &ctx.audit {
            audit.panicked(&panic.message).await;
        }
        ctx.series().0.aborted();
        respond::text(
            500,
            "This request caused apiserver to panic. Look in the logs for details.\n",
        )
    }
}

fn log(request: &Request, audit_id: &HeaderValue, panic: &Panic) {
    tracing::error!(
        method = %request.method,
        URI = ?request_log::redacted(&request.uri),
        user = ?request_log::truncated(&request.user.name, MAX_LOGGED_NAME),
        "audit-ID" = ?audit_id,
        location = panic.location,
        backtrace = panic.backtrace,
        "a request panicked: {}",
        panic.message
    );
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::auth::User;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn panics_are_logged_with_their_request() {
        let user = User {
            name: format!("eve\n{}", "x".repeat(1000)),
            ..User::default()
        };
        let request = Request {
            method: http::Method::PATCH,
            uri: "/api/v1/pods?access_token=secret".parse().expect("a URI"),
            user: user.into(),
            ..Request::default()
        };
        let panic = Panic {
            message: "index 7".to_owned(),
            location: "a.rs:1:2".to_owned(),
            backtrace: "of a.rs".to_owned(),
        };
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            log(&request, &HeaderValue::from_static("id-1"), &panic);
        });
        let text = String::from_utf8_lossy(&lines.0.lock()).into_owned();
        for part in [
            "index 7",
            "method=PATCH",
            "/api/v1/pods",
            "eve\\n",
            "id-1",
            "a.rs:1:2",
            "of a.rs",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("secret"), "{text}");
        assert!(text.len() < 1000, "{text}");
    }
}
