//! Warnings about pods that are valid but not wise (upstream `pkg/api/pod/warnings.go`).

use std::collections::{HashMap, HashSet};

use super::annotations::{APP_ARMOR, SECCOMP_CONTAINER, SECCOMP_POD, app_armor_profile};
use super::overlaps::{is_full, overlapping_paths};
use super::scope::each_container;
use crate::builtin::claim_spec::claim_warnings;
use crate::builtin::node_labels::{deprecation, selector_warnings, term_warnings};
use crate::builtin::quantities::{fraction, fraction_warning};
use crate::meta::go;
use crate::meta::{Map, Path, Value};
use crate::registry::validation::{Fields, ip_warning};

const DEPRECATED_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];
/// Volumes of days gone by, in the order they are looked for; a generic ephemeral one (no text) is
/// looked into.
const DEPRECATED_VOLUMES: [(&str, &str); 10] = [
    (
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("ephemeral", ""),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
const FIELD_FOR_SECCOMP: &str =
    "non-functional in v1.27+; use the \"seccompProfile\" field instead";
/// The advice about a profile in an annotation.
pub const FIELD_FOR_APP_ARMOR: &str =
    "deprecated since v1.30; use the \"appArmorProfile\" field instead";
const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";
const FRACTIONAL: [&str; 2] = ["memory", "ephemeral-storage"];

/// A pod, or the template of one.
struct Subject<'a> {
    /// The path to it: the root for a pod.
    path: &'a Path,
    /// Its `spec`.
    spec_path: Path,
    spec: &'a Map,
    annotations: Option<&'a Map>,
    is_template: bool,
}

/// The warnings about a pod (`path` is the root) or a template of pods.
pub fn pod_warnings(path: &Path, pod: &Map, is_template: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some(spec) = pod.map("spec") else {
        return warnings;
    };
    let annotations = pod
        .map("metadata")
        .and_then(|metadata| metadata.map("annotations"));
    let subject = Subject {
        path,
        spec_path: path.child("spec"),
        spec,
        annotations,
        is_template,
    };
    subject.node_labels(&mut warnings);
    subject.deprecated_annotations(&mut warnings);
    subject.deprecated_volumes(&mut warnings);
    overlapping_paths(&mut warnings, spec.list("volumes"));
    subject.repeated(&mut warnings);
    fractions(
        &mut warnings,
        &subject.spec_path.child("overhead"),
        spec.map("overhead"),
    );
    subject.containers(&mut warnings);
    subject.ports(&mut warnings);
    if spec
        .int("terminationGracePeriodSeconds")
        .is_some_and(|seconds| seconds < 0)
    {
        let text = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.push(format!(
            "{}: {text}",
            subject.spec_path.child("terminationGracePeriodSeconds")
        ));
    }
    subject.null_selectors(&mut warnings);
    subject.addresses(&mut warnings);
    warnings
}

/// Warns of parts of bytes.
fn fractions(warnings: &mut Vec<String>, path: &Path, amounts: Option<&Map>) {
    let Some(amounts) = amounts else { return };
    for name in FRACTIONAL {
        if let Some(text) = amounts.get(name).and_then(fraction) {
            warnings.push(fraction_warning(&path.key(name), &text));
        }
    }
}

impl Subject<'_> {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations
            .and_then(|annotations| annotations.opt_str(key))
    }

    fn annotation_warning(&self, key: &str, text: &str) -> String {
        format!(
            "{}: {text}",
            self.path.child("metadata").child("annotations").key(key)
        )
    }

    /// Selectors by labels that nodes no longer should have, and constraints that select nothing.
    fn node_labels(&self, warnings: &mut Vec<String>) {
        let place = |label: &str| self.spec_path.child("nodeSelector").key(label).to_string();
        warnings.extend(selector_warnings(self.spec.map("nodeSelector"), place));
        if let Some(affinity) = self
            .spec
            .map("affinity")
            .and_then(|affinity| affinity.map("nodeAffinity"))
        {
            let path = self.spec_path.child("affinity").child("nodeAffinity");
            let (required, preferred) = (
                "requiredDuringSchedulingIgnoredDuringExecution",
                "preferredDuringSchedulingIgnoredDuringExecution",
            );
            let terms = affinity
                .map(required)
                .map_or(&[][..], |required| required.list("nodeSelectorTerms"));
            for (index, term) in terms
                .iter()
                .enumerate()
                .filter_map(|(index, term)| Some((index, term.as_object()?)))
            {
                term_warnings(
                    warnings,
                    &path.child(required).child("nodeSelectorTerms").index(index),
                    term,
                    false,
                );
            }
            for (index, term) in affinity.list(preferred).iter().enumerate() {
                if let Some(term) = term.map("preference") {
                    term_warnings(
                        warnings,
                        &path.child(preferred).index(index).child("preference"),
                        term,
                        true,
                    );
                }
            }
        }
        for (index, constraint) in self
            .spec
            .list("topologySpreadConstraints")
            .iter()
            .enumerate()
        {
            let path = || {
                self.spec_path
                    .child("topologySpreadConstraints")
                    .index(index)
            };
            let key = constraint.str("topologyKey");
            if let Some(text) = deprecation(key) {
                warnings.push(format!("{}: {key} is {text}", path().child("topologyKey")));
            }
            if constraint.field("labelSelector").is_none() {
                warnings.push(format!(
                    "{}: {NULL_SELECTOR}",
                    path().child("labelSelector")
                ));
            }
        }
    }

    fn deprecated_annotations(&self, warnings: &mut Vec<String>) {
        for (key, text) in DEPRECATED_ANNOTATIONS {
            if self.annotation(key).is_some() {
                warnings.push(self.annotation_warning(key, text));
            }
        }
    }

    fn deprecated_volumes(&self, warnings: &mut Vec<String>) {
        for (index, volume) in self.spec.list("volumes").iter().enumerate() {
            for (kind, text) in DEPRECATED_VOLUMES {
                let Some(source) = volume.field(kind) else {
                    continue;
                };
                let path = self.spec_path.child("volumes").index(index);
                match source
                    .map("volumeClaimTemplate")
                    .and_then(|template| template.map("spec"))
                {
                    Some(claim) if text.is_empty() => {
                        claim_warnings(
                            warnings,
                            &path
                                .child("ephemeral")
                                .child("volumeClaimTemplate")
                                .child("spec"),
                            claim,
                        );
                    }
                    _ if text.is_empty() => {}
                    // The field's name here is that of the Go struct.
                    _ => warnings.push(format!(
                        "{}: {text}",
                        path.child(if kind == "storageos" {
                            "storageOS"
                        } else {
                            kind
                        })
                    )),
                }
            }
        }
    }

    /// Hosts and secrets that are given twice, or not at all.
    fn repeated(&self, warnings: &mut Vec<String>) {
        let (aliases, secrets) = (
            self.spec.list("hostAliases"),
            self.spec.list("imagePullSecrets"),
        );
        for (key, list, member) in [
            ("hostAliases", aliases, "ip"),
            ("imagePullSecrets", secrets, "name"),
        ] {
            if list.len() < 2 {
                continue;
            }
            let mut seen = HashSet::new();
            for (index, item) in list.iter().enumerate() {
                let value = item.str(member);
                if !seen.insert(value) {
                    let path = self.spec_path.child(key).index(index).child(member);
                    warnings.push(format!("{path}: duplicate {member} {}", go::quote(value)));
                }
            }
        }
        for (index, secret) in secrets.iter().enumerate() {
            if secret.str("name").is_empty() {
                let path = self
                    .spec_path
                    .child("imagePullSecrets")
                    .index(index)
                    .child("name");
                warnings.push(format!("{path}: invalid empty name \"\""));
            }
        }
    }

    fn containers(&self, warnings: &mut Vec<String>) {
        let security = self.spec.map("securityContext");
        let has = |security: Option<&Map>, key: &str| {
            security.is_some_and(|security| security.field(key).is_some())
        };
        if !has(security, "seccompProfile") && self.annotation(SECCOMP_POD).is_some() {
            warnings.push(self.annotation_warning(SECCOMP_POD, FIELD_FOR_SECCOMP));
        }
        let profile = security.and_then(|security| security.field("appArmorProfile"));
        for (path, container) in each_container(self.spec, &self.spec_path) {
            let (name, own) = (container.str("name"), container.map("securityContext"));
            if self.annotations.is_some() {
                let key = format!("{SECCOMP_CONTAINER}{name}");
                if !has(own, "seccompProfile") && self.annotation(&key).is_some() {
                    warnings.push(self.annotation_warning(&key, FIELD_FOR_SECCOMP));
                }
                // A pod's annotations are spoken of when they become fields.
                let key = format!("{APP_ARMOR}{name}");
                if self.is_template
                    && !has(own, "appArmorProfile")
                    && let Some(text) = self.annotation(&key)
                    && profile
                        .is_none_or(|profile| app_armor_profile(text).as_ref() != Some(profile))
                {
                    warnings.push(self.annotation_warning(&key, FIELD_FOR_APP_ARMOR));
                }
            }
            self.fractions_of_container(warnings, &path, container);
            hidden_variables(warnings, &path, container);
        }
    }

    fn fractions_of_container(&self, warnings: &mut Vec<String>, path: &Path, container: &Map) {
        let Some(resources) = container.map("resources") else {
            return;
        };
        for name in FRACTIONAL {
            for key in ["limits", "requests"] {
                if let Some(text) = resources
                    .map(key)
                    .and_then(|amounts| amounts.get(name))
                    .and_then(fraction)
                {
                    warnings.push(fraction_warning(
                        &path.child("resources").child(key).key(name),
                        &text,
                    ));
                }
            }
        }
    }

    /// Ports that get into each other's way, then their names.
    fn ports(&self, warnings: &mut Vec<String>) {
        let ports: Vec<(Path, &Value)> = each_container(self.spec, &self.spec_path)
            .flat_map(|(path, container)| {
                let path = path.child("ports");
                container
                    .list("ports")
                    .iter()
                    .enumerate()
                    .map(move |(index, port)| (path.index(index), port))
                    .collect::<Vec<_>>()
            })
            .collect();
        let mut seen: HashMap<(i64, &str), Taken> = HashMap::new();
        for (index, (path, port)) in ports.iter().enumerate() {
            if is_full(warnings) {
                return;
            }
            let (number, protocol) = (port.int("containerPort").unwrap_or(0), port.str("protocol"));
            let (ip, host) = (port.str("hostIP"), port.int("hostPort").unwrap_or(0));
            if !ip.is_empty() && host == 0 {
                let shown = format!(
                    "{{Name:{} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{ip}}}",
                    port.str("name")
                );
                warnings.push(format!("{path}: hostIP set without hostPort: {shown}"));
            }
            let others = seen.entry((number, protocol)).or_default();
            for (other_path, other) in others
                .conflicting(ip, host)
                .into_iter()
                .filter_map(|other| ports.get(other))
            {
                let (other_ip, other_host) =
                    (other.str("hostIP"), other.int("hostPort").unwrap_or(0));
                let how = if ip == other_ip && host == other_host {
                    "duplicate"
                } else if host == 0 || other_host == 0 {
                    "overlapping"
                } else {
                    "dangerously ambiguous"
                };
                warnings.push(format!("{path}: {how} port definition with {other_path}"));
            }
            others.add(ip, host, index);
        }
        let mut named: HashMap<&str, &Path> = HashMap::new();
        for (path, port) in &ports {
            let name = port.str("name");
            if name.is_empty() {
                continue;
            }
            match named.get(name) {
                Some(_) if is_full(warnings) => return,
                Some(other) => warnings.push(format!(
                    "{path}: duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                    go::quote(name)
                )),
                None => {
                    named.insert(name, path);
                }
            }
        }
    }

    fn null_selectors(&self, warnings: &mut Vec<String>) {
        let Some(affinity) = self.spec.map("affinity") else {
            return;
        };
        for kind in ["podAffinity", "podAntiAffinity"] {
            let Some(of_kind) = affinity.map(kind) else {
                continue;
            };
            let path = self.spec_path.child("affinity").child(kind);
            let (required, preferred) = (
                "requiredDuringSchedulingIgnoredDuringExecution",
                "preferredDuringSchedulingIgnoredDuringExecution",
            );
            for (index, term) in of_kind.list(required).iter().enumerate() {
                if term.field("labelSelector").is_none() {
                    warnings.push(format!(
                        "{}: {NULL_SELECTOR}",
                        path.child(required).index(index).child("labelSelector")
                    ));
                }
            }
            for (index, term) in of_kind.list(preferred).iter().enumerate() {
                if term
                    .map("podAffinityTerm")
                    .is_none_or(|term| term.field("labelSelector").is_none())
                {
                    let path = path
                        .child(preferred)
                        .index(index)
                        .child("podAffinityTerm")
                        .child("labelSelector");
                    warnings.push(format!("{path}: {NULL_SELECTOR}"));
                }
            }
        }
    }

    fn addresses(&self, warnings: &mut Vec<String>) {
        let servers = self
            .spec
            .map("dnsConfig")
            .map_or(&[][..], |config| config.list("nameservers"));
        for (index, server) in servers.iter().enumerate() {
            let path = || {
                self.spec_path
                    .child("dnsConfig")
                    .child("nameservers")
                    .index(index)
            };
            warnings.extend(ip_warning(path, server.as_str().unwrap_or("")));
        }
        for (index, alias) in self.spec.list("hostAliases").iter().enumerate() {
            warnings.extend(ip_warning(
                || self.spec_path.child("hostAliases").index(index).child("ip"),
                alias.str("ip"),
            ));
        }
    }
}

