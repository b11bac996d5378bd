//! The spec of a job, of its own or in a template (`pkg/apis/batch/validation`, validateJobSpec).

use super::policies::{check_failure_policy, check_success_policy, success_policy_shown};
use crate::builtin::pod_spec::template::{template_warnings, validate_template};
use crate::builtin::pod_spec::validation_options::PodValidationOptions;
use crate::meta::{ErrorList, Map, Path};
use crate::registry::validation::{Fields, domain_prefixed_path, not_negative, one_of};

/// An indexed job runs at most so many pods at once, and may fail in so many indexes.
const INDEXED_MAX: i64 = 100_000;
/// Beyond so many completions, parallelism and failed indexes are bound more tightly.
const COMPLETIONS_SOFT_MAX: i64 = 100_000;
const HIGH_COMPLETIONS_MAX: i64 = 10_000;
/// The longest `managedBy`.
const MANAGED_BY_MAX: usize = 63;

pub fn check_job_spec(
    errors: &mut ErrorList,
    path: &Path,
    spec: &Map,
    options: &PodValidationOptions,
) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
    ] {
        not_negative(errors, &path.child(key), spec.int(key).unwrap_or(0));
    }
    if let Some(failed) = spec.int("maxFailedIndexes") {
        not_negative(errors, &path.child("maxFailedIndexes"), failed);
        if spec.field("backoffLimitPerIndex").is_none() {
            errors.required(
                &path.child("backoffLimitPerIndex"),
                "when maxFailedIndexes is specified",
            );
        }
    }
    if let Some(manager) = spec.opt_str("managedBy") {
        domain_prefixed_path(errors, &path.child("managedBy"), manager);
        if manager.len() > MANAGED_BY_MAX {
            errors.too_long(&path.child("managedBy"), MANAGED_BY_MAX);
        }
    }
    let mode = spec.opt_str("completionMode");
    let indexed = mode == Some("Indexed");
    if let Some(mode) = mode {
        one_of(
            errors,
            &path.child("completionMode"),
            mode,
            &["NonIndexed", "Indexed"],
        );
    }
    if indexed {
        check_indexed(errors, path, spec);
    } else if matches!(mode, None | Some("NonIndexed")) {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = spec.int(key) {
                errors.invalid(&path.child(key), value, "requires indexed completion mode");
            }
        }
    }
    check_policies(errors, path, spec, indexed);
    check_template(errors, path, spec, options);
}

fn check_policies(errors: &mut ErrorList, path: &Path, spec: &Map, indexed: bool) {
    if spec.map("podFailurePolicy").is_some() {
        check_failure_policy(errors, &path.child("podFailurePolicy"), spec);
    }
    match spec.field("successPolicy") {
        Some(policy) if !indexed => {
            let shown = success_policy_shown(policy);
            errors.invalid(
                &path.child("successPolicy"),
                shown,
                "requires indexed completion mode",
            );
        }
        Some(policy) => check_success_policy(
            errors,
            &path.child("successPolicy"),
            policy,
            spec.int("completions").unwrap_or(0),
        ),
        None => {}
    }
    if let Some(policy) = spec.opt_str("podReplacementPolicy") {
        let supported: &[&str] = if spec.field("podFailurePolicy").is_some() {
            &["Failed"]
        } else {
            &["Failed", "TerminatingOrFailed"]
        };
        one_of(
            errors,
            &path.child("podReplacementPolicy"),
            policy,
            supported,
        );
    }
}

fn check_indexed(errors: &mut ErrorList, path: &Path, spec: &Map) {
    let (completions, parallelism, failed) = (
        spec.int("completions"),
        spec.int("parallelism"),
        spec.int("maxFailedIndexes"),
    );
    if completions.is_none() {
        errors.required(
            &path.child("completions"),
            "when completion mode is Indexed",
        );
    }
    let mut refuse =
        |key: &str, value: i64, detail: String| errors.invalid(&path.child(key), value, detail);
    if let Some(parallelism) = parallelism.filter(|&count| count > INDEXED_MAX) {
        refuse(
            "parallelism",
            parallelism,
            format!("must be less than or equal to {INDEXED_MAX} when completion mode is Indexed"),
        );
    }
    if let Some(failed) = failed {
        if completions.is_some_and(|completions| failed > completions) {
            refuse(
                "maxFailedIndexes",
                failed,
                "must be less than or equal to completions".to_owned(),
            );
        }
        if failed > INDEXED_MAX {
            refuse(
                "maxFailedIndexes",
                failed,
                format!("must be less than or equal to {INDEXED_MAX}"),
            );
        }
    }
    if completions.is_none_or(|completions| completions <= COMPLETIONS_SOFT_MAX)
        || spec.field("backoffLimitPerIndex").is_none()
    {
        return;
    }
    if failed.is_none() {
        let detail = format!("must be specified when completions is above {COMPLETIONS_SOFT_MAX}");
        errors.required(&path.child("maxFailedIndexes"), detail);
    }
    for (key, value) in [("parallelism", parallelism), ("maxFailedIndexes", failed)] {
        if let Some(value) = value.filter(|value| *value > HIGH_COMPLETIONS_MAX) {
            let detail = format!(
                "must be less than or equal to {HIGH_COMPLETIONS_MAX} when completions are above {COMPLETIONS_SOFT_MAX} and used with \
                 backoff limit per index"
            );
            errors.invalid(&path.child(key), value, detail);
        }
    }
}

fn check_template(errors: &mut ErrorList, path: &Path, spec: &Map, options: &PodValidationOptions) {
    let template = spec.section("template");
    validate_template(errors, &path.child("template"), template, options);
    let restart = template
        .map("spec")
        .map_or("", |pod| pod.str("restartPolicy"));
    let path = path.child("template").child("spec").child("restartPolicy");
    match restart {
        "" | "Always" => errors.required(&path, r#"valid values: "OnFailure", "Never""#),
        "OnFailure" if spec.field("podFailurePolicy").is_some() => {
            let detail = r#"only "Never" is supported when podFailurePolicy is specified"#;
            errors.invalid(&path, restart, detail);
        }
        other => one_of(errors, &path, other, &["OnFailure", "Never"]),
    }
}

/// Returns the warnings about a job's spec that is new or changed.
pub fn spec_warnings(path: &Path, spec: Option<&Map>) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some(spec) = spec else { return warnings };
    let count = |key: &str| spec.int(key).unwrap_or(0);
    let many =
        count("completions") > COMPLETIONS_SOFT_MAX && count("parallelism") > HIGH_COMPLETIONS_MAX;
    if many && spec.str("completionMode") == "Indexed" {
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might \
             not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    warnings.extend(template_warnings(
        &path.child("template"),
        spec.field("template"),
    ));
    warnings
}
