//! Configuration files: objects in YAML or JSON, whose types the schema has although nothing serves
//! them (apimachinery `runtime/serializer`).

use super::{Decoded, from_value, yaml};
use crate::meta::{Gvk, Object, go, str_at};
use crate::schema;

/// The apiVersions of the types of a server's configuration, which have the same fields in each,
/// and those of an older name of their group.
const API_VERSIONS: [&str; 5] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
    "apiserver.k8s.io/v1beta1",
    "apiserver.k8s.io/v1alpha1",
];

/// A type of files.
#[derive(Clone, Copy, Debug)]
pub struct FileType {
    kind: &'static str,
    /// The group whose version 1 the schema has.
    group: &'static str,
    api_versions: &'static [&'static str],
    /// True if the text of a file is secret, so that no error may show it.
    secret: bool,
}

impl FileType {
    /// A type of the group `apiserver.config.k8s.io`, in all versions.
    pub const fn of_server(kind: &'static str) -> Self {
        Self {
            kind,
            group: "apiserver.config.k8s.io",
            api_versions: &API_VERSIONS,
            secret: false,
        }
    }

    /// An audit policy.
    pub const AUDIT_POLICY: Self = Self {
        kind: "Policy",
        group: "audit.k8s.io",
        api_versions: &["audit.k8s.io/v1"],
        secret: false,
    };

    /// An EgressSelectorConfiguration, which is in the older group alone.
    pub const EGRESS: Self = Self {
        kind: "EgressSelectorConfiguration",
        group: "apiserver.config.k8s.io",
        api_versions: &["apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"],
        secret: false,
    };

    /// An EncryptionConfiguration, which holds keys.
    pub const ENCRYPTION: Self = Self {
        kind: "EncryptionConfiguration",
        group: "apiserver.config.k8s.io",
        api_versions: &["apiserver.config.k8s.io/v1"],
        secret: true,
    };

    /// Decodes a file in which nothing may be unknown.
    ///
    /// # Errors
    /// Upstream's text: it is malformed, of another kind or version, or has fields that are
    /// unknown, come twice or are of the wrong type.
    pub fn decode(&self, bytes: &[u8]) -> Result<Object, String> {
        let decoded = self.decode_leniently(bytes)?;
        match decoded.issues.is_empty() {
            true => Ok(decoded.object),
            false => Err(strict_error(&decoded.issues)),
        }
    }

    /// Decodes a file, and notes fields that are unknown or come twice.
    ///
    /// # Errors
    /// Upstream's text: it is malformed, of another kind or version, or has fields of the wrong
    /// type.
    pub fn decode_leniently(&self, bytes: &[u8]) -> Result<Decoded, String> {
        let malformed = |why: &dyn std::fmt::Display| format!("couldn't get version/kind; {why}");
        let (value, mut issues) = yaml::to_value(bytes).map_err(|why| malformed(&why))?;
        let missing = |field: &str| match self.secret {
            true => format!("Object '{field}' is missing"),
            false => format!(
                "Object '{field}' is missing in '{}'",
                String::from_utf8_lossy(bytes)
            ),
        };
        let (found, api_version) = (str_at(&value, "/kind"), str_at(&value, "/apiVersion"));
        if found.is_empty() {
            return Err(missing("Kind"));
        }
        if api_version.is_empty() {
            return Err(missing("apiVersion"));
        }
        let known = found == self.kind && self.api_versions.contains(&api_version);
        let ty = schema::builtin()
            .get(&Gvk::new(self.group, "v1", found))
            .filter(|_| known);
        let Some(ty) = ty else {
            return Err(format!(
                "no kind {} is registered for version {}",
                go::quote(found),
                go::quote(api_version)
            ));
        };
        let decoded = from_value(&value, ty).map_err(|why| why.0)?;
        issues.extend(decoded.issues);
        Ok(Decoded {
            object: decoded.object,
            issues,
        })
    }
}

/// Returns the error for what is noted (apimachinery `runtime.NewStrictDecodingError`).
pub fn strict_error(issues: &[String]) -> String {
    format!("strict decoding error: {}", issues.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTHORIZATION: FileType = FileType::of_server("AuthorizationConfiguration");

    #[test]
    fn files_are_decoded_strictly() {
        let header =
            "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthorizationConfiguration\n";
        let good = format!("{header}authorizers: [{{type: RBAC, name: rbac}}]");
        let object = AUTHORIZATION.decode(good.as_bytes()).expect("an object");
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
            let why = AUTHORIZATION.decode(text.as_bytes()).expect_err(text);
            assert_eq!(why, want, "{text}");
        }
    }

    #[test]
    fn files_of_keys_are_not_shown() {
        for text in [
            "secret: hush",
            "secret: hush\nkind: EncryptionConfiguration",
        ] {
            let why = FileType::ENCRYPTION
                .decode(text.as_bytes())
                .expect_err(text);
            assert!(why.contains("is missing") && !why.contains("hush"), "{why}");
        }
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrule: []\nrules: [{level: None}]";
        let policy = FileType::AUDIT_POLICY.decode_leniently(policy.as_bytes());
        let policy = policy.expect("a policy");
        assert_eq!(policy.object.str_at("/rules/0/level"), "None");
        assert_eq!(policy.issues, ["unknown field \"rule\""]);
    }
}
