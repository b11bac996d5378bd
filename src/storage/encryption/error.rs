//! Failures of encryption and decryption.

use std::fmt;

use tonic::{Code, Status};

use crate::base::grpc::{code_name, error_text};

/// The reason why a value cannot be encrypted or decrypted.
#[derive(Clone, Debug, PartialEq)]
pub struct TransformError {
    message: String,
    /// The code of the plugin's answer, if the reason is one.
    code: Option<Code>,
    /// It may be different soon: the plugin does not answer, or has not been asked.
    temporary: bool,
}

impl TransformError {
    /// A failure that stays.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: None,
            temporary: false,
        }
    }

    /// A failure that may pass.
    pub fn temporary(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: None,
            temporary: true,
        }
    }

    /// A call of a plugin that failed while `doing` something.
    pub fn call(doing: &str, status: &Status) -> Self {
        let message = error_text(status);
        Self {
            message: if doing.is_empty() {
                message
            } else {
                format!("{doing}, error: {message}")
            },
            code: Some(status.code()),
            temporary: true,
        }
    }

    /// Joins failures as upstream does (apimachinery `util/errors.NewAggregate`); `None` without
    /// any.
    pub fn aggregate(errors: Vec<Self>) -> Option<Self> {
        let mut messages: Vec<&str> = Vec::new();
        for error in &errors {
            if !messages.contains(&error.message.as_str()) {
                messages.push(&error.message);
            }
        }
        let message = match messages.as_slice() {
            [] => return None,
            [one] => (*one).to_owned(),
            several => format!("[{}]", several.join(", ")),
        };
        Some(Self {
            message,
            code: errors.iter().find_map(|error| error.code),
            temporary: errors.iter().any(|error| error.temporary),
        })
    }

    /// Reports whether another attempt may succeed.
    pub fn is_temporary(&self) -> bool {
        self.temporary
    }

    /// Returns the value of a metric's label.
    pub fn status_label(&self) -> &'static str {
        self.code.map_or("unknown-non-grpc", code_name)
    }
}

impl fmt::Display for TransformError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TransformError {}
