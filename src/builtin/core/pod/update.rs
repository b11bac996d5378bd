//! Updates of pods: the fields that may change.

use std::collections::HashSet;

use crate::builtin::internal_types;
use crate::builtin::pod_spec::annotations::{MIRROR, check_annotations, check_annotations_kept};
use crate::builtin::pod_spec::containers::check_image_spaces;
use crate::builtin::pod_spec::pod_level_resources::qos_class;
use crate::builtin::pod_spec::scheduling::check_tolerations;
use crate::builtin::pod_spec::validation_options::PodValidationOptions;
use crate::builtin::pod_spec::{annotations, containers, validation};
use crate::meta::{ErrorList, FieldError, Map, Object, Path, Value, names};
use crate::registry::Context;
use crate::registry::validation::{Fields, same};

/// Checks a pod: its annotations and spec, and what templates are allowed but pods are not.
pub fn check_pod(object: &Object, options: &PodValidationOptions) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.section("spec");
    let annotations_path = Path::new("metadata").child("annotations");
    annotations::check_annotations(
        &mut errors,
        &annotations_path,
        object.annotations(),
        spec,
        options.allow_invalid_deletion_cost,
    );
    let path = Path::new("spec");
    validation::check_spec(&mut errors, &path, spec, object.metadata(), options);
    if spec.str("serviceAccountName").is_empty() {
        for (at, volume) in spec.list("volumes").iter().enumerate() {
            let sources = volume
                .map("projected")
                .map_or(&[][..], |projected| projected.list("sources"));
            for (index, _) in sources
                .iter()
                .enumerate()
                .filter(|(_, source)| source.map("serviceAccountToken").is_some())
            {
                let path = path
                    .child("volumes")
                    .index(at)
                    .child("projected")
                    .child("sources")
                    .index(index)
                    .child("serviceAccountToken");
                errors.forbidden(
                    &path,
                    "must not be specified when serviceAccountName is not set",
                );
            }
        }
    }
    for key in ["containers", "initContainers"] {
        for (index, container) in spec.list(key).iter().enumerate() {
            if let Some(container) = container.as_object() {
                containers::check_image_spaces(
                    &mut errors,
                    &path.child(key).index(index),
                    container,
                );
            }
        }
    }
    errors
}

const ONLY_COMPUTE: &str = "only cpu and memory resources are mutable";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
                         (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it \
                         was previously negative)";

fn spec_of(object: &Object) -> Map {
    object.map("spec").cloned().unwrap_or_default()
}

/// Annotations: what they say now, and what of them changed.
pub fn check_annotation_update(
    errors: &mut ErrorList,
    object: &Object,
    old: &Object,
    options: &PodValidationOptions,
) {
    let path = Path::new("metadata").child("annotations");
    check_annotations_kept(errors, &path, object.annotations(), old.annotations());
    let spec = object.section("spec");
    check_annotations(
        errors,
        &path,
        object.annotations(),
        spec,
        options.allow_invalid_deletion_cost,
    );
}

/// Checks an update of the pod itself.
pub fn check_update(ctx: &Context, object: &Object, old: &Object) -> ErrorList {
    let options = PodValidationOptions::of_pods(ctx, Some(old));
    let mut errors = check_pod(object, &options);
    check_annotation_update(&mut errors, object, old, &options);
    let path = Path::new("spec");
    let (new_spec, old_spec) = (object.section("spec"), old.section("spec"));
    for key in ["containers", "initContainers"] {
        if !check_images(
            &mut errors,
            &path.child(key),
            new_spec.list(key),
            old_spec.list(key),
        ) {
            return errors;
        }
    }
    if !check_deadline(
        &mut errors,
        &path.child("activeDeadlineSeconds"),
        new_spec,
        old_spec,
    ) {
        return errors;
    }
    check_added_tolerations(
        &mut errors,
        &path.child("tolerations"),
        new_spec.list("tolerations"),
        old_spec.list("tolerations"),
    );
    let gates_path = path.child("schedulingGates");
    let gates: HashSet<&str> = old_spec
        .list("schedulingGates")
        .iter()
        .map(|gate| gate.str("name"))
        .collect();
    for (index, gate) in new_spec.list("schedulingGates").iter().enumerate() {
        let name = gate.str("name");
        if !gates.contains(name) {
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&gates_path.index(index).child("name"), detail);
        }
    }
    if !same(object.field("spec"), old.field("spec")) {
        check_nothing_else(&mut errors, &path, new_spec, old_spec);
    }
    errors
}

