//! Normalisation of trees that patches and applies have changed: brings them into the form of their
//! type in place, without a copy.

use super::{MAX_TREE_DEPTH, json, omit_empty};
use crate::meta::go::base64;
use crate::meta::go::quantity::Quantity;
use crate::meta::{Map, Value, time};
use crate::schema::{Field, Kind, Presence, Schema, SchemaAlternative, TypeId, TypeRef};

/// The protocol whose rules say which numbers fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// `encoding/json`: an integer is written as one and fits its type.
    Json,
    /// apimachinery's converter from unstructured objects: whole floats are integers, and an int32
    /// keeps the lower half of what is too large for it.
    Unstructured,
}

/// Brings an object into the form of its type, as a round trip through the Go type would: nulls and
/// what JSON does not show go, values are normalised, fields put in order.
///
/// Returns false where a value does not fit its type or a field is unknown: the object is then
/// partly normalized, and [`super::from_value`] or [`super::unstructured::conversion_error`] says
/// what is wrong with the original.
pub fn normalize(object: &mut Map, ty: TypeRef<'_>, rules: Rules) -> bool {
    Walker {
        schema: ty.schema,
        rules,
    }
    .message(object, ty.id, 0)
}

#[derive(Clone, Copy)]
struct Walker<'s> {
    schema: &'s Schema,
    rules: Rules,
}

