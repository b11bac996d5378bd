//! The version of this server: `GET /version` (apimachinery `version.Info`).

use crate::meta::{Value, json};

/// The Kubernetes release whose API this server serves.
pub const GIT_VERSION: &str = "v1.36.2";
pub const MAJOR: &str = "1";
pub const MINOR: &str = "36";
/// The oldest release it could stand in for.
pub const MIN_COMPATIBILITY_MINOR: &str = "35";

/// Facts that the build took from the environment (set by scripts/dist.sh): a commit, whether
/// anything was changed since, its date.
const GIT_COMMIT: Option<&str> = option_env!("KEELSON_GIT_COMMIT");
const GIT_TREE_STATE: Option<&str> = option_env!("KEELSON_GIT_TREE_STATE");
const BUILD_DATE: Option<&str> = option_env!("KEELSON_BUILD_DATE");

/// The answer to `--version`. It begins as kube-apiserver's does.
pub fn line() -> String {
    let commit = GIT_COMMIT
        .map(|commit| format!(", commit {commit}"))
        .unwrap_or_default();
    format!(
        "Kubernetes {GIT_VERSION} (Keelson {}{commit})",
        env!("CARGO_PKG_VERSION")
    )
}

/// The compiler of this program.
pub const COMPILER: &str = "rustc";

/// The facts of the build.
pub struct Build {
    pub commit: &'static str,
    pub tree_state: &'static str,
    pub date: &'static str,
    pub platform: String,
}

pub fn build() -> Build {
    Build {
        commit: GIT_COMMIT.unwrap_or(""),
        tree_state: GIT_TREE_STATE.unwrap_or(""),
        date: BUILD_DATE.unwrap_or("1970-01-01T00:00:00Z"),
        platform: format!("{}/{}", std::env::consts::OS, architecture()),
    }
}

/// `version.Info`.
pub fn info() -> Value {
    let build = build();
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": MIN_COMPATIBILITY_MINOR,
        "gitVersion": GIT_VERSION,
        "gitCommit": build.commit,
        "gitTreeState": build.tree_state,
        "buildDate": build.date,
        "goVersion": "",
        "compiler": COMPILER,
        "platform": build.platform,
    })
}

/// The architecture in Go's words, which is what clients compare.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
