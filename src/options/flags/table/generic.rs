//! Flags of the section "Generic".

use super::{Flag, ignored, refused, used};
use crate::options::flags::Kind::{Duration, Int, List, Number, Switch, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    used(Text, "advertise-address", "",
        "the address of this server for the rest of the cluster; the bind address, or the default interface's"),
    used(List, "cors-allowed-origins", "",
        "patterns of the origins whose pages may see answers: CORS"),
    refused(List, "emulated-version", "", "only v1.36 can be served"),
    refused(Switch, "emulation-forward-compatible", "false", "only v1.36 can be served"),
    used(Text, "external-hostname", "",
        "the host name in URLs that lead back to this server, such as those of OpenID discovery"),
    used(List, "feature-gates", "", "name=true|false pairs"),
    used(Number, "goaway-chance", "0",
        "how likely a request has its HTTP/2 client open another connection, for balance; at most 0.02"),
    ignored(Duration, "livez-grace-period", "0s",
        "nothing starts after the server listens that /livez would wait for"),
    used(Int, "max-mutating-requests-inflight", "200",
        "how many mutating requests are served at once; see --max-requests-inflight"),
    used(Int, "max-requests-inflight", "400",
        "with --max-mutating-requests-inflight, the seats of all priority levels; or, without priority and fairness, how many non-mutating requests are served at once, 0 for no limit"),
    refused(List, "min-compatibility-version", "", "only v1.36 can be served"),
    used(Int, "min-request-timeout", "1800",
        "seconds that a watch lasts at least; each gets a random time up to twice as long"),
    used(Duration, "request-timeout", "1m0s",
        "how long a request may take, its answer included, unless it is a watch or stream"),
    refused(Switch, "runtime-config-emulation-forward-compatible", "false",
        "only v1.36 can be served"),
    ignored(Switch, "send-retry-after-while-not-ready-once", "false",
        "the server does not listen before it can answer"),
    used(Duration, "shutdown-delay-duration", "0s",
        "how long to go on serving, not ready, before shutdown begins"),
    used(Switch, "shutdown-send-retry-after", "false",
        "at shutdown, listen until all requests have finished, and answer new ones with 429 and Retry-After"),
    used(Duration, "shutdown-watch-termination-grace-period", "0s",
        "over how long a shutdown spreads the end of watches"),
    used(Duration, "storage-initialization-timeout", "1m0s",
        "how long to wait for the store at start"),
    used(List, "strict-transport-security-directives", "",
        "the header Strict-Transport-Security: max-age=SECONDS, includeSubDomains, preload"),
];
