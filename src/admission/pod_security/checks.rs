//! The checks of the Pod Security Standards: what each level forbids since which version
//! (pod-security-admission `policy`).

use std::collections::BTreeSet;

use super::levels::{Level, LevelVersion, Version};
use crate::meta::go;
use crate::meta::{Map, Value, array_at, bool_at, i64_at, str_at, value_at};

/// A pod, or the template of pods.
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    pub annotations: Option<&'a Map>,
    pub spec: &'a Value,
}

/// A part of a pod that a check forbids.
#[derive(Debug, PartialEq)]
pub struct Violation {
    /// Names the check.
    pub reason: String,
    /// Names the offending parts of the pod; may be empty.
    pub detail: String,
}

type Check = fn(Pod<'_>) -> Option<Violation>;

struct Row {
    level: Level,
    /// The check from a minor version on, in ascending order.
    versions: &'static [(u64, Check)],
    /// The position of the baseline check that this one replaces at the level `restricted`.
    replaces: Option<usize>,
}

const fn baseline(versions: &'static [(u64, Check)]) -> Row {
    Row {
        level: Level::Baseline,
        versions,
        replaces: None,
    }
}

const fn restricted(versions: &'static [(u64, Check)], replaces: Option<usize>) -> Row {
    Row {
        level: Level::Restricted,
        versions,
        replaces,
    }
}

const CAPABILITIES: usize = 1;
const HOST_PATH_VOLUMES: usize = 3;
const PROC_MOUNT: usize = 7;
const SECCOMP_PROFILE: usize = 9;

/// Every check, in the order in which violations are told.
const CHECKS: [Row; 19] = [
    baseline(&[(0, app_armor_profile)]),
    baseline(&[(0, default_capabilities)]),
    baseline(&[(0, host_namespaces)]),
    baseline(&[(0, host_path_volumes)]),
    baseline(&[(0, host_ports)]),
    baseline(&[(34, hosts_of_probes)]),
    baseline(&[(0, privileged)]),
    baseline(&[(0, proc_mount), (35, |pod| on_host_users(pod, proc_mount))]),
    baseline(&[
        (0, |pod| se_linux_options(pod, &SE_LINUX_TYPES[1..])),
        (31, |pod| se_linux_options(pod, &SE_LINUX_TYPES)),
    ]),
    baseline(&[(0, seccomp_annotations), (19, seccomp_profile)]),
    baseline(&[
        (0, |pod| sysctls(pod, &SYSCTLS[..5])),
        (27, |pod| sysctls(pod, &SYSCTLS[..6])),
        (29, |pod| sysctls(pod, &SYSCTLS[..10])),
        (32, |pod| sysctls(pod, &SYSCTLS)),
    ]),
    baseline(&[(0, windows_host_process)]),
    restricted(
        &[
            (8, privilege_escalation),
            (25, |pod| on_linux(pod, privilege_escalation)),
        ],
        None,
    ),
    restricted(
        &[
            (22, dropped_capabilities),
            (25, |pod| on_linux(pod, dropped_capabilities)),
        ],
        Some(CAPABILITIES),
    ),
    restricted(&[(35, proc_mount)], Some(PROC_MOUNT)),
    restricted(&[(0, volume_types)], Some(HOST_PATH_VOLUMES)),
    restricted(
        &[
            (0, run_as_non_root),
            (35, |pod| on_host_users(pod, run_as_non_root)),
        ],
        None,
    ),
    restricted(
        &[
            (23, run_as_user),
            (35, |pod| on_host_users(pod, run_as_user)),
        ],
        None,
    ),
    restricted(
        &[
            (19, required_seccomp_profile),
            (25, |pod| on_linux(pod, required_seccomp_profile)),
        ],
        Some(SECCOMP_PROFILE),
    ),
];

/// Returns what a level forbids in a pod.
pub fn evaluate(level: LevelVersion, pod: Pod<'_>) -> Vec<Violation> {
    let current = |row: &Row| {
        let minor = match level.version {
            Version::Minor(minor) => minor,
            Version::Latest => u64::MAX,
        };
        let versions = row.versions.iter().rev();
        versions
            .filter(|(since, _)| row.level <= level.level && *since <= minor)
            .map(|(_, check)| *check)
            .next()
    };
    let replaced: Vec<usize> = CHECKS
        .iter()
        .filter(|row| current(row).is_some())
        .filter_map(|row| row.replaces)
        .collect();
    CHECKS
        .iter()
        .enumerate()
        .filter(|(position, _)| !replaced.contains(position))
        .filter_map(|(_, row)| current(row)?(pod))
        .collect()
}

/// Joins the violations as a refusal tells them.
pub fn details(violations: &[Violation]) -> String {
    let texts: Vec<String> = violations
        .iter()
        .map(|violation| match violation.detail.as_str() {
            "" => violation.reason.clone(),
            detail => format!("{} ({detail})", violation.reason),
        })
        .collect();
    texts.join(", ")
}

/// Joins the reasons of the violations.
pub fn reasons(violations: &[Violation]) -> String {
    let texts: Vec<&str> = violations.iter().map(|each| each.reason.as_str()).collect();
    texts.join(", ")
}

/// Init containers, containers and ephemeral containers, in this order.
fn containers(pod: Pod<'_>) -> impl Iterator<Item = &Value> {
    ["/initContainers", "/containers", "/ephemeralContainers"]
        .into_iter()
        .flat_map(move |list| array_at(pod.spec, list))
}

/// The names of the containers that `is_bad` is true of.
fn named<'a>(pod: Pod<'a>, mut is_bad: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
    containers(pod)
        .filter(|container| is_bad(container))
        .map(|container| str_at(container, "/name"))
        .collect()
}

