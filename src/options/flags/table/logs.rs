//! Flags of the section "Logs".

use super::{Flag, ignored, refused, used};
use crate::options::flags::Kind::{Duration, Int, Switch, Text};

const NO_BUFFER: &str = "log lines are written at once";
const NO_ALPHA_LOGGING: &str = "LoggingAlphaOptions is off: every line goes to stderr at once";

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    ignored(Duration, "log-flush-frequency", "5s", NO_BUFFER),
    refused(Text, "log-json-info-buffer-size", "0", NO_ALPHA_LOGGING),
    refused(Switch, "log-json-split-stream", "false", NO_ALPHA_LOGGING),
    refused(Text, "log-text-info-buffer-size", "0", NO_ALPHA_LOGGING),
    refused(Switch, "log-text-split-stream", "false", NO_ALPHA_LOGGING),
    used(Text, "logging-format", "text", "text or json"),
    used(Int, "v", "0",
        "how much to log: 0 for what matters, 3 for a line for each request, 4 for debugging"),
    ignored(Text, "vmodule", "", "it names Go source files, and there are none that could match"),
];
