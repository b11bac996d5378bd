//! Flags of the section "Authorization".

use super::{Flag, ignored, refused, used};
use crate::options::flags::Kind::{Duration, List, Text};

const NO_AUTHZ_WEBHOOK: &str = "authorization webhooks are not implemented";

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    refused(Text, "authorization-config", "",
        "structured authorization configuration is not implemented"),
    used(List, "authorization-mode", "Node,RBAC",
        "the authorizers to ask, in order: Node, RBAC, AlwaysAllow, AlwaysDeny (kube-apiserver's default: AlwaysAllow)"),
    refused(Text, "authorization-policy-file", "", "ABAC is not implemented"),
    ignored(Duration, "authorization-webhook-cache-authorized-ttl", "5m0s",
        "it tunes a webhook that is not configured"),
    ignored(Duration, "authorization-webhook-cache-unauthorized-ttl", "30s",
        "it tunes a webhook that is not configured"),
    refused(Text, "authorization-webhook-config-file", "", NO_AUTHZ_WEBHOOK),
    ignored(Text, "authorization-webhook-version", "v1beta1",
        "it tunes a webhook that is not configured"),
];
