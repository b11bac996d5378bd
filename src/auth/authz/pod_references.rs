//! The secrets, config maps and claims that a pod refers to (`pkg/api/v1/pod`, component-helpers
//! `pod`).

use std::collections::BTreeSet;

use crate::meta::Value;

use crate::meta::{Object, array_at, str_at};

/// The paths, below a volume, at which each kind of volume names its secret.
const VOLUME_SECRETS: [&str; 10] = [
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/flexVolume/secretRef/name",
    "/rbd/secretRef/name",
    "/secret/secretName",
    "/scaleIO/secretRef/name",
    "/iscsi/secretRef/name",
    "/storageos/secretRef/name",
    "/csi/nodePublishSecretRef/name",
];

/// Every container of the pod: init, ordinary and ephemeral.
pub fn containers(pod: &Object) -> impl Iterator<Item = &Value> {
    [
        "/spec/initContainers",
        "/spec/containers",
        "/spec/ephemeralContainers",
    ]
    .into_iter()
    .flat_map(|path| pod.array_at(path))
}

/// The names at `env` below each environment variable and at `from` below each source of variables.
fn environment<'a>(
    container: &'a Value,
    env: &'static str,
    from: &'static str,
) -> impl Iterator<Item = &'a str> {
    let variables = array_at(container, "/env")
        .iter()
        .map(move |one| str_at(one, env));
    variables.chain(
        array_at(container, "/envFrom")
            .iter()
            .map(move |one| str_at(one, from)),
    )
}

fn sources(pod: &Object) -> impl Iterator<Item = &Value> {
    pod.array_at("/spec/volumes")
        .iter()
        .flat_map(|volume| array_at(volume, "/projected/sources"))
}

/// The names of the secrets.
pub fn secrets(pod: &Object) -> BTreeSet<&str> {
    let pull = pod
        .array_at("/spec/imagePullSecrets")
        .iter()
        .map(|one| str_at(one, "/name"));
    let volumes = pod
        .array_at("/spec/volumes")
        .iter()
        .flat_map(|volume| VOLUME_SECRETS.iter().map(|path| str_at(volume, path)));
    let projected = sources(pod).map(|source| str_at(source, "/secret/name"));
    let used = containers(pod).flat_map(|container| {
        environment(container, "/valueFrom/secretKeyRef/name", "/secretRef/name")
    });
    pull.chain(volumes)
        .chain(projected)
        .chain(used)
        .filter(|name| !name.is_empty())
        .collect()
}

/// The names of the config maps.
pub fn config_maps(pod: &Object) -> BTreeSet<&str> {
    let volumes = pod
        .array_at("/spec/volumes")
        .iter()
        .map(|volume| str_at(volume, "/configMap/name"));
    let projected = sources(pod).map(|source| str_at(source, "/configMap/name"));
    let used = containers(pod).flat_map(|container| {
        environment(
            container,
            "/valueFrom/configMapKeyRef/name",
            "/configMapRef/name",
        )
    });
    volumes
        .chain(projected)
        .chain(used)
        .filter(|name| !name.is_empty())
        .collect()
}

/// The names of the claims, those of ephemeral volumes included.
pub fn claims(pod: &Object) -> BTreeSet<String> {
    let name = |volume: &Value| {
        let named = str_at(volume, "/persistentVolumeClaim/claimName");
        if named.is_empty() && volume.get("ephemeral").is_some() {
            return format!("{}-{}", pod.name(), str_at(volume, "/name"));
        }
        named.to_owned()
    };
    pod.array_at("/spec/volumes")
        .iter()
        .map(name)
        .filter(|name| !name.is_empty())
        .collect()
}
