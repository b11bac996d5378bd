//! StatefulSets: pods with names and claims of their own.

pub mod columns;

use std::borrow::Cow;
use std::collections::HashSet;

use crate::builtin::claim_spec::{claim_warnings, default_claim, validate_claim_spec};
use crate::builtin::defaulting::{fill, fill_text, part, part_or_new, parts};
use crate::builtin::pod_spec::defaults::default_template;
use crate::builtin::pod_spec::template::{template_warnings, validate_template};
use crate::builtin::pod_spec::validation_options::PodValidationOptions;
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WORKLOAD};
use crate::builtin::workload::rollout::{amount, check_at_most_all, check_count_or_percent};
use crate::builtin::workload::{
    check_labels_match, check_runs_forever, check_selector, collisions_only_grow,
    is_empty_selector, status_counts,
};
use crate::meta::{ErrorList, Map, Object, Path, Value, json, names};
use crate::registry::validation::{
    Fields, invalid_each, not_negative, not_negative_field, same, validate_annotations,
    validate_labels,
};
use crate::registry::{Context, NameRule, Strategy, Subresource};

/// The entry of `statefulsets`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "statefulsets",
    traits: ResourceTraits {
        pod_spec: Some("/spec/template/spec"),
        name: NameRule::DnsLabel,
        ..WORKLOAD
    },
    strategy: &StatefulSetStrategy,
    printer: &columns::PRINTER,
};

/// The fields of the spec that an update may change.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub struct StatefulSetStrategy;

impl Strategy for StatefulSetStrategy {
    fn default(&self, object: &mut Object) {
        let spec = object.section_mut("spec");
        fill_text(spec, "podManagementPolicy", "OrderedReady");
        let strategy = part_or_new(spec, "updateStrategy");
        if strategy.str("type").is_empty() {
            strategy.insert("type", "RollingUpdate".into());
            fill(strategy, "rollingUpdate", json!({}));
        }
        if strategy.str("type") == "RollingUpdate"
            && let Some(update) = part(strategy, "rollingUpdate")
        {
            fill(update, "partition", 0);
        }
        let retention = part_or_new(spec, "persistentVolumeClaimRetentionPolicy");
        fill_text(retention, "whenDeleted", "Retain");
        fill_text(retention, "whenScaled", "Retain");
        fill(spec, "replicas", 1);
        fill(spec, "revisionHistoryLimit", 10);
        default_template(part_or_new(spec, "template"));
        for claim in parts(spec, "volumeClaimTemplates") {
            fill_text(claim, "kind", "PersistentVolumeClaim");
            fill_text(claim, "apiVersion", "v1");
            default_claim(claim);
        }
    }

    fn prepare_for_create(&self, _ctx: &Context, object: &mut Object) {
        drop_max_unavailable(object);
    }

    fn prepare_for_update(&self, _ctx: &Context, object: &mut Object, old: &Object) {
        if old
            .at("/spec/updateStrategy/rollingUpdate/maxUnavailable")
            .is_none()
        {
            drop_max_unavailable(object);
        }
    }

