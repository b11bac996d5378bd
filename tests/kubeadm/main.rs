//! A static pod manifest as kubeadm v1.36 writes it: its command line starts this server, and its
//! probes succeed.

#[path = "../support/mod.rs"]
mod support;

mod pki;

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use keelson::internals::codec::yaml;
use keelson::internals::meta::Value;
use keelson::internals::options::check;
use kube::Api;
use support::etcd::Etcd;
use support::{TestServer, free_port, http as client};

/// Time limit for the answer to a probe: the manifest's own `timeoutSeconds`.
const PROBE: Duration = Duration::from_secs(15);

/// The manifest, as a cluster has it whose certificates are in `root`, with a server on `port` and
/// its etcd at `endpoint`.
fn manifest(root: &Path, port: u16, endpoint: &str) -> Value {
    let text = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubeadm/kube-apiserver.yaml"),
    )
    .expect("the manifest");
    let text = text
        .replace("/etc/kubernetes", &root.display().to_string())
        .replace("6443", &port.to_string())
        .replace("https://127.0.0.1:2379", endpoint);
    yaml::to_value(text.as_bytes()).expect("YAML").0
}

fn container(manifest: &Value) -> &Value {
    manifest.pointer("/spec/containers/0").expect("a container")
}

fn command(manifest: &Value) -> Vec<String> {
    let words = container(manifest)["command"]
        .as_array()
        .expect("a command");
    words
        .iter()
        .map(|word| word.as_str().expect("a word").to_owned())
        .collect()
}

/// Sends a probe as the kubelet does: without credentials, and without verifying the certificate.
async fn probe(port: u16, probe: &Value) -> (u16, Bytes) {
    let get = &probe["httpGet"];
    assert_eq!(
        (get["scheme"].as_str(), get["port"].as_str()),
        (Some("HTTPS"), Some("probe-port"))
    );
    let path = get["path"].as_str().expect("a path");
    let host = get["host"].as_str().expect("a host");
    let request = Request::get(path)
        .header("host", format!("{host}:{port}"))
        .header("user-agent", "kube-probe/1.36");
    let answer = client::call(
        port,
        request.body(Full::default()).expect("a request"),
        PROBE,
    )
    .await
    .expect("an answer");
    (answer.status, answer.body)
}

#[tokio::test]
async fn the_manifest_starts_a_server_that_its_probes_find_well() {
    let root = tempfile::tempdir().expect("a temporary folder");
    pki::make(&root.path().join("pki"));
    let etcd = Etcd::start_with(Some(pki::etcd(&root.path().join("pki/etcd"))));
    let port = free_port();
    let manifest = manifest(root.path(), port, &etcd.endpoint());
    let (name, args) = command(&manifest)
        .split_first()
        .map(|(name, args)| (name.clone(), args.to_vec()))
        .expect("a command");
    assert_eq!(name, "kube-apiserver");

    let mut server = TestServer::run(root.path(), &args);
    server
        .ready("the manifest's server", || {
            client::get_status(port, "/readyz")
        })
        .await;
    for kind in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(
            probe(port, &container(&manifest)[kind]).await,
            (200, Bytes::from("ok")),
            "{kind}"
        );
    }

    // It is the cluster that the manifest describes: kubeadm's certificates open it, its addresses
    // are those of the flags.
    let admin = pki::client(root.path(), port, "admin");
    let service = Api::<Service>::namespaced(admin.clone(), "default")
        .get("kubernetes")
        .await
        .expect("the service");
    assert_eq!(
        service.spec.and_then(|spec| spec.cluster_ip).as_deref(),
        Some("10.96.0.1")
    );
    let endpoints = Api::<Endpoints>::namespaced(admin, "default")
        .get("kubernetes")
        .await
        .expect("the endpoints");
    let address = endpoints.subsets.and_then(|subsets| {
        subsets
            .first()?
            .addresses
            .as_ref()?
            .first()
            .map(|one| one.ip.clone())
    });
    assert_eq!(address.as_deref(), Some("192.0.2.10"));
    // A front proxy speaks for others; the scheduler's certificate is the scheduler's.
    let request = |user: &str| {
        let request = Request::get("/api/v1/secrets")
            .header("x-remote-user", user)
            .header("x-remote-group", "system:masters");
        request.body(Vec::new()).expect("a request")
    };
    let proxy = pki::client(root.path(), port, "front-proxy-client");
    assert!(proxy.request_text(request("jane")).await.is_ok());
    let scheduler = pki::client(root.path(), port, "scheduler");
    let denied = scheduler
        .request_text(request("jane"))
        .await
        .expect_err("the scheduler may not");
    assert!(
        denied
            .to_string()
            .contains(r#"User "system:kube-scheduler" cannot list resource "secrets""#),
        "{denied}"
    );

    let log = server.log();
    assert!(!log.contains("has no effect: "), "{log}");
}

