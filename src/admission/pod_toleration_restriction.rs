//! PodTolerationRestriction: pods get the tolerations of their namespace, and may have none beyond
//! its list (`plugin/pkg/admission/podtolerationrestriction`).

use std::sync::Arc;

use async_trait::async_trait;

use super::resource_list::is_best_effort;
use super::taints::list_mut;
use super::tolerations::{merge_tolerations, tolerates_all};
use super::{Attributes, Objects, Operation, Plugin};
use crate::codec::json::Document;
use crate::meta::go::json_type;
use crate::meta::status::Result;
use crate::meta::{Gvr, Map, Status, Value, json, str_at};

/// The annotations of a namespace: what its pods get, and what they may have.
const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const WHITELIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";
const API_VERSION: &str = "podtolerationrestriction.admission.k8s.io/v1alpha1";
/// The comparisons of a pod's tolerations with those of the list.
const MAX_COMPARISONS: usize = 10_000_000;

/// The lists for namespaces that have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    pub default: Vec<Value>,
    pub whitelist: Vec<Value>,
}

impl Configuration {
    /// Reads a `Configuration` of the group of the plugin.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(value: &Value) -> std::result::Result<Self, String> {
        if str_at(value, "/kind") != "Configuration" || str_at(value, "/apiVersion") != API_VERSION
        {
            return Err(format!("expected Configuration of {API_VERSION}"));
        }
        let list = |field: &str| -> std::result::Result<Vec<Value>, String> {
            match value.get(field) {
                None => Ok(Vec::new()),
                Some(list) => tolerations(list),
            }
        };
        Ok(Self {
            default: list("default")?,
            whitelist: list("whitelist")?,
        })
    }
}

/// Reads a list of tolerations, with the errors of Go's decoder.
fn tolerations(list: &Value) -> std::result::Result<Vec<Value>, String> {
    let items = match list {
        Value::Null => return Ok(Vec::new()),
        Value::Array(items) => items,
        other => {
            let found = json_type(other);
            return Err(format!(
                "json: cannot unmarshal {found} into Go value of type []v1.Toleration"
            ));
        }
    };
    items.iter().map(toleration).collect()
}

fn toleration(item: &Value) -> std::result::Result<Value, String> {
    const TEXTS: [(&str, &str); 4] = [
        ("key", "string"),
        ("operator", "v1.TolerationOperator"),
        ("value", "string"),
        ("effect", "v1.TaintEffect"),
    ];
    let mut out = Map::new();
    if item.is_null() {
        return Ok(Value::Object(out));
    }
    if !item.is_object() {
        let found = json_type(item);
        return Err(format!(
            "json: cannot unmarshal {found} into Go value of type v1.Toleration"
        ));
    }
    let wrong = |field: &str, value: &Value, ty: &str| {
        let found = json_type(value);
        Err(format!(
            "json: cannot unmarshal {found} into Go struct field Toleration.{field} of type {ty}"
        ))
    };
    for (field, ty) in TEXTS {
        match item.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) if text.is_empty() => {}
            Some(value @ Value::String(_)) => {
                out.insert(field, value.clone());
            }
            Some(other) => return wrong(field, other, ty),
        }
    }
    const SECONDS: &str = "tolerationSeconds";
    match item.get(SECONDS) {
        None | Some(Value::Null) => {}
        Some(value) if value.is_i64() => {
            out.insert(SECONDS, value.clone());
        }
        Some(other) => return wrong(SECONDS, other, "int64"),
    }
    Ok(Value::Object(out))
}

/// The plugin.
pub struct PodTolerationRestriction {
    pub objects: Arc<dyn Objects>,
    pub configuration: Configuration,
}

