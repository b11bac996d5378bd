//! Paths to fields of a schema, as rules and selectable fields name them (apiextensions
//! `schema/cel.ValidFieldPath`).

use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::meta::Path;

/// The path as errors show it, its first step, and the schema that it leads to.
pub struct ResolvedPath<'a> {
    pub path: Path,
    pub root: String,
    pub schema: Option<&'a JsonSchemaProps>,
}

/// Follows `.a.b` and `.a['b']` through a schema. `brackets` allows the latter.
///
/// # Errors
/// Upstream's text.
pub fn resolve<'a>(
    text: &str,
    schema: &'a JsonSchemaProps,
    brackets: bool,
) -> Result<ResolvedPath<'a>, String> {
    let tokens = tokens(text);
    let mut tokens = tokens.iter().map(String::as_str);
    let (mut path, mut root, mut present) = (Path::default(), String::new(), Some(schema));
    let ended = || "unexpected end of JSON path".to_owned();
    while let Some(token) = tokens.next() {
        let name = match token {
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = tokens.next().ok_or_else(ended)?;
                let inner = quoted
                    .strip_prefix('\'')
                    .and_then(|text| text.strip_suffix('\''))
                    .filter(|_| quoted.len() >= 2);
                let inner = inner
                    .ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                inner.replace("\\'", "'").replace("\\\\", "\\")
            }
            "." => tokens.next().ok_or_else(ended)?.to_owned(),
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let Some(here) = present else {
            return Err("does not refer to a valid field".to_owned());
        };
        if !here.properties.is_empty() {
            path = path.child(&name);
            present = Some(
                here.properties
                    .get(&name)
                    .ok_or("does not refer to a valid field")?,
            );
        } else if here.additional.is_some() {
            path = path.key(&name);
            present = here.additional_schema();
        } else {
            return Err("does not refer to a valid field".to_owned());
        }
        if root.is_empty() {
            root.clone_from(&name);
        }
        if token == "[" {
            match tokens.next() {
                Some("]") => {}
                Some(other) => return Err(format!("expected ] but got {other}")),
                None => return Err(ended()),
            }
        }
    }
    Ok(ResolvedPath {
        path,
        root,
        schema: present,
    })
}

/// Dots, brackets, quoted strings, and what is between them.
fn tokens(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '.' | '[' | ']' => 1,
            '\'' => {
                let bytes = rest.as_bytes();
                (1..bytes.len())
                    .find(|at| bytes[*at] == b'\'' && bytes[at - 1] != b'\\')
                    .map_or(rest.len(), |at| at + 1)
            }
            _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
        };
        out.push(rest[..end].to_owned());
        rest = &rest[end..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn paths_lead_to_schemas() {
        let schema = JsonSchemaProps::read(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a.b": {"type": "string"}, "m": {"type": "object", "additionalProperties": {"type": "integer"}}}}}}),
        );
        let show = |text: &str, brackets| match resolve(text, &schema, brackets) {
            Ok(found) => format!(
                "{} {}",
                found.path,
                found.schema.map_or("", |schema| &schema.kind)
            ),
            Err(why) => why,
        };
        assert_eq!(show(".spec['a.b']", true), "spec.a.b string");
        assert_eq!(show(".spec.m.k", true), "spec.m[k] integer");
        assert_eq!(show(".spec['a.b']", false), "array notation is not allowed");
        assert_eq!(show(".spec.x", true), "does not refer to a valid field");
        assert_eq!(show("spec", true), "expected [ or . but got: spec");
        assert_eq!(show(".", true), "unexpected end of JSON path");
    }
}
