//! The resources that keys of a store belong to.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use crate::schema;

/// A resource with its group, either of which may be `*` in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupResource {
    pub group: String,
    pub resource: String,
}

impl GroupResource {
    /// Reads `resource.group` (apimachinery `schema.ParseGroupResource`).
    pub fn parse(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
        }
    }

    /// All resources of a group.
    pub fn all_of(group: &str) -> Self {
        Self {
            group: group.to_owned(),
            resource: "*".to_owned(),
        }
    }

    /// Reports whether it stands for all resources of all groups.
    pub fn is_everything(&self) -> bool {
        self.group == "*" && self.resource == "*"
    }
}

/// Formats it as configurations name it.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.group.as_str(), self.resource.as_str()) {
            ("", "*") => f.write_str("*."),
            ("", resource) => f.write_str(resource),
            (group, resource) => write!(f, "{resource}.{group}"),
        }
    }
}

/// The resources of the keys below a root.
#[derive(Debug)]
pub struct KeySpace {
    /// With a slash at the end.
    root: String,
    /// The built-in resources by their prefixes.
    builtin: BTreeMap<String, GroupResource>,
}

impl KeySpace {
    /// The keys of all resources below `root`.
    pub fn new(root: &str) -> Self {
        let root = format!("{}/", root.trim_end_matches('/'));
        let mut builtin = BTreeMap::new();
        let stored = schema::builtin()
            .resources
            .iter()
            .filter(|decl| !decl.storage_prefix.is_empty());
        for decl in stored {
            let name = GroupResource {
                group: decl.group.clone(),
                resource: decl.resource.clone(),
            };
            let known = builtin
                .entry(format!("{root}{}/", decl.storage_prefix))
                .or_insert_with(|| name.clone());
            // Events are served by two groups and stored as those of the core.
            if name.group.is_empty() {
                *known = name;
            }
        }
        Self { root, builtin }
    }

    /// Returns the resource of a key; `None` for keys that belong to none.
    pub fn resource(&self, key: &str) -> Option<Cow<'_, GroupResource>> {
        let below: (Bound<&str>, Bound<&str>) = (Bound::Unbounded, Bound::Included(key));
        if let Some((prefix, resource)) = self.builtin.range::<str, _>(below).next_back()
            && key.starts_with(prefix.as_str())
        {
            return Some(Cow::Borrowed(resource));
        }
        // Those of definitions: group/plural/...; only a group has a dot.
        let mut parts = key.strip_prefix(&self.root)?.split('/');
        let (group, resource) = (parts.next()?, parts.next()?);
        group.contains('.').then(|| {
            Cow::Owned(GroupResource {
                group: group.to_owned(),
                resource: resource.to_owned(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_belong_to_resources() {
        let keys = KeySpace::new("/registry");
        let of = |key: &str| keys.resource(key).map(|found| found.to_string());
        for (key, resource) in [
            ("/registry/secrets/default/a", Some("secrets")),
            ("/registry/services/specs/default/a", Some("services")),
            ("/registry/services/endpoints/default/a", Some("endpoints")),
            ("/registry/minions/a", Some("nodes")),
            ("/registry/deployments/default/a", Some("deployments.apps")),
            ("/registry/events/default/a", Some("events")),
            (
                "/registry/leases/default/a",
                Some("leases.coordination.k8s.io"),
            ),
            (
                "/registry/apiextensions.k8s.io/customresourcedefinitions/a",
                Some("customresourcedefinitions.apiextensions.k8s.io"),
            ),
            (
                "/registry/example.com/secrets/default/a",
                Some("secrets.example.com"),
            ),
            ("/registry/masterleases/10.0.0.1", None),
            ("/registry/ranges/serviceips", None),
            ("compact_rev_key", None),
            ("/other/secrets/default/a", None),
        ] {
            assert_eq!(of(key).as_deref(), resource, "{key}");
        }
    }
}
