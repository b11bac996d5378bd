//! An APIService as the aggregator reads it.

use std::sync::Arc;

use crate::discovery::ranks::Rank;
use crate::meta::{Gvr, Object, Value, go, str_at, value_at};
use crate::storage::Revision;

/// The label of APIServices that servers manage.
pub const MANAGED_LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The port of a service that names none.
const DEFAULT_PORT: u16 = 443;
/// The APIService of the core group, whose paths are below `/api`.
const LEGACY: &str = "v1.";

/// Returns the resource of APIServices.
pub fn gvr() -> Gvr {
    Gvr::new("apiregistration.k8s.io", "v1", "apiservices")
}

/// The management of an APIService, as its label tells (kube-aggregator `autoregister`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Management {
    /// It is a user's.
    None,
    /// It is compared once, when a server starts.
    OnStart,
    /// It is compared always.
    Continuous,
}

impl Management {
    fn of(object: &Object) -> Self {
        let label = object.labels().and_then(|labels| labels.get(MANAGED_LABEL));
        match label.and_then(Value::as_str) {
            Some("onstart") => Self::OnStart,
            Some("true") => Self::Continuous,
            _ => Self::None,
        }
    }

    /// The value of the label; `None` where there is none.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::OnStart => Some("onstart"),
            Self::Continuous => Some("true"),
        }
    }
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServicePort {
    pub namespace: String,
    pub name: String,
    pub port: u16,
}

/// The server behind an APIService.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoteServer {
    pub service: ServicePort,
    /// PEM certificates; the system's count where it is empty.
    pub ca_bundle: Vec<u8>,
    pub skips_verification: bool,
}

/// An APIService.
#[derive(Clone, Debug)]
pub struct ApiService {
    pub name: String,
    pub group: String,
    pub version: String,
    pub rank: Rank,
    /// `None` if this server serves the version itself.
    pub remote: Option<RemoteServer>,
    pub management: Management,
    /// The condition `Available` is true.
    pub is_available: bool,
    pub revision: Revision,
    pub object: Arc<Object>,
}

impl ApiService {
    /// Reads an object.
    pub fn read(object: &Object) -> Self {
        let remote = object
            .at("/spec/service")
            .filter(|service| service.is_object())
            .map(|service| RemoteServer {
                service: ServicePort {
                    namespace: str_at(service, "/namespace").to_owned(),
                    name: str_at(service, "/name").to_owned(),
                    port: value_at(service, "/port")
                        .and_then(Value::as_u64)
                        .and_then(|port| u16::try_from(port).ok())
                        .unwrap_or(DEFAULT_PORT),
                },
                ca_bundle: go::base64::decode(object.str_at("/spec/caBundle")),
                skips_verification: object.bool_at("/spec/insecureSkipTLSVerify"),
            });
        let available = available_condition(object);
        Self {
            name: object.name().to_owned(),
            group: object.str_at("/spec/group").to_owned(),
            version: object.str_at("/spec/version").to_owned(),
            rank: Rank {
                group: object.i64_at("/spec/groupPriorityMinimum").unwrap_or(0),
                version: object.i64_at("/spec/versionPriority").unwrap_or(0),
            },
            remote,
            management: Management::of(object),
            is_available: available.is_some_and(|one| str_at(one, "/status") == "True"),
            revision: object.resource_version().parse().unwrap_or(0),
            object: Arc::new(object.clone()),
        }
    }

    /// Returns the path that its server must answer, which is also the top of its resources but
    /// for the core group.
    pub fn path(&self) -> String {
        match self.is_legacy() {
            true => format!("/api/{}", self.version),
            false => format!("/apis/{}/{}", self.group, self.version),
        }
    }

    /// Reports whether it is the one of the core group.
    pub fn is_legacy(&self) -> bool {
        self.name == LEGACY
    }
}

/// The condition `Available` of an APIService.
pub fn available_condition(object: &Object) -> Option<&Value> {
    let mut conditions = object.array_at("/status/conditions").iter();
    conditions.find(|one| str_at(one, "/type") == "Available")
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::meta::json;

    /// An APIService of `v1.GROUP` at a revision, with a spec beyond group and version.
    pub fn object(group: &str, revision: u64, spec: Value) -> Object {
        let mut value = json!({
            "metadata": {"name": format!("v1.{group}"), "resourceVersion": revision.to_string()},
            "spec": {"group": group, "version": "v1"},
        });
        if let (Some(all), Value::Object(more)) = (value["spec"].as_object_mut(), spec) {
            all.extend(more);
        }
        Object::from_value(value).expect("an object")
    }

    #[test]
    fn services_are_read_with_their_defaults() {
        let service = json!({"service": {"namespace": "a", "name": "b"}, "caBundle": "eA=="});
        let read = ApiService::read(&object("example.com", 7, service));
        let remote = read.remote.clone().expect("a server");
        assert_eq!(
            (remote.service.port, &remote.ca_bundle[..]),
            (443, &b"x"[..])
        );
        assert_eq!((read.revision, read.is_available), (7, false));
        assert_eq!(read.path(), "/apis/example.com/v1");
        let core = ApiService::read(&object("", 1, json!({})));
        assert_eq!((core.path().as_str(), core.remote), ("/api/v1", None));
    }
}