fn on_linux(pod: Pod<'_>, check: Check) -> Option<Violation> {
    // Validation forbids these fields on Windows.
    match str_at(pod.spec, "/os/name") {
        "windows" => None,
        _ => check(pod),
    }
}

/// Applies a check to pods that share the users of their host.
fn on_host_users(pod: Pod<'_>, check: Check) -> Option<Violation> {
    match value_at(pod.spec, "/hostUsers") {
        Some(Value::Bool(false)) => None,
        _ => check(pod),
    }
}

fn quoted<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let items: Vec<&str> = items.into_iter().collect();
    match items.as_slice() {
        [] => String::new(),
        items => format!("\"{}\"", items.join("\", \"")),
    }
}

fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { many }
}

fn containers_named(names: &[&str]) -> String {
    let noun = plural("container", "containers", names.len());
    format!("{noun} {}", quoted(names.iter().copied()))
}

/// Names the pod and the containers that set something: `pod and container "a"`.
fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names) {
        (false, []) => None,
        (true, []) => Some("pod".to_owned()),
        (false, names) => Some(containers_named(names)),
        (true, names) => Some(format!("pod and {}", containers_named(names))),
    }
}

fn violation(reason: impl Into<String>, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation {
        reason: reason.into(),
        detail: detail.into(),
    })
}

fn annotations(pod: Pod<'_>) -> impl Iterator<Item = (&str, &str)> {
    let annotations = pod.annotations.into_iter().flat_map(Map::iter);
    annotations.filter_map(|(key, value)| Some((key.as_ref(), value.as_str()?)))
}

fn app_armor_profile(pod: Pod<'_>) -> Option<Violation> {
    const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    let mut values = BTreeSet::new();
    let is_bad = |context: &Value| {
        let profile = value_at(context, "/securityContext/appArmorProfile")?;
        let kind = str_at(profile, "/type");
        (!matches!(kind, "RuntimeDefault" | "Localhost")).then(|| kind.to_owned())
    };
    let of_pod = is_bad(pod.spec);
    let has_pod = of_pod.is_some();
    values.extend(of_pod);
    let names = named(pod, |container| {
        let kind = is_bad(container);
        let bad = kind.is_some();
        values.extend(kind);
        bad
    });
    let mut forbidden: Vec<String> = annotations(pod)
        .filter(|(key, value)| {
            let is_allowed =
                value.is_empty() || *value == "runtime/default" || value.starts_with("localhost/");
            key.starts_with(PREFIX) && !is_allowed
        })
        .map(|(key, value)| format!("{key}={}", go::quote(value)))
        .collect();
    forbidden.sort();
    let mut who: Vec<String> = setters(has_pod, &names).into_iter().collect();
    if !forbidden.is_empty() {
        who.push(plural("annotation", "annotations", forbidden.len()).to_owned());
    }
    if who.is_empty() {
        return None;
    }
    let values: Vec<&str> = values
        .iter()
        .chain(&forbidden)
        .map(String::as_str)
        .collect();
    violation(
        plural(
            "forbidden AppArmor profile",
            "forbidden AppArmor profiles",
            values.len(),
        ),
        format!(
            "{} must not set AppArmor profile type to {}",
            who.join(" and "),
            quoted(values.iter().copied())
        ),
    )
}

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The capabilities that a container adds and that are not allowed.
fn added<'a>(container: &'a Value, allowed: &[&str]) -> Vec<&'a str> {
    array_at(container, "/securityContext/capabilities/add")
        .iter()
        .filter_map(Value::as_str)
        .filter(|capability| !allowed.contains(capability))
        .collect()
}

