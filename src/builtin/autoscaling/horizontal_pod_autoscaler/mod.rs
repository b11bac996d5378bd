//! HorizontalPodAutoscalers as v2 has them: defaults and checks
//! (`pkg/apis/autoscaling/{v2,validation}`).

pub mod columns;
pub mod conversion;

use crate::builtin::compute_resources::check_container_name;
use crate::builtin::defaulting::{fill, part, part_or_new};
use crate::builtin::quantities::quantity;
use crate::builtin::resource_traits::{ResourceEntry, WITH_STATUS};
use crate::meta::{ErrorList, Map, Object, Path, Value, json, names};
use crate::registry::validation::{Fields, NOT_NEGATIVE, invalid_each, not_negative, one_of};
use crate::registry::{Context, Strategy, Subresource};

/// The entry of `horizontalpodautoscalers`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "horizontalpodautoscalers",
    traits: WITH_STATUS,
    strategy: &HorizontalPodAutoscalerStrategy,
    printer: &columns::PRINTER,
};

/// The CPU utilization to aim at where no metric is named, in percent.
const CPU_UTILIZATION: i64 = 80;
/// Bounds of scaling rules, in seconds.
const PERIOD_MAX: i64 = 1800;
const WINDOW_MAX: i64 = 3600;

const METRIC_TYPES: &[&str] = &[
    "ContainerResource",
    "External",
    "Object",
    "Pods",
    "Resource",
];
/// The members of a metric in the order of the checks, with the type that each belongs to.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];

/// The strictness with which the version of a reference is checked.
#[derive(Clone, Copy)]
enum Version {
    Any,
    Core,
    Grouped,
}

pub struct HorizontalPodAutoscalerStrategy;

impl Strategy for HorizontalPodAutoscalerStrategy {
    fn default(&self, object: &mut Object) {
        drop_carriers(object);
        let spec = object.section_mut("spec");
        fill(spec, "minReplicas", 1);
        if spec.list("metrics").is_empty() {
            let target = json!({"type": "Utilization", "averageUtilization": CPU_UTILIZATION});
            spec.insert(
                "metrics",
                json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]),
            );
        }
        let Some(behavior) = part(spec, "behavior") else {
            return;
        };
        let up = part_or_new(behavior, "scaleUp");
        fill(up, "stabilizationWindowSeconds", 0);
        fill(up, "selectPolicy", "Max");
        let policy =
            |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
        fill(
            up,
            "policies",
            json!([policy("Pods", 4), policy("Percent", 100)]),
        );
        let down = part_or_new(behavior, "scaleDown");
        fill(down, "selectPolicy", "Max");
        fill(down, "policies", json!([policy("Percent", 100)]));
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        check_spec(object, None)
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        if ctx.subresource != Subresource::Status {
            return check_spec(object, Some(old));
        }
        let mut errors = ErrorList::new();
        for key in ["currentReplicas", "desiredReplicas"] {
            let count = object
                .map("status")
                .and_then(|status| status.int(key))
                .unwrap_or(0);
            not_negative(&mut errors, &Path::new("status").child(key), count);
        }
        errors
    }
}

/// Annotations that carry fields of v2 through v1 mean nothing here.
fn drop_carriers(object: &mut Object) {
    let Some(annotations) = object.annotations() else {
        return;
    };
    if !crate::builtin::autoscaling::horizontal_pod_autoscaler::conversion::CARRIERS
        .iter()
        .any(|key| annotations.contains_key(key))
    {
        return;
    }
    let metadata = object.metadata_mut();
    if let Some(annotations) = part(metadata, "annotations") {
        annotations.retain(|key, _| {
            !crate::builtin::autoscaling::horizontal_pod_autoscaler::conversion::CARRIERS
                .contains(&key.as_str())
        });
        if annotations.is_empty() {
            metadata.shift_remove("annotations");
        }
    }
}

