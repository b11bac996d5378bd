//! Annotations that mean something to pods: what fields say now was said in annotations once.

use super::paths::check_descending;
use super::scheduling::check_tolerations;
use super::scope::each_container;
use super::security::check_app_armor;
use super::validation_options::{DELETION_COST, is_deletion_cost};
use crate::meta::{ErrorList, Map, Path, Value, json};
use crate::registry::validation::Fields;

/// Marks the pod that mirrors a static one.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";

pub const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

type Annotations = Map;

/// Checks the annotations of a pod or template by themselves.
pub fn check_annotations(
    errors: &mut ErrorList,
    path: &Path,
    annotations: Option<&Annotations>,
    spec: &Map,
    lenient_cost: bool,
) {
    let Some(annotations) = annotations else {
        return;
    };
    if let Some(value) = annotations.opt_str(MIRROR)
        && spec.str("nodeName").is_empty()
    {
        errors.invalid(
            &path.key(MIRROR),
            value,
            "must set spec.nodeName if mirror pod annotation is set",
        );
    }
    let tolerations = annotations.str(TOLERATIONS);
    if !tolerations.is_empty() {
        match serde_json::from_str::<Vec<Value>>(tolerations) {
            Ok(list) => check_tolerations(errors, &path.child(TOLERATIONS), &list),
            Err(error) => errors.invalid(path, TOLERATIONS, error.to_string()),
        }
    }
    if let Some(cost) = annotations.opt_str(DELETION_COST)
        && !lenient_cost
        && !is_deletion_cost(cost)
    {
        errors.invalid(&path.key(DELETION_COST), cost, "must be a 32bit integer");
    }
    for (key, value) in annotations {
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            check_seccomp_name(errors, &path.child(key), value.as_str().unwrap_or(""));
        }
    }
    for (key, value) in annotations {
        let Some(container) = key.strip_prefix(APP_ARMOR) else {
            continue;
        };
        if !each_container(spec, path).any(|(_, one)| one.str("name") == container) {
            errors.invalid(&path.key(key), container, "container not found");
        }
        let profile = value.as_str().unwrap_or("");
        if !matches!(profile, "" | "runtime/default" | "unconfined")
            && !profile.starts_with("localhost/")
        {
            errors.invalid(
                &path.key(key),
                profile,
                format!("invalid AppArmor profile name: {profile:?}"),
            );
        }
    }
}

fn check_seccomp_name(errors: &mut ErrorList, path: &Path, profile: &str) {
    match profile.strip_prefix("localhost/") {
        Some(file) => check_descending(errors, path, file),
        None if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
        None => errors.invalid(path, profile, "must be a valid seccomp profile"),
    }
}

/// Checks that a field and an annotation that both name a profile name the same one.
pub fn check_profiles_match(
    errors: &mut ErrorList,
    path: &Path,
    annotations: Option<&Annotations>,
    spec: &Map,
) {
    let Some(annotations) = annotations else {
        return;
    };
    if !annotations.keys().any(|key| {
        key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) || key.starts_with(APP_ARMOR)
    }) {
        return;
    }
    let of_pod = spec.map("securityContext");
    if let (Some(profile), Some(annotation)) = (
        of_pod.and_then(|context| context.map("seccompProfile")),
        annotations.opt_str(SECCOMP_POD),
    ) {
        check_match(
            errors,
            &path.child("securityContext").child("seccompProfile"),
            "seccomp",
            annotation,
            profile,
        );
    }
    for (path, container) in each_container(spec, path) {
        let profile = container
            .map("securityContext")
            .and_then(|context| context.map("seccompProfile"));
        let annotation =
            annotations.opt_str(&format!("{SECCOMP_CONTAINER}{}", container.str("name")));
        if let (Some(profile), Some(annotation)) = (profile, annotation) {
            check_match(
                errors,
                &path.child("securityContext").child("seccompProfile"),
                "seccomp",
                annotation,
                profile,
            );
        }
    }
    if spec.map("os").is_some_and(|os| os.str("name") == "windows") {
        return;
    }
    for (path, container) in each_container(spec, path) {
        let own = container
            .map("securityContext")
            .and_then(|context| context.map("appArmorProfile"));
        let profile = own.or_else(|| of_pod.and_then(|context| context.map("appArmorProfile")));
        let annotation = annotations.opt_str(&format!("{APP_ARMOR}{}", container.str("name")));
        if let (Some(profile), Some(annotation)) = (profile, annotation) {
            check_match(
                errors,
                &path.child("securityContext").child("appArmorProfile"),
                "apparmor",
                annotation,
                profile,
            );
        }
    }
}

