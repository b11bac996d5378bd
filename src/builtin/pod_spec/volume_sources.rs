//! Storage systems that pods and persistent volumes mount.

use std::sync::LazyLock;

use regex::Regex;

use super::paths::{check_descending, check_no_backsteps};
use super::volume_items::required;
use crate::meta::{ErrorList, Map, Path, names};
use crate::registry::validation::{Fields, invalid_each};

const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const CSI_DRIVER_MAX: usize = 63;

/// The owner of a source: persistent volumes refer to secrets by namespace too, and are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked<'a> {
    InPod,
    Persistent { name: &'a str },
}

/// Checks a source of a kind that both have. `path` is that of what holds the source.
pub fn check_storage(errors: &mut ErrorList, path: &Path, kind: &str, source: &Map, of: Checked) {
    let holder = path;
    let path = &path.child(if kind == "gcePersistentDisk" {
        "persistentDisk"
    } else {
        kind
    });
    let persistent = of != Checked::InPod;
    let mut require = |keys: &[&str]| {
        keys.iter()
            .for_each(|key| required(errors, path, source, key))
    };
    match kind {
        "hostPath" => check_host_path(errors, path, source),
        "gitRepo" => {
            require(&["repository"]);
            check_descending(errors, &path.child("directory"), source.str("directory"));
        }
        "gcePersistentDisk" => check_disk(errors, path, source, "pdName"),
        "awsElasticBlockStore" => check_disk(errors, path, source, "volumeID"),
        "nfs" => {
            require(&["server", "path"]);
            if !source.str("path").starts_with('/') {
                errors.invalid(
                    &path.child("path"),
                    source.str("path"),
                    "must be an absolute path",
                );
            }
        }
        "iscsi" => check_iscsi(errors, path, source, of),
        "glusterfs" => {
            require(&["endpoints", "path"]);
            check_endpoints_namespace(errors, path, source);
        }
        "flocker" => check_flocker(errors, path, source),
        "rbd" => {
            require_list(errors, path, source, "monitors");
            required(errors, path, source, "image");
        }
        "cinder" => {
            require(&["volumeID"]);
            check_secret_ref(errors, path, source, persistent);
        }
        "cephfs" => require_list(errors, path, source, "monitors"),
        "quobyte" => check_quobyte(errors, path, source),
        "fc" => check_fibre_channel(errors, path, source),
        "flexVolume" => check_flex(errors, path, source),
        "azureFile" => {
            require(&["secretName", "shareName"]);
            if source.opt_str("secretNamespace") == Some("") {
                errors.required(&path.child("secretNamespace"), "");
            }
        }
        "vsphereVolume" => require(&["volumePath"]),
        "photonPersistentDisk" => require(&["pdID"]),
        "portworxVolume" => require(&["volumeID"]),
        "azureDisk" => check_azure_disk(errors, path, source),
        "storageos" => check_storage_os(errors, path, source, persistent),
        "scaleIO" => require(&["gateway", "system", "volumeName"]),
        "csi" if persistent => check_persistent_csi(errors, path, source),
        "csi" => check_csi(errors, path, source),
        "local" => check_local(errors, path, source),
        _ => debug_assert!(false, "an unknown storage system below {holder}: {kind}"),
    }
}

fn require_list(errors: &mut ErrorList, path: &Path, source: &Map, key: &str) {
    if source.list(key).is_empty() {
        errors.required(&path.child(key), "");
    }
}

fn check_host_path(errors: &mut ErrorList, path: &Path, source: &Map) {
    let target = source.str("path");
    if target.is_empty() {
        errors.required(&path.child("path"), "");
        return;
    }
    check_no_backsteps(errors, &path.child("path"), target);
    if let Some(kind) = source
        .opt_str("type")
        .filter(|kind| !HOST_PATH_TYPES.contains(kind))
    {
        errors.not_supported(&path.child("type"), kind, &HOST_PATH_TYPES);
    }
}

fn check_local(errors: &mut ErrorList, path: &Path, source: &Map) {
    required(errors, path, source, "path");
    check_no_backsteps(errors, &path.child("path"), source.str("path"));
}

fn check_disk(errors: &mut ErrorList, path: &Path, source: &Map, name: &str) {
    required(errors, path, source, name);
    let partition = source.int("partition").unwrap_or(0);
    if !(0..=255).contains(&partition) {
        errors.invalid(
            &path.child("partition"),
            partition,
            names::range_error(1, 255),
        );
    }
}

