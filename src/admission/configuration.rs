//! The configuration of plugins, out of the file of `--admission-control-config-file`.

use std::path::Path;

use super::configuration_fields::unknown_field;
use super::{
    event_rate_limit, image_policy, pod_node_selector, pod_security, pod_toleration_restriction,
    quota,
};
use crate::meta::{FieldError, Path as FieldPath, Value, str_at};
use crate::webhook::AuthInfos;

const API_VERSION: &str = "apiserver.config.k8s.io/v1";

/// The configurations of the plugins that have one.
#[derive(Clone, Debug, Default)]
pub struct PluginConfigurations {
    pub event_rate_limit: event_rate_limit::Configuration,
    pub image_policy: Option<image_policy::Configuration>,
    pub pod_node_selector: pod_node_selector::Configuration,
    pub pod_security: pod_security::Configuration,
    pub pod_tolerations: pod_toleration_restriction::Configuration,
    pub quota: quota::Configuration,
    /// The credentials for webhooks.
    pub mutating_webhooks: AuthInfos,
    pub validating_webhooks: AuthInfos,
}

impl PluginConfigurations {
    /// Reads the configuration of the plugin of that name; one that has nothing to configure
    /// ignores its.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(&mut self, plugin: &str, value: &Value) -> Result<(), String> {
        match plugin {
            "EventRateLimit" => {
                self.event_rate_limit = event_rate_limit::Configuration::read(value)?;
            }
            "ImagePolicyWebhook" => {
                self.image_policy = Some(image_policy::Configuration::read(value)?);
            }
            "PodNodeSelector" => {
                self.pod_node_selector = pod_node_selector::Configuration::read(value)?;
            }
            "PodSecurity" => self.pod_security = pod_security::Configuration::read(value)?,
            "PodTolerationRestriction" => {
                self.pod_tolerations = pod_toleration_restriction::Configuration::read(value)?;
            }
            "ResourceQuota" => self.quota = quota::Configuration::read(value)?,
            "MutatingAdmissionPolicy" | "ValidatingAdmissionPolicy" => {
                check_manifests(value, &format!("{plugin}Configuration"), &[])?;
            }
            "MutatingAdmissionWebhook" => self.mutating_webhooks = webhook_credentials(value)?,
            "ValidatingAdmissionWebhook" => self.validating_webhooks = webhook_credentials(value)?,
            _ => {}
        }
        Ok(())
    }

    /// Checks that the plugins that run have what they cannot do without.
    ///
    /// # Errors
    /// The plugin that lacks it.
    pub fn check(&self, runs: impl Fn(&str) -> bool) -> Result<(), String> {
        let lacks = |plugin: &str, why: &str| {
            Err(format!(
                "couldn't init admission plugin \"{plugin}\": {why}"
            ))
        };
        if runs("EventRateLimit") && self.event_rate_limit.is_empty() {
            let path = FieldPath::new("limits");
            let why = FieldError::invalid(&path, Value::Null, "must not be empty");
            return lacks("EventRateLimit", &why.to_string());
        }
        if runs("ImagePolicyWebhook") && self.image_policy.is_none() {
            return lacks("ImagePolicyWebhook", image_policy::NO_CONFIGURATION);
        }
        Ok(())
    }
}

/// Checks that a configuration is of a kind and has only known fields, and that it names no
/// manifests, which need an alpha feature.
fn check_manifests(value: &Value, kind: &str, more: &[&str]) -> Result<(), String> {
    if str_at(value, "/kind") != kind || str_at(value, "/apiVersion") != API_VERSION {
        return Err(format!("expected {kind} of {API_VERSION}"));
    }
    let known = ["apiVersion", "kind", "staticManifestsDir"];
    if let Some(why) = unknown_field(value, &[&known[..], more].concat()) {
        return Err(why);
    }
    if str_at(value, "/staticManifestsDir").is_empty() {
        return Ok(());
    }
    let why = "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled";
    let path = FieldPath::new("staticManifestsDir");
    Err(FieldError::forbidden(&path, why).to_string())
}

/// Reads a WebhookAdmissionConfiguration and the kubeconfig file that it names (apiserver
/// `admission/plugin/webhook/config`).
fn webhook_credentials(value: &Value) -> Result<AuthInfos, String> {
    check_manifests(value, "WebhookAdmissionConfiguration", &["kubeConfigFile"])?;
    let file = str_at(value, "/kubeConfigFile");
    match file {
        "" => Ok(AuthInfos::default()),
        _ if !file.starts_with('/') => {
            let path = FieldPath::new("kubeConfigFile");
            Err(FieldError::invalid(&path, file, "must be an absolute file path").to_string())
        }
        _ => AuthInfos::read(Path::new(file)),
    }
}