/// The containers that add capabilities that are not allowed, and these capabilities.
fn adding<'a>(pod: Pod<'a>, allowed: &[&str]) -> Option<String> {
    let mut forbidden = BTreeSet::new();
    let names = named(pod, |container| {
        let added = added(container, allowed);
        forbidden.extend(added.iter().copied());
        !added.is_empty()
    });
    (!names.is_empty()).then(|| {
        format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers_named(&names),
            quoted(forbidden)
        )
    })
}

fn default_capabilities(pod: Pod<'_>) -> Option<Violation> {
    violation(
        "non-default capabilities",
        adding(pod, &DEFAULT_CAPABILITIES)?,
    )
}

fn dropped_capabilities(pod: Pod<'_>) -> Option<Violation> {
    let keeping = named(pod, |container| {
        !array_at(container, "/securityContext/capabilities/drop")
            .iter()
            .any(|capability| capability == "ALL")
    });
    let keeping = (!keeping.is_empty()).then(|| {
        format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            containers_named(&keeping)
        )
    });
    let found: Vec<String> = keeping
        .into_iter()
        .chain(adding(pod, &["NET_BIND_SERVICE"]))
        .collect();
    if found.is_empty() {
        return None;
    }
    violation("unrestricted capabilities", found.join("; "))
}

fn host_namespaces(pod: Pod<'_>) -> Option<Violation> {
    let found: Vec<&str> = [
        ("/hostNetwork", "hostNetwork=true"),
        ("/hostPID", "hostPID=true"),
        ("/hostIPC", "hostIPC=true"),
    ]
    .into_iter()
    .filter(|(path, _)| bool_at(pod.spec, path))
    .map(|(_, text)| text)
    .collect();
    if found.is_empty() {
        return None;
    }
    violation("host namespaces", found.join(", "))
}

fn host_path_volumes(pod: Pod<'_>) -> Option<Violation> {
    let names: Vec<&str> = array_at(pod.spec, "/volumes")
        .iter()
        .filter(|volume| value_at(volume, "/hostPath").is_some())
        .map(|volume| str_at(volume, "/name"))
        .collect();
    if names.is_empty() {
        return None;
    }
    let noun = plural("volume", "volumes", names.len());
    violation("hostPath volumes", format!("{noun} {}", quoted(names)))
}

fn host_ports(pod: Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let names = named(pod, |container| {
        let before = array_at(container, "/ports")
            .iter()
            .filter_map(|port| i64_at(port, "/hostPort").filter(|port| *port != 0))
            .map(|port| ports.insert(port.to_string()))
            .count();
        before > 0
    });
    if names.is_empty() {
        return None;
    }
    let ports: Vec<String> = ports.into_iter().collect();
    violation(
        "hostPort",
        format!(
            "{} {} {} {}",
            containers_named(&names),
            plural("uses", "use", names.len()),
            plural("hostPort", "hostPorts", ports.len()),
            ports.join(", ")
        ),
    )
}