/// Containers stay, only their images change. Whether the check can go on.
fn check_images(errors: &mut ErrorList, path: &Path, new: &[Value], old: &[Value]) -> bool {
    if new.len() != old.len() {
        errors.forbidden(path, "pod updates may not add or remove containers");
        return false;
    }
    for (index, container) in new.iter().enumerate() {
        let path = path.index(index);
        if container.str("image").is_empty() {
            errors.required(&path.child("image"), "");
        }
        if let Some(container) = container.as_object() {
            check_image_spaces(errors, &path, container);
        }
    }
    true
}

/// A deadline can only come nearer. Whether the check can go on.
fn check_deadline(errors: &mut ErrorList, path: &Path, new: &Map, old: &Map) -> bool {
    match (
        new.int("activeDeadlineSeconds"),
        old.int("activeDeadlineSeconds"),
    ) {
        (Some(new), old) => {
            let problems = names::in_range(new, 0, names::ID_MAX);
            if !problems.is_empty() {
                errors.extend(
                    problems
                        .into_iter()
                        .map(|why| FieldError::invalid(path, new, why)),
                );
                return false;
            }
            if old.is_some_and(|old| old < new) {
                errors.invalid(path, new, "must be less than or equal to previous value");
                return false;
            }
        }
        (None, Some(_)) => {
            errors.invalid(
                path,
                Value::Null,
                "must not update from a positive integer to nil value",
            );
        }
        (None, None) => {}
    }
    true
}

fn check_added_tolerations(errors: &mut ErrorList, path: &Path, new: &[Value], old: &[Value]) {
    let but_seconds = |toleration: &Value| {
        let mut toleration = toleration.as_object().cloned().unwrap_or_default();
        toleration.shift_remove("tolerationSeconds");
        toleration.sort_keys();
        Value::Object(toleration).to_string()
    };
    let known: HashSet<String> = new.iter().map(but_seconds).collect();
    let kept = old.iter().all(|old| known.contains(&but_seconds(old)));
    if kept {
        check_tolerations(errors, path, new);
    } else {
        errors.forbidden(
            path,
            "existing toleration can not be modified except its tolerationSeconds",
        );
    }
}

/// Sets a field back to what it was.
fn restore(spec: &mut Map, old: &Map, key: &str) {
    match old.get(key) {
        Some(value) => spec.insert(key.to_owned(), value.clone()),
        None => spec.shift_remove(key),
    };
}

/// Sets back what may change; what differs still, may not.
fn check_nothing_else(errors: &mut ErrorList, path: &Path, new: &Map, old: &Map) {
    let mut spec = new.clone();
    for key in ["containers", "initContainers"] {
        let containers = spec
            .get_mut(key)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        for (container, old) in containers.zip(old.list(key)) {
            if let Some(container) = container.as_object_mut() {
                container.insert("image", old.str("image").into());
            }
        }
    }
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(&mut spec, old, key);
    }
    if old
        .int("terminationGracePeriodSeconds")
        .is_some_and(|seconds| seconds < 0)
        && spec.int("terminationGracePeriodSeconds") == Some(1)
    {
        restore(&mut spec, old, "terminationGracePeriodSeconds");
    }
    if !old.list("schedulingGates").is_empty() {
        check_tightened(errors, path, &mut spec, old);
    }
    let equal = spec
        .keys()
        .chain(old.keys())
        .all(|key| same(spec.get(key), old.get(key)));
    if !equal {
        let diff = internal_types::diff("PodSpec", old, &spec);
        errors.forbidden(
            path,
            format!("pod updates may not change fields other than {UPDATABLE}\n{diff}"),
        );
    }
}

