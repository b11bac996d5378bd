//! Flags of the section "Secure serving".

use super::{Flag, ignored, used};
use crate::options::flags::Kind::{Array, Int, List, Switch, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    used(Text, "bind-address", "0.0.0.0", "the address to listen on"),
    used(Text, "cert-dir", "",
        "where a serving certificate is made if no --tls-cert-file is given (default: pki in --data-dir)"),
    used(Switch, "disable-http2-serving", "false", "speak HTTP/1.1 only"),
    used(Int, "http2-max-streams-per-connection", "0",
        "how many requests one HTTP/2 connection may have open; 0 for 100"),
    ignored(Switch, "permit-address-sharing", "false", "SO_REUSEADDR is always set"),
    used(Switch, "permit-port-sharing", "false", "set SO_REUSEPORT on the listening socket"),
    used(Int, "secure-port", "6443", "the port to serve HTTPS on; 0 for any free one"),
    used(Text, "tls-cert-file", "",
        "the serving certificate (PEM), followed by its intermediates; made if absent"),
    used(List, "tls-cipher-suites", "", "the TLS 1.2 cipher suites to allow, by their IANA names"),
    used(List, "tls-curve-preferences", "",
        "the key exchanges to allow, by their TLS numbers: 23, 24, 29, 4588"),
    used(Text, "tls-min-version", "", "VersionTLS12 or VersionTLS13"),
    used(Text, "tls-private-key-file", "", "the key of --tls-cert-file"),
    used(Array, "tls-sni-cert-key", "",
        "another certificate: CERT,KEY[:domain,domain...]; domains default to the names in the certificate"),
];
