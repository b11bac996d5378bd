//! The spec of a claim as upstream's own types print it.

use crate::meta::{Value, json};
use crate::registry::validation::Fields;

fn list(value: &Value, key: &str, each: fn(&Value) -> Value) -> Value {
    if value.field(key).is_none() {
        Value::Null
    } else {
        value.list(key).iter().map(each).collect()
    }
}

pub fn claim(spec: &Value) -> Value {
    let devices = spec.field("devices").cloned().unwrap_or_default();
    json!({"Devices": {
        "Requests": list(&devices, "requests", request),
        "Constraints": list(&devices, "constraints", constraint),
        "Config": list(&devices, "config", config),
    }})
}

fn request(value: &Value) -> Value {
    json!({
        "Name": value.str("name"),
        "Exactly": value.field("exactly").map(exactly),
        "FirstAvailable": list(value, "firstAvailable", alternative),
    })
}

fn exactly(value: &Value) -> Value {
    json!({
        "DeviceClassName": value.str("deviceClassName"),
        "Selectors": list(value, "selectors", selector),
        "AllocationMode": value.str("allocationMode"),
        "Count": value.int("count").unwrap_or(0),
        "AdminAccess": value.field("adminAccess"),
        "Tolerations": list(value, "tolerations", toleration),
        "Capacity": value.field("capacity").map(capacity),
    })
}

fn alternative(value: &Value) -> Value {
    json!({
        "Name": value.str("name"),
        "DeviceClassName": value.str("deviceClassName"),
        "Selectors": list(value, "selectors", selector),
        "AllocationMode": value.str("allocationMode"),
        "Count": value.int("count").unwrap_or(0),
        "Tolerations": list(value, "tolerations", toleration),
        "Capacity": value.field("capacity").map(capacity),
    })
}

fn capacity(value: &Value) -> Value {
    json!({"Requests": value.field("requests")})
}

fn selector(value: &Value) -> Value {
    json!({"CEL": value.field("cel").map(|cel| json!({"Expression": cel.str("expression")}))})
}

fn toleration(value: &Value) -> Value {
    json!({
        "Key": value.str("key"),
        "Operator": value.str("operator"),
        "Value": value.str("value"),
        "Effect": value.str("effect"),
        "TolerationSeconds": value.field("tolerationSeconds"),
    })
}

fn constraint(value: &Value) -> Value {
    json!({
        "Requests": value.field("requests"),
        "MatchAttribute": value.field("matchAttribute"),
        "DistinctAttribute": value.field("distinctAttribute"),
    })
}

fn config(value: &Value) -> Value {
    let opaque = value.field("opaque").map(
        |opaque| json!({"Driver": opaque.str("driver"), "Parameters": opaque.field("parameters")}),
    );
    json!({"Requests": value.field("requests"), "Opaque": opaque})
}
