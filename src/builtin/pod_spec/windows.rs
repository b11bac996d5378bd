//! Fields that only pods of one operating system may have.

use super::scope::{PodScope, each_container};
use crate::meta::{ErrorList, Map, Path, Value, names};
use crate::registry::validation::{Fields, invalid_each};

const CREDENTIAL_MAX: usize = 64 * 1024;
const DOMAIN_MAX: usize = 256;
const USER_MAX: usize = 104;
const USER_FORBIDDEN: &str = "\"/\\:;|=,+*?<>@[]";
/// Fields that a pod's security context may not have on Windows, and whether errors name the
/// security context in their path.
const POD_LINUX_ONLY: [(&str, bool); 12] = [
    ("appArmorProfile", true),
    ("seLinuxOptions", true),
    ("hostUsers", false),
    ("hostPID", false),
    ("hostIPC", false),
    ("seccompProfile", true),
    ("fsGroup", true),
    ("fsGroupChangePolicy", true),
    ("sysctls", true),
    ("shareProcessNamespace", false),
    ("runAsUser", true),
    ("runAsGroup", true),
];
const POD_LINUX_ONLY_REST: [&str; 3] = [
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
const CONTAINER_LINUX_ONLY: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

fn is_given(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Bool(false)) => false,
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    }
}

/// Checks the fields that only one operating system knows.
pub fn check_os(errors: &mut ErrorList, path: &Path, pod: &PodScope) {
    let Some(os) = pod.spec.map("os") else { return };
    match os.str("name") {
        "" => errors.required(&path.child("os").child("name"), ""),
        "linux" => check_linux(errors, path, pod.spec),
        "windows" => check_windows(errors, path, pod.spec),
        other => errors.not_supported(&path.child("os"), other, &["linux", "windows"]),
    }
}

fn check_linux(errors: &mut ErrorList, path: &Path, spec: &Map) {
    const DETAIL: &str = "windows options cannot be set for a linux pod";
    let has = |context: Option<&Map>| {
        context.is_some_and(|context| context.map("windowsOptions").is_some())
    };
    if has(spec.map("securityContext")) {
        errors.forbidden(
            &path.child("securityContext").child("windowsOptions"),
            DETAIL,
        );
    }
    for (path, container) in each_container(spec, path) {
        if has(container.map("securityContext")) {
            errors.forbidden(
                &path.child("securityContext").child("windowsOptions"),
                DETAIL,
            );
        }
    }
}

fn check_windows(errors: &mut ErrorList, path: &Path, spec: &Map) {
    const DETAIL: &str = "cannot be set for a windows pod";
    let context = spec.section("securityContext");
    let context_path = path.child("securityContext");
    for (key, in_context) in POD_LINUX_ONLY {
        if in_context && is_given(context.field(key)) {
            errors.forbidden(&context_path.child(key), DETAIL);
        } else if !in_context
            && (is_given(spec.field(key)) || (key == "hostUsers" && spec.field(key).is_some()))
        {
            errors.forbidden(&path.child(key), DETAIL);
        }
    }
    for key in POD_LINUX_ONLY_REST {
        if is_given(context.field(key)) {
            errors.forbidden(&context_path.child(key), DETAIL);
        }
    }
    for (path, container) in each_container(spec, path) {
        let Some(context) = container.map("securityContext") else {
            continue;
        };
        for key in CONTAINER_LINUX_ONLY {
            if context.field(key).is_some() {
                errors.forbidden(&path.child("securityContext").child(key), DETAIL);
            }
        }
    }
}

/// A host process container is one among its like, and on the network of the host.
pub fn check_host_process(errors: &mut ErrorList, path: &Path, pod: &PodScope) {
    let host_process = |context: Option<&Map>| {
        context
            .and_then(|context| context.map("windowsOptions"))
            .and_then(|options| options.opt_flag("hostProcess"))
    };
    let of_pod = host_process(pod.spec.map("securityContext"));
    let (mut containers, mut host_processes) = (0, 0);
    for (path, container) in each_container(pod.spec, path) {
        containers += 1;
        let own = host_process(container.map("securityContext"));
        if let (Some(pod), Some(own)) = (of_pod, own)
            && pod != own
        {
            let path = path
                .child("securityContext")
                .child("windowsOptions")
                .child("hostProcess");
            let detail =
                format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.invalid(&path, own, detail);
        }
        host_processes += usize::from(own.or(of_pod).unwrap_or(false));
    }
    if host_processes == 0 {
        return;
    }
    if host_processes != containers {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, "", detail);
    }
    if !pod.spec.flag("hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&path.child("hostNetwork"), false, detail);
    }
}

/// Checks the options of a security context that are for Windows.
pub fn check_windows_options(errors: &mut ErrorList, path: &Path, options: Option<&Map>) {
    let Some(options) = options else { return };
    if let Some(name) = options.opt_str("gmsaCredentialSpecName") {
        invalid_each(
            errors,
            &path.child("gmsaCredentialSpecName"),
            name,
            names::dns1123_subdomain(name),
        );
    }
    if let Some(spec) = options.opt_str("gmsaCredentialSpec") {
        let path = path.child("gmsaCredentialSpec");
        if spec.is_empty() {
            errors.invalid(&path, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > CREDENTIAL_MAX {
            errors.invalid(&path, spec, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if let Some(name) = options.opt_str("runAsUserName") {
        invalid_each(
            errors,
            &path.child("runAsUserName"),
            name,
            user_name_problems(name),
        );
    }
}

/// A user of Windows, with an optional domain before a backslash.
fn user_name_problems(name: &str) -> names::Problems {
    let only = |what: &str| vec![format!("runAsUserName {what}")];
    if name.is_empty() {
        return only("cannot be an empty string");
    }
    if name.bytes().any(|c| c.is_ascii_control()) {
        return only("cannot contain control characters");
    }
    if name.matches('\\').count() > 1 {
        return only("cannot contain more than one backslash");
    }
    let (domain, user) = name
        .split_once('\\')
        .map_or((None, name), |(domain, user)| (Some(domain), user));
    let mut problems = Vec::new();
    let mut problem = |what: String| problems.push(format!("runAsUserName's {what}"));
    if domain.is_some_and(|domain| domain.len() >= DOMAIN_MAX) {
        problem(format!(
            "Domain length must be under {DOMAIN_MAX} characters"
        ));
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_dns_domain(domain)) {
        problem("Domain doesn't match the NetBios nor the DNS format".to_owned());
    }
    if user.is_empty() {
        problem("User cannot be empty".to_owned());
    } else if user.len() > USER_MAX {
        problem(format!(
            "User length must not be longer than {USER_MAX} characters"
        ));
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        problem("User cannot contain only periods or spaces".to_owned());
    }
    if user.contains(|c| USER_FORBIDDEN.contains(c)) {
        problem(format!(
            "User cannot contain the following characters: {USER_FORBIDDEN}"
        ));
    }
    problems
}

fn is_net_bios(domain: &str) -> bool {
    let count = domain.chars().count();
    (1..=15).contains(&count)
        && !domain.starts_with('.')
        && !domain.contains(|c| "\\/:*?\"<>|".contains(c))
}

fn is_dns_domain(domain: &str) -> bool {
    domain.split('.').all(|label| {
        (1..=names::LABEL_MAX).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || c == b'-')
    })
}
