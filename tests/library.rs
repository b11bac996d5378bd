//! Keelson as a library: servers inside this process, used by kube-rs.

#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson::{Builder, Server};
use kube::api::{ListParams, ObjectMeta, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::WatchEvent;
use kube::{Api, Client, Config};

#[path = "../examples/embed.rs"]
mod embed;

/// The time within which what must happen does.
const PATIENCE: Duration = Duration::from_secs(60);

async fn client(server: &Server) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig().unwrap()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

async fn create(client: &Client, name: &str) {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &config_map(name))
        .await
        .unwrap();
}

async fn names(client: &Client) -> Vec<String> {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let list = api.list(&ListParams::default()).await.unwrap();
    list.into_iter()
        .filter_map(|object| object.metadata.name)
        .collect()
}

#[tokio::test]
async fn a_server_in_memory_serves_its_administrator() {
    let server = Server::builder().start().await.unwrap();
    assert!(server.address().ip().is_loopback());
    assert_eq!(server.url(), format!("https://{}", server.address()));
    let client = client(&server).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.get("kube-system").await.unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut events = Box::pin(api.watch(&WatchParams::default(), "0").await.unwrap());
    create(&client, "seen").await;
    let is_seen = |event: &WatchEvent<ConfigMap>| matches!(event, WatchEvent::Added(object) if object.metadata.name.as_deref() == Some("seen"));
    let seen = async { while !is_seen(&events.try_next().await.unwrap().expect("an event")) {} };
    tokio::time::timeout(PATIENCE, seen).await.unwrap();
    server.stop().await.unwrap();
    // The watch has been ended, not cut.
    let rest = async { while events.try_next().await.unwrap().is_some() {} };
    tokio::time::timeout(PATIENCE, rest).await.unwrap();
}

#[tokio::test]
async fn strangers_are_nobody() {
    let server = Server::builder().start().await.unwrap();
    let mut config = Config::new(server.url().parse().unwrap());
    config.accept_invalid_certs = true;
    let stranger = Client::try_from(config).unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(stranger);
    let Err(kube::Error::Api(status)) = api.list(&ListParams::default()).await else {
        panic!("let in")
    };
    assert_eq!(status.code, 403);
    // Nor is the administrator of one server known to another, or the other to them.
    let other = Server::builder().start().await.unwrap();
    assert_ne!(
        server.certificate_authority(),
        other.certificate_authority()
    );
    let moved = server
        .kubeconfig()
        .unwrap()
        .replace(&server.url(), &other.url());
    let kubeconfig = Kubeconfig::from_yaml(&moved).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config.clone()).unwrap());
    assert!(api.list(&ListParams::default()).await.is_err());
    config.accept_invalid_certs = true;
    let api: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
    let Err(kube::Error::Api(status)) = api.list(&ListParams::default()).await else {
        panic!("let in")
    };
    assert_eq!(status.code, 401);
}

#[tokio::test]
async fn servers_have_nothing_in_common() {
    let privileged = Server::builder().flag("allow-privileged", true);
    let builders = [Server::builder(), privileged]
        .map(|builder: Builder| builder.without_admission_plugin("ServiceAccount"));
    let [one, other] = builders.map(Builder::start);
    let (one, other) = tokio::try_join!(one, other).unwrap();
    let (first, second) = (client(&one).await, client(&other).await);
    create(&first, "mine").await;
    assert!(names(&first).await.contains(&"mine".to_owned()));
    assert!(!names(&second).await.contains(&"mine".to_owned()));
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "a"},
        "spec": {"containers": [
            {"name": "a", "image": "a", "securityContext": {"privileged": true}}
        ]},
    }))
    .unwrap();
    for (client, is_taken) in [(first, false), (second.clone(), true)] {
        let api: Api<Pod> = Api::default_namespaced(client);
        let made = api.create(&PostParams::default(), &pod).await;
        assert_eq!(made.is_ok(), is_taken, "{made:?}");
    }
    one.stop().await.unwrap();
    create(&second, "later").await;
}

/// Defines a kind whose versions a webhook converts: what the server makes of it is to end with it.
async fn define(client: &Client) {
    let version = |name: &str| {
        serde_json::json!({
            "name": name,
            "served": true,
            "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object"}},
        })
    };
    let definition = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "crontabs.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "CronTab", "plural": "crontabs"},
            "scope": "Namespaced",
            "versions": [version("v1"), version("v2")],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {"service": {"namespace": "default", "name": "nope"}},
                    "conversionReviewVersions": ["v1"],
                },
            },
        },
    }));
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    api.create(&PostParams::default(), &definition.unwrap())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_folder_outlives_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Server::builder().folder(folder.path());
    let server = builder.clone().start().await.unwrap();
    let admin = client(&server).await;
    create(&admin, "kept").await;
    define(&admin).await;
    let second = builder.clone().start().await.map(drop).unwrap_err();
    assert!(
        second.to_string().ends_with("is in use by another process"),
        "{second}"
    );
    let (kubeconfig, port) = (server.kubeconfig().unwrap(), server.address().port());
    server.stop().await.unwrap();

    // At once, on the same port, with the same credentials.
    let server = builder.without_fsync().port(port).start().await.unwrap();
    assert_eq!(server.kubeconfig().unwrap(), kubeconfig);
    let written = std::fs::read_to_string(folder.path().join("admin.kubeconfig")).unwrap();
    assert_eq!(written, kubeconfig);
    assert!(
        names(&client(&server).await)
            .await
            .contains(&"kept".to_owned())
    );
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = Server::builder().port(port).start().await.map(drop);
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!(
            "listening on 127.0.0.1:{port}: Address already in use"
        )),
        "{error}"
    );
    let missing = Server::builder().serving_certificate("/nope.crt", "/nope.key");
    let error = missing.start().await.map(drop).unwrap_err().to_string();
    assert!(error.starts_with("--tls-cert-file=/nope.crt: "), "{error}");
}

#[tokio::test]
async fn certificates_may_be_given() {
    let folder = tempfile::tempdir().unwrap();
    let maker = Server::builder()
        .folder(folder.path())
        .start()
        .await
        .unwrap();
    let kubeconfig = maker.kubeconfig().unwrap();
    let url = maker.url();
    maker.stop().await.unwrap();
    let pki = folder.path().join("pki");
    let server = Server::builder()
        .serving_certificate(pki.join("apiserver.crt"), pki.join("apiserver.key"))
        .client_authority(pki.join("ca.crt"))
        .start()
        .await
        .unwrap();
    assert_eq!(server.kubeconfig(), None);
    let kubeconfig = kubeconfig.replace(&url, &server.url());
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    create(&client, "a").await;
}

/// Nothing of the program around it is needed: here it has no runtime at all.
#[test]
fn any_executor_will_do() {
    let server = futures::executor::block_on(Server::builder().start()).unwrap();
    let address = server.address();
    std::net::TcpStream::connect(address).unwrap();
    futures::executor::block_on(server.stop()).unwrap();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[tokio::test]
async fn dropped_servers_end() {
    let server = Server::builder().start().await.unwrap();
    let address = server.address();
    drop(server);
    let gone = async {
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

#[test]
fn the_example_runs() {
    embed::main().unwrap();
}

#[cfg(feature = "kube")]
#[tokio::test]
async fn the_configuration_of_kube_rs_is_the_kubeconfig() {
    let server = Server::builder().start().await.unwrap();
    let client = Client::try_from(server.kube_config().await.unwrap()).unwrap();
    create(&client, "a").await;
}