fn check_spec(object: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.section("spec");
    let before = old.and_then(|old| old.map("spec"));
    let path = Path::new("spec");
    let lowest = if before.is_some_and(|before| before.int("minReplicas") == Some(0)) {
        0
    } else {
        1
    };
    let (min, max) = (
        spec.int("minReplicas"),
        spec.int("maxReplicas").unwrap_or(0),
    );
    if let Some(min) = min.filter(|min| *min < lowest) {
        errors.invalid(
            &path.child("minReplicas"),
            min,
            format!("must be greater than or equal to {lowest}"),
        );
    }
    let max_path = path.child("maxReplicas");
    if max == 0 {
        errors.required(&max_path, "must be set and greater than 0");
    } else if max < 0 {
        errors.invalid(&max_path, max, "must be greater than or equal to 1");
    }
    if min.is_some_and(|min| max < min) {
        errors.invalid(
            &max_path,
            max,
            "must be greater than or equal to `minReplicas`",
        );
    }
    let target = spec.section("scaleTargetRef");
    let unchanged = before
        .and_then(|before| before.map("scaleTargetRef"))
        .is_some_and(|before| {
            before.str("apiVersion") == target.str("apiVersion")
                && before.str("kind") == target.str("kind")
        });
    let version = match target.str("kind") {
        _ if unchanged => Version::Any,
        "ReplicationController" => Version::Core,
        _ => Version::Grouped,
    };
    check_reference(&mut errors, &path.child("scaleTargetRef"), target, version);
    check_metrics(&mut errors, &path.child("metrics"), spec, before);
    if let Some(behavior) = spec.map("behavior") {
        for key in ["scaleUp", "scaleDown"] {
            if let Some(rules) = behavior.map(key) {
                check_rules(&mut errors, &path.child("behavior").child(key), rules);
            }
        }
    }
    errors
}

fn check_reference(errors: &mut ErrorList, path: &Path, reference: &Map, version: Version) {
    for key in ["kind", "name"] {
        let value = reference.str(key);
        if value.is_empty() {
            errors.required(&path.child(key), "");
        } else {
            invalid_each(
                errors,
                &path.child(key),
                value,
                names::path_segment_name(value),
            );
        }
    }
    let text = reference.str("apiVersion");
    if let Some(problem) = version_problem(text, version) {
        errors.invalid(&path.child("apiVersion"), text, problem);
    }
}

fn version_problem(text: &str, version: Version) -> Option<String> {
    let slashes = text.matches('/').count();
    match version {
        Version::Any => None,
        _ if slashes > 1 => Some(format!("unexpected GroupVersion string: {text}")),
        Version::Grouped if slashes == 0 || text.starts_with('/') => {
            Some("apiVersion must specify API group".to_owned())
        }
        _ => None,
    }
}

fn check_metrics(errors: &mut ErrorList, path: &Path, spec: &Map, before: Option<&Map>) {
    let metrics = spec.list("metrics");
    let was_broken = before
        .into_iter()
        .flat_map(|before| before.list("metrics"))
        .any(|metric| {
            let described = metric
                .map("object")
                .and_then(|object| object.map("describedObject"));
            metric.str("type") == "Object"
                && described.is_some_and(|one| {
                    version_problem(one.str("apiVersion"), Version::Core).is_some()
                })
        });
    let version = if was_broken {
        Version::Any
    } else {
        Version::Core
    };
    for (index, metric) in metrics.iter().enumerate() {
        check_metric(errors, &path.index(index), metric, version);
    }
    let from_zero = metrics
        .iter()
        .any(|metric| matches!(metric.str("type"), "Object" | "External"));
    if spec.int("minReplicas") == Some(0) && !from_zero {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(path, detail);
    }
}

fn check_metric(errors: &mut ErrorList, path: &Path, metric: &Value, version: Version) {
    let kind = metric.str("type");
    let type_path = path.child("type");
    if kind.is_empty() {
        errors.required(&type_path, "must specify a metric source type");
    }
    one_of(errors, &type_path, kind, METRIC_TYPES);
    let present: Vec<(&str, &Map)> = SOURCES
        .iter()
        .filter_map(|(key, _)| metric.map(key).map(|source| (*key, source)))
        .collect();
    if let Some((key, source)) = present.first() {
        check_source(errors, &path.child(key), key, source, version);
    }
    let expected = SOURCES
        .iter()
        .find(|(_, one)| *one == kind)
        .map(|(key, _)| *key);
    match expected {
        Some(key) if metric.map(key).is_none() => {
            errors.required(
                &path.child(key),
                "must populate information for the given metric source",
            );
        }
        Some(_) => {}
        None => one_of(errors, &type_path, kind, METRIC_TYPES),
    }
    if present.len() != 1 {
        for (key, _) in present.iter().filter(|(key, _)| Some(*key) != expected) {
            errors.forbidden(
                &path.child(key),
                "must populate the given metric source only",
            );
        }
    }
}