impl PodTolerationRestriction {
    /// Returns the tolerations in an annotation of a namespace; `None` if it has none.
    async fn annotated(&self, namespace: &str, key: &str) -> Result<Option<Vec<Value>>> {
        let gvr = Gvr::new("", "v1", "namespaces");
        let Some(found) = self.objects.get(&gvr, "", namespace).await? else {
            return Err(Status::not_found(&gvr, namespace));
        };
        let annotation = found.annotations().and_then(|all| all.get(key));
        let text = match annotation.and_then(Value::as_str) {
            None => return Ok(None),
            Some("") => return Ok(Some(Vec::new())),
            Some(text) => text,
        };
        let value = Document::new(text.as_bytes()).and_then(Document::value);
        let list = value
            .map_err(|why| why.0)
            .and_then(|list| tolerations(&list));
        // Upstream's error is no Status: clients get a 500 with its text.
        list.map(Some).map_err(|why| Status::failure(500, "", why))
    }
}

#[async_trait]
impl Plugin for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && attributes.is("", "pods")
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let mut more = Vec::new();
        if attributes.operation == Operation::Create {
            let own = self.annotated(attributes.namespace, DEFAULTS).await?;
            more = own.unwrap_or_else(|| self.configuration.default.clone());
        }
        if let Some(pod) = attributes.object_mut() {
            if !is_best_effort(pod) {
                more.push(json!({
                    "key": MEMORY_PRESSURE, "operator": "Exists", "effect": "NoSchedule",
                }));
            }
            if !more.is_empty() {
                let tolerations = list_mut(pod.section_mut("spec"), "tolerations");
                *tolerations = merge_tolerations(std::mem::take(tolerations), &more);
            }
        }
        self.validate(attributes).await
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let given = attributes
            .object()
            .map(|pod| pod.array_at("/spec/tolerations"));
        let Some(given) = given.filter(|given| !given.is_empty()) else {
            return Ok(());
        };
        let own = self.annotated(attributes.namespace, WHITELIST).await?;
        let (allowed, scope) = match &own {
            Some(own) => (own, "namespace"),
            None => (&self.configuration.whitelist, "cluster"),
        };
        if allowed.is_empty() {
            return Ok(());
        }
        if given.len().saturating_mul(allowed.len()) > MAX_COMPARISONS {
            let why = format!("pod tolerations are too many to compare with the {scope} whitelist");
            return Err(attributes.forbidden(&why));
        }
        let allows = |one: &Value| allowed.iter().any(|wide| tolerates_all(wide, one));
        if given.iter().all(allows) {
            return Ok(());
        }
        let why = format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        );
        Err(Status::failure(500, "", why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_are_read_as_go_reads_them() {
        let read = |text: &str| {
            let value = Document::new(text.as_bytes()).and_then(Document::value);
            value
                .map_err(|why| why.0)
                .and_then(|list| tolerations(&list))
        };
        let known = read(r#"[{"key": "a", "value": "", "more": 1, "tolerationSeconds": 5}, null]"#);
        assert_eq!(
            known,
            Ok(vec![json!({"key": "a", "tolerationSeconds": 5}), json!({})])
        );
        for (text, why) in [
            ("x", "invalid character 'x' looking for beginning of value"),
            (
                "{}",
                "json: cannot unmarshal object into Go value of type []v1.Toleration",
            ),
            (
                r#"[{"effect": 1}]"#,
                "json: cannot unmarshal number into Go struct field Toleration.effect of type v1.TaintEffect",
            ),
            (
                r#"[{"tolerationSeconds": "1"}]"#,
                "json: cannot unmarshal string into Go struct field Toleration.tolerationSeconds of type int64",
            ),
        ] {
            assert_eq!(read(text).err().as_deref(), Some(why), "{text}");
        }
    }

    #[test]
    fn a_configuration_names_its_kind() {
        let value = json!({"kind": "Configuration", "apiVersion": API_VERSION,
            "whitelist": [{"key": "a", "operator": "Exists"}]});
        let read = Configuration::read(&value).expect("a configuration");
        assert_eq!(read.whitelist, [json!({"key": "a", "operator": "Exists"})]);
        assert!(Configuration::read(&json!({"kind": "Configuration"})).is_err());
    }
}
