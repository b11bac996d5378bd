//! Columns of the Table.

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, NONE, UNSET, text};
use crate::meta::{Object, Value, str_at};

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Reference", "What is scaled"),
        text("Targets", "The metrics, as they are and as they should be"),
        text("MinPods", "The least number of pods"),
        text("MaxPods", "The greatest number of pods"),
        text("Replicas", "The number of pods now"),
        AGE,
    ],
    paths: "spec status",
    fill: |row| {
        let object = row.object;
        let reference = format!(
            "{}/{}",
            object.str_at("/spec/scaleTargetRef/kind"),
            object.str_at("/spec/scaleTargetRef/name")
        );
        let min = object
            .i64_at("/spec/minReplicas")
            .map_or(UNSET.to_owned(), |min| min.to_string());
        row.name()
            .cell(reference)
            .cell(metrics(object))
            .cell(min)
            .int("/spec/maxReplicas")
            .int("/status/currentReplicas")
            .age();
    },
};

fn metrics(object: &Object) -> String {
    const MAX_SHOWN: usize = 2;
    let specs = object.array_at("/spec/metrics");
    if specs.is_empty() {
        return NONE.to_owned();
    }
    let statuses = object.array_at("/status/currentMetrics");
    let shown: Vec<String> = specs
        .iter()
        .enumerate()
        .take(MAX_SHOWN)
        .map(|(index, spec)| metric(spec, statuses.get(index)))
        .collect();
    let text = shown.join(", ");
    if specs.len() > MAX_SHOWN {
        format!("{text} + {} more...", specs.len() - MAX_SHOWN)
    } else {
        text
    }
}

/// One metric as `current/target`, the resource's name in front where there is one.
fn metric(spec: &Value, status: Option<&Value>) -> String {
    const UNKNOWN: &str = "<unknown>";
    let (source, named) = match str_at(spec, "/type") {
        "External" => ("external", false),
        "Object" => ("object", false),
        "Pods" => ("pods", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let target = |field: &str| spec.pointer(&format!("/{source}/target/{field}"));
    let status = status
        .and_then(|status| status.get(source))
        .filter(|status| status.is_object());
    let current =
        |field: &str| status.and_then(|status| status.pointer(&format!("/current/{field}")));
    let quantity = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("0").to_owned();
    let percent = |value: Option<&Value>| {
        value
            .and_then(Value::as_i64)
            .map(|share| format!("{share}%"))
    };
    let name = if named {
        format!("{}: ", str_at(spec, &format!("/{source}/name")))
    } else {
        String::new()
    };
    if source == "pods" {
        let now = status.map_or(UNKNOWN.to_owned(), |_| quantity(current("averageValue")));
        return format!("{now}/{}", quantity(target("averageValue")));
    }
    if target("averageValue").is_some() {
        let known = if named {
            status.is_some()
        } else {
            current("averageValue").is_some()
        };
        let now = if known {
            quantity(current("averageValue"))
        } else {
            UNKNOWN.to_owned()
        };
        let average = if named { "" } else { " (avg)" };
        return format!("{name}{now}/{}{average}", quantity(target("averageValue")));
    }
    if named {
        let now = percent(current("averageUtilization")).unwrap_or_else(|| UNKNOWN.to_owned());
        return format!(
            "{name}{now}/{}",
            percent(target("averageUtilization")).unwrap_or_else(|| "<auto>".to_owned())
        );
    }
    let now = status.map_or(UNKNOWN.to_owned(), |_| quantity(current("value")));
    format!("{now}/{}", quantity(target("value")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn metrics_show_what_is_and_what_should_be() {
        let resource = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}});
        let pods = json!({"type": "Pods", "pods": {"target": {"averageValue": "100m"}}});
        let external = json!({"type": "External", "external": {"target": {"averageValue": "5"}}});
        for (spec, status, want) in [
            (&resource, None, "cpu: <unknown>/60%"),
            (
                &resource,
                Some(json!({"resource": {"current": {"averageUtilization": 45}}})),
                "cpu: 45%/60%",
            ),
            (&pods, Some(json!({"pods": {"current": {}}})), "0/100m"),
            (
                &external,
                Some(json!({"external": {"current": {"averageValue": "3"}}})),
                "3/5 (avg)",
            ),
            (
                &external,
                Some(json!({"external": {"current": {"value": "3"}}})),
                "<unknown>/5 (avg)",
            ),
        ] {
            assert_eq!(metric(spec, status.as_ref()), want);
        }
    }
}
