//! Authorization of the writers of policies and bindings: they must be allowed to read the
//! parameters that these refer to, since expressions can show what is in them
//! (`pkg/registry/admissionregistration/*/authz.go`).

use std::sync::Arc;

use crate::admission::kinds::Kinds;
use crate::admission::{GROUP, Objects};
use crate::auth::authz::{self, Authorizer};
use crate::auth::{MASTERS, User};
use crate::meta::{ErrorList, Gvk, Gvr, Object, Path, Value, str_at};

/// A write of a policy or of a binding.
pub struct ReferenceWrite<'a> {
    pub gvr: &'a Gvr,
    pub object: &'a Object,
    pub old: Option<&'a Object>,
    pub user: &'a Arc<User>,
}

/// The dependencies of the checks.
pub struct Resolver {
    pub objects: Arc<dyn Objects>,
    pub kinds: Arc<dyn Kinds>,
    pub authorizer: Arc<dyn Authorizer>,
}

/// Returns what is wrong with the parameters that a policy or binding refers to; nothing for other
/// objects.
pub async fn errors(write: &ReferenceWrite<'_>, resolver: &Resolver) -> ErrorList {
    let mut errors = ErrorList::new();
    if write.gvr.group != GROUP || write.user.is_in(MASTERS) {
        return errors;
    }
    let (field, refused) = match write.gvr.resource.as_str() {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
            ("paramKind", resolver.of_policy(write).await)
        }
        "validatingadmissionpolicybindings" => {
            ("paramRef", resolver.of_binding(write, VALIDATING).await)
        }
        "mutatingadmissionpolicybindings" => {
            ("paramRef", resolver.of_binding(write, MUTATING).await)
        }
        _ => return errors,
    };
    if let Err(why) = refused {
        errors.forbidden(&Path::new("spec").child(field), why);
    }
    errors
}

const VALIDATING: &str = "validatingadmissionpolicies";
const MUTATING: &str = "mutatingadmissionpolicies";

/// A user as Go prints the pointer to it.
fn shown(user: &User) -> String {
    let extra: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{key}:[{}]", values.join(" ")))
        .collect();
    format!(
        "&{{{} {} [{}] map[{}]}}",
        user.name,
        user.uid,
        user.groups.join(" "),
        extra.join(" ")
    )
}

/// The group, version and resource of parameters; `*` for what is not known.
struct Known {
    group: String,
    version: String,
    resource: String,
    /// True if the resource is known.
    resolved: bool,
}

impl Resolver {
    fn known(&self, kind: Option<&Value>) -> Known {
        let any = || "*".to_owned();
        let Some(kind) = kind else {
            return Known {
                group: any(),
                version: any(),
                resource: any(),
                resolved: false,
            };
        };
        let gvk = Gvk::from_api_version(str_at(kind, "/apiVersion"), str_at(kind, "/kind"));
        let found = self.kinds.resource_of(&gvk);
        Known {
            resolved: found.is_some(),
            resource: found.map_or_else(any, |found| found.gvr.resource),
            group: gvk.group,
            version: gvk.version,
        }
    }

    async fn allows(&self, attributes: authz::Attributes) -> bool {
        self.authorizer.authorize(&attributes).await.is_allowed()
    }

    /// Checks the writer of a policy: whoever sets the kind of parameters must be allowed to read
    /// all of the kind.
    async fn of_policy(&self, write: &ReferenceWrite<'_>) -> Result<(), String> {
        let kind_of = |object: &'_ Object| {
            let kind = object.at("/spec/paramKind").filter(|kind| kind.is_object());
            kind.cloned()
        };
        let Some(kind) = kind_of(write.object) else {
            return Ok(());
        };
        if write.old.and_then(kind_of).as_ref() == Some(&kind) {
            return Ok(());
        }
        let known = self.known(Some(&kind));
        let asked = authz::Attributes {
            user: write.user.clone(),
            verb: "get".to_owned(),
            resource_request: true,
            name: "*".to_owned(),
            namespace: "*".to_owned(),
            group: known.group,
            version: known.version,
            resource: known.resource,
            ..authz::Attributes::default()
        };
        if self.allows(asked).await {
            return Ok(());
        }
        Err(format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            shown(write.user),
            str_at(&kind, "/kind"),
            str_at(&kind, "/apiVersion")
        ))
    }

    /// Checks the writer of a binding: whoever refers to parameters must be allowed to read them.
    async fn of_binding(&self, write: &ReferenceWrite<'_>, policies: &str) -> Result<(), String> {
        let reference = write.object.at("/spec/paramRef");
        let Some(reference) = reference.filter(|reference| reference.is_object()) else {
            return Ok(());
        };
        let name = write.object.str_at("/spec/policyName");
        let gvr = Gvr::new(GROUP, "v1", policies);
        let policy = self.objects.get(&gvr, "", name).await.ok().flatten();
        let kind = policy
            .as_ref()
            .and_then(|policy| policy.at("/spec/paramKind"))
            .filter(|kind| kind.is_object());
        let known = self.known(kind);
        let verb = match str_at(reference, "/name") {
            "" => "list",
            _ => "get",
        };
        let asked = authz::Attributes {
            user: write.user.clone(),
            verb: verb.to_owned(),
            resource_request: true,
            name: str_at(reference, "/name").to_owned(),
            namespace: str_at(reference, "/namespace").to_owned(),
            group: known.group,
            version: known.version,
            resource: known.resource,
            ..authz::Attributes::default()
        };
        if self.allows(asked).await {
            return Ok(());
        }
        let user = shown(write.user);
        let everything = format!(
            "user {user} does not have \"{verb}\" permission for all groups, versions and resources"
        );
        Err(match kind {
            _ if policy.is_none() => format!(
                "unable to get policy {name} to determine minimum required permissions and {everything}"
            ),
            Some(kind) if !known.resolved => format!(
                "unable to resolve paramKind &{{{} {}}} to determine minimum required permissions and {everything}",
                str_at(kind, "/apiVersion"),
                str_at(kind, "/kind")
            ),
            // Upstream has the two mixed up.
            _ if policies == MUTATING => format!(
                "user {verb} does not have \"{user}\" permission on the object referenced by paramRef"
            ),
            _ => format!(
                "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
            ),
        })
    }
}
