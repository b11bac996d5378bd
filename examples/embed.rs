//! A Kubernetes API server inside a program, and kube-rs as its client:
//! `cargo run --example embed`.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};

#[tokio::main]
pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In memory, on any free port of the loopback interface, and gone at the end.
    let server = keelson::Server::builder().start().await?;

    // With the feature `kube` of this crate, `server.kube_config().await?` does the same.
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig().unwrap_or_default())?;
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    let client = kube::Client::try_from(config)?;

    let config_maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let config_map = ConfigMap {
        metadata: ObjectMeta {
            name: Some("hello".to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let made = config_maps
        .create(&PostParams::default(), &config_map)
        .await?;
    assert!(made.metadata.uid.is_some());

    server.stop().await?;
    Ok(())
}