    fn validate(&self, ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let options = PodValidationOptions::of_templates(ctx, object.at("/spec/template"), None);
        check_spec(&mut errors, object, &options, true);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        if ctx.subresource == Subresource::Status {
            check_status(&mut errors, object);
            collisions_only_grow(&mut errors, object, old);
            return errors;
        }
        let options = PodValidationOptions::of_templates(
            ctx,
            object.at("/spec/template"),
            old.at("/spec/template"),
        );
        check_spec(&mut errors, object, &options, false);
        if !errors.is_empty() {
            // A template that was already wrong may stay wrong.
            let mut old_errors = ErrorList::new();
            check_spec(&mut old_errors, old, &options, false);
            if !old_errors.is_empty() {
                errors = ErrorList::new();
                check_all_but_template(&mut errors, object, false);
            }
        }
        check_unchanged(&mut errors, object, old);
        errors
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let mut warnings = Vec::new();
        if old.is_none_or(|old| old.generation() != object.generation()) {
            warnings.extend(template_warnings(
                &Path::new("spec").child("template"),
                object.at("/spec/template"),
            ));
        }
        for (index, claim) in object
            .array_at("/spec/volumeClaimTemplates")
            .iter()
            .enumerate()
        {
            let Some(spec) = claim.map("spec") else {
                continue;
            };
            let path = Path::new("spec").child("volumeClaimTemplates").index(index);
            claim_warnings(
                &mut warnings,
                &if old.is_some() {
                    path.child("Spec")
                } else {
                    path
                },
                spec,
            );
        }
        if object
            .i64_at("/spec/revisionHistoryLimit")
            .is_some_and(|limit| limit < 0)
        {
            let text = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";
            warnings.push(text.to_owned());
        }
        warnings
    }
}

/// `maxUnavailable` is behind a gate that is closed.
fn drop_max_unavailable(object: &mut Object) {
    if let Some(Value::Object(update)) = object.at_mut("/spec/updateStrategy/rollingUpdate") {
        update.shift_remove("maxUnavailable");
    }
}

/// `creating` is also to check what no update may change.
fn check_spec(
    errors: &mut ErrorList,
    object: &Object,
    options: &PodValidationOptions,
    creating: bool,
) {
    check_all_but_template(errors, object, creating);
    let spec = object.section("spec");
    let path = Path::new("spec").child("template");
    let selector = spec.map("selector");
    let mut ignored = ErrorList::new();
    if check_selector(&mut ignored, &path, selector, "") {
        let template = template_with_claims(spec);
        if !selector.is_some_and(is_empty_selector) {
            check_labels_match(errors, &path, &template, selector);
        }
        validate_template(errors, &path, &template, options);
        let metadata = template.map("metadata");
        validate_labels(
            errors,
            &path.child("labels"),
            metadata.and_then(|metadata| metadata.map("labels")),
        );
        validate_annotations(
            errors,
            &path.child("annotations"),
            metadata.and_then(|metadata| metadata.map("annotations")),
        );
    } else {
        let shown = selector.cloned().unwrap_or_default();
        errors.invalid(&Path::new("spec").child("selector"), shown, "");
    }
    check_runs_forever(errors, &path, spec.section("template"), "StatefulSet");
}

