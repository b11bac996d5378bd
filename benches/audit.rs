//! The cost of auditing a request at level Metadata: the policy, two events, their JSON and the
//! log.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use futures::executor::block_on;
use keelson::internals::audit::{
    Auditor, Blocking, Format, LogBackend, LogFile, Policy, RequestFacts, RotationSettings,
};
use keelson::internals::auth::{Attributes, User};
use keelson::internals::base::Clock;

const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, users: ['system:kube-proxy'], verbs: [watch], resources: [{resources: [endpoints, services]}]}
- {level: None, nonResourceURLs: ['/healthz*', /version]}
- {level: Request, resources: [{resources: [pods/exec]}, {group: apps}]}
- {level: Metadata}
";

/// The size at which the log begins anew, in bytes.
const LOG_BYTES: u64 = 64 << 20;

fn auditor(log: &Path) -> Arc<Auditor> {
    let policy = Policy::parse(POLICY.as_bytes()).expect("a policy");
    let settings = RotationSettings {
        max_bytes: LOG_BYTES,
        max_backups: 1,
        ..RotationSettings::default()
    };
    let file = LogFile::open(log, settings, Clock::system()).expect("a log");
    let log = LogBackend::new(Some(file), Format::Json);
    Auditor::new(policy, Box::new(Blocking::new(log, false)), Clock::system())
}

fn attributes() -> Attributes {
    let groups = ["system:serviceaccounts", "system:authenticated"];
    let user = User {
        name: "system:serviceaccount:kube-system:deployment-controller".to_owned(),
        groups: groups.map(str::to_owned).to_vec(),
        ..User::default()
    };
    Attributes {
        user: user.into(),
        verb: "get".to_owned(),
        version: "v1".to_owned(),
        resource: "configmaps".to_owned(),
        namespace: "kube-system".to_owned(),
        name: "settings".to_owned(),
        resource_request: true,
        ..Attributes::default()
    }
}

fn request(auditor: &Arc<Auditor>, attributes: &Attributes) {
    let facts = || RequestFacts {
        audit_id: "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f".to_owned(),
        uri: "/api/v1/namespaces/kube-system/configmaps/settings".to_owned(),
        user_agent: "kube-controller-manager/v1.36.0 (linux/amd64) kubernetes/0000000".to_owned(),
        source_ips: vec!["10.0.0.1".to_owned()],
        ..RequestFacts::default()
    };
    let audit = auditor.begin(attributes, facts).expect("audited");
    block_on(audit.receive());
    audit.annotate("authorization.k8s.io/decision", "allow");
    audit.annotate("authorization.k8s.io/reason", "RBAC: allowed");
    block_on(audit.complete(200));
}

fn audit(c: &mut Criterion) {
    let mut group = c.benchmark_group("audit");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let auditor = auditor(&folder.path().join("audit.log"));
    let attributes = attributes();
    group.bench_function("metadata", |b| {
        b.iter(|| request(&auditor, black_box(&attributes)));
    });
    group.finish();
}

criterion_group!(benches, audit);
criterion_main!(benches);