impl Walker<'_> {
    fn message(self, map: &mut Map, id: TypeId, depth: usize) -> bool {
        if depth > MAX_TREE_DEPTH {
            return false;
        }
        let ty = TypeRef {
            schema: self.schema,
            id,
        }
        .get();
        let (mut next, mut in_place) = (0, true);
        for (key, value) in map.iter_mut() {
            let Some(index) = ty.index_from(next, key) else {
                if !ty.preserve_unknown {
                    return false;
                }
                // Those come last.
                in_place &= next == ty.fields.len() || !ty.fields[next..].iter().any(shows_absence);
                next = ty.fields.len();
                continue;
            };
            let field = &ty.fields[index];
            if !self.value(&field.kind, value, depth) {
                return false;
            }
            in_place &= index >= next
                && !field.embedded
                && is_normal(field, value)
                && !ty.fields[next..index].iter().any(shows_absence);
            next = index + 1;
        }
        if !in_place || ty.fields.iter().skip(next).any(shows_absence) {
            self.rebuild(map, id);
        }
        true
    }

    /// Puts a map whose values are in form into the order of its type, with what JSON shows of
    /// absent fields.
    fn rebuild(self, map: &mut Map, id: TypeId) {
        let ty = TypeRef {
            schema: self.schema,
            id,
        }
        .get();
        let mut slots: Vec<Option<Value>> = vec![None; ty.fields.len()];
        let mut unknown = Vec::new();
        let mut next = 0;
        let mut out = Map::with_capacity(map.len() + 2);
        for (key, value) in std::mem::take(map) {
            match ty.index_from(next, &key) {
                Some(index) => {
                    slots[index] = Some(value);
                    next = index + 1;
                }
                None => unknown.push((key, value)),
            }
        }
        for (field, slot) in ty.fields.iter().zip(slots) {
            let value = match slot {
                Some(value) => omit_empty::shown(field, value, self.schema),
                None if matches!(field.kind, Kind::Inline(_)) => None,
                None => omit_empty::missing(field, self.schema),
            };
            if let Some(value) = value {
                out.append(field.json.clone(), value);
            }
        }
        out.extend(unknown);
        *map = out;
    }

    fn value(self, kind: &Kind, value: &mut Value, depth: usize) -> bool {
        match (kind, &mut *value) {
            (_, Value::Null)
            | (Kind::String | Kind::IntOrString, Value::String(_))
            | (Kind::Bool, Value::Bool(_)) => true,
            (Kind::Raw | Kind::FieldsV1 | Kind::Any, _) => true,
            (Kind::Message(id), Value::Object(map)) => self.message(map, *id, depth + 1),
            (Kind::List(item, _), Value::Array(items)) => items
                .iter_mut()
                .all(|value| self.element(item, value, depth + 1)),
            (Kind::Map(item, _), Value::Object(map)) => {
                if !map.keys().is_sorted() {
                    map.sort_keys();
                }
                map.values_mut()
                    .all(|value| self.element(item, value, depth + 1))
            }
            (Kind::SchemaOr(alternative, id), _) => self.schema_or(*alternative, *id, value, depth),
            _ => self.scalar(kind, value),
        }
    }

    /// An item of a list or map, where null stands for the zero value.
    fn element(self, kind: &Kind, value: &mut Value, depth: usize) -> bool {
        match (&*value, kind) {
            (Value::Null, Kind::Bytes) => *value = Value::String(String::new()),
            (Value::Null, kind) => *value = omit_empty::zero(kind, self.schema),
            _ => return self.value(kind, value, depth),
        }
        true
    }

    fn schema_or(
        self,
        alternative: SchemaAlternative,
        id: TypeId,
        value: &mut Value,
        depth: usize,
    ) -> bool {
        match (alternative, value) {
            (_, Value::Object(map)) => self.message(map, id, depth + 1),
            (SchemaAlternative::Array, Value::Array(items)) => items
                .iter_mut()
                .all(|value| self.element(&Kind::Message(id), value, depth + 1)),
            (SchemaAlternative::StringArray, Value::Array(items)) => items
                .iter_mut()
                .all(|value| self.element(&Kind::String, value, depth)),
            (SchemaAlternative::Bool, Value::Bool(_)) => true,
            _ => false,
        }
    }

    fn scalar(self, kind: &Kind, value: &mut Value) -> bool {
        let normal = match (kind, &*value) {
            (Kind::Int32 | Kind::Int64 | Kind::IntOrString, Value::Number(number)) => {
                match self.integer(kind, number) {
                    Some(integer) => Value::from(integer),
                    None => return false,
                }
            }
            (Kind::Double, Value::Number(number)) => match number.as_f64() {
                Some(float) => Value::from(float),
                None => return false,
            },
            (Kind::Bytes, Value::String(text)) => match base64::normalise(text) {
                Ok(normal) if normal == *text => return true,
                Ok(normal) => Value::String(normal.into_owned()),
                Err(_) => return false,
            },
            (Kind::Quantity, Value::String(text)) => match Quantity::normalise(text) {
                Ok(normal) if normal == *text => return true,
                Ok(normal) => Value::String(normal.into_owned()),
                Err(_) => return false,
            },
            (Kind::Quantity, Value::Number(_)) => {
                match Quantity::normalise(&json::text_of(value)) {
                    Ok(normal) => Value::String(normal.into_owned()),
                    Err(_) => return false,
                }
            }
            (Kind::Time | Kind::MicroTime, Value::String(text)) => {
                match time_text(text, *kind == Kind::MicroTime) {
                    Some(normal) => normal,
                    None => return false,
                }
            }
            _ => return false,
        };
        *value = normal;
        true
    }

    fn integer(self, kind: &Kind, number: &serde_json::Number) -> Option<i64> {
        let whole = |float: &f64| float.trunc() == *float;
        let lenient = self.rules == Rules::Unstructured;
        let integer = number.as_i64().or_else(|| {
            number
                .as_f64()
                .filter(|float| lenient && whole(float))
                .map(|float| float as i64)
        })?;
        match kind {
            Kind::Int32 if lenient => Some(i64::from(integer as i32)),
            Kind::Int64 => Some(integer),
            _ => i32::try_from(integer).ok().map(i64::from),
        }
    }
}

fn time_text(text: &str, micro: bool) -> Option<Value> {
    let time = if micro {
        time::parse_micro(text)
    } else {
        time::parse(text)
    }
    .ok()?;
    if time == time::ZERO {
        return Some(Value::Null);
    }
    Some(Value::String(if micro {
        time::format_micro(time)
    } else {
        time::format(time.seconds)
    }))
}

/// Reports whether JSON shows something of the field where it is absent.
fn shows_absence(field: &Field) -> bool {
    !matches!(field.kind, Kind::Inline(_))
        && match field.presence {
            Presence::Always | Presence::Nullable => true,
            Presence::OmitEmpty => !field.filled.is_empty(),
            Presence::Pointer => false,
        }
}

