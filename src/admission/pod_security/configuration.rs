//! The configuration of PodSecurity: levels of namespaces without labels, and exemptions
//! (`pod-security.admission.config.k8s.io`; pod-security-admission `admission/api`).

use super::levels::{Level, LevelVersion, Levels, Version};
use crate::meta::field::Path;
use crate::meta::{ErrorList, Value, names};

const VERSIONS: [&str; 3] = [
    "pod-security.admission.config.k8s.io/v1",
    "pod-security.admission.config.k8s.io/v1beta1",
    "pod-security.admission.config.k8s.io/v1alpha1",
];

/// The configuration of the plugin; by default nothing is exempt and all levels are privileged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    pub defaults: Levels,
    pub usernames: Vec<String>,
    pub namespaces: Vec<String>,
    pub runtime_classes: Vec<String>,
}

impl Configuration {
    /// Reads a `PodSecurityConfiguration`.
    ///
    /// # Errors
    /// What is wrong with it: another type, an unknown field, or a value that is not allowed.
    pub fn read(value: &Value) -> Result<Self, String> {
        let version = value.get("apiVersion").and_then(Value::as_str);
        let kind = value.get("kind").and_then(Value::as_str);
        if kind != Some("PodSecurityConfiguration")
            || version.is_none_or(|version| !VERSIONS.contains(&version))
        {
            return Err(format!(
                "expected PodSecurityConfiguration of {}, got {} of {}",
                VERSIONS[0],
                kind.unwrap_or("no kind"),
                version.unwrap_or("no apiVersion"),
            ));
        }
        known(value, "", &["apiVersion", "kind", "defaults", "exemptions"])?;
        let defaults = value.get("defaults").unwrap_or(&Value::Null);
        let exemptions = value.get("exemptions").unwrap_or(&Value::Null);
        known(
            exemptions,
            "exemptions",
            &["usernames", "namespaces", "runtimeClasses"],
        )?;
        let mut errors = ErrorList::new();
        let configuration = Self {
            defaults: read_defaults(defaults, &mut errors)?,
            namespaces: exempt(exemptions, "namespaces", &mut errors, |name| {
                names::dns1123_label(name).join(", ")
            })?,
            runtime_classes: exempt(exemptions, "runtimeClasses", &mut errors, |name| {
                names::dns1123_subdomain(name).join(", ")
            })?,
            usernames: exempt(exemptions, "usernames", &mut errors, |name| {
                let empty = name.is_empty().then_some("username must not be empty");
                empty.unwrap_or_default().to_owned()
            })?,
        };
        match errors.first() {
            None => Ok(configuration),
            Some(error) => Err(error.to_string()),
        }
    }
}

/// Refuses fields that are not known.
fn known(value: &Value, path: &str, fields: &[&str]) -> Result<(), String> {
    let map = match value {
        Value::Null => return Ok(()),
        Value::Object(map) => map,
        _ => return Err(format!("{path} is not an object")),
    };
    match map.keys().find(|key| !fields.contains(&key.as_ref())) {
        None => Ok(()),
        Some(key) if path.is_empty() => Err(format!("unknown field \"{key}\"")),
        Some(key) => Err(format!("unknown field \"{path}.{key}\"")),
    }
}

fn read_defaults(value: &Value, errors: &mut ErrorList) -> Result<Levels, String> {
    const FIELDS: [&str; 6] = [
        "enforce",
        "enforce-version",
        "audit",
        "audit-version",
        "warn",
        "warn-version",
    ];
    known(value, "defaults", &FIELDS)?;
    let text = |field: &str| match value.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(_) => Err(format!("defaults.{field} is not a string")),
    };
    let mut mode = |level: &str, version: &str| -> Result<LevelVersion, String> {
        let path = |field| Path::new("defaults").child(field);
        let mut read = LevelVersion::default();
        match text(level)? {
            "" => {}
            name => match Level::parse(name) {
                Ok(level) => read.level = level,
                Err(why) => errors.invalid(&path(level), name, why),
            },
        }
        match text(version)? {
            "" => {}
            name => match Version::parse(name) {
                Ok(version) => read.version = version,
                Err(why) => errors.invalid(&path(version), name, why),
            },
        }
        Ok(read)
    };
    Ok(Levels {
        enforce: mode("enforce", "enforce-version")?,
        warn: mode("warn", "warn-version")?,
        audit: mode("audit", "audit-version")?,
    })
}

/// Reads a list of exempt names; `problems` returns what is wrong with one.
fn exempt(
    exemptions: &Value,
    field: &str,
    errors: &mut ErrorList,
    problems: impl Fn(&str) -> String,
) -> Result<Vec<String>, String> {
    let items = match exemptions.get(field) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(format!("exemptions.{field} is not a list")),
    };
    let mut known: Vec<String> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = Path::new("exemptions").child(field).index(index);
        let Some(name) = item.as_str() else {
            return Err(format!("{} is not a string", path.as_str()));
        };
        match problems(name) {
            wrong if !wrong.is_empty() => errors.invalid(&path, name, wrong),
            _ if known.iter().any(|known| known == name) => {
                errors.duplicate(&path, name);
            }
            _ => known.push(name.to_owned()),
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn read(more: &Value) -> Result<Configuration, String> {
        let mut value = json!({"apiVersion": VERSIONS[0], "kind": "PodSecurityConfiguration"});
        let fields = more.as_object().cloned().expect("an object");
        value.as_object_mut().expect("an object").extend(fields);
        Configuration::read(&value)
    }

    #[test]
    fn a_configuration_has_defaults_and_exemptions() {
        let read = read(&json!({
            "defaults": {"enforce": "baseline", "enforce-version": "v1.22", "warn": ""},
            "exemptions": {"usernames": ["a"], "namespaces": ["b", "c"], "runtimeClasses": []},
        }));
        let read = read.expect("a configuration");
        assert_eq!(read.defaults.enforce.to_string(), "baseline:v1.22");
        assert_eq!(read.defaults.warn.to_string(), "privileged:latest");
        assert_eq!(read.usernames, ["a"]);
        assert_eq!(read.namespaces, ["b", "c"]);
        assert_eq!(
            super::Configuration::default(),
            self::read(&json!({})).expect("the default")
        );
    }

    #[test]
    fn a_wrong_configuration_is_refused() {
        for (more, why) in [
            (json!({"kind": "Pod"}), "expected PodSecurityConfiguration"),
            (json!({"default": {}}), "unknown field \"default\""),
            (
                json!({"defaults": {"x": ""}}),
                "unknown field \"defaults.x\"",
            ),
            (json!({"defaults": []}), "defaults is not an object"),
            (
                json!({"defaults": {"audit": "strict"}}),
                "defaults.audit: Invalid value: \"strict\": must be one of",
            ),
            (
                json!({"defaults": {"warn-version": "1"}}),
                "defaults.warn-version: Invalid value: \"1\": must be \"latest\" or",
            ),
            (
                json!({"exemptions": {"namespaces": ["a", "a"]}}),
                "exemptions.namespaces[1]: Duplicate value: \"a\"",
            ),
            (
                json!({"exemptions": {"namespaces": ["A"]}}),
                "exemptions.namespaces[0]: Invalid value: \"A\"",
            ),
            (
                json!({"exemptions": {"usernames": [""]}}),
                "exemptions.usernames[0]: Invalid value: \"\": username must not be empty",
            ),
            (json!({"exemptions": {"usernames": [1]}}), "is not a string"),
        ] {
            let found = read(&more).expect_err("an error");
            assert!(found.contains(why), "{more}: {found}");
        }
    }
}