/// The maximum number of conflicts of one port that are told.
const MAX_CONFLICTS: usize = 1_000;

/// The ports with one number and protocol, by what tells whether another gets into their way.
#[derive(Default)]
struct Taken<'a> {
    all: Vec<usize>,
    /// By their port of the host; 0 is none.
    by_host: HashMap<i64, Vec<usize>>,
    by_address: HashMap<(i64, &'a str), Vec<usize>>,
}

impl<'a> Taken<'a> {
    fn add(&mut self, ip: &'a str, host: i64, index: usize) {
        self.all.push(index);
        self.by_host.entry(host).or_default().push(index);
        self.by_address.entry((host, ip)).or_default().push(index);
    }

    /// The first of those that are in the way of a port, in their order.
    fn conflicting(&self, ip: &str, host: i64) -> Vec<usize> {
        let of_host = |host| self.by_host.get(&host);
        let of_address = |ip| self.by_address.get(&(host, ip));
        let lists = match (host, ip) {
            (0, _) => [Some(&self.all), None, None],
            (_, "") => [of_host(0), of_host(host), None],
            (_, ip) => [of_host(0), of_address(""), of_address(ip)],
        };
        let mut found: Vec<usize> = lists
            .into_iter()
            .flatten()
            .flat_map(|list| list.iter().take(MAX_CONFLICTS))
            .copied()
            .collect();
        found.sort_unstable();
        found
    }
}