fn check_source(errors: &mut ErrorList, path: &Path, kind: &str, source: &Map, version: Version) {
    let target = source.section("target");
    let has = |key: &str| target.field(key).is_some();
    let target_path = path.child("target");
    match kind {
        "object" => {
            let described = source.section("describedObject");
            check_reference(errors, &path.child("describedObject"), described, version);
            check_identifier(errors, path, source);
        }
        "external" | "pods" => check_identifier(errors, path, source),
        _ => check_resource(errors, path, kind, source),
    }
    check_target(errors, &target_path, target);
    let neither = !has("value") && !has("averageValue");
    let average = target_path.child("averageValue");
    match kind {
        "object" if neither => {
            errors.required(&average, "must set either a target value or averageValue")
        }
        "external" if neither => {
            errors.required(
                &average,
                "must set either a target value for metric or a per-pod target",
            );
        }
        "external" if has("value") && has("averageValue") => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&target_path.child("value"), detail);
        }
        "pods" if !has("averageValue") => {
            errors.required(&average, "must specify a positive target averageValue")
        }
        "resource" | "containerResource" => {
            match (has("averageUtilization"), has("averageValue")) {
                (false, false) => {
                    let detail = "must set either a target raw value or a target utilization";
                    errors.required(&target_path.child("averageUtilization"), detail);
                }
                (true, true) => {
                    errors.forbidden(
                        &average,
                        "may not set both a target raw value and a target utilization",
                    );
                }
                _ => {}
            }
        }
        _ => {}
    }
}

fn check_resource(errors: &mut ErrorList, path: &Path, kind: &str, source: &Map) {
    let (name, container) = (source.str("name"), source.str("container"));
    if name.is_empty() {
        errors.required(&path.child("name"), "must specify a resource name");
    } else if kind == "containerResource" {
        check_container_name(errors, &path.child("name"), name);
    }
    if kind == "containerResource" {
        if container.is_empty() {
            errors.required(&path.child("container"), "must specify a container");
        } else {
            invalid_each(
                errors,
                &path.child("container"),
                container,
                names::dns1123_label(container),
            );
        }
    }
}

fn check_identifier(errors: &mut ErrorList, path: &Path, source: &Map) {
    let path = path.child("metric").child("name");
    let name = source.map("metric").map_or("", |metric| metric.str("name"));
    if name.is_empty() {
        errors.required(&path, "must specify a metric name");
    } else {
        invalid_each(errors, &path, name, names::path_segment_name(name));
    }
}

fn check_target(errors: &mut ErrorList, path: &Path, target: &Map) {
    let kind = target.str("type");
    if kind.is_empty() {
        errors.required(&path.child("type"), "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(
            &path.child("type"),
            kind,
            "must be either Utilization, Value, or AverageValue",
        );
    }
    for key in ["value", "averageValue"] {
        if let Some(value) = target
            .field(key)
            .filter(|value| quantity(value).sign() <= 0)
        {
            errors.invalid(&path.child(key), value.clone(), "must be positive");
        }
    }
    if let Some(percent) = target
        .int("averageUtilization")
        .filter(|percent| *percent < 1)
    {
        errors.invalid(
            &path.child("averageUtilization"),
            percent,
            "must be greater than 0",
        );
    }
}