/// Flags that are added to the manifest are obeyed, warned about, or the reason not to start.
#[test]
fn added_flags_are_obeyed_or_reported() {
    let root = Path::new("/etc/kubernetes");
    let checked = |extra: &[&str]| {
        let mut args = command(&manifest(root, 6443, "https://127.0.0.1:2379"));
        args.extend(extra.iter().map(ToString::to_string));
        check(args.into_iter().skip(1))
    };
    let told = |extra: &[&str]| match checked(extra) {
        Ok(checked) => {
            let names: Vec<String> = extra
                .iter()
                .map(|arg| arg[2..].split('=').next().expect("a name").to_owned())
                .collect();
            checked
                .without_effect
                .into_iter()
                .filter(|name| names.contains(name))
                .collect()
        }
        Err(why) => vec![why.to_string()],
    };
    // Each makes another configuration than the manifest alone; `tests/attacks/flags.rs` looks at
    // what servers do with it.
    let config = |extra: &[&str]| checked(extra).map(|checked| checked.configuration);
    let plain = config(&[]).expect("the manifest alone");
    for obeyed in [
        "--feature-gates=APIResponseCompression=false",
        "--runtime-config=batch/v1/cronjobs=false",
        "--anonymous-auth=false",
        "--event-ttl=2h",
        "--service-node-port-range=30000-31000",
        "--tls-min-version=VersionTLS13",
        "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "--max-requests-inflight=800",
        "--goaway-chance=0.001",
        "--etcd-compaction-interval=10m",
        "--enable-admission-plugins=AlwaysPullImages",
        "--profiling=false",
        "--audit-policy-file=/policy",
        "--encryption-provider-config=/config",
        "--egress-selector-config-file=/config",
        "--v=2",
    ] {
        assert!(
            told(&[obeyed]).is_empty(),
            "{obeyed}: {:?}",
            told(&[obeyed])
        );
        assert_ne!(
            config(&[obeyed]).expect(obeyed),
            plain,
            "{obeyed} changes nothing"
        );
    }
    for (refused, why) in [
        (
            "--runtime-config=api/all=true",
            "alpha and beta versions are not implemented",
        ),
        (
            "--feature-gates=HPAScaleToZero=true",
            "HPAScaleToZero=true is not supported",
        ),
    ] {
        let said = config(&[refused]).expect_err(refused).to_string();
        assert!(said.contains(why), "{refused}: {said}");
    }
    assert_eq!(told(&["--vmodule=a=1"]), ["vmodule"]);
    // Without it the cluster would be other than its owner believes.
    assert_eq!(
        told(&["--max-connection-bytes-per-sec=1000"]),
        ["--max-connection-bytes-per-sec is not supported: connections are not throttled"]
    );
    // Flags of other versions are no flags.
    for (flag, name) in [
        ("--insecure-port=0", "insecure-port"),
        ("--cloud-provider=external", "cloud-provider"),
    ] {
        assert_eq!(told(&[flag]), [format!("unknown flag: --{name}")]);
    }
}

#[tokio::test]
async fn a_server_that_may_not_start_says_why_and_ends_badly() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let mut server = TestServer::run(root.path(), &["--insecure-port=0".to_owned()]);
    assert!(!server.ends().await);
    assert_eq!(server.log(), "Error: unknown flag: --insecure-port\n");
}
