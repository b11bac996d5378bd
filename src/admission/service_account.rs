//! ServiceAccount: sets the service account of a pod and mounts its token
//! (`plugin/pkg/admission/serviceaccount`).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::taints::list_mut;
use super::{Attributes, Objects, Operation, Plugin};
use crate::auth::authz::pod_references;
use crate::base::random;
use crate::meta::go;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Value, array_at, json, str_at};

const DEFAULT_ACCOUNT: &str = "default";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The lifetime by which the kubelet and the token issuer recognise a default token.
const TOKEN_SECONDS: i64 = 3607;
const MIRROR: &str = "kubernetes.io/config.mirror";
const ENFORCE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

/// The most look-ups of the default account, which a controller makes only after its namespace.
const ATTEMPTS: usize = 10;
const RETRY: Duration = Duration::from_millis(150);

pub struct ServiceAccount(pub Arc<dyn Objects>);

impl ServiceAccount {
    async fn account(&self, attributes: &Attributes<'_>, name: &str) -> Result<Arc<Object>> {
        let accounts = Gvr::new("", "v1", "serviceaccounts");
        let attempts = if name == DEFAULT_ACCOUNT { ATTEMPTS } else { 1 };
        for attempt in 0..attempts {
            if attempt > 0 {
                tokio::time::sleep(RETRY).await;
            }
            if let Some(account) = self.0.get(&accounts, attributes.namespace, name).await? {
                return Ok(account);
            }
        }
        let place = format!("{}/{name}", attributes.namespace);
        Err(attributes.forbidden(&format!(
            "error looking up service account {place}: serviceaccount {} not found",
            go::quote(name)
        )))
    }
}

fn is_mirror(pod: &Object) -> bool {
    pod.annotations()
        .is_some_and(|all| all.contains_key(MIRROR))
}

/// Reports whether the pod gets a token: by its own field, its account's, or else by default.
fn wants_token(pod: &Object, account: &Object) -> bool {
    let of_pod = pod
        .at("/spec/automountServiceAccountToken")
        .and_then(Value::as_bool);
    of_pod
        .or_else(|| {
            account
                .get("automountServiceAccountToken")
                .and_then(Value::as_bool)
        })
        .unwrap_or(true)
}

/// The volume with the token, the cluster's CA and the namespace.
fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
            ],
            "defaultMode": 420,
        },
    })
}

/// Mounts the token into each container that has nothing at its path yet.
fn mount_token(pod: &mut Object) {
    let existing = pod
        .array_at("/spec/volumes")
        .iter()
        .map(|volume| str_at(volume, "/name"))
        .find(|name| name.starts_with(VOLUME_PREFIX));
    let existing = existing.map(str::to_owned);
    let name = existing
        .clone()
        .unwrap_or_else(|| format!("{VOLUME_PREFIX}{}", random::suffix(5)));
    let mut mounted = false;
    let spec = pod.section_mut("spec");
    for key in ["initContainers", "containers"] {
        let containers = spec
            .get_mut(key)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            let mounts = list_mut(container, "volumeMounts");
            if !mounts
                .iter()
                .any(|mount| str_at(mount, "/mountPath") == MOUNT_PATH)
            {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
                mounted = true;
            }
        }
    }
    if mounted && existing.is_none() {
        list_mut(spec, "volumes").push(token_volume(&name));
    }
}

/// Returns the part of a mirror pod that is not allowed. A mirror pod represents a static pod of
/// the kubelet.
fn mirror_problem(pod: &Object) -> Option<&'static str> {
    let mut sources = pod
        .array_at("/spec/volumes")
        .iter()
        .flat_map(|volume| array_at(volume, "/projected/sources"));
    if !pod.str_at("/spec/serviceAccountName").is_empty() {
        Some("a mirror pod may not reference service accounts")
    } else if !pod_references::secrets(pod).is_empty() {
        Some("a mirror pod may not reference secrets")
    } else if sources.any(|source| {
        source
            .get("serviceAccountToken")
            .is_some_and(Value::is_object)
    }) {
        Some("a mirror pod may not use ServiceAccountToken volume projections")
    } else {
        None
    }
}

