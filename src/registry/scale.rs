//! The fields of an object that its Scale shows (apiextensions `registry/customresource`,
//! ScaleREST).

use crate::meta::go;
use crate::meta::{Object, Value};

/// The places of what a Scale shows, in one version of a custom kind: simple paths with leading
/// dots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

/// The names along a simple path.
pub fn names(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

/// Returns the value at a simple path, if there is one.
///
/// # Errors
/// The path leads through something that is no object.
pub fn value_at<'a>(object: &'a Object, path: &str) -> Result<Option<&'a Value>, String> {
    let names: Vec<&str> = names(path).collect();
    let Some(mut present) = object.get(names[0]) else {
        return Ok(None);
    };
    for (depth, name) in names.iter().enumerate().skip(1) {
        match present {
            Value::Null => return Ok(None),
            Value::Object(entries) => match entries.get(name) {
                Some(below) => present = below,
                None => return Ok(None),
            },
            other => {
                return Err(wrong_type(
                    other,
                    &names[..=depth],
                    "map[string]interface {}",
                ));
            }
        }
    }
    Ok(Some(present))
}

/// The whole number at a simple path.
///
/// # Errors
/// The value is of another type.
pub fn number_at(object: &Object, path: &str) -> Result<Option<i64>, String> {
    let Some(value) = value_at(object, path)? else {
        return Ok(None);
    };
    value
        .as_i64()
        .map(Some)
        .ok_or_else(|| wrong_type(value, &names(path).collect::<Vec<_>>(), "int64"))
}

/// The text at a simple path.
///
/// # Errors
/// The value is of another type.
pub fn text_at<'a>(object: &'a Object, path: &str) -> Result<Option<&'a str>, String> {
    let Some(value) = value_at(object, path)? else {
        return Ok(None);
    };
    value
        .as_str()
        .map(Some)
        .ok_or_else(|| wrong_type(value, &names(path).collect::<Vec<_>>(), "string"))
}

/// Writes the whole number at a simple path, and objects on the way where there are none.
///
/// # Errors
/// The path leads through something that is no object.
pub fn set_number(object: &mut Object, path: &str, number: i64) -> Result<(), String> {
    let names: Vec<&str> = names(path).collect();
    let Some((last, way)) = names.split_last() else {
        return Ok(());
    };
    let mut entries = &mut object.0;
    for (depth, name) in way.iter().enumerate() {
        let below = entries
            .entry((*name).to_owned())
            .or_insert_with(|| Value::Object(crate::meta::Map::new()));
        match below {
            Value::Object(below) => entries = below,
            _ => {
                return Err(format!(
                    "value cannot be set because .{} is not a map[string]interface{{}}",
                    names[..=depth].join(".")
                ));
            }
        }
    }
    entries.insert((*last).to_owned(), number.into());
    Ok(())
}

fn wrong_type(value: &Value, names: &[&str], wanted: &str) -> String {
    format!(
        ".{} accessor error: {} is of the type {}, expected {wanted}",
        names.join("."),
        go::sprint(value),
        go::type_name(value)
    )
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::meta::json;

    fn object() -> Object {
        Object::from_value(json!({"spec": {"n": 3, "text": "a=b", "list": [1]}, "void": null}))
            .expect("an object")
    }

    #[test]
    fn reads_what_is_there() {
        let object = object();
        assert_eq!(number_at(&object, ".spec.n"), Ok(Some(3)));
        assert_eq!(number_at(&object, ".spec.m"), Ok(None));
        assert_eq!(number_at(&object, ".void.m"), Ok(None));
        assert_eq!(text_at(&object, ".spec.text"), Ok(Some("a=b")));
        assert_eq!(
            number_at(&object, ".spec.text"),
            Err(".spec.text accessor error: a=b is of the type string, expected int64".to_owned())
        );
        let through = ".spec.list.x accessor error: [1] is of the type []interface {}, expected map[string]interface {}";
        assert_eq!(
            number_at(&object, ".spec.list.x.y"),
            Err(through.to_owned())
        );
    }

    #[test]
    fn writes_where_there_was_nothing() {
        let mut object = object();
        set_number(&mut object, ".a.b.n", 7).expect("a free place");
        assert_eq!(object.at("/a/b/n"), Some(&json!(7)));
        let through = "value cannot be set because .spec.text is not a map[string]interface{}";
        assert_eq!(
            set_number(&mut object, ".spec.text.n", 7),
            Err(through.to_owned())
        );
    }
}