/// Describes what is wrong with the name of an iSCSI node: its prefix, or what follows it.
fn iscsi_name_problem(name: &str) -> Option<&'static str> {
    static IQN: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"iqn\.\d{4}-\d{2}\.([[:alnum:].-]+)(:[^,;*&$|\s]+)$").ok());
    let alnum = |rest: &str, length: usize| {
        rest.len() == length + 1 && rest.bytes().skip(1).all(|c| c.is_ascii_alphanumeric())
    };
    let fine = if name.starts_with("iqn") {
        IQN.as_ref().is_some_and(|pattern| pattern.is_match(name))
    } else if let Some(rest) = name.strip_prefix("eui") {
        alnum(rest, 16)
    } else if let Some(rest) = name.strip_prefix("naa") {
        alnum(rest, 32)
    } else {
        return Some("must be valid format starting with iqn, eui, or naa");
    };
    (!fine).then_some("must be valid format")
}

fn check_iscsi(errors: &mut ErrorList, path: &Path, source: &Map, of: Checked) {
    required(errors, path, source, "targetPortal");
    let initiator = source.opt_str("initiatorName");
    let problem_of = |name: &str| {
        let problem = iscsi_name_problem(name)?;
        Some(if of == Checked::InPod {
            problem
        } else {
            "must be valid format"
        })
    };
    if let (Checked::Persistent { name }, Some(_)) = (of, initiator)
        && name.len() + 1 + source.str("targetPortal").len() > 64
    {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        errors.invalid(
            &path.child("targetportal"),
            source.str("targetPortal"),
            detail,
        );
    }
    let iqn = source.str("iqn");
    if iqn.is_empty() {
        errors.required(&path.child("iqn"), "");
    } else if let Some(problem) = problem_of(iqn) {
        errors.invalid(&path.child("iqn"), iqn, problem);
    }
    check_lun(errors, path, source.int("lun").unwrap_or(0));
    let authenticates = source.flag("chapAuthDiscovery") || source.flag("chapAuthSession");
    if authenticates && source.map("secretRef").is_none() {
        errors.required(&path.child("secretRef"), "");
    }
    if let (Checked::Persistent { .. }, Some(secret)) = (of, source.map("secretRef")) {
        required(errors, &path.child("secretRef"), secret, "name");
    }
    if let Some(initiator) = initiator
        && let Some(problem) = problem_of(initiator)
    {
        errors.invalid(&path.child("initiatorname"), initiator, problem);
    }
}

fn check_lun(errors: &mut ErrorList, path: &Path, lun: i64) {
    if !(0..=255).contains(&lun) {
        errors.invalid(&path.child("lun"), lun, names::range_error(0, 255));
    }
}

fn check_endpoints_namespace(errors: &mut ErrorList, path: &Path, source: &Map) {
    let path = path.child("endpointsNamespace");
    match source.opt_str("endpointsNamespace") {
        None => {}
        Some("") => errors.invalid(
            &path,
            "",
            "if the endpointnamespace is set, it must be a valid namespace name",
        ),
        Some(namespace) => invalid_each(errors, &path, namespace, names::dns1123_label(namespace)),
    }
}

fn check_flocker(errors: &mut ErrorList, path: &Path, source: &Map) {
    let name = source.str("datasetName");
    match (name.is_empty(), source.str("datasetUUID").is_empty()) {
        (true, true) => errors.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            errors.invalid(
                path,
                "resource",
                "datasetName and datasetUUID can not be specified simultaneously",
            );
        }
        _ => {}
    }
    if name.contains('/') {
        errors.invalid(&path.child("datasetName"), name, "must not contain '/'");
    }
}

/// A secret by name, and by namespace where the source is not in one.
fn check_secret_ref(errors: &mut ErrorList, path: &Path, source: &Map, persistent: bool) {
    let Some(secret) = source.map("secretRef") else {
        return;
    };
    let path = path.child("secretRef");
    required(errors, &path, secret, "name");
    if persistent {
        required(errors, &path, secret, "namespace");
    }
}

fn check_quobyte(errors: &mut ErrorList, path: &Path, source: &Map) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = source.str("registry");
    if registry.is_empty() {
        errors.required(&path.child("registry"), PAIRS);
    } else if source.str("tenant").len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(&path.child("tenant"), detail);
    } else {
        for pair in registry.split(',') {
            let well_formed = match pair.strip_prefix('[') {
                Some(rest) => rest.contains("]:"),
                None => pair.matches(':').count() == 1,
            };
            if !well_formed {
                errors.invalid(&path.child("registry"), registry, PAIRS);
            }
        }
    }
    required(errors, path, source, "volume");
}

