//! The end of a command, as clients are told.

use crate::codec::json::text_of;
use crate::meta::{Value, json};

/// The end of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    /// The command ended with a code other than 0.
    Exited(u8),
    /// Anything else, with its reason.
    Failed(String),
    /// The client has gone.
    Gone,
}

impl Outcome {
    /// Reads the last message of a kubelet (client-go `remotecommand/v4.go`, `v2.go`).
    pub fn read(protocol: &str, message: &[u8]) -> Self {
        if message.is_empty() {
            return Self::Succeeded;
        }
        let text = String::from_utf8_lossy(message);
        if !matches!(protocol, "v4.channel.k8s.io" | "v5.channel.k8s.io") {
            return Self::Failed(format!("error executing remote command: {text}"));
        }
        let Ok(status) = serde_json::from_slice::<Value>(message) else {
            let quoted = crate::meta::go::quote(&text);
            let why = format!("error stream protocol error: invalid JSON in {quoted}");
            return Self::Failed(why);
        };
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        match text(&status, "status").as_str() {
            "Success" => Self::Succeeded,
            "Failure" if text(&status, "reason") == "NonZeroExitCode" => exit_code(&status),
            "Failure" => Self::Failed(text(&status, "message")),
            _ => Self::Failed("error stream protocol error: unknown error".to_owned()),
        }
    }

    /// The Status that the client is sent; `None` where it has gone.
    pub fn to_json(&self) -> Option<String> {
        let status = match self {
            Self::Gone => return None,
            Self::Succeeded => json!({"metadata": {}, "status": "Success"}),
            Self::Exited(code) => json!({
                "metadata": {},
                "status": "Failure",
                "message": format!(
                    "command terminated with non-zero exit code: command terminated with exit code {code}"
                ),
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
            Self::Failed(why) => json!({
                "metadata": {},
                "status": "Failure",
                "message": format!("Internal error occurred: {why}"),
                "reason": "InternalError",
                "details": {"causes": [{"message": why}]},
                "code": 500,
            }),
        };
        Some(text_of(&status))
    }

    /// The code that it is counted under: that a command fails is no failure of the server.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Failed(_) => "500",
            _ => "200",
        }
    }
}

fn exit_code(status: &Value) -> Outcome {
    let wrong = |why: &str| Outcome::Failed(format!("error stream protocol error: {why}"));
    if !status["details"].is_object() {
        return wrong("details must be set");
    }
    let causes = status["details"]["causes"].as_array();
    let mut causes = causes.into_iter().flatten();
    let Some(cause) = causes.find(|cause| cause["reason"] == "ExitCode") else {
        return wrong("no ExitCode cause given");
    };
    let text = cause["message"].as_str().unwrap_or_default();
    match text.parse() {
        Ok(code) => Outcome::Exited(code),
        Err(_) => {
            let text = crate::meta::go::quote(text);
            wrong(&format!("invalid exit code value {text}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_commands_are_told_as_upstream_tells_them() {
        let read = |message: &str| Outcome::read("v5.channel.k8s.io", message.as_bytes());
        let exit = r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
        for (message, want) in [
            ("", Outcome::Succeeded),
            (r#"{"status":"Success"}"#, Outcome::Succeeded),
            (exit, Outcome::Exited(3)),
            (
                r#"{"status":"Failure","message":"no"}"#,
                Outcome::Failed("no".to_owned()),
            ),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode"}"#,
                Outcome::Failed("error stream protocol error: details must be set".to_owned()),
            ),
            (
                r#"{"status":"?"}"#,
                Outcome::Failed("error stream protocol error: unknown error".to_owned()),
            ),
        ] {
            assert_eq!(read(message), want, "{message}");
        }
        assert_eq!(
            Outcome::read("v2.channel.k8s.io", b"no"),
            Outcome::Failed("error executing remote command: no".to_owned())
        );
        assert_eq!(
            Outcome::Exited(3).to_json().as_deref(),
            Some(
                r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: command terminated with exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#
            )
        );
        assert_eq!(
            Outcome::Failed("no".to_owned()).to_json().as_deref(),
            Some(
                r#"{"metadata":{},"status":"Failure","message":"Internal error occurred: no","reason":"InternalError","details":{"causes":[{"message":"no"}]},"code":500}"#
            )
        );
    }
}