fn hosts_of_probes(pod: Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&str; 5] = [
        "/livenessProbe",
        "/readinessProbe",
        "/startupProbe",
        "/lifecycle/postStart",
        "/lifecycle/preStop",
    ];
    let mut hosts = BTreeSet::new();
    let names: BTreeSet<&str> = named(pod, |container| {
        let found: Vec<&str> = HANDLERS
            .iter()
            .filter_map(|path| value_at(container, path))
            .flat_map(|handler| ["/httpGet/host", "/tcpSocket/host"].map(|at| str_at(handler, at)))
            .filter(|host| !host.is_empty())
            .collect();
        hosts.extend(found.iter().copied());
        !found.is_empty()
    })
    .into_iter()
    .collect();
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.into_iter().collect();
    violation(
        "probe or lifecycle host",
        format!(
            "{} {} {} {}",
            containers_named(&names),
            plural("uses", "use", names.len()),
            plural(
                "probe or lifecycle host",
                "probe or lifecycle hosts",
                hosts.len()
            ),
            quoted(hosts)
        ),
    )
}

fn privileged(pod: Pod<'_>) -> Option<Violation> {
    let names = named(pod, |container| {
        bool_at(container, "/securityContext/privileged")
    });
    let who = setters(false, &names)?;
    violation(
        "privileged",
        format!("{who} must not set securityContext.privileged=true"),
    )
}

fn proc_mount(pod: Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let names = named(pod, |container| {
        let value = value_at(container, "/securityContext/procMount").and_then(Value::as_str);
        let bad = value.filter(|value| *value != "Default");
        values.extend(bad);
        bad.is_some()
    });
    let who = setters(false, &names)?;
    violation(
        "procMount",
        format!(
            "{who} must not set securityContext.procMount to {}",
            quoted(values)
        ),
    )
}

/// The types that are allowed since v1.31; before, all but the first.
const SE_LINUX_TYPES: [&str; 5] = [
    "container_engine_t",
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
];

fn se_linux_options(pod: Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut sets_user, mut sets_role) = (BTreeSet::new(), false, false);
    let mut is_bad = |context: &Value| {
        let Some(options) = value_at(context, "/securityContext/seLinuxOptions") else {
            return false;
        };
        let kind = str_at(options, "/type");
        let bad_type = !allowed.contains(&kind);
        if bad_type {
            types.insert(kind.to_owned());
        }
        let user = !str_at(options, "/user").is_empty();
        let role = !str_at(options, "/role").is_empty();
        sets_user |= user;
        sets_role |= role;
        bad_type || user || role
    };
    let of_pod = is_bad(pod.spec);
    let names = named(pod, &mut is_bad);
    let who = setters(of_pod, &names)?;
    let mut found = Vec::new();
    if !types.is_empty() {
        let noun = plural("type", "types", types.len());
        found.push(format!(
            "{noun} {}",
            quoted(types.iter().map(String::as_str))
        ));
    }
    if sets_user {
        found.push("user may not be set".to_owned());
    }
    if sets_role {
        found.push("role may not be set".to_owned());
    }
    violation(
        "seLinuxOptions",
        format!(
            "{who} set forbidden securityContext.seLinuxOptions: {}",
            found.join("; ")
        ),
    )
}

/// Checks the annotations that seccomp profiles were before v1.19.
fn seccomp_annotations(pod: Pod<'_>) -> Option<Violation> {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let keys =
        containers(pod).map(|container| format!("{CONTAINER}{}", str_at(container, "/name")));
    let forbidden: BTreeSet<String> = std::iter::once(POD.to_owned())
        .chain(keys)
        .filter_map(|key| {
            let value = pod.annotations?.get(key.as_str())?.as_str()?;
            let is_allowed = matches!(value, "runtime/default" | "docker/default")
                || value.starts_with("localhost/");
            (!is_allowed).then(|| format!("{key}={}", go::quote(value)))
        })
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let noun = plural("annotation", "annotations", forbidden.len());
    let forbidden: Vec<String> = forbidden.into_iter().collect();
    violation(
        "seccompProfile",
        format!("forbidden {noun} {}", forbidden.join(", ")),
    )
}

/// Reports whether the type of a seccomp profile is allowed; `None` where there is no profile.
fn allows_seccomp(context: &Value) -> Option<bool> {
    let profile = value_at(context, "/securityContext/seccompProfile")?;
    let kind = str_at(profile, "/type");
    Some(matches!(kind, "Localhost" | "RuntimeDefault"))
}

