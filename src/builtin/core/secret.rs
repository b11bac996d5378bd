//! Secrets: the types that demand certain keys, and `stringData`, which is written but never
//! stored.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::config_map::{DATA_MAX, decoded_len, stays_immutable};
use crate::builtin::columns::{AGE, ColumnPrinter, NAME, map_len, text};
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Object, Path, Value, go, names};
use crate::registry::validation::{Fields, IMMUTABLE, invalid_each};
use crate::registry::{Context, MetaChecks, Strategy};

/// The entry of `secrets`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "secrets",
    traits: ResourceTraits {
        selectable: &["type"],
        meta_checks: MetaChecks::Everything,
        ..DEFAULT
    },
    strategy: &SecretStrategy,
    printer: &PRINTER,
};

const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
/// The text that errors show instead of a secret's content.
const REDACTED: &str = "<secret contents redacted>";

pub struct SecretStrategy;

impl Strategy for SecretStrategy {
    fn default(&self, object: &mut Object) {
        if let Some(Value::Object(texts)) = object.shift_remove("stringData") {
            let data = object.section_mut("data");
            for (key, text) in texts {
                data.insert(key, STANDARD.encode(text.as_str().unwrap_or("")).into());
            }
        }
        if object.str("type").is_empty() {
            object.insert("type", "Opaque".into());
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("data");
        let mut size = 0;
        for (key, value) in object.entries("data") {
            let problems = names::config_map_key(key);
            if !problems.is_empty() {
                invalid_each(&mut errors, &path.key(key), key, problems);
            }
            size += value.as_str().map_or(0, decoded_len);
        }
        if size > DATA_MAX {
            errors.too_long(&path, DATA_MAX);
        }
        required_keys(&mut errors, &path, object);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        if object.str("type") != old.str("type") {
            errors.invalid(&Path::new("type"), object.str("type"), IMMUTABLE);
        }
        errors.extend(stays_immutable(object, old, &["data"]));
        errors.extend(self.validate(ctx, object));
        errors
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        if object.str("type") != "kubernetes.io/tls" {
            return Vec::new();
        }
        tls_problem(object).into_iter().collect()
    }
}

/// The keys that a secret of its type must have.
fn required_keys(errors: &mut ErrorList, path: &Path, object: &Object) {
    let has = |key: &str| {
        object
            .map("data")
            .is_some_and(|data| data.contains_key(key))
    };
    let account = object
        .annotations()
        .map_or("", |annotations| annotations.str(SERVICE_ACCOUNT_NAME));
    let mut require = |key: &str| errors.required(&path.key(key), "");
    match object.str("type") {
        "kubernetes.io/service-account-token" if account.is_empty() => {
            let path = Path::new("metadata")
                .child("annotations")
                .key(SERVICE_ACCOUNT_NAME);
            errors.required(&path, "");
        }
        "kubernetes.io/dockercfg" => docker_config(errors, path, object, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => {
            docker_config(errors, path, object, ".dockerconfigjson")
        }
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            require("username");
            require("password");
        }
        "kubernetes.io/ssh-auth" if content(object, "ssh-privatekey").is_empty() => {
            require("ssh-privatekey")
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    require(key);
                }
            }
        }
        _ => {}
    }
}

/// A Docker configuration must be there and be a JSON object.
fn docker_config(errors: &mut ErrorList, path: &Path, object: &Object, key: &str) {
    let Some(data) = object.map("data").filter(|data| data.contains_key(key)) else {
        errors.required(&path.key(key), "");
        return;
    };
    let bytes = STANDARD.decode(data.str(key)).unwrap_or_default();
    if let Some(problem) = json_problem(&bytes) {
        errors.invalid(&path.key(key), REDACTED, problem);
    }
}

