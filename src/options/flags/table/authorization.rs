//! Flags of the section "Authorization".

use super::{Flag, used};
use crate::options::flags::Kind::{Duration, List, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    used(Text, "authorization-config", "",
        "an AuthorizationConfiguration: the authorizers, in order; followed when it changes"),
    used(List, "authorization-mode", "Node,RBAC",
        "the authorizers to ask, in order: Node, RBAC, Webhook, ABAC, AlwaysAllow, AlwaysDeny (kube-apiserver's default: AlwaysAllow)"),
    used(Text, "authorization-policy-file", "",
        "the policies of the mode ABAC, a JSON object a line"),
    used(Duration, "authorization-webhook-cache-authorized-ttl", "5m0s",
        "how long what the webhook allowed is allowed without asking again"),
    used(Duration, "authorization-webhook-cache-unauthorized-ttl", "30s",
        "how long what the webhook did not allow is not allowed without asking again"),
    used(Text, "authorization-webhook-config-file", "",
        "a kubeconfig file: where the webhook of the mode Webhook is"),
    used(Text, "authorization-webhook-version", "v1beta1",
        "the version of the SubjectAccessReviews that the webhook gets"),
];
