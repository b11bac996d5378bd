//! HorizontalPodAutoscaler v1, which is stored as v2: what v1 has no fields for travels in
//! annotations (`pkg/apis/autoscaling/v1/conversion.go`).

use crate::meta::{Gvk, Key, Map, Object, Value, i64_at, json, str_at};
use crate::registry::resource::{Conversion, KindVersions, Version};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
pub const CARRIERS: [&str; 4] = [METRICS, CURRENT_METRICS, BEHAVIOR, CONDITIONS];
/// The CPU utilization that v1 autoscalers without a target aim at, in percent.
const DEFAULT_CPU_UTILIZATION: i64 = 80;

/// The places of one member of a metric in v1 and in v2.
struct Member {
    v1: &'static str,
    v2: &'static str,
    /// v1 shows the quantity `0` where v2 has nothing.
    zero: bool,
}

const fn member(v1: &'static str, v2: &'static str) -> Member {
    Member {
        v1,
        v2,
        zero: false,
    }
}

const fn quantity(v1: &'static str, v2: &'static str) -> Member {
    Member { v1, v2, zero: true }
}

/// The members of a kind of metric, as a target and as a status.
struct Source {
    /// The key in the metric, and its `type`.
    key: &'static str,
    spec: &'static [Member],
    status: &'static [Member],
}

const SOURCES: [Source; 5] = [
    Source {
        key: "object",
        spec: &[
            member("/target", "/describedObject"),
            member("/metricName", "/metric/name"),
            quantity("/targetValue", "/target/value"),
            member("/selector", "/metric/selector"),
            member("/averageValue", "/target/averageValue"),
        ],
        status: &[
            member("/target", "/describedObject"),
            member("/metricName", "/metric/name"),
            quantity("/currentValue", "/current/value"),
            member("/selector", "/metric/selector"),
            member("/averageValue", "/current/averageValue"),
        ],
    },
    Source {
        key: "pods",
        spec: &[
            member("/metricName", "/metric/name"),
            quantity("/targetAverageValue", "/target/averageValue"),
            member("/selector", "/metric/selector"),
        ],
        status: &[
            member("/metricName", "/metric/name"),
            quantity("/currentAverageValue", "/current/averageValue"),
            member("/selector", "/metric/selector"),
        ],
    },
    Source {
        key: "resource",
        spec: &[
            member("/name", "/name"),
            member("/targetAverageUtilization", "/target/averageUtilization"),
            member("/targetAverageValue", "/target/averageValue"),
        ],
        status: &[
            member("/name", "/name"),
            member("/currentAverageUtilization", "/current/averageUtilization"),
            quantity("/currentAverageValue", "/current/averageValue"),
        ],
    },
    Source {
        key: "containerResource",
        spec: &[
            member("/name", "/name"),
            member("/targetAverageUtilization", "/target/averageUtilization"),
            member("/targetAverageValue", "/target/averageValue"),
            member("/container", "/container"),
        ],
        status: &[
            member("/name", "/name"),
            member("/currentAverageUtilization", "/current/averageUtilization"),
            quantity("/currentAverageValue", "/current/averageValue"),
            member("/container", "/container"),
        ],
    },
    Source {
        key: "external",
        spec: &[
            member("/metricName", "/metric/name"),
            member("/metricSelector", "/metric/selector"),
            member("/targetValue", "/target/value"),
            member("/targetAverageValue", "/target/averageValue"),
        ],
        status: &[
            member("/metricName", "/metric/name"),
            member("/metricSelector", "/metric/selector"),
            quantity("/currentValue", "/current/value"),
            member("/currentAverageValue", "/current/averageValue"),
        ],
    },
];

/// Between autoscaling/v2 (stored) and autoscaling/v1 (served).
#[derive(Clone, Copy, Debug)]
pub struct AutoscalerConversion;