/// Returns the reason bytes are not a JSON object, in the words of Go's `encoding/json`.
fn json_problem(bytes: &[u8]) -> Option<String> {
    let error = match serde_json::from_slice::<Value>(bytes) {
        Ok(Value::Object(_) | Value::Null) => return None,
        Ok(other) => {
            let kind = match other {
                Value::Bool(_) => "bool",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                _ => "array",
            };
            return Some(format!(
                "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
            ));
        }
        Err(error) => error,
    };
    if error.is_eof() {
        return Some("unexpected end of JSON input".to_owned());
    }
    let at = error.column().saturating_sub(1);
    let line_start = bytes
        .split(|&c| c == b'\n')
        .take(error.line().saturating_sub(1))
        .map(|line| line.len() + 1)
        .sum::<usize>();
    let bad = bytes.get(line_start + at).copied().unwrap_or(b' ') as char;
    let place = if bytes[..(line_start + at).min(bytes.len())]
        .iter()
        .all(u8::is_ascii_whitespace)
    {
        "looking for beginning of value"
    } else if bytes[..line_start + at]
        .iter()
        .rev()
        .find(|c| !c.is_ascii_whitespace())
        == Some(&b'{')
    {
        "looking for beginning of object key string"
    } else {
        "after object key:value pair"
    };
    Some(format!(
        "invalid character {} {place}",
        if bad == '\'' {
            r"'\''".to_owned()
        } else {
            let quoted = go::quote(&bad.to_string());
            format!("'{}'", quoted.trim_matches('"'))
        }
    ))
}

/// The bytes under a key of `data`.
fn content(object: &Object, key: &str) -> Vec<u8> {
    object
        .map("data")
        .and_then(|data| STANDARD.decode(data.str(key)).ok())
        .unwrap_or_default()
}

/// Returns the first error of Go's `tls.X509KeyPair`: PEM blocks that are missing or not the right
/// ones.
fn tls_problem(object: &Object) -> Option<String> {
    let blocks = |key: &str| pem_labels(&content(object, key));
    let (certificates, keys) = (blocks("tls.crt"), blocks("tls.key"));
    if certificates.is_empty() {
        return Some("tls: failed to find any PEM data in certificate input".to_owned());
    }
    if !certificates.iter().any(|label| label == "CERTIFICATE") {
        if certificates
            .iter()
            .any(|label| label.ends_with("PRIVATE KEY"))
            && keys.iter().any(|label| label == "CERTIFICATE")
        {
            let why = "but it is a private key: were the certificate and key inputs switched?";
            return Some(format!(
                "tls: failed to find certificate PEM data in certificate input, {why}"
            ));
        }
        let list = certificates.join(" ");
        return Some(format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{list}]"
        ));
    }
    if keys.is_empty() {
        return Some("tls: failed to find any PEM data in key input".to_owned());
    }
    if !keys.iter().any(|label| label.ends_with("PRIVATE KEY")) {
        if keys.iter().any(|label| label == "CERTIFICATE") {
            let why = "you may have used a certificate instead of a key";
            return Some(format!(
                "tls: found a certificate rather than a key in the PEM for the private key: {why}"
            ));
        }
        let list = keys.join(" ");
        return Some(format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{list}]"
        ));
    }
    None
}

/// The labels of the PEM blocks in a text.
fn pem_labels(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text)
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_prefix("-----BEGIN ")?
                .strip_suffix("-----")
                .map(str::to_owned)
        })
        .collect()
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Type", "What the secret is for"),
        text("Data", "The number of entries"),
        AGE,
    ],
    paths: "type data",
    fill: |row| {
        let entries = map_len(row.object, "/data");
        row.name().text("/type").cell(entries).age();
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn string_data_becomes_data() {
        let mut secret = Object::from_value(
            json!({"stringData": {"a": "x"}, "data": {"a": "AA==", "b": "AQ=="}}),
        )
        .expect("an object");
        SecretStrategy.default(&mut secret);
        assert_eq!(
            Value::from(secret),
            json!({"data": {"a": "eA==", "b": "AQ=="}, "type": "Opaque"})
        );
    }

    #[test]
    fn docker_configurations_are_json() {
        let cases = [
            ("{}", None),
            (
                "x",
                Some("invalid character 'x' looking for beginning of value"),
            ),
            ("{", Some("unexpected end of JSON input")),
            ("", Some("unexpected end of JSON input")),
            (
                "[]",
                Some("json: cannot unmarshal array into Go value of type map[string]interface {}"),
            ),
        ];
        for (text, want) in cases {
            assert_eq!(json_problem(text.as_bytes()).as_deref(), want, "{text:?}");
        }
    }
}