/// While gates hold a pod, its choice of nodes may become narrower.
fn check_tightened(errors: &mut ErrorList, path: &Path, spec: &mut Map, old: &Map) {
    let kept = old.entries("nodeSelector").all(|(key, value)| {
        spec.map("nodeSelector")
            .and_then(|selector| selector.get(key))
            == Some(value)
    });
    if !kept {
        let shown = spec.field("nodeSelector").cloned().unwrap_or_default();
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid(&path.child("nodeSelector"), shown, detail);
    }
    restore(spec, old, "nodeSelector");
    let nodes = |spec: &Map| {
        spec.map("affinity")
            .and_then(|affinity| affinity.field("nodeAffinity"))
            .cloned()
    };
    let (new_nodes, old_nodes) = (nodes(spec), nodes(old));
    if same(new_nodes.as_ref(), old_nodes.as_ref()) {
        return;
    }
    check_narrower(
        errors,
        &path.child("affinity").child("nodeAffinity").child(REQUIRED),
        new_nodes.as_ref(),
        old_nodes.as_ref(),
    );
    let mut affinity = spec.map("affinity").cloned().unwrap_or_default();
    match old_nodes {
        Some(nodes) => affinity.insert("nodeAffinity", nodes),
        None => affinity.shift_remove("nodeAffinity"),
    };
    if affinity.is_empty() && old.field("affinity").is_none() {
        spec.shift_remove("affinity");
    } else {
        spec.insert("affinity", affinity.into());
    }
}

fn check_narrower(errors: &mut ErrorList, path: &Path, new: Option<&Value>, old: Option<&Value>) {
    let terms = |nodes: Option<&Value>| {
        nodes
            .and_then(|nodes| nodes.map(REQUIRED))
            .map(|selector| selector.list("nodeSelectorTerms").to_vec())
            .unwrap_or_default()
    };
    let (new, old) = (terms(new), terms(old));
    let path = path.child("nodeSelectorTerms");
    if !old.is_empty() && old.len() != new.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let shown = if new.is_empty() {
            Value::Null
        } else {
            internal_types::json_list("NodeSelectorTerm", &new)
        };
        errors.invalid(&path, shown, detail);
        return;
    }
    let empty = Map::new();
    for (index, (new, old)) in new.iter().zip(&old).enumerate() {
        let narrower = ["matchExpressions", "matchFields"]
            .iter()
            .all(|key| new.list(key).starts_with(old.list(key)));
        let was_empty =
            old.list("matchExpressions").is_empty() && old.list("matchFields").is_empty();
        let is_empty =
            new.list("matchExpressions").is_empty() && new.list("matchFields").is_empty();
        if !narrower || (was_empty && !is_empty) {
            let shown = internal_types::json("NodeSelectorTerm", new.as_object().unwrap_or(&empty));
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid(&path.index(index), shown, detail);
        }
    }
}

fn about_whole(detail: &str) -> ErrorList {
    let mut error = FieldError::forbidden(&Path::default(), detail);
    error.field = "[]".to_owned();
    [error].into()
}