impl Conversion for AutoscalerConversion {
    fn to_served(&self, object: &mut Object) {
        let mut carried = Vec::new();
        let metrics = take(object, "spec", "metrics");
        let metrics = metrics
            .as_ref()
            .and_then(Value::as_array)
            .map_or(&[] as &[Value], Vec::as_slice);
        if let Some(percent) = metrics.iter().find_map(cpu_utilization) {
            object
                .section_mut("spec")
                .insert("targetCPUUtilizationPercentage", percent.into());
        }
        let others: Vec<Value> = metrics
            .iter()
            .filter(|one| cpu_utilization(one).is_none())
            .map(|one| metric_to_v1(one, false))
            .collect();
        if !others.is_empty() {
            carried.push((METRICS, Value::Array(others)));
        }
        if let Some(behavior) = take(object, "spec", "behavior") {
            carried.push((BEHAVIOR, behavior_in_go(&behavior)));
        }
        let current = take(object, "status", "currentMetrics");
        if let Some(current) = current
            .as_ref()
            .and_then(Value::as_array)
            .filter(|current| !current.is_empty())
        {
            if let Some(percent) = current.iter().find_map(current_cpu_utilization) {
                object
                    .section_mut("status")
                    .insert("currentCPUUtilizationPercentage", percent.into());
            }
            carried.push((
                CURRENT_METRICS,
                current.iter().map(|one| metric_to_v1(one, true)).collect(),
            ));
        }
        if let Some(conditions) = take(object, "status", "conditions")
            .filter(|all| all.as_array().is_some_and(|all| !all.is_empty()))
        {
            carried.push((CONDITIONS, conditions));
        }
        set_carriers(object, carried);
    }

    fn to_storage(&self, object: &mut Object) {
        let carried = |key: &str| {
            let text = object
                .annotations()
                .and_then(|all| all.get(key))
                .and_then(Value::as_str)?;
            serde_json::from_str::<Value>(text).ok()
        };
        let mut metrics: Vec<Value> = listed(carried(METRICS))
            .iter()
            .map(|one| metric_to_v2(one, false))
            .collect();
        let current: Vec<Value> = listed(carried(CURRENT_METRICS))
            .iter()
            .map(|one| metric_to_v2(one, true))
            .collect();
        let (behavior, conditions) = (
            carried(BEHAVIOR)
                .map(behavior_of_go)
                .map(without_default_policies),
            listed(carried(CONDITIONS)),
        );
        let target = take(object, "spec", "targetCPUUtilizationPercentage");
        take(object, "status", "currentCPUUtilizationPercentage");
        if target.is_some() || metrics.is_empty() {
            metrics.push(cpu_metric(
                target.unwrap_or_else(|| DEFAULT_CPU_UTILIZATION.into()),
            ));
        }
        object
            .section_mut("spec")
            .insert("metrics", Value::Array(metrics));
        if let Some(behavior) =
            behavior.filter(|behavior| behavior.as_object().is_some_and(|all| !all.is_empty()))
        {
            object.section_mut("spec").insert("behavior", behavior);
        }
        if !current.is_empty() {
            object
                .section_mut("status")
                .insert("currentMetrics", Value::Array(current));
        }
        if !conditions.is_empty() {
            object
                .section_mut("status")
                .insert("conditions", Value::Array(conditions));
        }
        set_carriers(object, Vec::new());
    }
}

/// The versions of the kind.
pub fn versions() -> KindVersions {
    let version = |version: &str, conversion| {
        Version::new(
            Gvk::new("autoscaling", version, "HorizontalPodAutoscaler"),
            conversion,
        )
    };
    KindVersions(vec![
        version("v2", None),
        version("v1", Some(&AutoscalerConversion)),
    ])
}

/// The members of a behavior, which travels as Go writes a struct without names of its own for
/// JSON.
const DIRECTIONS: [(&str, &str); 2] = [("scaleUp", "ScaleUp"), ("scaleDown", "ScaleDown")];
const RULES: [(&str, &str); 4] = [
    ("stabilizationWindowSeconds", "StabilizationWindowSeconds"),
    ("selectPolicy", "SelectPolicy"),
    ("policies", "Policies"),
    ("tolerance", "Tolerance"),
];
const POLICY: [(&str, &str); 3] = [
    ("type", "Type"),
    ("value", "Value"),
    ("periodSeconds", "PeriodSeconds"),
];

