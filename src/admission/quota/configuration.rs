//! The configuration of ResourceQuota: what may only be used where a quota covers it
//! (`resourcequota.admission.k8s.io`).

use crate::admission::configuration_fields::unknown_field;
use crate::meta::{FieldError, Gvr, Path, Value, array_at, str_at};

/// The versions of the configuration, and its kind there.
const KINDS: [(&str, &str); 3] = [
    ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
    ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
    ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
];

/// A condition on the scope of an object (`ScopedResourceSelectorRequirement`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub scope: String,
    pub operator: String,
    pub values: Vec<String>,
}

impl Requirement {
    /// Reads a requirement.
    pub fn read(value: &Value) -> Self {
        Self {
            scope: str_at(value, "/scopeName").to_owned(),
            operator: str_at(value, "/operator").to_owned(),
            values: texts(value, "/values"),
        }
    }
}

/// The requirement as Go prints it.
impl std::fmt::Display for Requirement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let values = self.values.join(" ");
        write!(f, "{{{} {} [{values}]}}", self.scope, self.operator)
    }
}

/// A resource of which nothing is used without a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitedResource {
    group: String,
    resource: String,
    /// Parts of the names of what is limited.
    pub match_contains: Vec<String>,
    pub match_scopes: Vec<Requirement>,
}

impl LimitedResource {
    /// Reports whether it is about a resource of the API.
    pub fn is_of(&self, gvr: &Gvr) -> bool {
        self.group == gvr.group && self.resource == gvr.resource
    }
}

/// The configuration of the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    pub limited: Vec<LimitedResource>,
}

impl Configuration {
    /// Reads a configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(value: &Value) -> Result<Self, String> {
        let found = (str_at(value, "/apiVersion"), str_at(value, "/kind"));
        if !KINDS.contains(&found) {
            let (version, kind) = KINDS[0];
            return Err(format!("expected {kind} of {version}"));
        }
        if let Some(why) = unknown_field(value, &["apiVersion", "kind", "limitedResources"]) {
            return Err(why);
        }
        let mut limited = Vec::new();
        for (index, one) in array_at(value, "/limitedResources").iter().enumerate() {
            let known = ["apiGroup", "resource", "matchContains", "matchScopes"];
            if let Some(why) = unknown_field(one, &known) {
                return Err(why);
            }
            if str_at(one, "/resource").is_empty() {
                let path = Path::new("limitedResources").index(index).child("resource");
                return Err(FieldError::required(&path, "").to_string());
            }
            limited.push(LimitedResource {
                group: str_at(one, "/apiGroup").to_owned(),
                resource: str_at(one, "/resource").to_owned(),
                match_contains: texts(one, "/matchContains"),
                match_scopes: array_at(one, "/matchScopes")
                    .iter()
                    .map(Requirement::read)
                    .collect(),
            });
        }
        Ok(Self { limited })
    }
}

fn texts(value: &Value, path: &str) -> Vec<String> {
    let texts = array_at(value, path).iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}