/// Reports whether JSON shows the value as it is.
fn is_normal(field: &Field, value: &Value) -> bool {
    match (field.presence, value) {
        (Presence::Nullable, Value::Null) => true,
        (_, Value::Null) => false,
        (Presence::OmitEmpty, value) => !omit_empty::is_zero(value) || field.keeps_empty,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{from_value, unstructured};
    use crate::meta::{Gvk, json};

    fn ty(api_version: &str, kind: &str) -> TypeRef<'static> {
        crate::schema::builtin()
            .get(&Gvk::from_api_version(api_version, kind))
            .expect("a built-in kind")
    }

    fn deployments() -> Vec<Value> {
        let container = json!({"image": "i", "name": "c", "resources": {"limits": {"memory": "1.0Gi", "cpu": 2}}, "ports": [{"containerPort": 80}]});
        let strategy =
            json!({"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}, "type": null});
        vec![
            json!({}),
            json!({"metadata": {"labels": {"b": "1", "a": null}, "creationTimestamp": "2020-01-01T01:00:00+01:00"}}),
            json!({"spec": {"template": {"spec": {"containers": [container, null]}}, "strategy": strategy, "replicas": 0, "paused": false}}),
            json!({"status": {"conditions": []}, "metadata": {"finalizers": [], "managedFields": []}, "spec": {"selector": {"matchLabels": {}}}}),
        ]
    }

    #[test]
    fn normalize_equals_a_round_trip() {
        for value in deployments() {
            let want = from_value(&value, ty("apps/v1", "Deployment"))
                .expect("valid")
                .object;
            let Value::Object(mut object) = value.clone() else {
                panic!("an object")
            };
            assert!(
                normalize(&mut object, ty("apps/v1", "Deployment"), Rules::Json),
                "{value}"
            );
            assert_eq!(
                Value::Object(object).to_string(),
                Value::from(want).to_string(),
                "{value}"
            );
        }
    }

    #[test]
    fn normalize_declines_misfits() {
        for (value, why) in [
            (
                json!({"spec": {"replicas": "1"}}),
                Some("unrecognized type: int32"),
            ),
            (
                json!({"spec": {"replicas": 1.5}}),
                Some("cannot convert float64 to int32"),
            ),
            (
                json!({"spec": {"template": []}}),
                Some("cannot restore struct from: slice"),
            ),
            (
                json!({"spec": {"template": {"spec": {"containers": "x"}}}}),
                Some("cannot restore slice from string"),
            ),
            (
                json!({"metadata": {"labels": 1}}),
                Some("cannot restore map from int64"),
            ),
            (
                json!({"metadata": {"name": 1}}),
                Some("cannot convert int64 to string"),
            ),
            (
                json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": true}}}}),
                Some("json: cannot unmarshal bool into Go value of type int32"),
            ),
            (json!({"spec": {"nonsense": 1}}), None),
        ] {
            let Value::Object(object) = value.clone() else {
                panic!("an object")
            };
            assert!(
                !normalize(
                    &mut object.clone(),
                    ty("apps/v1", "Deployment"),
                    Rules::Unstructured
                ),
                "{value}"
            );
            assert_eq!(
                unstructured::conversion_error(&object, ty("apps/v1", "Deployment")).as_deref(),
                why,
                "{value}"
            );
        }
    }

    #[test]
    fn converter_accepts_numbers_of_other_types() {
        let Value::Object(mut object) =
            json!({"spec": {"replicas": 2.0, "minReadySeconds": 4294967297i64}})
        else {
            panic!("an object")
        };
        assert!(!normalize(
            &mut object.clone(),
            ty("apps/v1", "Deployment"),
            Rules::Json
        ));
        assert!(normalize(
            &mut object,
            ty("apps/v1", "Deployment"),
            Rules::Unstructured
        ));
        assert_eq!(
            (
                object["spec"]["replicas"].as_i64(),
                object["spec"]["minReadySeconds"].as_i64()
            ),
            (Some(2), Some(1))
        );
    }

    #[test]
    fn unknown_fields_are_reported_in_order() {
        let Value::Object(object) =
            json!({"z": 1, "spec": {"template": {"spec": {"containers": [{"y": 1}, {"x": 1}]}}}})
        else {
            panic!("an object")
        };
        let found = unstructured::unknown_fields(&object, ty("apps/v1", "Deployment"));
        let want = [
            "spec.template.spec.containers[0].y",
            "spec.template.spec.containers[1].x",
            "z",
        ];
        assert_eq!(found, want.map(|path| format!("unknown field \"{path}\"")));
    }
}
