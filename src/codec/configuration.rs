//! Configuration files: objects of the group `apiserver.config.k8s.io` in YAML or JSON, in which
//! nothing may be unknown (apimachinery `runtime/serializer`, strict).

use super::{from_value, yaml};
use crate::meta::{Gvk, Object, go, str_at};
use crate::schema;

/// The group of the types, and those in which their older versions are.
const GROUP: &str = "apiserver.config.k8s.io";
/// The apiVersions of the types, which have the same fields in each.
pub const API_VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
];
/// The older name of the group, in which v1alpha1 is.
const LEGACY_API_VERSIONS: [&str; 2] = ["apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"];

/// Decodes a file that holds an object of `kind`.
///
/// # Errors
/// Upstream's text: it is malformed, of another kind or version, or has fields that are unknown,
/// come twice or are of the wrong type.
pub fn decode(bytes: &[u8], kind: &str) -> Result<Object, String> {
    let malformed = |why: &dyn std::fmt::Display| format!("couldn't get version/kind; {why}");
    let (value, duplicates) = yaml::to_value(bytes).map_err(|why| malformed(&why))?;
    let shown = || String::from_utf8_lossy(bytes).into_owned();
    let (found, api_version) = (str_at(&value, "/kind"), str_at(&value, "/apiVersion"));
    if found.is_empty() {
        return Err(format!("Object 'Kind' is missing in '{}'", shown()));
    }
    if api_version.is_empty() {
        return Err(format!("Object 'apiVersion' is missing in '{}'", shown()));
    }
    let known = API_VERSIONS.contains(&api_version) || LEGACY_API_VERSIONS.contains(&api_version);
    let ty = schema::builtin()
        .get(&Gvk::new(GROUP, "v1", found))
        .filter(|_| known && found == kind);
    let Some(ty) = ty else {
        return Err(format!(
            "no kind {} is registered for version {}",
            go::quote(found),
            go::quote(api_version)
        ));
    };
    let decoded = from_value(&value, ty).map_err(|why| why.0)?;
    let mut issues = duplicates;
    issues.extend(decoded.issues);
    match issues.is_empty() {
        true => Ok(decoded.object),
        false => Err(format!("strict decoding error: {}", issues.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_decoded_strictly() {
        let header =
            "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthorizationConfiguration\n";
        let good = format!("{header}authorizers: [{{type: RBAC, name: rbac}}]");
        let object = decode(good.as_bytes(), "AuthorizationConfiguration").expect("an object");
        assert_eq!(object.str_at("/authorizers/0/name"), "rbac");
        let checks = [
            ("", "Object 'Kind' is missing in ''"),
            (
                "kind: AuthorizationConfiguration",
                "Object 'apiVersion' is missing in 'kind: AuthorizationConfiguration'",
            ),
            (
                "kind: AuthorizationConfiguration\napiVersion: v1",
                "no kind \"AuthorizationConfiguration\" is registered for version \"v1\"",
            ),
            (
                "kind: AuthenticationConfiguration\napiVersion: apiserver.config.k8s.io/v1",
                "no kind \"AuthenticationConfiguration\" is registered for version \"apiserver.config.k8s.io/v1\"",
            ),
            (
                &format!("{header}authorizers: [{{typ: RBAC}}]"),
                "strict decoding error: unknown field \"authorizers[0].typ\"",
            ),
            (
                &format!("{header}authorizers: [{{type: 1}}]"),
                "json: cannot unmarshal number into Go struct field AuthorizerConfiguration.authorizers.type of type string",
            ),
        ];
        for (text, want) in checks {
            let why = decode(text.as_bytes(), "AuthorizationConfiguration").expect_err(text);
            assert_eq!(why, want, "{text}");
        }
    }
}