fn seccomp_profile(pod: Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let mut is_bad = |context: &Value| {
        let bad = allows_seccomp(context) == Some(false);
        if bad {
            values.insert(str_at(context, "/securityContext/seccompProfile/type").to_owned());
        }
        bad
    };
    let of_pod = is_bad(pod.spec);
    let names = named(pod, &mut is_bad);
    let who = setters(of_pod, &names)?;
    violation(
        "seccompProfile",
        format!(
            "{who} must not set securityContext.seccompProfile.type to {}",
            quoted(values.iter().map(String::as_str))
        ),
    )
}

fn required_seccomp_profile(pod: Pod<'_>) -> Option<Violation> {
    let of_pod = allows_seccomp(pod.spec) == Some(true);
    seccomp_profile(pod).or_else(|| {
        let names = named(pod, |container| {
            !of_pod && allows_seccomp(container).is_none()
        });
        let who = setters(false, &names)?;
        violation(
            "seccompProfile",
            format!(
                "pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
            ),
        )
    })
}

/// The allowed sysctls, those of older versions first.
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

fn sysctls(pod: Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let forbidden: Vec<&str> = array_at(pod.spec, "/securityContext/sysctls")
        .iter()
        .map(|sysctl| str_at(sysctl, "/name"))
        .filter(|name| !allowed.contains(name))
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    violation("forbidden sysctls", forbidden.join(", "))
}

fn windows_host_process(pod: Pod<'_>) -> Option<Violation> {
    let is_bad = |context: &Value| bool_at(context, "/securityContext/windowsOptions/hostProcess");
    let who = setters(is_bad(pod.spec), &named(pod, is_bad))?;
    violation(
        "hostProcess",
        format!("{who} must not set securityContext.windowsOptions.hostProcess=true"),
    )
}

fn privilege_escalation(pod: Pod<'_>) -> Option<Violation> {
    let names = named(pod, |container| {
        value_at(container, "/securityContext/allowPrivilegeEscalation")
            != Some(&Value::Bool(false))
    });
    let who = setters(false, &names)?;
    violation(
        "allowPrivilegeEscalation != false",
        format!("{who} must set securityContext.allowPrivilegeEscalation=false"),
    )
}

/// The sources of volumes that everybody may use.
const ALLOWED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The other sources, in the order in which the first is told of a volume.
const RESTRICTED_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

fn volume_types(pod: Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let mut names = Vec::new();
    for volume in array_at(pod.spec, "/volumes") {
        let has = |source: &&&str| volume.get(**source).is_some_and(|value| !value.is_null());
        if ALLOWED_VOLUMES.iter().any(|source| has(&source)) {
            continue;
        }
        names.push(str_at(volume, "/name"));
        types.insert(*RESTRICTED_VOLUMES.iter().find(has).unwrap_or(&"unknown"));
    }
    if names.is_empty() {
        return None;
    }
    let noun = plural("volume", "volumes", names.len());
    let verb = plural("uses", "use", names.len());
    let kinds = plural(
        "restricted volume type",
        "restricted volume types",
        types.len(),
    );
    violation(
        "restricted volume types",
        format!("{noun} {} {verb} {kinds} {}", quoted(names), quoted(types)),
    )
}

fn run_as_non_root(pod: Pod<'_>) -> Option<Violation> {
    let of = |context: &Value| {
        value_at(context, "/securityContext/runAsNonRoot").and_then(Value::as_bool)
    };
    let of_pod = of(pod.spec);
    let setting = named(pod, |container| of(container) == Some(false));
    if let Some(who) = setters(of_pod == Some(false), &setting) {
        return violation(
            "runAsNonRoot != true",
            format!("{who} must not set securityContext.runAsNonRoot=false"),
        );
    }
    let silent = named(pod, |container| {
        of(container).is_none() && of_pod != Some(true)
    });
    let who = setters(false, &silent)?;
    violation(
        "runAsNonRoot != true",
        format!("pod or {who} must set securityContext.runAsNonRoot=true"),
    )
}

