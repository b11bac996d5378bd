//! The discovery documents of the issuer of service account tokens (kube-apiserver
//! `serviceaccount/openidmetadata.go`).

use super::keys::KeySet;
use crate::meta::json;

/// The paths of the documents.
pub const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
pub const KEYS_PATH: &str = "/openid/v1/jwks";
/// The media type of the key set.
pub const KEYS_TYPE: &str = "application/jwk-set+json";
/// The Cache-Control of both.
pub const CACHE_CONTROL: &str = "public, max-age=3600";

/// Both documents, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documents {
    pub configuration: String,
    pub keys: String,
}

/// Renders the documents. `jwks_uri` may be empty; then the key set is at `address` (host and
/// port). `None` if there are no keys, or the issuer is no URL that OpenID allows: then there is no
/// discovery.
pub fn render(issuer: &str, jwks_uri: &str, address: &str, keys: &KeySet) -> Option<Documents> {
    let usable = issuer.starts_with("https://") && !issuer.contains(['?', '#']);
    if !usable || keys.is_empty() {
        return None;
    }
    let jwks_uri = if jwks_uri.is_empty() {
        format!("https://{address}{KEYS_PATH}")
    } else {
        jwks_uri.to_owned()
    };
    let configuration = json!({
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": keys.algorithms(),
    });
    Some(Documents {
        configuration: configuration.to_string(),
        keys: keys.to_jwks().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openid_documents_are_upstreams() {
        let keys = KeySet::from_pem(&[include_str!("testdata/rsa.pub")]).expect("a key");
        let documents = render(
            "https://kubernetes.default.svc.cluster.local",
            "",
            "10.0.0.1:6444",
            &keys,
        )
        .expect("documents");
        assert_eq!(
            documents.configuration,
            r#"{"issuer":"https://kubernetes.default.svc.cluster.local","jwks_uri":"https://10.0.0.1:6444/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["RS256"]}"#
        );
        assert!(
            documents
                .keys
                .starts_with(r#"{"keys":[{"use":"sig","kty":"RSA","kid":""#),
            "{}",
            documents.keys
        );
        assert_eq!(render("kubernetes/serviceaccount", "", "a", &keys), None);
        assert_eq!(render("https://a", "", "a", &KeySet::default()), None);
    }
}
