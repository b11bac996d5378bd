//! The parts of a pod that the checks of its containers and volumes refer to.

use std::collections::HashMap;

use super::validation_options::PodValidationOptions;
use crate::meta::{Map, Path};
use crate::registry::validation::Fields;

/// The rest of a pod, for the checks of a part of it.
pub struct PodScope<'a> {
    pub spec: &'a Map,
    pub options: &'a PodValidationOptions,
    /// The sound volumes, by name.
    pub volumes: HashMap<&'a str, &'a Map>,
    /// The names of resource claims.
    pub claims: Vec<&'a str>,
    pub grace_seconds: Option<i64>,
    pub os: Option<&'a str>,
    /// Users in containers are those of the host.
    pub host_users: bool,
}

/// Each container of a pod with its path: first those that prepare, then those that run, then the
/// later ones.
pub fn each_container<'a>(spec: &'a Map, path: &'a Path) -> impl Iterator<Item = (Path, &'a Map)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(move |key| {
            spec.list(key)
                .iter()
                .enumerate()
                .filter_map(move |(index, container)| {
                    Some((path.child(key).index(index), container.as_object()?))
                })
        })
}
