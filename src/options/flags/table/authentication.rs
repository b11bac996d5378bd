//! Flags of the section "Authentication".

use super::{Flag, ignored, refused, used};
use crate::options::flags::Kind::{Array, Duration, List, Map, Switch, Text};

const NO_OIDC: &str = "OpenID Connect authentication is not implemented";
const NO_AUTHN_WEBHOOK: &str = "token webhooks are not implemented";

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    used(Switch, "anonymous-auth", "true",
        "let requests without credentials in as system:anonymous"),
    used(List, "api-audiences", "",
        "the audiences that service account tokens must have been made for (default: the issuers)"),
    refused(Text, "authentication-config", "",
        "structured authentication configuration is not implemented"),
    ignored(Duration, "authentication-token-webhook-cache-ttl", "2m0s",
        "it tunes a webhook that is not configured"),
    refused(Text, "authentication-token-webhook-config-file", "", NO_AUTHN_WEBHOOK),
    ignored(Text, "authentication-token-webhook-version", "v1beta1",
        "it tunes a webhook that is not configured"),
    used(Text, "client-ca-file", "", "the certificate authorities of client certificates"),
    used(Switch, "enable-bootstrap-token-auth", "false",
        "accept the bootstrap tokens that are secrets in kube-system"),
    refused(Text, "oidc-ca-file", "", NO_OIDC),
    refused(Text, "oidc-client-id", "", NO_OIDC),
    refused(Text, "oidc-groups-claim", "", NO_OIDC),
    refused(Text, "oidc-groups-prefix", "", NO_OIDC),
    refused(Text, "oidc-issuer-url", "", NO_OIDC),
    refused(Map, "oidc-required-claim", "", NO_OIDC),
    refused(List, "oidc-signing-algs", "RS256", NO_OIDC),
    refused(Text, "oidc-username-claim", "sub", NO_OIDC),
    refused(Text, "oidc-username-prefix", "", NO_OIDC),
    used(List, "requestheader-allowed-names", "",
        "the common names that a front proxy may have; any if empty"),
    used(Text, "requestheader-client-ca-file", "", "the certificate authorities of front proxies"),
    used(List, "requestheader-extra-headers-prefix", "",
        "what the headers for a user's extra attributes begin with"),
    used(List, "requestheader-group-headers", "",
        "the headers in which a front proxy names groups"),
    used(List, "requestheader-uid-headers", "",
        "the headers in which a front proxy gives the user's UID"),
    used(List, "requestheader-username-headers", "",
        "the headers in which a front proxy names the user"),
    used(Switch, "service-account-extend-token-expiration", "true",
        "make the tokens that pods get valid for a year, to warn before refusing"),
    used(Array, "service-account-issuer", "",
        "who issues service account tokens; further ones are accepted too"),
    used(Text, "service-account-jwks-uri", "",
        "the URI of the key set in the OpenID discovery document"),
    used(Array, "service-account-key-file", "",
        "a public key (PEM) of service account tokens; may be repeated"),
    used(Switch, "service-account-lookup", "true",
        "ask the store whether a legacy token's secret and account still exist"),
    used(Duration, "service-account-max-token-expiration", "0s",
        "the longest time a token may be asked for; 0 for no limit"),
    used(Text, "token-auth-file", "", "a CSV file of tokens: token,user,uid[,groups]"),
];
