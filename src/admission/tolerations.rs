//! Sets of tolerations (`pkg/util/tolerations`).

use crate::meta::{Value, str_at};

/// Reports whether `one` tolerates everything that `other` tolerates (`pkg/util/tolerations`).
pub fn tolerates_all(one: &Value, other: &Value) -> bool {
    if one == other {
        return true;
    }
    let (key, operator, effect) = (
        str_at(one, "/key"),
        str_at(one, "/operator"),
        str_at(one, "/effect"),
    );
    if key != str_at(other, "/key") && !(key.is_empty() && operator == "Exists") {
        return false;
    }
    if effect != str_at(other, "/effect") && !effect.is_empty() {
        return false;
    }
    let seconds = |toleration: &Value| toleration.get("tolerationSeconds").and_then(Value::as_i64);
    if effect == "NoExecute"
        && let Some(limit) = seconds(one)
        && seconds(other).is_none_or(|other| other > limit)
    {
        return false;
    }
    match operator {
        "" | "Equal" => {
            str_at(other, "/operator") == "Equal"
                && str_at(one, "/value") == str_at(other, "/value")
        }
        "Exists" => true,
        _ => false,
    }
}

/// The maximum number of tolerations that are compared with each other.
pub const MAX_COMPARED: usize = 2_000;

/// All tolerations of both lists but those that another one of them makes redundant.
pub fn merge_tolerations(mut all: Vec<Value>, more: &[Value]) -> Vec<Value> {
    all.extend_from_slice(more);
    if all.len() > MAX_COMPARED {
        // What is redundant does no harm, and nobody has so many.
        return all;
    }
    let mut merged: Vec<Value> = Vec::with_capacity(all.len());
    for (index, toleration) in all.iter().enumerate() {
        let before = merged.iter().any(|kept| tolerates_all(kept, toleration));
        let after = all[index + 1..]
            .iter()
            .any(|later| later != toleration && tolerates_all(later, toleration));
        if !before && !after {
            merged.push(toleration.clone());
        }
    }
    merged
}