/// The members of `value` under their Go names, all of them.
fn go_struct(
    value: &Value,
    names: &[(&str, &str)],
    member: impl Fn(&str, &Value) -> Value,
) -> Value {
    if value.is_null() {
        return Value::Null;
    }
    let members = names.iter().map(|(json, go)| {
        (
            (*go).to_owned(),
            value
                .get(json)
                .map_or(Value::Null, |value| member(json, value)),
        )
    });
    Value::Object(members.collect())
}

fn behavior_in_go(behavior: &Value) -> Value {
    let policy = |one: &Value| go_struct(one, &POLICY, |_, value| value.clone());
    let rule = |_: &str, value: &Value| match value {
        Value::Array(policies) => policies.iter().map(policy).collect(),
        other => other.clone(),
    };
    go_struct(behavior, &DIRECTIONS, |_, rules| {
        go_struct(rules, &RULES, rule)
    })
}

/// The way back. Go does not mind the case of names that it reads.
fn behavior_of_go(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let named = members
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(go, value)| {
                    let known = DIRECTIONS
                        .iter()
                        .chain(&RULES)
                        .chain(&POLICY)
                        .find(|(json, _)| json.eq_ignore_ascii_case(&go));
                    (
                        known.map_or(go, |(json, _)| Key::new(json)),
                        behavior_of_go(value),
                    )
                });
            Value::Object(named.collect())
        }
        Value::Array(items) => items.into_iter().map(behavior_of_go).collect(),
        other => other,
    }
}

/// Gives rules without policies an empty list of them. v1 fills nothing in: they are refused.
fn without_default_policies(mut behavior: Value) -> Value {
    for (direction, _) in DIRECTIONS {
        if let Some(Value::Object(rules)) = behavior.get_mut(direction) {
            rules.entry("policies").or_insert_with(|| json!([]));
        }
    }
    behavior
}

fn take(object: &mut Object, section: &str, key: &str) -> Option<Value> {
    object.get_mut(section)?.as_object_mut()?.shift_remove(key)
}

fn listed(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// Replaces the annotations that carry v2's fields.
fn set_carriers(object: &mut Object, carried: Vec<(&str, Value)>) {
    if carried.is_empty() && object.annotations().is_none() {
        return;
    }
    let slot = object
        .metadata_mut()
        .entry("annotations")
        .or_insert_with(|| json!({}));
    let Value::Object(annotations) = slot else {
        return;
    };
    annotations.retain(|key, _| !CARRIERS.contains(&key.as_str()));
    annotations.extend(
        carried
            .into_iter()
            .map(|(key, value)| (key.to_owned(), Value::String(value.to_string()))),
    );
    if annotations.is_empty() {
        object.metadata_mut().shift_remove("annotations");
    }
}

fn cpu_metric(percent: Value) -> Value {
    let target = json!({ "type": "Utilization", "averageUtilization": percent });
    json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } })
}

fn cpu_utilization(metric: &Value) -> Option<i64> {
    let is_cpu = str_at(metric, "/type") == "Resource" && str_at(metric, "/resource/name") == "cpu";
    if is_cpu {
        i64_at(metric, "/resource/target/averageUtilization")
    } else {
        None
    }
}

fn current_cpu_utilization(metric: &Value) -> Option<i64> {
    let is_cpu = str_at(metric, "/type") == "Resource" && str_at(metric, "/resource/name") == "cpu";
    if is_cpu {
        i64_at(metric, "/resource/current/averageUtilization")
    } else {
        None
    }
}

fn metric_to_v1(metric: &Value, status: bool) -> Value {
    convert(metric, status, |source, member, out| {
        if let Some(value) = source.pointer(member.v2) {
            put(out, member.v1, value.clone());
        } else if member.zero {
            put(out, member.v1, "0".into());
        }
    })
}

