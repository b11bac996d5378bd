//! The metrics of all modules. Those without labels are shown from the start, and all are known to
//! the metrics about metrics.

use super::super::filters::{authentication, authorization};
use super::super::local_store::schedule;
use super::super::storage_metrics;
use super::super::{
    authentication_config, authorization as authorizers, connections, listener, tls,
};
use super::{facts, runtime};
use crate::admission::{observation, pod_security, policy};
use crate::aggregator::{availability, forward};
use crate::auth::{authn, authz, impersonation};
use crate::builtin::certificates::certificate_signing_request;
use crate::builtin::core::service;
use crate::controlplane::reconcilers;
use crate::endpoints::handlers::connect;
use crate::proxy::{spdy_tunnel, translate};
use crate::registry::store;
use crate::storage::{compaction, embedded, encryption, etcd3, metered};
use crate::telemetry::metrics::Declared;
use crate::telemetry::{health, requests, work_queues};
use crate::{audit, cacher, cel, discovery, egress, extensions, flowcontrol, webhook};

type Metrics = &'static [&'static dyn Declared];

static LISTS: &[Metrics] = &[
    requests::METRICS,
    health::METRICS,
    work_queues::METRICS,
    metered::METRICS,
    etcd3::metrics::METRICS,
    embedded::usage::METRICS,
    compaction::METRICS,
    encryption::metrics::METRICS,
    cacher::metrics::METRICS,
    webhook::metrics::METRICS,
    egress::metrics::METRICS,
    spdy_tunnel::METRICS,
    translate::METRICS,
    authn::metrics::METRICS,
    authn::external_signer::METRICS,
    authn::openid::metrics::METRICS,
    authn::service_account::METRICS,
    authz::metrics::METRICS,
    authz::node_metrics::METRICS,
    discovery::metrics::METRICS,
    audit::metrics::METRICS,
    flowcontrol::metrics::METRICS,
    observation::METRICS,
    policy::observation::METRICS,
    pod_security::metrics::METRICS,
    impersonation::metrics::METRICS,
    cel::metrics::METRICS,
    store::METRICS,
    service::metrics::METRICS,
    certificate_signing_request::metrics::METRICS,
    extensions::conversion::METRICS,
    extensions::schema::metrics::METRICS,
    connect::log::METRICS,
    connect::stream::METRICS,
    reconcilers::cluster_ips::METRICS,
    reconcilers::node_ports::METRICS,
    availability::METRICS,
    forward::METRICS,
    authentication::METRICS,
    authorization::METRICS,
    &authentication_config::METRICS,
    &authorizers::METRICS,
    connections::METRICS,
    listener::METRICS,
    tls::METRICS,
    storage_metrics::METRICS,
    schedule::METRICS,
    facts::METRICS,
    runtime::METRICS,
];

fn all() -> impl Iterator<Item = &'static dyn Declared> {
    LISTS.iter().flat_map(|list| list.iter().copied())
}

/// Begins to expose every metric that the flags do not keep back.
pub fn declare() {
    all().for_each(Declared::declare);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The metrics of the source, each a static that begins with its name.
    fn in_source(folder: &std::path::Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                in_source(&path, names);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a file");
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or("");
            for kind in ["Counter", "Gauge", "Histogram", "Summary"] {
                for made in [format!("{kind}::new("), format!("{kind}::deprecated(")] {
                    for rest in code.split(&made).skip(1) {
                        let name = rest.trim_start().strip_prefix('"');
                        let name = name.and_then(|rest| rest.split('"').next());
                        names.extend(name.map(str::to_owned));
                    }
                }
            }
        }
    }

    #[test]
    fn every_metric_of_the_source_is_declared_once() {
        let mut names = BTreeSet::new();
        in_source(std::path::Path::new("src"), &mut names);
        let declared: Vec<&str> = all().map(Declared::name).collect();
        let once: BTreeSet<String> = declared.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(declared.len(), once.len());
        let missing: Vec<_> = names.difference(&once).collect();
        assert!(missing.is_empty(), "{missing:?} are in no list");
        assert!(names.len() > 100, "{names:?}");
    }
}
