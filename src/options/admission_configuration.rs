//! The configuration of admission plugins (`--admission-control-config-file`): an
//! AdmissionConfiguration, which holds or names the configuration of each (apiserver
//! `admission/config.go`).

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::admission::configuration::PluginConfigurations;
use crate::admission::configuration_fields::unknown_field;
use crate::admission::{plugins, pod_toleration_restriction};
use crate::builtin::check_tolerations;
use crate::codec::yaml;
use crate::meta::{ErrorList, Path as FieldPath, Value, array_at, str_at};
use crate::options::config::Admission;

const VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];

/// The plugins whose configuration may be the whole file, from a time when it had no kind.
const LEGACY: [(&str, &str); 2] = [
    ("ImagePolicyWebhook", "imagePolicy"),
    ("PodNodeSelector", "podNodeSelectorPluginConfig"),
];

/// An error of an admission configuration, with the file that it is in.
#[derive(Debug, thiserror::Error)]
#[error("--admission-control-config-file: {file}: {why}")]
pub struct AdmissionConfigurationError {
    file: String,
    why: String,
}

/// Returns the configurations of the plugins that run.
///
/// # Errors
/// Those of the file, and a plugin that cannot do without.
pub fn of(config: &Admission) -> Result<PluginConfigurations, AdmissionConfigurationError> {
    let runs = |name: &str| {
        plugins::find(name).is_some_and(|plugin| config.runs(plugin.name, plugin.by_default))
    };
    let file = config.configuration_file.as_deref();
    let found = file.map(|file| read(file, &runs)).transpose()?;
    let found = found.unwrap_or_default();
    found
        .check(runs)
        .map_err(|why| AdmissionConfigurationError {
            file: file
                .map_or("none", |file| file.to_str().unwrap_or_default())
                .to_owned(),
            why,
        })?;
    Ok(found)
}

/// Reads the configurations of the plugins that run, out of an AdmissionConfiguration and the files
/// that it names.
///
/// # Errors
/// A file that cannot be read or understood, and what is wrong with the configuration of a plugin.
fn read(
    path: &Path,
    runs: &dyn Fn(&str) -> bool,
) -> Result<PluginConfigurations, AdmissionConfigurationError> {
    let error = |file: &Path| {
        let file = file.display().to_string();
        move |why: String| AdmissionConfigurationError { file, why }
    };
    let value = load(path).map_err(error(path))?;
    let mut found = PluginConfigurations::default();
    if str_at(&value, "/kind").is_empty() && LEGACY.iter().any(|(_, key)| value.get(key).is_some())
    {
        for (plugin, _) in LEGACY.iter().filter(|(plugin, _)| runs(plugin)) {
            found.read(plugin, &value).map_err(error(path))?;
        }
        return Ok(found);
    }
    let mut seen = HashSet::new();
    for plugin in listed(&value).map_err(error(path))? {
        let configuration = plugin.get("configuration").filter(|value| !value.is_null());
        let (name, file) = (str_at(plugin, "/name"), str_at(plugin, "/path"));
        // The first of a name counts.
        if !seen.insert(name) || !runs(name) {
            continue;
        }
        match configuration {
            Some(value) => found.read(name, value).map_err(error(path))?,
            None if file.is_empty() => {}
            None => {
                let named = path.parent().unwrap_or(Path::new("")).join(file);
                let value = load(&named).map_err(error(&named))?;
                found.read(name, &value).map_err(error(&named))?;
            }
        }
    }
    check_lists(&found.pod_tolerations).map_err(error(path))?;
    Ok(found)
}

/// Checks the tolerations of PodTolerationRestriction as those of pods.
fn check_lists(lists: &pod_toleration_restriction::Configuration) -> Result<(), String> {
    let (path, mut errors) = (FieldPath::new("podtolerationrestriction"), ErrorList::new());
    for (name, list) in [("default", &lists.default), ("whitelist", &lists.whitelist)] {
        check_tolerations(&mut errors, &path.child(name), list);
    }
    match errors.is_empty() {
        true => Ok(()),
        false => {
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Err(format!("invalid config: [{}]", texts.join(" ")))
        }
    }
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
fn listed(value: &Value) -> Result<&[Value], String> {
    if str_at(value, "/kind") != "AdmissionConfiguration"
        || !VERSIONS.contains(&str_at(value, "/apiVersion"))
    {
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
        read(&path, &|name| {
            !["AlwaysAdmit", "ImagePolicyWebhook"].contains(&name)
        })
        .map_err(|error| error.to_string())
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
                "[{name: EventRateLimit, configuration: {kind: Configuration, \
                 apiVersion: eventratelimit.admission.k8s.io/v1alpha1}}]",
                "limits: Invalid value: null: must not be empty",
            ),
            (
                "[{name: PodTolerationRestriction, configuration: {kind: Configuration, \
                 apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, \
                 whitelist: [{operator: Equal}]}}]",
                "invalid config: [podtolerationrestriction.whitelist[0].operator: Invalid value: ",
            ),
            (
                "[{name: ValidatingAdmissionPolicy, configuration: {staticManifestsDir: /a, \
                 kind: ValidatingAdmissionPolicyConfiguration, apiVersion: apiserver.config.k8s.io/v1}}]",
                "staticManifestsDir: Forbidden: staticManifestsDir requires",
            ),
            (
                "[{name: ResourceQuota, configuration: {kind: ResourceQuotaConfiguration, \
                 apiVersion: apiserver.config.k8s.io/v1, limitedResources: [{apiGroup: a}]}}]",
                "limitedResources[0].resource: Required value",
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
        // Plugins that do not run are not asked.
        assert!(read("[{name: AlwaysAdmit, path: none.yaml}]").is_ok());
        let legacy = "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b}";
        let legacy = read_text(legacy).expect("a configuration");
        assert_ne!(legacy.pod_node_selector, <_>::default());
        assert!(read_text("kind: Pod").is_err_and(|why| why.contains("expected Admission")));
    }
}
