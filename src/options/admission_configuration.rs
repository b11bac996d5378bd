//! The configuration of admission plugins (`--admission-control-config-file`): an
//! AdmissionConfiguration, which holds or names the configuration of each (apiserver
//! `admission/config.go`).

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::admission::pod_security;
use crate::codec::yaml;
use crate::meta::{Value, array_at};
use crate::webhook::AuthInfos;

const VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];

/// The plugins that kube-apiserver can configure and this server cannot.
const UNSUPPORTED: [&str; 7] = [
    "EventRateLimit",
    "ImagePolicyWebhook",
    "MutatingAdmissionPolicy",
    "PodNodeSelector",
    "PodTolerationRestriction",
    "ResourceQuota",
    "ValidatingAdmissionPolicy",
];

/// An error of an admission configuration, with the file that it is in.
#[derive(Debug, thiserror::Error)]
#[error("--admission-control-config-file: {file}: {why}")]
pub struct AdmissionConfigurationError {
    file: String,
    why: String,
}

/// The configurations of the plugins that have one.
#[derive(Clone, Debug, Default)]
pub struct PluginConfigurations {
    pub pod_security: pod_security::Configuration,
    /// The credentials for webhooks.
    pub mutating_webhooks: AuthInfos,
    pub validating_webhooks: AuthInfos,
}

impl PluginConfigurations {
    /// Reads the configuration of the plugin of that name; one that has nothing to configure
    /// ignores its.
    fn read(&mut self, plugin: &str, value: &Value) -> Result<(), String> {
        match plugin {
            "PodSecurity" => self.pod_security = pod_security::Configuration::read(value)?,
            "MutatingAdmissionWebhook" => self.mutating_webhooks = webhook_credentials(value)?,
            "ValidatingAdmissionWebhook" => self.validating_webhooks = webhook_credentials(value)?,
            _ => {}
        }
        Ok(())
    }
}

/// Reads a WebhookAdmissionConfiguration and the kubeconfig file that it names (apiserver
/// `admission/plugin/webhook/config`).
fn webhook_credentials(value: &Value) -> Result<AuthInfos, String> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("kind") != "WebhookAdmissionConfiguration" || text("apiVersion") != VERSIONS[0] {
        let version = VERSIONS[0];
        return Err(format!(
            "expected WebhookAdmissionConfiguration of {version}"
        ));
    }
    let known = ["apiVersion", "kind", "kubeConfigFile", "staticManifestsDir"];
    if let Some(why) = unknown_field(value, &known) {
        return Err(why);
    }
    if !text("staticManifestsDir").is_empty() {
        let why = "staticManifestsDir needs the feature gate ManifestBasedAdmissionControlConfig, which is not enabled";
        return Err(why.to_owned());
    }
    let file = text("kubeConfigFile");
    match file {
        "" => Ok(AuthInfos::default()),
        _ if !file.starts_with('/') => Err(format!(
            "kubeConfigFile: Invalid value: {file:?}: must be an absolute file path"
        )),
        _ => AuthInfos::read(Path::new(file)),
    }
}

/// Reads the configurations of plugins out of an AdmissionConfiguration and the files that it
/// names.
///
/// # Errors
/// A file that cannot be read or understood, and configuration of plugins that take none here.
pub fn read(path: &Path) -> Result<PluginConfigurations, AdmissionConfigurationError> {
    let error = |file: &Path| {
        let file = file.display().to_string();
        move |why: String| AdmissionConfigurationError { file, why }
    };
    let value = load(path).map_err(error(path))?;
    let plugins = plugins(&value).map_err(error(path))?;
    let mut found = PluginConfigurations::default();
    let mut seen = HashSet::new();
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
        // The first of a name counts.
        if !seen.insert(name) {
            continue;
        }
        match configuration {
            Some(value) => found.read(name, value).map_err(error(path))?,
            None => {
                let named = path.parent().unwrap_or(Path::new("")).join(text("path"));
                let value = load(&named).map_err(error(&named))?;
                found.read(name, &value).map_err(error(&named))?;
            }
        }
    }
    Ok(found)
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
    let plugins = array_at(value, "/plugins");
    let top = unknown_field(value, &["apiVersion", "kind", "plugins"]);
    let below = plugins
        .iter()
        .find_map(|plugin| unknown_field(plugin, &["name", "path", "configuration"]));
    match top.or(below) {
        Some(why) => Err(why),
        None => Ok(plugins),
    }
}

/// Returns the error of an object that has another field than those.
fn unknown_field(value: &Value, fields: &[&str]) -> Option<String> {
    let Some(map) = value.as_object() else {
        return Some("no object".to_owned());
    };
    let unknown = map.keys().find(|key| !fields.contains(&key.as_ref()));
    unknown.map(|key| format!("unknown field \"{key}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<PluginConfigurations, String> {
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
        assert_eq!(read("[]").expect("none").pod_security, <_>::default());
        let named = read("[{name: PodSecurity, path: pods.yaml}]").expect("a configuration");
        assert_eq!(named.pod_security.usernames, ["a"]);
        let inside = "[{name: PodSecurity, configuration: {kind: PodSecurityConfiguration, \
             apiVersion: pod-security.admission.config.k8s.io/v1, exemptions: {namespaces: [b]}}}]";
        let inside = read(inside).expect("a configuration");
        assert_eq!(inside.pod_security.namespaces, ["b"]);
        assert!(read("[{name: EventRateLimit}]").is_ok());
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
            (
                "[{name: MutatingAdmissionWebhook, configuration: {kind: WebhookAdmissionConfiguration, \
                 apiVersion: apiserver.config.k8s.io/v1, kubeConfigFile: a}}]",
                "must be an absolute file path",
            ),
            (
                "[{name: ValidatingAdmissionWebhook, configuration: {kind: WebhookAdmissionConfiguration, \
                 apiVersion: apiserver.config.k8s.io/v1, kubeConfigFile: /none}}]",
                "/none: No such file",
            ),
        ] {
            let found = read(plugins).expect_err("an error");
            assert!(found.contains(why), "{plugins}: {found}");
        }
        assert!(read_text("kind: Pod").is_err_and(|why| why.contains("expected Admission")));
    }
}
