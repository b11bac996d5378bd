//! A warning where a kube-controller-manager runs beside the controllers of this server: both do
//! the same work.

use std::time::Duration;

use super::ControllerDeps;
use super::client::Client;
use crate::meta::Object;
use crate::meta::time::parse_micro;

/// The time between two looks at its lease.
const INTERVAL: Duration = Duration::from_secs(2);
/// The namespace and the name of the lease by which its instances elect a leader.
const LEASE: (&str, &str) = ("kube-system", "kube-controller-manager");

/// Looks for one until the server stops, and warns of each that it finds, once.
pub async fn watch(deps: ControllerDeps) {
    let client = Client::new(&deps.api, "lease-observer");
    let mut known = String::new();
    loop {
        let lease = async {
            let leases = client.store("coordination.k8s.io", "v1", "leases")?;
            client.get(&leases, LEASE.0, LEASE.1).await
        };
        if let Ok(Some(lease)) = lease.await
            && is_held(&lease, deps.api.clock.now().as_second())
        {
            let holder = lease.str_at("/spec/holderIdentity");
            if holder != known {
                tracing::warn!(
                    "kube-controller-manager {holder} runs beside the controllers of this server \
                     (--controllers): both do the same work, and one of them should go"
                );
                holder.clone_into(&mut known);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = deps.stopping.wait() => return,
        }
    }
}

/// Reports whether somebody holds a lease at a time, in seconds since 1970.
fn is_held(lease: &Object, now: i64) -> bool {
    let renewed = parse_micro(lease.str_at("/spec/renewTime"));
    let seconds = lease.i64_at("/spec/leaseDurationSeconds").unwrap_or(0);
    let until = renewed.map_or(0, |at| at.seconds.saturating_add(seconds));
    !lease.str_at("/spec/holderIdentity").is_empty() && until >= now
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn a_lease_is_held_until_it_expires() {
        let lease = |holder: &str| {
            Object::from_value(json!({"spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.000000Z",
            }}))
            .expect("an object")
        };
        let renewed = parse_micro("2026-01-01T00:00:00.000000Z")
            .expect("a time")
            .seconds;
        assert!(is_held(&lease("a"), renewed + 15));
        assert!(!is_held(&lease("a"), renewed + 16));
        assert!(!is_held(&lease(""), renewed));
        assert!(!is_held(&Object::default(), 1));
    }
}
