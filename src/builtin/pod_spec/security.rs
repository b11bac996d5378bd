//! Security contexts of pods and containers.

use std::collections::HashSet;

use super::paths::check_descending;
use super::scope::PodScope;
use super::validation_options::PodValidationOptions;
use super::windows::check_windows_options;
use crate::builtin::internal_types;
use crate::meta::{ErrorList, Map, Path, Value, names};
use crate::registry::validation::{Fields, invalid_each, invalid_number};

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const SYSCTL_MAX: usize = 253;
const SYSCTL_FORM: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
/// The longest path that Linux takes, less its end.
const APP_ARMOR_MAX: usize = 4095;

/// Checks the security context of a container.
pub fn check_container_security(
    errors: &mut ErrorList,
    path: &Path,
    context: &Map,
    pod: &PodScope,
) {
    if context.flag("privileged") && !pod.options.allow_privileged {
        errors.forbidden(&path.child("privileged"), "disallowed by cluster policy");
    }
    check_ids(errors, path, context, &["runAsUser", "runAsGroup"]);
    if let Some(mount) = context.opt_str("procMount") {
        let path = path.child("procMount");
        if !matches!(mount, "Default" | "Unmasked") {
            errors.not_supported(&path, mount, &["Default", "Unmasked"]);
        }
        if pod.host_users && mount == "Unmasked" {
            errors.invalid(&path, mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    check_seccomp(
        errors,
        &path.child("seccompProfile"),
        context.map("seccompProfile"),
    );
    if context.opt_flag("allowPrivilegeEscalation") == Some(false) {
        let mut contradiction = |what: &str| {
            let shown = internal_types::json("SecurityContext", context);
            errors.invalid(
                path,
                shown,
                format!("cannot set `allowPrivilegeEscalation` to false and {what}"),
            );
        };
        if context.flag("privileged") {
            contradiction("`privileged` to true");
        }
        let added = context
            .map("capabilities")
            .map_or(&[][..], |capabilities| capabilities.list("add"));
        for _ in added
            .iter()
            .filter(|one| one.as_str() == Some("CAP_SYS_ADMIN"))
        {
            contradiction("`capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    check_windows_options(
        errors,
        &path.child("windowsOptions"),
        context.map("windowsOptions"),
    );
    check_app_armor(
        errors,
        &path.child("appArmorProfile"),
        context.map("appArmorProfile"),
    );
}

/// Checks the security context of a pod; `spec` says which namespaces of the host it shares.
pub fn check_pod_security(
    errors: &mut ErrorList,
    path: &Path,
    context: &Map,
    spec: &Map,
    options: &PodValidationOptions,
) {
    if context.is_empty() {
        return;
    }
    check_ids(
        errors,
        path,
        context,
        &["fsGroup", "runAsUser", "runAsGroup"],
    );
    for (index, group) in context
        .list("supplementalGroups")
        .iter()
        .filter_map(Value::as_i64)
        .enumerate()
    {
        invalid_number(
            errors,
            &path.child("supplementalGroups").index(index),
            group,
            names::unix_id(group),
        );
    }
    check_sysctls(
        errors,
        &path.child("sysctls"),
        context.list("sysctls"),
        spec,
    );
    one_of(
        errors,
        path,
        context,
        "fsGroupChangePolicy",
        &["Always", "OnRootMismatch"],
    );
    check_seccomp(
        errors,
        &path.child("seccompProfile"),
        context.map("seccompProfile"),
    );
    check_windows_options(
        errors,
        &path.child("windowsOptions"),
        context.map("windowsOptions"),
    );
    check_app_armor(
        errors,
        &path.child("appArmorProfile"),
        context.map("appArmorProfile"),
    );
    one_of(
        errors,
        path,
        context,
        "supplementalGroupsPolicy",
        &["Merge", "Strict"],
    );
    one_of(
        errors,
        path,
        context,
        "seLinuxChangePolicy",
        if options.allow_selinux_mount {
            &["MountOption", "Recursive"]
        } else {
            &["Recursive"]
        },
    );
}

fn check_ids(errors: &mut ErrorList, path: &Path, context: &Map, keys: &[&str]) {
    for key in keys {
        if let Some(id) = context.int(key) {
            let problems = names::unix_id(id);
            if !problems.is_empty() {
                invalid_number(errors, &path.child(key), id, problems);
            }
        }
    }
}

fn one_of(errors: &mut ErrorList, path: &Path, context: &Map, key: &str, supported: &[&str]) {
    if let Some(value) = context
        .opt_str(key)
        .filter(|value| !supported.contains(value))
    {
        errors.not_supported(&path.child(key), value, supported);
    }
}

fn check_seccomp(errors: &mut ErrorList, path: &Path, profile: Option<&Map>) {
    let Some(profile) = profile else { return };
    let kind = profile.str("type");
    match kind {
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        "" => errors.required(
            &path.child("type"),
            "type is required when seccompProfile is set",
        ),
        other => errors.not_supported(&path.child("type"), other, &PROFILE_TYPES),
    }
    let path = path.child("localhostProfile");
    match (kind, profile.opt_str("localhostProfile")) {
        ("Localhost", None) => errors.required(&path, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(file)) => check_descending(errors, &path, file),
        (_, Some(_)) => {
            let shown = internal_types::json("SeccompProfile", profile);
            errors.invalid(
                &path,
                shown,
                "can only be set when seccomp type is Localhost",
            );
        }
        (_, None) => {}
    }
}

/// Checks an AppArmor profile.
pub fn check_app_armor(errors: &mut ErrorList, path: &Path, profile: Option<&Map>) {
    let Some(profile) = profile else { return };
    let name_path = path.child("localhostProfile");
    let name = profile.opt_str("localhostProfile");
    match profile.str("type") {
        "Localhost" => {
            let Some(name) = name else {
                errors.required(&name_path, "must be set when AppArmor type is Localhost");
                return;
            };
            if name.trim() != name {
                errors.invalid(&name_path, name, "must not be padded with whitespace");
            } else if name.is_empty() {
                errors.required(&name_path, "must be set when AppArmor type is Localhost");
            }
            if name.len() > APP_ARMOR_MAX {
                errors.too_long(&name_path, APP_ARMOR_MAX);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if let Some(name) = name {
                errors.invalid(
                    &name_path,
                    name,
                    "can only be set when AppArmor type is Localhost",
                );
            }
        }
        "" => errors.required(
            &path.child("type"),
            "type is required when appArmorProfile is set",
        ),
        other => errors.not_supported(&path.child("type"), other, &PROFILE_TYPES),
    }
}

/// Reports whether a name is segments of lower case letters, digits and inner dashes and
/// underscores, between dots or slashes.
fn is_sysctl(name: &str) -> bool {
    let alnum = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= SYSCTL_MAX
        && name.split(['.', '/']).all(|segment| {
            let bytes = segment.as_bytes();
            bytes.first().is_some_and(|&c| alnum(c))
                && bytes.last().is_some_and(|&c| alnum(c))
                && bytes.iter().all(|&c| alnum(c) || matches!(c, b'-' | b'_'))
        })
}

/// The kernel namespace that a setting belongs to.
fn sysctl_namespace(name: &str) -> &'static str {
    let name = name.replace('/', ".");
    let ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || name == "kernel.sem";
    if ipc {
        "ipc"
    } else if name.starts_with("net.") {
        "net"
    } else {
        ""
    }
}

fn check_sysctls(errors: &mut ErrorList, path: &Path, sysctls: &[Value], spec: &Map) {
    let mut seen = HashSet::new();
    for (index, sysctl) in sysctls.iter().enumerate() {
        let name = sysctl.str("name");
        let path = path.index(index).child("name");
        if name.is_empty() {
            errors.required(&path, "");
        } else if !is_sysctl(name) {
            let detail =
                format!("must have at most {SYSCTL_MAX} characters and match regex {SYSCTL_FORM}");
            errors.invalid(&path, name, detail);
        } else if seen.contains(name) {
            errors.duplicate(&path, name);
        }
        match sysctl_namespace(name) {
            "net" if spec.flag("hostNetwork") => {
                errors.invalid(
                    &path,
                    name,
                    "may not be specified when 'hostNetwork' is true",
                );
            }
            "ipc" if spec.flag("hostIPC") => {
                errors.invalid(&path, name, "may not be specified when 'hostIPC' is true");
            }
            _ => {}
        }
        seen.insert(name);
    }
}

/// The users that a container's status reports.
pub fn check_linux_user(errors: &mut ErrorList, path: &Path, user: &Map) {
    for key in ["uid", "gid"] {
        let id = user.int(key).unwrap_or(0);
        invalid_number(errors, &path.child(key), id, names::unix_id(id));
    }
    for (index, group) in user
        .list("supplementalGroups")
        .iter()
        .filter_map(Value::as_i64)
        .enumerate()
    {
        invalid_number(
            errors,
            &path.child("supplementalGroups").index(index),
            group,
            names::unix_id(group),
        );
    }
}

/// The class of a runtime, a service account, a priority: a subdomain.
pub fn check_subdomain(errors: &mut ErrorList, path: &Path, name: &str) {
    let problems = names::dns1123_subdomain(name);
    if !problems.is_empty() {
        invalid_each(errors, path, name, problems);
    }
}