fn check_fibre_channel(errors: &mut ErrorList, path: &Path, source: &Map) {
    let (targets, ids) = (source.list("targetWWNs"), source.list("wwids"));
    let path_targets = path.child("targetWWNs");
    match (targets.is_empty(), ids.is_empty()) {
        (true, true) => errors.required(
            &path_targets,
            "must specify either targetWWNs or wwids, but not both",
        ),
        (false, false) => {
            errors.invalid(
                &path_targets,
                targets,
                "targetWWNs and wwids can not be specified simultaneously",
            );
        }
        _ => {}
    }
    if targets.is_empty() {
        return;
    }
    match source.int("lun") {
        None => errors.required(
            &path.child("lun"),
            "lun is required if targetWWNs is specified",
        ),
        Some(lun) => check_lun(errors, path, lun),
    }
}

fn check_flex(errors: &mut ErrorList, path: &Path, source: &Map) {
    required(errors, path, source, "driver");
    for (key, _) in source.entries("options") {
        let domain = format!(".{}", key.split('/').next().unwrap_or("").to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let path = path.child("options").key(key);
            errors.invalid(
                &path,
                key.as_str(),
                "kubernetes.io and k8s.io namespaces are reserved",
            );
        }
    }
}

fn check_azure_disk(errors: &mut ErrorList, path: &Path, source: &Map) {
    const CACHING: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
    const KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
    const MANAGED: &str = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str =
        "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    required(errors, path, source, "diskName");
    required(errors, path, source, "diskURI");
    let uri = source.str("diskURI");
    for (key, supported) in [("cachingMode", CACHING), ("kind", KINDS)] {
        if let Some(value) = source
            .opt_str(key)
            .filter(|value| !supported.contains(value))
        {
            errors.not_supported(&path.child(key), value, &supported);
        }
    }
    let (start, form) = match source.opt_str("kind") {
        None => return,
        Some("Managed") => ("/subscriptions/", MANAGED),
        Some(_) => ("https://", BLOB),
    };
    if !uri.starts_with(start) {
        errors.not_supported(&path.child("diskURI"), uri, &[form]);
    }
}

fn check_storage_os(errors: &mut ErrorList, path: &Path, source: &Map, persistent: bool) {
    let (name, namespace) = (source.str("volumeName"), source.str("volumeNamespace"));
    if name.is_empty() {
        errors.required(&path.child("volumeName"), "");
    } else {
        invalid_each(
            errors,
            &path.child("volumeName"),
            name,
            names::dns1123_label(name),
        );
    }
    if !namespace.is_empty() {
        invalid_each(
            errors,
            &path.child("volumeNamespace"),
            namespace,
            names::dns1123_label(namespace),
        );
    }
    check_secret_ref(errors, path, source, persistent);
}

/// The name of a CSI driver: a subdomain in any case, 63 characters.
pub fn check_csi_driver_name(errors: &mut ErrorList, path: &Path, driver: &str) {
    if driver.is_empty() {
        errors.required(path, "");
        return;
    }
    if driver.len() > CSI_DRIVER_MAX {
        errors.too_long(path, CSI_DRIVER_MAX);
    }
    invalid_each(
        errors,
        path,
        driver,
        names::dns1123_subdomain(&driver.to_lowercase()),
    );
}

fn check_csi(errors: &mut ErrorList, path: &Path, source: &Map) {
    check_csi_driver_name(errors, &path.child("driver"), source.str("driver"));
    let Some(secret) = source.map("nodePublishSecretRef") else {
        return;
    };
    let name = secret.str("name");
    if name.is_empty() {
        errors.required(&path.child("nodePublishSecretRef").child("name"), "");
    } else {
        invalid_each(
            errors,
            &path.child("name"),
            name,
            names::dns1123_subdomain(name),
        );
    }
}

fn check_persistent_csi(errors: &mut ErrorList, path: &Path, source: &Map) {
    check_csi_driver_name(errors, &path.child("driver"), source.str("driver"));
    required(errors, path, source, "volumeHandle");
    for key in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let Some(secret) = source.map(key) else {
            continue;
        };
        let path = path.child(key);
        for (key, check) in [
            (
                "name",
                names::dns1123_subdomain as fn(&str) -> names::Problems,
            ),
            ("namespace", names::dns1123_label),
        ] {
            let value = secret.str(key);
            if value.is_empty() {
                errors.required(&path.child(key), "");
            } else {
                invalid_each(errors, &path.child(key), value, check(value));
            }
        }
    }
}