/// For accounts that list the secrets their pods may use: the first that the pod uses and the list
/// lacks.
fn secret_problem(pod: &Object, account: &Object, ephemeral: bool) -> Option<String> {
    let strict = account
        .annotations()
        .and_then(|all| all.get(ENFORCE_SECRETS))
        .and_then(Value::as_str);
    if !matches!(strict, Some("1" | "t" | "T" | "TRUE" | "true" | "True")) {
        return None;
    }
    let listed = |path: &str| -> HashSet<&str> {
        account
            .array_at(path)
            .iter()
            .map(|one| str_at(one, "/name"))
            .collect()
    };
    let (secrets, pull_secrets) = (listed("/secrets"), listed("/imagePullSecrets"));
    let refused = |name: &str| !name.is_empty() && !secrets.contains(name);
    let why = format!(
        "is not allowed because service account {} does not reference that",
        account.name()
    );
    let kinds: &[(&str, &str)] = match ephemeral {
        true => &[("/spec/ephemeralContainers", "ephemeral container")],
        false => &[
            ("/spec/initContainers", "init container"),
            ("/spec/containers", "container"),
        ],
    };
    if !ephemeral {
        let volumes = pod
            .array_at("/spec/volumes")
            .iter()
            .map(|volume| str_at(volume, "/secret/secretName"));
        if let Some(name) = volumes.into_iter().find(|name| refused(name)) {
            return Some(format!(
                "volume with secret.secretName=\"{name}\" {why} secret"
            ));
        }
    }
    for (path, kind) in kinds {
        for container in pod.array_at(path) {
            let of = str_at(container, "/name");
            for variable in array_at(container, "/env") {
                let name = str_at(variable, "/valueFrom/secretKeyRef/name");
                if refused(name) {
                    let variable = str_at(variable, "/name");
                    return Some(format!(
                        "{kind} {of} with envVar {variable} referencing secret.secretName=\"{name}\" {why} secret"
                    ));
                }
            }
            let mut sources = array_at(container, "/envFrom")
                .iter()
                .map(|source| str_at(source, "/secretRef/name"));
            if let Some(name) = sources.find(|name| refused(name)) {
                return Some(format!(
                    "{kind} {of} with envFrom referencing secret.secretName=\"{name}\" {why} secret"
                ));
            }
        }
    }
    if ephemeral {
        return None;
    }
    let pulls = pod
        .array_at("/spec/imagePullSecrets")
        .iter()
        .map(|one| str_at(one, "/name"));
    let (index, name) = pulls
        .enumerate()
        .find(|(_, name)| !pull_secrets.contains(name))?;
    Some(format!(
        "imagePullSecrets[{index}].name=\"{name}\" {why} imagePullSecret"
    ))
}

#[async_trait]
impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        match attributes.operation {
            Operation::Create => attributes.is("", "pods"),
            Operation::Update => {
                attributes.is_any("", "pods") && attributes.subresource == "ephemeralcontainers"
            }
            _ => false,
        }
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let Some(pod) = attributes.object() else {
            return Ok(());
        };
        if attributes.operation != Operation::Create || is_mirror(pod) {
            return self.validate(attributes).await;
        }
        let name = match pod.str_at("/spec/serviceAccountName") {
            "" => DEFAULT_ACCOUNT.to_owned(),
            name => name.to_owned(),
        };
        let account = self.account(attributes, &name).await?;
        let Some(pod) = attributes.object_mut() else {
            return Ok(());
        };
        // The older name of the field follows it.
        for key in ["serviceAccountName", "serviceAccount"] {
            pod.section_mut("spec")
                .insert(key.to_owned(), name.as_str().into());
        }
        if wants_token(pod, &account) {
            mount_token(pod);
        }
        if pod.array_at("/spec/imagePullSecrets").is_empty()
            && !account.array_at("/imagePullSecrets").is_empty()
        {
            let secrets = account
                .array_at("/imagePullSecrets")
                .iter()
                .map(|one| json!({"name": str_at(one, "/name")}))
                .collect();
            pod.section_mut("spec").insert("imagePullSecrets", secrets);
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let Some(pod) = attributes.object() else {
            return Ok(());
        };
        let ephemeral = attributes.operation == Operation::Update;
        if !ephemeral && is_mirror(pod) {
            return mirror_problem(pod).map_or(Ok(()), |why| Err(attributes.forbidden(why)));
        }
        let name = pod.str_at("/spec/serviceAccountName");
        if name.is_empty() {
            let why = format!(
                "no service account specified for pod {}/{}",
                attributes.namespace,
                pod.name()
            );
            return Err(attributes.forbidden(&why));
        }
        let account = self.account(attributes, name).await?;
        secret_problem(pod, &account, ephemeral)
            .map_or(Ok(()), |why| Err(attributes.forbidden(&why)))
    }
}