/// Variables that take the place of earlier ones without building on them.
fn hidden_variables(warnings: &mut Vec<String>, path: &Path, container: &Map) {
    let variables = container.list("env");
    if variables.len() < 2 {
        return;
    }
    let mut seen = HashSet::new();
    for (index, variable) in variables.iter().enumerate() {
        let (name, value) = (variable.str("name"), variable.str("value"));
        if seen.insert(name) {
            continue;
        }
        if is_full(warnings) {
            return;
        }
        let reference = format!("$({name})");
        if variable.field("valueFrom").is_some()
            || value == reference
            || !value.contains(&reference)
        {
            let name = go::quote(name);
            let path = path.child("env").index(index);
            warnings.push(format!(
                "{path}: hides previous definition of {name}, which may be dropped when using apply"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn what_is_valid_but_not_wise() {
        let table = [
            (
                json!({"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]}]}),
                vec![],
            ),
            (
                json!({"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]}),
                vec![
                    "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
                ],
            ),
            (
                json!({"containers": [{"ports": [{"name": "p", "containerPort": 80, "protocol": "TCP"}]},
                    {"ports": [{"name": "p", "containerPort": 80, "protocol": "TCP", "hostPort": 8080}]}]}),
                vec![
                    "spec.containers[1].ports[0]: overlapping port definition with spec.containers[0].ports[0]",
                    "spec.containers[1].ports[0]: duplicate port name \"p\" with spec.containers[0].ports[0], \
                     services and probes that select ports by name will use spec.containers[0].ports[0]",
                ],
            ),
            (
                json!({"volumes": [{"name": "v", "configMap": {"name": "m", "items": [{"path": "a"}, {"path": "a/b"}, {"path": "ab"}]}}]}),
                vec!["volume \"v\" (ConfigMap \"m\"): overlapping paths: \"a/b\" with \"a\""],
            ),
            (
                json!({"volumes": [{"name": "v", "projected": {"sources": [{}, {"secret": {"name": "s", "items": [{"path": "t"}]}},
                    {"serviceAccountToken": {"path": "t"}}]}}]}),
                vec![
                    "volume \"v\" (Projected) has no sources provided",
                    "volume \"v\" (Projected): overlapping paths: \"t\" (ServiceAccountToken) with \"t\" (Secret \"s\")",
                ],
            ),
            (
                json!({"overhead": {"memory": "100m"}, "terminationGracePeriodSeconds": -1}),
                vec![
                    "spec.overhead[memory]: fractional byte value \"100m\" is invalid, must be an integer",
                    "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
                ],
            ),
        ];
        for (spec, want) in table {
            let pod = json!({"spec": spec});
            assert_eq!(
                pod_warnings(&Path::default(), pod.as_object().expect("a map"), false),
                want,
                "{spec}"
            );
        }
    }

    #[test]
    fn ports_of_the_host_are_told_apart() {
        let port = |host: i64, ip: &str| json!({"containerPort": 80, "protocol": "TCP", "hostPort": host, "hostIP": ip});
        let ports = [
            port(1, ""),
            port(1, "10.0.0.1"),
            port(1, "10.0.0.2"),
            port(2, ""),
            port(1, "10.0.0.1"),
            json!({"containerPort": 80, "protocol": "TCP"}),
        ];
        let pod = json!({"spec": {"containers": [{"ports": ports}]}});
        let found = pod_warnings(&Path::default(), pod.as_object().expect("a map"), false);
        let short: Vec<String> = found
            .iter()
            .map(|text| {
                text.replace("spec.containers[0].ports", "")
                    .replace(" port definition with", "")
            })
            .collect();
        let want = [
            "[1]: dangerously ambiguous [0]",
            "[2]: dangerously ambiguous [0]",
            "[4]: dangerously ambiguous [0]",
            "[4]: duplicate [1]",
            "[5]: overlapping [0]",
            "[5]: overlapping [1]",
            "[5]: overlapping [2]",
            "[5]: overlapping [3]",
            "[5]: overlapping [4]",
        ];
        assert_eq!(short, want);
    }

    #[test]
    fn warnings_are_bounded() {
        let equal = vec![json!({"containerPort": 80, "protocol": "TCP", "name": "p"}); 30_000];
        let apart: Vec<Value> = (1..30_000)
            .map(|host| json!({"containerPort": 81, "protocol": "TCP", "hostPort": host}))
            .collect();
        let files: Vec<Value> = (0..60_000)
            .map(|number| json!({"path": format!("f{number}")}))
            .collect();
        let named =
            json!({"name": "x".repeat(100_000), "items": vec![json!({"path": "same"}); 30_000]});
        let variables = vec![json!({"name": "A", "value": ""}); 60_000];
        for spec in [
            json!({"containers": [{"ports": equal}]}),
            json!({"containers": [{"ports": apart}]}),
            json!({"containers": [{"env": variables}]}),
            json!({"volumes": [{"name": "v", "configMap": {"name": "m", "items": files}}]}),
            json!({"volumes": [{"name": "v", "projected": {"sources": [{"configMap": named}]}}]}),
        ] {
            let pod = json!({"spec": spec});
            let bytes: usize =
                pod_warnings(&Path::default(), pod.as_object().expect("a map"), false)
                    .iter()
                    .map(String::len)
                    .sum();
            assert!(bytes < 2 * 1024 * 1024, "{bytes} bytes of warnings");
        }
    }

    #[test]
    fn profiles_in_annotations_are_told_of_in_templates() {
        let pod = json!({
            "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}},
            "spec": {"containers": [{"name": "c"}]},
        });
        let pod = pod.as_object().expect("a map");
        let want = "template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: \
                    deprecated since v1.30; use the \"appArmorProfile\" field instead";
        assert_eq!(pod_warnings(&Path::new("template"), pod, true), [want]);
        assert!(pod_warnings(&Path::default(), pod, false).is_empty());
    }
}