fn check_match(errors: &mut ErrorList, path: &Path, what: &str, annotation: &str, profile: &Map) {
    let same_type = match profile.str("type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default")
        }
        "Localhost" => annotation.starts_with("localhost/"),
        _ => true,
    };
    if !same_type {
        errors.forbidden(
            &path.child("type"),
            format!("{what} type in annotation and field must match"),
        );
    } else if profile.str("type") == "Localhost"
        && annotation.strip_prefix("localhost/") != profile.opt_str("localhostProfile")
    {
        let detail = format!("{what} profile in annotation and field must match");
        errors.forbidden(&path.child("localhostProfile"), detail);
    }
}

/// The field that a profile in an annotation stands for.
pub fn app_armor_profile(annotation: &str) -> Option<Value> {
    match (annotation, annotation.strip_prefix("localhost/")) {
        ("unconfined", _) => Some(json!({"type": "Unconfined"})),
        ("runtime/default", _) => Some(json!({"type": "RuntimeDefault"})),
        (_, Some(file)) if !file.is_empty() => {
            Some(json!({"type": "Localhost", "localhostProfile": file}))
        }
        _ => None,
    }
}

/// Translates the AppArmor annotations of a new pod: the profile that each container's field gets,
/// if it gets one. Containers whose annotation says nothing new are left out.
pub fn app_armor_of_annotations(pod: &Map) -> Vec<(String, Option<Value>)> {
    let annotations = pod
        .map("metadata")
        .and_then(|metadata| metadata.map("annotations"));
    let (Some(annotations), Some(spec)) = (annotations, pod.map("spec")) else {
        return Vec::new();
    };
    let on_windows = spec.map("os").is_some_and(|os| os.str("name") == "windows");
    if on_windows || !annotations.keys().any(|key| key.starts_with(APP_ARMOR)) {
        return Vec::new();
    }
    let of_pod = spec
        .map("securityContext")
        .and_then(|context| context.field("appArmorProfile"));
    let root = Path::default();
    let mut found = Vec::new();
    for (_, container) in each_container(spec, &root) {
        let name = container.str("name");
        let Some(annotation) = annotations.opt_str(&format!("{APP_ARMOR}{name}")) else {
            continue;
        };
        if container
            .map("securityContext")
            .is_some_and(|context| context.field("appArmorProfile").is_some())
        {
            continue;
        }
        let profile = app_armor_profile(annotation).filter(|profile| {
            let mut errors = ErrorList::new();
            check_app_armor(&mut errors, &root, profile.as_object());
            errors.is_empty()
        });
        if profile.is_none() || profile.as_ref() != of_pod {
            found.push((name.to_owned(), profile));
        }
    }
    found
}

/// An update may not touch the annotations that made the pod what it is.
pub fn check_annotations_kept(
    errors: &mut ErrorList,
    path: &Path,
    new: Option<&Annotations>,
    old: Option<&Annotations>,
) {
    let value = |of: Option<&Annotations>, key: &str| of.and_then(|of| of.get(key)).cloned();
    for (key, was) in old.into_iter().flatten() {
        if value(new, key).as_ref() == Some(was) {
            continue;
        }
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(
                &path.key(key),
                "may not remove or update AppArmor annotations",
            );
        }
        if key == MIRROR {
            errors.forbidden(
                &path.key(key),
                "may not remove or update mirror pod annotation",
            );
        }
    }
    for (key, _) in new
        .into_iter()
        .flatten()
        .filter(|(key, _)| value(old, key).is_none())
    {
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(&path.key(key), "may not add AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(&path.key(key), "may not add mirror pod annotation");
        }
    }
}
