//! Authentication, impersonation and authorization.

pub mod authn;
pub mod authz;
pub mod cel;
pub mod impersonation;

use std::collections::BTreeMap;

/// An authenticated (or anonymous) user.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The components of a control plane, besides administrators and nodes.
const CONTROL_PLANE: [&str; 2] = ["system:kube-controller-manager", "system:kube-scheduler"];

impl User {
    /// Returns the length of its texts in bytes.
    pub fn bytes(&self) -> usize {
        let extra = self.extra.iter();
        let extra = extra.flat_map(|(key, values)| std::iter::once(key).chain(values));
        let texts = [&self.name, &self.uid].into_iter();
        texts
            .chain(&self.groups)
            .chain(extra)
            .map(String::len)
            .sum()
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }

    /// Reports whether it is an administrator or a component of the control plane.
    pub fn is_privileged(&self) -> bool {
        self.is_in(MASTERS) || CONTROL_PLANE.contains(&self.name.as_str())
    }

    /// Reports whether the cluster depends on this user, as it does on nodes.
    pub fn is_essential(&self) -> bool {
        self.is_privileged() || self.is_in(authz::node::NODES)
    }

    /// Returns the user that the server itself acts as (apiserver `user.APIServerUser`).
    pub fn apiserver() -> Self {
        Self {
            name: "system:apiserver".to_owned(),
            groups: vec![MASTERS.to_owned()],
            ..Self::default()
        }
    }
}

/// The group of every authenticated user.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of every anonymous user.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of an anonymous user.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group that is always authorized.
pub const MASTERS: &str = "system:masters";

/// The source of objects for authentication, which looks up secrets, service accounts, pods and
/// nodes.
#[async_trait::async_trait]
pub trait ObjectSource: Send + Sync {
    /// The object, or `None` if there is none (or the store fails). `namespace` is empty for
    /// cluster-wide kinds.
    async fn get(
        &self,
        gvr: &crate::meta::Gvr,
        namespace: &str,
        name: &str,
    ) -> Option<crate::meta::Object>;

    /// The object as far as this server knows, without asking the store: for names that anybody may
    /// make up. `None` also until the caches are filled.
    async fn known(
        &self,
        gvr: &crate::meta::Gvr,
        namespace: &str,
        name: &str,
    ) -> Option<crate::meta::Object> {
        self.get(gvr, namespace, name).await
    }

    /// Sets a label of an object that [`ObjectSource::get`] returned.
    ///
    /// # Errors
    /// The store's, 409 if it is another object by now, or that the source is read-only.
    async fn set_label(
        &self,
        gvr: &crate::meta::Gvr,
        _object: &crate::meta::Object,
        _key: &str,
        _value: &str,
    ) -> crate::meta::status::Result<()> {
        Err(crate::meta::Status::internal(format!(
            "{} cannot be written here",
            gvr.group_resource()
        )))
    }
}