/// Checks an update of the ephemeral containers: there may only be more of them.
pub fn check_ephemeral_update(ctx: &Context, object: &Object, old: &Object) -> ErrorList {
    let options = PodValidationOptions::of_pods(ctx, Some(old));
    let mut errors = check_pod(object, &options);
    check_annotation_update(&mut errors, object, old, &options);
    if old
        .annotations()
        .is_some_and(|annotations| annotations.contains_key(MIRROR))
    {
        return about_whole("static pods do not support ephemeral containers");
    }
    let path = Path::new("spec").child("ephemeralContainers");
    let new_containers = object.array_at("/spec/ephemeralContainers");
    for container in old
        .array_at("/spec/ephemeralContainers")
        .iter()
        .filter_map(Value::as_object)
    {
        let name = container.str("name");
        match new_containers
            .iter()
            .rev()
            .find(|new| new.str("name") == name)
            .and_then(Value::as_object)
        {
            None => {
                let detail = format!("existing ephemeral containers {name:?} may not be removed\n");
                errors.forbidden(&path, detail);
            }
            Some(new) if new != container => {
                let diff = internal_types::diff("EphemeralContainer", container, new);
                let detail =
                    format!("existing ephemeral containers {name:?} may not be changed\n{diff}");
                errors.forbidden(&path, detail);
            }
            Some(_) => {}
        }
    }
    errors
}

/// Checks an update of resources: CPU and memory of containers, and of the pod as a whole.
pub fn check_resize(ctx: &Context, object: &Object, old: &Object) -> ErrorList {
    let options = PodValidationOptions::of_pods(ctx, Some(old));
    let mut errors = check_pod(object, &options);
    if old
        .annotations()
        .is_some_and(|annotations| annotations.contains_key(MIRROR))
    {
        return about_whole("static pods cannot be resized");
    }
    if old.str_at("/spec/os/name") == "windows" {
        return about_whole("windows pods cannot be resized");
    }
    let path = Path::new("spec");
    let (mut spec, old_spec) = (spec_of(object), spec_of(old));
    let was = match old.str_at("/status/qosClass") {
        "" => qos_class(&old_spec),
        class => class,
    };
    if was != qos_class(&spec) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.invalid(&path, object.str_at("/status/qosClass"), detail);
    }
    let running = old
        .array_at("/status/containerStatuses")
        .iter()
        .find(|status| status.pointer("/state/running").is_some());
    if running.is_some_and(|status| status.field("resources").is_none()) {
        errors.forbidden(&path, "Pod running on node without support for resize");
    }
    let level = |spec: &Map| {
        spec.map("resources")
            .is_some_and(|own| own.entries("requests").chain(own.entries("limits")).count() > 0)
    };
    if level(&spec) || level(&old_spec) {
        resize_pod_level(&mut errors, &path, &mut spec, &old_spec);
    }
    if old
        .at("/status/nodeAllocatableResourceClaimStatuses")
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
    {
        errors.forbidden(
            &path,
            "pods with node allocatable resource claims cannot be resized",
        );
    }
    if !same_containers(&mut errors, &path, &spec, &old_spec) {
        return errors;
    }
    for key in ["initContainers", "containers"] {
        for (index, (new, old)) in spec.list(key).iter().zip(old_spec.list(key)).enumerate() {
            check_not_removed(
                &mut errors,
                &path.child(key).index(index).child("resources"),
                new,
                old,
                "resource",
            );
        }
    }
    resize_containers(&mut errors, &path, &mut spec, &old_spec);
    if errors.is_empty() && !same(Some(&Value::Object(spec)), Some(&Value::Object(old_spec))) {
        errors.forbidden(&path, ONLY_COMPUTE);
    }
    errors
}

/// Checks a resize of the pod as a whole, and sets it back.
fn resize_pod_level(errors: &mut ErrorList, path: &Path, spec: &mut Map, old: &Map) {
    let resources = path.child("resources");
    if old.field("resources").is_some() && spec.field("resources").is_none() {
        errors.forbidden(&resources, "pod-level resources cannot be removed");
        return;
    }
    check_not_removed(errors, &resources, spec, old, "pod-level resource");
    restore_compute(spec, old);
    if !same(spec.field("resources"), old.field("resources")) {
        errors.forbidden(
            path,
            "only cpu and memory resources are mutable at pod-level",
        );
    }
}