fn check_rules(errors: &mut ErrorList, path: &Path, rules: &Map) {
    if let Some(window) = rules.int("stabilizationWindowSeconds") {
        let path = path.child("stabilizationWindowSeconds");
        if window < 0 {
            errors.invalid(&path, window, "must be greater than or equal to zero");
        }
        if window > WINDOW_MAX {
            errors.invalid(
                &path,
                window,
                format!("must be less than or equal to {WINDOW_MAX}"),
            );
        }
    }
    if let Some(policy) = rules.opt_str("selectPolicy") {
        one_of(
            errors,
            &path.child("selectPolicy"),
            policy,
            &["Disabled", "Max", "Min"],
        );
    }
    let policies = rules.list("policies");
    if policies.is_empty() {
        errors.required(&path.child("policies"), "must specify at least one Policy");
    }
    for (index, policy) in policies.iter().enumerate() {
        let path = path.child("policies").index(index);
        one_of(
            errors,
            &path.child("type"),
            policy.str("type"),
            &["Percent", "Pods"],
        );
        for key in ["value", "periodSeconds"] {
            let number = policy.int(key).unwrap_or(0);
            if number <= 0 {
                errors.invalid(&path.child(key), number, "must be greater than zero");
            }
        }
        let period = policy.int("periodSeconds").unwrap_or(0);
        if period > PERIOD_MAX {
            let detail = format!("must be less than or equal to {PERIOD_MAX}");
            errors.invalid(&path.child("periodSeconds"), period, detail);
        }
    }
    if let Some(tolerance) = rules
        .field("tolerance")
        .filter(|tolerance| quantity(tolerance).sign() < 0)
    {
        errors.invalid(&path.child("tolerance"), tolerance.clone(), NOT_NEGATIVE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::User;
    use crate::codec::json;
    use crate::meta::Gvk;
    use crate::registry::resource::Conversion;

    fn read(version: &str, text: &str) -> Object {
        let gvk = Gvk::new("autoscaling", version, "HorizontalPodAutoscaler");
        let ty = crate::schema::builtin().get(&gvk).expect("a kind");
        json::decode(text.as_bytes(), ty).expect("readable").object
    }

    fn problems(mut object: Object) -> Vec<String> {
        let strategy = HorizontalPodAutoscalerStrategy;
        strategy.default(&mut object);
        let user = User::default();
        let ctx = Context {
            now: jiff::Timestamp::UNIX_EPOCH,
            user: &user,
            allow_privileged: false,
            subresource: Subresource::Main,
            warnings: &crate::registry::store::Warnings::default(),
        };
        let errors = strategy.validate(&ctx, &object);
        errors.iter().map(ToString::to_string).collect()
    }

    /// Rules get default policies where they have none, not where they have an empty list; those of
    /// v1, in an annotation, get none.
    #[test]
    fn rules_without_policies_are_refused() {
        const TARGET: &str = r#""maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}"#;
        let wanted = |direction: &str| {
            format!(
                "spec.behavior.{direction}.policies: Required value: must specify at least one Policy"
            )
        };
        for (behavior, v2, v1) in [
            ("{}", None, None),
            (r#"{"scaleUp": null}"#, None, None),
            (r#"{"scaleUp": {}}"#, None, Some("scaleUp")),
            (r#"{"scaleUp": {"policies": null}}"#, None, Some("scaleUp")),
            (
                r#"{"scaleUp": {"policies": []}}"#,
                Some("scaleUp"),
                Some("scaleUp"),
            ),
            (
                r#"{"scaleDown": {"policies": []}}"#,
                Some("scaleDown"),
                Some("scaleDown"),
            ),
        ] {
            let text = format!(r#"{{"spec": {{{TARGET}, "behavior": {behavior}}}}}"#);
            let found = problems(read("v2", &text));
            assert_eq!(found, Vec::from_iter(v2.map(wanted)), "v2 {behavior}");

            let annotation = serde_json::Value::from(behavior);
            let text = format!(
                r#"{{"metadata": {{"annotations": {{"autoscaling.alpha.kubernetes.io/behavior": {annotation}}}}}, "spec": {{{TARGET}}}}}"#
            );
            let mut object = read("v1", &text);
            conversion::AutoscalerConversion.to_storage(&mut object);
            assert_eq!(
                problems(object),
                Vec::from_iter(v1.map(wanted)),
                "v1 {behavior}"
            );
        }
    }
}