fn check_all_but_template(errors: &mut ErrorList, object: &Object, creating: bool) {
    let spec = object.section("spec");
    let path = Path::new("spec");
    match spec.str("podManagementPolicy") {
        "" => errors.required(&path.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(
            &path.child("podManagementPolicy"),
            other,
            "must be 'OrderedReady' or 'Parallel'",
        ),
    }
    check_strategy(
        errors,
        &path.child("updateStrategy"),
        spec.section("updateStrategy"),
    );
    if let Some(policy) = spec.map("persistentVolumeClaimRetentionPolicy") {
        for key in ["whenDeleted", "whenScaled"] {
            let when = policy.str(key);
            if !matches!(when, "Retain" | "Delete") {
                let path = path
                    .child("persistentVolumeClaimRetentionPolicy")
                    .child(key);
                errors.not_supported(&path, when, &["Retain", "Delete"]);
            }
        }
    }
    if creating {
        for (index, claim) in spec.list("volumeClaimTemplates").iter().enumerate() {
            let path = path
                .child("volumeClaimTemplates")
                .index(index)
                .child("spec");
            validate_claim_spec(errors, &path, claim.section("spec"));
        }
    }
    not_negative_field(errors, &path, "replicas", spec);
    not_negative_field(errors, &path, "minReadySeconds", spec);
    if let Some(ordinals) = spec.map("ordinals") {
        not_negative(
            errors,
            &path.child("ordinals.start"),
            ordinals.int("start").unwrap_or(0),
        );
    }
    let service = spec.str("serviceName");
    if creating && !service.is_empty() {
        invalid_each(
            errors,
            &path.child("serviceName"),
            service,
            names::dns1123_label(service),
        );
    }
    check_selector(
        errors,
        &path.child("selector"),
        spec.map("selector"),
        "statefulset",
    );
}

/// The template as its pods will be: hostname and subdomain are the controller's, claims become
/// volumes.
fn template_with_claims(spec: &Map) -> Cow<'_, Map> {
    let Some(template) = spec.map("template") else {
        return Cow::Owned(Map::new());
    };
    let claims = spec.list("volumeClaimTemplates");
    let pod = template.map("spec");
    let untouched =
        pod.is_none_or(|pod| pod.str("subdomain").is_empty() && pod.str("hostname").is_empty());
    if untouched && claims.is_empty() {
        return Cow::Borrowed(template);
    }
    let mut template = template.clone();
    let pod = part_or_new(&mut template, "spec");
    pod.shift_remove("subdomain");
    pod.shift_remove("hostname");
    if !claims.is_empty() {
        let names: Vec<&str> = claims
            .iter()
            .map(|claim| {
                claim
                    .map("metadata")
                    .map_or("", |metadata| metadata.str("name"))
            })
            .collect();
        let known: HashSet<&str> = names.iter().copied().collect();
        let mut volumes: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
            .collect();
        volumes.extend(
            pod.list("volumes")
                .iter()
                .filter(|volume| !known.contains(volume.str("name")))
                .cloned(),
        );
        pod.insert("volumes", volumes.into());
    }
    Cow::Owned(template)
}

fn check_strategy(errors: &mut ErrorList, path: &Path, strategy: &Map) {
    let update = strategy.map("rollingUpdate");
    let shown = |update: &Map| json!({"Partition": update.int("partition").unwrap_or(0), "MaxUnavailable": update.field("maxUnavailable")});
    match (strategy.str("type"), update) {
        ("", _) => errors.required(path, ""),
        ("OnDelete", Some(update)) => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.invalid(&path.child("rollingUpdate"), shown(update), detail);
        }
        ("OnDelete", None) | ("RollingUpdate", None) => {}
        ("RollingUpdate", Some(update)) => {
            let path = path.child("rollingUpdate");
            not_negative_field(errors, &path, "partition", update);
            if let Some(unavailable) = update.field("maxUnavailable") {
                let path = path.child("maxUnavailable");
                check_count_or_percent(errors, &path, unavailable);
                if amount(unavailable) == 0 {
                    errors.invalid(&path, unavailable.clone(), "cannot be 0");
                }
                check_at_most_all(errors, &path, unavailable);
            }
        }
        (other, update) => {
            let value = json!({"Type": other, "RollingUpdate": update.map(shown)});
            errors.invalid(path, value, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn check_unchanged(errors: &mut ErrorList, object: &Object, old: &Object) {
    let (new, old) = (object.section("spec"), old.section("spec"));
    let fixed = |key: &str| !MUTABLE.contains(&key);
    let unchanged = new
        .keys()
        .chain(old.keys())
        .filter(|key| fixed(key))
        .all(|key| same(new.get(key), old.get(key)));
    if !unchanged {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
                      'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        errors.forbidden(&Path::new("spec"), detail);
    }
}

fn check_status(errors: &mut ErrorList, object: &Object) {
    let Some(status) = object.map("status") else {
        return;
    };
    let more = "cannot be greater than status.replicas";
    status_counts(
        errors,
        status,
        &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
        &[
            ("readyReplicas", "replicas", more),
            ("currentReplicas", "replicas", more),
            ("updatedReplicas", "replicas", more),
            ("availableReplicas", "replicas", more),
            (
                "availableReplicas",
                "readyReplicas",
                "cannot be greater than status.readyReplicas",
            ),
        ],
    );
}