/// Checks that nothing but CPU and memory of containers changes, and sets those back.
fn resize_containers(errors: &mut ErrorList, path: &Path, spec: &mut Map, old_spec: &Map) {
    for key in ["containers", "initContainers"] {
        let containers = spec
            .get_mut(key)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        for (index, (container, old)) in containers.zip(old_spec.list(key)).enumerate() {
            let at = || path.child(key).index(index);
            let changed = !same(Some(&*container), Some(old));
            let Some((container, old)) = container.as_object_mut().zip(old.as_object()) else {
                continue;
            };
            restore_compute(container, old);
            let other = !same(
                Some(&Value::Object(container.clone())),
                Some(&Value::Object(old.clone())),
            );
            if key == "containers" {
                if other {
                    errors.forbidden(path, ONLY_COMPUTE);
                }
                continue;
            }
            if other {
                let detail =
                    "only cpu and memory resources for init or sidecar containers are mutable";
                errors.forbidden(&at(), detail);
            }
            if changed && container.str("restartPolicy") != "Always" {
                let restarting = container
                    .list("resizePolicy")
                    .iter()
                    .filter(|policy| policy.str("restartPolicy") == "RestartContainer");
                let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                errors.extend(restarting.map(|_| FieldError::forbidden(&at(), detail)));
            }
        }
    }
}

/// Containers keep their number and order. Whether they do.
fn same_containers(errors: &mut ErrorList, path: &Path, new: &Map, old: &Map) -> bool {
    let before = errors.len();
    for key in ["containers", "initContainers"] {
        let path = path.child(key);
        if new.list(key).len() != old.list(key).len() {
            errors.forbidden(
                &path,
                format!("{key} may not be added or removed on resize"),
            );
            continue;
        }
        for (index, (new, old)) in new.list(key).iter().zip(old.list(key)).enumerate() {
            if new.str("name") != old.str("name") {
                let detail = format!("{key} may not be renamed or reordered on resize");
                errors.forbidden(&path.index(index).child("name"), detail);
            }
        }
    }
    errors.len() == before
}

fn check_not_removed(
    errors: &mut ErrorList,
    path: &Path,
    new: &impl Fields,
    old: &impl Fields,
    what: &str,
) {
    let (new, old) = (new.map("resources"), old.map("resources"));
    for key in ["requests", "limits"] {
        let has = |name: &str| {
            new.and_then(|new| new.map(key))
                .is_some_and(|amounts| amounts.contains_key(name))
        };
        if old.is_some_and(|old| old.entries(key).any(|(name, _)| !has(name))) {
            errors.forbidden(&path.child(key), format!("{what} {key} cannot be removed"));
        }
    }
}

/// Sets CPU and memory back to what they were.
fn restore_compute(holder: &mut Map, old: &Map) {
    let empty = Map::new();
    let mut resources = holder.map("resources").cloned().unwrap_or_default();
    let old_resources = old.section("resources");
    for key in ["requests", "limits"] {
        let mut amounts = resources.map(key).cloned().unwrap_or_default();
        for name in ["cpu", "memory"] {
            restore(&mut amounts, old_resources.map(key).unwrap_or(&empty), name);
        }
        if amounts.is_empty() {
            resources.shift_remove(key);
        } else {
            resources.insert(key.to_owned(), amounts.into());
        }
    }
    if resources.is_empty() && !old.contains_key("resources") {
        holder.shift_remove("resources");
    } else {
        holder.insert("resources", resources.into());
    }
}

/// Checks an update of the status.
pub fn check_status_update(ctx: &Context, object: &Object, old: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    check_annotation_update(
        &mut errors,
        object,
        old,
        &PodValidationOptions::of_pods(ctx, Some(old)),
    );
    crate::builtin::core::pod::status::check_status(&mut errors, object, old);
    errors
}
