//! The configuration of admission plugins (`--admission-control-config-file`): an
//! AdmissionConfiguration, which holds or names the configuration of each (apiserver
//! `admission/config.go`).

use std::fs;
use std::path::Path;

use crate::admission::pod_security::Configuration;
use crate::codec::yaml;
use crate::meta::{Value, array_at};

const VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];

/// The plugins that kube-apiserver can configure and this server cannot.
const UNSUPPORTED: [&str; 9] = [
    "EventRateLimit",
    "ImagePolicyWebhook",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "PodNodeSelector",
    "PodTolerationRestriction",
    "ResourceQuota",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

/// An error of an admission configuration, with the file that it is in.
#[derive(Debug, thiserror::Error)]
#[error("--admission-control-config-file: {file}: {why}")]
pub struct AdmissionConfigurationError {
    file: String,
    why: String,
}

/// Reads the configuration of PodSecurity out of an AdmissionConfiguration and the files that it
/// names.
///
/// # Errors
/// A file that cannot be read or understood, and configuration of plugins that take none here.
pub fn read(path: &Path) -> Result<Configuration, AdmissionConfigurationError> {
    let error = |file: &Path| {
        let file = file.display().to_string();
        move |why: String| AdmissionConfigurationError { file, why }
    };
    let value = load(path).map_err(error(path))?;
    let plugins = plugins(&value).map_err(error(path))?;
    let mut found = None;
    for plugin in plugins {
        let text = |field: &str| {
            plugin
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let configuration = plugin.get("configuration").filter(|value| !value.is_null());
        let name = text("name");
        if configuration.is_none() && text("path").is_empty() {
            continue;
        }
        if UNSUPPORTED.contains(&name) {
            let why = format!("the plugin {name} cannot be configured");
            return Err(error(path)(why));
        }
        // The first of a name counts, and plugins that have nothing to configure ignore theirs.
        if name != "PodSecurity" || found.is_some() {
            continue;
        }
        found = Some(match configuration {
            Some(value) => Configuration::read(value).map_err(error(path))?,
            None => {
                let named = path.parent().unwrap_or(Path::new("")).join(text("path"));
                let value = load(&named).map_err(error(&named))?;
                Configuration::read(&value).map_err(error(&named))?
            }
        });
    }
    Ok(found.unwrap_or_default())
}

fn load(path: &Path) -> Result<Value, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    match yaml::to_value(&bytes) {
        Ok((value, issues)) if issues.is_empty() => Ok(value),
        Ok((_, issues)) => Err(issues.join("; ")),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the list of plugins of an AdmissionConfiguration.
fn plugins(value: &Value) -> Result<&[Value], String> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("kind") != "AdmissionConfiguration" || !VERSIONS.contains(&text("apiVersion")) {
        return Err(format!(
            "expected AdmissionConfiguration of {}",
            VERSIONS[0]
        ));
    }
    let unknown = |value: &Value, fields: &[&str]| match value.as_object() {
        None => Some("no object".to_owned()),
        Some(map) => map
            .keys()
            .find(|key| !fields.contains(&key.as_ref()))
            .map(|key| format!("unknown field \"{key}\"")),
    };
    let plugins = array_at(value, "/plugins");
    let top = unknown(value, &["apiVersion", "kind", "plugins"]);
    let below = plugins
        .iter()
        .find_map(|plugin| unknown(plugin, &["name", "path", "configuration"]));
    match top.or(below) {
        Some(why) => Err(why),
        None => Ok(plugins),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Configuration, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("admission.yaml");
        fs::write(&path, text).expect("a file");
        fs::write(
            folder.path().join("pods.yaml"),
            "apiVersion: pod-security.admission.config.k8s.io/v1\n\
             kind: PodSecurityConfiguration\nexemptions: {usernames: [a]}\n",
        )
        .expect("a file");
        read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn configuration_is_inside_or_in_another_file() {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
        let read = |plugins: &str| read_text(&format!("{head}plugins: {plugins}"));
        assert_eq!(read("[]"), Ok(Configuration::default()));
        let named = read("[{name: PodSecurity, path: pods.yaml}]").expect("a configuration");
        assert_eq!(named.usernames, ["a"]);
        let inside = "[{name: PodSecurity, configuration: {kind: PodSecurityConfiguration, \
             apiVersion: pod-security.admission.config.k8s.io/v1, exemptions: {namespaces: [b]}}}]";
        assert_eq!(read(inside).expect("a configuration").namespaces, ["b"]);
        assert_eq!(
            read("[{name: EventRateLimit}]"),
            Ok(Configuration::default())
        );
        for (plugins, why) in [
            (
                "[{name: PodSecurity, path: none.yaml}]",
                "none.yaml: No such file",
            ),
            (
                "[{name: PodSecurity, file: pods.yaml}]",
                "unknown field \"file\"",
            ),
            (
                "[{name: PodSecurity, configuration: {}}]",
                "expected PodSecurityConfiguration",
            ),
            (
                "[{name: EventRateLimit, path: a}]",
                "EventRateLimit cannot be configured",
            ),
            ("[{name: a, name: b}]", "already set"),
        ] {
            let found = read(plugins).expect_err("an error");
            assert!(found.contains(why), "{plugins}: {found}");
        }
        assert!(read_text("kind: Pod").is_err_and(|why| why.contains("expected Admission")));
    }
}
