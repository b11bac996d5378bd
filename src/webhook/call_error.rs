//! The error of a call, and what it means for whoever called (apimachinery `api/errors`,
//! apiserver `util/webhook`).

use crate::meta::{Value, i64_at, str_at};

/// The error of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CallError {
    pub text: String,
    /// The status code of the answer, if there was one.
    pub code: Option<u16>,
    /// No answer came in time.
    pub timed_out: bool,
    /// Another attempt may succeed (`webhook.DefaultShouldRetry`).
    pub transient: bool,
}

impl CallError {
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// No answer came in time.
    pub fn late(text: impl Into<String>) -> Self {
        Self {
            timed_out: true,
            ..Self::new(text)
        }
    }

    /// The connection failed, with Go's text.
    pub fn of_transport(text: String) -> Self {
        Self {
            timed_out: text.ends_with("i/o timeout") || text.ends_with("handshake timeout"),
            transient: text.contains("connection reset by peer"),
            ..Self::new(text)
        }
    }

    /// The answer has a code that is no success.
    pub fn of_code(code: u16, text: String) -> Self {
        // An error of the server that has no name of its own counts as an internal one.
        let internal = code >= 500 && code != 503;
        Self {
            code: Some(code),
            timed_out: code == 504,
            transient: internal || code == 429,
            ..Self::new(text)
        }
    }

    /// The answer is a Status that reports a failure.
    pub fn of_status(status: &Value) -> Self {
        let reason = str_at(status, "/reason");
        let delay = i64_at(status, "/details/retryAfterSeconds").unwrap_or(0);
        Self {
            timed_out: reason == "Timeout",
            transient: delay > 0
                || matches!(
                    reason,
                    "InternalError" | "Timeout" | "TooManyRequests" | "ServerTimeout"
                ),
            ..Self::new(str_at(status, "/message"))
        }
    }

    pub fn with_code(self, code: u16) -> Self {
        Self {
            code: Some(code),
            ..self
        }
    }

    /// Changes the text.
    pub fn wrap(self, change: impl FnOnce(String) -> String) -> Self {
        Self {
            text: change(self.text),
            ..self
        }
    }
}
