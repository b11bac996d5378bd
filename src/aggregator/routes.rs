//! The paths that other servers answer.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::api_service::ApiService;
use super::backend::Backend;
use super::catalog::{Catalog, Observer};
use crate::base::dial::Dial;
use crate::webhook::tls::ClientCert;

/// An APIService whose requests go to another server.
#[derive(Debug)]
pub struct Route {
    pub service: Arc<ApiService>,
    pub backend: Arc<Backend>,
}

/// The routes, by group and version.
#[derive(Default)]
pub struct Routes {
    by_version: ArcSwap<HashMap<String, Arc<Route>>>,
    /// The certificate that this server presents to others.
    cert: Mutex<Option<ClientCert>>,
    /// The dialer of their network; `None` where connections are direct.
    dialer: Option<Arc<dyn Dial>>,
}

impl Routes {
    /// Returns routes to servers to which this one presents a certificate.
    pub fn new(cert: Option<ClientCert>, dialer: Option<Arc<dyn Dial>>) -> Self {
        Self {
            cert: Mutex::new(cert),
            dialer,
            ..Self::default()
        }
    }

    /// Returns the route of a decoded path; `None` for one that this server answers.
    pub fn find(&self, path: &str) -> Option<Arc<Route>> {
        let routes = self.by_version.load();
        if routes.is_empty() {
            return None;
        }
        let (group, version) = group_version(path)?;
        let route = routes.get(&format!("{version}.{group}"))?;
        Some(route.clone())
    }

    /// The route of an APIService.
    pub fn get(&self, name: &str) -> Option<Arc<Route>> {
        self.by_version.load().get(name).cloned()
    }

    /// The server behind an APIService.
    pub fn backend(&self, name: &str) -> Option<Arc<Backend>> {
        self.get(name).map(|route| route.backend.clone())
    }

    /// The names of the APIServices whose server is behind a service.
    pub fn behind(&self, namespace: &str, service: &str) -> Vec<String> {
        let routes = self.by_version.load();
        let of_service = routes.iter().filter(|(_, route)| {
            let known = &route.backend.remote.service;
            known.name == service && known.namespace == namespace
        });
        of_service.map(|(name, _)| name.clone()).collect()
    }

    /// All routes, by the name of their APIService.
    pub fn all(&self) -> Arc<HashMap<String, Arc<Route>>> {
        self.by_version.load_full()
    }

    /// Presents another certificate from now on. Connections that are open stay.
    pub fn replace_cert(&self, cert: ClientCert, catalog: &Catalog) {
        *self.cert.lock() = Some(cert);
        catalog.each(|service| self.put(service, true));
    }

    /// Adds or replaces the route of an APIService, or removes that of a local one.
    fn put(&self, service: &Arc<ApiService>, anew: bool) {
        let Some(remote) = &service.remote else {
            return self.remove(&service.name);
        };
        let known = self.backend(&service.name);
        let backend = known
            .filter(|known| !anew && known.remote == *remote)
            .unwrap_or_else(|| {
                let (cert, dialer) = (self.cert.lock().clone(), self.dialer.clone());
                Arc::new(Backend::new(remote.clone(), cert, dialer))
            });
        let route = Arc::new(Route {
            service: service.clone(),
            backend,
        });
        self.by_version.rcu(|routes| {
            let mut next = HashMap::clone(routes);
            next.insert(service.name.clone(), route.clone());
            next
        });
    }

    fn remove(&self, name: &str) {
        if self.by_version.load().contains_key(name) {
            self.by_version.rcu(|routes| {
                let mut next = HashMap::clone(routes);
                next.remove(name);
                next
            });
        }
    }
}

impl Observer for Routes {
    fn changed(&self, before: Option<&ApiService>, now: Option<&Arc<ApiService>>) {
        match (now, before) {
            (Some(now), _) => self.put(now, false),
            (None, Some(before)) => self.remove(&before.name),
            (None, None) => {}
        }
    }
}

/// The group and version that a path is below, or at.
fn group_version(path: &str) -> Option<(&str, &str)> {
    if let Some(rest) = path.strip_prefix("/apis/") {
        let (group, rest) = rest.split_once('/')?;
        let (version, _) = rest.split_once('/').unwrap_or((rest, ""));
        return Some((group, version)).filter(|_| !group.is_empty() && !version.is_empty());
    }
    // The APIService of the core group has all of `/api`.
    let rest = path.strip_prefix("/api")?;
    (rest.is_empty() || rest.starts_with('/')).then_some(("", "v1"))
}

#[cfg(test)]
mod tests {
    use super::super::api_service::tests::object;
    use super::*;
    use crate::controlplane::informer::EventHandler;
    use crate::meta::json;

    #[test]
    fn paths_lead_to_the_server_of_their_version() {
        let (catalog, routes) = (Catalog::default(), Arc::new(Routes::default()));
        catalog.attach(routes.clone());
        let service = |revision, name: &str| {
            let service =
                json!({"service": {"namespace": "n", "name": name}, "insecureSkipTLSVerify": true});
            object("a.example.com", revision, service)
        };
        catalog.upsert(&service(1, "s"));
        let found = |path: &str| routes.find(path).map(|route| route.service.name.clone());
        for path in [
            "/apis/a.example.com/v1",
            "/apis/a.example.com/v1/",
            "/apis/a.example.com/v1/x/y",
        ] {
            assert_eq!(found(path).as_deref(), Some("v1.a.example.com"), "{path}");
        }
        for path in [
            "/apis/a.example.com",
            "/apis/a.example.com/v2/x",
            "/apis//v1",
            "/api/v1/pods",
            "/apisa",
        ] {
            assert_eq!(found(path), None, "{path}");
        }
        assert_eq!(routes.behind("n", "s"), ["v1.a.example.com"]);
        assert_eq!(routes.behind("m", "s"), [""; 0]);
        let backend = || routes.backend("v1.a.example.com").expect("a server");
        let first = backend();
        catalog.upsert(&service(2, "s"));
        assert!(Arc::ptr_eq(&first, &backend()), "connections are kept");
        catalog.upsert(&service(3, "t"));
        assert!(!Arc::ptr_eq(&first, &backend()));
        catalog.upsert(&object("a.example.com", 4, json!({})));
        assert_eq!(found("/apis/a.example.com/v1"), None, "it is local now");
        assert_eq!(group_version("/api"), Some(("", "v1")));
        assert_eq!(group_version("/api/v1/pods"), Some(("", "v1")));
    }
}
