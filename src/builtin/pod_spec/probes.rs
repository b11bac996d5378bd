//! Probes and lifecycle handlers of containers.

use super::scope::PodScope;
use crate::meta::{ErrorList, Map, Path, Value, names};
use crate::registry::validation::{Fields, invalid_each, invalid_number, not_negative};

/// The signals that may stop a container, in the order that errors list them.
const STOP_SIGNALS: [&str; 65] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMAX-1",
    "SIGRTMAX-10",
    "SIGRTMAX-11",
    "SIGRTMAX-12",
    "SIGRTMAX-13",
    "SIGRTMAX-14",
    "SIGRTMAX-2",
    "SIGRTMAX-3",
    "SIGRTMAX-4",
    "SIGRTMAX-5",
    "SIGRTMAX-6",
    "SIGRTMAX-7",
    "SIGRTMAX-8",
    "SIGRTMAX-9",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

/// Checks lifecycle and probes of a container that may have them.
pub fn check_handlers(errors: &mut ErrorList, path: &Path, container: &Map, pod: &PodScope) {
    if let Some(lifecycle) = container.map("lifecycle") {
        check_lifecycle(errors, &path.child("lifecycle"), lifecycle, pod);
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.map(key) {
            check_probe(
                errors,
                &path.child(key),
                probe,
                key == "readinessProbe",
                pod,
            );
        }
    }
}

fn check_lifecycle(errors: &mut ErrorList, path: &Path, lifecycle: &Map, pod: &PodScope) {
    for key in ["postStart", "preStop"] {
        if let Some(handler) = lifecycle.map(key) {
            check_handler(
                errors,
                &path.child(key),
                handler,
                &["exec", "httpGet", "tcpSocket", "sleep"],
                pod,
            );
        }
    }
    if let Some(signal) = lifecycle.opt_str("stopSignal") {
        let path = path.child("stopSignal");
        let supported: &[&str] = match pod.os {
            None => {
                errors.forbidden(
                    &path,
                    "may not be set for containers with empty `spec.os.name`",
                );
                return;
            }
            Some("windows") => &["SIGKILL", "SIGTERM"],
            Some("linux") => &STOP_SIGNALS,
            Some(_) => return,
        };
        if !supported.contains(&signal) {
            errors.not_supported(&path, signal, supported);
        }
    }
}

fn check_probe(errors: &mut ErrorList, path: &Path, probe: &Map, readiness: bool, pod: &PodScope) {
    check_handler(
        errors,
        path,
        probe,
        &["exec", "httpGet", "tcpSocket", "grpc"],
        pod,
    );
    for key in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        if let Some(number) = probe.int(key).filter(|number| *number < 0) {
            not_negative(errors, &path.child(key), number);
        }
    }
    let grace = probe.int("terminationGracePeriodSeconds");
    if let Some(seconds) = grace.filter(|seconds| *seconds <= 0) {
        errors.invalid(
            &path.child("terminationGracePeriodSeconds"),
            seconds,
            "must be greater than 0",
        );
    }
    let successes = probe.int("successThreshold").unwrap_or(0);
    if readiness {
        if let Some(seconds) = grace {
            errors.invalid(
                &path.child("terminationGracePeriodSeconds"),
                seconds,
                "must not be set for readinessProbes",
            );
        }
    } else if successes != 1 {
        errors.invalid(&path.child("successThreshold"), successes, "must be 1");
    }
}

fn check_handler(
    errors: &mut ErrorList,
    path: &Path,
    handler: &Map,
    kinds: &[&str],
    pod: &PodScope,
) {
    let mut found = false;
    for &kind in kinds {
        let Some(action) = handler.map(kind) else {
            continue;
        };
        let path = path.child(kind);
        if found {
            errors.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match kind {
            "exec" if action.list("command").is_empty() => {
                errors.required(&path.child("command"), "")
            }
            "httpGet" => check_http_get(errors, &path, action),
            "tcpSocket" | "grpc" => check_port(errors, &path.child("port"), action.field("port")),
            "sleep" => check_sleep(errors, &path, action.int("seconds").unwrap_or(0), pod),
            _ => {}
        }
    }
    if !found {
        errors.required(path, "must specify a handler type");
    }
}

fn check_http_get(errors: &mut ErrorList, path: &Path, action: &Map) {
    if action.str("path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    check_port(errors, &path.child("port"), action.field("port"));
    let scheme = action.str("scheme");
    if !matches!(scheme, "HTTP" | "HTTPS") {
        errors.not_supported(&path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in action.list("httpHeaders") {
        let name = header.str("name");
        invalid_each(
            errors,
            &path.child("httpHeaders"),
            name,
            names::http_header_name(name),
        );
    }
}

/// A port by number or name.
fn check_port(errors: &mut ErrorList, path: &Path, port: Option<&Value>) {
    match port {
        Some(Value::String(name)) => invalid_each(errors, path, name, names::port_name(name)),
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or(0);
            invalid_number(errors, path, number, names::port_number(number));
        }
    }
}

fn check_sleep(errors: &mut ErrorList, path: &Path, seconds: i64, pod: &PodScope) {
    if let Some(grace) = pod
        .grace_seconds
        .filter(|grace| seconds < 0 || seconds > *grace)
    {
        let detail =
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(path, seconds, detail);
    }
}