fn metric_to_v2(metric: &Value, status: bool) -> Value {
    let mut out = convert(metric, status, |source, member, out| {
        if let Some(value) = source.pointer(member.v1) {
            put(out, member.v2, value.clone());
        }
    });
    if !status {
        set_target_types(&mut out);
    }
    out
}

fn convert(metric: &Value, status: bool, copy: impl Fn(&Value, &Member, &mut Map)) -> Value {
    let mut out = Map::new();
    out.insert("type", str_at(metric, "/type").into());
    for source in &SOURCES {
        let Some(value) = metric.get(source.key) else {
            continue;
        };
        let mut converted = Map::new();
        for member in if status { source.status } else { source.spec } {
            copy(value, member, &mut converted);
        }
        out.insert(source.key.to_owned(), Value::Object(converted));
    }
    Value::Object(out)
}

/// Puts a value at a path of one or two keys.
fn put(out: &mut Map, path: &'static str, value: Value) {
    let path = path.trim_start_matches('/');
    match path.split_once('/') {
        None => {
            out.insert(path.to_owned(), value);
        }
        Some((first, second)) => {
            if let Value::Object(inner) = out.entry(first).or_insert_with(|| json!({})) {
                inner.insert(second.to_owned(), value);
            }
        }
    }
}

/// v2 says of each target which of its values counts; v1 leaves it to which are there.
fn set_target_types(metric: &mut Value) {
    for source in &SOURCES {
        let Some(Value::Object(target)) = metric
            .get_mut(source.key)
            .and_then(|value| value.get_mut("target"))
        else {
            continue;
        };
        if source.key == "object"
            && target.contains_key("averageValue")
            && target.get("value").and_then(Value::as_str) == Some("0")
        {
            target.shift_remove("value");
        }
        let kind = match source.key {
            "resource" | "containerResource" if target.contains_key("averageUtilization") => {
                "Utilization"
            }
            "object" if !target.contains_key("averageValue") => "Value",
            "external" if target.contains_key("value") => "Value",
            _ => "AverageValue",
        };
        target.insert("type", kind.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    #[test]
    fn cpu_utilization_is_a_field_of_v1() {
        let mut hpa = object(
            json!({"metadata": {}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}}),
        );
        AutoscalerConversion.to_storage(&mut hpa);
        assert_eq!(
            hpa.i64_at("/spec/metrics/0/resource/target/averageUtilization"),
            Some(50)
        );
        AutoscalerConversion.to_served(&mut hpa);
        assert_eq!(
            Value::from(hpa),
            json!({"metadata": {}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}})
        );
    }

    #[test]
    fn behavior_travels_as_go_writes_it() {
        let behavior = json!({"scaleUp": {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}});
        let mut hpa = object(
            json!({"metadata": {}, "spec": {"maxReplicas": 1, "behavior": behavior, "metrics": [cpu_metric(80.into())]}}),
        );
        let stored = hpa.clone();
        AutoscalerConversion.to_served(&mut hpa);
        let rules = r#""StabilizationWindowSeconds":null,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null"#;
        let want = format!(r#"{{"ScaleUp":{{{rules}}},"ScaleDown":null}}"#);
        assert_eq!(
            hpa.annotations()
                .and_then(|all| all.get(BEHAVIOR))
                .and_then(Value::as_str),
            Some(want.as_str())
        );
        AutoscalerConversion.to_storage(&mut hpa);
        assert_eq!(hpa, stored);
    }

    #[test]
    fn other_metrics_travel_in_an_annotation() {
        let target = json!({"type": "AverageValue", "averageValue": "100"});
        let pods = json!({"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": target}});
        let stored =
            object(json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"metrics": [pods]}}));
        let mut hpa = stored.clone();
        AutoscalerConversion.to_served(&mut hpa);
        let want = r#"[{"type":"Pods","pods":{"metricName":"qps","targetAverageValue":"100"}}]"#;
        assert_eq!(
            hpa.annotations()
                .and_then(|all| all.get(METRICS))
                .and_then(Value::as_str),
            Some(want)
        );
        AutoscalerConversion.to_storage(&mut hpa);
        assert_eq!(hpa, stored);
    }
}
