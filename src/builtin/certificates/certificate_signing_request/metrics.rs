//! The metrics of issued certificates (`registry/certificates/certificates/storage/metrics.go`).

use async_trait::async_trait;
use x509_parser::pem::Pem;

use super::decode;
use crate::meta::{Object, Value};
use crate::registry::resource::Hooks;
use crate::telemetry::metrics::{Counter, Declared};

static REQUESTED: Counter = Counter::new(
    "apiserver_certificates_registry_csr_requested_duration_total",
    "[ALPHA] Total number of issued CSRs with a requested duration, sliced by signer (only kubernetes.io signer names are specifically identified)",
    &["signerName"],
);
static HONORED: Counter = Counter::new(
    "apiserver_certificates_registry_csr_honored_duration_total",
    "[ALPHA] Total number of issued CSRs with a requested duration that was honored, sliced by signer (only kubernetes.io signer names are specifically identified)",
    &["signerName"],
);
pub static METRICS: &[&dyn Declared] = &[&REQUESTED, &HONORED];

/// The signers that are counted by name. Upstream counts whatever name begins as theirs.
const SIGNERS: [&str; 4] = [
    "kubernetes.io/kube-apiserver-client",
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/legacy-unknown",
];
/// The time by which a signer may miss what was asked for, and the part of that time on top.
const TOLERANCE_SECONDS: i64 = 5 * 60;
const TOLERANCE_DIVISOR: i64 = 20;

/// Counts the certificates that requests with a duration get, and those that last as long.
pub struct IssuedDurations;

#[async_trait]
impl Hooks for IssuedDurations {
    async fn written(&self, object: &Object, old: Option<&Object>) {
        let Some(old) = old.filter(|old| old.str_at("/status/certificate").is_empty()) else {
            return;
        };
        let wanted = old.at("/spec/expirationSeconds").and_then(Value::as_i64);
        let issued = object.str_at("/status/certificate");
        let Some(wanted) = wanted.filter(|_| !issued.is_empty()) else {
            return;
        };
        let signer = old.str_at("/spec/signerName");
        let known = SIGNERS.into_iter().find(|known| *known == signer);
        let labels = [known.unwrap_or("other")];
        REQUESTED.inc(&labels);
        if lifetime(&decode(issued)).is_some_and(|lifetime| is_honored(wanted, lifetime)) {
            HONORED.inc(&labels);
        }
    }

    async fn deleted(&self, _object: &Object) {}
}

/// The seconds that the first certificate is valid for.
fn lifetime(pem: &[u8]) -> Option<i64> {
    let first = Pem::iter_from_buffer(pem).find_map(Result::ok)?;
    let certificate = first.parse_x509().ok()?;
    let validity = certificate.validity();
    Some(validity.not_after.timestamp() - validity.not_before.timestamp())
}

fn is_honored(wanted: i64, lifetime: i64) -> bool {
    wanted.abs_diff(lifetime) < (TOLERANCE_SECONDS + wanted / TOLERANCE_DIVISOR).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_may_differ_a_little() {
        for (wanted, lifetime, honored) in [
            (3600, 3600, true),
            (3600, 3600 + 479, true),
            (3600, 3600 + 480, false),
            (3600, 3600 - 480, false),
            (600, 86_400, false),
        ] {
            assert_eq!(is_honored(wanted, lifetime), honored, "{wanted} {lifetime}");
        }
        assert_eq!(lifetime(b"no certificate"), None);
    }
}
