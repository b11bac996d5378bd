//! Configuration files: one object in YAML or JSON, read strictly into plain structs. Unknown
//! fields, fields of the wrong type and keys that are set twice are reported with their paths.

use crate::meta::{Map, Path, Value};

use super::{MAX_ISSUES, yaml};

/// Reads the only object of a file, whose `apiVersion` and `kind` must be one of `types`.
///
/// # Errors
/// The file is no YAML, or holds another object.
pub fn document(bytes: &[u8], types: &[(&str, &str)]) -> Result<(Value, Fields), String> {
    let (value, duplicates) =
        yaml::to_value(bytes).map_err(|why| format!("error converting YAML to JSON: {why}"))?;
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    match types.iter().find(|known| **known == (version, kind)) {
        Some(_) => Ok((
            value,
            Fields {
                unknown: duplicates,
                wrong: Vec::new(),
            },
        )),
        None if kind.is_empty() => {
            Err("Object 'Kind' is missing in the configuration file".to_owned())
        }
        None if version.is_empty() => {
            Err("Object 'apiVersion' is missing in the configuration file".to_owned())
        }
        None => Err(format!(
            "no kind {kind:?} is registered for version {version:?}"
        )),
    }
}

/// The reader of the fields of a document; it collects what is wrong with them.
#[derive(Debug, Default)]
pub struct Fields {
    /// Fields that the type does not have, and keys that are set twice.
    unknown: Vec<String>,
    /// Fields that cannot be understood.
    wrong: Vec<String>,
}

impl Fields {
    /// Returns the members of an object; `None` if it is null or absent.
    pub fn object<'v>(
        &mut self,
        value: Option<&'v Value>,
        path: &Path,
        known: &[&str],
    ) -> Option<&'v Map> {
        let value = value.filter(|value| !value.is_null())?;
        let Some(map) = value.as_object() else {
            self.wrong_type(path, "object");
            return None;
        };
        for key in map.keys() {
            if !known.contains(&key.as_ref()) {
                let problem = format!("unknown field {:?}", path.child(key).as_str());
                note(&mut self.unknown, problem);
            }
        }
        Some(map)
    }

    /// Returns the text of a field, empty if it is absent.
    pub fn text(&mut self, map: &Map, path: &Path, field: &str) -> String {
        self.scalar(map, path, field, "string", |value| {
            value.as_str().map(str::to_owned)
        })
        .unwrap_or_default()
    }

    /// Returns the flag of a field; `None` if it is absent.
    pub fn flag(&mut self, map: &Map, path: &Path, field: &str) -> Option<bool> {
        self.scalar(map, path, field, "boolean", Value::as_bool)
    }

    /// Returns the integer of a field; `None` if it is absent.
    pub fn integer(&mut self, map: &Map, path: &Path, field: &str) -> Option<i64> {
        self.scalar(map, path, field, "integer", Value::as_i64)
    }

    /// Returns the items of a field, with their paths.
    pub fn items<'v>(&mut self, map: &'v Map, path: &Path, field: &str) -> Vec<(Path, &'v Value)> {
        let path = path.child(field);
        let Some(value) = map.get(field).filter(|value| !value.is_null()) else {
            return Vec::new();
        };
        let Some(items) = value.as_array() else {
            self.wrong_type(&path, "array");
            return Vec::new();
        };
        let at = |(at, item)| (path.index(at), item);
        items.iter().enumerate().map(at).collect()
    }

    /// Returns the texts of a field.
    pub fn texts(&mut self, map: &Map, path: &Path, field: &str) -> Vec<String> {
        let items = self.items(map, path, field);
        let mut texts = Vec::with_capacity(items.len());
        for (path, item) in items {
            match item.as_str() {
                Some(text) => texts.push(text.to_owned()),
                None => self.wrong_type(&path, "string"),
            }
        }
        texts
    }

    /// Notes that a field cannot be understood.
    pub fn wrong(&mut self, path: &Path, why: &str) {
        note(&mut self.wrong, format!("field {:?}: {why}", path.as_str()));
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// Names everything that was wrong (apimachinery `runtime.NewStrictDecodingError`).
    pub fn finish(self) -> Result<(), String> {
        let mut all = self.unknown;
        all.extend(self.wrong);
        match all.is_empty() {
            true => Ok(()),
            false => Err(format!("strict decoding error: {}", all.join(", "))),
        }
    }

    /// Ends the reading, and returns what was unknown.
    ///
    /// # Errors
    /// Names everything that cannot be understood.
    pub fn finish_leniently(self) -> Result<Vec<String>, String> {
        match self.wrong.is_empty() {
            true => Ok(self.unknown),
            false => Err(format!("strict decoding error: {}", self.wrong.join(", "))),
        }
    }

    fn scalar<T>(
        &mut self,
        map: &Map,
        path: &Path,
        field: &str,
        kind: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = map.get(field).filter(|value| !value.is_null())?;
        let read = read(value);
        if read.is_none() {
            self.wrong_type(&path.child(field), kind);
        }
        read
    }

    fn wrong_type(&mut self, path: &Path, kind: &str) {
        note(
            &mut self.wrong,
            format!("field {:?} is no {kind}", path.as_str()),
        );
    }
}

fn note(problems: &mut Vec<String>, problem: String) {
    if problems.len() < MAX_ISSUES {
        problems.push(problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_have_paths() {
        let text = b"apiVersion: v1\nkind: A\nlist: [{a: 1, b: x, c: y}, 2]\nother: 3\n";
        let (value, mut fields) = document(text, &[("v1", "A")]).expect("an object");
        let root = Path::default();
        let known = ["apiVersion", "kind", "list"];
        let map = fields.object(Some(&value), &root, &known).expect("a map");
        for (path, item) in fields.items(map, &root, "list") {
            if let Some(item) = fields.object(Some(item), &path, &["a", "b"]) {
                assert_eq!(fields.text(item, &path, "b"), "x");
                assert_eq!(fields.text(item, &path, "a"), "");
                assert_eq!(fields.integer(item, &path, "a"), Some(1));
            }
        }
        assert_eq!(
            fields.finish(),
            Err(
                "strict decoding error: unknown field \"other\", unknown field \"list[0].c\", \
                 field \"list[0].a\" is no string, field \"list[1]\" is no object"
                    .to_owned()
            )
        );
        for (text, why) in [
            ("a: [", "error converting YAML to JSON: yaml: line 1"),
            ("kind: B\napiVersion: v1", "no kind \"B\" is registered"),
            ("apiVersion: v1", "'Kind' is missing"),
            ("kind: A", "'apiVersion' is missing"),
        ] {
            let found = document(text.as_bytes(), &[("v1", "A")]).expect_err("an error");
            assert!(found.contains(why), "{text}: {found}");
        }
    }
}
