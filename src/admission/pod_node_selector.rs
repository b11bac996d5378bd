//! PodNodeSelector: pods get the node selector of their namespace, and may ask for no nodes beyond
//! its list (`plugin/pkg/admission/podnodeselector`).

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Attributes, Objects, Operation, Plugin};
use crate::meta::names::{label_key, label_value};
use crate::meta::status::Result;
use crate::meta::{FieldError, Gvr, Key, Map, Object, Path, Status, Value};

/// The annotation of a namespace with its selector.
const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// The entry of the configuration with the selector of namespaces that have none.
const CLUSTER_DEFAULT: &str = "clusterDefaultNodeSelector";

type Labels = BTreeMap<String, String>;

/// The selectors of the configuration file, by namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration(BTreeMap<String, String>);

impl Configuration {
    /// Reads the configuration, which has no version. Its other fields belong to other plugins.
    ///
    /// # Errors
    /// A selector that is no text.
    pub fn read(value: &Value) -> std::result::Result<Self, String> {
        const FIELD: &str = "podNodeSelectorPluginConfig";
        let selectors = match value.get(FIELD) {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Object(map)) => map,
            Some(_) => return Err(format!("{FIELD} is not an object")),
        };
        let text = |(namespace, selector): (&Key, &Value)| match selector {
            Value::String(text) => Ok((namespace.to_string(), text.to_string())),
            _ => Err(format!("{FIELD}.{namespace} is not a string")),
        };
        selectors
            .iter()
            .map(text)
            .collect::<std::result::Result<_, _>>()
            .map(Self)
    }

    fn labels(&self, namespace: &str) -> Result<Labels> {
        parse(self.0.get(namespace).map_or("", String::as_str))
    }
}

/// Reads a selector such as `a=b, c=d` (apimachinery `labels.ConvertSelectorToLabelsMap`).
fn parse(selector: &str) -> Result<Labels> {
    // Upstream's error is no Status: clients get a 500 with its text.
    let wrong = |why: String| Status::failure(500, "", why);
    let mut labels = Labels::new();
    if selector.is_empty() {
        return Ok(labels);
    }
    for label in selector.split(',') {
        let parts: Vec<&str> = label.split('=').collect();
        let [key, value] = parts.as_slice() else {
            return Err(wrong(format!("invalid selector: [{}]", parts.join(" "))));
        };
        let (key, value) = (key.trim(), value.trim());
        let of_key = (Path::new("<nil>"), key, label_key(key));
        let of_value = (Path::new(format!("[{key}]")), value, label_value(value));
        for (path, shown, problems) in [of_key, of_value] {
            if !problems.is_empty() {
                let error = FieldError::invalid(&path, shown, problems.join("; "));
                return Err(wrong(error.to_string()));
            }
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

/// The plugin.
pub struct PodNodeSelector {
    pub objects: Arc<dyn Objects>,
    pub configuration: Configuration,
}

impl PodNodeSelector {
    /// Returns the selector of a namespace.
    async fn selector(&self, namespace: &str) -> Result<Labels> {
        let gvr = Gvr::new("", "v1", "namespaces");
        let Some(found) = self.objects.get(&gvr, "", namespace).await? else {
            let why = format!("namespace {namespace} does not exist");
            return Err(Status::internal(why));
        };
        let annotated = found.annotations().and_then(|all| all.get(ANNOTATION));
        match annotated.and_then(Value::as_str) {
            Some(selector) => parse(selector),
            None => self.configuration.labels(CLUSTER_DEFAULT),
        }
    }
}

/// The labels that a pod selects nodes by.
fn selected(pod: &Object) -> impl Iterator<Item = (&str, &str)> {
    let labels = pod.at("/spec/nodeSelector").and_then(Value::as_object);
    let entries = labels.into_iter().flat_map(Map::iter);
    entries.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

fn check_conflict(attributes: &Attributes<'_>, pod: &Object, selector: &Labels) -> Result<()> {
    let differs = |(key, value): (&str, &str)| selector.get(key).is_some_and(|own| own != value);
    match selected(pod).any(differs) {
        false => Ok(()),
        true => {
            let why = "pod node label selector conflicts with its namespace node label selector";
            Err(Status::forbidden(attributes.gvr, pod.name(), why))
        }
    }
}

#[async_trait]
impl Plugin for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is("", "pods")
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let selector = self.selector(attributes.namespace).await?;
        if let Some(pod) = attributes.object() {
            check_conflict(attributes, pod, &selector)?;
        }
        if let Some(pod) = attributes.object_mut().filter(|_| !selector.is_empty()) {
            let slot = pod.section_mut("spec").entry("nodeSelector");
            let slot = slot.or_insert(Value::Null);
            let mut merged = slot.as_object().cloned().unwrap_or_default();
            for (key, value) in selector {
                merged.insert(key, value.into());
            }
            merged.sort_keys();
            *slot = Value::Object(merged);
        }
        self.validate(attributes).await
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let selector = self.selector(attributes.namespace).await?;
        let Some(pod) = attributes.object() else {
            return Ok(());
        };
        check_conflict(attributes, pod, &selector)?;
        let allowed = self.configuration.labels(attributes.namespace)?;
        let allows = |(key, value): (&str, &str)| allowed.get(key).is_some_and(|own| own == value);
        if allowed.is_empty() || selected(pod).all(allows) {
            return Ok(());
        }
        let why = "pod node label selector labels conflict with its namespace whitelist";
        Err(Status::forbidden(attributes.gvr, pod.name(), why))
    }
}