fn run_as_user(pod: Pod<'_>) -> Option<Violation> {
    let is_root = |context: &Value| i64_at(context, "/securityContext/runAsUser") == Some(0);
    let who = setters(is_root(pod.spec), &named(pod, is_root))?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn found(level: Level, minor: Option<u64>, metadata: &Value, spec: &Value) -> String {
        let version = minor.map_or(Version::Latest, Version::Minor);
        let pod = Pod {
            annotations: metadata.as_object(),
            spec,
        };
        details(&evaluate(LevelVersion { level, version }, pod))
    }

    fn baseline_of(spec: Value) -> String {
        found(Level::Baseline, None, &json!({}), &spec)
    }

    /// A pod spec of one container with a security context.
    fn with_context(context: Value) -> Value {
        json!({"containers": [{"name": "a", "securityContext": context}]})
    }

    #[test]
    fn baseline_checks_report_the_offending_parts() {
        let host = json!({"httpGet": {"host": "b"}, "tcpSocket": {"host": "a"}});
        for (spec, expected) in [
            (json!({"containers": [{"name": "a"}]}), ""),
            (
                json!({"hostNetwork": true, "hostIPC": true, "hostPID": false}),
                "host namespaces (hostNetwork=true, hostIPC=true)",
            ),
            (
                json!({"volumes": [{"name": "a", "hostPath": {}}, {"name": "b", "hostPath": {}}]}),
                "hostPath volumes (volumes \"a\", \"b\")",
            ),
            (
                json!({"initContainers": [{"name": "i", "ports": [{"hostPort": 90}]}],
                    "containers": [{"name": "c", "ports": [{"hostPort": 8}, {"hostPort": 0}]}]}),
                "hostPort (containers \"i\", \"c\" use hostPorts 8, 90)",
            ),
            (
                json!({"containers": [{"name": "a", "livenessProbe": host}]}),
                "probe or lifecycle host (container \"a\" uses probe or lifecycle hosts \"a\", \"b\")",
            ),
            (
                with_context(json!({"privileged": true})),
                "privileged (container \"a\" must not set securityContext.privileged=true)",
            ),
            (
                with_context(json!({"capabilities": {"add": ["CHOWN", "SYS_ADMIN", "NET_RAW"]}})),
                "non-default capabilities (container \"a\" must not include \"NET_RAW\", \
                 \"SYS_ADMIN\" in securityContext.capabilities.add)",
            ),
            (
                with_context(json!({"procMount": "Unmasked"})),
                "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")",
            ),
            (
                json!({"securityContext": {"seLinuxOptions": {"type": "x", "user": "u"}},
                    "containers": [{"name": "a", "securityContext": {"seLinuxOptions": {"role": "r"}}}]}),
                "seLinuxOptions (pod and container \"a\" set forbidden \
                 securityContext.seLinuxOptions: type \"x\"; user may not be set; \
                 role may not be set)",
            ),
            (
                json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax"},
                    {"name": "net.ipv4.tcp_wmem"}]}}),
                "forbidden sysctls (kernel.msgmax)",
            ),
            (
                json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}),
                "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
            ),
            (
                with_context(json!({"seccompProfile": {"type": "Unconfined"}})),
                "seccompProfile (container \"a\" must not set \
                 securityContext.seccompProfile.type to \"Unconfined\")",
            ),
            (
                with_context(json!({"appArmorProfile": {"type": "Unconfined"}})),
                "forbidden AppArmor profile (container \"a\" must not set AppArmor profile type \
                 to \"Unconfined\")",
            ),
        ] {
            assert_eq!(baseline_of(spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn restricted_checks_demand_settings() {
        let restricted = |spec: Value| found(Level::Restricted, None, &json!({}), &spec);
        assert_eq!(
            restricted(json!({"containers": [{"name": "a"}],
                "volumes": [{"name": "v", "nfs": {}}, {"name": "w", "emptyDir": {}}]})),
            "allowPrivilegeEscalation != false (container \"a\" must set \
             securityContext.allowPrivilegeEscalation=false), \
             unrestricted capabilities (container \"a\" must set \
             securityContext.capabilities.drop=[\"ALL\"]), \
             restricted volume types (volume \"v\" uses restricted volume type \"nfs\"), \
             runAsNonRoot != true (pod or container \"a\" must set \
             securityContext.runAsNonRoot=true), \
             seccompProfile (pod or container \"a\" must set \
             securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
        );
        let context = json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            "seccompProfile": {"type": "RuntimeDefault"}});
        assert_eq!(restricted(with_context(context)), "");
        assert_eq!(
            restricted(with_context(json!({"allowPrivilegeEscalation": false,
                "runAsUser": 0, "runAsNonRoot": false, "seccompProfile": {"type": "Localhost"},
                "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}))),
            "unrestricted capabilities (container \"a\" must not include \"CHOWN\" in \
             securityContext.capabilities.add), \
             runAsNonRoot != true (container \"a\" must not set \
             securityContext.runAsNonRoot=false), \
             runAsUser=0 (container \"a\" must not set runAsUser=0)"
        );
    }

    #[test]
    fn checks_are_those_of_the_version() {
        let spec = json!({"securityContext": {"seLinuxOptions": {"type": "container_engine_t"},
            "sysctls": [{"name": "net.ipv4.tcp_rmem"}], "runAsUser": 0},
            "containers": [{"name": "a", "livenessProbe": {"httpGet": {"host": "h"}}}]});
        let reasons_of = |level, minor| {
            let pod = Pod {
                annotations: None,
                spec: &spec,
            };
            let version = Version::Minor(minor);
            reasons(&evaluate(LevelVersion { level, version }, pod))
        };
        assert_eq!(
            reasons_of(Level::Baseline, 30),
            "seLinuxOptions, forbidden sysctls"
        );
        assert_eq!(reasons_of(Level::Baseline, 31), "forbidden sysctls");
        assert_eq!(reasons_of(Level::Baseline, 33), "");
        assert_eq!(reasons_of(Level::Baseline, 34), "probe or lifecycle host");
        assert_eq!(reasons_of(Level::Baseline, 99), "probe or lifecycle host");
        assert_eq!(
            reasons_of(Level::Restricted, 7),
            "seLinuxOptions, forbidden sysctls, runAsNonRoot != true"
        );
        assert_eq!(
            reasons_of(Level::Restricted, 33),
            "allowPrivilegeEscalation != false, unrestricted capabilities, \
             runAsNonRoot != true, runAsUser=0, seccompProfile"
        );
    }

    #[test]
    fn pods_with_users_of_their_own_and_windows_pods_are_spared() {
        let mut spec = with_context(json!({"procMount": "Unmasked", "runAsUser": 0,
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"}}));
        spec["hostUsers"] = json!(false);
        let of = |level, minor, spec: &Value| found(level, Some(minor), &json!({}), spec);
        assert!(of(Level::Baseline, 34, &spec).starts_with("procMount"));
        assert_eq!(of(Level::Baseline, 35, &spec), "");
        assert!(of(Level::Restricted, 35, &spec).starts_with("procMount"));
        assert!(!of(Level::Restricted, 35, &spec).contains("runAs"));
        let windows = json!({"os": {"name": "windows"}, "containers": [{"name": "a"}]});
        assert_eq!(
            of(Level::Restricted, 36, &windows),
            "runAsNonRoot != true (pod or container \"a\" must set \
             securityContext.runAsNonRoot=true)"
        );
        assert!(of(Level::Restricted, 24, &windows).contains("seccompProfile"));
    }

    #[test]
    fn annotations_count_as_profiles() {
        let spec = json!({"containers": [{"name": "a"}]});
        let app_armor = json!({"container.apparmor.security.beta.kubernetes.io/a": "unconfined"});
        assert_eq!(
            found(Level::Baseline, None, &app_armor, &spec),
            "forbidden AppArmor profile (annotation must not set AppArmor profile type to \
             \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")"
        );
        let seccomp = json!({"container.seccomp.security.alpha.kubernetes.io/a": "unconfined",
            "seccomp.security.alpha.kubernetes.io/pod": "docker/default"});
        assert_eq!(
            found(Level::Baseline, Some(18), &seccomp, &spec),
            "seccompProfile (forbidden annotation \
             container.seccomp.security.alpha.kubernetes.io/a=\"unconfined\")"
        );
        assert_eq!(found(Level::Baseline, Some(19), &seccomp, &spec), "");
    }
}
