//! The stores of resources that `--etcd-servers-overrides` names.

use std::sync::Arc;

use crate::cacher::Reflector;
use crate::options::config::{EtcdOverride, StorageConfig};
use crate::storage::Storage;

/// A store with what keeps the watch caches over it; `None` where the operator wants none.
#[derive(Clone)]
pub struct Backend {
    pub storage: Arc<dyn Storage>,
    pub reflector: Option<Arc<Reflector>>,
}

impl Backend {
    /// A store, with a reflector if the operator wants watch caches. Needs a runtime.
    pub fn new(storage: Arc<dyn Storage>, config: &StorageConfig) -> Self {
        let reflector = config.watch_cache.then(|| {
            Arc::new(Reflector::start(
                storage.clone(),
                &format!("{}/", config.prefix),
            ))
        });
        Self { storage, reflector }
    }
}

/// The resources that have a backend of their own.
#[derive(Clone, Default)]
pub struct StorageOverrides {
    /// One for each set of servers, in the order of the flag.
    backends: Vec<Backend>,
    resources: Vec<(EtcdOverride, usize)>,
}

impl StorageOverrides {
    /// The sets of servers that are named, each once, however they are ordered.
    pub fn servers(overrides: &[EtcdOverride]) -> Vec<Vec<String>> {
        let mut all: Vec<Vec<String>> = Vec::new();
        for one in overrides {
            if !all.iter().any(|servers| same(servers, &one.servers)) {
                all.push(one.servers.clone());
            }
        }
        all
    }

    /// `backends` are the stores at [`StorageOverrides::servers`], in their order.
    pub fn new(overrides: &[EtcdOverride], backends: Vec<Backend>) -> Self {
        let servers = Self::servers(overrides);
        let at = |one: &EtcdOverride| {
            servers
                .iter()
                .position(|set| same(set, &one.servers))
                .unwrap_or(0)
        };
        Self {
            resources: overrides.iter().map(|one| (one.clone(), at(one))).collect(),
            backends,
        }
    }

    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// The store of a resource, if it is one of these. As upstream's (`storage_factory.go`): the
    /// resource itself counts before its whole group (`apps/*`), the last mention before others,
    /// and events of either group are those of the core.
    pub fn of(&self, group: &str, resource: &str) -> Option<&Backend> {
        let group = if (group, resource) == ("events.k8s.io", "events") {
            ""
        } else {
            group
        };
        let named = |name: &str| {
            self.resources
                .iter()
                .rev()
                .find(|(one, _)| one.group == group && one.resource == name)
        };
        let (_, at) = named(resource).or_else(|| named("*"))?;
        self.backends.get(*at)
    }
}

fn same(a: &[String], b: &[String]) -> bool {
    let sorted = |servers: &[String]| {
        let mut servers = servers.to_vec();
        servers.sort_unstable();
        servers
    };
    sorted(a) == sorted(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::embedded::Embedded;

    fn over(group: &str, resource: &str, servers: &[&str]) -> EtcdOverride {
        EtcdOverride {
            group: group.into(),
            resource: resource.into(),
            servers: servers.iter().map(|one| (*one).to_owned()).collect(),
        }
    }

    #[tokio::test]
    async fn a_resource_is_in_the_store_that_names_it() {
        let overrides = [
            over("", "events", &["http://a", "http://b"]),
            over("apps", "*", &["http://c"]),
            over("apps", "deployments", &["http://b", "http://a"]),
            over("batch", "jobs", &["http://a"]),
            over("batch", "jobs", &["http://c"]),
        ];
        assert_eq!(
            StorageOverrides::servers(&overrides),
            [
                vec!["http://a", "http://b"],
                vec!["http://c"],
                vec!["http://a"]
            ]
        );
        let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
        let backends = folders.iter().map(|folder| Backend {
            storage: Arc::new(Embedded::open(folder.path()).expect("a store")),
            reflector: None,
        });
        let storage_overrides = StorageOverrides::new(&overrides, backends.collect());
        let at = |group, resource| {
            let backend = storage_overrides.of(group, resource)?;
            storage_overrides
                .backends()
                .iter()
                .position(|one| Arc::ptr_eq(&one.storage, &backend.storage))
        };
        assert_eq!(
            [
                at("", "events"),
                at("events.k8s.io", "events"),
                at("apps", "deployments")
            ],
            [Some(0); 3]
        );
        assert_eq!(
            [at("apps", "replicasets"), at("batch", "jobs")],
            [Some(1); 2]
        );
        assert_eq!(
            [
                at("", "pods"),
                at("batch", "cronjobs"),
                at("", "deployments")
            ],
            [None; 3]
        );
    }
}
